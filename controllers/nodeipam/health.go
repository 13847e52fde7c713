package nodeipam

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/controller-manager/pkg/healthz"
	"k8s.io/klog/v2"

	networkingv1 "github.com/multicidr/controller-manager/apis/networking/v1"
	"github.com/multicidr/controller-manager/controllers/lease"
	"github.com/multicidr/controller-manager/controllers/nodeipam/allocator"
	"github.com/multicidr/controller-manager/controllers/nodeipam/requests"
	"github.com/multicidr/controller-manager/controllers/nodeipam/text"
)

// health is what keeps the controller from its work, for people: the health check, the log and the debug page say it.
// Nobody asks the API server for it; it is what the calls that are made anyway have shown. The zero value is healthy; all
// methods may be called at once.
type health struct {
	mu sync.Mutex
	// waitsFor is what Run waits for before it serves; the zero value once it does.
	waitsFor problem
	// unreadable is why ClusterCIDRs cannot be watched; the zero value while they are.
	unreadable problem
	// watches of what others share with us; nil if nobody knows of them.
	watches *Watches
	// broken is the panic that has ended the controller; nil if none has.
	broken any
	now    func() time.Time // nil: time.Now
	// failures are the writes that fail, by object, by kind of object.
	failures map[writeKind]map[string]*failure
	// written counts the writes that succeeded.
	written map[writeKind]int
	// doubted are the blocks, for people, of the Nodes that are in doubt.
	doubted map[string]string
}

// trouble is what is wrong and what to do about it. Two of the same what are the same trouble: an error can name a port or a
// time, and be another one at every try.
type problem struct {
	what string
	err  error // what the API server said; nil if it was not that
}

func (t problem) String() string {
	if t.err == nil {
		return t.what
	}
	return text.Cut(fmt.Sprintf("%s (%v)", t.what, t.err), text.MaxProblem)
}

// waitFor says what Run waits for now; the zero value: it serves. It reports whether that is new.
func (h *health) waitFor(t problem) (changed bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	changed = h.waitsFor.what != t.what
	h.waitsFor = t
	return changed
}

// read notes how the last try to read ClusterCIDRs ended: the zero value if it worked. It reports whether that is new.
func (h *health) read(t problem) (changed bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	changed = h.unreadable.what != t.what
	h.unreadable = t
	return changed
}

// writeKind is what is written, for people and in the metric.
type writeKind string

const (
	writesNode        writeKind = "Node"
	writesClusterCIDR writeKind = "ClusterCIDR"
	writesStatus      writeKind = "status of ClusterCIDR"
)

var writeKinds = []writeKind{writesNode, writesClusterCIDR, writesStatus}

// failsFor is how long the writes of an object have to fail before that is a problem. What passes by itself, as a rule passes sooner.
const failsFor = 2 * time.Second

// failure is an object whose writes fail, for whatever reason.
type failure struct {
	problem
	since time.Time
	// lasts says that trying again does not help before somebody does something.
	lasts bool
	// told is what people were told about it, once in a row of failures; empty if they were not.
	told string
	// written is health.written at its beginning.
	written int
}

// lasting reports whether it is a problem.
func (f *failure) lasting(now time.Time) bool {
	return f.lasts || now.Sub(f.since) >= failsFor
}

func (h *health) clock() time.Time {
	if h.now == nil {
		return time.Now()
	}
	return h.now()
}

// wrote notes how the last try to bring an object on ended. news reports a failure of another sort than those that are known of the kind, or the
// end of the last one; tell, that people have not been told of this object.
func (h *health) wrote(kind writeKind, name string, err error) (news, tell bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	told := func(what string) bool { // empty: any
		for _, f := range h.failures[kind] {
			if f.told != "" && (what == "" || f.what == what) {
				return true
			}
		}
		return false
	}
	if err == nil {
		before := told("")
		delete(h.failures[kind], name)
		return before && !told(""), false
	}
	t, lasts := writeProblem(err)
	if t.what == "" {
		return false, false // Nothing was tried. What failed before may still do so.
	}
	now := h.clock()
	f := h.failures[kind][name]
	if f == nil {
		f = &failure{since: now, written: h.written[kind]}
		if h.failures == nil {
			h.failures = map[writeKind]map[string]*failure{}
		}
		if h.failures[kind] == nil {
			h.failures[kind] = map[string]*failure{}
		}
		h.failures[kind][name] = f
	}
	other := f.what != t.what
	f.lasts = f.lasts || lasts
	f.problem = problem{} // so that it does not count as known
	news = !told(t.what)
	f.problem = t
	if !f.lasting(now) || f.told != "" && (!other || !lasts) {
		return false, false
	}
	tell, f.told = f.told == "", t.String()
	return news, tell
}

// stored notes that a write succeeded.
func (h *health) stored(kind writeKind) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.written == nil {
		h.written = map[writeKind]int{}
	}
	h.written[kind]++
}

// told is what people are to be told about the failing writes of an object; empty if they do not fail any more.
func (h *health) told(kind writeKind, name string) string {
	h.mu.Lock()
	defer h.mu.Unlock()
	if f := h.failures[kind][name]; f != nil {
		return f.told
	}
	return ""
}

// failing is the number of objects of a kind whose writes fail.
func (h *health) failing(kind writeKind) (n int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	now := h.clock()
	for _, f := range h.failures[kind] {
		if f.lasting(now) {
			n++
		}
	}
	return n
}

// unwritten says which writes fail, cause by cause.
func (h *health) unwritten() (problems []string) {
	now := h.clock()
	for _, kind := range writeKinds {
		causes := map[string][]string{} // names
		for _, name := range slices.Sorted(maps.Keys(h.failures[kind])) {
			if f := h.failures[kind][name]; f.lasting(now) {
				causes[f.what] = append(causes[f.what], name)
			}
		}
		var of []string
		for _, names := range causes {
			first := h.failures[kind][names[0]]
			since := first
			for _, name := range names {
				if f := h.failures[kind][name]; f.since.Before(since.since) {
					since = f
				}
			}
			which := string(kind) + " " + names[0]
			if more := len(names) - 1; more > 0 {
				which += fmt.Sprintf(" and %d more", more)
			}
			others := "and no other was written"
			if n := h.written[kind] - since.written; n > 0 {
				others = fmt.Sprintf("while %d others were written", n)
			}
			of = append(of, fmt.Sprintf("%s cannot be written: %v, since %s, %s", which, first.problem, since.since.UTC().Format(time.RFC3339), others))
		}
		slices.Sort(of)
		problems = append(problems, of...)
	}
	return problems
}

// breaks notes the panic that ends the controller: the first one, for others may follow from it.
func (h *health) breaks(panicked any) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.broken == nil || panickedWith(errTorn, h.broken) {
		h.broken = panicked
	}
}

// Check returns an error that says what to do for as long as the controller cannot do all of its work.
func (h *health) Check(*http.Request) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.broken != nil {
		return errBroken
	}
	var problems []string
	if h.waitsFor.what != "" {
		problems = append(problems, fmt.Sprintf("not serving Nodes yet; waiting for %v", h.waitsFor))
	}
	if h.unreadable.what != "" {
		problems = append(problems, fmt.Sprintf("changes of ClusterCIDRs are not seen: %v", h.unreadable))
	}
	if h.watches != nil {
		problems = append(problems, h.watches.unseen()...)
	}
	if doubtful := h.doubtful(); doubtful != "" {
		problems = append(problems, doubtful)
	}
	problems = append(problems, h.unwritten()...)
	if len(problems) == 0 {
		return nil
	}
	return errors.New(strings.Join(problems, "; "))
}

// HealthChecker reports an error, which says what to do, for as long as the controller cannot do all of its work.
func (c *Controller) HealthChecker() healthz.UnnamedHealthChecker { return &c.health }

// What to do where something is not installed. The chart has its own CRD, role and bindings, and in a cluster that uses it manifests/rbac
// would bind a service account that nobody has.
const (
	ApplyCRD  = "apply manifests/crds, or run helm upgrade if the Helm chart is used"
	ApplyRBAC = "apply manifests/rbac, or run helm upgrade if the Helm chart is used"
)

// What the start, the watch and writes say alike of the CRD.
const crdMissing = "the CustomResourceDefinition of ClusterCIDR is not installed: " + ApplyCRD

// writeTrouble says why a write failed and what to do about it, and whether that lasts until somebody does something; the zero value if nothing was
// written. An admission rule of others can use any code; its words are in the error.
func writeProblem(err error) (t problem, lasts bool) {
	var pause requests.Later
	var status apierrors.APIStatus
	said := errors.As(err, &status)
	switch {
	case errors.Is(err, lease.ErrClosed), errors.As(err, &pause) && !said:
		return problem{}, false // The API server was not asked.
	case errors.Is(err, requests.ErrStoredOtherwise):
		return problem{"the ClusterCIDR of the flags is stored with other ranges or labels than it was sent with: if the CRD is not ours, " + ApplyCRD + "; else look for a mutating webhook or policy that changes it. " +
			"Then delete that ClusterCIDR, and it is made again", err}, true
	case errors.Is(err, requests.ErrNotKept):
		return problem{"the API server stores what is written, and it is not there: look for a mutating webhook or policy, or another process with other flags, that takes it away; or the watch is late", err}, true
	case apierrors.IsNotFound(err) && apierrors.HasStatusCause(err, metav1.CauseTypeUnexpectedServerResponse):
		// It is the resource that does not exist, not an object. Of all that is written, only that of the CRD can be missing.
		return problem{crdMissing, err}, true
	case apierrors.IsForbidden(err) && strings.Contains(err.Error(), "custom resource definition is terminating"):
		// The API server gives no machine-readable cause, and its discovery documents may be older than its answer.
		return problem{"the CustomResourceDefinition of ClusterCIDR is being deleted, which goes on until the last ClusterCIDR is gone: then " + ApplyCRD + ", and apply the ClusterCIDRs anew", err}, true
	case requests.RefusedByPolicy(err):
		return problem{"the API server takes another process for the leader: this passes if the lease has just changed hands, else the policy looks at another Lease than ours, or this process runs without leader election and so without one (manifests/fencing)", err}, true
	case byAdmission(err):
		return problem{"an admission webhook or policy does not let it pass: repair, change or delete the one that the answer names", err}, false
	case apierrors.IsForbidden(err):
		return problem{"the API server forbids it: " + ApplyRBAC, err}, true
	case apierrors.IsUnauthorized(err):
		return problem{"the API server does not know this process: renew its credentials", err}, false
	case apierrors.IsTooManyRequests(err):
		return problem{"the API server turns requests away: see whether it is overloaded, and its priority and fairness rules", err}, false
	case apierrors.IsNotFound(err), apierrors.IsConflict(err):
		return problem{"the API server answers as if the object were gone or another one: if the object is there, see which admission webhook or policy answers so", err}, false
	case apierrors.IsInvalid(err), apierrors.IsBadRequest(err):
		return problem{"the API server takes it for invalid: see whether another process has written the object, or an admission webhook or policy refuses it", err}, false
	case said && !apierrors.IsTimeout(err) && !apierrors.IsServerTimeout(err):
		return problem{"the API server fails: look at its log, at etcd and at admission webhooks", err}, false
	default:
		return problem{"the API server does not answer in time: look at the network, at its load, at etcd and at admission webhooks", err}, false
	}
}

// byAdmission reports whether an admission webhook or policy, or a quota, keeps a write from being carried out. The API server gives no
// machine-readable cause, and webhooks choose the code themselves.
func byAdmission(err error) bool {
	return slices.ContainsFunc([]string{"admission webhook", "calling webhook", "ValidatingAdmissionPolicy", "MutatingAdmissionPolicy", "exceeded quota"}, func(words string) bool {
		return strings.Contains(err.Error(), words)
	})
}

// noting passes on what sync returns, and notes which objects cannot be written. All of them fail for the same reason, as a rule, so only
// the first is logged. Each has an event of its own.
func (c *Controller) noting(kind writeKind, sync func(context.Context, string) error) func(context.Context, string) error {
	return func(ctx context.Context, name string) error {
		err := sync(ctx, name)
		news, tell := c.health.wrote(kind, name, err)
		switch {
		case news && err != nil:
			t, _ := writeProblem(err)
			klog.FromContext(ctx).Error(err, "Cannot write: "+t.what, "kind", kind, "name", name)
		case news:
			klog.FromContext(ctx).Info("Can write again", "kind", kind)
		}
		if tell {
			c.with(func(*allocator.State) {
				switch kind {
				case writesNode:
					c.announce(aboutNode, name, ReasonWriteFailed)
				case writesStatus:
					c.announce(aboutClusterCIDR, name, ReasonStatusWriteFailed)
				}
			})
		}
		return err
	}
}

// unreadable says what keeps ClusterCIDRs from being read and what to do about it; the zero value without an error.
func (c *Controller) unreadable(err error) problem {
	switch {
	case err == nil:
		return problem{}
	case apierrors.IsNotFound(err), apierrors.IsForbidden(err) && !c.crdExists():
		return problem{what: crdMissing}
	case apierrors.IsForbidden(err):
		return problem{"the controller may not read ClusterCIDRs: " + ApplyRBAC, err}
	default:
		return problem{"ClusterCIDRs cannot be read", err}
	}
}

// crdExists asks discovery, which answers everybody, while a resource that is not there is forbidden to who has no
// permission. Without an answer it is taken to be there.
func (c *Controller) crdExists() bool {
	_, err := c.clusterCIDRClient.Discovery().ServerResourcesForGroupVersion(networkingv1.SchemeGroupVersion.String())
	return !apierrors.IsNotFound(err)
}

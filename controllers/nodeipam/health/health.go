// Package health reports what prevents the controller from working, and what to do about it.
package health

import (
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/multicidr/controller-manager/controllers/nodeipam/requests"
	"github.com/multicidr/controller-manager/controllers/text"
	"github.com/multicidr/controller-manager/controllers/writes"
)

// Health collects what prevents the controller from working. The health check, the log and the debug page show it. Health sends no
// requests: it learns from those of the controller. The zero value is healthy. Safe for concurrent use.
type Health struct {
	mu sync.Mutex
	// waitsFor is what Run waits for before allocation begins; the zero value once it has begun.
	waitsFor Problem
	// unreadable is why ClusterCIDRs cannot be watched; the zero value while they can.
	unreadable Problem
	// Watches are those of shared informers; nil if they are not monitored.
	Watches *Watches
	// Missed says which changes may have been missed for so long that this is a problem; empty if none. Nil: none ever.
	Missed func() string
	// Deposed returns an error from when this process knows that it is not the leader any more; nil: it always is.
	Deposed func() error
	// broken is the panic that ended the controller; nil if there was none.
	broken any
	Now    func() time.Time // nil: time.Now
	// failures are the failing writes, by kind and object name.
	failures map[Kind]map[string]*failure
	// written counts the writes that succeeded.
	written map[Kind]int
	// doubted are the blocks of the Nodes in doubt, as text, by Node name.
	doubted map[string]string
}

// Problem is what is wrong and what to do about it. Two problems with equal What are the same problem, even if Err differs: an error can
// contain a port or a time, and so differ at every attempt.
type Problem struct {
	What string
	Err  error // the API server's answer; nil if there is none
}

func (p Problem) String() string {
	if p.Err == nil {
		return p.What
	}
	return text.Cut(fmt.Sprintf("%s (%v)", p.What, p.Err), text.MaxProblem)
}

// WaitFor sets what Run is waiting for; the zero value means that allocation has begun. It reports whether that is new.
func (h *Health) WaitFor(t Problem) (changed bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	changed = h.waitsFor.What != t.What
	h.waitsFor = t
	return changed
}

// Read notes the outcome of the last attempt to read ClusterCIDRs; the zero value means success. It reports whether that is new.
func (h *Health) Read(t Problem) (changed bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	changed = h.unreadable.What != t.What
	h.unreadable = t
	return changed
}

// Kind is a kind of write, as shown to people and in the metric.
type Kind string

const (
	WritesNode        Kind = "Node"
	WritesClusterCIDR Kind = "ClusterCIDR"
	WritesStatus      Kind = "status of ClusterCIDR"
)

var Kinds = []Kind{WritesNode, WritesClusterCIDR, WritesStatus}

// FailsFor is how long an object's writes must fail before that counts as a problem. Transient failures usually end earlier.
const FailsFor = 2 * time.Second

// failure is an object whose writes fail, for whatever reason.
type failure struct {
	Problem
	since time.Time
	// lasts is whether retrying does not help until somebody changes something.
	lasts bool
	// told is what was reported about it, once per series of failures; empty if nothing was.
	told string
	// written is the count in Health.written when the failure began.
	written int
}

// lasting reports whether the failure counts as a problem.
func (f *failure) lasting(now time.Time) bool {
	return f.lasts || now.Sub(f.since) >= FailsFor
}

func (h *Health) clock() time.Time {
	if h.Now == nil {
		return time.Now()
	}
	return h.Now()
}

// Wrote notes the outcome of the last sync of an object. news reports a new sort of failure for this kind, or the end of the last one; tell
// reports that this object's failure has not been reported yet.
func (h *Health) Wrote(kind Kind, name string, err error) (news, tell bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if err == nil {
		before := h.anyTold(kind, "")
		delete(h.failures[kind], name)
		return before && !h.anyTold(kind, ""), false
	}
	p, lasts := WriteProblem(err)
	if p.What == "" {
		return false, false // Nothing was tried, so an earlier failure may persist.
	}
	now := h.clock()
	f := h.failureOf(kind, name, now)
	other := f.What != p.What
	f.lasts = f.lasts || lasts
	f.Problem = Problem{} // so that anyTold does not count it
	news = !h.anyTold(kind, p.What)
	f.Problem = p
	if !f.lasting(now) || f.told != "" && (!other || !lasts) {
		return false, false
	}
	tell, f.told = f.told == "", p.String()
	return news, tell
}

// anyTold reports whether a failure of this kind was reported with this problem; an empty what means any problem.
func (h *Health) anyTold(kind Kind, what string) bool {
	for _, f := range h.failures[kind] {
		if f.told != "" && (what == "" || f.What == what) {
			return true
		}
	}
	return false
}

// failureOf returns the failure of an object, and starts one if there is none.
func (h *Health) failureOf(kind Kind, name string, now time.Time) *failure {
	if h.failures == nil {
		h.failures = map[Kind]map[string]*failure{}
	}
	if h.failures[kind] == nil {
		h.failures[kind] = map[string]*failure{}
	}
	f := h.failures[kind][name]
	if f == nil {
		f = &failure{since: now, written: h.written[kind]}
		h.failures[kind][name] = f
	}
	return f
}

// Stored notes that a write succeeded.
func (h *Health) Stored(kind Kind) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.written == nil {
		h.written = map[Kind]int{}
	}
	h.written[kind]++
}

// Told is what to report about the failing writes of an object; empty if they no longer fail.
func (h *Health) Told(kind Kind, name string) string {
	h.mu.Lock()
	defer h.mu.Unlock()
	if f := h.failures[kind][name]; f != nil {
		return f.told
	}
	return ""
}

// Failing is the number of objects of a kind whose writes fail.
func (h *Health) Failing(kind Kind) (n int) {
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

// unwritten says which writes fail, grouped by cause.
func (h *Health) unwritten() (problems []string) {
	now := h.clock()
	for _, kind := range Kinds {
		causes := map[string][]string{} // names
		for _, name := range slices.Sorted(maps.Keys(h.failures[kind])) {
			if f := h.failures[kind][name]; f.lasting(now) {
				causes[f.What] = append(causes[f.What], name)
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
			of = append(of, fmt.Sprintf("%s cannot be written: %v, since %s, %s", which, first.Problem, since.since.UTC().Format(time.RFC3339), others))
		}
		slices.Sort(of)
		problems = append(problems, of...)
	}
	return problems
}

// Breaks notes the panic that ends the controller. Only the first one counts, because others may follow from it.
func (h *Health) Breaks(panicked any) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.broken == nil || PanickedWith(ErrTorn, h.broken) {
		h.broken = panicked
	}
}

// Panicked is the panic that ended the controller; nil if there was none.
func (h *Health) Panicked() any {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.broken
}

// Check returns an error that says what to do, as long as the controller cannot do all of its work.
func (h *Health) Check(*http.Request) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.broken != nil {
		return ErrBroken
	}
	var problems []string
	if h.Deposed != nil {
		if err := h.Deposed(); err != nil {
			problems = append(problems, fmt.Sprintf("no Node gets podCIDRs from this process: %v, which it does by itself. See who holds the Lease, and that this process runs this controller", err))
		}
	}
	if h.waitsFor.What != "" {
		problems = append(problems, fmt.Sprintf("not serving Nodes yet; waiting for %v", h.waitsFor))
	}
	if h.unreadable.What != "" {
		problems = append(problems, fmt.Sprintf("changes of ClusterCIDRs are not seen: %v", h.unreadable))
	}
	if h.Watches != nil {
		problems = append(problems, h.Watches.unseen()...)
	}
	if len(problems) == 0 && h.Missed != nil { // Else it is told why.
		if missed := h.Missed(); missed != "" {
			problems = append(problems, "no Node gets podCIDRs: "+missed+". If this goes on, watches end before the controller has read everything: "+
				"look at the network, at proxies and load balancers before the API server, and at its load")
		}
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

// What to do if something is not installed. The chart has its own CRD, role and bindings. In a cluster that uses the chart, manifests/rbac
// would bind a ServiceAccount that does not exist.
const (
	ApplyCRD  = "apply manifests/crds, or run helm upgrade if the Helm chart is used"
	ApplyRBAC = "apply manifests/rbac, or run helm upgrade if the Helm chart is used"
)

// CRDMissing is reported by the start, the watch and writes.
const CRDMissing = "the CustomResourceDefinition of ClusterCIDR is not installed: " + ApplyCRD

// CRDOfAnotherVersion is reported if the API server does not know fields of a ClusterCIDR that the controller writes. Then it hides such
// fields of the spec, too: for example, blocks that a ClusterCIDR excludes may be allocated.
const CRDOfAnotherVersion = "the CustomResourceDefinition of ClusterCIDR is of another version, and fields of ClusterCIDRs may be hidden: " + ApplyCRD

// WriteProblem says why a write failed and what to do about it, and whether that lasts until somebody changes something. It returns the
// zero value if no request was sent. An admission webhook or policy can answer with any code; its message is in the error.
//
//nolint:gocyclo // It is a table.
func WriteProblem(err error) (t Problem, lasts bool) {
	var pause writes.Later
	var status apierrors.APIStatus
	said := errors.As(err, &status)
	switch {
	case writes.NotItsTurn(err), errors.As(err, &pause) && !said:
		return Problem{}, false // No request was sent.
	case errors.Is(err, requests.ErrStoredOtherwise):
		return Problem{"the ClusterCIDR of the flags is stored with other ranges or labels than it was sent with: if the CRD is not ours, " + ApplyCRD + "; else look for a mutating webhook or policy that changes it. " +
			"Then delete that ClusterCIDR, and it is made again", err}, true
	case errors.Is(err, requests.ErrNotKept):
		return Problem{"the API server stores what is written, and it is not there: look for a mutating webhook or policy, or another process with other flags, that takes it away; or the watch is late", err}, true
	case apierrors.IsNotFound(err) && apierrors.HasStatusCause(err, metav1.CauseTypeUnexpectedServerResponse):
		// The resource does not exist, as opposed to an object. Of all resources written here, only the CRD's can be missing.
		return Problem{CRDMissing, err}, true
	case apierrors.IsForbidden(err) && strings.Contains(err.Error(), "custom resource definition is terminating"):
		// The API server gives no machine-readable cause, and its discovery documents may be older than its answer.
		return Problem{"the CustomResourceDefinition of ClusterCIDR is being deleted, which goes on until the last ClusterCIDR is gone: then " + ApplyCRD + ", and apply the ClusterCIDRs anew", err}, true
	case requests.RefusedByPolicy(err):
		return Problem{"the API server takes another process for the leader: " + notTheLeader(err), err}, true
	case byAdmission(err):
		return Problem{"an admission webhook or policy does not let it pass: repair, change or delete the one that the answer names", err}, false
	case errors.Is(err, requests.ErrNoStatus), strings.Contains(err.Error(), "field not declared in schema"):
		return Problem{CRDOfAnotherVersion, err}, false // The ClusterCIDR may be gone.
	case apierrors.IsForbidden(err):
		return Problem{"the API server forbids it: " + ApplyRBAC, err}, true
	case apierrors.IsUnauthorized(err):
		return Problem{"the API server does not know this process: renew its credentials", err}, false
	case apierrors.IsTooManyRequests(err):
		return Problem{"the API server turns requests away: see whether it is overloaded, and its priority and fairness rules", err}, false
	case apierrors.IsNotFound(err), apierrors.IsConflict(err):
		return Problem{"the API server answers as if the object were gone or another one: if the object is there, see which admission webhook or policy answers so", err}, false
	case annotationsTooLong(err):
		return Problem{"its annotations leave no room for the two that the controller adds: shorten or remove some, all together may have 256 KiB", err}, true
	case apierrors.IsInvalid(err), apierrors.IsBadRequest(err):
		return Problem{"the API server takes it for invalid: see whether another process has written the object, or an admission webhook or policy refuses it", err}, false
	case said && !apierrors.IsTimeout(err) && !apierrors.IsServerTimeout(err):
		return Problem{"the API server fails: look at its log, at etcd and at admission webhooks", err}, false
	default:
		return Problem{"the API server does not answer in time: look at the network, at its load, at etcd and at admission webhooks", err}, false
	}
}

// notTheLeader says why the API server can take another process for the leader, and what to do.
func notTheLeader(err error) string {
	var refused *requests.NotTheLeader
	if !errors.As(err, &refused) || refused.Asked() == "" {
		return "this passes if the Lease has just changed hands, else see whether the policy of manifests/fencing looks at the Lease of this process"
	}
	switch held, asked := refused.Lease, refused.Asked(); held {
	case asked:
		return fmt.Sprintf("this passes if the Lease %s has just changed hands, else kube-apiserver does not read the Lease any more, as after the policy was deleted and applied again: "+
			"apply manifests/fencing/keep-leases.yaml, and restart each kube-apiserver", asked)
	case "":
		return fmt.Sprintf("its policy admits only the holder of the Lease %s, and this process runs without leader election: turn that on, or delete the policy", asked)
	default:
		return fmt.Sprintf("its policy admits only the holder of the Lease %s, and this process holds %s: correct paramRef in the policy's binding (manifests/fencing)", asked, held)
	}
}

func annotationsTooLong(err error) bool {
	cause, ok := apierrors.StatusCause(err, metav1.CauseType(field.ErrorTypeTooLong))
	return ok && cause.Field == "metadata.annotations"
}

// byAdmission reports whether an admission webhook, an admission policy or a quota refused a write. The API server gives no
// machine-readable cause, and webhooks choose the code themselves.
func byAdmission(err error) bool {
	return slices.ContainsFunc([]string{"admission webhook", "calling webhook", "ValidatingAdmissionPolicy", "MutatingAdmissionPolicy", "exceeded quota"}, func(words string) bool {
		return strings.Contains(err.Error(), words)
	})
}

// Doubts sets the blocks that are kept for a Node; none ends the doubt.
func (h *Health) Doubts(name string, blocks []netip.Prefix) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(blocks) == 0 {
		delete(h.doubted, name)
		return
	}
	if h.doubted == nil {
		h.doubted = map[string]string{}
	}
	h.doubted[name] = text.BlocksText(blocks)
}

// doubtful says which Nodes are in doubt; empty if none is.
func (h *Health) doubtful() string {
	if len(h.doubted) == 0 {
		return ""
	}
	names := slices.Sorted(maps.Keys(h.doubted))
	first := names[:min(len(names), text.MaxNamed)]
	for i, name := range first {
		first[i] = name + " " + h.doubted[name]
	}
	more := ""
	if len(names) > len(first) {
		more = fmt.Sprintf(" and %d more", len(names)-len(first))
	}
	return "etcd was restored from a backup, and these Nodes are gone, or could not keep these blocks: " + strings.Join(first, "; ") + more +
		". Their blocks are kept until this process ends, or the controller starts anew after a panic. Put Nodes that are gone back as docs/operators/restore-etcd.md says, and reboot the machines of the others"
}

// ErrTorn is the panic of code that uses the state after an earlier panic.
var ErrTorn = errors.New("another panic has left the state of the controller half changed")

// ErrBroken is reported after a panic until another Controller has replaced this one.
var ErrBroken = errors.New("no Node gets podCIDRs: the controller has panicked, and has not started again yet")

// PanickedWith reports whether a panic value is this error.
func PanickedWith(err error, panicked any) bool {
	is, ok := panicked.(error)
	return ok && errors.Is(is, err)
}

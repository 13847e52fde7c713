// Package health knows what keeps the controller from its work, and tells people what to do about it.
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

	"github.com/multicidr/controller-manager/controllers/nodeipam/requests"
	"github.com/multicidr/controller-manager/controllers/nodeipam/text"
)

// Health is what keeps the controller from its work, for people: the health check, the log and the debug page show it.
// It makes no requests of its own: it knows what the requests of the others have shown. The zero value is healthy. All
// methods are safe for concurrent use.
type Health struct {
	mu sync.Mutex
	// waitsFor is what Run waits for before it serves; the zero value once it does.
	waitsFor Problem
	// unreadable is why ClusterCIDRs cannot be watched; the zero value while they are.
	unreadable Problem
	// Watches of what others share with us; nil if nobody knows of them.
	Watches *Watches
	// broken is the panic that has ended the controller; nil if none has.
	broken any
	Now    func() time.Time // nil: time.Now
	// failures are the writes that fail, by object, by kind of object.
	failures map[Kind]map[string]*failure
	// written counts the writes that succeeded.
	written map[Kind]int
	// doubted are the blocks, for people, of the Nodes that are in doubt.
	doubted map[string]string
}

// Problem is what is wrong and what to do about it. Two with the same what are the same problem, whatever their errors say: an error can name
// a port or a time, and so be another one at every try.
type Problem struct {
	What string
	Err  error // what the API server said; nil if it was not that
}

func (p Problem) String() string {
	if p.Err == nil {
		return p.What
	}
	return text.Cut(fmt.Sprintf("%s (%v)", p.What, p.Err), text.MaxProblem)
}

// WaitFor says what Run waits for now; the zero value: it serves. It reports whether that is new.
func (h *Health) WaitFor(t Problem) (changed bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	changed = h.waitsFor.What != t.What
	h.waitsFor = t
	return changed
}

// Read notes how the last try to read ClusterCIDRs ended: the zero value if it worked. It reports whether that is new.
func (h *Health) Read(t Problem) (changed bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	changed = h.unreadable.What != t.What
	h.unreadable = t
	return changed
}

// writeKind is what is written, for people and in the metric.
type Kind string

const (
	WritesNode        Kind = "Node"
	WritesClusterCIDR Kind = "ClusterCIDR"
	WritesStatus      Kind = "status of ClusterCIDR"
)

var Kinds = []Kind{WritesNode, WritesClusterCIDR, WritesStatus}

// FailsFor is how long the writes of an object have to fail before that is a problem. What passes by itself, as a rule passes sooner.
const FailsFor = 2 * time.Second

// failure is an object whose writes fail, for whatever reason.
type failure struct {
	Problem
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
	return f.lasts || now.Sub(f.since) >= FailsFor
}

func (h *Health) clock() time.Time {
	if h.Now == nil {
		return time.Now()
	}
	return h.Now()
}

// Wrote notes how the last try to bring an object on ended. news reports a failure of another sort than those that are known of the kind, or the
// end of the last one; tell, that people have not been told of this object.
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
		return false, false // Nothing was tried. What failed before may still do so.
	}
	now := h.clock()
	f := h.failureOf(kind, name, now)
	other := f.What != p.What
	f.lasts = f.lasts || lasts
	f.Problem = Problem{} // so that it does not count as known
	news = !h.anyTold(kind, p.What)
	f.Problem = p
	if !f.lasting(now) || f.told != "" && (!other || !lasts) {
		return false, false
	}
	tell, f.told = f.told == "", p.String()
	return news, tell
}

// anyTold reports whether people were told that something of a kind cannot be written, and that what is the problem; empty: whatever it is.
func (h *Health) anyTold(kind Kind, what string) bool {
	for _, f := range h.failures[kind] {
		if f.told != "" && (what == "" || f.What == what) {
			return true
		}
	}
	return false
}

// failureOf returns the failure of an object, which begins now if there is none.
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

// Told is what people are to be told about the failing writes of an object; empty if they do not fail any more.
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

// unwritten says which writes fail, cause by cause.
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

// Breaks notes the panic that ends the controller: the first one, for others may follow from it.
func (h *Health) Breaks(panicked any) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.broken == nil || PanickedWith(ErrTorn, h.broken) {
		h.broken = panicked
	}
}

// Panicked is the panic that has ended the controller; nil if none has.
func (h *Health) Panicked() any {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.broken
}

// Check returns an error that says what to do for as long as the controller cannot do all of its work.
func (h *Health) Check(*http.Request) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.broken != nil {
		return ErrBroken
	}
	var problems []string
	if h.waitsFor.What != "" {
		problems = append(problems, fmt.Sprintf("not serving Nodes yet; waiting for %v", h.waitsFor))
	}
	if h.unreadable.What != "" {
		problems = append(problems, fmt.Sprintf("changes of ClusterCIDRs are not seen: %v", h.unreadable))
	}
	if h.Watches != nil {
		problems = append(problems, h.Watches.unseen()...)
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

// What to do where something is not installed. The chart has its own CRD, role and bindings, and in a cluster that uses it manifests/rbac
// would bind a service account that nobody has.
const (
	ApplyCRD  = "apply manifests/crds, or run helm upgrade if the Helm chart is used"
	ApplyRBAC = "apply manifests/rbac, or run helm upgrade if the Helm chart is used"
)

// What the start, the watch and writes say alike of the CRD.
const CRDMissing = "the CustomResourceDefinition of ClusterCIDR is not installed: " + ApplyCRD

// WriteProblem says why a write failed and what to do about it, and whether that lasts until somebody does something; the zero value if nothing was
// written. An admission rule of others can use any code; its words are in the error.
//
//nolint:gocyclo // It is a table.
func WriteProblem(err error) (t Problem, lasts bool) {
	var pause requests.Later
	var status apierrors.APIStatus
	said := errors.As(err, &status)
	switch {
	case requests.NotItsTurn(err), errors.As(err, &pause) && !said:
		return Problem{}, false // The API server was not asked.
	case errors.Is(err, requests.ErrStoredOtherwise):
		return Problem{"the ClusterCIDR of the flags is stored with other ranges or labels than it was sent with: if the CRD is not ours, " + ApplyCRD + "; else look for a mutating webhook or policy that changes it. " +
			"Then delete that ClusterCIDR, and it is made again", err}, true
	case errors.Is(err, requests.ErrNotKept):
		return Problem{"the API server stores what is written, and it is not there: look for a mutating webhook or policy, or another process with other flags, that takes it away; or the watch is late", err}, true
	case apierrors.IsNotFound(err) && apierrors.HasStatusCause(err, metav1.CauseTypeUnexpectedServerResponse):
		// It is the resource that does not exist, not an object. Of all that is written, only that of the CRD can be missing.
		return Problem{CRDMissing, err}, true
	case apierrors.IsForbidden(err) && strings.Contains(err.Error(), "custom resource definition is terminating"):
		// The API server gives no machine-readable cause, and its discovery documents may be older than its answer.
		return Problem{"the CustomResourceDefinition of ClusterCIDR is being deleted, which goes on until the last ClusterCIDR is gone: then " + ApplyCRD + ", and apply the ClusterCIDRs anew", err}, true
	case requests.RefusedByPolicy(err):
		return Problem{"the API server takes another process for the leader: this passes if the lease has just changed hands, else the policy looks at another Lease than ours, or this process runs without leader election and so without one (manifests/fencing)", err}, true
	case byAdmission(err):
		return Problem{"an admission webhook or policy does not let it pass: repair, change or delete the one that the answer names", err}, false
	case apierrors.IsForbidden(err):
		return Problem{"the API server forbids it: " + ApplyRBAC, err}, true
	case apierrors.IsUnauthorized(err):
		return Problem{"the API server does not know this process: renew its credentials", err}, false
	case apierrors.IsTooManyRequests(err):
		return Problem{"the API server turns requests away: see whether it is overloaded, and its priority and fairness rules", err}, false
	case apierrors.IsNotFound(err), apierrors.IsConflict(err):
		return Problem{"the API server answers as if the object were gone or another one: if the object is there, see which admission webhook or policy answers so", err}, false
	case apierrors.IsInvalid(err), apierrors.IsBadRequest(err):
		return Problem{"the API server takes it for invalid: see whether another process has written the object, or an admission webhook or policy refuses it", err}, false
	case said && !apierrors.IsTimeout(err) && !apierrors.IsServerTimeout(err):
		return Problem{"the API server fails: look at its log, at etcd and at admission webhooks", err}, false
	default:
		return Problem{"the API server does not answer in time: look at the network, at its load, at etcd and at admission webhooks", err}, false
	}
}

// byAdmission reports whether an admission webhook or policy, or a quota, keeps a write from being carried out. The API server gives no
// machine-readable cause, and webhooks choose the code themselves.
func byAdmission(err error) bool {
	return slices.ContainsFunc([]string{"admission webhook", "calling webhook", "ValidatingAdmissionPolicy", "MutatingAdmissionPolicy", "exceeded quota"}, func(words string) bool {
		return strings.Contains(err.Error(), words)
	})
}

// Doubts notes the blocks that are kept for a Node; none when that is over.
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
	return "etcd was restored from a backup, and these Nodes are gone: " + strings.Join(first, "; ") + more +
		". Their blocks are kept until this process ends, or the controller starts anew after a panic. Put the Nodes back as docs/operators/restore-etcd.md says"
}

// ErrTorn is the panic of those who want to use the state after somebody else's panic.
var ErrTorn = errors.New("another panic has left the state of the controller half changed")

// ErrBroken is what people are told until another Controller has taken the place of one that has panicked.
var ErrBroken = errors.New("no Node gets podCIDRs: the controller has panicked, and has not started again yet")

// PanickedWith reports whether a panic is this error.
func PanickedWith(err error, panicked any) bool {
	is, ok := panicked.(error)
	return ok && errors.Is(is, err)
}

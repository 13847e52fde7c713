package shell

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/multicidr/controller-manager/controllers/clusteripam/shell/pace"
	"github.com/multicidr/controller-manager/controllers/text"
	"github.com/multicidr/controller-manager/controllers/writes"
)

// What to do if something is not installed.
const (
	applyCRDs = "apply manifests/clusteripam/crds, or run helm upgrade if the Helm chart is used"
	applyRBAC = "apply manifests/clusteripam/rbac, or run helm upgrade if the Helm chart is used"
)

// takenForInvalid is about one object: what its users have written there leads to another one that the API server does not store, such as a pool with too many
// addresses. An event and a metric say so. The controller works: the others do not wait for this one.
const takenForInvalid = "the API server takes it for invalid: correct this object, and see whether the CustomResourceDefinition is of another version, or an admission webhook changes the object"

// problem is what is wrong and what to do about it. Two problems with equal What are the same one, even if Err differs: an error can contain
// a port or a time.
type problem struct {
	What string
	Err  error // the answer of the API server; nil if there is none
}

func (p problem) String() string {
	if p.Err == nil {
		return p.What
	}
	return text.Cut(fmt.Sprintf("%s (%v)", p.What, p.Err), text.MaxProblem)
}

// failsFor is how long the work on an object must fail before that counts as a problem. Transient failures usually end earlier.
const failsFor = 2 * time.Second

// repeatedWithin is how soon an attempt that failed is repeated: longer than every pause after a failure, and than a write without an answer
// can be on its way.
const repeatedWithin = 30 * time.Second

// failure is an object on which the work fails.
type failure struct {
	problem
	since, last time.Time
	told        bool
}

// health collects what prevents a controller from working. It sends no requests. Safe for concurrent use.
type health struct {
	now func() time.Time

	mu         sync.Mutex
	waitsFor   problem            // the zero value once the controller works
	unreadable map[string]problem // by what is read
	failures   map[Key]*failure
	broken     any // the panic that ended the controller; nil if there was none
}

func newHealth(now func() time.Time) *health {
	return &health{now: now, waitsFor: problem{What: "the start"}, unreadable: map[string]problem{}, failures: map[Key]*failure{}}
}

// waitFor sets what the controller waits for; the zero value means that it works. It reports whether that is new.
func (h *health) waitFor(p problem) (changed bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	changed = h.waitsFor.What != p.What
	h.waitsFor = p
	return changed
}

// read notes the result of reading something; the zero value means success. It reports whether that is new.
func (h *health) read(what string, p problem) (changed bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	changed = h.unreadable[what].What != p.What
	if h.unreadable[what] = p; p.What == "" {
		delete(h.unreadable, what)
	}
	return changed
}

// synced notes the result of the work on an object. news reports a new sort of failure of this kind, or the end of the last one. tell reports
// that the failure of this object lasts and has not been told yet.
func (h *health) synced(key Key, err error) (news, tell bool, p problem) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if err == nil {
		_, failed := h.failures[key]
		delete(h.failures, key)
		return failed && !h.fails(key.Kind, ""), false, problem{}
	}
	p = whyNot(err)
	if p.What == "" {
		return h.putOff(key, err), false, p
	}
	news = !h.fails(key.Kind, p.What)
	f := h.failures[key]
	if f == nil {
		f = &failure{since: h.now()}
		h.failures[key] = f
	}
	f.problem, f.last = p, h.now()
	tell = !f.told && h.now().Sub(f.since) >= failsFor
	f.told = f.told || tell
	return news, tell, p
}

// putOff notes that the work on an object is put off. A failure may persist, because nothing was tried. But when nothing will be tried for longer
// than a failure is ever left alone, the work waits for something else, such as the end of a grace period or a free address. It reports whether
// that ends the last failure of this kind.
func (h *health) putOff(key Key, err error) (news bool) {
	var pause writes.Later
	f := h.failures[key]
	if f == nil || !errors.As(err, &pause) || h.now().Add(time.Duration(pause)).Sub(f.last) < repeatedWithin {
		return false
	}
	delete(h.failures, key)
	return !h.fails(key.Kind, "")
}

// fails reports whether the work on any object of a kind fails for this reason; an empty what means any reason.
func (h *health) fails(kind *Kind, what string) bool {
	for key, f := range h.failures {
		if key.Kind == kind && (what == "" || f.What == what) {
			return true
		}
	}
	return false
}

// failing returns how many objects of each kind have failed for long enough to count as a problem.
func (h *health) failing() map[*Kind]int {
	h.mu.Lock()
	defer h.mu.Unlock()
	n := map[*Kind]int{}
	for key, f := range h.failures {
		if h.now().Sub(f.since) >= failsFor {
			n[key.Kind]++
		}
	}
	return n
}

// forget ends all failures: a new term works on everything anew.
func (h *health) forget() {
	h.mu.Lock()
	defer h.mu.Unlock()
	clear(h.failures)
	clear(h.unreadable)
}

// breaks notes the panic that ends the controller. Only the first one counts, because others may follow from it.
func (h *health) breaks(panicked any) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.broken == nil {
		h.broken = panicked
	}
}

func (h *health) panicked() any {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.broken
}

// problems returns what prevents the controller from working.
func (h *health) problems() (problems []string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.broken != nil {
		return []string{"the controller has panicked, and has not started again yet"}
	}
	if h.waitsFor.What != "" {
		problems = append(problems, fmt.Sprintf("not working yet; waiting for %v", h.waitsFor))
	}
	for _, what := range slices.Sorted(maps.Keys(h.unreadable)) {
		problems = append(problems, fmt.Sprintf("changes of %s are not seen: %v", what, h.unreadable[what]))
	}
	causes := map[string][]Key{}
	for key, f := range h.failures {
		if h.now().Sub(f.since) >= failsFor && f.What != takenForInvalid {
			cause := key.Kind.Name + "\x00" + f.What
			causes[cause] = append(causes[cause], key)
		}
	}
	for _, cause := range slices.Sorted(maps.Keys(causes)) {
		keys := causes[cause]
		slices.SortFunc(keys, func(a, b Key) int { return strings.Compare(a.String(), b.String()) })
		which, first := keys[0].String(), h.failures[keys[0]]
		if more := len(keys) - 1; more > 0 {
			which += fmt.Sprintf(" and %d more", more)
		}
		problems = append(problems, fmt.Sprintf("%s: %v, since %s", which, first.problem, first.since.UTC().Format(time.RFC3339)))
	}
	return problems
}

// Check returns an error that says what to do, as long as the controller cannot do all of its work.
func (c *Controller) Check(*http.Request) error {
	problems := c.health.problems()
	c.current(func(t *term) {
		if of, ok := t.logic.(Problematic); ok {
			problems = append(problems, of.Problems()...)
		}
	})
	if len(problems) == 0 {
		return nil
	}
	return errors.New(strings.Join(problems, "; "))
}

// whyNot says why the work on an object failed and what to do about it. It returns the zero value if nothing was tried.
//
//nolint:gocyclo // It is a table.
func whyNot(err error) problem {
	var (
		later   writes.Later
		status  apierrors.APIStatus
		network net.Error
	)
	said := errors.As(err, &status)
	switch {
	case errors.Is(err, pace.ErrRestless):
		return problem{What: "what the controller writes is changed again and again, so it pauses: see which other program or admission webhook changes the object"}
	case writes.NotItsTurn(err), errors.As(err, &later) && !said:
		return problem{}
	case errors.Is(err, ErrTakenBack):
		return problem{What: ErrTakenBack.Error()}
	case apierrors.IsNotFound(err) && apierrors.HasStatusCause(err, metav1.CauseTypeUnexpectedServerResponse):
		return problem{"the API server does not know the kind: " + applyCRDs, err}
	case apierrors.IsForbidden(err) && strings.Contains(err.Error(), "custom resource definition is terminating"):
		return problem{"the CustomResourceDefinition is being deleted: wait until it is gone, then " + applyCRDs, err}
	case byAdmission(err):
		return problem{"an admission webhook or policy refuses it: repair, change or delete the one that the answer names", err}
	case apierrors.IsForbidden(err):
		return problem{"the API server forbids it: " + applyRBAC, err}
	case apierrors.IsUnauthorized(err):
		return problem{"the API server does not know this process: renew its credentials", err}
	case apierrors.IsTooManyRequests(err):
		return problem{"the API server turns requests away: see whether it is overloaded, and its priority and fairness rules", err}
	case apierrors.IsNotFound(err), apierrors.IsConflict(err), apierrors.IsAlreadyExists(err):
		return problem{"the API server answers as if the object had changed: if that lasts, see which other program or admission webhook writes it", err}
	case apierrors.IsInvalid(err):
		return problem{takenForInvalid, err}
	case apierrors.IsBadRequest(err):
		return problem{"the API server does not understand it: see whether the CustomResourceDefinition is of another version, or an admission webhook changes the object", err}
	case said && !apierrors.IsTimeout(err) && !apierrors.IsServerTimeout(err):
		return problem{"the API server fails: look at its log, at etcd and at admission webhooks", err}
	case said, errors.As(err, &network), errors.Is(err, context.DeadlineExceeded):
		return problem{"the API server does not answer in time: look at the network, at its load, at etcd and at admission webhooks", err}
	default:
		return problem{What: err.Error()}
	}
}

// byAdmission reports whether an admission webhook, an admission policy or a quota refused a write. The API server gives no
// machine-readable cause.
func byAdmission(err error) bool {
	return slices.ContainsFunc([]string{"admission webhook", "calling webhook", "ValidatingAdmissionPolicy", "MutatingAdmissionPolicy", "exceeded quota"}, func(words string) bool {
		return strings.Contains(err.Error(), words)
	})
}

package runner

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
	"k8s.io/klog/v2"

	"github.com/multicidr/controller-manager/controllers/text"
	"github.com/multicidr/controller-manager/controllers/writes"
)

// What to do if something is not installed.
const (
	applyCRDs = "apply manifests/clusteripam/crds, or run helm upgrade if the Helm chart is used"
	applyRBAC = "apply manifests/clusteripam/rbac, or run helm upgrade if the Helm chart is used"
)

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

const (
	// failsFor is how long the work on an object must fail before that counts as a problem. Transient failures usually end earlier.
	failsFor = 2 * time.Second
	// repeatedWithin is how soon an attempt that failed is repeated: longer than every pause after a failure, and than a write without an answer
	// can be on its way.
	repeatedWithin = 30 * time.Second
)

// failure is an object on which the work fails.
type failure struct {
	problem
	since, last time.Time
	told        bool
}

func (f *failure) lasts() bool { return time.Since(f.since) >= failsFor }

// health collects what prevents a controller from working. Safe for concurrent use.
type health struct {
	mu       sync.Mutex
	waitsFor problem            // the zero value once the controller works
	unseen   map[string]problem // by what is read
	failures map[Key]*failure
}

// waitFor sets what the controller waits for; the zero value means that it works. It reports whether that is new.
func (h *health) waitFor(p problem) (changed bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	changed = h.waitsFor.What != p.What
	h.waitsFor = p
	return changed
}

// read notes the result of a request that reads; the zero value means success. It reports whether that is new. Nothing counts after the end of ctx.
func (h *health) read(ctx context.Context, what string, p problem) (changed bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if ctx.Err() != nil {
		return false
	}
	changed = h.unseen[what].What != p.What
	if h.unseen[what] = p; p.What == "" {
		delete(h.unseen, what)
	}
	return changed
}

// synced notes the result of the work on an object. tell reports that its failure lasts and has not been told yet.
func (h *health) synced(key Key, err error) (tell bool, p problem) {
	h.mu.Lock()
	defer h.mu.Unlock()
	f, p := h.failures[key], whyNot(err)
	var pause writes.Later
	switch {
	case err == nil, p.What == "" && f != nil && errors.As(err, &pause) && time.Now().Add(time.Duration(pause)).Sub(f.last) >= repeatedWithin:
		// If nothing is tried for longer than a failure is ever left alone, the work waits for something else, such as a free address.
		delete(h.failures, key)
	case p.What != "":
		if f == nil {
			f = &failure{since: time.Now()}
			h.failures[key] = f
		}
		f.problem, f.last = p, time.Now()
		tell = f.lasts() && !f.told
		f.told = f.told || tell
	}
	return tell, p
}

// failing returns how many objects of each kind have failed for long enough to count as a problem.
func (h *health) failing() map[*Kind]int {
	h.mu.Lock()
	defer h.mu.Unlock()
	n := map[*Kind]int{}
	for key, f := range h.failures {
		if f.lasts() {
			n[key.Kind]++
		}
	}
	return n
}

// starts is what a controller waits for at first, and after a term.
var starts = problem{What: "the start"}

// forget ends all failures: a new term works on everything again.
func (h *health) forget() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.waitsFor = starts
	clear(h.failures)
	clear(h.unseen)
}

// problems returns what prevents the controller from working. Objects that fail for one reason are one problem.
func (h *health) problems() (problems []string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.waitsFor.What != "" {
		problems = append(problems, fmt.Sprintf("not working yet; waiting for %v", h.waitsFor))
	}
	for _, what := range slices.Sorted(maps.Keys(h.unseen)) {
		problems = append(problems, fmt.Sprintf("changes of %s are not seen: %v", what, h.unseen[what]))
	}
	causes := map[string][]Key{}
	for key, f := range h.failures {
		if f.lasts() && f.What != takenForInvalid {
			cause := key.Kind.Name + "\x00" + f.What
			causes[cause] = append(causes[cause], key)
		}
	}
	for _, cause := range slices.Sorted(maps.Keys(causes)) {
		keys := causes[cause]
		first := slices.MinFunc(keys, func(a, b Key) int { return strings.Compare(a.String(), b.String()) })
		which, f := first.String(), h.failures[first]
		if more := len(keys) - 1; more > 0 {
			which += fmt.Sprintf(" and %d more", more)
		}
		problems = append(problems, fmt.Sprintf("%s: %v, since %s", which, f.problem, f.since.UTC().Format(time.RFC3339)))
	}
	return problems
}

// Check returns an error that says what to do, as long as the controller cannot do all of its work.
func (c *Controller) Check(*http.Request) error {
	if problems := c.health.problems(); len(problems) > 0 {
		return errors.New(strings.Join(problems, "; "))
	}
	return nil
}

// noteRead returns what notes the results of requests that read something.
func (c *Controller) noteRead(ctx context.Context, what string) func(error) {
	return func(err error) {
		p := whyNot(err)
		switch changed := c.health.read(ctx, what, p); {
		case changed && err != nil:
			klog.FromContext(ctx).Error(err, "Changes are not seen", "of", what, "why", p.What)
		case changed:
			klog.FromContext(ctx).Info("Changes are seen again", "of", what)
		}
	}
}

// takenForInvalid is about one object: what its users have written there leads to another one that the API server does not store, such as a pool
// with too many addresses. An event and a metric say so. The controller works: the others do not wait for this one.
const takenForInvalid = "the API server takes it for invalid: correct this object, and see whether the CustomResourceDefinition is of another version, " +
	"or an admission webhook changes the object"

// causes are why a request fails, and what to do. The first one that fits an error is its cause.
var causes = []struct {
	is   func(error) bool
	what string
}{
	{func(err error) bool { return apierrors.IsNotFound(err) && !writes.NotThere(err) }, "the API server does not know the kind: " + applyCRDs},
	{func(err error) bool {
		return apierrors.IsForbidden(err) && says(err, "custom resource definition is terminating")
	},
		"the CustomResourceDefinition is being deleted: wait until it is gone, then " + applyCRDs},
	// The API server gives no machine-readable cause.
	{func(err error) bool {
		return says(err, "admission webhook", "calling webhook", "ValidatingAdmissionPolicy", "MutatingAdmissionPolicy", "exceeded quota")
	}, "an admission webhook or policy refuses it: repair, change or delete the one that the answer names"},
	{apierrors.IsForbidden, "the API server forbids it: " + applyRBAC},
	{apierrors.IsUnauthorized, "the API server does not know this process: renew its credentials"},
	{apierrors.IsTooManyRequests, "the API server turns requests away: see whether it is overloaded, and its priority and fairness rules"},
	{func(err error) bool {
		return apierrors.IsNotFound(err) || apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err)
	},
		"the API server answers as if the object had changed: if that lasts, see which other program or admission webhook writes it"},
	{apierrors.IsInvalid, takenForInvalid},
	{apierrors.IsBadRequest, "the API server does not understand it: see whether the CustomResourceDefinition is of another version, or an admission webhook changes the object"},
	{func(err error) bool { return said(err) && !apierrors.IsTimeout(err) && !apierrors.IsServerTimeout(err) },
		"the API server fails: look at its log, at etcd and at admission webhooks"},
	{func(err error) bool {
		return said(err) || errors.As(err, new(net.Error)) || errors.Is(err, context.DeadlineExceeded)
	},
		"the API server does not answer in time: look at the network, at its load, at etcd and at admission webhooks"},
}

// whyNot says why something failed and what to do about it. It returns the zero value if nothing failed, or nothing was tried.
func whyNot(err error) problem {
	if err == nil || writes.NotItsTurn(err) || errors.As(err, new(writes.Later)) && !said(err) {
		return problem{}
	}
	for _, c := range causes {
		if c.is(err) {
			return problem{c.what, err}
		}
	}
	return problem{What: err.Error()}
}

// said reports whether the API server answered.
func said(err error) bool {
	var status apierrors.APIStatus
	return errors.As(err, &status)
}

func says(err error, words ...string) bool {
	return slices.ContainsFunc(words, func(w string) bool { return strings.Contains(err.Error(), w) })
}

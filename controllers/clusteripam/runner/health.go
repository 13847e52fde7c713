package runner

import (
	"cmp"
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
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/klog/v2"

	"github.com/multicidr/controller-manager/controllers/text"
	"github.com/multicidr/controller-manager/controllers/writes"
)

// What to do if something is not installed.
const (
	applyCRDs = "apply manifests/clusteripam/crds, or run helm upgrade if the Helm chart is used"
	applyRBAC = "apply manifests/clusteripam/rbac, or run helm upgrade if the Helm chart is used"
)

// problem is why something fails and what to do about it.
type problem struct {
	what string // the same for all failures of one cause
	err  error  // the answer of the API server
}

func (p problem) String() string {
	return text.Cut(fmt.Sprintf("%s (%v)", p.what, p.err), text.MaxProblem)
}

const (
	// failsFor is how long something must fail before that counts as a problem. Transient failures usually end earlier.
	failsFor = 2 * time.Second
	// repeatedWithin is how soon what failed is tried again: longer than every pause after a failure, and than a write without an answer can be on
	// its way. If nothing has failed for longer, the work waits for something else, such as a free address, or has ended.
	repeatedWithin = 2 * time.Minute
)

// failure is an object on which the work fails, or a kind that cannot be read.
type failure struct {
	problem
	since, last time.Time
	told        bool
}

func (f *failure) lasts() bool {
	return f.last.Sub(f.since) >= failsFor && time.Since(f.last) < repeatedWithin
}

// health collects what prevents a controller from working. Safe for concurrent use.
type health struct {
	mu       sync.Mutex
	waitsFor string           // empty once the controller works
	failures map[Key]*failure // A key without a name is for reading all objects of the kind.
}

// starts is what a controller waits for at first, and after a term.
const starts = "the start"

// waitFor sets what the controller waits for; empty means that it works.
func (h *health) waitFor(what string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.waitsFor = what
}

// did notes the result of the work on an object, or of reading a kind. failed reports that something was tried, and failed; tell, that this lasts, and
// was not told yet.
func (h *health) did(key Key, err error) (p problem, failed, tell bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	f := h.failures[key]
	p, failed = whyNot(err)
	switch {
	case err == nil:
		delete(h.failures, key)
	case failed:
		if f == nil || time.Since(f.last) >= repeatedWithin {
			f = &failure{since: time.Now()}
			h.failures[key] = f
		}
		f.problem, f.last = p, time.Now()
		tell = f.lasts() && !f.told
		f.told = f.told || tell
	}
	return p, failed, tell
}

// forget ends all failures: a new term works on everything again.
func (h *health) forget() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.waitsFor = starts
	clear(h.failures)
}

// cause is what failures have in common that are told as one problem.
type cause struct {
	kind  *Kind // nil for what the controller waits for
	reads bool
	what  string
}

// failures are those of one cause.
type failures struct {
	first Key // by namespace and name
	failure
	n int
}

// failing returns what has failed for long enough to count as a problem.
func (h *health) failing() map[cause]failures {
	h.mu.Lock()
	defer h.mu.Unlock()
	all := map[cause]failures{}
	for key, f := range h.failures {
		if !f.lasts() {
			continue
		}
		c := cause{key.Kind, key.Name == "", f.what}
		of := all[c]
		if of.n++; of.n == 1 || cmp.Or(strings.Compare(key.Namespace, of.first.Namespace), strings.Compare(key.Name, of.first.Name)) < 0 {
			of.first, of.failure = key, *f
		}
		all[c] = of
	}
	return all
}

// problems returns what prevents the controller from working.
func (h *health) problems() map[cause]string {
	all := map[cause]string{}
	for c, of := range h.failing() {
		which := of.first.String()
		switch {
		case c.reads:
			which = "changes of " + c.kind.plural() + " are not seen"
		case c.what == takenForInvalid:
			continue
		case of.n > 1:
			which += fmt.Sprintf(" and %d more", of.n-1)
		}
		all[c] = fmt.Sprintf("%s: %v, since %s", which, of.problem, of.since.UTC().Format(time.RFC3339))
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.waitsFor != "" {
		all[cause{what: h.waitsFor}] = "not working yet; waiting for " + h.waitsFor
	}
	return all
}

// Check returns an error that says what to do, as long as the controller cannot do all of its work.
func (c *Controller) Check(*http.Request) error {
	if problems := c.health.problems(); len(problems) > 0 {
		return errors.New(strings.Join(slices.Sorted(maps.Values(problems)), "; "))
	}
	return nil
}

// log writes into the log what the health check says, when that lasts and when it ends. However many objects fail, that is one line for each cause.
func (c *Controller) log(ctx context.Context) {
	logger := klog.LoggerWithValues(klog.FromContext(ctx), "controller", c.cfg.Name)
	var last map[cause]string
	told := map[cause]string{}
	wait.UntilWithContext(ctx, func(context.Context) {
		problems := c.health.problems()
		for cause, what := range problems {
			if last[cause] != "" && told[cause] == "" {
				told[cause] = what
				logger.Info("The health check fails", "problem", what)
			}
		}
		for cause, what := range told {
			if problems[cause] == "" {
				delete(told, cause)
				logger.Info("The health check has no such problem any more", "problem", what)
			}
		}
		last = problems
	}, lookInterval)
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
	// The API server gives no machine-readable cause.
	{says("custom resource definition is terminating"), "the CustomResourceDefinition is being deleted: wait until it is gone, then " + applyCRDs},
	{says("admission webhook", "calling webhook", "ValidatingAdmissionPolicy", "MutatingAdmissionPolicy", "exceeded quota"),
		"an admission webhook or policy refuses it: repair, change or delete the one that the answer names"},
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

// whyNot says why something failed and what to do about it. failed is false if nothing failed, or nothing was tried.
func whyNot(err error) (p problem, failed bool) {
	if err == nil || writes.NotItsTurn(err) || errors.As(err, new(writes.Pending)) || errors.As(err, new(writes.Later)) && !said(err) {
		return problem{}, false
	}
	for _, c := range causes {
		if c.is(err) {
			return problem{c.what, err}, true
		}
	}
	return problem{"it fails", err}, true
}

// said reports whether the API server answered.
func said(err error) bool {
	var status apierrors.APIStatus
	return errors.As(err, &status)
}

func says(words ...string) func(error) bool {
	return func(err error) bool {
		return slices.ContainsFunc(words, func(w string) bool { return strings.Contains(err.Error(), w) })
	}
}

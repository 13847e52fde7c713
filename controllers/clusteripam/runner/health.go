package runner

import (
	"context"
	"errors"
	"fmt"
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

// install is what to do if a CRD or a permission is missing.
const install = "run helm upgrade if you use the Helm chart, else apply the CustomResourceDefinitions and ClusterRoles in install-cluster-ipam-controller.yaml of the release"

const (
	// failsFor is how long something must fail before that counts as a problem. Transient failures usually end earlier.
	failsFor = 2 * time.Second
	// repeatedWithin is how soon what failed is tried again: longer than every pause after a failure, and than a write without an answer can be on
	// its way. If nothing has failed for longer, the work waits for something else, such as a free address.
	repeatedWithin = 2 * time.Minute
)

// failure is an object on which the work fails, or a kind that cannot be read.
type failure struct {
	err         error
	since, last time.Time
	told        bool
}

// lasts reports whether the failure counts as a problem.
func (f *failure) lasts() bool {
	return f.last.Sub(f.since) >= failsFor && time.Since(f.last) < repeatedWithin
}

// health is what a controller waits for, and what fails. Safe for concurrent use.
type health struct {
	mu       sync.Mutex
	waitsFor string           // empty: it works
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

// forget ends all failures: a new term works on everything again.
func (h *health) forget() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.waitsFor = starts
	clear(h.failures)
}

// did notes the result of the work on an object, or of reading a kind. tell reports that it fails, which lasts and was not told yet; news, that nothing else of
// the kind was told.
func (h *health) did(key Key, err error) (tell, news bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if err == nil {
		delete(h.failures, key)
	}
	if !failed(err) {
		return false, false
	}
	f := h.failures[key]
	if f == nil || time.Since(f.last) >= repeatedWithin {
		f = &failure{since: time.Now()}
		h.failures[key] = f
	}
	if f.err, f.last = err, time.Now(); f.told || !f.lasts() {
		return false, false
	}
	news = true
	for other, g := range h.failures {
		if g.told && other.Kind == key.Kind {
			news = false
			break
		}
	}
	f.told = true
	return true, news
}

// failed reports whether something was tried, and failed.
func failed(err error) bool {
	return err != nil && !writes.NotItsTurn(err) && !errors.As(err, new(writes.Pending)) && !errors.As(err, new(writes.Later))
}

// did notes a result, and writes a failure into the log if it is the first one of its kind: however many objects fail, that is one line. It reports whether to
// tell the users of the object.
func (c *Controller) did(ctx context.Context, key Key, err error) (tell bool) {
	tell, news := c.health.did(key, err)
	if news {
		klog.FromContext(ctx).Info("The health check fails", "controller", c.cfg.Name, "kind", key.Kind.Name, "object", klog.KRef(key.Namespace, key.Name), "problem", problem(err))
	}
	return tell
}

// count returns on how many objects of a kind the work fails.
func (h *health) count(kind *Kind) (n int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for key, f := range h.failures {
		if key.Kind == kind && key.Name != "" && f.lasts() {
			n++
		}
	}
	return n
}

// problems returns what prevents the controller from working: of each kind the first failure, and how many there are. That the API server takes what one object
// needs for invalid, such as a pool with too many addresses, prevents nothing: an event and a metric say so.
func (h *health) problems() (all []string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.waitsFor != "" {
		all = append(all, "not working yet; waiting for "+h.waitsFor)
	}
	first, n := map[string]Key{}, map[string]int{}
	for key, f := range h.failures {
		if !f.lasts() || apierrors.IsInvalid(f.err) {
			continue
		}
		of := key.Kind.Name
		if key.Name == "" {
			of = "changes of " + key.Kind.plural() + " are not seen"
		}
		if n[of]++; n[of] == 1 || key.String() < first[of].String() {
			first[of] = key
		}
	}
	for of, key := range first {
		if key.Name != "" {
			of = key.String() + more(n[of]-1)
		}
		f := h.failures[key]
		all = append(all, fmt.Sprintf("%s: %s, since %s", of, problem(f.err), f.since.UTC().Format(time.RFC3339)))
	}
	slices.Sort(all)
	return all
}

func more(n int) string {
	if n == 0 {
		return ""
	}
	return fmt.Sprintf(" and %d more", n)
}

// Check returns an error that says what to do, as long as the controller cannot do all of its work.
func (c *Controller) Check(*http.Request) error {
	if problems := c.health.problems(); len(problems) > 0 {
		return errors.New(strings.Join(problems, "; "))
	}
	return nil
}

// problem says why something fails, and what to do about it.
func problem(err error) string {
	advice := "look at the network, at the API server and its log, and at admission webhooks"
	switch {
	case apierrors.IsNotFound(err) && !writes.NotThere(err):
		advice = "the API server does not know the kind: " + install
	case apierrors.IsForbidden(err):
		advice = "the API server forbids it: correct the admission webhook, the policy or the quota that its answer names; if it names none, " + install
	}
	return text.Cut(fmt.Sprintf("%s (%v)", advice, err), text.MaxProblem)
}

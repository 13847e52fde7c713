package standalone

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apiserver/pkg/server/healthz"
	"k8s.io/apiserver/pkg/server/mux"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"

	"github.com/multicidr/controller-manager/controllers/restart"
)

// leaseCheckTolerance is how long a leader that cannot renew its lease still counts as healthy after the lease expired.
const leaseCheckTolerance = 20 * time.Second

// health answers two questions. /healthz: would a restart help? It fails only if the elector hangs. /readyz: does this process do its job?
// A leader's job is all of the work of its controllers. A standby's job is to be able to take over, for which it must be able to read the Lease.
//
// All methods are safe for concurrent use.
type health struct {
	watchDog    *leaderelection.HealthzAdaptor // nil without leader election
	controllers []*checked

	mu sync.Mutex
	// lease is the error of the last read or write of the Lease; nil if there was none.
	lease error
	leads bool
}

// checked is one of the controllers.
type checked struct {
	name string
	// idle says that the controller does not work yet.
	idle  string
	of    *health
	runs  restart.Runs
	shown sync.Once // the debug page

	// Guarded by the lock of health. waitsFor is what the start waits for before it builds a controller, and why is the API server's answer
	// about it.
	waitsFor   string
	why        error
	controller controller // the last one that was built, even if it has ended by itself since; nil before the first
}

// newHealth returns the health of a process with these controllers. idle says that a controller does not work yet.
func newHealth(elect bool, idle string, controllers ...string) *health {
	h := &health{}
	for _, name := range controllers {
		h.controllers = append(h.controllers, &checked{name: name, idle: idle, of: h, waitsFor: "the start"})
	}
	if elect {
		h.watchDog = leaderelection.NewLeaderHealthzAdaptor(leaseCheckTolerance)
		h.lease = errors.New("it has not been read yet")
	}
	return h
}

// lead notes that this process is the leader.
func (h *health) lead() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.leads = true
}

// waitFor notes what the start waits for. It reports whether that is new. It does not compare the error, which can contain a different port
// or time at every attempt.
func (c *checked) waitFor(what string, why error) (changed bool) {
	c.of.mu.Lock()
	defer c.of.mu.Unlock()
	changed = c.waitsFor != what
	c.waitsFor, c.why = what, why
	return changed
}

// controlledBy makes readiness depend on the controller's own check.
func (c *checked) controlledBy(by controller) {
	c.of.mu.Lock()
	defer c.of.mu.Unlock()
	c.controller = by
}

// serveDebug serves the debug page of the last controller that was built. There must be one.
func (c *checked) serveDebug(w http.ResponseWriter, r *http.Request) {
	c.of.mu.Lock()
	by := c.controller
	c.of.mu.Unlock()
	by.DebuggingHandler().ServeHTTP(w, r)
}

// checkLease is the part of readiness that depends on the Lease.
func (h *health) checkLease(*http.Request) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.lease != nil {
		return fmt.Errorf("this process cannot lead without its Lease: %w", h.lease)
	}
	return nil
}

// check is the part of readiness that depends on the controller. A standby has none and is ready.
func (c *checked) check(r *http.Request) error {
	c.of.mu.Lock()
	leads, waitsFor, why, by := c.of.leads, c.waitsFor, c.why, c.controller
	c.of.mu.Unlock()
	switch {
	case by != nil:
		return c.runs.Explain(by.HealthChecker().Check(r))
	case leads || c.of.watchDog == nil:
		if why != nil {
			waitsFor = fmt.Sprintf("%s (%v)", waitsFor, why)
		}
		return fmt.Errorf("%s; waiting for %s", c.idle, waitsFor)
	default:
		return nil
	}
}

// checks returns the checks of /healthz and /readyz. Those of the controllers also have paths below /healthz, as in kube-controller-manager,
// where they are not a part of /healthz itself either.
func (h *health) checks() (live, ready, controllers []healthz.HealthChecker) {
	live = []healthz.HealthChecker{healthz.PingHealthz}
	for _, c := range h.controllers {
		controllers = append(controllers, healthz.NamedCheck(c.name, c.check))
	}
	ready = slices.Clone(controllers)
	if h.watchDog != nil {
		live = append(live, h.watchDog)
		ready = append(ready, healthz.NamedCheck("lease", h.checkLease))
	}
	return live, ready, controllers
}

// install serves all checks. The text of a single check is at its own path, as in kube-controller-manager.
func (h *health) install(mux *mux.PathRecorderMux) {
	live, ready, controllers := h.checks()
	healthz.InstallHandler(mux, live...)
	healthz.InstallReadyzHandler(mux, ready...)
	for _, c := range controllers {
		mux.Handle("/healthz/"+c.Name(), answer(c.Check))
	}
}

// installWithheld serves the same paths to every client that can reach the port. They show which check fails, but not its text, because the
// text can name any object and quotes the API server.
func (h *health) installWithheld(public *mux.PathRecorderMux) {
	whole := mux.NewPathRecorderMux("withheld")
	h.install(whole)
	public.Handle("/healthz", whole)
	public.Handle("/readyz", whole)
	live, ready, controllers := h.checks()
	for root, checks := range map[string][]healthz.HealthChecker{"/healthz/": append(live, controllers...), "/readyz/": ready} {
		for _, check := range checks {
			public.Handle(root+check.Name(), answer(func(r *http.Request) error {
				if check.Check(r) == nil {
					return nil
				}
				return fmt.Errorf("%s fails: the log of this program says why. With --secure-port, this path on that port says why to users whom the API server authorizes", check.Name())
			}))
		}
	}
}

// answer serves one check.
func answer(check func(*http.Request) error) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := check(r); err != nil {
			http.Error(w, fmt.Sprintf("internal server error: %v", err), http.StatusInternalServerError)
			return
		}
		fmt.Fprint(w, "ok")
	})
}

// watch returns a lock that notes the results of its calls.
func (h *health) watch(lock resourcelock.Interface) resourcelock.Interface {
	return watchedLock{Interface: lock, health: h}
}

type watchedLock struct {
	resourcelock.Interface
	health *health
}

// Unwrap lets package lease reach the lock inside.
func (l watchedLock) Unwrap() resourcelock.Interface { return l.Interface }

func (l watchedLock) Get(ctx context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	record, raw, err := l.Interface.Get(ctx)
	if !apierrors.IsNotFound(err) { // the elector creates one, and only the outcome of that counts
		l.note(err)
	}
	return record, raw, err
}

func (l watchedLock) Create(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	err := l.Interface.Create(ctx, record)
	l.note(err)
	return err
}

func (l watchedLock) Update(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	err := l.Interface.Update(ctx, record)
	if !apierrors.IsNotFound(err) {
		l.note(err)
	}
	return err
}

// note notes the result of a call. A conflict, because another process was faster, is not a problem.
func (l watchedLock) note(err error) {
	if apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) {
		err = nil
	}
	if err != nil {
		err = fmt.Errorf("%s: %w", l.Describe(), err)
	}
	l.health.mu.Lock()
	defer l.health.mu.Unlock()
	l.health.lease = err
}

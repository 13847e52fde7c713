package standalone

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apiserver/pkg/server/healthz"
	"k8s.io/apiserver/pkg/server/mux"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"

	"github.com/multicidr/controller-manager/controllers/nodeipam"
	"github.com/multicidr/controller-manager/controllers/restart"
)

// leaseCheckTolerance is for how long after its lease expired a leader that cannot renew it may still answer that it is healthy.
const leaseCheckTolerance = 20 * time.Second

// health answers two questions. /healthz: would a restart help? Only when the elector hangs. /readyz: does this process do its work? That
// is, if it leads, all of the controller's work; and if it does not, to be able to take over, which takes a Lease that it can read.
//
// All methods may be called at once.
type health struct {
	watchDog *leaderelection.HealthzAdaptor // nil without leader election
	runs     restart.Runs                   // of the controller

	mu sync.Mutex
	// lease is what was wrong the last time the Lease was read or written; nil if nothing was.
	lease error
	leads bool
	// waitsFor is what has to be there before there is a controller, and why what the API server said about it.
	waitsFor   string
	why        error
	controller *nodeipam.Controller // nil until it was built; after it has ended by itself it is the old one until the next one was built
}

func newHealth(elect bool) *health {
	h := &health{waitsFor: "the start"}
	if elect {
		h.watchDog = leaderelection.NewLeaderHealthzAdaptor(leaseCheckTolerance)
		h.lease = errors.New("it has not been read yet")
	}
	return h
}

// lead notes that this process leads.
func (h *health) lead() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.leads = true
}

// waitFor notes what the start waits for. It reports whether that is new; the error alone may say another port or time at every try.
func (h *health) waitFor(what string, why error) (changed bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	changed = h.waitsFor != what
	h.waitsFor, h.why = what, why
	return changed
}

// controlledBy makes the controller's own check count.
func (h *health) controlledBy(c *nodeipam.Controller) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.controller = c
}

// serveDebug is the debug page of the controller that was built last. There has to be one.
func (h *health) serveDebug(w http.ResponseWriter, r *http.Request) {
	h.mu.Lock()
	controller := h.controller
	h.mu.Unlock()
	controller.DebuggingHandler().ServeHTTP(w, r)
}

// checkLease is the part of readiness that is about the Lease.
func (h *health) checkLease(*http.Request) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.lease != nil {
		return fmt.Errorf("this process cannot lead without its Lease: %w", h.lease)
	}
	return nil
}

// checkController is the part of readiness that is about the controller. A standby has none and is ready.
func (h *health) checkController(r *http.Request) error {
	h.mu.Lock()
	leads, waitsFor, why, controller := h.leads, h.waitsFor, h.why, h.controller
	h.mu.Unlock()
	switch {
	case controller != nil:
		return h.runs.Explain(controller.HealthChecker().Check(r))
	case leads || h.watchDog == nil:
		if why != nil {
			waitsFor = fmt.Sprintf("%s (%v)", waitsFor, why)
		}
		return fmt.Errorf("not serving Nodes yet; waiting for %s", waitsFor)
	default:
		return nil
	}
}

// checks are those of /healthz and /readyz. The controller's is at a path below /healthz, too, where kube-controller-manager has it; it does
// not count for /healthz there either.
func (h *health) checks() (live, ready []healthz.HealthChecker, controller healthz.HealthChecker) {
	live = []healthz.HealthChecker{healthz.PingHealthz}
	controller = healthz.NamedCheck(nodeipam.Name, h.checkController)
	ready = []healthz.HealthChecker{controller}
	if h.watchDog != nil {
		live = append(live, h.watchDog)
		ready = append(ready, healthz.NamedCheck("lease", h.checkLease))
	}
	return live, ready, controller
}

// install serves all checks. What a single one says is at its own path, as in kube-controller-manager.
func (h *health) install(mux *mux.PathRecorderMux) {
	live, ready, controller := h.checks()
	healthz.InstallHandler(mux, live...)
	healthz.InstallReadyzHandler(mux, ready...)
	mux.Handle("/healthz/"+controller.Name(), answer(controller.Check))
}

// installWithheld serves the same paths to everybody who can reach them: which check fails is there, what it says is not, because that can
// name any object and holds the API server's words.
func (h *health) installWithheld(public *mux.PathRecorderMux) {
	whole := mux.NewPathRecorderMux(component)
	h.install(whole)
	public.Handle("/healthz", whole)
	public.Handle("/readyz", whole)
	live, ready, controller := h.checks()
	for root, checks := range map[string][]healthz.HealthChecker{"/healthz/": append(live, controller), "/readyz/": ready} {
		for _, check := range checks {
			public.Handle(root+check.Name(), answer(func(r *http.Request) error {
				if check.Check(r) == nil {
					return nil
				}
				return fmt.Errorf("%s fails: the log of this program says why, and with --secure-port this path does, to those who may see it", check.Name())
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

// watch returns a lock that notes how its calls end.
func (h *health) watch(lock resourcelock.Interface) resourcelock.Interface {
	return watchedLock{Interface: lock, health: h}
}

type watchedLock struct {
	resourcelock.Interface
	health *health
}

// Unwrap lets package lease look at what is below.
func (l watchedLock) Unwrap() resourcelock.Interface { return l.Interface }

func (l watchedLock) Get(ctx context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	record, raw, err := l.Interface.Get(ctx)
	if !apierrors.IsNotFound(err) { // The elector makes one, and what comes of that counts.
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

// note: that somebody else was faster is nothing wrong.
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

package standalone

import (
	"errors"
	"net/http"
	"sync"
	"time"

	"k8s.io/apiserver/pkg/server/healthz"
	"k8s.io/apiserver/pkg/server/mux"
	"k8s.io/client-go/tools/leaderelection"

	"github.com/multicidr/controller-manager/controllers/internal/pages"
)

// leaseCheckTolerance is how long a leader that cannot renew its lease still counts as healthy after the lease expired.
const leaseCheckTolerance = 20 * time.Second

// health answers two questions. /healthz: would a restart help? It fails only if the elector hangs. /readyz: does this process do its job?
// A leader's job is all of the work of its controllers. A standby's job is to be able to take over, for which it must be able to read the Lease.
//
// All methods are safe for concurrent use.
type health struct {
	watchDog *leaderelection.HealthzAdaptor // nil without leader election
	names    []string                       // of the controllers

	mu          sync.Mutex
	controllers map[string]controller // those that are built, by name; none in a standby
	leaseSeen   bool                  // that the Lease can be read, or created
}

func newHealth(elect bool, names []string) *health {
	h := &health{names: names, controllers: map[string]controller{}}
	if elect {
		h.watchDog = leaderelection.NewLeaderHealthzAdaptor(leaseCheckTolerance)
	}
	return h
}

// sawLease notes that the Lease has a holder, this process or another one.
func (h *health) sawLease() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.leaseSeen = true
}

// built makes readiness depend on the controller's own check.
func (h *health) built(name string, controller controller) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.controllers[name] = controller
}

// checkLease is the part of readiness that depends on the Lease.
func (h *health) checkLease(*http.Request) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.leaseSeen {
		return errors.New("the Lease has not been read or created yet: the log of this program says why. It may lack the Role of the Lease")
	}
	return nil
}

// check returns the part of readiness that depends on a controller.
func (h *health) check(name string) func(*http.Request) error {
	return func(r *http.Request) error {
		h.mu.Lock()
		controller := h.controllers[name]
		h.mu.Unlock()
		if controller == nil {
			return nil
		}
		return controller.HealthChecker().Check(r)
	}
}

// install serves the checks. The text of a single check is at its own path. Those of the controllers also have paths below /healthz, as in
// kube-controller-manager, where they are not a part of /healthz itself either.
func (h *health) install(mux *mux.PathRecorderMux) {
	live := []healthz.HealthChecker{healthz.PingHealthz}
	var ready []healthz.HealthChecker
	for _, name := range h.names {
		ready = append(ready, healthz.NamedCheck(name, h.check(name)))
		pages.Health(mux, name, h.check(name))
	}
	if h.watchDog != nil {
		live = append(live, h.watchDog)
		ready = append(ready, healthz.NamedCheck("lease", h.checkLease))
	}
	healthz.InstallHandler(mux, live...)
	healthz.InstallReadyzHandler(mux, ready...)
}

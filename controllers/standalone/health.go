package standalone

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"time"

	"k8s.io/apiserver/pkg/server/healthz"
	"k8s.io/apiserver/pkg/server/mux"
	"k8s.io/client-go/tools/leaderelection"
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

	mu        sync.Mutex
	leads     bool
	leaseSeen bool // that the Lease can be read, or created
}

// checked is one of the controllers.
type checked struct {
	name, idle string // idle says that the controller does not work yet
	of         *health

	controller controller // nil before it was built; guarded by the lock of health
}

func newHealth(elect bool, idle string, controllers ...string) *health {
	h := &health{leads: !elect}
	for _, name := range controllers {
		h.controllers = append(h.controllers, &checked{name: name, idle: idle, of: h})
	}
	if elect {
		h.watchDog = leaderelection.NewLeaderHealthzAdaptor(leaseCheckTolerance)
	}
	return h
}

// lead notes that this process is the leader.
func (h *health) lead() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.leads = true
}

// sawLease notes that the Lease has a holder, this process or another one.
func (h *health) sawLease() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.leaseSeen = true
}

// controlledBy makes readiness depend on the controller's own check.
func (c *checked) controlledBy(by controller) {
	c.of.mu.Lock()
	defer c.of.mu.Unlock()
	c.controller = by
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

// check is the part of readiness that depends on the controller. A standby has none and is ready.
func (c *checked) check(r *http.Request) error {
	c.of.mu.Lock()
	leads, by := c.of.leads, c.controller
	c.of.mu.Unlock()
	switch {
	case by != nil:
		return by.HealthChecker().Check(r)
	case leads:
		return fmt.Errorf("%s; waiting for the start", c.idle)
	}
	return nil
}

// install serves the checks. The text of a single check is at its own path. Those of the controllers also have paths below /healthz, as in
// kube-controller-manager, where they are not a part of /healthz itself either.
func (h *health) install(mux *mux.PathRecorderMux) {
	live := []healthz.HealthChecker{healthz.PingHealthz}
	var ready []healthz.HealthChecker
	for _, c := range h.controllers {
		ready = append(ready, healthz.NamedCheck(c.name, c.check))
	}
	controllers := slices.Clone(ready)
	if h.watchDog != nil {
		live = append(live, h.watchDog)
		ready = append(ready, healthz.NamedCheck("lease", h.checkLease))
	}
	healthz.InstallHandler(mux, live...)
	healthz.InstallReadyzHandler(mux, ready...)
	for _, c := range controllers {
		mux.HandleFunc("/healthz/"+c.Name(), func(w http.ResponseWriter, r *http.Request) {
			if err := c.Check(r); err != nil {
				http.Error(w, fmt.Sprintf("internal server error: %v", err), http.StatusInternalServerError)
				return
			}
			fmt.Fprint(w, "ok")
		})
	}
}

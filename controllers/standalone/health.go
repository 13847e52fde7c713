package standalone

import (
	"errors"
	"maps"
	"net/http"
	"slices"
	"sync/atomic"
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
	watchDog    *leaderelection.HealthzAdaptor // nil without leader election
	controllers map[string]*pages.Controller   // by name
	leaseSeen   atomic.Bool                    // that the Lease can be read, or created: it has a holder, this process or another one
}

func newHealth(elect bool, names []string) *health {
	h := &health{controllers: map[string]*pages.Controller{}}
	for _, name := range names {
		h.controllers[name] = &pages.Controller{}
	}
	if elect {
		h.watchDog = leaderelection.NewLeaderHealthzAdaptor(leaseCheckTolerance)
	}
	return h
}

// checkLease is the part of readiness that depends on the Lease.
func (h *health) checkLease(*http.Request) error {
	if !h.leaseSeen.Load() {
		return errors.New("the Lease has not been read or created yet: the log of this program says why. It may lack the Role of the Lease")
	}
	return nil
}

// install serves the checks, the text of a single one at its own path, and the debug pages.
func (h *health) install(mux *mux.PathRecorderMux) {
	live := []healthz.HealthChecker{healthz.PingHealthz}
	var ready []healthz.HealthChecker
	for _, name := range slices.Sorted(maps.Keys(h.controllers)) {
		c := h.controllers[name]
		ready = append(ready, healthz.NamedCheck(name, c.Check))
		c.Install(mux, name)
	}
	if h.watchDog != nil {
		live = append(live, h.watchDog)
		ready = append(ready, healthz.NamedCheck("lease", h.checkLease))
	}
	healthz.InstallHandler(mux, live...)
	healthz.InstallReadyzHandler(mux, ready...)
}

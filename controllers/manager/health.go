package manager

import (
	"fmt"
	"net/http"
	"slices"
	"sync"

	"k8s.io/apiserver/pkg/server/healthz"
	"k8s.io/component-base/metrics/prometheus/slis"
	controllerhealthz "k8s.io/controller-manager/pkg/healthz"

	"github.com/multicidr/controller-manager/controllers/internal/pages"
)

// health serves /healthz. If /healthz of a static Pod fails, the kubelet restarts the Pod, and with it every controller of the cluster. So
// the checks of added controllers are advisory: users see them, but they never make /healthz fail. If such a check fails,
//   - its own path, /healthz/<name>, fails and gives the reason;
//   - /healthz?verbose shows it as excluded, with a line that says where to look;
//   - the metric kubernetes_healthcheck counts it as an error.
type health struct {
	*controllerhealthz.MutableHealthzHandler

	lock     sync.Mutex
	advisory []healthz.HealthChecker
}

func newHealth() *health {
	return &health{MutableHealthzHandler: controllerhealthz.NewMutableHealthzHandler()}
}

// addAdvisory adds the check of an added controller.
func (h *health) addAdvisory(name string, check func(*http.Request) error) {
	h.lock.Lock()
	h.advisory = append(h.advisory, healthz.NamedCheck(name, check))
	h.lock.Unlock()
	// This lists it and always passes: ServeHTTP calls the check itself. A second call might fail although the first one has just passed.
	h.AddHealthChecker(controllerhealthz.NamedPingChecker(name))
}

func (h *health) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	failing := h.failing(r)
	r = r.Clone(r.Context())
	query := r.URL.Query()
	for _, name := range failing {
		query.Add("exclude", name)
	}
	r.URL.RawQuery = query.Encode()
	h.MutableHealthzHandler.ServeHTTP(w, r)
	if query.Has("verbose") {
		for _, name := range failing {
			fmt.Fprintf(w, "warn: %s failed and was excluded: see %s\n", name, pages.HealthPath(name))
		}
	}
}

// failing names the advisory checks that fail now.
func (h *health) failing(r *http.Request) []string {
	h.lock.Lock()
	advisory := slices.Clip(h.advisory)
	h.lock.Unlock()

	var failing []string
	for _, check := range advisory {
		if check.Check(r) != nil {
			failing = append(failing, check.Name())
			// The handler of /healthz counts the checks that pass, but not those that are excluded.
			slis.ObserveHealthcheck(r.Context(), check.Name(), "healthz", slis.Error)
		}
	}
	return failing
}

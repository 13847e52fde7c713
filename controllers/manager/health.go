package manager

import (
	"fmt"
	"net/http"
	"slices"
	"sync"

	"k8s.io/apiserver/pkg/server/healthz"
	"k8s.io/component-base/metrics/prometheus/slis"
	controllerhealthz "k8s.io/controller-manager/pkg/healthz"
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

func healthPath(name string) string { return healthz.DefaultHealthzPath + "/" + name }

// addAdvisory adds the check of an added controller.
func (h *health) addAdvisory(name string, check func(*http.Request) error) {
	h.lock.Lock()
	h.advisory = append(h.advisory, healthz.NamedCheck(name, check))
	h.lock.Unlock()

	h.AddHealthChecker(healthz.NamedCheck(name, func(r *http.Request) error {
		if r.URL.Path == healthz.DefaultHealthzPath {
			// This request is for all of /healthz, and ServeHTTP has already called the check. A second call might fail although the first
			// one has just passed.
			return nil
		}
		return check(r)
	}))
}

// ServeHTTP answers for /healthz and for single checks.
func (h *health) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path != healthz.DefaultHealthzPath {
		h.MutableHealthzHandler.ServeHTTP(w, r)
		return
	}

	failing := h.failing(r)
	whole := r.Clone(r.Context())
	query := whole.URL.Query()
	for _, name := range failing {
		query.Add("exclude", name)
	}
	whole.URL.RawQuery = query.Encode()
	h.MutableHealthzHandler.ServeHTTP(w, whole)
	if query.Has("verbose") {
		for _, name := range failing {
			fmt.Fprintf(w, "warn: %s failed and was excluded: see %s\n", name, healthPath(name))
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

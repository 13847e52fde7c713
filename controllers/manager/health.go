package manager

import (
	"fmt"
	"net/http"
	"sync"

	"k8s.io/apiserver/pkg/server/healthz"
	"k8s.io/component-base/metrics/prometheus/slis"
	controllerhealthz "k8s.io/controller-manager/pkg/healthz"
)

// health serves /healthz. The kubelet restarts a static Pod whose /healthz fails, and with it every controller of the cluster, so the
// checks of added controllers are advisory: they are seen, and never fail it. A failing one
//   - fails at its own path, /healthz/<name>, with its reason;
//   - is shown as excluded in /healthz?verbose, with a line that says where to look;
//   - counts as an error in the metric kubernetes_healthcheck.
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
			// Asked as a part of the whole, where ServeHTTP has judged already. A second look might see a check fail that has
			// just passed.
			return nil
		}
		return answer(check, r)
	}))
}

// ServeHTTP answers for the whole and for single checks.
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
	advisory := h.advisory[:len(h.advisory):len(h.advisory)]
	h.lock.Unlock()

	var failing []string
	for _, check := range advisory {
		if answer(check.Check, r) != nil {
			failing = append(failing, check.Name())
			// Those that pass are counted with the others, by the handler of the whole; excluded ones are not.
			slis.ObserveHealthcheck(r.Context(), check.Name(), "healthz", slis.Error)
		}
	}
	return failing
}

// answer is what a check answers; a panic is a failure.
func answer(check func(*http.Request) error, r *http.Request) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic in the health check: %v", p)
		}
	}()
	return check(r)
}

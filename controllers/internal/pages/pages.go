// Package pages are the paths at which every program shows its controllers. They are those of kube-controller-manager.
package pages

import (
	"fmt"
	"net/http"

	"k8s.io/apiserver/pkg/server/mux"
)

// HealthPath is where the health check of a controller is.
func HealthPath(controller string) string { return "/healthz/" + controller }

// Health serves the check of a controller, with its reason. It is no part of /healthz itself. A program that serves nothing has no mux: nil.
func Health(m *mux.PathRecorderMux, controller string, check func(*http.Request) error) {
	if m == nil {
		return
	}
	m.UnlistedHandle(HealthPath(controller), http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := check(r); err != nil {
			http.Error(w, fmt.Sprintf("internal server error: %v", err), http.StatusInternalServerError)
			return
		}
		fmt.Fprint(w, "ok")
	}))
}

// Debug serves the debug page of a controller. A program that serves nothing has no mux: nil.
func Debug(m *mux.PathRecorderMux, controller string, handler http.Handler) {
	if m == nil {
		return
	}
	path := "/debug/controllers/" + controller
	m.UnlistedHandle(path, http.StripPrefix(path, handler))
	m.UnlistedHandlePrefix(path+"/", http.StripPrefix(path, handler))
}

// Package pages shows a controller, from before it can be built, at the paths of kube-controller-manager.
package pages

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apiserver/pkg/server/mux"
	"k8s.io/controller-manager/controller"
	"k8s.io/klog/v2"
)

// HealthPath is where the health check of a controller is.
func HealthPath(name string) string { return "/healthz/" + name }

// Controller is what a process shows of one controller. The zero value is one that does not run here, which is healthy. Safe for concurrent
// use.
type Controller struct {
	// Lease is that of the leader, for people who look for the controller here; empty if that is known elsewhere.
	Lease string

	mu    sync.Mutex
	waits error
	runs  any
}

// Waits says why the controller does not run yet, or that it does not have to: nil.
func (c *Controller) Waits(why error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.waits = why
}

// Runs shows the health check and the debug page of a controller that runs. One that has neither is healthy, and has no page.
func (c *Controller) Runs(built any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.runs = built
}

// Check is the controller's own health check, or why it does not run yet.
func (c *Controller) Check(r *http.Request) error {
	c.mu.Lock()
	runs, waits := c.runs, c.waits
	c.mu.Unlock()
	if runs == nil {
		return waits
	}
	if checkable, ok := runs.(controller.HealthCheckable); ok {
		if checker := checkable.HealthChecker(); checker != nil {
			return checker.Check(r)
		}
	}
	return nil
}

// debug is the controller's debug page.
func (c *Controller) debug(w http.ResponseWriter, r *http.Request) {
	c.mu.Lock()
	debuggable, _ := c.runs.(controller.Debuggable)
	c.mu.Unlock()
	if debuggable != nil {
		if handler := debuggable.DebuggingHandler(); handler != nil {
			handler.ServeHTTP(w, r)
			return
		}
	}
	http.Error(w, strings.TrimSpace("The controller does not run here, or has no debug page: see the process that holds the Lease "+c.Lease), http.StatusNotFound)
}

// Install serves the check with its reason, which is no part of /healthz itself, and the debug page. m is nil in a program that serves nothing.
func (c *Controller) Install(m *mux.PathRecorderMux, name string) {
	if m == nil {
		return
	}
	m.UnlistedHandle(HealthPath(name), http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := c.Check(r); err != nil {
			http.Error(w, fmt.Sprintf("internal server error: %v", err), http.StatusInternalServerError)
			return
		}
		fmt.Fprint(w, "ok")
	}))
	path := "/debug/controllers/" + name
	debug := http.StripPrefix(path, http.HandlerFunc(c.debug))
	m.UnlistedHandle(path, debug)
	m.UnlistedHandlePrefix(path+"/", debug)
}

// pauses are those between attempts to build a controller. What it needs, for example a permission, may be granted a moment later, or after
// days.
var pauses = wait.Backoff{Duration: time.Second, Factor: 2, Jitter: 0.1, Steps: 6, Cap: 30 * time.Second}

// Build calls build until it succeeds. It returns an error only if ctx is done before. Meanwhile the check says why the controller is not built.
func (c *Controller) Build(ctx context.Context, build func(context.Context) error) error {
	return pauses.DelayFunc().Until(ctx, true, true, func(ctx context.Context) (bool, error) {
		err := build(ctx)
		if err != nil {
			c.Waits(fmt.Errorf("cannot be built: %w", err))
			klog.FromContext(ctx).Error(err, "Cannot build a controller. The other controllers keep running, and this one starts by itself when the cause is gone, or after a restart if the cause is a flag")
		}
		return err == nil, nil
	})
}

package manager

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/controller-manager/controller"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/cmd/kube-controller-manager/app"

	"github.com/multicidr/controller-manager/controllers/restart"
)

// retryConstruction sets the pauses between calls of a constructor that fails. What it needs, for example a permission, may be granted a
// moment later, or after days.
var retryConstruction = wait.Backoff{Duration: time.Second, Factor: 2, Jitter: 0.1, Steps: 6, Cap: 30 * time.Second}

// guarded is an added controller that cannot affect the others. It is built when it runs and not before: an error of its constructor would
// end the process, and a constructor that waits, for example for an API server that is slow to create its service account, would delay
// every controller of the cluster. When it ends by itself, for example after a panic, a new one is built.
type guarded struct {
	descriptor     Descriptor
	context        Context
	startInformers func()
	// mount makes the process serve a debug handler. It is called once, when a controller with such a handler was built.
	mount   func(http.Handler)
	mounted bool
	runs    restart.Runs

	lock    sync.Mutex
	running app.Controller // the last one that was built, even if it has ended since; nil before the first
	failure error          // of the last attempt to build one
}

// guard registers the health check of an added controller and returns the controller for RunControllers.
func (p *process) guard(d Descriptor, c Context, startInformers func()) app.Controller {
	g := &guarded{descriptor: d, context: c, startInformers: startInformers, mount: func(h http.Handler) { p.mountDebugHandler(d.Name, h) }}
	p.health.addAdvisory(d.Name, g.check)
	if p.mux != nil {
		// Upstream's base handler answers only at /healthz, and at no path below it.
		p.mux.UnlistedHandle(healthPath(d.Name), p.health)
	}
	return g
}

// mountDebugHandler does for an added controller what BuildControllers does for an upstream controller.
func (p *process) mountDebugHandler(name string, handler http.Handler) {
	if p.mux == nil {
		return
	}
	path := "/debug/controllers/" + name
	p.mux.UnlistedHandle(path, http.StripPrefix(path, handler))
	p.mux.UnlistedHandlePrefix(path+"/", http.StripPrefix(path, handler))
}

// debugHandler returns the debug handler of the last controller that was built; nil if it has none.
func (g *guarded) debugHandler() http.Handler {
	g.lock.Lock()
	running := g.running
	g.lock.Unlock()
	if debuggable, ok := running.(controller.Debuggable); ok {
		return debuggable.DebuggingHandler()
	}
	return nil
}

// serveDebug passes a request to the current controller: the path stays, the controllers change.
func (g *guarded) serveDebug(w http.ResponseWriter, r *http.Request) {
	handler := g.debugHandler()
	if handler == nil {
		http.NotFound(w, r)
		return
	}
	handler.ServeHTTP(w, r)
}

func (g *guarded) Name() string { return g.descriptor.Name }

// Run builds the controller, however long that takes, and runs it. If it ends by itself, Run builds and runs it again.
func (g *guarded) Run(ctx context.Context) {
	logger := klog.FromContext(ctx)
	_ = g.runs.Again(ctx, g.Name(), func(ctx context.Context, again bool) (restart.Controller, error) {
		if again {
			g.context.NodesAsOf = "" // It is older than the writes of the last controller.
		}
		built := g.build(klog.NewContext(ctx, klog.LoggerWithName(logger, g.Name())))
		if built == nil {
			return nil, nil // The context ended first.
		}
		g.startInformers()
		if !g.mounted && g.debugHandler() != nil {
			g.mount(http.HandlerFunc(g.serveDebug))
			g.mounted = true
		}
		return built, nil
	})
}

func (g *guarded) build(ctx context.Context) (built app.Controller) {
	err := retryConstruction.DelayFunc().Until(ctx, true, true, func(ctx context.Context) (bool, error) {
		c, err := g.construct(ctx)
		g.lock.Lock()
		defer g.lock.Unlock()
		g.running, g.failure = c, err
		if err != nil {
			klog.FromContext(ctx).Error(err, "Cannot build a controller. The other controllers keep running, and this one starts by itself when the cause is gone, or after a restart if the cause is a flag",
				"controller", g.Name(), "details", healthPath(g.Name()))
			return false, nil
		}
		built = c
		return true, nil
	})
	if err != nil {
		return nil
	}
	return built
}

// construct calls the constructor. It turns every result other than a controller into an error.
func (g *guarded) construct(ctx context.Context) (built app.Controller, err error) {
	defer func() {
		if r := recover(); r != nil {
			built, err = nil, fmt.Errorf("panic in the constructor: %v", r)
		}
	}()
	built, err = g.descriptor.New(ctx, g.context)
	switch {
	case err != nil:
		return nil, err // The controller may be a nil pointer, which is not nil as an interface.
	case built == nil:
		return nil, errors.New("the constructor returned no controller")
	}
	return built, nil
}

// check is the controller's own health check. A controller without one is healthy when it runs. If there is a problem, check also says how
// often the controller has ended by itself.
func (g *guarded) check(r *http.Request) error { return g.runs.Explain(g.checkRunning(r)) }

func (g *guarded) checkRunning(r *http.Request) error {
	g.lock.Lock()
	running, failure := g.running, g.failure
	g.lock.Unlock()

	if running == nil {
		if failure != nil {
			return fmt.Errorf("cannot be built: %w", failure)
		}
		return errors.New("not built yet")
	}
	if checkable, ok := running.(controller.HealthCheckable); ok {
		if checker := checkable.HealthChecker(); checker != nil {
			return checker.Check(r)
		}
	}
	return nil
}

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

// retryConstruction paces the calls of a constructor that fails: what it misses, say a permission, is often there a moment later,
// and may be missing for days.
var retryConstruction = wait.Backoff{Duration: time.Second, Factor: 2, Jitter: 0.1, Steps: 6, Cap: 30 * time.Second}

// guarded is an added controller that cannot hurt the others: it is built when it runs and not before, since an error of a
// constructor would end the process, and a constructor that waits, say for an API server that is slow to make its service
// account, would delay every controller of the cluster. When it ends by itself, after a panic for one, another one is built in its place.
type guarded struct {
	descriptor     Descriptor
	context        Context
	startInformers func()
	// mount makes the process show a debug handler. It is called once, when a controller was built that has one.
	mount   func(http.Handler)
	mounted bool
	runs    restart.Runs

	lock    sync.Mutex
	running app.Controller // nil until it was built; after it has ended, until the next one was built, it is still the old one
	failure error          // why the last attempt to build it failed
}

// guard registers the health check of an added controller and returns what RunControllers is to run.
func (p *process) guard(d Descriptor, c Context, startInformers func()) app.Controller {
	g := &guarded{descriptor: d, context: c, startInformers: startInformers, mount: func(h http.Handler) { p.mountDebugHandler(d.Name, h) }}
	p.health.addAdvisory(d.Name, g.check)
	if p.mux != nil {
		// Upstream's base handler answers at /healthz and at no path below it.
		p.mux.UnlistedHandle(healthPath(d.Name), p.health)
	}
	return g
}

// mountDebugHandler does for added controllers what BuildControllers does for upstream's.
func (p *process) mountDebugHandler(name string, handler http.Handler) {
	if p.mux == nil {
		return
	}
	path := "/debug/controllers/" + name
	p.mux.UnlistedHandle(path, http.StripPrefix(path, handler))
	p.mux.UnlistedHandlePrefix(path+"/", http.StripPrefix(path, handler))
}

// debugHandler is that of the controller that was built last; nil if it has none.
func (g *guarded) debugHandler() http.Handler {
	g.lock.Lock()
	running := g.running
	g.lock.Unlock()
	if debuggable, ok := running.(controller.Debuggable); ok {
		return debuggable.DebuggingHandler()
	}
	return nil
}

// serveDebug passes a request on: the path stays, the controllers change.
func (g *guarded) serveDebug(w http.ResponseWriter, r *http.Request) {
	handler := g.debugHandler()
	if handler == nil {
		http.NotFound(w, r)
		return
	}
	handler.ServeHTTP(w, r)
}

func (g *guarded) Name() string { return g.descriptor.Name }

// Run builds the controller, however long that takes, and runs it, again and again if it ends by itself.
func (g *guarded) Run(ctx context.Context) {
	logger := klog.FromContext(ctx)
	_ = g.runs.Again(ctx, g.Name(), func(ctx context.Context, again bool) (restart.Controller, error) {
		if again {
			g.context.NodesAsOf = "" // It is from before all that the last one has written.
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
			klog.FromContext(ctx).Error(err, "Cannot build a controller; the others keep running. It starts by itself when the cause is gone",
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

// construct calls the constructor and makes an error of everything but a controller.
func (g *guarded) construct(ctx context.Context) (built app.Controller, err error) {
	defer func() {
		if r := recover(); r != nil {
			built, err = nil, fmt.Errorf("panic in the constructor: %v", r)
		}
	}()
	built, err = g.descriptor.New(ctx, g.context)
	switch {
	case err != nil:
		return nil, err // What came with it may be a nil pointer, which as an interface is not nil.
	case built == nil:
		return nil, errors.New("the constructor returned no controller")
	}
	return built, nil
}

// check is the controller's own health check once there is a controller; without one of its own, it is healthy when it runs. If there is a
// problem, it says too how often the controller has ended by itself.
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

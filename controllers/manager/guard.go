package manager

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apiserver/pkg/server/mux"
	"k8s.io/controller-manager/controller"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/cmd/kube-controller-manager/app"

	"github.com/multicidr/controller-manager/controllers/internal/pages"
)

// retryConstruction sets the pauses between calls of a constructor that fails. What it needs, for example a permission, may be granted a
// moment later, or after days.
var retryConstruction = wait.Backoff{Duration: time.Second, Factor: 2, Jitter: 0.1, Steps: 6, Cap: 30 * time.Second}

// guarded is an added controller that cannot stop or delay the others. It is built when it runs and not before: an error of its constructor
// would end the process, and a constructor that waits, for example for an API server that is slow to create its service account, would delay
// every controller of the cluster. A panic ends the process, as it does in every other controller.
type guarded struct {
	descriptor Descriptor
	context    Context
	mux        *mux.PathRecorderMux // serves the debug handler; nil without --secure-port

	lock    sync.Mutex
	built   app.Controller // nil before it is built
	failure error          // of the last attempt to build it
}

// guard registers the health check of an added controller and returns the controller for RunControllers.
func (p *process) guard(d Descriptor, c Context) app.Controller {
	g := &guarded{descriptor: d, context: c, mux: p.mux}
	p.health.addAdvisory(d.Name, g.check)
	pages.Health(p.mux, d.Name, g.check)
	return g
}

func (g *guarded) Name() string { return g.descriptor.Name }

// Run builds the controller, however long that takes, and runs it.
func (g *guarded) Run(ctx context.Context) {
	ctx = klog.NewContext(ctx, klog.LoggerWithName(klog.FromContext(ctx), g.Name()))
	c := g.build(ctx)
	if c == nil {
		return // The context ended first.
	}
	if debuggable, ok := c.(controller.Debuggable); ok {
		if handler := debuggable.DebuggingHandler(); handler != nil {
			pages.Debug(g.mux, g.Name(), handler)
		}
	}
	c.Run(ctx)
	if ctx.Err() == nil { // The process would keep the lease, and nobody would do the controller's work.
		panic(fmt.Sprintf("the controller %s has ended by itself", g.Name()))
	}
}

func (g *guarded) build(ctx context.Context) (built app.Controller) {
	_ = retryConstruction.DelayFunc().Until(ctx, true, true, func(ctx context.Context) (bool, error) {
		c, err := g.descriptor.New(ctx, g.context)
		g.lock.Lock()
		defer g.lock.Unlock()
		if g.failure = err; err != nil {
			klog.FromContext(ctx).Error(err, "Cannot build a controller. The other controllers keep running, and this one starts by itself when the cause is gone, or after a restart if the cause is a flag",
				"controller", g.Name(), "details", pages.HealthPath(g.Name()))
			return false, nil
		}
		built, g.built = c, c
		return true, nil
	})
	return built
}

// check is the controller's own health check. A controller without one is healthy when it is built.
func (g *guarded) check(r *http.Request) error {
	g.lock.Lock()
	built, failure := g.built, g.failure
	g.lock.Unlock()
	switch {
	case failure != nil:
		return fmt.Errorf("cannot be built: %w", failure)
	case built == nil:
		return errors.New("not built yet")
	}
	if checkable, ok := built.(controller.HealthCheckable); ok {
		if checker := checkable.HealthChecker(); checker != nil {
			return checker.Check(r)
		}
	}
	return nil
}

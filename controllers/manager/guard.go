package manager

import (
	"context"
	"errors"
	"fmt"

	"k8s.io/klog/v2"
	"k8s.io/kubernetes/cmd/kube-controller-manager/app"

	"github.com/multicidr/controller-manager/controllers/internal/pages"
)

// guarded is an added controller that cannot stop or delay the others. It is built when it runs and not before: an error of its constructor
// would end the process, and a constructor that waits, for example for an API server that is slow to create its service account, would delay
// every controller of the cluster. A panic ends the process, as it does in every other controller.
type guarded struct {
	descriptor Descriptor
	context    Context
	shown      pages.Controller
}

// guard registers the health check and the debug page of an added controller and returns the controller for RunControllers.
func (p *process) guard(d Descriptor, c Context) app.Controller {
	g := &guarded{descriptor: d, context: c}
	g.shown.Waits(errors.New("not built yet"))
	g.shown.Install(p.mux, d.Name)
	p.health.addAdvisory(d.Name, g.shown.Check)
	return g
}

func (g *guarded) Name() string { return g.descriptor.Name }

// Run builds the controller, however long that takes, and runs it.
func (g *guarded) Run(ctx context.Context) {
	ctx = klog.NewContext(ctx, klog.LoggerWithName(klog.FromContext(ctx), g.Name()))
	var built app.Controller
	err := g.shown.Build(ctx, func(ctx context.Context) (err error) {
		built, err = g.descriptor.New(ctx, g.context)
		return err
	})
	if err != nil {
		return // The context ended first.
	}
	g.shown.Runs(built)
	built.Run(ctx)
	if ctx.Err() == nil { // The process would keep the lease, and nobody would do the controller's work.
		panic(fmt.Sprintf("the controller %s has ended by itself", g.Name()))
	}
}

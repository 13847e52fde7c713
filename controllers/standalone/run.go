package standalone

import (
	"context"
	"fmt"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/klog/v2"

	"github.com/multicidr/controller-manager/controllers/lease"
	"github.com/multicidr/controller-manager/controllers/restart"
)

// process has what lives as long as the program.
type process struct {
	opts   *options
	config *rest.Config
	client kubernetes.Interface
	health *health
	server *servers
}

// run runs until ctx is done. It then returns nil when the writes in flight have ended and the lease is released. It returns an error if
// the options are wrong, or if the lease was lost: then a new process must read the cluster again. values are what /configz shows.
func run(ctx context.Context, opts *options, values map[string]any) (err error) {
	p := &process{opts: opts, health: newHealth(opts.elect, opts.program.idle(), opts.program.controllers()...)}
	if p.config, err = opts.clientConfig(); err != nil {
		return err
	}
	if p.client, err = kubernetes.NewForConfig(p.config); err != nil {
		return fmt.Errorf("create a client, with the API server of --apiserver, --kubeconfig or IPAM_API_SERVER_URL: %w", err)
	}
	// The servers answer from now on, even while this process waits for the lease, until everything else has ended.
	if p.server, err = serve(opts, p.config, p.health, values); err != nil {
		return err
	}
	defer p.server.stop()

	if !opts.elect {
		klog.FromContext(ctx).Info("Leader election is off: make sure that no other replica runs")
		fence := lease.Unelected(lease.Clocks{})
		defer fence.Close()
		return p.control(ctx, fence)
	}
	logger := klog.FromContext(ctx)
	election := opts.election(logger)
	lock, err := resourcelock.NewFromKubeconfig(opts.lockType, opts.lockNamespace, opts.lockName,
		resourcelock.ResourceLockConfig{Identity: opts.identity}, p.config, opts.renewDeadline)
	if err != nil {
		return fmt.Errorf("create the lock of Lease %s/%s: %w", opts.lockNamespace, opts.lockName, err)
	}
	election.Lock = p.health.watch(lock)
	election.WatchDog = p.health.watchDog
	election.Callbacks.OnNewLeader = func(holder string) {
		logger.Info("The Lease has a new holder", "lease", lock.Describe(), "holder", holder, "thisProcess", lock.Identity())
	}
	election.Callbacks.OnStoppedLeading = func() {
		logger.Info("This process does not hold the Lease and does not wait for it any more", "lease", lock.Describe())
	}
	if err := lease.Lead(ctx, election, lease.Clocks{}, p.control); err != nil {
		return err
	}
	if ctx.Err() == nil {
		return fmt.Errorf("the Lease %s was lost", lock.Describe())
	}
	return nil
}

// control runs the controllers, under the lease if there is one.
func (p *process) control(ctx context.Context, fence *lease.Fence) error {
	p.health.lead()
	return p.opts.program.run(ctx, p, fence)
}

// runAgain runs one of the controllers until ctx is done, and builds it again when it has ended by itself. As in kube-controller-manager, the
// process continues: a new process would first have to wait for the Lease, and would then meet the same object.
func (p *process) runAgain(ctx context.Context, c *checked, build func(again bool) (controller, error)) error {
	return c.runs.Again(ctx, c.name, func(_ context.Context, again bool) (restart.Controller, error) {
		built, err := build(again)
		if err != nil {
			return nil, err
		}
		c.controlledBy(built)
		c.shown.Do(func() { p.server.debug(c.name, c.serveDebug) })
		return built, nil
	})
}

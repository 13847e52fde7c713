package standalone

import (
	"context"
	"fmt"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/klog/v2"

	"github.com/multicidr/controller-manager/controllers/lease"
	"github.com/multicidr/controller-manager/controllers/writes"
)

// process has what lives as long as the program.
type process struct {
	opts   *options
	config *rest.Config
	health *health
	server *servers
}

// run runs until ctx is done. It then returns nil when the writes in flight have ended and the lease is released. It returns an error if
// the options are wrong, or if the lease was lost: then a new process must read the cluster again.
func run(ctx context.Context, opts *options) (err error) {
	p := &process{opts: opts, health: newHealth(opts.elect, opts.program.idle(), opts.program.controllers()...)}
	if p.config, err = opts.clientConfig(); err != nil {
		return err
	}
	// The servers answer from now on, even while this process waits for the lease, until everything else has ended.
	if p.server, err = serve(opts, p.config, p.health); err != nil {
		return err
	}
	defer p.server.stop()

	if !opts.elect {
		klog.FromContext(ctx).Info("Leader election is off: make sure that no other replica runs")
		fence := lease.Unelected(lease.Clocks{})
		defer fence.Close()
		return opts.program.run(ctx, p, fence)
	}
	return p.runElected(ctx)
}

// runElected runs the controllers while this process holds the Lease.
func (p *process) runElected(ctx context.Context) error {
	logger, opts := klog.FromContext(ctx), p.opts
	lock, err := resourcelock.NewFromKubeconfig(opts.lockType, opts.lockNamespace, opts.lockName,
		resourcelock.ResourceLockConfig{Identity: opts.identity}, p.config, opts.renewDeadline)
	if err != nil {
		return fmt.Errorf("create the lock of Lease %s/%s, with the API server of --apiserver, --kubeconfig or IPAM_API_SERVER_URL: %w", opts.lockNamespace, opts.lockName, err)
	}
	if err := lease.CheckTimes(opts.leaseDuration, opts.retryPeriod, writes.Timeout); err != nil {
		logger.Error(err, "The leader stops writing before every renewal", "lease", opts.lockName)
	}
	err = lease.Lead(ctx, leaderelection.LeaderElectionConfig{
		Lock:            lock,
		LeaseDuration:   opts.leaseDuration,
		RenewDeadline:   opts.renewDeadline,
		RetryPeriod:     opts.retryPeriod,
		ReleaseOnCancel: true,
		Name:            opts.lockName,
		WatchDog:        p.health.watchDog,
		Callbacks: leaderelection.LeaderCallbacks{
			OnNewLeader: func(holder string) {
				p.health.sawLease()
				logger.Info("The Lease has a new holder", "lease", lock.Describe(), "holder", holder, "thisProcess", lock.Identity())
			},
			OnStoppedLeading: func() {
				logger.Info("This process does not hold the Lease and does not wait for it any more", "lease", lock.Describe())
			},
		},
	}, lease.Clocks{}, func(ctx context.Context, fence *lease.Fence) error {
		p.health.lead()
		return opts.program.run(ctx, p, fence)
	})
	if err == nil && ctx.Err() == nil {
		return fmt.Errorf("the Lease %s was lost", lock.Describe())
	}
	return err
}

// built shows the health and the debug page of a controller that is about to run.
func (p *process) built(c *checked, controller controller) {
	c.controlledBy(controller)
	p.server.debug(c.name, controller.DebuggingHandler())
}

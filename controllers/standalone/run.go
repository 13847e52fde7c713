package standalone

import (
	"context"

	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/klog/v2"

	"github.com/multicidr/controller-manager/controllers/lease"
)

// run runs until ctx is done. It then returns nil when the writes in flight have ended and the lease is released. It returns an error if
// the options are wrong, or if the lease was lost: then a new process must read the cluster again.
func run(ctx context.Context, opts *options) error {
	config, err := opts.clientConfig()
	if err != nil {
		return err
	}
	// The servers answer from now on, even while this process waits for the lease, until everything else has ended.
	health := newHealth(opts.election.LeaderElect, opts.program.controllers())
	servers, err := serve(opts, config, health)
	if err != nil {
		return err
	}
	defer servers.end()

	logger, name := klog.FromContext(ctx), opts.election.ResourceNamespace+"/"+opts.election.ResourceName
	if !opts.election.LeaderElect {
		logger.Info("Leader election is off: make sure that no other replica runs")
	}
	return lease.Elect(ctx, opts.election, config, resourcelock.ResourceLockConfig{Identity: opts.identity}, leaderelection.LeaderElectionConfig{
		ReleaseOnCancel: true,
		WatchDog:        health.watchDog,
		Callbacks: leaderelection.LeaderCallbacks{
			OnNewLeader: func(holder string) {
				health.leaseSeen.Store(true)
				logger.Info("The Lease has a new holder", "lease", name, "holder", holder, "thisProcess", opts.identity)
			},
			OnStoppedLeading: func() {
				logger.Info("This process does not hold the Lease and does not wait for it any more", "lease", name)
			},
		},
	}, func(ctx context.Context, fence *lease.Fence) error {
		return opts.program.run(ctx, config, fence, func(name string, controller any) { health.controllers[name].Runs(controller) })
	})
}

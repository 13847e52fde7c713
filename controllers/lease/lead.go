package lease

import (
	"context"
	"fmt"
	"os"

	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	componentbaseconfig "k8s.io/component-base/config"
	"k8s.io/klog/v2"
)

// Identity returns a name for this process that no other process has: two on one host, or of one Pod's name, must not take each other's
// lease for their own. Without a name it begins with that of the host.
func Identity(name string) string {
	if name == "" {
		var err error
		if name, err = os.Hostname(); err != nil {
			name = "unknown"
		}
	}
	return name + "_" + string(uuid.NewUUID())
}

// Elect is Lead with the Lease and the times that flags say. config is that of the client which writes the Lease, as has this process's
// Identity, and election has what flags do not say. Without leader election Elect calls run at once, with a fence that is always open. It
// returns an error if the lease is lost before run has returned.
func Elect(
	ctx context.Context, flags componentbaseconfig.LeaderElectionConfiguration, config *rest.Config, as resourcelock.ResourceLockConfig,
	election leaderelection.LeaderElectionConfig, run func(context.Context, *Fence) error,
) error {
	if !flags.LeaderElect {
		return run(ctx, &Fence{})
	}
	if err := checkTimes(flags.LeaseDuration.Duration, flags.RetryPeriod.Duration); err != nil {
		klog.FromContext(ctx).Error(err, "The leader stops writing before every renewal", "lease", flags.ResourceName)
	}
	lock, err := resourcelock.NewFromKubeconfig(flags.ResourceLock, flags.ResourceNamespace, flags.ResourceName, as, config, flags.RenewDeadline.Duration)
	if err != nil {
		return fmt.Errorf("create the lock of Lease %s/%s: %w", flags.ResourceNamespace, flags.ResourceName, err)
	}
	election.Lock, election.Name = lock, flags.ResourceName
	election.LeaseDuration, election.RenewDeadline, election.RetryPeriod = flags.LeaseDuration.Duration, flags.RenewDeadline.Duration, flags.RetryPeriod.Duration
	if err = Lead(ctx, election, Clocks{}, run); err == nil && ctx.Err() == nil {
		return fmt.Errorf("the Lease %s was lost", lock.Describe()) // run can have ended ctx itself, as the controller manager does.
	}
	return err
}

// Lead waits for the lease of an election, calls run while this process holds it, and returns run's error when both have ended. run gets
// the fence of the lease. Its context ends with ctx, and when the lease is lost. When run returns, Lead gives up the lease.
//
// The lease outlives run. With ReleaseOnCancel a successor may start as soon as the lease is released, so Lead keeps and renews the lease
// until run has returned and its last writes have ended. Without ReleaseOnCancel the process exits as soon as it no longer holds the lease.
// Lead does not use the election's callback OnStartedLeading. It calls OnStoppedLeading first when the lease is lost, and when it stops
// waiting for the lease.
func Lead(ctx context.Context, election leaderelection.LeaderElectionConfig, clocks Clocks, run func(context.Context, *Fence) error) (err error) {
	lock, fence := wrap(election.Lock, clocks)
	election.Lock = lock
	work, stopWork := context.WithCancel(ctx)
	defer stopWork()
	held, release := context.WithCancel(context.WithoutCancel(ctx))
	defer release()
	// idle holds its one token while run is not running. (A mutex would do, but synctest does not detect that a goroutine waits for one.)
	idle := make(chan struct{}, 1)
	idle <- struct{}{}
	put := func() { idle <- struct{}{} }
	context.AfterFunc(work, func() {
		<-idle
		defer put()
		release()
	})

	election.Callbacks.OnStartedLeading = func(leading context.Context) {
		<-idle
		defer put()
		defer stopWork() // releases the lease, see above
		leading, stop := context.WithCancel(leading)
		defer stop()
		defer context.AfterFunc(work, stop)()
		err = run(leading, fence)
	}
	stopped := election.Callbacks.OnStoppedLeading
	election.Callbacks.OnStoppedLeading = func() {
		stopped()
		fence.Close()
		if !election.ReleaseOnCancel {
			// Controllers may still be writing, and the lease is gone.
			klog.FlushAndExit(klog.ExitFlushTimeout, 1)
		}
	}
	leaderelection.RunOrDie(held, election)
	<-idle
	defer put()
	return err
}

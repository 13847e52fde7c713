package lease

import (
	"context"

	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/klog/v2"
)

// Lead waits for the lease of an election, calls run while this process holds it, and returns run's error when both have ended. run gets
// the fence of the lease. Its context ends with ctx, and when the lease is lost. When run returns, Lead gives up the lease.
//
// The lease outlives run. With ReleaseOnCancel a successor may start as soon as the lease is released, so Lead keeps and renews the lease
// until run has returned and its last writes have ended. Without ReleaseOnCancel the process exits as soon as it no longer holds the lease.
// Lead does not use the election's callback OnStartedLeading. It calls OnStoppedLeading first when the lease is lost, and when it stops
// waiting for the lease.
func Lead(ctx context.Context, election leaderelection.LeaderElectionConfig, clocks Clocks, run func(context.Context, *Fence) error) (err error) {
	lock, fence := Wrap(election.Lock, clocks)
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

package lease

import (
	"context"

	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/klog/v2"
)

// Lead waits for the lease of an election, calls run while this process holds it, and returns run's error once both have ended. The fence
// that run gets is that of the lease. run's context ends with ctx, and when the lease is lost; when run returns, the lease is given up.
//
// The lease outlives run: with ReleaseOnCancel a successor may start as soon as the lease is released, so it is kept and renewed until run
// has returned, and the last writes with it. Without ReleaseOnCancel the process ends as soon as the lease is not held any more. Of the
// election's callbacks OnStartedLeading is not used, and OnStoppedLeading is called first when the lease is lost, or not waited for any more.
func Lead(ctx context.Context, election leaderelection.LeaderElectionConfig, run func(context.Context, *Fence) error) (err error) {
	lock, fence := Wrap(election.Lock)
	election.Lock = lock
	work, stopWork := context.WithCancel(ctx)
	defer stopWork()
	held, release := context.WithCancel(context.WithoutCancel(ctx))
	defer release()
	// idle has its one token while run does not run. (A mutex would do, but synctest does not see who waits for one.)
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
		defer stopWork() // Which releases the lease, above.
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

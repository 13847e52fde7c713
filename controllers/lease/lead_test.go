package lease

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/client-go/tools/leaderelection"
)

// TestLead ends a leader in every possible way. Its run needs more time to end than the lease is valid. Lead keeps the lease for that time,
// unless the lease is lost, and closes the fence in any case.
func TestLead(t *testing.T) {
	failed := errors.New("failed")
	const slow = time.Minute
	for name, tc := range map[string]struct {
		end      func(tell func(), lock *memoryLock)
		runs     error // what run returns
		byItself bool  // run returns without being told to
		lost     bool
		want     error
	}{
		"told to":                     {end: func(tell func(), _ *memoryLock) { tell() }},
		"told to, and run fails":      {end: func(tell func(), _ *memoryLock) { tell() }, runs: failed, want: failed},
		"run returns by itself":       {end: func(func(), *memoryLock) {}, byItself: true},
		"run fails by itself":         {end: func(func(), *memoryLock) {}, byItself: true, runs: failed, want: failed},
		"the lease cannot be renewed": {end: func(_ func(), lock *memoryLock) { lock.lostRequests.Store(true) }, lost: true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, tell := context.WithCancel(t.Context())
				defer tell()
				lease := &memoryLease{}
				lock := &memoryLock{lease: lease, identity: "we"}
				holder := func() string {
					lease.Lock()
					defer lease.Unlock()
					return lease.record.HolderIdentity
				}
				ended, stopped := false, false
				err := Lead(ctx, leaderelection.LeaderElectionConfig{
					Lock:            lock,
					LeaseDuration:   15 * time.Second,
					RenewDeadline:   10 * time.Second,
					RetryPeriod:     2 * time.Second,
					ReleaseOnCancel: true,
					Callbacks:       leaderelection.LeaderCallbacks{OnStoppedLeading: func() { stopped = true }},
				}, Clocks{}, func(leading context.Context, fence *Fence) error {
					if _, leave, err := fence.Enter(leading, time.Second); err != nil {
						t.Errorf("at the beginning: %v", err)
					} else {
						leave()
					}
					tc.end(tell, lock)
					if !tc.byItself {
						<-leading.Done()
						time.Sleep(slow)
					}
					_, leave, err := fence.Enter(leading, time.Second)
					if err == nil {
						leave()
					}
					if closed := errors.Is(err, ErrClosed); closed != tc.lost {
						t.Errorf("at the end the fence says %v, want it closed: %t", err, tc.lost)
					}
					if got := holder(); !tc.lost && got != "we" {
						t.Errorf("while it still runs, the lease's holder is %q", got)
					}
					ended = true
					return tc.runs
				})
				if !errors.Is(err, tc.want) {
					t.Errorf("got %v, want %v", err, tc.want)
				}
				if !ended || !stopped {
					t.Errorf("Lead has returned; run ended: %t, the callback was called: %t", ended, stopped)
				}
				if got := holder(); !tc.lost && got != "" {
					t.Errorf("in the end the lease's holder is %q, want it released", got)
				}
			})
		})
	}
}

// TestHandOverAfterAWriteWithoutAnswer tells a leader to end while its write is delayed on the way to the API server, which counts the timeout
// of a request from its receipt. The write may be stored late, but not after another process is the leader.
func TestHandOverAfterAWriteWithoutAnswer(t *testing.T) {
	const timeout = 5 * time.Second
	for name, heldUp := range map[string]time.Duration{"for a moment": time.Millisecond, "for as long as is promised": 5 * time.Second} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				start := time.Now()
				clocks := Clocks{Read: func() (wall time.Time, boot, monotonic time.Duration) {
					return time.Now().Round(0), time.Since(start), time.Since(start)
				}}
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				cluster := &memoryLease{}
				config := func(identity string, leads func()) leaderelection.LeaderElectionConfig {
					return leaderelection.LeaderElectionConfig{
						Lock: &memoryLock{lease: cluster, identity: identity}, LeaseDuration: 15 * time.Second, RenewDeadline: 10 * time.Second, RetryPeriod: 2 * time.Second,
						ReleaseOnCancel: true, Callbacks: leaderelection.LeaderCallbacks{OnStartedLeading: func(context.Context) { leads() }, OnStoppedLeading: func() {}},
					}
				}
				told, tell := context.WithCancel(ctx)
				defer tell()
				stored, leads := make(chan time.Time, 1), make(chan time.Time, 1)
				begun := make(chan struct{})
				go func() {
					_ = Lead(told, config("first", nil), clocks, func(leading context.Context, f *Fence) error {
						close(begun)
						time.Sleep(time.Minute)
						write, _, err := f.Enter(context.WithoutCancel(leading), timeout)
						if err != nil {
							t.Error(err)
							return nil
						}
						server := write.Value(passKey{}).(*pass).left(clocks.now()) // the timeout that Transport writes into the request
						time.AfterFunc(heldUp+server-time.Nanosecond, func() { stored <- time.Now() })
						tell()
						<-write.Done() // without an answer
						return nil
					})
				}()
				<-begun
				go func() {
					leaderelection.RunOrDie(ctx, config("second", func() { leads <- time.Now() }))
				}()
				if l, s := <-leads, <-stored; !s.Before(l) {
					t.Errorf("a write of the first leader was stored %v after the second one began to lead", s.Sub(l))
				}
				cancel()
				synctest.Wait()
			})
		})
	}
}

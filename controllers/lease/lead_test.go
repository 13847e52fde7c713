package lease

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/client-go/tools/leaderelection"
)

// TestLead ends a leader in every way there is. What it runs needs longer to end than its lease is good for: the lease is kept as long as
// that takes, unless it is lost, and the fence is closed by then.
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
				}, func(leading context.Context, fence *Fence) error {
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
					_, _, err := fence.Enter(leading, time.Second)
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

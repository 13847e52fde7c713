package lease

import (
	"context"
	"encoding/json"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

// TestLeaseIsNotRegained gives the lease to another process for a moment, between two renewals. With a bare lock, client-go's elector takes the
// lease again and goes on as if nothing had happened. With the lock of Wrap it gives up and leaves the lease to other processes.
func TestLeaseIsNotRegained(t *testing.T) {
	for name, wrap := range map[string]func(resourcelock.Interface) (resourcelock.Interface, *Fence){
		"bare":   func(l resourcelock.Interface) (resourcelock.Interface, *Fence) { return l, nil },
		"fenced": func(l resourcelock.Interface) (resourcelock.Interface, *Fence) { return Wrap(l, Clocks{}) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				leaseOfTheCluster := &memoryLease{}
				lock, fence := wrap(&memoryLock{lease: leaseOfTheCluster, identity: "first"})
				leads, ended := make(chan struct{}), make(chan struct{})
				go func() {
					defer close(ended)
					elect(ctx, lock, func() { close(leads) })
				}()
				<-leads
				synctest.Wait() // The elector renews once at the same time as it says that it leads.
				leaseOfTheCluster.handTo(t, "second")
				leaseOfTheCluster.handTo(t, "")
				written := make(chan string, 100)
				leaseOfTheCluster.watch(written)
				// The elector gives up by its renew deadline, or takes the lease before that.
				select {
				case holder := <-written:
					if fence != nil {
						t.Errorf("%q has the lease again, want nobody", holder)
					}
				case <-ended:
					if fence == nil {
						t.Fatal("client-go does not take the lease back: is Fence.saw still needed?")
					}
					if _, _, err := fence.Enter(ctx, time.Second); !errors.Is(err, ErrClosed) {
						t.Errorf("the fence says %v, want it closed", err)
					}
				}
			})
		})
	}
}

// TestLeaseOfTheSuccessorStays tells a leader to stop right after another process has taken its lease. With a bare lock, client-go's elector
// believes that it still has the lease, and releases that of its successor. With the lock of Wrap it does not.
func TestLeaseOfTheSuccessorStays(t *testing.T) {
	for name, wrap := range map[string]func(resourcelock.Interface) resourcelock.Interface{
		"bare": func(l resourcelock.Interface) resourcelock.Interface { return l },
		"fenced": func(l resourcelock.Interface) resourcelock.Interface {
			lock, _ := Wrap(l, Clocks{})
			return lock
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, stop := context.WithCancel(t.Context())
				leaseOfTheCluster := &memoryLease{}
				leads, ended := make(chan struct{}), make(chan struct{})
				go func() {
					defer close(ended)
					elect(ctx, wrap(&memoryLock{lease: leaseOfTheCluster, identity: "first"}), func() { close(leads) })
				}()
				<-leads
				synctest.Wait() // The elector renews once at the same time as it says that it leads.
				leaseOfTheCluster.handTo(t, "second")
				stop()
				<-ended
				want := "second"
				if name == "bare" {
					want = "" // This is why Wrap is needed.
				}
				if got := leaseOfTheCluster.record.HolderIdentity; got != want {
					t.Errorf("%q has the lease, want %q", got, want)
				}
			})
		})
	}
}

func elect(ctx context.Context, lock resourcelock.Interface, leads func()) {
	leaderelection.RunOrDie(ctx, leaderelection.LeaderElectionConfig{
		Lock:            lock,
		LeaseDuration:   15 * time.Second,
		RenewDeadline:   10 * time.Second,
		RetryPeriod:     2 * time.Second,
		ReleaseOnCancel: true,
		Callbacks:       leaderelection.LeaderCallbacks{OnStartedLeading: func(context.Context) { leads() }, OnStoppedLeading: func() {}},
	})
}

// memoryLease is the only Lease of a cluster, with the optimistic concurrency of the API server.
type memoryLease struct {
	sync.Mutex
	record  resourcelock.LeaderElectionRecord
	version int
	written chan<- string // receives the holder of each write; nil if nobody watches
}

// handTo writes the holder as a process with that name would that takes the lease. An empty name releases it.
func (l *memoryLease) handTo(t *testing.T, holder string) {
	t.Helper()
	lock := &memoryLock{lease: l, identity: holder}
	record, _, err := lock.Get(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	record.HolderIdentity = holder
	if err := lock.Update(t.Context(), *record); err != nil {
		t.Fatal(err)
	}
}

// watch sends the holder of each write from now on.
func (l *memoryLease) watch(written chan<- string) {
	l.Lock()
	defer l.Unlock()
	l.written = written
}

// memoryLock is the view that one process has of a memoryLease.
type memoryLock struct {
	lease                     *memoryLease
	identity                  string
	seen                      int // version
	lostRequests, lostAnswers atomic.Bool
}

var errLost = errors.New("lost on the way")

func (l *memoryLock) Get(context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	if l.lostRequests.Load() || l.lostAnswers.Load() {
		return nil, nil, errLost
	}
	l.lease.Lock()
	defer l.lease.Unlock()
	if l.lease.version == 0 {
		return nil, nil, apierrors.NewNotFound(schema.GroupResource{}, "lease")
	}
	l.seen = l.lease.version
	record := l.lease.record
	raw, err := json.Marshal(record)
	return &record, raw, err
}

func (l *memoryLock) Create(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	return l.Update(ctx, record)
}

func (l *memoryLock) Update(_ context.Context, record resourcelock.LeaderElectionRecord) error {
	if l.lostRequests.Load() {
		return errLost
	}
	l.lease.Lock()
	defer l.lease.Unlock()
	if l.seen != l.lease.version {
		return &apierrors.StatusError{ErrStatus: apierrors.NewConflict(schema.GroupResource{}, "lease", errLost).Status()}
	}
	l.lease.version++
	l.lease.record = record
	if l.lease.written != nil {
		l.lease.written <- record.HolderIdentity
	}
	if l.lostAnswers.Load() {
		return errLost
	}
	l.seen = l.lease.version
	return nil
}

func (l *memoryLock) RecordEvent(string) {}
func (l *memoryLock) Identity() string   { return l.identity }
func (l *memoryLock) Describe() string   { return "memory/lease" }

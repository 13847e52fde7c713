package lease

import (
	"context"
	"encoding/json"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

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
	if l.lostAnswers.Load() {
		return errLost
	}
	l.seen = l.lease.version
	return nil
}

func (l *memoryLock) RecordEvent(string) {}
func (l *memoryLock) Identity() string   { return l.identity }
func (l *memoryLock) Describe() string   { return "memory/lease" }

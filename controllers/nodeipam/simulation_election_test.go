package nodeipam

import (
	"context"
	"encoding/json"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/leaderelection/resourcelock"

	"github.com/multicidr/controller-manager/controllers/lease"
	"github.com/multicidr/controller-manager/controllers/writes"
)

// The leader election of client-go: what its LeaderElector does at one try, on the real lock of package lease, which
// makes the real fence.

// client-go's usual settings, and kube-controller-manager's.
const (
	leaseDuration = 15 * time.Second
	renewDeadline = 10 * time.Second
	retryPeriod   = 2 * time.Second
)

type election struct {
	lock  resourcelock.Interface
	fence *lease.Fence
	// By the monotonic clock: when the last try began, and when the last one that renewed the lease ended.
	tried, renewed time.Duration
	// renewalSent is when the last try began that renewed the lease, in true time; zero before the first. Its renewal may have been sent before, and
	// again when no answer came.
	renewalSent time.Duration
	// What the lease was when it was last seen to be another, and when that was.
	observed   resourcelock.LeaderElectionRecord
	observedAt time.Duration
	released   bool
}

func (p *process) newElection() election {
	clocks := func() (time.Time, time.Duration, time.Duration) { return epoch.Add(p.wall()), p.monotonic(), p.asleep }
	if p.w.alone {
		return election{fence: lease.UnelectedWithClocks(clocks), released: true}
	}
	lock, fence := lease.WrapWithClocks(&simLock{p: p}, clocks)
	return election{lock: lock, fence: fence, tried: -retryPeriod}
}

func (e *election) observe(p *process, record resourcelock.LeaderElectionRecord) {
	e.observed, e.observedAt = record, p.monotonic()
}

func (p *process) leads() bool { return p.election.observed.HolderIdentity == p.name }

// elect is one try to acquire or renew the lease.
func (p *process) elect() {
	if p.w.alone {
		return
	}
	e, now, sent := &p.election, p.monotonic(), p.w.elapsed
	e.tried = now
	wall := metav1.NewTime(epoch.Add(p.wall()))
	record := resourcelock.LeaderElectionRecord{HolderIdentity: p.name, LeaseDurationSeconds: int(leaseDuration / time.Second), RenewTime: wall, AcquireTime: wall}
	valid := func() bool { return now < e.observedAt+leaseDuration }
	if p.leads() && valid() {
		record.AcquireTime, record.LeaderTransitions = e.observed.AcquireTime, e.observed.LeaderTransitions
		if e.lock.Update(p.w.ctx, record) == nil {
			p.renews(record, sent)
			return
		}
	}
	old, _, err := e.lock.Get(p.w.ctx)
	switch {
	case apierrors.IsNotFound(err):
		if e.lock.Create(p.w.ctx, record) == nil {
			p.renews(record, sent)
		}
		return
	case err != nil:
		return
	}
	if !looksLike(*old, e.observed) {
		e.observe(p, *old)
	}
	if old.HolderIdentity != "" && valid() && !p.leads() {
		return
	}
	record.LeaderTransitions = old.LeaderTransitions
	if p.leads() {
		record.AcquireTime = old.AcquireTime
	} else {
		record.LeaderTransitions++
	}
	if e.lock.Update(p.w.ctx, record) == nil {
		p.renews(record, sent)
	}
}

// looksLike reports whether an elector cannot tell one lease from another: it compares their text, in which times have whole seconds.
func looksLike(a, b resourcelock.LeaderElectionRecord) bool {
	text := func(r resourcelock.LeaderElectionRecord) string {
		raw, err := json.Marshal(r)
		if err != nil {
			panic(err)
		}
		return string(raw)
	}
	return text(a) == text(b)
}

// renews notes a renewal that succeeded, of a try that began at sent; after the first the controller is made.
func (p *process) renews(record resourcelock.LeaderElectionRecord, sent time.Duration) {
	p.election.observe(p, record)
	p.election.renewed, p.election.renewalSent = p.monotonic(), sent
	if p.controller == nil {
		p.lead()
	}
}

// release gives the lease up, once the process has nothing left to do.
func (p *process) release() {
	p.election.released = true
	if _, _, err := p.election.lock.Get(p.w.ctx); err != nil || !p.leads() {
		return
	}
	wall := metav1.NewTime(epoch.Add(p.wall()))
	if p.election.fence.Unanswered() > 0 {
		p.w.cover("a lease runs out since a write was not answered")
	}
	_ = p.election.lock.Update(p.w.ctx, resourcelock.LeaderElectionRecord{LeaseDurationSeconds: 1, RenewTime: wall, AcquireTime: wall})
}

// simFence is the real fence, and tells when it was closed.
type simFence struct {
	*lease.Fence
	p *process
}

func (f simFence) Enter(ctx context.Context, atMost time.Duration) (context.Context, func(), error) {
	ctx, leave, err := f.Fence.Enter(ctx, atMost)
	if err != nil {
		f.p.w.cover("the fence is closed")
	}
	return ctx, leave, err
}

// mayWrite reports whether the fence is open.
func (p *process) mayWrite() bool {
	_, leave, err := p.election.fence.Enter(p.w.ctx, writes.Timeout)
	if err == nil {
		leave()
	}
	return err == nil
}

// overdue reports whether a leader should have given up, which it does when it gets to it.
func (p *process) overdue() bool {
	return !p.w.alone && p.controller != nil && p.monotonic() > p.election.renewed+renewDeadline
}

// leave is the end of a process that could not renew its lease in time, or was told to end. It reports whether something came of it: told
// to end, the process waits for its workers, gives the lease up, and only then is gone.
func (p *process) leave() bool {
	switch {
	case p.overdue():
		p.w.cover("a leader gave up")
		p.die()
	case !p.stopping || len(p.tasks) > 0:
		return false
	case p.election.fence.Busy() > 0:
		return false
	case p.leads() && !p.election.released:
		p.spawn("lease", "", p.release)
	default:
		p.die()
	}
	return true
}

// simLock is client-go's LeaseLock.
type simLock struct {
	p        *process
	revision int // of the Lease that was last read or written
}

func (l *simLock) Get(context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	var found simLease
	err := l.p.do("read lease", func(s *simServer) error {
		if found = s.lease; found.revision == 0 {
			return apierrors.NewNotFound(leases, "lease")
		}
		return nil
	})
	if err != nil {
		return nil, nil, err
	}
	l.revision = found.revision
	raw, err := json.Marshal(found.record)
	return &found.record, raw, err
}

func (l *simLock) Create(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	l.revision = 0
	return l.Update(ctx, record)
}

func (l *simLock) Update(_ context.Context, record resourcelock.LeaderElectionRecord) error {
	what := "renew lease"
	if record.HolderIdentity == "" {
		what = "release lease"
	}
	revision := l.revision
	if err := l.p.do(what, func(s *simServer) error { return s.updateLease(record, revision) }); err != nil {
		return err
	}
	l.revision++
	return nil
}

func (*simLock) RecordEvent(string)             {}
func (l *simLock) Identity() string             { return l.p.name }
func (*simLock) Describe() string               { return "kube-system/kube-controller-manager" }
func (*simLock) DeepCopyObject() runtime.Object { return nil }

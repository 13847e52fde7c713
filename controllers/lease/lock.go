package lease

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/klog/v2"
)

// Wrap returns the lock to elect a leader with, and the fence that is open while this process holds it, for one term. It serves
// coordinated leader election, too: there the API server names the leader, but a leader still begins its term with an Update of its own.
func Wrap(inner resourcelock.Interface) (resourcelock.Interface, *Fence) {
	return WrapWithClocks(inner, nil)
}

// Clocks reads both clocks of the machine: the wall clock, and the monotonic one since any fixed moment.
type Clocks func() (wall time.Time, monotonic time.Duration)

// WrapWithClocks is Wrap with other clocks than those of the machine, for who simulates one. nil: those of the machine.
func WrapWithClocks(inner resourcelock.Interface, clocks Clocks) (resourcelock.Interface, *Fence) {
	f := &Fence{name: inner.Describe(), holder: inner.Identity()}
	if clocks != nil {
		f.clocks = func() (r reading) {
			r.wall, r.monotonic = clocks()
			return r
		}
	}
	f.term.follow(inner)
	return &lock{Interface: inner, fence: f}, f
}

type lock struct {
	resourcelock.Interface
	fence *Fence
}

func (l *lock) Get(ctx context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	record, raw, err := l.Interface.Get(ctx)
	if err != nil {
		return record, raw, err
	}
	switch deposed, back := l.fence.saw(record); {
	case deposed:
		klog.FromContext(ctx).Error(l.fence.mine(), "This process leads no more", "holder", record.HolderIdentity)
	case back:
		klog.FromContext(ctx).Error(nil, "The lease is an earlier one of this process: etcd was restored from a backup, or somebody edited the lease. "+
			"This process goes on leading and keeps what it knows. Follow docs/restore-etcd.md before it is restarted", "lease", l.Describe(), "renewTime", record.RenewTime)
	}
	return record, raw, err
}

func (l *lock) Create(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	l.fence.creates()
	return l.write(ctx, record, l.Interface.Create)
}

func (l *lock) Update(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	return l.write(ctx, record, l.Interface.Update)
}

func (l *lock) write(ctx context.Context, record resourcelock.LeaderElectionRecord, write func(context.Context, resourcelock.LeaderElectionRecord) error) error {
	if err := l.fence.mine(); err != nil {
		return err
	}
	l.fence.term.label(l.Interface, record)
	if record.HolderIdentity != l.Identity() {
		// A release. From the moment it is sent somebody else may lead. An elector releases also when it failed to renew, while the
		// controllers still run.
		l.fence.Close()
		if d := l.fence.Unanswered(); d > 0 {
			// A successor that starts at once could read the cluster before the write arrives, and give its block to somebody else.
			return fmt.Errorf("%s is not released but runs out: a write was not answered, and the API server may carry it out for another %v", l.Describe(), d)
		}
		return write(ctx, record)
	}
	sent := l.fence.sends(record)
	if err := write(ctx, record); err != nil {
		return err
	}
	l.fence.renew(sent, record)
	l.fence.begin()
	return nil
}

// renew notes a renewal that succeeded.
func (f *Fence) renew(sent reading, record resourcelock.LeaderElectionRecord) {
	f.mu.Lock()
	defer f.mu.Unlock()
	// In coordinated leader election the API server compares its clock with the time in the record, which the elector took before it
	// read the lease.
	if taken := record.RenewTime.Time.Round(0); taken.Before(sent.wall) {
		sent.wall = taken
	}
	f.renewed = sent
	// Not what the flags say: others count the whole seconds that are in the lease.
	f.duration = time.Duration(record.LeaseDurationSeconds) * time.Second
	f.stamps = []time.Time{stamp(record)}
	f.acquired = record.AcquireTime.Truncate(time.Microsecond)
	f.renewals.Proven = f.renewals.Sent // an elector sends one after the other
}

// sends notes a renewal, of which nobody knows yet whether it succeeds, and returns when it is sent.
func (f *Fence) sends(record resourcelock.LeaderElectionRecord) reading {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.duration > 0 { // before the first one that succeeds there is nothing to be deposed from, and a standby may try for ever
		f.stamps = append(f.stamps, stamp(record))
	}
	f.renewals.Sent++
	return f.readClocks()
}

// stamp is the time of a renewal, as exact as a Lease keeps it.
func stamp(record resourcelock.LeaderElectionRecord) time.Time {
	return record.RenewTime.Truncate(time.Microsecond)
}

// saw notes, and reports if it is news, whether a lease that this process has held is another one's, or was: then it carries a time that
// this process did not write. Or whether it went back.
//
// An elector that finds the lease released, or expired after a pause, takes it again, as an API server that coordinates may give it again,
// and goes on as if it had never been away. But who led in between has given what this process still takes for free or for its own.
func (f *Fence) saw(record *resourcelock.LeaderElectionRecord) (deposedNow, back bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	back = !f.deposed && f.wentBack(record)
	own := record.HolderIdentity == f.holder && slices.ContainsFunc(f.stamps, stamp(*record).Equal)
	deposedNow = f.duration > 0 && !own && !f.deposed
	f.deposed = f.deposed || deposedNow
	return deposedNow, back
}

// mine returns an error if the lease is not this process's business any more: neither to renew, nor to release, which an elector does with
// what it believed before its last look.
func (f *Fence) mine() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.deposed {
		return errors.New(f.title(deposedWhy))
	}
	return nil
}

// deposedWhy is what people are told.
const deposedWhy = "went to another process after this one had held it, so this one has to end and begin anew"

// CheckTimes returns an error if a leader with these settings of its elector has to pause its writes before every renewal.
func CheckTimes(leaseDuration, retryPeriod time.Duration) error {
	good := leaseDuration.Truncate(time.Second)
	writable := good - good/timeoutShare - good/transitShare
	if retryPeriod >= writable {
		return fmt.Errorf("the lease is renewed every %v, but writes are possible only in the first %v of its %v: make the retry period shorter or the lease longer", retryPeriod, writable, good)
	}
	return nil
}

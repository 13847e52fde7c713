package lease

import (
	"context"
	"fmt"
	"slices"
	"time"

	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/klog/v2"
)

// wrap returns a lock for leader election, and a fence that is open while this process holds the lock, for one term. It also works for
// coordinated leader election: there the API server names the leader, but the leader still begins its term with its own Update.
func wrap(inner resourcelock.Interface, clocks Clocks) (resourcelock.Interface, *Fence) {
	f := &Fence{name: inner.Describe(), holder: inner.Identity(), clocks: clocks, predecessor: OtherPredecessor}
	return &lock{Interface: inner, fence: f}, f
}

type lock struct {
	resourcelock.Interface
	fence *Fence
}

func (l *lock) Get(ctx context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	record, raw, err := l.Interface.Get(ctx)
	if err == nil && l.fence.saw(record) {
		klog.FromContext(ctx).Error(l.fence.lost(), "This process is no longer the leader", "holder", record.HolderIdentity)
	}
	return record, raw, err
}

func (l *lock) Create(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	l.fence.follows(NoPredecessor)
	return l.write(ctx, record, l.Interface.Create)
}

func (l *lock) Update(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	if err := l.findPredecessor(ctx); err != nil {
		return err
	}
	return l.write(ctx, record, l.Interface.Update)
}

func (l *lock) write(ctx context.Context, record resourcelock.LeaderElectionRecord, write func(context.Context, resourcelock.LeaderElectionRecord) error) error {
	if err := l.fence.lost(); err != nil {
		return err
	}
	if record.HolderIdentity != l.Identity() {
		// This is a release. Once it is sent, another process may become the leader. An elector also releases the lease after it failed to
		// renew it, while the controllers still run and write.
		l.fence.Close()
		if d := l.fence.Unanswered(); d > 0 {
			// A successor that starts at once could read the cluster before the write arrives, and allocate its block to another Node.
			return fmt.Errorf("%s is not released but runs out: a write was not answered, and the API server may carry it out for another %v", l.Describe(), d)
		}
	}
	l.label(record)
	sent := l.fence.sends(record)
	if err := write(ctx, record); err != nil {
		return err
	}
	if record.HolderIdentity == l.Identity() {
		l.fence.renew(sent, record)
	}
	return nil
}

// leads reports whether the term has begun.
func (f *Fence) leads() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.duration > 0
}

// sends notes that the lease is about to be written, and returns the time.
func (f *Fence) sends(record resourcelock.LeaderElectionRecord) reading {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.duration > 0 { // before the first success this process cannot be deposed, and a standby may try forever
		f.stamps = append(f.stamps, stamp(record))
	}
	return f.clocks.now()
}

// renew notes a successful renewal.
func (f *Fence) renew(sent reading, record resourcelock.LeaderElectionRecord) {
	f.mu.Lock()
	defer f.mu.Unlock()
	// The time in the record may be earlier: an elector sends a renewal whose answer was lost once more, with the same time, and other processes
	// count from the first one. In coordinated leader election the API server compares its clock with the time in the record.
	if taken := record.RenewTime.Round(0); taken.Before(sent.wall) {
		sent.wall = taken
	}
	f.renewed = sent
	// Not the duration in the flags: other processes count the whole seconds in the lease.
	f.duration = time.Duration(record.LeaseDurationSeconds) * time.Second
	f.stamps = []time.Time{stamp(record)}
}

// stamp returns the time of a renewal with the precision of a Lease.
func stamp(record resourcelock.LeaderElectionRecord) time.Time {
	return record.RenewTime.Truncate(time.Microsecond)
}

// saw notes the result of reading the lease. It reports true once, when the lease that this process held belongs or belonged to another
// process: then the lease has a time that this process did not write.
//
// An elector that finds the lease released, or expired after a pause, acquires it again and continues as if nothing had happened. In
// coordinated leader election the API server may also assign it the lease again. But a leader in between may have allocated blocks that
// this process still considers free.
func (f *Fence) saw(record *resourcelock.LeaderElectionRecord) (deposedNow bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	own := record.HolderIdentity == f.holder && slices.ContainsFunc(f.stamps, stamp(*record).Equal)
	if f.duration == 0 || own || f.deposed {
		return false
	}
	f.deposed = true
	return true
}

// lost returns an error once another process has held the lease after this one: this process may no longer renew or release it. The elector
// itself would release it, based on what it knew before its last read.
func (f *Fence) lost() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.deposed {
		return fmt.Errorf("the lease %s %s", f.name, deposedWhy)
	}
	return nil
}

// deposedWhy is for logs and errors.
const deposedWhy = "went to another process after this one had held it, so this one has to begin again"

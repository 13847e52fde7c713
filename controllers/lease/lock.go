package lease

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/klog/v2"
)

// Wrap returns a lock for leader election, and a fence that is open while this process holds the lock, for one term. It also works for
// coordinated leader election: there the API server names the leader, but the leader still begins its term with its own Update.
func Wrap(inner resourcelock.Interface) (resourcelock.Interface, *Fence) {
	return WrapWithClocks(inner, nil)
}

// Clocks reads the clocks of the machine: the wall clock, the monotonic clock as the time since any fixed moment, and for how long the machine was
// suspended.
type Clocks func() (wall time.Time, monotonic, suspended time.Duration)

// reading is what Fence.clocks needs; nil for the machine's clocks.
func (c Clocks) reading() func() reading {
	if c == nil {
		return nil
	}
	return func() (r reading) {
		r.wall, r.monotonic, r.suspended = c()
		return r
	}
}

// WrapWithClocks is Wrap with other clocks than the machine's, for simulations. nil: the machine's clocks.
func WrapWithClocks(inner resourcelock.Interface, clocks Clocks) (resourcelock.Interface, *Fence) {
	f := &Fence{name: inner.Describe(), holder: inner.Identity(), clocks: clocks.reading()}
	f.term.follow(inner)
	return &lock{Interface: inner, fence: f}, f
}

// Inside is implemented by a lock whose lease is held inside of another one, which an elector of another program's code renews. A process that
// was paused can lose the lease around its own while nobody takes its own. So the fence is open only while both are valid.
type Inside interface {
	// Around returns the lease around this one, as it was read before the last renewal of this one. The lock refuses to renew its own lease once
	// somebody else may have had the one around it, so all but its expiry stays the same.
	Around() Around
}

// Around is a lease that another one is held inside of. The zero value: there is none.
type Around struct {
	// UID and Transitions are those of the Lease: the term of its holder, which is this process.
	UID         types.UID
	Transitions int
	// Expires is by the wall clock of this machine, which renews it.
	Expires time.Time
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
		klog.FromContext(ctx).Error(l.fence.Deposed(), "This process is no longer the leader", "holder", record.HolderIdentity)
	case back:
		klog.FromContext(ctx).Error(nil, "The lease is an earlier one of this process: etcd was restored from a backup, or somebody edited the lease. "+
			"This process stays the leader and keeps its allocation state. Follow docs/operators/restore-etcd.md before you restart it", "lease", l.Describe(), "renewTime", record.RenewTime)
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
	if err := l.fence.Deposed(); err != nil {
		return err
	}
	l.fence.term.label(l.Interface, record)
	if record.HolderIdentity != l.Identity() {
		// This is a release. Once it is sent, another process may become the leader. An elector also releases the lease after it failed to
		// renew it, while the controllers still run.
		l.fence.Close()
		if d := l.fence.Unanswered(); d > 0 {
			// A successor that starts at once could read the cluster before the write arrives, and allocate its block to another Node.
			return fmt.Errorf("%s is not released but runs out: a write was not answered, and the API server may carry it out for another %v", l.Describe(), d)
		}
		return write(ctx, record)
	}
	sent := l.fence.sends(&record)
	if err := write(ctx, record); err != nil {
		return err
	}
	var around Around
	if inside, ok := l.Interface.(Inside); ok {
		around = inside.Around()
	}
	l.fence.renew(sent, record, around.Expires)
	l.fence.begin(around)
	return nil
}

// renew notes a successful renewal. The lease counts as expired at aroundExpires, by the wall clock, if that is earlier than its own end; zero: no
// such time. It also counts as expired once as much time has passed as it had left when aroundExpires was new: the wall clock may have been set back
// since, after a suspension too. It never had more left than a whole lease: the wall clock may have been set back before. All is noted at once: no write
// may pass in between.
func (f *Fence) renew(sent reading, record resourcelock.LeaderElectionRecord, aroundExpires time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	// In coordinated leader election the API server compares its clock with the time in the record, which the elector took before it read
	// the lease.
	if taken := record.RenewTime.Round(0); taken.Before(sent.wall) {
		sent.wall = taken
	}
	f.renewed = sent
	// Not the duration in the flags: other processes count the whole seconds in the lease.
	f.duration = time.Duration(record.LeaseDurationSeconds) * time.Second
	f.stamps = []time.Time{stamp(record)}
	f.acquired = record.AcquireTime.Truncate(time.Microsecond)
	f.renewals.Proven = f.renewals.Sent // an elector sends one renewal at a time
	if !aroundExpires.Equal(f.aroundExpires) {
		f.aroundExpires, f.aroundRead, f.aroundLeft = aroundExpires, f.sending, min(aroundExpires.Sub(f.sending.wall), f.duration)
	}
	if early := max(f.renewed.wall.Add(f.duration).Sub(aroundExpires), f.duration-f.aroundLeft+f.aroundRead.until(f.renewed)); !aroundExpires.IsZero() && early > 0 {
		f.renewed.wall = f.renewed.wall.Add(-early)
		f.renewed.monotonic -= early
	}
}

// CountsFromWholeSecond reports whether a challenger may count from an earlier renewal than the last one also while nobody sets a clock: client-go's
// electors compare the times of a Lease by whole seconds, so they notice only the first renewal in a second.
func CountsFromWholeSecond(retryPeriod time.Duration) bool { return retryPeriod < time.Second }

// sends notes that a renewal is about to be sent. It gives the renewal a time that challengers can tell from earlier ones, if the wall clock was set
// back, and returns the time from which the lease counts if the renewal succeeds: that of the first renewal whose time has the same second.
func (f *Fence) sends(record *resourcelock.LeaderElectionRecord) reading {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.sending = f.readClocks()
	at, began := f.shown.next(record.RenewTime.Time, f.sending)
	record.RenewTime = metav1.NewTime(at)
	if f.duration > 0 { // before the first success this process cannot be deposed, and a standby may try forever
		f.stamps = append(f.stamps, stamp(*record))
	}
	f.renewals.Sent++
	return began
}

// stamp returns the time of a renewal with the precision of a Lease.
func stamp(record resourcelock.LeaderElectionRecord) time.Time {
	return record.RenewTime.Truncate(time.Microsecond)
}

// saw notes the result of reading the lease. It reports deposedNow once, when the lease that this process held belongs or belonged to
// another process: then the lease has a time that this process did not write. It reports back when the lease went back to an earlier one of
// this term.
//
// An elector that finds the lease released, or expired after a pause, acquires it again and continues as if nothing had happened. In
// coordinated leader election the API server may also assign it the lease again. But a leader in between may have allocated blocks that
// this process still considers free.
func (f *Fence) saw(record *resourcelock.LeaderElectionRecord) (deposedNow, back bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	back = !f.deposed && f.wentBack(record)
	own := record.HolderIdentity == f.holder && slices.ContainsFunc(f.stamps, stamp(*record).Equal)
	deposedNow = f.duration > 0 && !own && !f.deposed
	f.deposed = f.deposed || deposedNow
	return deposedNow, back
}

// Deposed returns an error once another process has held the lease after this one: this process may no longer renew or release it. The elector
// itself would release it, based on what it knew before its last read.
func (f *Fence) Deposed() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.deposed {
		return errors.New(f.title(deposedWhy))
	}
	return nil
}

// deposedWhy is for logs and errors.
const deposedWhy = "went to another process after this one had held it, so this one has to begin anew"

// ValidateTimes returns what client-go's elector would panic about.
func ValidateTimes(leaseDuration, renewDeadline, retryPeriod time.Duration) []error {
	var errs []error
	if leaseDuration < time.Second {
		errs = append(errs, fmt.Errorf("--leader-elect-lease-duration=%v must be 1s or more, because a Lease counts whole seconds", leaseDuration))
	}
	if leaseDuration <= renewDeadline {
		errs = append(errs, fmt.Errorf("--leader-elect-lease-duration=%v must be longer than --leader-elect-renew-deadline=%v", leaseDuration, renewDeadline))
	}
	if retryPeriod <= 0 {
		errs = append(errs, fmt.Errorf("--leader-elect-retry-period=%v must be longer than 0", retryPeriod))
	}
	if float64(renewDeadline) <= leaderelection.JitterFactor*float64(retryPeriod) {
		errs = append(errs, fmt.Errorf("--leader-elect-renew-deadline=%v must be longer than %v times --leader-elect-retry-period=%v", renewDeadline, leaderelection.JitterFactor, retryPeriod))
	}
	return errs
}

// CheckTimes returns an error if, with these settings of the elector, a leader must stop writes that may take atMost before every renewal. around:
// the lease is held inside of another one with the same settings.
func CheckTimes(leaseDuration, retryPeriod, atMost time.Duration, around bool) error {
	oldest := retryPeriod
	if around {
		oldest *= 2 // Each of the two leases is that old at most.
	}
	if CountsFromWholeSecond(retryPeriod) {
		oldest += time.Second
	}
	good := leaseDuration.Truncate(time.Second)
	writable := good - min(atMost, good/timeoutShare) - good/transitShare
	if oldest >= writable {
		return fmt.Errorf("a renewal that counts is %v old before the next one, but writes are possible only in the first %v of the lease's %v: use a longer lease, or another retry period", oldest, writable, good)
	}
	return nil
}

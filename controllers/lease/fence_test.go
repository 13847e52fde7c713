package lease

import (
	"context"
	"errors"
	"io"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

// world is one process. The test sets the answers of its lock and moves its clocks.
type world struct {
	reading
	lock  resourcelock.Interface
	fence *Fence

	found  resourcelock.LeaderElectionRecord   // by the next reads of the lease
	answer func() error                        // of the next writes to the lease
	sent   []resourcelock.LeaderElectionRecord // to the API server
}

func newWorld() *world {
	w := &world{reading: reading{wall: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)}}
	w.lock, w.fence = wrap(inner{w}, Clocks{Read: func() (wall time.Time, boot, monotonic time.Duration) { return w.wall, w.boot, w.monotonic }})
	return w
}

func (w *world) wait(d time.Duration) {
	w.suspend(d)
	w.monotonic += d
}

// suspend stops the machine. Its monotonic clock stands still.
func (w *world) suspend(d time.Duration) {
	w.setWall(d)
	w.boot += d
}

// setWall moves the wall clock alone: somebody set it.
func (w *world) setWall(d time.Duration) { w.wall = w.wall.Add(d) }

// renew renews like an elector with a lease duration of 15 seconds.
func (w *world) renew() { _ = w.lock.Update(context.Background(), w.record(15)) }

func (w *world) record(seconds int) resourcelock.LeaderElectionRecord {
	return resourcelock.LeaderElectionRecord{HolderIdentity: "me", LeaseDurationSeconds: seconds, RenewTime: metav1.NewTime(w.wall)}
}

func (w *world) release() {
	_ = w.lock.Update(context.Background(), resourcelock.LeaderElectionRecord{LeaseDurationSeconds: 1})
}

// inner is the lock that is passed to wrap.
type inner struct{ *world }

func (l inner) Create(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	return l.Update(ctx, record)
}

func (l inner) Update(_ context.Context, record resourcelock.LeaderElectionRecord) error {
	l.sent = append(l.sent, record)
	if l.answer != nil {
		return l.answer()
	}
	return nil
}

func (l inner) Get(context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	return &l.found, nil, nil
}
func (l inner) RecordEvent(string) {}
func (l inner) Identity() string   { return "me" }
func (l inner) Describe() string   { return "kube-system/kube-controller-manager" }

func TestEnter(t *testing.T) {
	const s = time.Second
	lost := func() error { return errors.New("the answer was lost") }
	for name, tc := range map[string]struct {
		history func(w *world)
		atMost  time.Duration // default: 5s
		want    bool
	}{
		"closed before the lease was won":                                            {func(w *world) {}, 0, false},
		"open when the lease was created":                                            {func(w *world) { _ = w.lock.Create(context.Background(), w.record(15)) }, 0, true},
		"open when the lease was updated":                                            {func(w *world) { w.renew() }, 0, true},
		"open while a write ends before the lease, even if it is delayed on its way": {func(w *world) { w.renew(); w.wait(5*s - 1) }, 0, true},
		"closed when a write could end with the lease":                               {func(w *world) { w.renew(); w.wait(5 * s) }, 0, false},
		"open for longer for a write that takes less time":                           {func(w *world) { w.renew(); w.wait(9*s - 1) }, s, true},
		"no write takes more than a third of the lease":                              {func(w *world) { w.renew(); w.wait(5*s - 1) }, time.Hour, true},
		"open again after a renewal":                                                 {func(w *world) { w.renew(); w.wait(20 * s); w.renew() }, 0, true},
		"a renewal without an answer does not count": {func(w *world) {
			w.renew()
			w.wait(4 * s)
			w.answer = lost
			w.renew()
			w.wait(1 * s)
		}, 0, false},
		"a renewal without an answer does not shorten the lease": {func(w *world) {
			w.renew()
			w.wait(4 * s)
			w.answer = lost
			w.renew()
		}, 0, true},
		"a renewal whose answer was lost is sent again with its first time": {func(w *world) {
			record := w.record(15)
			w.answer = lost
			_ = w.lock.Update(context.Background(), record)
			w.wait(5 * s)
			w.answer = nil
			_ = w.lock.Update(context.Background(), record)
		}, 0, false},
		"a lease that was lost before it was won": {func(w *world) {
			w.answer = lost
			w.renew()
		}, 0, false},
		"a renewal counts from when it was sent, not answered": {func(w *world) {
			w.answer = func() error { w.wait(4 * s); return nil }
			w.renew()
			w.wait(1 * s)
		}, 0, false},
		"closed after the machine was suspended": {func(w *world) { w.renew(); w.suspend(5 * s) }, 0, false},
		"the same without a boot clock":          {func(w *world) { w.renew(); w.setWall(5 * s) }, 0, false},
		"closed after the machine was suspended during the renewal": {func(w *world) {
			w.answer = func() error { w.suspend(5 * s); return nil }
			w.renew()
		}, 0, false},
		"closed although the wall clock was set back": {func(w *world) { w.renew(); w.wait(5 * s); w.setWall(-time.Hour) }, 0, false},
		"closed when the wall clock was set ahead":    {func(w *world) { w.renew(); w.setWall(time.Hour) }, 0, false},
		"open when a renewal followed": {func(w *world) {
			w.renew()
			w.setWall(time.Hour)
			w.renew()
			w.wait(4 * s)
		}, 0, true},
		"other processes count the whole seconds in the lease, not the 2.9s of our flag": {func(w *world) {
			_ = w.lock.Update(context.Background(), w.record(2))
			w.wait(700 * time.Millisecond)
		}, 0, false},
		"a lease of 2s is open for a third of it": {func(w *world) {
			_ = w.lock.Update(context.Background(), w.record(2))
			w.wait(600 * time.Millisecond)
		}, 0, true},
		"counts from the time in the record, which the API server uses in coordinated leader election": {func(w *world) {
			record := w.record(15)
			w.wait(2 * s)
			_ = w.lock.Update(context.Background(), record)
			w.wait(3 * s)
		}, 0, false},
		"closed by a release": {func(w *world) { w.renew(); w.release() }, 0, false},
		"closed by a release that failed": {func(w *world) {
			w.renew()
			w.answer = lost
			w.release()
		}, 0, false},
		"stays closed after a release": {func(w *world) { w.renew(); w.release(); w.renew() }, 0, false},
		"closed when the process ends": {func(w *world) { w.renew(); w.fence.Close(); w.renew() }, 0, false},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld()
			tc.history(w)
			if tc.atMost == 0 {
				tc.atMost = 5 * s
			}
			_, leave, err := w.fence.Enter(t.Context(), tc.atMost)
			if err == nil {
				leave()
			} else if !errors.Is(err, ErrClosed) {
				t.Errorf("got error %v, want ErrClosed", err)
			}
			if got := err == nil; got != tc.want {
				t.Errorf("got open %t (%v), want %t", got, err, tc.want)
			}
		})
	}
}

func TestEnterBoundsTheWrite(t *testing.T) {
	for name, tc := range map[string]struct {
		seconds int
		atMost  time.Duration
		want    time.Duration
	}{
		"to what the caller asks for":         {60, 5 * time.Second, 5 * time.Second},
		"to a third of the lease":             {15, time.Minute, 5 * time.Second},
		"to a third of a lease that is short": {2, 5 * time.Second, 2 * time.Second / 3},
		"also without leader election":        {0, 5 * time.Second, 5 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := &Fence{}
				if tc.seconds > 0 {
					w := newWorld()
					f = w.fence
					_ = w.lock.Update(t.Context(), w.record(tc.seconds))
				}
				ctx, leave, err := f.Enter(t.Context(), tc.atMost)
				if err != nil {
					t.Fatal(err)
				}
				start := time.Now()
				<-ctx.Done()
				if got := time.Since(start); got != tc.want || !errors.Is(ctx.Err(), context.DeadlineExceeded) {
					t.Errorf("context ended after %v with %v, want %v and its deadline", got, ctx.Err(), tc.want)
				}
				leave()
				leave() // A second call is harmless, so that callers can use `defer leave()`.
				f.Close()
			})
		})
	}
}

// An elector also releases the lease when it failed to renew it, while the controllers still run. A successor may lead as soon as the lease is
// released. A write without an answer could arrive after that, so then the lease is not released.
func TestNoReleaseWhileAWriteIsOpen(t *testing.T) {
	w := newWorld()
	w.renew()
	_, leave, err := w.fence.Enter(t.Context(), 5*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	w.sent = nil
	if w.release(); len(w.sent) > 0 {
		t.Error("released with a write under way")
	}
	leave()
	if w.release(); len(w.sent) == 0 {
		t.Error("not released, and all is answered")
	}
}

// An unanswered write is over when the lease runs out that was valid when the write was sent. The API server counts the timeout of a request
// from its receipt, and that can be late.
func TestUnanswered(t *testing.T) {
	const s = time.Second
	for name, tc := range map[string]struct {
		history func(w *world, enter func() (leave func()))
		want    time.Duration
	}{
		"nothing was sent":                         {func(w *world, _ func() func()) { w.renew() }, 0},
		"all was answered":                         {func(w *world, enter func() func()) { w.renew(); enter()() }, 0},
		"sent a moment ago":                        {func(w *world, enter func() func()) { w.renew(); w.wait(2 * s); enter() }, 13 * s},
		"its sender has given up":                  {func(w *world, enter func() func()) { w.renew(); w.wait(2 * s); enter(); w.wait(6 * s) }, 7 * s},
		"a later renewal does not prolong it":      {func(w *world, enter func() func()) { w.renew(); enter(); w.wait(6 * s); w.renew() }, 9 * s},
		"it is over":                               {func(w *world, enter func() func()) { w.renew(); enter(); w.wait(15 * s) }, 0},
		"a clock that is set forward ends nothing": {func(w *world, enter func() func()) { w.renew(); enter(); w.setWall(time.Hour) }, 15 * s},
		"nor does one that was set forward before": {func(w *world, enter func() func()) { w.renew(); w.setWall(3 * s); enter(); w.wait(s) }, 14 * s},
		"the last one of several counts": {func(w *world, enter func() func()) {
			w.renew()
			enter()
			w.wait(4 * s)
			w.renew()
			enter()
			w.wait(s)
		}, 14 * s},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld()
			tc.history(w, func() func() {
				_, leave, err := w.fence.Enter(t.Context(), 5*s)
				if err != nil {
					t.Fatal(err)
				}
				return leave
			})
			if got := w.fence.Unanswered(); got != tc.want {
				t.Errorf("got %v, want %v", got, tc.want)
			}
		})
	}
}

// TestOneTerm follows a process that held the lease and might get it again.
func TestOneTerm(t *testing.T) {
	read := func(holder string, age time.Duration) func(*world) {
		return func(w *world) {
			w.found = resourcelock.LeaderElectionRecord{HolderIdentity: holder, RenewTime: metav1.NewTime(w.wall.Add(-age).Truncate(time.Microsecond))}
			_, _, _ = w.lock.Get(context.Background())
		}
	}
	renewal := func(err error) func(*world) {
		return func(w *world) {
			w.answer = func() error { return err }
			w.wait(time.Second)
			w.renew()
			w.answer = nil
		}
	}
	for name, tc := range map[string]struct {
		before, between []func(*world) // its first renewal
		again           bool
	}{
		"it sees its own lease":                   {nil, []func(*world){read("me", 0)}, true},
		"it sees a renewal whose answer was lost": {nil, []func(*world){renewal(io.EOF), read("me", 0)}, true},
		"it sees that a renewal did not arrive":   {nil, []func(*world){renewal(io.EOF), read("me", time.Second)}, true},
		"it sees another holder":                  {nil, []func(*world){read("other", 0)}, false},
		"it sees a lease that was released":       {nil, []func(*world){read("", 0)}, false},
		"it sees another holder, and itself":      {nil, []func(*world){read("other", 0), read("me", 0)}, false},
		"the API server has elected it again":     {nil, []func(*world){read("me", time.Minute)}, false},
		"another process led before it":           {[]func(*world){read("other", 0), read("", 0)}, []func(*world){read("me", 0)}, true},
		"somebody deleted the lease, so it is new": {nil, []func(*world){func(w *world) {
			w.wait(time.Second)
			_ = w.lock.Create(context.Background(), w.record(15))
		}, read("me", 0)}, true},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld()
			w.wait(time.Nanosecond) // A Lease keeps microseconds.
			for _, do := range tc.before {
				do(w)
			}
			w.renew()
			for _, do := range tc.between {
				do(w)
			}
			w.sent = nil
			err := w.lock.Update(t.Context(), w.record(15))
			if sent := len(w.sent) > 0; sent != tc.again || (err == nil) != tc.again {
				t.Errorf("renewed: %t (%v), want %t", sent, err, tc.again)
			}
			if err := w.fence.lost(); (err == nil) != tc.again {
				t.Errorf("deposed: %v, want none: %t", err, tc.again)
			}
			_, leave, err := w.fence.Enter(t.Context(), time.Second)
			if errors.Is(err, ErrClosed) == tc.again {
				t.Errorf("the fence says %v, want it open: %t", err, tc.again)
			}
			if err == nil {
				leave()
			}
			w.sent = nil
			if w.release(); len(w.sent) > 0 != tc.again {
				t.Errorf("released: %t, want %t", !tc.again, tc.again)
			}
		})
	}
}

func TestCheckTimes(t *testing.T) {
	for name, tc := range map[string]struct {
		leaseDuration, retryPeriod time.Duration
		ok                         bool
	}{
		"the defaults":                   {15 * time.Second, 2 * time.Second, true},
		"a renewal just in time":         {15 * time.Second, 5*time.Second - 1, true},
		"a renewal too late":             {15 * time.Second, 5 * time.Second, false},
		"only whole seconds are counted": {3900 * time.Millisecond, 1100 * time.Millisecond, false},
	} {
		t.Run(name, func(t *testing.T) {
			if err := checkTimes(tc.leaseDuration, tc.retryPeriod); (err == nil) != tc.ok {
				t.Errorf("got %v, want ok %t", err, tc.ok)
			}
		})
	}
}

package lease

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestRestoredLease elects a leader and then restores the store of the lease from a backup of its term. The process stays the leader and notices
// the restore.
func TestRestoredLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		defer func(p time.Time) { processStart = p }(processStart)
		processStart = time.Now()
		ctx, cancel := context.WithCancel(t.Context())
		cluster := &memoryLease{}
		lock, fence := Wrap(&memoryLock{lease: cluster, identity: "first"})
		leads, ended := make(chan struct{}), make(chan struct{})
		go func() { defer close(ended); elect(ctx, lock, func() { close(leads) }) }()
		<-leads
		time.Sleep(time.Minute)
		cluster.Lock()
		backup := cluster.record
		cluster.Unlock()
		time.Sleep(time.Minute)
		if r := fence.Renewals(); r.WentBack > 0 || r.Proven < 50 || r.Sent < r.Proven {
			t.Errorf("before the restore: %+v", r)
		}

		cluster.Lock()
		cluster.record = backup
		cluster.version -= 7
		cluster.Unlock()
		before := fence.Renewals()
		time.Sleep(time.Minute)
		select {
		case <-ended:
			t.Error("the leader ended")
		default:
		}
		_, leave, err := fence.Enter(ctx, time.Second)
		if err != nil {
			t.Errorf("the fence says %v", err)
		} else {
			leave()
		}
		if r := fence.Renewals(); r.WentBack == 0 || r.Proven <= before.Proven {
			t.Errorf("after the restore: %+v, before it %+v", r, before)
		}
		cancel()
		<-ended
	})
}

// TestWentBack shows different leases to a leader.
func TestWentBack(t *testing.T) {
	const s = time.Second
	started := metav1.NewTime(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))
	for name, tc := range map[string]struct {
		holder   string
		renewed  time.Duration // after the start, 10 s before the last renewal
		acquired time.Duration
		back     bool
		deposed  bool
	}{
		"its own":                            {"me", 10 * s, 0, false, false},
		"an earlier one of its own":          {"me", 5 * s, 0, true, false},
		"a later one with its name":          {"me", 15 * s, 0, false, true},
		"one of an earlier term of its name": {"me", 5 * s, -s, false, true},
		"another one's":                      {"other", 5 * s, 0, false, true},
		"a released one":                     {"", 5 * s, 0, false, true},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld()
			record := w.record(15)
			record.AcquireTime = started
			record.RenewTime = metav1.NewTime(started.Add(10 * s))
			if err := w.lock.Update(t.Context(), record); err != nil {
				t.Fatal(err)
			}
			if r, want := w.fence.Renewals(), (Renewals{Sent: 1, Proven: 1}); r != want {
				t.Errorf("got %+v, want %+v", r, want)
			}
			w.found = record
			w.found.HolderIdentity = tc.holder
			w.found.AcquireTime = metav1.NewTime(started.Add(tc.acquired))
			w.found.RenewTime = metav1.NewTime(started.Add(tc.renewed))
			for range 2 {
				if _, _, err := w.lock.Get(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			if got := w.fence.Renewals().WentBack > 0; got != tc.back {
				t.Errorf("went back: %t, want %t", got, tc.back)
			}
			if _, _, err := w.fence.Enter(t.Context(), s); errors.Is(err, ErrClosed) != tc.deposed {
				t.Errorf("the fence says %v, want it closed: %t", err, tc.deposed)
			}
			w.answer = func() error { return errors.New("the answer was lost") }
			record.RenewTime = metav1.NewTime(started.Add(20 * s))
			_ = w.lock.Update(t.Context(), record)
			if r := w.fence.Renewals(); r.Proven != 1 || !tc.deposed && r.Sent != 2 {
				t.Errorf("after a renewal without an answer: %+v", r)
			}
		})
	}

	t.Run("one that is gone", func(t *testing.T) {
		w := newWorld()
		_ = w.lock.Create(t.Context(), w.record(15))
		if w.fence.Renewals().WentBack > 0 {
			t.Error("at its first creation")
		}
		w.answer = func() error {
			if w.fence.Renewals().WentBack == 0 {
				t.Error("when it is created again, that is known too late")
			}
			return nil
		}
		_ = w.lock.Create(t.Context(), w.record(15))
	})
}

// TestWentBackAfterAClockWasSetBack restores a Lease whose time is later than that of the last renewal, because the clock was set back in between.
func TestWentBackAfterAClockWasSetBack(t *testing.T) {
	w := newWorld()
	acquired := metav1.NewTime(w.wall)
	renew := func() {
		record := w.record(15)
		record.AcquireTime = acquired
		_ = w.lock.Update(t.Context(), record)
		w.wait(2 * time.Second)
	}
	renew()
	renew()
	w.setWall(-time.Hour)
	renew()
	w.found = w.sent[0]
	if _, _, err := w.lock.Get(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := w.fence.Deposed(); err != nil || w.fence.Renewals().WentBack == 0 {
		t.Errorf("deposed: %v, and the renewals are %+v: want the Lease kept, and known to have gone back", err, w.fence.Renewals())
	}
}

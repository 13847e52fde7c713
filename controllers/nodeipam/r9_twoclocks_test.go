package nodeipam

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"

	. "github.com/multicidr/controller-manager/controllers/nodeipam/internal/objects"
)

// pausedFence is that of a process which is stopped for ten seconds (SIGSTOP, a virtual machine that is moved) at the moment at which it asks
// until when a write can be carried out. A write can be, for 13 seconds from its sending.
type pausedFence struct {
	leaseFence
	sent  *atomic.Int64
	pause *atomic.Bool
}

func (f pausedFence) Enter(ctx context.Context, d time.Duration) (context.Context, func(), error) {
	if f.pause.Load() {
		f.sent.Store(time.Now().UnixNano())
	}
	return f.leaseFence.Enter(ctx, d)
}

func (f pausedFence) Unanswered() time.Duration {
	if f.pause.Swap(false) {
		time.Sleep(10 * time.Second)
	}
	return max(0, time.Until(time.Unix(0, f.sent.Load()).Add(13*time.Second)))
}

// The first write of n gets no answer after five seconds, and is carried out twelve seconds after it was sent, which a lease of 15 seconds allows. The process was
// stopped between its look at the clock and its question to the fence. Writes after that are refused.
func TestStoppedBetweenTwoClocks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLeader(t, true)
		l.renewing.Store(true)
		var sent atomic.Int64
		var pause atomic.Bool
		pause.Store(true)
		f := pausedFence{leaseFence{l}, &sent, &pause}
		l.fence = f
		stored := make(chan string, 1)
		w := &arrivesLate{answeringAs: &answeringAs{leader: l}}
		w.answer = func(name string, patch []byte) (error, bool) {
			if name != "n" {
				return nil, false
			}
			if w.tries == 0 {
				block := string(patch)
				time.AfterFunc(11900*time.Millisecond, func() { w.arrived.Store(true); stored <- block })
				time.Sleep(time.Second)
				return context.DeadlineExceeded, true
			}
			return forbidden6("n"), true
		}
		l.api = w
		f.sent.Store(time.Now().UnixNano())
		stop := l.start(t)
		l.watch("n2", nil)
		sent.Store(time.Now().UnixNano())
		l.watch("n", Node("n", Created(1)))
		time.Sleep(500 * time.Millisecond)
		l.watch("late", Node("late", Created(100)))
		time.Sleep(time.Minute)
		t.Logf("stored for n: %s; late has %q", <-stored, l.node("late").Spec.PodCIDR)
		if l.node("late").Spec.PodCIDR != "" {
			t.Errorf("late has %s, which was written into n", l.node("late").Spec.PodCIDR)
		}
		stop()
	})
}

// arrivesLate shows n without podCIDRs until its write has arrived.
type arrivesLate struct {
	*answeringAs
	arrived atomic.Bool
}

func (a *arrivesLate) GetNode(ctx context.Context, name string) (*v1.Node, error) {
	n := a.node(name).DeepCopy()
	if name == "n" && a.arrived.Load() {
		n.Spec.PodCIDR, n.Spec.PodCIDRs = "10.0.0.16/28", []string{"10.0.0.16/28"}
	}
	return n, nil
}

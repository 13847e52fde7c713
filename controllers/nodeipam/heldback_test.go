package nodeipam

import (
	"context"
	"errors"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	networkingv1 "github.com/multicidr/controller-manager/apis/networking/v1"
	"github.com/multicidr/controller-manager/controllers/lease"
	"github.com/multicidr/controller-manager/controllers/nodeipam/allocator"
	. "github.com/multicidr/controller-manager/controllers/nodeipam/internal/objects"
)

var webhookDown = apierrors.NewInternalError(errors.New(`failed calling webhook "x.example.com": connect: connection refused`))

// Two ClusterCIDRs with one block each. The webhook that looks at two Nodes, one of each, is down: 500. A third Node, which the webhook does not look at,
// waits for the block of the second.
func TestTwoNodesHeldBackInStep(t *testing.T) {
	for _, jitter := range []time.Duration{0, 20 * time.Millisecond, 200 * time.Millisecond} {
		locked, worst := 0, time.Duration(0)
		for off := range 4 {
			synctest.Test(t, func(t *testing.T) {
				l := newLeader(t, true)
				l.fence = slowFence{leaseFence{l}}
				l.renewing.Store(true)
				rnd := rand.New(rand.NewPCG(1, uint64(off)))
				r := &answeringAs{leader: l}
				r.answer = func(name string, _ []byte) (error, bool) {
					if name != "badgpu" && name != "badweb" {
						return nil, false
					}
					time.Sleep(5 * time.Millisecond)
					if jitter > 0 {
						time.Sleep(time.Duration(rnd.Int64N(int64(jitter))))
					}
					return webhookDown, true
				}
				l.api = r
				stop := l.start(t)
				l.setRange(t, ClusterCIDR("gpu", Spec4("10.1.0.0/28", 4, AnyOf(AllOf(In("kind", "gpu"))))))
				l.setRange(t, ClusterCIDR("web", Spec4("10.2.0.0/28", 4, AnyOf(AllOf(In("kind", "web"))))))
				l.watch("badgpu", Node("badgpu", Created(10), Label("kind", "gpu")))
				time.Sleep(time.Duration(off) * 500 * time.Millisecond)
				l.watch("badweb", Node("badweb", Created(20), Label("kind", "web")))
				time.Sleep(2 * time.Minute)
				begin := time.Now()
				l.watch("late", Node("late", Created(100), Label("kind", "web")))
				for time.Since(begin) < 30*time.Minute && l.node("late").Spec.PodCIDR == "" {
					time.Sleep(time.Second)
				}
				d := time.Since(begin)
				worst = max(worst, d)
				if l.node("late").Spec.PodCIDR == "" {
					locked++
				}
				stop()
			})
		}
		if locked > 0 {
			t.Errorf("jitter %v: in %d of 4 the Node is pending after half an hour; worst %v", jitter, locked, worst)
		}
	}
}

// One of n's PATCHes, which all get no answer, was carried out, and its machine has seen that; the watch was late. No request is refused. A second before n
// is read, etcd is back as it was before; two seconds after that read the Lease is renewed, and has gone back. late has the block then.
func TestRestoreWhileAWriteIsHeldBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLeader(t, true)
		l.fence = slowFence{leaseFence{l}}
		r := &answeringAs{leader: l}
		var restored atomic.Bool
		r.answer = func(name string, _ []byte) (error, bool) { return webhookDown, name == "n" && !restored.Load() }
		l.api = r
		stop := l.start(t)
		l.watch("n2", nil)
		l.renewed(lease.Renewals{Sent: 100, Proven: 100})
		begin := time.Now()
		l.watch("n", Node("n", Created(1)))
		time.Sleep(5 * time.Second)
		l.watch("late", Node("late", Created(100)))
		l.renewed(lease.Renewals{Sent: 108, Proven: 108})
		time.Sleep(time.Until(begin.Add(17 * time.Second)))
		restored.Store(true) // from here on each write of n is carried out
		time.Sleep(3200 * time.Millisecond)
		l.renewed(lease.Renewals{Sent: 110, Proven: 110, WentBack: 109})
		time.Sleep(time.Minute)
		if l.node("late").Spec.PodCIDR == "10.0.0.16/28" {
			t.Errorf("late has the block that was stored for n before the restore, and nothing was refused")
		}
		stop()
	})
}

// A policy leaves podCIDRs out (200), and within five seconds its webhook is down (500), for an hour.
func TestStoredOnceAndThenNoAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLeader(t, true)
		l.fence = slowFence{leaseFence{l}}
		l.renewing.Store(true)
		r := &answeringAs{leader: l}
		r.answer = func(name string, _ []byte) (error, bool) {
			if name != "bad" {
				return nil, false
			}
			if r.tries == 0 {
				return nil, true
			}
			return webhookDown, true
		}
		l.api = r
		stop := l.start(t)
		l.watch("n2", nil)
		l.watch("bad", Node("bad", Created(10)))
		time.Sleep(time.Second)
		l.watch("late", Node("late", Created(100)))
		time.Sleep(time.Hour)
		if l.node("late").Spec.PodCIDR == "" {
			t.Errorf("an hour later the other Node is pending, after %d PATCHes of the first; health: %v", r.tries, l.health.Check(nil))
		}
		stop()
	})
}

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
		w := &arrivesLate{answeringAs: &answeringAs{leader: l}}
		w.answer = func(name string, _ []byte) (error, bool) {
			if name != "n" {
				return nil, false
			}
			if w.tries == 0 {
				time.AfterFunc(11900*time.Millisecond, func() { w.arrived.Store(true) })
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

// One block is free. The writes of one Node get no answer, or its podCIDRs are left out with 200. It is deleted, and a finalizer keeps the object; its machine
// is gone, so no kubelet writes its status. Another Node, which nobody refuses, waits for the block.
func TestDeletedNodeThatKeepsTheLastBlock(t *testing.T) {
	for name, answer := range map[string]func() error{
		"500":     func() error { return webhookDown },
		"timeout": func() error { time.Sleep(5 * time.Second); return context.DeadlineExceeded },
		"200":     func() error { return nil },
	} {
		for _, deleted := range []time.Duration{3 * time.Second, 12 * time.Second, time.Minute} {
			for _, late := range []time.Duration{-time.Second, time.Second, time.Minute} {
				for _, beat := range []time.Duration{0, time.Minute} {
					t.Run(name+" deleted after "+deleted.String()+", late "+late.String()+" after that, beat "+beat.String(), func(t *testing.T) {
						synctest.Test(t, func(t *testing.T) {
							l := newLeader(t, true)
							l.fence = slowFence{leaseFence{l}}
							l.renewing.Store(true)
							r := &answeringAs{leader: l}
							r.answer = func(name string, _ []byte) (error, bool) {
								if name != "bad" {
									return nil, false
								}
								return answer(), true
							}
							l.api = r
							stop := l.start(t)
							l.watch("n2", nil)
							l.watch("bad", Node("bad", Created(10)))
							if late < 0 {
								time.Sleep(deleted + late)
								l.watch("late", Node("late", Created(100)))
								time.Sleep(-late)
							} else {
								time.Sleep(deleted)
							}
							l.watch("bad", Node("bad", Created(10), going))
							if late > 0 {
								time.Sleep(late)
								l.watch("late", Node("late", Created(100)))
							}
							if beat == 0 {
								time.Sleep(time.Hour)
							}
							for i := 0; beat > 0 && i < 60; i++ {
								time.Sleep(beat)
								l.watch("bad", Node("bad", Created(10), going, Label("beat", time.Now().Format("1504"))))
							}
							if l.node("late").Spec.PodCIDR == "" {
								var v allocator.NodeView
								l.with(func(b *allocator.State) { v, _ = b.Node("bad") })
								t.Errorf("an hour later the other Node is pending, after %d PATCHes of the first; health: %v; %v %v until %v", r.tries, l.health.Check(nil), v.State, v.Blocks, v.UnansweredUntil)
							}
							stop()
						})
					})
				}
			}
		}
	}
}

// The writes of one Node get no answer, are refused, or are answered with 200 and not kept. Meanwhile its block becomes another Node's, which somebody
// brings back with its podCIDRs, or its ClusterCIDR is disabled. No Node waits for the block.
func TestNodeWhoseReservationIsLost(t *testing.T) {
	for name, err := range map[string]error{"500": webhookDown, "200": nil, "403": forbidden6("bad")} {
		test := func(how string, restored bool, lost func(t *testing.T, l *leader), check func(t *testing.T, l *leader)) {
			t.Run(name+" "+how, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					l := newLeader(t, true)
					l.fence = slowFence{leaseFence{l}}
					l.renewing.Store(true)
					var repaired atomic.Bool
					r := &answeringAs{leader: l}
					r.answer = func(name string, _ []byte) (error, bool) { return err, name == "bad" && !repaired.Load() }
					l.api = r
					stop := l.start(t)
					l.watch("n2", nil)
					l.watch("bad", Node("bad", Created(10)))
					time.Sleep(20 * time.Second)
					lost(t, l)
					if restored {
						l.renewed(lease.Renewals{WentBack: 5})
					}
					time.Sleep(time.Minute)
					repaired.Store(true)
					time.Sleep(time.Minute)
					check(t, l)
					stop()
				})
			})
		}
		for how, restored := range map[string]bool{"another Node's": false, "another Node's since a restore of etcd": true} {
			test(how, restored, func(_ *testing.T, l *leader) {
				l.watch("n1", nil)
				l.watch("back", shows("back", "10.0.0.16/28"))
			}, func(t *testing.T, l *leader) {
				if has := l.node("bad").Spec.PodCIDR; has != "10.0.0.0/28" {
					t.Errorf("bad has %q, want the block that is free: 10.0.0.0/28", has)
				}
			})
		}
		test("disabled", false, func(t *testing.T, l *leader) {
			cc := ClusterCIDR("a", Spec4("10.0.0.0/27", 4, nil))
			cc.Spec.Allocation = networkingv1.AllocationDisabled
			l.watch("n1", nil)
			l.setRange(t, cc)
		}, func(t *testing.T, l *leader) {
			l.with(func(b *allocator.State) {
				if v, _ := b.Node("bad"); len(v.Blocks) > 0 || b.InUse("a") {
					t.Errorf("bad is %v with %v of a disabled ClusterCIDR, which is in use: %v", v.State, v.Blocks, b.InUse("a"))
				}
			})
		})
	}
}

func shows(name, block string) *v1.Node {
	return Node(name, func(n *v1.Node) { n.Spec.PodCIDR, n.Spec.PodCIDRs = block, []string{block} })
}

// unreadable is an API server that does not let Nodes be read.
type unreadable struct{ *answeringAs }

func (unreadable) GetNode(_ context.Context, name string) (*v1.Node, error) {
	return nil, forbidden6(name)
}

// A Node waits for a read, because its blocks are somebody else's by now, and all reads fail.
func TestHeldBackAndReadsFail(t *testing.T) {
	for name, first := range map[string]error{"500": webhookDown, "200": nil} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := newLeader(t, true)
				l.fence = slowFence{leaseFence{l}}
				l.renewing.Store(true)
				r := &answeringAs{leader: l}
				r.answer = func(name string, _ []byte) (error, bool) { return first, name == "bad" }
				l.api = unreadable{r}
				stop := l.start(t)
				l.watch("n2", nil)
				l.watch("bad", Node("bad", Created(10)))
				time.Sleep(500 * time.Millisecond)
				l.watch("back", shows("back", "10.0.0.16/28"))
				time.Sleep(time.Minute)
				if err := l.health.Check(nil); err == nil || !strings.Contains(err.Error(), "webhook says no") {
					t.Errorf("health is %v, want why the Node cannot be read", err)
				}
				stop()
			})
		})
	}
}

func going(n *v1.Node) {
	n.DeletionTimestamp = &metav1.Time{Time: time.Now()}
	n.Finalizers = []string{"karpenter.sh/termination"}
}

package nodeipam

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	applyv1 "github.com/multicidr/controller-manager/apis/generated/applyconfiguration/networking/v1"
	clustercidrlisters "github.com/multicidr/controller-manager/apis/generated/listers/networking/v1"
	networkingv1 "github.com/multicidr/controller-manager/apis/networking/v1"
	"github.com/multicidr/controller-manager/controllers/lease"
	"github.com/multicidr/controller-manager/controllers/nodeipam/allocator"
	"github.com/multicidr/controller-manager/controllers/nodeipam/clustercidr"
	"github.com/multicidr/controller-manager/controllers/nodeipam/events"
	"github.com/multicidr/controller-manager/controllers/nodeipam/finalizers"
	. "github.com/multicidr/controller-manager/controllers/nodeipam/internal/objects"
	"github.com/multicidr/controller-manager/controllers/nodeipam/internal/testapi"
	"github.com/multicidr/controller-manager/controllers/nodeipam/requests"
	"github.com/multicidr/controller-manager/controllers/queues"
	"github.com/multicidr/controller-manager/controllers/writes"
)

// stripping is an API server whose answer to a write of finalizers is up to the test, and that never keeps one. It notes when what was
// written, in seconds.
type stripping struct {
	requests.API
	patch   func() error
	start   time.Time
	mu      sync.Mutex
	written map[string][]int
}

func (s *stripping) note(what string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.written[what] = append(s.written[what], int(time.Since(s.start).Round(time.Second)/time.Second))
}

func (s *stripping) PatchClusterCIDR(context.Context, string, []byte) error {
	s.note("finalizer")
	s.mu.Lock()
	patch := s.patch
	s.mu.Unlock()
	return patch()
}

func (s *stripping) PatchNode(context.Context, string, []byte) error {
	s.note("podCIDRs")
	return nil
}

func (s *stripping) CreateEvent(_ context.Context, event *v1.Event) error {
	s.note(event.Reason)
	return nil
}

func (s *stripping) GetNode(context.Context, string) (*v1.Node, error) {
	return nil, context.DeadlineExceeded
}

func (s *stripping) ApplyStatus(_ context.Context, patch *applyv1.ClusterCIDRApplyConfiguration) (networkingv1.ClusterCIDRStatus, error) {
	return testapi.Applied(patch), nil
}

// A ClusterCIDR comes first for a Node, and its finalizer is never there. After a bound the next one serves, and people are told.
func TestFinalizerThatIsNotThere(t *testing.T) {
	for name, tc := range map[string]struct {
		patch     func() error
		wantTries []int // in seconds
		wantNode  bool  // is served after the bound
	}{
		"it is not kept": {patch: func() error { return nil }, wantTries: []int{0, 10, 20}, wantNode: true},
		"something changes the object all the time": {
			patch: func() error {
				return apierrors.NewConflict(networkingv1.SchemeGroupVersion.WithResource("clustercidrs").GroupResource(), "a", nil)
			},
			wantTries: []int{0, 0, 0, 0, 0, 0, 1, 1, 3, 5, 10, 15, 20}, wantNode: true,
		},
		"the write hangs": {
			patch:     func() error { time.Sleep(writes.Timeout); return context.DeadlineExceeded },
			wantTries: []int{0, 5, 10, 15, 20}, wantNode: true,
		},
		"the fence is closed, so nobody is served": {
			patch:     func() error { return fmt.Errorf("closed: %w", lease.ErrClosed) },
			wantTries: []int{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20},
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a := ClusterCIDR("a", Spec4("10.1.0.0/16", 8, AnyOf(AllOf(In("p", "x")))), NoFinalizer)
				s := &stripping{patch: tc.patch, start: time.Now(), written: map[string][]int{}}
				c := controllerOf(t, s, a)
				indexer := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{})
				for _, cc := range []*networkingv1.ClusterCIDR{a, ClusterCIDR("b", Spec4("10.2.0.0/16", 8, nil))} {
					if err := indexer.Add(cc); err != nil {
						t.Fatal(err)
					}
					c.with(func(b *allocator.State) { b.SetPool(clustercidr.Compile(cc)) })
				}
				nodes := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{})
				n := Node("n", Label("p", "x"))
				if err := nodes.Add(n); err != nil {
					t.Fatal(err)
				}
				c.clusterCIDRs, c.nodes = clustercidrlisters.NewClusterCIDRLister(indexer), corelisters.NewNodeLister(nodes)
				c.clusterCIDRQueue.Add("a")
				c.nodeQueue.Add("n")
				c.filled.Store(true)

				ctx, cancel := context.WithCancel(klog.NewContext(t.Context(), logr.Discard()))
				for _, l := range c.lines() {
					go queues.Work(ctx, l.queue, l.sync)
				}
				time.Sleep(20*time.Second + time.Second/2)
				synctest.Wait()
				var status networkingv1.ClusterCIDRStatus
				c.with(func(b *allocator.State) { status, _ = b.Status(a) })
				ready := meta.FindStatusCondition(status.Conditions, networkingv1.ConditionReady)

				// Once it stays, it serves, within the pause between two tries.
				tries, served, told := s.written["finalizer"], s.written["podCIDRs"], s.written[events.ReasonFinalizerMissing]
				s.mu.Lock()
				s.patch = func() error {
					kept := a.DeepCopy()
					kept.Finalizers = []string{networkingv1.Finalizer}
					if err := indexer.Update(kept); err != nil {
						t.Error(err)
					}
					c.heardOfClusterCIDR("a")
					return nil
				}
				s.mu.Unlock()
				time.Sleep(queues.RetryMax)
				synctest.Wait()
				var serves bool
				c.with(func(b *allocator.State) {
					r, _, ok := b.Reserve(Node("m", Label("p", "x")))
					serves = ok && r.ClusterCIDR == "a"
				})
				cancel()
				for _, l := range c.lines() {
					l.queue.ShutDown()
				}
				synctest.Wait()

				if diff := cmp.Diff(tc.wantTries, tries); diff != "" {
					t.Errorf("tries to add the finalizer (-want +got):\n%s", diff)
				}
				waited := int(finalizers.Patience / time.Second)
				if got := len(served) > 0; got != tc.wantNode || got && served[0] != waited {
					t.Errorf("podCIDRs are written %v seconds after the Node came, want %d: %t", served, waited, tc.wantNode)
				}
				// A status is looked at once a second, and with it what there is to say. An event lets a Node that is queued go first, for another second.
				if got := len(told) > 0; got != tc.wantNode || got && (told[0] < waited || told[0] > waited+2) {
					t.Errorf("an event after %v seconds, want %d or two more: %t", told, waited, tc.wantNode)
				}
				if said := ready != nil && ready.Reason == networkingv1.ReasonPending && strings.HasPrefix(ready.Message, "Its finalizer "); said != tc.wantNode {
					t.Errorf("condition Ready: %v", ready)
				}
				if !serves {
					t.Error("it does not serve once its finalizer stays")
				}
			})
		})
	}
}

type hangs struct{ *leader }

func (h hangs) PatchClusterCIDR(ctx context.Context, _ string, _ []byte) error {
	<-ctx.Done()
	return ctx.Err()
}

// Writes of ClusterCIDRs hang. A Node waits for the first one that hangs, and not for all, if another ClusterCIDR can serve it.
func TestFinalizersThatHang(t *testing.T) {
	for name, rack := range map[string]func(i int) string{
		"one of them would serve the Node": strconv.Itoa,
		"each of them would":               func(int) string { return "39" },
	} {
		t.Run(name, func(t *testing.T) { finalizersThatHang(t, rack) })
	}
}

func finalizersThatHang(t *testing.T, rack func(i int) string) {
	synctest.Test(t, func(t *testing.T) {
		l := newLeader(t, true)
		l.setRange(t, ClusterCIDR("a", Spec4("10.0.0.0/24", 4, nil)))
		l.api = hangs{l}
		const others = 40
		for i := range others {
			cc := ClusterCIDR(fmt.Sprintf("b%02d", i), Spec4(fmt.Sprintf("10.1.%d.0/24", i), 4, AnyOf(AllOf(In("rack", rack(i))))))
			cc.Finalizers = nil
			l.setRange(t, cc)
		}
		defer l.start(t)()
		l.watch("n", Node("n", Label("rack", fmt.Sprint(others-1))))
		time.Sleep(2 * finalizers.Patience)
		synctest.Wait()
		if podCIDR := l.node("n").Spec.PodCIDR; podCIDR != "10.0.0.32/28" {
			t.Errorf("after %v the Node has %q, want 10.0.0.32/28", 2*finalizers.Patience, podCIDR)
		}
	})
}

// losing carries the writes of finalizers out, but loses the first one or, if that is carried out, its answer.
type losing struct {
	*leader
	carriesOut bool
	lost       *bool
}

func (l losing) PatchClusterCIDR(_ context.Context, name string, _ []byte) error {
	first := !*l.lost
	*l.lost = true
	if !first || l.carriesOut {
		cc, err := l.Controller.clusterCIDRs.Get(name)
		if err != nil {
			return err
		}
		cc = cc.DeepCopy()
		cc.Finalizers = []string{networkingv1.Finalizer}
		if err := l.clusterCIDRs.Update(cc); err != nil {
			return err
		}
		l.heardOfClusterCIDR(name)
	}
	if first {
		return apierrors.NewTimeoutError("the answer is lost", 1)
	}
	return nil
}

// The answer to one write of a finalizer is lost, and there is no reason to write another one for hours. Then a Node waits for the finalizer of
// the ClusterCIDR that comes first for it, and nobody is told that writes get no answer.
func TestFinalizerAnswerLostLongAgo(t *testing.T) {
	for name, carriedOut := range map[string]bool{"it was carried out": true, "its ClusterCIDR is deleted": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := newLeader(t, true)
				l.api = losing{l, carriedOut, new(bool)}
				l.setRange(t, ClusterCIDR("fallback", Spec4("10.2.0.0/24", 4, nil)))
				l.run(t)
				fresh := func(name, cidr string) *networkingv1.ClusterCIDR {
					cc := ClusterCIDR(name, Spec4(cidr, 4, AnyOf(AllOf(In("rack", name)))))
					cc.Finalizers = nil
					return cc
				}
				x := fresh("x", "10.9.0.0/24")
				l.setRange(t, x)
				queues.WorkOne(t.Context(), l.clusterCIDRQueue, l.lines()[0].sync)
				if !carriedOut {
					if err := l.clusterCIDRs.Delete(x); err != nil {
						t.Fatal(err)
					}
					l.heardOfClusterCIDR("x")
				}
				l.run(t)
				time.Sleep(time.Hour)

				l.setRange(t, fresh("better", "10.3.0.0/24"))
				l.watch("n", Node("n", Label("rack", "better")))
				l.with(func(b *allocator.State) {
					if p, _ := b.Pool("better"); p.Problem != "" {
						t.Errorf("the new ClusterCIDR is said to be pending because %s", p.Problem)
					}
				})
				queues.WorkOne(t.Context(), l.nodeQueue, l.lines()[2].sync) // faster than the finalizer
				l.run(t)
				if got := l.node("n").Spec.PodCIDR; got != "10.3.0.0/28" {
					t.Errorf("the Node has %q, want 10.3.0.0/28 of the ClusterCIDR that comes first for it", got)
				}
			})
		})
	}
}

// keeping lets removals of finalizers hang, as a webhook may for objects that are being deleted. Finalizers are added.
type keeping struct{ losing }

func (k keeping) PatchClusterCIDR(ctx context.Context, name string, patch []byte) error {
	if strings.Contains(string(patch), networkingv1.Finalizer) {
		return k.losing.PatchClusterCIDR(ctx, name, patch)
	}
	return hangs{k.leader}.PatchClusterCIDR(ctx, name, patch)
}

// Nodes wait for the finalizer of a new ClusterCIDR, and nobody for the end of old ones.
func TestRemovalsThatHang(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLeader(t, true)
		none := true
		l.api = keeping{losing{l, true, &none}}
		for i := range 40 {
			cc := ClusterCIDR(fmt.Sprintf("old%02d", i), Spec4(fmt.Sprintf("10.1.%d.0/24", i), 4, nil))
			l.setRange(t, cc)
			going := cc.DeepCopy()
			Deleted(going)
			l.setRange(t, going)
		}
		defer l.start(t)()
		time.Sleep(time.Minute)
		l.setRange(t, ClusterCIDR("fallback", Spec4("10.8.0.0/24", 4, nil)))
		cc := ClusterCIDR("new", Spec4("10.9.0.0/24", 4, AnyOf(AllOf(In("p", "x")))))
		cc.Finalizers = nil
		l.setRange(t, cc)
		l.watch("n", Node("n", Label("p", "x")))
		time.Sleep(writes.Timeout) // of the one that is tried now
		synctest.Wait()
		if podCIDR := l.node("n").Spec.PodCIDR; podCIDR != "10.9.0.0/28" {
			t.Errorf("after %v the Node has %q, want 10.9.0.0/28", writes.Timeout, podCIDR)
		}
	})
}

// wanting is an API server with an operator that writes the finalizers it wants, none, at each event.
type wanting struct {
	*leader
	writes int
}

func (w *wanting) PatchClusterCIDR(_ context.Context, name string, _ []byte) error {
	w.writes++
	show := func(finalizers ...string) {
		cc, err := w.Controller.clusterCIDRs.Get(name)
		if err != nil {
			return
		}
		cc = cc.DeepCopy()
		cc.Finalizers = finalizers
		_ = w.clusterCIDRs.Update(cc)
		w.heardOfClusterCIDR(name)
	}
	show(networkingv1.Finalizer)
	time.AfterFunc(10*time.Millisecond, func() { show() })
	return nil
}

// An operator and the controller undo what the other one writes, for as long as both run. The controller must not write often.
func TestFinalizerTakenAwayAtEachEvent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLeader(t, true)
		server := &wanting{leader: l}
		l.api = server
		defer l.start(t)()
		cc := ClusterCIDR("x", Spec4("10.9.0.0/24", 4, nil))
		cc.Finalizers = nil
		l.setRange(t, cc)
		const minutes = 2
		time.Sleep(minutes * time.Minute)
		synctest.Wait()
		if most := minutes*int(time.Minute/queues.RetryMax) + int(finalizers.Patience/queues.ClosedRetry); server.writes > most {
			t.Errorf("%d writes of a finalizer in %d minutes, want %d at most", server.writes, minutes, most)
		}
	})
}

// conflicting is an API server with a webhook that refuses every write of ClusterCIDRs with 409.
type conflicting struct {
	*leader
	tries int
}

func (c *conflicting) PatchClusterCIDR(_ context.Context, name string, _ []byte) error {
	c.tries++
	return apierrors.NewConflict(schema.GroupResource{Resource: "clustercidrs"}, name, errors.New("admission webhook \"x\" denied the request"))
}

// A finalizer that is refused with 409, for good.
func TestFinalizerRefusedWith409(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLeader(t, true)
		server := &conflicting{leader: l}
		l.api = server
		l.setRange(t, ClusterCIDR("b", Spec4("10.2.0.0/24", 4, nil), NoFinalizer))
		defer l.start(t)()
		l.watch("n", Node("n"))
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		if p, _ := l.state.Pool("b"); !strings.HasPrefix(p.Problem, "its finalizer cannot be added") {
			t.Errorf("after %d tries it says %q", server.tries, p.Problem)
		}
		if err := l.health.Check(nil); err == nil {
			t.Error("health says ok")
		}
	})
}

// slowly answers each write of a ClusterCIDR after 60 ms.
type slowly struct{ *leader }

func (s slowly) PatchClusterCIDR(_ context.Context, name string, patch []byte) error {
	time.Sleep(60 * time.Millisecond)
	o, ok, _ := s.clusterCIDRs.GetByKey(name)
	if !ok || !strings.Contains(string(patch), networkingv1.Finalizer) {
		return nil
	}
	cc := o.(*networkingv1.ClusterCIDR).DeepCopy()
	cc.Finalizers = []string{networkingv1.Finalizer}
	err := s.clusterCIDRs.Update(cc)
	s.heardOfClusterCIDR(name)
	return err
}

// Many ClusterCIDRs are applied together, and all of their finalizers take longer than a Node waits for one. As long as they are being answered, it waits.
func TestManyFinalizers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLeader(t, true)
		l.api = slowly{l}
		l.watch("n2", nil) // a, which any Node may use, has a free block
		stop := l.start(t)
		for i := range 150 {
			l.setRange(t, ClusterCIDR(fmt.Sprintf("cc-%03d", i), Spec4(fmt.Sprintf("10.%d.0.0/24", i+1), 4, AnyOf(AllOf(In("pool", fmt.Sprint(i))))), NoFinalizer))
		}
		l.watch("late", Node("late", Created(1), Label("pool", "149")))
		time.Sleep(time.Minute)
		if n := l.node("late"); n.Spec.PodCIDR != "10.150.0.0/28" {
			t.Errorf("late has %q, of another ClusterCIDR, although every write was answered", n.Spec.PodCIDR)
		}
		stop()
	})
}

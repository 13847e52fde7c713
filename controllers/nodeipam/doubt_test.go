package nodeipam

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"

	applyv1 "github.com/multicidr/controller-manager/apis/generated/applyconfiguration/networking/v1"
	clustercidrlisters "github.com/multicidr/controller-manager/apis/generated/listers/networking/v1"
	networkingv1 "github.com/multicidr/controller-manager/apis/networking/v1"
	"github.com/multicidr/controller-manager/controllers/ipam"
	"github.com/multicidr/controller-manager/controllers/lease"
	"github.com/multicidr/controller-manager/controllers/nodeipam/allocator"
	"github.com/multicidr/controller-manager/controllers/nodeipam/health"
	. "github.com/multicidr/controller-manager/controllers/nodeipam/internal/objects"
	"github.com/multicidr/controller-manager/controllers/nodeipam/requests"
	"github.com/multicidr/controller-manager/controllers/queues"
)

// leader is a controller that serves Nodes from caches which the test fills, under a lease of which the test says what its renewals tell.
type leader struct {
	requests.API
	*Controller
	cache, clusterCIDRs cache.Indexer
	mu                  sync.Mutex // guards what the workers read while a test changes it
	said                lease.Renewals
	renewing            atomic.Bool // the lease is renewed every two seconds, beside what is said
}

func (l *leader) PatchNode(_ context.Context, name string, patch []byte) error {
	var p v1.Node
	if err := json.Unmarshal(patch, &p); err != nil {
		return err
	}
	n := l.node(name).DeepCopy()
	n.Spec, n.Annotations = p.Spec, p.Annotations
	l.watch(name, n)
	return nil
}

func (l *leader) CreateEvent(context.Context, *v1.Event) error { return nil }
func (l *leader) PatchEvent(context.Context, string, string, []byte) (*v1.Event, error) {
	return &v1.Event{}, nil
}
func (l *leader) ApplyStatus(_ context.Context, patch *applyv1.ClusterCIDRApplyConfiguration) (networkingv1.ClusterCIDRStatus, error) {
	return storeStatus(l.clusterCIDRs, patch)
}

// storeStatus puts a status into the ClusterCIDR of its name, if it is there.
func storeStatus(clusterCIDRs cache.Indexer, patch *applyv1.ClusterCIDRApplyConfiguration) (networkingv1.ClusterCIDRStatus, error) {
	o, ok, err := clusterCIDRs.GetByKey(*patch.Name)
	if err != nil || !ok {
		return networkingv1.ClusterCIDRStatus{}, apierrors.NewNotFound(networkingv1.Resource("clustercidrs"), *patch.Name)
	}
	cc := o.(*networkingv1.ClusterCIDR).DeepCopy()
	text, err := json.Marshal(patch.Status)
	err = errors.Join(err, json.Unmarshal(text, &cc.Status), clusterCIDRs.Update(cc))
	return cc.Status, err
}
func (l *leader) GetNode(_ context.Context, name string) (*v1.Node, error) { return l.node(name), nil }
func (l *leader) node(name string) *v1.Node {
	if o, ok, _ := l.cache.GetByKey(name); ok {
		return o.(*v1.Node)
	}
	return nil
}

// leaseFence is open, and tells what the leader's lease does.
type leaseFence struct{ *leader }

func (f leaseFence) Enter(ctx context.Context, _ time.Duration) (context.Context, func(), error) {
	return ctx, func() {}, nil
}
func (leaseFence) Holder() string            { return "me" }
func (leaseFence) Unanswered() time.Duration { return 0 }
func (f leaseFence) Renewals() lease.Renewals {
	f.mu.Lock()
	defer f.mu.Unlock()
	r := f.said
	if f.renewing.Load() {
		n := int(time.Since(time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)) / (2 * time.Second)) // when a bubble begins
		r.Sent, r.Proven = r.Sent+n, r.Proven+n
	}
	return r
}

// renewed says what the renewals tell from now on.
func (l *leader) renewed(r lease.Renewals) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.said = r
}

// newLeader leads a cluster with a range of two blocks, which n1 and n2 have.
func newLeader(t *testing.T, elected bool) *leader {
	t.Helper()
	l := &leader{cache: cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{}), clusterCIDRs: cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{})}
	cfg := Config{Workers: 1}
	if elected {
		cfg.Fence = leaseFence{l}
	}
	l.Controller = newController(cfg, parts{
		api: l, now: time.Now, nodes: corelisters.NewNodeLister(l.cache), clusterCIDRs: clustercidrlisters.NewClusterCIDRLister(l.clusterCIDRs), newQueue: newQueue,
	})
	for _, line := range l.lines() {
		t.Cleanup(line.queue.ShutDown)
	}
	l.setRange(t, ClusterCIDR("a", Spec4("10.0.0.0/27", 4, nil)))
	if err := l.readAll(t.Context()); err != nil {
		t.Fatal(err)
	}
	l.health.WaitFor(health.Problem{})
	for _, name := range []string{"n1", "n2"} {
		l.watch(name, Node(name))
		l.run(t)
	}
	l.want(t, "n1 10.0.0.0/28, n2 10.0.0.16/28")
	return l
}

func (l *leader) setRange(t *testing.T, cc *networkingv1.ClusterCIDR) {
	if err := l.clusterCIDRs.Update(cc); err != nil {
		t.Fatal(err)
	}
	l.heardOfClusterCIDR(cc.Name)
}

// watch brings what a watch says of a Node: nil, it was deleted.
func (l *leader) watch(name string, now *v1.Node) {
	if now == nil {
		before := l.node(name)
		_ = l.cache.Delete(before)
		l.nodeEvent(name, before, nil)
		return
	}
	var before any
	if n := l.node(name); n != nil {
		before = n
	}
	_ = l.cache.Update(now)
	l.nodeEvent(name, before, now)
}

// list brings a list in which a Node is as given: nil, it is missing.
func (l *leader) list(name string, now *v1.Node) {
	if now != nil {
		l.watch(name, now)
		return
	}
	before := l.node(name)
	_ = l.cache.Delete(before)
	l.nodeEvent(name, cache.DeletedFinalStateUnknown{Key: name, Obj: before}, nil)
}

// run lets the workers do all that there is to do within some seconds.
func (l *leader) run(t *testing.T) {
	t.Helper()
	for range 50 {
		for _, line := range l.lines() {
			for line.queue.Len() > 0 {
				queues.WorkOne(t.Context(), line.queue, line.sync)
			}
		}
		time.Sleep(100 * time.Millisecond)
	}
}

// start lets the workers work until stop is called, in the time of a synctest bubble.
func (l *leader) start(t *testing.T) (stop func()) {
	ctx, cancel := context.WithCancel(t.Context())
	for _, line := range l.lines() {
		go queues.Work(ctx, line.queue, line.sync)
	}
	return func() {
		for _, line := range l.lines() {
			line.queue.ShutDown()
		}
		cancel()
		synctest.Wait()
		time.Sleep(time.Minute) // until the queues' timers are over
	}
}

func (l *leader) renew() {
	l.said.Sent++
	l.said.Proven = l.said.Sent
}

// want compares the podCIDRs of all Nodes, and how many Nodes are in doubt.
func (l *leader) want(t *testing.T, want string) {
	t.Helper()
	var got []string
	for _, name := range []string{"late", "n1", "n2"} {
		if n := l.node(name); n != nil {
			got = append(got, strings.TrimSpace(name+" "+n.Spec.PodCIDR))
		}
	}
	if s := strings.Join(got, ", "); s != want {
		t.Errorf("Nodes have %q, want %q", s, want)
	}
}

// keptBlocks are the blocks that are kept for Nodes missing from a list.
func keptBlocks(b *allocator.State) (kept []ipam.Holding) {
	for _, everything := range ipam.Everything {
		for _, h := range b.Holdings(everything) {
			if h.Owner.Kind == ipam.Kept {
				kept = append(kept, h)
			}
		}
	}
	return kept
}

func TestDoubt(t *testing.T) {
	const (
		kept    = "late, n1 10.0.0.0/28"
		freed   = "late 10.0.0.16/28, n1 10.0.0.0/28"
		regains = "late, n1 10.0.0.0/28, n2 10.0.0.16/28"
	)
	back := func(l *leader) { l.said.WentBack = max(1, l.said.Sent) }
	lost := func(l *leader) { l.list("n2", nil) }
	again := func(l *leader) { l.watch("n2", Node("n2", UID("again"))) }
	for name, tc := range map[string]struct {
		history    []func(*leader) // n2 is lost; late comes; the workers run after each step
		alone      bool            // there is no leader election
		want       string
		inDoubt    int
		healthSays string
	}{
		"a watch says that it was deleted": {history: []func(*leader){func(l *leader) { l.watch("n2", nil) }}, want: freed},
		"the same, and its worker saw it before": {want: freed, history: []func(*leader){func(l *leader) {
			before := l.node("n2")
			_ = l.cache.Delete(before)
			_ = l.syncNode(context.Background(), "n2")
			l.nodeEvent("n2", before, nil)
		}}},
		"a list lacks it": {history: []func(*leader){lost}, want: kept},
		"a list lacks it, and its worker saw that first": {want: kept, history: []func(*leader){func(l *leader) {
			before := l.node("n2")
			_ = l.cache.Delete(before)
			_ = l.syncNode(context.Background(), "n2")
			l.nodeEvent("n2", cache.DeletedFinalStateUnknown{Key: "n2", Obj: before}, nil)
		}}},
		"a renewal was sent afterwards": {history: []func(*leader){lost, (*leader).renew}, want: freed},
		"one was sent before":           {want: kept, history: []func(*leader){func(l *leader) { l.said.Sent++; lost(l); l.said.Proven = l.said.Sent }}},
		"nobody else leads":             {alone: true, history: []func(*leader){lost}, want: freed},
		"the lease went back":           {history: []func(*leader){lost, func(l *leader) { back(l); l.renew() }}, want: kept, inDoubt: 1, healthSays: "n2 [10.0.0.16/28]"},
		"it went back long ago":         {want: freed, history: []func(*leader){back, func(l *leader) { l.said.Sent += 2 * allocator.ListedWithin; l.said.Proven = l.said.Sent }, lost, (*leader).renew}},
		"it went back before the list":  {history: []func(*leader){back, (*leader).renew, lost, (*leader).renew}, want: kept, inDoubt: 1},
		"the Node registers again, and another range comes first": {
			history: []func(*leader){lost, back, (*leader).renew, func(l *leader) {
				cc := ClusterCIDR("b", Spec4("10.8.0.0/24", 4, nil))
				cc.Spec.Priority = 1
				_ = l.clusterCIDRs.Update(cc)
				l.heardOfClusterCIDR("b")
			}, again}, want: "late 10.8.0.0/28, n1 10.0.0.0/28, n2 10.0.0.16/28",
		},
		"its ClusterCIDR serves nobody": {
			history: []func(*leader){lost, back, func(l *leader) {
				cc := ClusterCIDR("a", Spec4("10.0.0.0/27", 4, nil))
				cc.Spec.Allocation = networkingv1.AllocationDisabled
				_ = l.clusterCIDRs.Update(cc)
				l.heardOfClusterCIDR("a")
			}, again}, want: kept + ", n2", inDoubt: 1,
		},
		"its block is excluded by now": {
			history: []func(*leader){lost, back, func(l *leader) {
				l.setRange(t, ClusterCIDR("a", Spec4("10.0.0.0/27", 4, nil), func(cc *networkingv1.ClusterCIDR) { cc.Spec.ExcludedCIDRs = []string{"10.0.0.31/32"} }))
			}, again}, want: kept + ", n2", inDoubt: 1,
		},
		"its ClusterCIDR serves nobody, and another one serves it": {
			history: []func(*leader){lost, back, func(l *leader) {
				cc := ClusterCIDR("a", Spec4("10.0.0.0/27", 4, nil))
				cc.Spec.Allocation = networkingv1.AllocationDisabled
				l.setRange(t, cc)
				l.setRange(t, ClusterCIDR("b", Spec4("10.8.0.0/28", 4, nil)))
				l.watch("late", nil)
			}, again, func(l *leader) {
				l.setRange(t, ClusterCIDR("a", Spec4("10.0.0.0/27", 4, nil)))
				l.watch("late", Node("late"))
			}}, want: kept + ", n2 10.8.0.0/28", inDoubt: 1,
		},
		"it is back with other podCIDRs": {
			history: []func(*leader){lost, back, func(l *leader) {
				l.watch("n2", Node("n2", UID("again"), func(n *v1.Node) { n.Spec.PodCIDR, n.Spec.PodCIDRs = "10.9.0.0/28", []string{"10.9.0.0/28"} }))
			}}, want: kept + ", n2 10.9.0.0/28", inDoubt: 1,
		},
		"a second restore brings an earlier Node of the name": {
			history: []func(*leader){lost, back, (*leader).renew, back, func(l *leader) {
				l.list("n2", Node("n2", UID("earlier"), func(n *v1.Node) { n.Spec.PodCIDR, n.Spec.PodCIDRs = "10.9.0.0/28", []string{"10.9.0.0/28"} }))
			}, (*leader).renew}, want: kept + ", n2 10.9.0.0/28", inDoubt: 1,
		},
		"it is back with the same podCIDRs": {
			history: []func(*leader){lost, back, func(l *leader) {
				l.watch("n2", Node("n2", UID("again"), func(n *v1.Node) { n.Spec.PodCIDR, n.Spec.PodCIDRs = "10.0.0.16/28", []string{"10.0.0.16/28"} }))
			}}, want: regains,
		},
		"the list has an earlier Node of the name": {
			history: []func(*leader){back, func(l *leader) {
				l.list("n2", Node("n2", UID("earlier"), func(n *v1.Node) { n.Spec.PodCIDR, n.Spec.PodCIDRs = "10.9.0.0/28", []string{"10.9.0.0/28"} }))
			}}, want: kept + ", n2 10.9.0.0/28", inDoubt: 1,
		},
		"the list has it without podCIDRs": {history: []func(*leader){back, func(l *leader) { l.list("n2", Node("n2")) }}, want: regains},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := newLeader(t, !tc.alone)
				l.watch("late", Node("late"))
				l.run(t)
				for _, do := range tc.history {
					do(l)
					l.run(t)
				}
				l.want(t, tc.want)
				l.with(func(b *allocator.State) {
					if got := b.Figures().InDoubt; got != tc.inDoubt {
						t.Errorf("%d Nodes are in doubt, want %d", got, tc.inDoubt)
					}
					if left := len(keptBlocks(b)); (left > 0) == strings.Contains(tc.want, "10.0.0.16/28") {
						t.Errorf("%d blocks are kept", left)
					}
				})
				err := l.HealthChecker().Check(nil)
				if healthy := err == nil; healthy != (tc.inDoubt == 0) || !healthy && !strings.Contains(err.Error(), tc.healthSays) {
					t.Errorf("the health check says %v", err)
				}
			})
		})
	}
}

// A Node is deleted and created again while the watch is broken, which a list shows as one update; and the cache knows that the second one is
// gone, too, before that update is handled. What the first one held is free.
func TestReplacedNodeThatIsGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLeader(t, false)
		second := Node("n2", UID("second"), func(n *v1.Node) { n.ResourceVersion = "1000" })
		first := l.node("n2")
		if err := l.cache.Delete(first); err != nil {
			t.Fatal(err)
		}
		l.nodeEvent("n2", first, second)
		gone := second.DeepCopy()
		gone.ResourceVersion = "1001"
		l.nodeEvent("n2", gone, nil)
		if n, ok := l.state.Node("n2"); ok {
			t.Errorf("the book has it still: %v", n.Blocks)
		}
	})
}

// TestDoubtWhenTheWorkerWasFaster was restored from a backup in which n2 is an earlier Node, and its worker looks at it after the list is in the cache and before the event
// of that comes. What the machine of n2 uses must be kept all the same.
func TestDoubtWhenTheWorkerWasFaster(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLeader(t, true)
		l.watch("late", Node("late"))
		l.run(t)
		l.said.WentBack = max(1, l.said.Sent)
		before := l.node("n2")
		earlier := Node("n2", UID("earlier"), func(n *v1.Node) { n.Spec.PodCIDR, n.Spec.PodCIDRs = "10.9.0.0/28", []string{"10.9.0.0/28"} })
		_ = l.cache.Update(earlier)
		_ = l.syncNode(context.Background(), "n2")
		l.nodeEvent("n2", before, earlier)
		l.run(t)
		l.want(t, "late, n1 10.0.0.0/28, n2 10.9.0.0/28")
	})
}

// A Node in doubt is back, and somebody else has got its block meanwhile.
func TestReclaimOfWhatAnotherNodeHas(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLeader(t, true)
		l.list("n2", nil)
		l.said.WentBack = max(1, l.said.Sent)
		l.run(t)
		l.watch("foreign", Node("foreign", func(n *v1.Node) { n.Spec.PodCIDR, n.Spec.PodCIDRs = "10.0.0.16/28", []string{"10.0.0.16/28"} }))
		l.run(t)
		l.watch("n2", Node("n2", UID("again")))
		l.run(t)
		l.want(t, "n1 10.0.0.0/28, n2") // and not the block of which it knows that another Node has it
	})
}

// After a restore the kubelet of a Node that is not in the backup may be faster than the list: that has a Node of its name already, without podCIDRs.
// Its machine uses what it had.
func TestDoubtAboutANodeThatIsBackAlready(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLeader(t, true)
		l.renew()
		l.setRange(t, ClusterCIDR("b", Spec4("10.8.0.0/24", 4, nil)))
		l.run(t)
		l.list("n2", Node("n2", UID("again")))
		l.run(t)
		if podCIDR := l.node("n2").Spec.PodCIDR; podCIDR != "" {
			t.Fatalf("n2 gets %s before the lease has shown whether etcd was restored", podCIDR)
		}
		l.said.WentBack = l.said.Sent
		l.renew()
		l.run(t)
		l.want(t, "n1 10.0.0.0/28, n2 10.0.0.16/28")
		if err := l.health.Check(nil); err != nil {
			t.Errorf("n2 has its block back, and health says %v", err)
		}
	})
}

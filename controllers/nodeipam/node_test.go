package nodeipam

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	v1 "k8s.io/api/core/v1"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"

	clustercidrlisters "github.com/multicidr/controller-manager/apis/generated/listers/networking/v1"
)

// Once the API server has said that podCIDRs are stored, other events of the Node are no reason to write them again, unless the watch
// does not show them for long.
func TestPodCIDRsAreWrittenOnce(t *testing.T) {
	const wrote = "patchNode fenced=false bounded=true"
	now := time.Unix(0, 0)
	nodes := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{})
	s := &server{gate: &gate{}}
	c := newController(Config{}, parts{api: s, now: func() time.Time { return now }, nodes: corelisters.NewNodeLister(nodes), newQueue: newQueue})
	for _, l := range c.lines() {
		t.Cleanup(l.queue.ShutDown)
	}
	c.with(func(b *book) { b.setPool(compile(clusterCIDR("a", spec4("10.0.0.0/16", 8, nil)))) })

	shown := node("n")
	shown.Spec.PodCIDRs = []string{"10.0.0.0/24"}
	for _, step := range []struct {
		what string
		node *v1.Node // in the cache from then on; nil to take it away
		pass time.Duration
		want int // writes
	}{
		{"a Node comes", node("n"), 0, 1},
		{"its kubelet says something, and the write is not seen yet", node("n"), receiptLasts / 2, 0},
		{"the same, and it is not seen for long", node("n"), receiptLasts / 2, 1},
		{"a receipt lasts as long each time", node("n"), receiptLasts - 1, 0},
		{"the write is seen", shown, 0, 0},
		{"the Node is gone", nil, 0, 0},
		{"another one of its name comes", node("n"), 0, 1},
		{"and one more at once", node("n", func(n *v1.Node) { n.UID = "third" }), 0, 1},
	} {
		now = now.Add(step.pass)
		s.arrived = nil
		if step.node == nil {
			if err := nodes.Delete(shown); err != nil {
				t.Fatal(err)
			}
		} else if err := nodes.Update(step.node); err != nil {
			t.Fatal(err)
		}
		if err := c.syncNode(t.Context(), "n"); err != nil {
			t.Fatalf("%s: %v", step.what, err)
		}
		var want []string
		for range step.want {
			want = append(want, wrote)
		}
		if diff := cmp.Diff(want, s.arrived); diff != "" {
			t.Fatalf("%s: writes (-want +got):\n%s", step.what, diff)
		}
	}
	if err := nodes.Replace(nil, ""); err != nil {
		t.Fatal(err)
	}
	c.filled.Store(true)
	c.nodeEvent("n", node("n", uid("third")), nil)
	if n := len(c.receipts); n > 0 {
		t.Errorf("%d receipts are kept of Nodes that are gone", n)
	}
}

// The watch may be faster than the answer of a write, and Nodes may go before the start has read any: nothing is kept of either.
func TestNothingIsKeptOfThem(t *testing.T) {
	nodes := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{})
	c := newController(Config{}, parts{now: time.Now, nodes: corelisters.NewNodeLister(nodes), newQueue: newQueue})
	for _, l := range c.lines() {
		t.Cleanup(l.queue.ShutDown)
	}
	c.nodeEvent("early", nil, node("early"))
	c.nodeEvent("early", node("early"), nil)
	c.with(func(b *book) {
		b.setPool(compile(clusterCIDR("a", spec4("10.0.0.0/16", 8, nil))))
		c.filled.Store(true)
	})

	show := func(before any, now *v1.Node) {
		if err := nodes.Update(now); err != nil {
			t.Error(err)
		}
		c.nodeEvent("n", before, now)
	}
	fresh, served := node("n"), node("n", from("a"))
	served.Spec.PodCIDRs = []string{"10.0.0.0/24"}
	c.api = answering{before: func() { show(fresh, served) }}
	show(nil, fresh)
	if err := c.syncNode(t.Context(), "n"); err != nil {
		t.Fatal(err)
	}
	if len(c.receipts) > 0 || len(c.sightings.of) > 0 {
		t.Errorf("kept: receipts %v, sightings %v", c.receipts, c.sightings.of)
	}
}

// What the start has read is no sign of another allocator, however late its event comes; what comes after it is.
func TestAnotherAllocatorIsNoticed(t *testing.T) {
	nodes := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{})
	clusterCIDRs := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{})
	c := newController(Config{}, parts{
		now: time.Now, nodes: corelisters.NewNodeLister(nodes), clusterCIDRs: clustercidrlisters.NewClusterCIDRLister(clusterCIDRs), newQueue: newQueue,
	})
	for _, l := range c.lines() {
		t.Cleanup(l.queue.ShutDown)
	}
	served := func(name string) *v1.Node {
		n := node(name)
		n.Spec.PodCIDRs = []string{"10.0.0.0/24"}
		if err := nodes.Update(n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	c.nodeEvent("early", node("early"), served("early"))
	late := served("late")
	if err := c.readAll(t.Context()); err != nil {
		t.Fatal(err)
	}
	c.nodeEvent("late", node("late"), late)
	c.nodeEvent("after", node("after"), served("after"))
	got := map[string]bool{}
	for name, e := range c.book.nodes {
		got[name] = e.byOther != ""
	}
	if diff := cmp.Diff(map[string]bool{"early": false, "late": false, "after": true}, got); diff != "" {
		t.Errorf("noticed (-want +got):\n%s", diff)
	}
}

package nodeipam

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	v1 "k8s.io/api/core/v1"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/ktesting"

	clustercidrlisters "github.com/multicidr/controller-manager/apis/generated/listers/networking/v1"
	networkingv1 "github.com/multicidr/controller-manager/apis/networking/v1"
	"github.com/multicidr/controller-manager/controllers/lease"
	"github.com/multicidr/controller-manager/controllers/nodeipam/allocator"
	"github.com/multicidr/controller-manager/controllers/nodeipam/author"
	"github.com/multicidr/controller-manager/controllers/nodeipam/clustercidr"
	"github.com/multicidr/controller-manager/controllers/nodeipam/events"
	. "github.com/multicidr/controller-manager/controllers/nodeipam/internal/objects"
	"github.com/multicidr/controller-manager/controllers/nodeipam/internal/testapi"
	"github.com/multicidr/controller-manager/controllers/nodeipam/requests"
	"github.com/multicidr/controller-manager/controllers/nodeipam/takeover"
	"github.com/multicidr/controller-manager/controllers/writes"
)

// Once the API server has said that podCIDRs are stored, other events of the Node are no reason to write them again, unless the watch
// does not show them for long.
func TestPodCIDRsAreWrittenOnce(t *testing.T) {
	const wrote = "patchNode fenced=false bounded=true"
	now := time.Unix(0, 0)
	nodes := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{})
	s := &testapi.Server{Gate: &testapi.Gate{}}
	c := newController(Config{}, parts{api: s, now: func() time.Time { return now }, nodes: corelisters.NewNodeLister(nodes), newQueue: newQueue})
	for _, l := range c.lines() {
		t.Cleanup(l.queue.ShutDown)
	}
	c.with(func(b *allocator.State) {
		b.SetPool(clustercidr.Compile(ClusterCIDR("a", Spec4("10.0.0.0/16", 8, nil))))
	})

	shown := Node("n")
	shown.Spec.PodCIDRs = []string{"10.0.0.0/24"}
	for _, step := range []struct {
		what string
		node *v1.Node // in the cache from then on; nil to take it away
		pass time.Duration
		want int // writes
	}{
		{"a Node comes", Node("n"), 0, 1},
		{"its kubelet says something, and the write is not seen yet", Node("n"), receiptLasts / 2, 0},
		{"the same, and it is not seen for long", Node("n"), receiptLasts / 2, 1},
		{"a receipt lasts as long each time", Node("n"), receiptLasts - 1, 0},
		{"the write is seen", shown, 0, 0},
		{"the Node is gone", nil, 0, 0},
		{"another one of its name comes", Node("n"), 0, 1},
		{"and one more, whose event is not handled yet", Node("n", func(n *v1.Node) { n.UID = "third" }), 0, 0},
	} {
		now = now.Add(step.pass)
		s.Arrived = nil
		if step.node == nil {
			if err := nodes.Delete(shown); err != nil {
				t.Fatal(err)
			}
			c.with(func(b *allocator.State) { b.NodeGone("n", shown.UID) })
		} else if err := nodes.Update(step.node); err != nil {
			t.Fatal(err)
		}
		err := c.syncNode(t.Context(), "n")
		var pause writes.Later
		if again := strings.Contains(step.what, "not seen for long"); again != errors.Is(err, requests.ErrNotKept) || !again && err != nil && !errors.As(err, &pause) {
			t.Fatalf("%s: %v", step.what, err)
		}
		var want []string
		for range step.want {
			want = append(want, wrote)
		}
		if diff := cmp.Diff(want, s.Arrived); diff != "" {
			t.Fatalf("%s: writes (-want +got):\n%s", step.what, diff)
		}
	}
	if err := nodes.Replace(nil, ""); err != nil {
		t.Fatal(err)
	}
	c.filled.Store(true)
	c.nodeEvent("n", Node("n"), nil)
	if n, known := c.state.Node("n"); known {
		t.Errorf("kept of a Node that is gone: %+v", n)
	}
}

// The watch may be faster than the answer of a write, and Nodes may go before the start has read any: nothing is kept of either.
func TestNothingIsKeptOfThem(t *testing.T) {
	nodes := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{})
	c := newController(Config{}, parts{now: time.Now, nodes: corelisters.NewNodeLister(nodes), newQueue: newQueue})
	for _, l := range c.lines() {
		t.Cleanup(l.queue.ShutDown)
	}
	c.nodeEvent("early", nil, Node("early"))
	c.nodeEvent("early", Node("early"), nil)
	c.with(func(b *allocator.State) {
		b.SetPool(clustercidr.Compile(ClusterCIDR("a", Spec4("10.0.0.0/16", 8, nil))))
		c.filled.Store(true)
	})

	show := func(before any, now *v1.Node) {
		if err := nodes.Update(now); err != nil {
			t.Error(err)
		}
		c.nodeEvent("n", before, now)
	}
	fresh, served := Node("n"), Node("n", From("a"))
	served.Spec.PodCIDRs = []string{"10.0.0.0/24"}
	c.api = answering{before: func() { show(fresh, served) }}
	show(nil, fresh)
	if err := c.syncNode(t.Context(), "n"); err != nil {
		t.Fatal(err)
	}
	if at := c.state.StoredAt(served); !at.IsZero() || c.firstSeen.Waiting("n") {
		t.Errorf("kept: that it was stored at %v, or when the Node was first seen", at)
	}
}

// noticing is a controller with caches of Nodes and ClusterCIDRs that has not started yet, and serve, which makes a Node show podCIDRs of a writer.
func noticing(t *testing.T, cfg Config) (c *Controller, show func(*v1.Node) *v1.Node) {
	nodes := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{})
	clusterCIDRs := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{})
	c = newController(cfg, parts{
		now: time.Now, nodes: corelisters.NewNodeLister(nodes), clusterCIDRs: clustercidrlisters.NewClusterCIDRLister(clusterCIDRs), newQueue: newQueue,
	})
	for _, l := range c.lines() {
		t.Cleanup(l.queue.ShutDown)
	}
	return c, func(n *v1.Node) *v1.Node {
		if err := nodes.Update(n); err != nil {
			t.Fatal(err)
		}
		return n
	}
}

// servedBy is a Node with podCIDRs that a process has written.
func servedBy(name, holder string) *v1.Node {
	n := Node(name)
	n.Spec.PodCIDRs = []string{"10.0.0.0/24"}
	n.Annotations = map[string]string{networkingv1.AnnotationClusterCIDR: "a", networkingv1.AnnotationLeaseHolder: holder}
	return n
}

func suspected(c *Controller) map[string]bool {
	got := map[string]bool{}
	for name := range c.state.NodeUIDs() {
		if c.state.Suspected(name) {
			got[name] = true
		}
	}
	return got
}

// What the start has read is no sign of another allocator, however late its event comes; what comes after it is, unless this process wrote it.
func TestAnotherAllocatorIsNoticed(t *testing.T) {
	c, show := noticing(t, Config{})
	if c.identity == "" {
		t.Fatal("without leader election nobody can tell who wrote")
	}
	if other, _ := noticing(t, Config{}); other.identity != c.identity {
		t.Error("a controller that is built anew after a panic takes the last one's writes for another allocator's")
	}
	c.nodeEvent("early", Node("early"), show(servedBy("early", "other")))
	show(servedBy("late", "other"))
	show(servedBy("rebuilt", c.identity))
	if err := c.readAll(t.Context()); err != nil {
		t.Fatal(err)
	}
	c.nodeEvent("late", Node("late"), servedBy("late", "other"))
	c.nodeEvent("after", Node("after"), show(servedBy("after", "other")))
	c.nodeEvent("own", Node("own"), show(servedBy("own", c.identity)))
	// Two chose the same block for it: the second write only puts in another name.
	c.nodeEvent("rebuilt", servedBy("rebuilt", c.identity), show(servedBy("rebuilt", "other")))
	// It was saved and created again, and has its name from before.
	again := servedBy("again", c.identity)
	again.Spec = v1.NodeSpec{}
	c.nodeEvent("again", again, show(servedBy("again", c.identity)))
	if diff := cmp.Diff(map[string]bool{"after": true, "rebuilt": true, "again": true}, suspected(c)); diff != "" {
		t.Errorf("noticed (-want +got):\n%s", diff)
	}
}

// unnaming is an API server with a policy that takes our annotations off Nodes.
type unnaming struct{ *leader }

func (u unnaming) PatchNode(ctx context.Context, name string, patch []byte) error {
	return u.leader.PatchNode(ctx, name, []byte(strings.ReplaceAll(string(patch), "networking.x-k8s.io/", "unknown/")))
}

// What the API server says it has stored for this process is its own, also without a name.
func TestOwnWriteWithoutItsAnnotations(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLeader(t, true)
		l.setRange(t, ClusterCIDR("a", Spec4("10.2.0.0/24", 4, nil)))
		l.api = unnaming{l}
		l.watch("n", Node("n"))
		l.run(t)
		if n := l.node("n"); n.Spec.PodCIDR == "" || author.Of(n) == l.identity {
			t.Fatalf("podCIDR %q, annotations %v", n.Spec.PodCIDR, n.Annotations)
		}
		if e, _ := l.state.Node("n"); e.AssignedByOther != "" || e.Suspected != "" {
			t.Errorf("another allocator is accused: %s%s", e.AssignedByOther, e.Suspected)
		}
	})
}

// heldFence is the fence of a leader, which closes when it is deposed.
type heldFence struct {
	lease.Fence
	closed bool
}

func (f *heldFence) Holder() string { return "me" }

func (f *heldFence) Enter(ctx context.Context, atMost time.Duration) (context.Context, func(), error) {
	if f.closed {
		return nil, nil, lease.ErrClosed
	}
	return f.Fence.Enter(ctx, atMost)
}

// after is a term after another leader's.
type after struct {
	takeover.Term
	last string
}

func (t after) EarlierHolder() string { return t.last }

// An earlier leader's write that arrives late is no sign of another allocator.
func TestEarlierLeadersAreNotAccused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, show := noticing(t, Config{Fence: &heldFence{}, Term: after{last: "last"}})
		show(Node("of-last"))
		show(Node("of-other"))
		if err := c.readAll(t.Context()); err != nil {
			t.Fatal(err)
		}
		c.nodeEvent("of-last", Node("of-last"), show(servedBy("of-last", "last")))
		c.nodeEvent("of-other", Node("of-other"), show(servedBy("of-other", "other")))
		if diff := cmp.Diff(map[string]bool{"of-other": true}, suspected(c)); diff != "" {
			t.Errorf("noticed (-want +got):\n%s", diff)
		}
	})
}

// A leader that was deposed sees what its successor writes, and says nothing.
func TestDeposedLeaderAccusesNobody(t *testing.T) {
	fence := &heldFence{closed: true}
	c, show := noticing(t, Config{Fence: fence})
	if err := c.readAll(t.Context()); err != nil {
		t.Fatal(err)
	}
	c.nodeEvent("n", Node("n"), show(servedBy("n", "successor")))
	if err := c.syncNode(t.Context(), "n"); !errors.Is(err, lease.ErrClosed) {
		t.Errorf("got %v, want it to be put off", err)
	}
	if n, _ := c.state.Node("n"); n.AssignedByOther != "" {
		t.Errorf("it says %q", n.AssignedByOther)
	}
	fence.closed = false // It still leads, so it was another one.
	if err := errors.Join(c.syncNode(t.Context(), "n"), c.syncNode(t.Context(), "n")); err != nil {
		t.Fatal(err)
	}
	if n, _ := c.state.Node("n"); !strings.Contains(n.AssignedByOther, `It is "successor"`) {
		t.Errorf("it says %q", n.AssignedByOther)
	}
	if _, said := c.announcer.since[events.Key(events.AboutNode, "n", allocator.ReasonAssignedByOther)]; !said {
		t.Error("no event")
	}
}

// logged is an API server whose answers are lost, and that has an eye on the log.
type logged struct {
	*leader
	log   fmt.Stringer
	lines []string // of the log, when a write arrives
}

func (l *logged) PatchNode(context.Context, string, []byte) error {
	l.lines = append(l.lines, l.log.String())
	return context.DeadlineExceeded
}

// TestWhatIsSentIsInTheLog/restore-etcd.md finds in the log which podCIDRs Nodes may have, also if the answer to their PATCH was lost. Each reservation is logged once,
// however often it is sent.
func TestWhatIsSentIsInTheLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		logger := ktesting.NewLogger(t, ktesting.NewConfig(ktesting.BufferLogs(true)))
		ctx := klog.NewContext(t.Context(), logger)
		l := newLeader(t, true)
		server := &logged{leader: l, log: logger.GetSink().(ktesting.Underlier).GetBuffer()}
		l.api = server
		l.setRange(t, ClusterCIDR("b", Spec4("10.2.0.0/24", 4, nil)))
		l.watch("n", Node("n"))
		for range 3 {
			if err := l.syncNode(ctx, "n"); err == nil {
				t.Fatal("the write was answered")
			}
		}
		const line = `Assigning podCIDRs node="n" podCIDRs=["10.2.0.0/28"] clusterCIDR="b"`
		for i, log := range server.lines {
			if n := strings.Count(log, line); n != 1 {
				t.Errorf("at try %d the log has %d times %q:\n%s", i, n, line, log)
			}
		}
	})
}

package nodeipam

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	applyv1 "github.com/multicidr/controller-manager/apis/generated/applyconfiguration/networking/v1"
	clustercidrlisters "github.com/multicidr/controller-manager/apis/generated/listers/networking/v1"
	networkingv1 "github.com/multicidr/controller-manager/apis/networking/v1"
	"github.com/multicidr/controller-manager/controllers/nodeipam/allocator"
	"github.com/multicidr/controller-manager/controllers/nodeipam/clustercidr"
	"github.com/multicidr/controller-manager/controllers/nodeipam/events"
	. "github.com/multicidr/controller-manager/controllers/nodeipam/internal/objects"
	"github.com/multicidr/controller-manager/controllers/nodeipam/requests"
	"github.com/multicidr/controller-manager/controllers/queues"
)

// audience is an API server that stores what it is sent, and lets events hang for as long as hangs is set.
type audience struct {
	requests.API
	*Controller
	nodes, clusterCIDRs cache.Indexer

	mu       sync.Mutex
	hangs    bool
	stored   map[string]int // events, by subject, reason and message: how often each was written
	newest   map[string]string
	podCIDRs map[string]time.Time // by Node: when they were written
	ready    map[string]string    // by ClusterCIDR: the last status' reason of Ready
}

// newAudience starts a controller with these ClusterCIDRs, all of whose lines work until the test ends, or stop is called, which returns
// when all workers have ended.
func newAudience(t *testing.T, clusterCIDRs ...*networkingv1.ClusterCIDR) (a *audience, stop func()) {
	t.Helper()
	a = &audience{
		nodes: cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{}), clusterCIDRs: cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{}),
		stored: map[string]int{}, newest: map[string]string{}, podCIDRs: map[string]time.Time{}, ready: map[string]string{},
	}
	a.Controller = newController(Config{Workers: 30}, parts{
		api: a, now: time.Now, newQueue: newQueue,
		nodes: corelisters.NewNodeLister(a.nodes), clusterCIDRs: clustercidrlisters.NewClusterCIDRLister(a.clusterCIDRs),
	})
	for _, cc := range clusterCIDRs {
		if err := a.clusterCIDRs.Add(cc); err != nil {
			t.Fatal(err)
		}
	}
	if err := a.readAll(t.Context()); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(klog.NewContext(context.Background(), logr.Discard()))
	var workers sync.WaitGroup
	for _, l := range a.lines() {
		for range l.workers {
			workers.Go(func() { queues.Work(ctx, l.queue, l.sync) })
		}
	}
	stop = sync.OnceFunc(func() {
		cancel()
		for _, l := range a.lines() {
			l.queue.ShutDown()
		}
		workers.Wait()
	})
	t.Cleanup(stop)
	return a, stop
}

func (a *audience) hang(hangs bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.hangs = hangs
}

func (a *audience) CreateEvent(ctx context.Context, e *v1.Event) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.hangs {
		a.mu.Unlock()
		<-ctx.Done()
		a.mu.Lock()
		return ctx.Err()
	}
	key := events.Key(e.InvolvedObject.Kind, e.InvolvedObject.Name, e.Reason)
	a.stored[key+": "+e.Message]++
	a.newest[key] = e.Message
	return nil
}

func (a *audience) PatchNode(_ context.Context, name string, patch []byte) error {
	var p v1.Node
	if err := json.Unmarshal(patch, &p); err != nil {
		return err
	}
	o, _, _ := a.nodes.GetByKey(name)
	n := o.(*v1.Node).DeepCopy()
	n.Spec, n.Annotations = p.Spec, p.Annotations
	a.show(n)
	a.mu.Lock()
	defer a.mu.Unlock()
	a.podCIDRs[name] = time.Now()
	return nil
}

func (a *audience) ApplyStatus(_ context.Context, patch *applyv1.ClusterCIDRApplyConfiguration) (networkingv1.ClusterCIDRStatus, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, c := range patch.Status.Conditions {
		if *c.Type == networkingv1.ConditionReady {
			a.ready[*patch.Name] = *c.Reason
		}
	}
	return storeStatus(a.clusterCIDRs, patch)
}

// show has the informer tell of a Node.
func (a *audience) show(n *v1.Node) {
	_ = a.nodes.Update(n)
	a.nodeEvent(n.Name, nil, n)
}

// all returns how often each event was written.
func (a *audience) all() map[string]int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return maps.Clone(a.stored)
}

// onNodes is all without the events on ClusterCIDRs.
func (a *audience) onNodes() map[string]int {
	all := a.all()
	maps.DeleteFunc(all, func(event string, _ int) bool { return !strings.HasPrefix(event, events.AboutNode) })
	return all
}

// eventsOnly is an API server for events only.
type eventsOnly struct {
	requests.API
	write func(*v1.Event) error
}

func (e eventsOnly) CreateEvent(_ context.Context, event *v1.Event) error { return e.write(event) }

const onlyForX = "None of the 1 ClusterCIDRs selects this Node. Change its labels or create a ClusterCIDR that selects it."

// An API server that lets every request for an event hang keeps nothing else from being written; and once it stores events, each is there, once.
func TestEventsThatHangDelayNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const pending = 3000
		// One block, and it is for one Node: with it the ClusterCIDR is exhausted.
		a, _ := newAudience(t, ClusterCIDR("a", Spec4("10.1.0.0/24", 8, AnyOf(AllOf(In("p", "x"))))))
		a.hang(true)
		for i := range pending {
			a.show(Node(fmt.Sprintf("w%d", i)))
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		start := time.Now()
		a.show(Node("served", Label("p", "x")))
		time.Sleep(2 * statusInterval)
		synctest.Wait()
		if at, ok := a.podCIDRs["served"]; !ok || at.Sub(start) > 0 {
			t.Errorf("the Node that can be served has podCIDRs: %t, after %v; want at once", ok, at.Sub(start))
		}
		if got := a.ready["a"]; got != networkingv1.ReasonExhausted {
			t.Errorf("the status says %q, want %q", got, networkingv1.ReasonExhausted)
		}
		if n := len(a.all()); n > 0 {
			t.Errorf("%d events were stored", n)
		}

		time.Sleep(time.Hour)
		synctest.Wait()
		a.hang(false)
		time.Sleep(2 * eventRetryMax)
		synctest.Wait()
		want := map[string]int{"ClusterCIDR/a/Exhausted: No free block for IPv4. Create another ClusterCIDR, or delete Nodes that are not needed.": 1}
		for i := range pending {
			want[events.Key(events.AboutNode, fmt.Sprintf("w%d", i), events.ReasonNotAvailable)+": "+onlyForX] = 1
		}
		if diff := cmp.Diff(want, a.all()); diff != "" {
			t.Errorf("events once they can be stored (-want +got):\n%s", diff)
		}
		if n := len(a.announcer.since); n > 0 {
			t.Errorf("%d keys are kept of events that are stored", n)
		}
	})
}

// What is not true any more is not said, and of several messages only the newest.
func TestOnlyWhatIsTrueIsSaid(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		full := ClusterCIDR("a", Spec4("10.1.0.0/24", 8, nil))
		a, _ := newAudience(t, full)
		a.hang(true)
		outside := Node("outside", From("a"))
		outside.Spec = v1.NodeSpec{PodCIDR: "10.9.0.0/24", PodCIDRs: []string{"10.9.0.0/24"}}
		inside := Node("inside", From("a")) // in time
		inside.Spec = v1.NodeSpec{PodCIDR: "10.8.0.0/24", PodCIDRs: []string{"10.8.0.0/24"}}
		for _, n := range []*v1.Node{Node("first"), Node("gone"), Node("served"), Node("pending"), Node("again"), outside, inside} {
			a.show(n)
			synctest.Wait()
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		_ = a.nodes.Delete(Node("gone"))
		a.nodeEvent("gone", Node("gone"), nil)
		a.show(Node("again", UID("second")))
		served := Node("served", From("a"))
		served.Spec = v1.NodeSpec{PodCIDR: "10.1.0.0/25", PodCIDRs: []string{"10.1.0.0/25"}} // by somebody else: a conflict with the first
		a.show(served)
		off := full.DeepCopy()
		off.Spec.Allocation = networkingv1.AllocationDisabled
		_ = a.clusterCIDRs.Update(off)
		a.heardOfClusterCIDR("a")
		_ = a.clusterCIDRs.Add(ClusterCIDR("b", Spec4("10.8.0.0/16", 8, AnyOf(AllOf(In("p", "x"))))))
		a.heardOfClusterCIDR("b")
		time.Sleep(time.Minute)
		synctest.Wait()
		a.hang(false)
		time.Sleep(2 * eventRetryMax)
		synctest.Wait()

		var got []string
		for event := range a.all() {
			got = append(got, event[:min(len(event), 80)])
		}
		slices.Sort(got)
		disabled := ": No ClusterCIDR that selects this Node can serve it: a is disabled"
		cut := func(s string) string { return s[:min(len(s), 80)] }
		want := []string{
			cut("Node/again/CIDRNotAvailable" + disabled),
			cut("Node/first/CIDRConflict: podCIDRs [10.1.0.0/24] share addresses with Node served (10.1.0.0/25). Two"),
			cut("Node/outside/CIDROutsideRanges: podCIDRs [10.9.0.0/24] lie in no ClusterCIDR. They stay as they are"),
			cut("Node/pending/CIDRNotAvailable" + disabled),
			cut("Node/served/CIDRConflict: podCIDRs [10.1.0.0/25] share addresses with Node first (10.1.0.0/24). Two"),
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("events (-want +got):\n%s", diff)
		}
		if n := len(a.announcer.since); n > 0 {
			t.Errorf("%d keys are kept of events that are stored, or not to be", n)
		}
	})
}

// A message that becomes another one while the event is on its way is said afterwards, and one that is said already is not said again.
func TestNewerMessageFollows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		full := ClusterCIDR("a", Spec4("10.1.0.0/24", 8, nil))
		off := full.DeepCopy()
		off.Spec.Allocation = networkingv1.AllocationDisabled
		a, _ := newAudience(t, full)
		set := func(cc *networkingv1.ClusterCIDR) {
			_ = a.clusterCIDRs.Update(cc)
			a.heardOfClusterCIDR("a")
			synctest.Wait()
		}
		a.show(Node("first"))
		synctest.Wait()
		a.show(Node("n"))
		time.Sleep(time.Minute)
		synctest.Wait()
		key := events.Key(events.AboutNode, "n", events.ReasonNotAvailable)
		if got := a.newest[key]; got == "" {
			t.Fatal("no event on the Node that is pending")
		}
		before := a.onNodes()
		a.hang(true)
		set(off)
		time.Sleep(time.Minute)
		synctest.Wait()
		set(full)
		a.hang(false)
		time.Sleep(2 * eventRetryMax)
		synctest.Wait()
		if diff := cmp.Diff(before, a.onNodes()); diff != "" {
			t.Errorf("the ClusterCIDR was disabled and enabled again, and no event about that could be stored; then there are other events (-want +got):\n%s", diff)
		}
		set(off)
		time.Sleep(time.Minute)
		synctest.Wait()
		before[key+": "+a.newest[key]] = 1
		if diff := cmp.Diff(before, a.onNodes()); diff != "" || len(before) != 2 {
			t.Errorf("the ClusterCIDR is disabled, and that is not said, or not once (-want +got):\n%s", diff)
		}
	})
}

// Another Node of that name that comes while the event is on its way has one of its own.
func TestEventOfTheNextNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c *Controller
		nodes := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{})
		next := Node("n", UID("second"))
		var said []types.UID
		c = newController(Config{}, parts{api: eventsOnly{write: func(e *v1.Event) error {
			if said = append(said, e.InvolvedObject.UID); len(said) == 1 {
				_ = nodes.Update(next)
				return c.syncNode(t.Context(), "n")
			}
			return nil
		}}, now: time.Now, nodes: corelisters.NewNodeLister(nodes), newQueue: newQueue})
		for _, l := range c.lines() {
			defer l.queue.ShutDown()
		}
		_ = nodes.Add(Node("n"))
		if err := c.syncNode(t.Context(), "n"); err != nil {
			t.Fatal(err)
		}
		queues.WorkOne(t.Context(), c.eventQueue, c.syncEvent)
		if diff := cmp.Diff([]types.UID{Node("n").UID, next.UID}, said); diff != "" {
			t.Errorf("events are about (-want +got):\n%s", diff)
		}
	})
}

// Events let Nodes in the queue pass, but not for ever.
func TestEventsLetNodesPass(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var said []time.Duration
		start := time.Now()
		nodes := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{})
		c := newController(Config{}, parts{
			api: eventsOnly{write: func(*v1.Event) error { said = append(said, time.Since(start)); return nil }}, now: time.Now, nodes: corelisters.NewNodeLister(nodes), newQueue: newQueue,
		})
		for _, l := range c.lines() {
			defer l.queue.ShutDown()
		}
		_ = nodes.Add(Node("n"))
		if err := c.syncNode(t.Context(), "n"); err != nil {
			t.Fatal(err)
		}
		c.nodeQueue.Add("another") // which nobody takes
		for time.Since(start) < 2*eventPatience && len(said) == 0 {
			queues.WorkOne(t.Context(), c.eventQueue, c.syncEvent)
		}
		if diff := cmp.Diff([]time.Duration{eventPatience}, said); diff != "" {
			t.Errorf("when the event is written while a Node is in the queue (-want +got):\n%s", diff)
		}
	})
}

// A process that ends does not wait for an event.
func TestEventsEndWithTheProcess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, stop := newAudience(t, ClusterCIDR("a", Spec4("10.1.0.0/24", 8, AnyOf(AllOf(In("p", "x"))))))
		a.hang(true)
		for i := range 10 {
			a.show(Node(fmt.Sprintf("w%d", i)))
		}
		synctest.Wait()
		start := time.Now()
		stop()
		if took := time.Since(start); took > 0 {
			t.Errorf("the workers end after %v, want at once", took)
		}
	})
}

// An event that cannot be stored is tried ever more rarely, and the log says it once.
func TestEventsThatAreRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var tried []time.Time
		nodes := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{})
		c := newController(Config{}, parts{
			api: eventsOnly{write: func(*v1.Event) error { tried = append(tried, time.Now()); return errors.New("no space") }}, now: time.Now, nodes: corelisters.NewNodeLister(nodes), newQueue: newQueue,
		})
		for _, l := range c.lines() {
			defer l.queue.ShutDown()
		}
		_ = nodes.Add(Node("n"))
		if err := c.syncNode(t.Context(), "n"); err != nil {
			t.Fatal(err)
		}
		const tries = 16
		for len(tried) < tries {
			queues.WorkOne(klog.NewContext(t.Context(), logr.Discard()), c.eventQueue, c.syncEvent)
		}
		if got := tried[tries-1].Sub(tried[tries-2]); got != eventRetryMax {
			t.Errorf("the last pause is %v, want %v", got, eventRetryMax)
		}
		// Another reason to be pending changes nothing about that.
		c.with(func(b *allocator.State) {
			b.SetPool(clustercidr.Compile(ClusterCIDR("a", Spec4("10.1.0.0/24", 8, AnyOf(AllOf(In("p", "x")))))))
		})
		if err := c.syncNode(t.Context(), "n"); err != nil {
			t.Fatal(err)
		}
		if n := c.eventQueue.Len(); n > 0 {
			t.Error("the event is tried again at once because there is something else to say")
		}
	})
}

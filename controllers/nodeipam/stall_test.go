package nodeipam

import (
	"fmt"
	"net/netip"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	clustercidrlisters "github.com/multicidr/controller-manager/apis/generated/listers/networking/v1"
	networkingv1 "github.com/multicidr/controller-manager/apis/networking/v1"
	"github.com/multicidr/controller-manager/controllers/nodeipam/allocator"
	"github.com/multicidr/controller-manager/controllers/nodeipam/clustercidr"
	. "github.com/multicidr/controller-manager/controllers/nodeipam/internal/objects"
	"github.com/multicidr/controller-manager/controllers/nodeipam/internal/testapi"
	"github.com/multicidr/controller-manager/controllers/text"
)

// meter is a lock that notes how often memory was asked for while it was held.
type meter struct {
	sync.Mutex
	since uint64
	most  uint64
}

func (m *meter) Lock() {
	m.Mutex.Lock()
	m.since = allocations()
}

func (m *meter) Unlock() {
	m.most = max(m.most, allocations()-m.since)
	m.Mutex.Unlock()
}

func allocations() uint64 {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.Mallocs
}

// What is done with the lock held does not grow with what one object has in it: ten times as much in it makes no difference. Counted are
// allocations, of which each value that is read, sorted or indexed makes at least one; timings are for BenchmarkOneLargeObject.
func TestLargeObjectsAreReadWithoutTheLock(t *testing.T) {
	const some, many = 3_000, 30_000
	terms := func(operator v1.NodeSelectorOperator) func(int) *networkingv1.ClusterCIDR {
		return func(n int) *networkingv1.ClusterCIDR {
			return ClusterCIDR("large", Spec4("10.0.0.0/8", 8, SmallTerms(n, operator)))
		}
	}
	small := ClusterCIDR("small", Spec4("10.0.0.0/8", 8, nil))
	// underLock shows an object, chooses for a Node, and changes and deletes the object.
	underLock := func(cc *networkingv1.ClusterCIDR, n *v1.Node) uint64 {
		town := newTown(t)
		town.state.SetPool(clustercidr.Compile(small))
		town.filled.Store(true)
		m := &meter{}
		town.mu = m
		do := func(err error) {
			if err != nil {
				t.Fatal(err)
			}
		}
		for i := range 2 {
			if cc != nil {
				cc = cc.DeepCopy()
				cc.Spec.Priority++
				do(town.clusterCIDRs.Update(cc))
				town.heardOfClusterCIDR(cc.Name)
				town.with(func(b *allocator.State) { b.Reserve(Node("waits", Label("b", "1"))) })
				town.statusOf(cc)
			}
			if n != nil {
				n = n.DeepCopy()
				n.Status.Addresses[0].Address = fmt.Sprint("10.255.255.", i)
				do(town.nodes.Update(n))
				town.heardOfNode(n.Name, nil, n)
				town.statusOf(small)
			}
		}
		if cc != nil {
			do(town.clusterCIDRs.Delete(cc))
			town.heardOfClusterCIDR(cc.Name)
		}
		if n != nil {
			do(town.nodes.Delete(n))
			town.heardOfNode(n.Name, nil, n)
		}
		return m.most
	}
	for what, of := range map[string]func(n int) (*networkingv1.ClusterCIDR, *v1.Node){
		"values of one requirement": func(n int) (*networkingv1.ClusterCIDR, *v1.Node) {
			return ClusterCIDR("large", Spec4("10.0.0.0/8", 8, OneRequirement(n, v1.NodeSelectorOpIn))), nil
		},
		"terms that ask for a value": func(n int) (*networkingv1.ClusterCIDR, *v1.Node) { return terms(v1.NodeSelectorOpIn)(n), nil },
		"terms that exclude a value": func(n int) (*networkingv1.ClusterCIDR, *v1.Node) { return terms(v1.NodeSelectorOpNotIn)(n), nil },
		"unreadable exclusions": func(n int) (*networkingv1.ClusterCIDR, *v1.Node) {
			cc := ClusterCIDR("large", Spec4("10.0.0.0/8", 8, nil))
			for i := range n {
				cc.Spec.ExcludedCIDRs = append(cc.Spec.ExcludedCIDRs, fmt.Sprint("x", i))
			}
			return cc, nil
		},
		"conditions of others": func(n int) (*networkingv1.ClusterCIDR, *v1.Node) {
			cc := ClusterCIDR("large", Spec4("10.0.0.0/8", 8, nil))
			for i := range n {
				cc.Status.Conditions = append(cc.Status.Conditions, metav1.Condition{Type: fmt.Sprint("Of", i)})
			}
			return cc, nil
		},
		"addresses of a Node": func(n int) (*networkingv1.ClusterCIDR, *v1.Node) { return nil, Node("large", ManyAddresses(n)) },
	} {
		// Of three tries the best, because others in this process ask for memory, too.
		fewest := func(n int) uint64 {
			cc, node := of(n)
			return slices.Min([]uint64{underLock(cc, node), underLock(cc, node), underLock(cc, node)})
		}
		if few, more := fewest(some), fewest(many); more > few+few/2+100 {
			t.Errorf("%s: with %d of them %d allocations with the lock held, with %d of them %d", what, some, few, many, more)
		}
	}
}

// What is wrong with an object is said in a message of bounded length, however much it is: each Node that waits for it repeats it.
func TestProblemIsShort(t *testing.T) {
	cc := ClusterCIDR("a", Spec4("10.0.0.0/8", 8, nil))
	for i := range 10_000 {
		cc.Spec.ExcludedCIDRs = append(cc.Spec.ExcludedCIDRs, fmt.Sprint("ä", i))
	}
	p := clustercidr.Compile(cc)
	if len(p.Problem) > text.MaxProblem+10 || !strings.HasPrefix(p.Problem, "spec.excludedCIDRs: ") {
		t.Errorf("%d bytes: %s", len(p.Problem), p.Problem)
	}
}

// TestManyExclusions adds and removes exclusions of very many: what is given in the end is what one would expect.
func TestManyExclusions(t *testing.T) {
	b := allocator.New()
	cc := ClusterCIDR("a", Spec4("10.0.0.0/16", 8, nil))
	for i := range 256 {
		if i != 7 && i != 9 {
			cc.Spec.ExcludedCIDRs = append(cc.Spec.ExcludedCIDRs, fmt.Sprintf("10.0.%d.0/32", i))
		}
	}
	b.SetPool(clustercidr.Compile(cc))
	b.Changes()
	free := func() int64 { status, _ := b.Status(cc); return status.IPv4.Free }
	if got := free(); got != 2 {
		t.Errorf("%d blocks are free, want 2", got)
	}
	b.Changes()
	cc = cc.DeepCopy()
	cc.Spec.ExcludedCIDRs = cc.Spec.ExcludedCIDRs[1:]
	b.SetPool(clustercidr.Compile(cc))
	if e := b.Changes(); !slices.Equal(e.ClusterCIDRs, []string{"a"}) {
		t.Errorf("an exclusion less concerns %q", e.ClusterCIDRs)
	}
	if got := free(); got != 3 {
		t.Errorf("%d blocks are free, want 3", got)
	}
	if r, _, ok := b.Reserve(Node("n")); !ok || !slices.Equal(r.Blocks, []netip.Prefix{Pfx("10.0.0.0/24")}) {
		t.Errorf("reserved %v, %v", r.Blocks, ok)
	}
}

// whileRead calls a function whenever a ClusterCIDR is read from the cache.
type whileRead struct {
	clustercidrlisters.ClusterCIDRLister
	then func()
}

func (l whileRead) Get(name string) (*networkingv1.ClusterCIDR, error) {
	l.then()
	return l.ClusterCIDRLister.Get(name)
}

func (l whileRead) List(selector labels.Selector) ([]*networkingv1.ClusterCIDR, error) {
	l.then()
	return l.ClusterCIDRLister.List(selector)
}

// From the look at a ClusterCIDR until what it says is entered nobody else looks, who could enter something newer in between.
func TestClusterCIDRNeverGetsOlder(t *testing.T) {
	s := &testapi.Server{Gate: &testapi.Gate{}}
	c := controllerOf(t, s, ClusterCIDR("a", Spec4("10.0.0.0/16", 8, nil)))
	c.nodes = nodesWhileListed{then: func() {}}
	looks := 0
	c.clusterCIDRs = whileRead{c.clusterCIDRs, func() {
		if looks++; c.entering.TryLock() {
			c.entering.Unlock()
			t.Error("another one could look at the same time")
		}
	}}
	if err := c.readAll(t.Context()); err != nil {
		t.Fatal(err)
	}
	c.heardOfClusterCIDR("a")
	if err := c.syncClusterCIDR(t.Context(), "a"); err != nil {
		t.Fatal(err)
	}
	if looks != 3 {
		t.Errorf("%d looks, want 3", looks)
	}
}

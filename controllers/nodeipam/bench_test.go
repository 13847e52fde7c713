package nodeipam

import (
	"fmt"
	"maps"
	"math/bits"
	"math/rand/v2"
	"net/netip"
	"runtime"
	"runtime/metrics"
	"slices"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"

	clustercidrlisters "github.com/multicidr/controller-manager/apis/generated/listers/networking/v1"
	networkingv1 "github.com/multicidr/controller-manager/apis/networking/v1"
	"github.com/multicidr/controller-manager/controllers/nodeipam/allocator"
	"github.com/multicidr/controller-manager/controllers/nodeipam/clustercidr"
	. "github.com/multicidr/controller-manager/controllers/nodeipam/internal/objects"
)

// These benchmarks measure what the controller does between an event and its PATCH, with all that it does then: what the cache shows is
// entered, a pool is chosen, blocks are held, and whom that concerns is queued. `make bench` runs them and holds the figures against
// the marks. What is after "=" in a name it takes as a number.

// town is a controller that talks to nobody, with its caches.
type town struct {
	*Controller
	nodes, clusterCIDRs cache.Indexer
}

func newTown(b testing.TB) *town {
	b.Helper()
	t := &town{
		nodes:        cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{}),
		clusterCIDRs: cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{}),
	}
	t.Controller = newController(Config{Workers: 1}, parts{
		now:          time.Now,
		nodes:        corelisters.NewNodeLister(t.nodes),
		clusterCIDRs: clustercidrlisters.NewClusterCIDRLister(t.clusterCIDRs),
		newQueue:     newQueue,
	})
	b.Cleanup(func() {
		for _, l := range t.lines() {
			l.queue.ShutDown()
		}
	})
	return t
}

// settle fills the state from the caches, as at the start, and forgets what comes of that.
func (t *town) settle(b *testing.B) {
	b.Helper()
	if err := t.fill(b.Context(), t.state); err != nil {
		b.Fatal(err)
	}
	t.filled.Store(true)
	t.state.Changes()
	runtime.GC()
}

// choose does what syncNode does before its PATCH.
func (t *town) choose(b *testing.B, name string) allocator.Reservation {
	var r allocator.Reservation
	served := false
	t.with(func(book *allocator.State) {
		node, err := t.observeNode(book, name)
		if err != nil || node == nil {
			b.Fatalf("Node %s cannot be looked at: %v", name, err)
		}
		r, served, _ = book.Allocate(node)
	})
	if !served {
		b.Fatalf("Node %s is not served", name)
	}
	return r
}

// arrives shows a Node, measures how it is given blocks and how they are confirmed, and leaves it there.
func (t *town) arrives(b *testing.B, n *v1.Node, choose, confirm *timings) allocator.Reservation {
	t.put(b, n)
	start := time.Now()
	r := t.choose(b, n.Name)
	choose.since(start)

	served := n.DeepCopy()
	showsReserved(served, r)
	t.put(b, served)
	start = time.Now()
	t.heardOfNode(n.Name, nil, n)
	confirm.since(start)
	return r
}

func (t *town) leaves(b *testing.B, n *v1.Node) {
	if err := t.nodes.Delete(n); err != nil {
		b.Fatal(err)
	}
	t.heardOfNode(n.Name, n, nil)
	if _, known := t.state.Node(n.Name); known {
		b.Fatalf("Node %s is gone, and still holds something", n.Name)
	}
}

func (t *town) put(b *testing.B, n *v1.Node) {
	if err := t.nodes.Update(n); err != nil {
		b.Fatal(err)
	}
}

// showsReserved writes a reservation into a Node, as its PATCH does.
func showsReserved(n *v1.Node, r allocator.Reservation) {
	n.Spec.PodCIDRs = Texts(r.Blocks)
	n.Spec.PodCIDR = n.Spec.PodCIDRs[0]
	From(r.ClusterCIDR)(n)
}

// townCIDRs are side by side from 10.0.0.0 on, each with its own IPv6 range, and for the Nodes of one pool of machines. Together they fill a /8, or
// more if a million Nodes need it.
func townCIDRs(n int) (all []*networkingv1.ClusterCIDR) {
	hostBits := max(24-bits.Len(uint(n-1)), 11)
	ipv6 := int32(64)
	for i := range n {
		at := 10<<24 + i<<hostBits
		all = append(all, ClusterCIDR(fmt.Sprintf("range-%04d", i), networkingv1.ClusterCIDRSpec{
			IPv4: fmt.Sprintf("%d.%d.%d.%d/%d", at>>24, at>>16&255, at>>8&255, at&255, 32-hostBits), PerNodeHostBits: 4,
			IPv6: fmt.Sprintf("fd00:%x::/32", i), IPv6PerNodeHostBits: &ipv6,
			NodeSelector: AnyOf(AllOf(In("kubernetes.io/os", "linux"), In("example.com/pool", fmt.Sprintf("pool-%04d", i)))),
		}))
	}
	return all
}

// townNode is the i-th Node, with the labels and addresses that a cloud gives it; Nodes come from n pools of machines in turn.
func townNode(i, n int) *v1.Node {
	name := fmt.Sprintf("worker-%06d", i)
	node := Node(name, UID(types.UID(fmt.Sprintf("%08x-5a3c-4d1e-9b7f-0123456789ab", i))))
	node.Labels = map[string]string{
		"beta.kubernetes.io/arch":                  "amd64",
		"beta.kubernetes.io/os":                    "linux",
		"example.com/pool":                         fmt.Sprintf("pool-%04d", i%n),
		"example.com/rack":                         fmt.Sprint(i%n + 1),
		"failure-domain.beta.kubernetes.io/region": "eu-central-1",
		"failure-domain.beta.kubernetes.io/zone":   fmt.Sprint("eu-central-1", string(rune('a'+i%3))),
		"kubernetes.io/arch":                       "amd64",
		"kubernetes.io/hostname":                   name,
		"kubernetes.io/os":                         "linux",
		"node-role.kubernetes.io/worker":           "",
		"node.kubernetes.io/instance-type":         "m7.2xlarge",
		"topology.kubernetes.io/region":            "eu-central-1",
		"topology.kubernetes.io/zone":              fmt.Sprint("eu-central-1", string(rune('a'+i%3))),
	}
	node.Status.Addresses = []v1.NodeAddress{
		{Type: v1.NodeInternalIP, Address: fmt.Sprintf("172.%d.%d.%d", 16+i>>16, i>>8&255, i&255)},
		{Type: v1.NodeInternalIP, Address: fmt.Sprintf("2001:db8::%x:%x", i>>16, i&0xffff)},
		{Type: v1.NodeHostName, Address: name},
	}
	return node
}

// populate puts ClusterCIDRs and so many Nodes that they have served into the caches, as after a restart.
func (t *town) populate(b *testing.B, nodes int, clusterCIDRs []*networkingv1.ClusterCIDR) {
	b.Helper()
	before := allocator.New() // the process before, which served them
	for _, cc := range clusterCIDRs {
		before.SetPool(clustercidr.Compile(cc))
		if err := t.clusterCIDRs.Add(cc); err != nil {
			b.Fatal(err)
		}
	}
	for i := range nodes {
		n := townNode(i, len(clusterCIDRs))
		r, _, ok := before.Reserve(n)
		if !ok {
			b.Fatalf("Node %s is not served", n.Name)
		}
		showsReserved(n, r)
		t.put(b, n)
	}
}

// BenchmarkCore is what make bench runs.
func BenchmarkCore(b *testing.B) {
	b.Run("clock", benchmarkClock)
	b.Run("serve", benchmarkServe)
	b.Run("layout", benchmarkLayouts)
	b.Run("full", benchmarkFull)
	b.Run("apply", benchmarkApply)
	b.Run("rebuild", benchmarkRebuild)
	b.Run("heap", benchmarkHeap)
	benchmarkMillion(b)
}

// benchmarkClock measures what every timing has in it that is not the operation's.
func benchmarkClock(b *testing.B) {
	var clock timings
	for b.Loop() {
		clock.since(time.Now())
	}
	clock.report(b, "clock")
}

// benchmarkServe measures one Node that comes and goes among many.
func benchmarkServe(b *testing.B) {
	for _, nodes := range []int{1_000, 15_000, 100_000} {
		for _, clusterCIDRs := range []int{1, 50, 1_000, 10_000} {
			b.Run(sized(nodes, clusterCIDRs), func(b *testing.B) {
				t := newTown(b)
				t.populate(b, nodes, townCIDRs(clusterCIDRs))
				t.settle(b)
				t.turnover(b, func(i int) *v1.Node { return townNode(nodes+i, clusterCIDRs) })
			})
		}
	}
	// All were pending at the start.
	b.Run("after many/"+sized(15_000, 1), func(b *testing.B) {
		t := newTown(b)
		t.populate(b, 0, townCIDRs(1))
		for i := range 15_000 {
			t.put(b, townNode(i, 1))
		}
		t.settle(b)
		t.turnover(b, func(i int) *v1.Node { return townNode(15_000+i, 1) })
	})
}

func sized(nodes, clusterCIDRs int) string {
	return fmt.Sprintf("nodes=%d/clusterCIDRs=%d", nodes, clusterCIDRs)
}

// benchmarkLayouts is benchmarkServe with ranges and selectors that make the choice harder.
func benchmarkLayouts(b *testing.B) {
	const nodes = 15_000
	ipv6 := func(cidr string, hostBits int32) networkingv1.ClusterCIDRSpec {
		return networkingv1.ClusterCIDRSpec{IPv6: cidr, PerNodeHostBits: hostBits}
	}
	mixed := func(n int, spec func(i int) networkingv1.ClusterCIDRSpec) (all []*networkingv1.ClusterCIDR) {
		for i := range n {
			all = append(all, ClusterCIDR(fmt.Sprintf("range-%04d", i), spec(i)))
		}
		return all
	}
	for _, l := range []struct {
		name         string
		clusterCIDRs []*networkingv1.ClusterCIDR
	}{
		{"a 8 of 28s", mixed(1, func(int) networkingv1.ClusterCIDRSpec { return Spec4("10.0.0.0/8", 4, nil) })},
		{"an IPv6 32 of 64s", mixed(1, func(int) networkingv1.ClusterCIDRSpec { return ipv6("fd00::/32", 64) })},
		{"blocks of 8 sizes in the same addresses", mixed(8, func(i int) networkingv1.ClusterCIDRSpec {
			return Spec4("10.0.0.0/8", int32(4+i), AnyOf(AllOf(In("example.com/pool", fmt.Sprintf("pool-%04d", i)))))
		})},
		{"all match, all but the last are full", mixed(1_000, func(i int) networkingv1.ClusterCIDRSpec {
			if i == 999 {
				return Spec4("11.0.0.0/8", 4, nil)
			}
			return Spec4(fmt.Sprintf("10.%d.%d.0/28", i/256, i%256), 4, nil)
		})},
		{"numbers in selectors, not indexed", mixed(1_000, func(i int) networkingv1.ClusterCIDRSpec {
			return Spec4(fmt.Sprintf("10.%d.%d.0/18", i/4, i%4*64), 4, AnyOf(AllOf(
				v1.NodeSelectorRequirement{Key: "example.com/rack", Operator: v1.NodeSelectorOpGt, Values: []string{fmt.Sprint(i)}},
				v1.NodeSelectorRequirement{Key: "example.com/rack", Operator: v1.NodeSelectorOpLt, Values: []string{fmt.Sprint(i + 2)}})))
		})},
	} {
		b.Run(l.name+"/"+sized(nodes, len(l.clusterCIDRs)), func(b *testing.B) {
			t := newTown(b)
			t.populate(b, nodes, l.clusterCIDRs)
			t.settle(b)
			t.turnover(b, func(i int) *v1.Node { return townNode(nodes+i, len(l.clusterCIDRs)) })
		})
	}
}

// benchmarkFull measures a /8 of /28s of which one block in ten thousand is free.
func benchmarkFull(b *testing.B) {
	const blocks = 1 << 20
	const free = blocks / 10_000
	full := func(b *testing.B) (*town, []int) {
		t := newTown(b)
		t.state.SetPool(clustercidr.Compile(ClusterCIDR("full", Spec4("10.0.0.0/8", 4, nil))))
		order := rand.New(rand.NewPCG(0, 0)).Perm(blocks)
		for _, i := range order[free:] {
			t.state.Observe(held(i), []netip.Prefix{block28(i)}, nil)
		}
		t.filled.Store(true)
		t.state.Changes()
		runtime.GC()
		return t, order[free:]
	}
	// A Node comes, then some other one goes, so that the free blocks are always others.
	b.Run("turnover/"+sized(blocks-free, 1), func(b *testing.B) {
		t, there := full(b)
		var choose, confirm timings
		d := rand.New(rand.NewPCG(0, 0))
		for i := blocks; b.Loop(); i++ {
			t.arrives(b, held(i), &choose, &confirm)
			j := d.IntN(len(there))
			t.leaves(b, held(there[j]))
			there[j] = i
		}
		choose.report(b, "choose")
		confirm.report(b, "confirm")
	})
	// A Node comes and goes, so that each free block is given in its turn, again and again. The shortest time of each is what it takes
	// without what else the machine does, so the longest of these is the worst place that a free block can have.
	b.Run("in turn/"+sized(blocks-free, 1), func(b *testing.B) {
		t, _ := full(b)
		shortest := map[netip.Prefix]float64{}
		n := townNode(blocks, 1)
		for b.Loop() {
			var choose, confirm timings
			r := t.arrives(b, n, &choose, &confirm)
			t.leaves(b, n)
			best, ok := shortest[r.Blocks[0]]
			if ns := choose.ns[0]; !ok || ns < best {
				shortest[r.Blocks[0]] = ns
			}
		}
		turns := timings{ns: slices.Collect(maps.Values(shortest))}
		turns.report(b, "turn")
	})
}

// block28 is the i-th /28 of 10.0.0.0/8.
func block28(i int) netip.Prefix {
	at := uint32(10)<<24 | uint32(i)<<4
	return netip.PrefixFrom(netip.AddrFrom4([4]byte{byte(at >> 24), byte(at >> 16), byte(at >> 8), byte(at)}), 28)
}

// held is the i-th of very many Nodes of which little is known.
func held(i int) *v1.Node {
	return &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("worker-%07d", i), UID: types.UID(fmt.Sprintf("%08x-5a3c-4d1e-9b7f-0123456789ab", i))}}
}

// turnover measures Nodes that come and go, one after the other. Some have done so before, until the process has the memory that it
// needs for that, which two garbage collections tell: each page that the kernel gives it for the first time costs more than a choice.
func (t *town) turnover(b *testing.B, node func(i int) *v1.Node) {
	b.Helper()
	i := 0
	next := func(choose, confirm *timings) {
		n := node(i)
		i++
		t.arrives(b, n, choose, confirm)
		t.leaves(b, n)
	}
	var ignored, choose, confirm timings
	for collected := collections(); i < 200_000 && collections() < collected+2; { // which never come with GOGC=off, and late with a million Nodes
		next(&ignored, &ignored)
	}
	for b.Loop() {
		next(&choose, &confirm)
	}
	choose.report(b, "choose")
	confirm.report(b, "confirm")
}

// collections returns how many garbage collections have ended.
func collections() uint64 {
	sample := []metrics.Sample{{Name: "/gc/cycles/total:gc-cycles"}}
	metrics.Read(sample)
	return sample[0].Value.Uint64()
}

// timings are those of single operations.
type timings struct{ ns []float64 }

func (t *timings) since(start time.Time) {
	d := time.Since(start)
	if t.ns == nil {
		t.ns = make([]float64, 0, 1<<10)
	}
	t.ns = append(t.ns, float64(d.Nanoseconds()))
}

// report reports all of them, as they are: also those that a garbage collection or another process has made longer.
func (t *timings) report(b *testing.B, name string) {
	slices.Sort(t.ns)
	sum := 0.0
	for _, ns := range t.ns {
		sum += ns
	}
	b.ReportMetric(sum/float64(len(t.ns)), name+"-mean-ns")
	b.ReportMetric(t.ns[len(t.ns)/2], name+"-p50-ns")
	b.ReportMetric(t.ns[len(t.ns)*99/100], name+"-p99-ns")
	b.ReportMetric(t.ns[len(t.ns)-1], name+"-max-ns")
	b.ReportMetric(0, "ns/op") // which would have what is around them, too
}

// benchmarkRebuild measures the start of a new leader: what its caches have becomes the state.
func benchmarkRebuild(b *testing.B) {
	for _, nodes := range []int{1_000, 10_000, 100_000} {
		for _, clusterCIDRs := range []int{1, 1_000, 10_000} {
			b.Run(sized(nodes, clusterCIDRs), func(b *testing.B) {
				t := newTown(b)
				t.populate(b, nodes, townCIDRs(clusterCIDRs))
				t.rebuild(b)
			})
		}
	}
}

func (t *town) rebuild(b *testing.B) {
	var rebuild timings
	for b.Loop() {
		book := allocator.New()
		t.selectors = clustercidr.SelectorCache{}
		runtime.GC()
		start := time.Now()
		if err := t.fill(b.Context(), book); err != nil {
			b.Fatal(err)
		}
		rebuild.since(start)
	}
	rebuild.report(b, "rebuild")
}

// benchmarkHeap measures what the state keeps for its Nodes. Their names and UIDs are those of the cached objects.
func benchmarkHeap(b *testing.B) {
	for _, nodes := range []int{1_000, 10_000, 100_000} {
		for _, clusterCIDRs := range []int{1_000, 10_000} {
			b.Run(sized(nodes, clusterCIDRs), func(b *testing.B) {
				t := newTown(b)
				t.populate(b, nodes, townCIDRs(clusterCIDRs))
				t.heap(b, nodes)
			})
		}
	}
}

func (t *town) heap(b *testing.B, nodes int) {
	var heap float64
	for b.Loop() {
		heap = -heapInUse()
		book := allocator.New()
		if err := t.fill(b.Context(), book); err != nil {
			b.Fatal(err)
		}
		heap += heapInUse()
		runtime.KeepAlive(book)
	}
	b.ReportMetric(heap, "heap-B")
	b.ReportMetric(heap/float64(nodes), "heap-B/Node")
	b.ReportMetric(0, "ns/op")
}

// benchmarkMillion measures the same three with a million Nodes: ten times as many as Kubernetes supports are in no cluster, but they show how
// everything grows. The cached objects take gigabytes, so they are made once.
func benchmarkMillion(b *testing.B) {
	const nodes, clusterCIDRs = 1_000_000, 10_000
	var t *town
	run := func(name string, f func(b *testing.B)) {
		b.Run(name+"/"+sized(nodes, clusterCIDRs), func(sub *testing.B) {
			if t == nil {
				t = newTown(b)
				t.populate(sub, nodes, townCIDRs(clusterCIDRs))
				sub.ResetTimer()
			}
			f(sub)
		})
	}
	run("rebuild", func(b *testing.B) { t.rebuild(b) })
	run("heap", func(b *testing.B) { t.heap(b, nodes) })
	run("serve", func(b *testing.B) {
		t.settle(b)
		t.turnover(b, func(i int) *v1.Node { return townNode(nodes+i, clusterCIDRs) })
	})
}

func heapInUse() float64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return float64(m.HeapAlloc)
}

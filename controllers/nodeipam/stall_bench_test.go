package nodeipam

import (
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	networkingv1 "github.com/multicidr/controller-manager/apis/networking/v1"
	"github.com/multicidr/controller-manager/controllers/nodeipam/allocator"
	"github.com/multicidr/controller-manager/controllers/nodeipam/conditions"
	. "github.com/multicidr/controller-manager/controllers/nodeipam/internal/objects"
	. "github.com/multicidr/controller-manager/controllers/nodeipam/internal/steps"
)

// stopwatch is a lock that notes for how long it was held.
type stopwatch struct {
	sync.Mutex
	since   time.Time
	longest time.Duration
}

func (s *stopwatch) Lock() {
	s.Mutex.Lock()
	s.since = time.Now()
}

func (s *stopwatch) Unlock() {
	s.longest = max(s.longest, time.Since(s.since))
	s.Mutex.Unlock()
}

// largeObject is one object that is as large as it can be, and what happens to it.
type largeObject struct {
	name string
	// ranges are how many ClusterCIDRs with 10.0.0.0/8 there are beside it.
	ranges int
	run    func(b *testing.B, t *town, took func(what string, event func()))
}

func (t *town) putClusterCIDR(b *testing.B, cc *networkingv1.ClusterCIDR) {
	if err := t.clusterCIDRs.Update(cc); err != nil {
		b.Fatal(err)
	}
	t.heardOfClusterCIDR(cc.Name)
}

func (t *town) putNode(b *testing.B, before any, now *v1.Node) {
	t.put(b, now)
	t.nodeEvent(now.Name, before, now)
}

// statusOf is what syncStatus does with the lock held.
func (t *town) statusOf(cc *networkingv1.ClusterCIDR) {
	t.with(func(b *allocator.State) {
		if want, known := b.Status(cc); known {
			conditions.Shows(cc.Status, want)
		}
	})
}

func largeObjects() (all []largeObject) {
	serves := func(t *town, name string) {
		n := Node(name, Label("a", "1"), Label("example.com/k1", "1"))
		if err := t.nodes.Update(n); err != nil {
			panic(err)
		}
		t.with(func(book *allocator.State) {
			if n, err := t.observeNode(book, name); err == nil {
				book.Allocate(n)
			}
		})
	}
	for _, addresses := range []int{1_000, 30_000} {
		for _, ranges := range []int{1, 10} {
			all = append(all, largeObject{fmt.Sprintf("Node/addresses=%d/ranges=%d", addresses, ranges), ranges, func(b *testing.B, t *town, took func(string, func())) {
				first := Node("large", ManyAddresses(addresses))
				took("first", func() { t.putNode(b, nil, first) })
				second := first.DeepCopy()
				second.Status.Addresses[0].Address = "10.255.255.255"
				took("one-address", func() { t.putNode(b, first, second) })
				same := second.DeepCopy()
				took("nothing", func() { t.putNode(b, second, same) })
				took("status", func() { t.statusOf(ClusterCIDR("range-0", Spec4("10.0.0.0/8", 8, nil))) })
				took("gone", func() { t.leaves(b, same) })
			}})
		}
	}
	selectors := []struct {
		name     string
		selector *v1.NodeSelector
	}{
		// What the CRD takes: 1.5 MB of it is what etcd stores.
		{"values=200000/terms=64x64", InTerms(200_000)},
		// What another CRD may have taken.
		{"values=200000/terms=1", OneRequirement(200_000, v1.NodeSelectorOpIn)},
		{"not-values=200000/terms=1", OneRequirement(200_000, v1.NodeSelectorOpNotIn)},
		{"values=20000/terms=20000", SmallTerms(20_000, v1.NodeSelectorOpIn)},
		{"not-values=20000/terms=20000", SmallTerms(20_000, v1.NodeSelectorOpNotIn)},
	}
	for _, s := range selectors {
		all = append(all, largeObject{"selector/" + s.name, 1, func(b *testing.B, t *town, took func(string, func())) {
			cc := ClusterCIDR("large", Spec4("10.0.0.0/8", 8, s.selector))
			took("create", func() { t.putClusterCIDR(b, cc) })
			took("first-choice", func() { serves(t, "n1") })
			took("next-choice", func() { serves(t, "n2") })
			updated := cc.DeepCopy()
			updated.Spec.Priority = 1
			took("update", func() { t.putClusterCIDR(b, updated) })
			took("choice-after-update", func() { serves(t, "n3") })
			took("same", func() { t.putClusterCIDR(b, updated.DeepCopy()) })
			took("node-event", func() { n := Node("n3", Label("a", "1")); t.putNode(b, n, n) })
			took("status", func() { t.statusOf(updated) })
			if err := t.clusterCIDRs.Delete(updated); err != nil {
				b.Fatal(err)
			}
			took("gone", func() { t.heardOfClusterCIDR("large") })
			took("choice-after-it", func() { serves(t, "n4") })
		}})
	}
	for _, n := range []int{1_000, 10_000} {
		for _, ranges := range []int{1, 10} {
			all = append(all, largeObject{fmt.Sprintf("excludedCIDRs=%d/ranges=%d", n, ranges), ranges, func(b *testing.B, t *town, took func(string, func())) {
				for _, cc := range clusterCIDRsOf(t) {
					t.statusOf(cc) // from then on the ledger counts
				}
				cc := ClusterCIDR("large", Spec4("10.0.0.0/8", 8, nil))
				cc.Spec.ExcludedCIDRs = ManyExclusions(n)
				took("create", func() { t.putClusterCIDR(b, cc) })
				took("status", func() { t.statusOf(cc) })
				more := cc.DeepCopy()
				more.Spec.ExcludedCIDRs = slices.Insert(more.Spec.ExcludedCIDRs, n/2, "10.1.2.3/32")
				took("one-more", func() { t.putClusterCIDR(b, more) })
				less := more.DeepCopy()
				less.Spec.ExcludedCIDRs = slices.Delete(less.Spec.ExcludedCIDRs, n/3, n/3+1)
				took("one-less", func() { t.putClusterCIDR(b, less) })
				took("choice", func() { serves(t, "n1") })
				none := less.DeepCopy()
				none.Spec.ExcludedCIDRs = nil
				took("none-left", func() { t.putClusterCIDR(b, none) })
				took("all-again", func() { t.putClusterCIDR(b, less) })
				if err := t.clusterCIDRs.Delete(less); err != nil {
					b.Fatal(err)
				}
				took("gone", func() { t.heardOfClusterCIDR("large") })
			}})
		}
	}
	all = append(all, largeObject{"conditions=5000", 1, func(b *testing.B, t *town, took func(string, func())) {
		cc := ClusterCIDR("large", Spec4("10.0.0.0/8", 8, nil))
		for i := range 5_000 {
			cc.Status.Conditions = append(cc.Status.Conditions, metav1.Condition{Type: fmt.Sprint("Of", i), Status: metav1.ConditionTrue, Reason: "Reason", Message: fmt.Sprintf("%150d", i)})
		}
		took("create", func() { t.putClusterCIDR(b, cc) })
		took("status", func() { t.statusOf(cc) })
	}})
	return all
}

func clusterCIDRsOf(t *town) (all []*networkingv1.ClusterCIDR) {
	for _, o := range t.clusterCIDRs.List() {
		all = append(all, o.(*networkingv1.ClusterCIDR))
	}
	return all
}

// BenchmarkOneLargeObject measures for how long each event of an object that is as large as it can be holds the lock, in a cluster of 1,000
// Nodes: the shortest of all turns, which is what it takes without what else the machine does. An event may take the lock more than once; the
// longest time counts.
func BenchmarkOneLargeObject(b *testing.B) {
	for _, o := range largeObjects() {
		b.Run(o.name, func(b *testing.B) {
			shortest := map[string]time.Duration{}
			for b.Loop() {
				t := newTown(b)
				var ranges []*networkingv1.ClusterCIDR
				for i := range o.ranges {
					ranges = append(ranges, ClusterCIDR(fmt.Sprint("range-", i), Spec4("10.0.0.0/8", 8, nil)))
				}
				t.populate(b, 1_000, ranges)
				t.settle(b)
				watch := &stopwatch{}
				t.mu = watch
				o.run(b, t, func(what string, event func()) {
					watch.longest = 0
					event()
					if before, ok := shortest[what]; !ok || watch.longest < before {
						shortest[what] = watch.longest
					}
				})
			}
			for what, d := range shortest {
				b.ReportMetric(float64(d.Microseconds())/1000, what+"-lock-ms")
			}
			b.ReportMetric(0, "ns/op")
		})
	}
}

// BenchmarkReports measures for how long the debug page and a scrape hold the lock in a large cluster, in the shortest of all turns. The first
// scrape or status of a ClusterCIDR counts what is in it; from then on the ledger does.
func BenchmarkReports(b *testing.B) {
	const nodes, clusterCIDRs = 100_000, 1_000
	b.Run(sized(nodes, clusterCIDRs), func(b *testing.B) {
		t := newTown(b)
		t.populate(b, nodes, townCIDRs(clusterCIDRs))
		t.settle(b)
		watch := &stopwatch{}
		t.mu = watch
		took := func(f func(*allocator.State)) time.Duration {
			watch.longest = 0
			t.with(f)
			return watch.longest
		}
		first := took(func(book *allocator.State) { book.Figures() })
		debug, scrape := time.Hour, time.Hour
		for b.Loop() {
			debug = min(debug, took(func(book *allocator.State) { book.Snapshot() }))
			scrape = min(scrape, took(func(book *allocator.State) { book.Figures() }))
		}
		b.ReportMetric(float64(debug.Microseconds())/1000, "debug-lock-ms")
		b.ReportMetric(float64(first.Microseconds())/1000, "first-scrape-lock-ms")
		b.ReportMetric(float64(scrape.Microseconds())/1000, "scrape-lock-ms")
		b.ReportMetric(0, "ns/op")
	})
}

// BenchmarkDrain measures for how long a Node that goes holds the lock until it is known whether its ClusterCIDR, which is being deleted, is
// still in use: on average over all its Nodes, which hold the last blocks of a range that very many Nodes of another ClusterCIDR hold too.
func BenchmarkDrain(b *testing.B) {
	const others, leaving = 100_000, 1_000
	b.Run(sized(others+leaving, 2), func(b *testing.B) {
		for b.Loop() {
			b.StopTimer()
			book := allocator.New()
			Set(ClusterCIDR("stays", Spec4("10.0.0.0/8", 4, nil)))(book)
			Set(ClusterCIDR("goes", Spec4("10.0.0.0/8", 4, nil), Deleted))(book)
			for i := range others + leaving {
				n := Node(fmt.Sprint("n", i), From("stays"))
				if i >= others {
					n = Node(fmt.Sprint("n", i), From("goes"))
				}
				at := uint32(10<<24 + i<<4)
				addr := netip.AddrFrom4([4]byte{byte(at >> 24), byte(at >> 16), byte(at >> 8), byte(at)})
				book.Observe(n, []netip.Prefix{netip.PrefixFrom(addr, 28)}, nil)
			}
			b.StartTimer()
			for i := range leaving {
				book.NodeGone(fmt.Sprint("n", others+i), types.UID("uid-"+fmt.Sprint("n", others+i)))
				if used := book.InUse("goes"); used != (i+1 < leaving) {
					b.Fatalf("after %d of %d Nodes it is in use: %t", i+1, leaving, used)
				}
			}
		}
		b.ReportMetric(float64(b.Elapsed().Microseconds())/1000/float64(b.N*leaving), "ms/node")
		b.ReportMetric(0, "ns/op")
	})
}

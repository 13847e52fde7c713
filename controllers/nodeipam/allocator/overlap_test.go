package allocator

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/multicidr/controller-manager/controllers/nodeipam/clustercidr"
	. "github.com/multicidr/controller-manager/controllers/nodeipam/internal/objects"
	"github.com/multicidr/controller-manager/controllers/text"
	"k8s.io/apimachinery/pkg/types"
)

// crowd returns a state with n Nodes of which each one shares addresses: all on one block, or each on its own under a Node that has a
// whole /8.
func crowd(n int, wide bool) *State {
	b := New()
	b.SetPool(clustercidr.Compile(ClusterCIDR("a", Spec4("10.0.0.0/8", 8, nil))))
	if wide {
		b.Observe(Node("wide"), Pfxs("10.0.0.0/8"), nil)
	}
	for i := range n {
		b.Observe(Node(fmt.Sprintf("n%05d", i)), crowdBlock(i, wide), nil)
	}
	return b
}

func crowdBlock(i int, wide bool) []netip.Prefix {
	if !wide {
		return Pfxs("10.0.0.0/24")
	}
	return Pfxs(fmt.Sprintf("10.%d.%d.0/24", i/256, i%256))
}

var crowds = map[string]bool{"on one block": false, "under a wide one": true}

// TestOverlapsStayCheap counts what one more Node that shares addresses makes to do: it must not be more when more share them. What
// Nodes show others have written, so a single one with a wide podCIDR must not slow down everybody.
func TestOverlapsStayCheap(t *testing.T) {
	const few, many = 20, 2000
	for name, wide := range crowds {
		t.Run(name, func(t *testing.T) {
			allocations := map[int]float64{}
			for _, n := range []int{few, many} {
				b := crowd(n, wide)
				shown := len(b.nodes)
				if got := len(b.sharing); got != shown {
					t.Errorf("%d of %d Nodes share addresses, want all", got, shown)
				}
				if got := len(b.Changes().Nodes); got != shown {
					t.Errorf("%d of %d Nodes are to be told that they share addresses, want all", got, shown)
				}
				more, block := Node("one-more"), crowdBlock(n, wide)
				turn := func() (told int) {
					b.Observe(more, block, nil)
					b.Findings(more)
					b.conflicted(b.pools["a"])
					told = len(b.Changes().Nodes)
					b.NodeGone(more.Name, types.UID("uid-"+more.Name))
					return max(told, len(b.Changes().Nodes))
				}
				if got, most := turn(), text.MaxNamed+2; got > most {
					t.Errorf("of %d Nodes %d are to be told of one more, want at most %d", n, got, most)
				}
				allocations[n] = testing.AllocsPerRun(10, func() { turn() })
			}
			if allocations[many] > 2*allocations[few] {
				t.Errorf("one more makes %v allocations among %d Nodes, %v among %d", allocations[many], many, allocations[few], few)
			}
		})
	}
}

// TestOverlapsComeAndGo follows one Node with a wide podCIDR: everybody under it is told, when it comes and when it goes.
func TestOverlapsComeAndGo(t *testing.T) {
	b := New()
	b.SetPool(clustercidr.Compile(ClusterCIDR("a", Spec4("10.0.0.0/8", 8, nil))))
	var under []string
	for i := range 3 * text.MaxNamed {
		n := Node(fmt.Sprintf("n%05d", i))
		b.Observe(n, crowdBlock(i, true), nil)
		under = append(under, n.Name)
	}
	b.Changes()
	wide := Node("wide")
	b.Observe(wide, Pfxs("10.0.0.0/8"), nil)
	if got, want := b.Changes().Nodes, append(slices.Clone(under), wide.Name); !slices.Equal(got, want) {
		t.Errorf("told when it comes: %v, want %v", got, want)
	}
	if got, want := b.Findings(wide)[ReasonConflict], "Node n00009 (10.0.9.0/24); and more. Two Pods"; !strings.Contains(got, want) {
		t.Errorf("it is said %q, want %q in it", got, want)
	}
	if got, want := b.conflicted(b.pools["a"]).Message, "Node n00009 (10.0.9.0/24) and Node wide (10.0.0.0/8); and more. Delete"; !strings.Contains(got, want) {
		t.Errorf("the condition says %q, want %q in it", got, want)
	}
	b.NodeGone(wide.Name, types.UID("uid-"+wide.Name))
	told := b.Changes().Nodes
	for _, name := range under {
		if !slices.Contains(told, name) {
			t.Errorf("%s is not told when it goes", name)
		}
	}
	if len(b.sharing) > 0 {
		t.Errorf("these still share addresses: %v", b.sharing)
	}
}

// BenchmarkOverlaps measures what Nodes cost that share addresses: all of them at the start, then one that comes, is reported and
// goes, and the condition of the ClusterCIDR.
func BenchmarkOverlaps(b *testing.B) {
	for name, wide := range crowds {
		for _, n := range []int{100, 200, 1_000, 10_000} {
			b.Run(fmt.Sprintf("%s/%d/start", name, n), func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					crowd(n, wide)
				}
			})
			b.Run(fmt.Sprintf("%s/%d/one more", name, n), func(b *testing.B) {
				known := crowd(n, wide)
				known.Changes()
				more := Node("one-more")
				b.ReportAllocs()
				for b.Loop() {
					known.Observe(more, crowdBlock(n, wide), nil)
					known.Findings(more)
					known.NodeGone(more.Name, types.UID("uid-"+more.Name))
					known.Changes()
				}
			})
			b.Run(fmt.Sprintf("%s/%d/condition", name, n), func(b *testing.B) {
				known := crowd(n, wide)
				p := known.pools["a"]
				b.ReportAllocs()
				for b.Loop() {
					known.conflicted(p)
				}
			})
		}
	}
}

package allocator

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	networkingv1 "github.com/multicidr/controller-manager/apis/networking/v1"
	"github.com/multicidr/controller-manager/controllers/nodeipam/clustercidr"
	. "github.com/multicidr/controller-manager/controllers/nodeipam/internal/objects"
	"github.com/multicidr/controller-manager/controllers/nodeipam/pending"
)

// many is a state in which full ClusterCIDRs, of one block each, all select the same pending Nodes.
type many struct {
	*State
	nodes []*v1.Node // pending ones, oldest first
}

// oneBlock is the i-th of these ClusterCIDRs.
func oneBlock(i int) *clustercidr.Pool {
	return clustercidr.Compile(ClusterCIDR(fmt.Sprintf("range-%05d", i), Spec4(blockOf(i).String(), 4, nil)))
}

func blockOf(i int) netip.Prefix {
	return netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(i >> 12), byte(i >> 4), byte(i << 4)}), 28)
}

func holder(i int) *v1.Node { return Node(fmt.Sprintf("holder-%05d", i)) }

func manyFull(pools, nodes int) many {
	m := many{State: New()}
	for i := range pools {
		m.SetPool(oneBlock(i))
		m.Observe(holder(i), []netip.Prefix{blockOf(i)}, nil)
	}
	for i := range nodes {
		n := Node(fmt.Sprintf("pending-%05d", i))
		n.CreationTimestamp.Time = time.Unix(int64(i), 0)
		m.nodes = append(m.nodes, n)
		m.Observe(n, nil, nil)
	}
	return m
}

// steps is how many ClusterCIDRs and Nodes are looked at.
func (m many) steps(do func()) int {
	count := func() int { return m.looks + m.candidates.Checked + m.notFull.Checked }
	before := count()
	do()
	m.AllocatePending()
	return count() - before
}

// TestManyFullClusterCIDRs bounds what is looked at where every ClusterCIDR selects every pending Node. Each of these events happens as often as
// there are ClusterCIDRs or Nodes, so none of them may look at all ClusterCIDRs for each Node.
func TestManyFullClusterCIDRs(t *testing.T) {
	const perNode = pending.Most + 2 // its turn, one look at what may have a block, and what is said about it
	for _, size := range []struct{ pools, nodes int }{{20, 20}, {2_000, 20}, {2_000, 200}} {
		t.Run(fmt.Sprintf("%d ClusterCIDRs, %d Nodes", size.pools, size.nodes), func(t *testing.T) {
			m := manyFull(size.pools, size.nodes)
			atMost := func(what string, limit int, do func()) {
				t.Helper()
				if steps := m.steps(do); steps > limit {
					t.Errorf("%s takes %d steps, want at most %d", what, steps, limit)
				}
			}
			served := func(want ...*v1.Node) {
				t.Helper()
				got := m.Changes()
				for i, n := range want {
					if len(got.Nodes) < len(want) || got.Nodes[i] != n.Name {
						t.Fatalf("blocks for %.5q, want %s in place %d", got.Nodes, n.Name, i)
					}
				}
			}
			atMost("the first decision", size.pools+size.nodes*perNode, func() {})
			m.Changes()

			late := Node("pending-late")
			late.CreationTimestamp.Time = time.Unix(int64(size.nodes), 0)
			atMost("another Node", perNode, func() { m.Observe(late, nil, nil) })
			atMost("a worker's look at it", perNode, func() { m.Allocate(late) })
			for _, i := range []int{size.pools - 1, 0} {
				atMost("a release", perNode, func() { m.NodeGone(holder(i).Name, holder(i).UID) })
				served(m.nodes[0])
				atMost("a worker's look at who got the block", perNode, func() { m.Allocate(m.nodes[0]) })
				m.nodes = m.nodes[1:]
			}
			for _, i := range []int{0, size.pools / 2, size.pools - 1} {
				atMost("a change of a full ClusterCIDR", 2*len(m.nodes)+perNode, func() {
					p := oneBlock(i)
					p.Superseded = !p.Superseded // that changes nothing for whom it can serve
					m.SetPool(p)
				})
			}
			if recheck := m.Changes().Nodes; size.pools > 2*pending.Most && len(recheck) > len(m.nodes)+1 {
				t.Errorf("%d Nodes to look at again, of %d", len(recheck), len(m.nodes))
			}
			m.Observe(Node("all"), []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}, nil)
			atMost("the end of a Node that holds all ranges", 2*size.pools+2*len(m.nodes)+perNode, func() { m.NodeGone("all", Node("all").UID) })
			atMost("a new ClusterCIDR with room", 2*len(m.nodes)+2*perNode, func() { m.SetPool(oneBlock(size.pools)) })
			served(m.nodes[0])
			m.nodes = m.nodes[1:]
			atMost("a ClusterCIDR that goes", 2*len(m.nodes)+perNode, func() { m.DropPool(oneBlock(1).Name) })
		})
	}
}

// Only ClusterCIDRs that come late for a Node change without another look at it: what is said about it does not name them.
func TestWhoIsToldOfAChange(t *testing.T) {
	m := manyFull(3*pending.Most, 5)
	m.AllocatePending()
	m.Changes()
	for i, want := range map[int]int{0: 5, pending.Most - 1: 5, pending.Most: 0, 3*pending.Most - 1: 0} {
		p := oneBlock(i)
		p.Superseded = true
		m.SetPool(p)
		m.AllocatePending()
		if got := m.Changes().Nodes; len(got) != want {
			t.Errorf("after a change of ClusterCIDR %d, %d Nodes to look at again, want %d", i, len(got), want)
		}
	}
}

// Whether there is any ClusterCIDR is a reason for every pending Node, selected or not. The first one counts when it has its finalizer.
func TestFirstClusterCIDR(t *testing.T) {
	m := New()
	m.Observe(Node("n"), nil, nil)
	m.AllocatePending()
	m.Changes()
	first := ClusterCIDR("first", Spec4("10.0.0.0/24", 4, AnyOf(AllOf(In("p", "y")))))
	finalizers := first.Finalizers
	for _, step := range []struct {
		what string
		do   func()
		want []string // to look at again
	}{
		{"the first ClusterCIDR", func() { first.Finalizers = nil; m.SetPool(clustercidr.Compile(first)) }, nil},
		{"its finalizer", func() { first.Finalizers = finalizers; m.SetPool(clustercidr.Compile(first)) }, []string{"n"}},
		{"its end", func() { m.DropPool(first.Name) }, []string{"n"}},
	} {
		step.do()
		m.AllocatePending()
		if got := m.Changes().Nodes; !slices.Equal(got, step.want) {
			t.Errorf("%s: %q to look at again, want %q", step.what, got, step.want)
		}
	}
}

// A release looks at few pending Nodes, however many ClusterCIDRs have the same range.
func TestManyClusterCIDRsOfOneRange(t *testing.T) {
	for _, pools := range []int{1, maxOpen, maxOpen + 1, 200} {
		m := many{State: New()}
		for i := range pools {
			m.SetPool(clustercidr.Compile(ClusterCIDR(fmt.Sprintf("range-%05d", i), Spec4("10.0.0.0/27", 4, nil))))
		}
		for i := range 2 + 1000 {
			m.Observe(Node(fmt.Sprintf("n-%05d", i), Created(int64(i))), nil, nil)
		}
		m.AllocatePending()
		first := Node("n-00000")
		if steps, limit := m.steps(func() { m.NodeGone(first.Name, first.UID) }), 4*pools; steps > limit {
			t.Errorf("%d ClusterCIDRs: a release takes %d steps, want at most %d", pools, steps, limit)
		}
		if len(m.HeldBy(OwnerOf(Node("n-00002").UID))) == 0 {
			t.Errorf("%d ClusterCIDRs: the oldest pending Node has no block", pools)
		}
	}
}

// However many ClusterCIDRs get room at once, one decision gives all of it to the oldest Nodes.
func TestManyClusterCIDRsGetRoomAtOnce(t *testing.T) {
	for _, pools := range []int{1, maxOpen, maxOpen + 1, 200} {
		m := manyFull(0, pools+5)
		for i := range pools {
			m.SetPool(oneBlock(i))
		}
		all := Node("all")
		m.Observe(all, []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}, nil)
		m.AllocatePending()
		m.NodeGone(all.Name, all.UID)
		m.AllocatePending()
		for i, n := range m.nodes {
			if blocks := m.HeldBy(OwnerOf(n.UID)); len(blocks) > 0 != (i < pools) {
				t.Errorf("%d ClusterCIDRs of one block each: Node %d in age has %v", pools, i, blocks)
			}
		}
	}
}

// A pending Node hears when a ClusterCIDR of both families is full in another one, although it was never served in between.
func TestFullInTheOtherFamily(t *testing.T) {
	m := New()
	six := int32(4)
	m.SetPool(clustercidr.Compile(ClusterCIDR("both", networkingv1.ClusterCIDRSpec{IPv4: "10.0.0.0/28", PerNodeHostBits: 4, IPv6: "fd00::/124", IPv6PerNodeHostBits: &six})))
	m.Observe(Node("four"), []netip.Prefix{netip.MustParsePrefix("10.0.0.0/28")}, nil)
	m.Observe(Node("n"), nil, nil)
	m.AllocatePending()
	for _, want := range []string{"both is full (IPv4)", "both is full (IPv6)"} {
		m.AllocatePending()
		if why, _ := m.WhyPending("n"); !strings.Contains(why.Message, want) {
			t.Errorf("n waits because %q, want %q in it", why.Message, want)
		}
		m.Observe(Node("six"), []netip.Prefix{netip.MustParsePrefix("fd00::/124")}, nil)
		m.NodeGone("four", Node("four").UID)
		m.AllocatePending()
		for _, name := range m.Changes().Nodes {
			if name == "n" {
				m.Allocate(Node("n"))
			}
		}
	}
}

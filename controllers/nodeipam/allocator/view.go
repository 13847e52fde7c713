package allocator

import (
	"fmt"
	"iter"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/multicidr/controller-manager/controllers/ipam"
	"github.com/multicidr/controller-manager/controllers/nodeipam/pool"
	"github.com/multicidr/controller-manager/controllers/text"
)

// Read access to a state. Nothing in this file changes it.

// Findings about a Node's podCIDRs, as event reasons.
const (
	// ReasonConflict: another Node or a service range has addresses that the Node holds.
	ReasonConflict = "CIDRConflict"
	// ReasonOutsideRanges: no ClusterCIDR contains any podCIDR of the Node.
	ReasonOutsideRanges = "CIDROutsideRanges"
	// ReasonUnreadable: a podCIDR of the Node is not a valid CIDR.
	ReasonUnreadable = "CIDRUnreadable"
)

// NodeView is what the state knows about a Node.
type NodeView struct {
	UID types.UID
	// ClusterCIDR is the name of the ClusterCIDR that the blocks are from, if known.
	ClusterCIDR string
	// Blocks are what the Node holds; State is how far they have come.
	Blocks []netip.Prefix
	State  ReservationState
	// UnansweredUntil is until when the API server may carry out a write that it did not answer; zero if every write was answered, or if the
	// Node shows podCIDRs.
	UnansweredUntil time.Time
	// Since is when the Node was first seen without podCIDRs; zero when it has some.
	Since time.Time
}

// Node returns what the state knows about the Node of this name.
func (s *State) Node(name string) (view NodeView, ok bool) {
	n, ok := s.nodes[name]
	if !ok {
		return NodeView{}, false
	}
	return NodeView{UID: n.uid, ClusterCIDR: n.pool, Blocks: s.held(n), State: n.state, UnansweredUntil: n.unansweredUntil, Since: n.since}, true
}

func (s *State) Pool(name string) (p *pool.Pool, ok bool) {
	p, ok = s.pools[name]
	return p, ok
}

// Pools returns all pools, sorted by name.
func (s *State) Pools() []*pool.Pool {
	return slices.SortedFunc(maps.Values(s.pools), func(x, y *pool.Pool) int { return strings.Compare(x.Name, y.Name) })
}

// poolsAround yields the pools whose extent shares addresses with a prefix.
func (s *State) poolsAround(prefix netip.Prefix) iter.Seq[*pool.Pool] {
	return func(yield func(*pool.Pool) bool) {
		for pools := range s.extents.Values(prefix) {
			for _, p := range pools {
				if !yield(p) {
					return
				}
			}
		}
	}
}

// Candidates yields the pools that select a Node, in the order in which they are tried, and what that order goes by. The state must not change
// meanwhile.
func (s *State) Candidates(object *v1.Node) iter.Seq2[*pool.Pool, ipam.Candidate] {
	return s.candidates.Of(object)
}

// Holdings yields the holdings that overlap a prefix; a prefix comes before those that it contains.
func (s *State) Holdings(p netip.Prefix) iter.Seq[ipam.Holding] { return s.ledger.Holdings(p) }

// Free returns how many blocks of a range of p, or of a part of one, are free.
func (s *State) Free(p *pool.Pool, r ipam.Range) uint64 { return s.ledger.Usage(&p.Pool, r).Free }

// Members yields the name of each Node that belongs to p once, ordered by the Node's first block in p. Reserved blocks do not count.
func (s *State) Members(p *pool.Pool) iter.Seq[string] {
	return func(yield func(string) bool) {
		seen := map[string]bool{} // Nodes with several blocks here
		for _, r := range p.Extent {
			for h := range s.ledger.Holdings(r) {
				n, ok := s.nodes[h.Owner.ID]
				if h.Owner.Kind != ipam.Node || !ok || n.state < Sent || seen[n.name] {
					continue
				}
				blocks := s.held(n)
				if !s.belongs(n, blocks, p) {
					continue
				}
				if len(blocks) > 1 {
					seen[n.name] = true
				}
				if !yield(n.name) {
					return
				}
			}
		}
	}
}

// Users returns how many Nodes belong to p.
func (s *State) Users(p *pool.Pool) (n int) {
	for range s.Members(p) {
		n++
	}
	return n
}

// InUse reports whether a Node belongs to the pool of this name.
func (s *State) InUse(name string) bool {
	if p, ok := s.pools[name]; ok {
		for range s.Members(p) {
			return true
		}
	}
	return false
}

// BelongsTo returns the names of the pools that the Node of this name belongs to, sorted. Reserved blocks do not count.
func (s *State) BelongsTo(name string) (names []string) {
	n, ok := s.nodes[name]
	if !ok || n.state < Sent {
		return nil
	}
	blocks := s.held(n)
	for _, block := range blocks {
		for p := range s.poolsAround(block) {
			if s.belongs(n, blocks, p) {
				names = append(names, p.Name)
			}
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// belongs reports whether a Node's blocks belong to p: to the pool that the Node names, if that contains all of them, otherwise to every pool
// that contains one of them.
func (s *State) belongs(n *node, blocks []netip.Prefix, p *pool.Pool) bool {
	if named, ok := s.pools[n.pool]; ok && !slices.ContainsFunc(blocks, func(block netip.Prefix) bool { return !named.Contains(block) }) {
		return named == p
	}
	return slices.ContainsFunc(blocks, p.Contains)
}

// conflicts reports whether others hold addresses that this Node holds.
func (s *State) conflicts(n *node) bool {
	for range s.ledger.Conflicts(n.owner()) {
		return true
	}
	return false
}

// Conflict reports whether different owners hold the same addresses inside a prefix, at least one of them a Node.
func (s *State) Conflict(within netip.Prefix) bool {
	for range s.ledger.Shared(within) {
		return true
	}
	return false
}

// everything is the address space of each family.
var everything = []netip.Prefix{netip.PrefixFrom(netip.IPv4Unspecified(), 0), netip.PrefixFrom(netip.IPv6Unspecified(), 0)}

// sharing returns the names of the Nodes that hold addresses which another owner holds, too.
func (s *State) sharing() sets.Set[string] {
	names := sets.Set[string]{}
	for _, all := range everything {
		for x, y := range s.ledger.Shared(all) {
			for _, h := range []ipam.Holding{x, y} {
				if h.Owner.Kind == ipam.Node {
					names.Insert(h.Owner.ID)
				}
			}
		}
	}
	return names
}

func (s *State) isService(block netip.Prefix) bool {
	for _, ranges := range s.services {
		if slices.ContainsFunc(ranges, block.Overlaps) {
			return true
		}
	}
	return false
}

// outOfRange reports whether pools exist but none contains any of the blocks.
func (s *State) outOfRange(blocks []netip.Prefix) bool {
	return len(s.pools) > 0 && len(blocks) > 0 && !slices.ContainsFunc(blocks, s.inRange)
}

func (s *State) inRange(block netip.Prefix) bool {
	for found := range s.extents.Overlapping(block) {
		return found.Bits() <= block.Bits() // those that contain it come first
	}
	return false
}

// isAstray reports whether something is wrong with the podCIDRs of a Node by themselves.
func (s *State) isAstray(n *node) bool { return len(n.unreadable) > 0 || s.outOfRange(s.held(n)) }

// hasFindings reports whether Findings has something to say about a Node with podCIDRs.
func (s *State) hasFindings(n *node) bool { return s.isAstray(n) || s.conflicts(n) }

// Findings returns what is wrong with the podCIDRs of the Node of this name, message by reason.
func (s *State) Findings(name string) map[string]string {
	n, ok := s.nodes[name]
	if !ok || n.state != Assigned {
		return nil
	}
	found, blocks := map[string]string{}, s.held(n)
	if len(n.unreadable) > 0 {
		found[ReasonUnreadable] = fmt.Sprintf("podCIDRs %s cannot be read, so nothing keeps their addresses from being allocated to another Node. Replace the Node: %s.", text.ValuesText(n.unreadable), text.Replace)
	}
	if s.outOfRange(blocks) {
		wayOut := "Create a ClusterCIDR that contains them, or replace"
		if slices.ContainsFunc(blocks, s.isService) || slices.ContainsFunc(blocks, pool.Mapped.Overlaps) {
			// A ClusterCIDR would overlap the service range, or be refused.
			wayOut = "Replace"
		}
		found[ReasonOutsideRanges] = fmt.Sprintf("podCIDRs %s lie in no ClusterCIDR. They stay as they are and are allocated to no other Node. %s the Node: %s. Do that before you go back to the stock kube-controller-manager, which ends while a podCIDR is outside of its --cluster-cidr.", text.BlocksText(blocks), wayOut, text.Replace)
	}
	var others []string
	which := "this Node"
	for h := range s.ledger.Conflicts(n.owner()) {
		if h.Owner.Kind == ipam.Node {
			which = "this Node or the others"
		}
		if others = append(others, nameOf(h)); len(others) > text.MaxNamed {
			break
		}
	}
	if len(others) > 0 {
		found[ReasonConflict] = fmt.Sprintf("podCIDRs %s share addresses with %s. Two Pods, or a Pod and a Service, may get the same address. Replace %s: %s.", text.BlocksText(blocks), text.ListedFew(others), which, text.Replace)
	}
	return found
}

// Counts sums up what Nodes hold, for metrics. It walks over all Nodes.
type Counts struct {
	Holding, Assigned, Sharing, OutOfRange int
	Pending                                map[Reason]int
}

func (s *State) Counts() Counts {
	c := Counts{Pending: s.countPending(), Sharing: len(s.sharing())}
	for _, n := range s.nodes {
		if n.state == None {
			continue
		}
		if c.Holding++; n.state == Assigned {
			c.Assigned++
		}
		if s.outOfRange(s.held(n)) {
			c.OutOfRange++
		}
	}
	return c
}

// Traffic returns what happened to the blocks of p's range of a family.
func (s *State) Traffic(p *pool.Pool, family ipam.Family) Traffic { return s.trafficOf(p)[family] }

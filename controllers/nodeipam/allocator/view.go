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
}

// Node returns what the state knows about the Node of this name.
func (s *State) Node(name string) (view NodeView, ok bool) {
	n, ok := s.nodes[name]
	if !ok {
		return NodeView{}, false
	}
	return NodeView{UID: n.uid, ClusterCIDR: n.pool, Blocks: s.ledger.Held(ownerOf(n.uid)), State: n.state, UnansweredUntil: n.unansweredUntil}, true
}

func (s *State) Pool(name string) (p *pool.Pool, ok bool) {
	p, ok = s.pools[name]
	return p, ok
}

// Pools returns all pools, sorted by name.
func (s *State) Pools() []*pool.Pool {
	return slices.SortedFunc(maps.Values(s.pools), func(x, y *pool.Pool) int { return strings.Compare(x.Name, y.Name) })
}

// Candidates yields the pools that select a Node, in the order in which they are tried. The state must not change meanwhile.
func (s *State) Candidates(object *v1.Node) iter.Seq[*pool.Pool] { return s.candidates.Of(object) }

// Holdings yields the holdings that overlap a prefix; a prefix comes before those that it contains.
func (s *State) Holdings(p netip.Prefix) iter.Seq[ipam.Holding] { return s.ledger.Holdings(p) }

// Free returns how many blocks of a range of p are free.
func (s *State) Free(p *pool.Pool, r ipam.Range) uint64 { return s.ledger.Free(&p.Pool, r) }

// Cursor returns where the next search in the pool's range of this family starts.
func (s *State) Cursor(p *pool.Pool, family ipam.Family) netip.Addr {
	return s.ledger.Cursor(&p.Pool, family)
}

// Members yields the UID of each Node that belongs to p once, ordered by the Node's first block in p. Reserved blocks do not count.
func (s *State) Members(p *pool.Pool) iter.Seq[types.UID] {
	return func(yield func(types.UID) bool) {
		seen := map[types.UID]bool{} // Nodes with several blocks here
		for _, r := range p.Extent() {
			for h := range s.ledger.Holdings(r) {
				uid := types.UID(h.Owner.ID)
				if h.Owner.Kind != ipam.Node || seen[uid] || !s.BelongsTo(uid, p) {
					continue
				}
				if len(s.ledger.Held(h.Owner)) > 1 {
					seen[uid] = true
				}
				if !yield(uid) {
					return
				}
			}
		}
	}
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

// BelongsTo reports whether a Node belongs to p: to the pool that it names, if that contains all its blocks, otherwise to every pool that
// contains one of them.
func (s *State) BelongsTo(uid types.UID, p *pool.Pool) bool {
	n, ok := s.nodes[s.names[uid]]
	if !ok || n.state < Sent {
		return false
	}
	blocks := s.ledger.Held(ownerOf(uid))
	if named, ok := s.pools[n.pool]; ok && !slices.ContainsFunc(blocks, func(block netip.Prefix) bool { return !named.Contains(block) }) {
		return named == p
	}
	return slices.ContainsFunc(blocks, p.Contains)
}

// conflicts reports whether others hold addresses that this Node holds.
func (s *State) conflicts(uid types.UID) bool {
	for range s.ledger.Conflicts(ownerOf(uid)) {
		return true
	}
	return false
}

func (s *State) isService(block netip.Prefix) bool {
	for _, ranges := range s.services {
		if slices.ContainsFunc(ranges, block.Overlaps) {
			return true
		}
	}
	return false
}

// OutOfRange reports whether pools exist but none contains any of the blocks.
func (s *State) OutOfRange(blocks []netip.Prefix) bool {
	return len(s.pools) > 0 && len(blocks) > 0 && !slices.ContainsFunc(blocks, s.inRange)
}

func (s *State) inRange(block netip.Prefix) bool {
	for found := range s.ranges.Overlapping(block) {
		return found.Bits() <= block.Bits() // those that contain it come first
	}
	return false
}

// hasFindings reports whether others hold addresses that a Node holds, or whether its blocks lie in no ClusterCIDR.
func (s *State) hasFindings(uid types.UID) bool {
	return s.OutOfRange(s.ledger.Held(ownerOf(uid))) || s.conflicts(uid)
}

// Findings returns what is wrong with the podCIDRs of the Node of this name, message by reason.
func (s *State) Findings(name string) map[string]string {
	n, ok := s.nodes[name]
	if !ok || n.state != Assigned {
		return nil
	}
	found, blocks := map[string]string{}, s.ledger.Held(ownerOf(n.uid))
	if n.object != nil {
		_, unreadable := pool.PodCIDRsOf(n.object)
		found[ReasonUnreadable] = fmt.Sprintf("podCIDRs %s cannot be read, so nothing keeps their addresses from being given to another Node. Delete the Node and reboot its machine, which registers it again.", text.ValuesText(unreadable))
	}
	if s.OutOfRange(blocks) {
		wayOut := "Create a ClusterCIDR that contains them, or delete the Node and reboot its machine, which registers it again."
		if slices.ContainsFunc(blocks, s.isService) || slices.ContainsFunc(blocks, pool.Mapped.Overlaps) {
			// A ClusterCIDR would overlap the service range, or be refused.
			wayOut = "Drain and delete the Node and reboot its machine, which registers it again."
		}
		found[ReasonOutsideRanges] = fmt.Sprintf("podCIDRs %s lie in no ClusterCIDR. They stay as they are and are given to nobody else. %s", text.BlocksText(blocks), wayOut)
	}
	var others []string
	which := "this Node and reboot its machine, which registers it again"
	for h := range s.ledger.Conflicts(ownerOf(n.uid)) {
		if h.Owner.Kind == ipam.Node {
			which = "this Node or the others and reboot their machines, which registers them again"
		}
		if others = append(others, fmt.Sprintf("%s (%v)", s.NameOf(h.Owner), h.Prefix)); len(others) > text.MaxNamed {
			break
		}
	}
	if len(others) > 0 {
		found[ReasonConflict] = fmt.Sprintf("podCIDRs %s share addresses with %s. Two Pods, or a Pod and a Service, may get the same address: drain and delete %s.", text.BlocksText(blocks), text.ListedFew(others), which)
	}
	return found
}

// Counts sums up what Nodes hold, for metrics. It walks over all Nodes.
type Counts struct {
	Holding, Assigned, Sharing, OutOfRange int
	Pending                                map[Reason]int
}

func (s *State) Counts() Counts {
	c := Counts{Pending: s.countPending()}
	for _, n := range s.nodes {
		if n.state == None {
			continue
		}
		if c.Holding++; n.state == Assigned {
			c.Assigned++
		}
		if s.conflicts(n.uid) {
			c.Sharing++
		}
		if s.OutOfRange(s.ledger.Held(ownerOf(n.uid))) {
			c.OutOfRange++
		}
	}
	return c
}

// CoveredBy returns the name of a Node whose podCIDR contains a whole range of p and is larger than one of its blocks; empty if there is none.
func (s *State) CoveredBy(r ipam.Range) string {
	if h, covered := s.coveredBy(r); covered {
		return s.names[types.UID(h.Owner.ID)]
	}
	return ""
}

// Traffic returns what happened to the blocks of p's range of a family.
func (s *State) Traffic(p *pool.Pool, family ipam.Family) Traffic { return s.trafficOf(p)[family] }

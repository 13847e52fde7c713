package allocator

import (
	"net/netip"
	"slices"

	"k8s.io/apimachinery/pkg/types"

	networkingv1 "github.com/multicidr/controller-manager/apis/networking/v1"
	"github.com/multicidr/controller-manager/controllers/ipam"
	"github.com/multicidr/controller-manager/controllers/nodeipam/clustercidr"
	"github.com/multicidr/controller-manager/controllers/nodeipam/names"
	"github.com/multicidr/controller-manager/controllers/nodeipam/pending"
	"github.com/multicidr/controller-manager/controllers/nodeipam/traffic"
	"github.com/multicidr/controller-manager/controllers/text"
)

// stats is what metrics show and what would otherwise need a walk over all Nodes. It is updated with every change of the state, so that
// every scrape is fast and exact.
type stats struct {
	ranges     clustercidr.Ranges // of all pools
	services   ipam.PrefixSet     // service ranges
	holding    int                // number of Nodes that hold anything
	sharing    map[types.UID]bool // Nodes that hold addresses which another Node or a service range also holds
	outOfRange map[types.UID]bool // Nodes that hold blocks, none of them in a range
	// blocking is how many Nodes use a terminating pool, by pool name; a missing entry must be counted again.
	blocking map[string]int
	// staying are some Nodes that belonged to a pool when they were found, by pool name; they may have left it since.
	staying map[string][]types.UID
	traffic traffic.Counters
}

func newStats() stats {
	return stats{sharing: map[types.UID]bool{}, outOfRange: map[types.UID]bool{}, blocking: map[string]int{}, staying: map[string][]types.UID{}, traffic: traffic.Counters{}}
}

// held records that an owner's blocks changed from before to now.
func (b *State) held(owner ipam.Owner, before, now []netip.Prefix) {
	switch owner.Kind {
	case ipam.Kept:
		return // kept blocks only affect later allocations, and no Node
	case ipam.Service:
		for _, r := range before {
			b.services.Remove(r)
		}
		for _, r := range now {
			b.services.Insert(r)
		}
		// Recheck every Node in these ranges, even one that already shares addresses with others.
		b.judgeIn(before)
		b.judgeIn(now)
	case ipam.Node:
		uid := types.UID(owner.ID)
		for _, block := range ipam.Without(before, now) {
			b.released(uid, block)
		}
		b.holding += min(len(now), 1) - min(len(before), 1)
		b.judge(uid)
		for _, block := range before {
			b.judgeAround(owner, block)
		}
		for _, block := range now {
			b.judgeAround(owner, block)
		}
	}
}

// judgeAround judges the Nodes that may have begun or ceased to share addresses because owner's holding of block changed. It also judges a
// few more Nodes, whose messages may now name other owners.
//
// If every Node holds the same block, a change makes no difference to any of them, and judging each would take time quadratic in their
// number. So it uses what does not depend on owner: the holders that contain block share it with each other, and every holder inside block
// shares with those that contain it.
//
//	two others contain block    one other contains it       none does
//
//	===== c1                    ===== c                     --- block
//	===== c2                     ---  block                  -     - inside
//	 ---  block                   -   inside
//	  -   inside
//
//	all share                   only c may not              any may or may not
func (b *State) judgeAround(owner ipam.Owner, block netip.Prefix) {
	var container ipam.Owner // the first other holder that contains block, if any
	contained, named := false, 0
	for h := range b.ledger.Holdings(block) { // those that contain it come first
		if h.Owner == owner || h.Owner.Kind == ipam.Kept {
			continue
		}
		contains := h.Prefix.Bits() <= block.Bits()
		settled := contained && (!contains || h.Owner != container)
		if settled && named > text.MaxNamed {
			return
		}
		if contains && !contained {
			contained, container = true, h.Owner
		}
		if h.Owner.Kind == ipam.Node {
			b.judge(types.UID(h.Owner.ID))
			named++
		}
	}
}

// released records that a Node no longer holds a block. It counts for the pool that the Node names if that contains the block, otherwise
// for every pool that does.
func (b *State) released(uid types.UID, block netip.Prefix) {
	count := func(p *clustercidr.Pool) { b.traffic.Of(&p.Pool)[ipam.FamilyOf(block)].Releases++ }
	if e, ok := b.nodes[b.names[uid]]; ok {
		if named, ok := b.pools[e.pool]; ok && named.Contains(block) {
			count(named)
			return
		}
	}
	for p := range b.ranges.Overlapping(block) {
		if p.Contains(block) {
			count(p)
		}
	}
}

// replaceRanges replaces the ranges of a pool; old or now may be nil.
func (b *State) replaceRanges(old, now *clustercidr.Pool) {
	changed := b.ranges.Replace(old, now)
	b.judgeIn(changed)
	if !b.near.Overlap(changed) {
		return
	}
	for _, e := range b.nodes {
		if slices.ContainsFunc(e.addresses, func(a netip.Prefix) bool { return slices.ContainsFunc(changed, a.Overlaps) }) {
			b.locate(e)
		}
	}
}

// forgetPool drops the stats of a deleted pool.
func (b *State) forgetPool(p *clustercidr.Pool) {
	b.replaceRanges(p, nil)
	delete(b.blocking, p.Name)
	delete(b.staying, p.Name)
	delete(b.traffic, p.ID)
}

// judgeIn judges every Node that holds addresses in the prefixes.
func (b *State) judgeIn(prefixes []netip.Prefix) {
	for _, p := range prefixes {
		for h := range b.ledger.Holdings(p) {
			if h.Owner.Kind == ipam.Node {
				b.judge(types.UID(h.Owner.ID))
			}
		}
	}
}

// judge records whether a Node shares addresses and whether it is out of range.
func (b *State) judge(uid types.UID) {
	wasSharing, wasOutsider := b.sharing[uid], b.outOfRange[uid]
	blocks := b.ledger.Held(OwnerOf(uid))
	names.Mark(b.sharing, uid, b.Shares(uid))
	names.Mark(b.outOfRange, uid, len(blocks) > 0 && !slices.ContainsFunc(blocks, b.ranges.Contain))
	// A Node that shares addresses may now share them with other owners.
	if wasSharing || b.sharing[uid] || wasOutsider != b.outOfRange[uid] {
		b.recheck.Add(b.names[uid])
	}
}

func (b *State) blockers(p *clustercidr.Pool) int {
	n, ok := b.blocking[p.Name]
	if !ok {
		for range b.Members(p) {
			n++
		}
		b.blocking[p.Name] = n
	}
	return n
}

// maxStaying limits how many Nodes one walk collects for [State.InUse]. The more it collects, the less often it has to walk.
const maxStaying = 1000

// InUse reports whether a Node belongs to the pool of this name. It is called whenever a Node leaves a terminating pool, and Nodes of
// another pool may hold blocks of the same range, so it does not walk as long as it knows a Node that is still there.
func (b *State) InUse(name string) bool {
	p, ok := b.pools[name]
	if !ok {
		return false
	}
	left := func(uid types.UID) bool {
		_, known := b.names[uid]
		return !known || !b.BelongsTo(uid, p)
	}
	staying := b.staying[name]
	for len(staying) > 0 && left(staying[len(staying)-1]) {
		staying = staying[:len(staying)-1]
	}
	if len(staying) == 0 {
		for uid := range b.Members(p) {
			if staying = append(staying, uid); len(staying) == maxStaying {
				break
			}
		}
	}
	if b.staying[name] = staying; len(staying) == 0 {
		delete(b.staying, name)
	}
	return len(staying) > 0
}

// Figures is what a scrape copies from the state, so that it holds the lock only briefly.
type Figures struct {
	Holding, Sharing, OutOfRange int
	InDoubt                      int
	Pending                      map[pending.Reason]int
	States                       map[string]ipam.State // by the ClusterCIDR's name, as are Blockers
	Blockers                     map[string]int        // number of Nodes that use a terminating ClusterCIDR
	Ranges                       []RangeFigures
}

type RangeFigures struct {
	ClusterCIDR string // name
	Family      ipam.Family
	Status      *networkingv1.RangeStatus
	Traffic     traffic.Counts
	CoveredBy   string // the Node's name; empty if there is none
}

func (b *State) Figures() Figures {
	f := Figures{
		Holding:  b.holding,
		Sharing:  len(b.sharing),
		InDoubt:  b.inDoubt(),
		Pending:  map[pending.Reason]int{},
		States:   make(map[string]ipam.State, len(b.pools)),
		Blockers: map[string]int{},
	}
	if len(b.pools) > 0 {
		f.OutOfRange = len(b.outOfRange)
	}
	for _, w := range b.pending {
		f.Pending[w.why]++
	}
	for name, p := range b.pools {
		f.States[name] = p.State
		if p.State == ipam.Terminating {
			f.Blockers[name] = b.blockers(p)
		}
		for _, r := range p.Ranges {
			var coveredBy string
			if h, covered := b.Exhausted().CoveredBy(r); covered {
				coveredBy = b.names[types.UID(h.Owner.ID)]
			}
			f.Ranges = append(f.Ranges, RangeFigures{name, r.Family(), b.RangeStatus(p, r), b.traffic.Of(&p.Pool)[r.Family()], coveredBy})
		}
	}
	return f
}

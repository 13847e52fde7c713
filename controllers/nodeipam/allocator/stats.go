package allocator

import (
	"encoding/binary"
	"math"
	"math/bits"
	"net/netip"
	"slices"

	"k8s.io/apimachinery/pkg/types"

	networkingv1 "github.com/multicidr/controller-manager/apis/networking/v1"
	"github.com/multicidr/controller-manager/controllers/ipam"
	"github.com/multicidr/controller-manager/controllers/nodeipam/clustercidr"
	"github.com/multicidr/controller-manager/controllers/nodeipam/text"
)

// stats is what metrics show of the state and what would take a walk over all Nodes to find out. The state keeps it in step, so
// that it is right at every scrape, and a scrape is short.
type stats struct {
	ranges     ipam.PrefixSet            // of all pools
	services   ipam.PrefixSet            // service ranges
	of         map[netip.Prefix][]string // the names of the pools that have a range
	holding    int                       // Nodes that hold anything
	sharing    map[types.UID]bool        // Nodes that hold addresses which another Node or a service range holds too
	outOfRange map[types.UID]bool        // Nodes that hold blocks, none of them in a range
	// blocking is how many Nodes keep a terminating pool, by its name; without an entry, it has to be counted again.
	blocking map[string]int
	// staying are some Nodes that were found to belong to a pool, by its name, and may have left it since.
	staying map[string][]types.UID
	traffic map[string]*[2]traffic // by Pool.ID, which a later ClusterCIDR of the same name does not have, and Family
}

// traffic is what happened to the blocks of a range since this process knows it.
type traffic struct {
	Allocations uint64 // blocks that we gave to Nodes
	Releases    uint64 // blocks that Nodes stopped to hold
	// How many blocks were looked at for one allocation: how often so many, by triesBuckets, and their sum.
	Tries    [len(TriesBuckets)]uint64
	TriesSum float64
}

// TriesBuckets are the peer's.
var TriesBuckets = [...]float64{1, 5, 25, 125, 625}

func newStats() stats {
	return stats{of: map[netip.Prefix][]string{}, sharing: map[types.UID]bool{}, outOfRange: map[types.UID]bool{}, blocking: map[string]int{}, staying: map[string][]types.UID{}, traffic: map[string]*[2]traffic{}}
}

// trafficOf returns the traffic of one range of a pool.
func (t *stats) trafficOf(p *ipam.Pool, family ipam.Family) *traffic {
	of, ok := t.traffic[p.ID]
	if !ok {
		of = &[2]traffic{}
		t.traffic[p.ID] = of
	}
	return &of[family]
}

// tries returns, for each block of a pick that was not reserved yet, how many blocks were looked at: those that were not free
// since the cursor, and the block itself. The search does not really look at each one; a search over a bitmap would, and
// the number shows how crowded the range is.
func (b *State) tries(pick ipam.Pick) (tries [2]float64) {
	for i, block := range pick.Blocks {
		r := pick.Pool.Ranges[i]
		from := b.ledger.Cursor(pick.Pool, r.Family())
		if !r.Prefix.Contains(from) {
			from = r.Prefix.Addr()
		}
		size := math.Ldexp(1, r.Family().Bits()-r.BlockBits) // of a block
		passed := math.Ceil(distance(from, block.Addr()) / size)
		if passed < 0 { // around the end
			passed += math.Ldexp(1, r.BlockBits-r.Prefix.Bits())
		}
		tries[i] = passed + 1
	}
	return tries
}

// distance returns how many addresses b is behind a, negative if it is before; as exact as a metric has to be.
func distance(a, b netip.Addr) float64 {
	if b.Less(a) {
		return -distance(b, a)
	}
	x, y := a.As16(), b.As16()
	low, borrow := bits.Sub64(binary.BigEndian.Uint64(y[8:]), binary.BigEndian.Uint64(x[8:]), 0)
	high, _ := bits.Sub64(binary.BigEndian.Uint64(y[:8]), binary.BigEndian.Uint64(x[:8]), borrow)
	return math.Ldexp(float64(high), 64) + float64(low)
}

// allocated enters that a Node which held nothing got the blocks of a pick.
func (b *State) allocated(pick ipam.Pick, tries [2]float64) {
	b.holding++
	for i, r := range pick.Pool.Ranges {
		t := b.trafficOf(pick.Pool, r.Family())
		t.Allocations++
		t.TriesSum += tries[i]
		if bucket := slices.IndexFunc(TriesBuckets[:], func(le float64) bool { return tries[i] <= le }); bucket >= 0 {
			t.Tries[bucket]++
		}
	}
}

// held enters what an owner holds in place of what it held before.
func (b *State) held(owner ipam.Owner, before, now []netip.Prefix) {
	switch owner.Kind {
	case ipam.Kept:
		return // it concerns what is given from now on, and no Node
	case ipam.Service:
		for _, r := range before {
			b.services.Remove(r)
		}
		for _, r := range now {
			b.services.Insert(r)
		}
		// Every Node there is to hear of it, also one that shares with others already.
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

// judgeAround judges the Nodes of which a change of what owner holds of block may have made one that shares addresses, or that
// shares none any more; and a few more, to whom others can be named now.
//
// When everybody has the same block, a change makes no difference to anybody, and looking at each would cost the square of
// their number. So it relies on what does not depend on owner: those who contain the block share it with each other, and
// whoever lies inside it shares with those who contain it.
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
	var container ipam.Owner // the first other one, if there is one
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

// released enters that a Node does not hold a block any more. It counts for the pool that the Node names if that has the
// block, else for every pool that has it.
func (b *State) released(uid types.UID, block netip.Prefix) {
	count := func(p *clustercidr.Pool) { b.trafficOf(&p.Pool, ipam.FamilyOf(block)).Releases++ }
	if e, ok := b.nodes[b.names[uid]]; ok {
		if named, ok := b.pools[e.pool]; ok && named.Contains(block) {
			count(named)
			return
		}
	}
	for _, p := range b.pools {
		if p.Contains(block) {
			count(p)
		}
	}
}

// replaceRanges enters the ranges of a pool in place of those that it had before.
func (b *State) replaceRanges(name string, before, now []netip.Prefix) {
	if slices.Equal(before, now) {
		return
	}
	var changed []netip.Prefix
	for _, r := range before {
		b.ranges.Remove(r)
		if b.of[r] = slices.DeleteFunc(b.of[r], func(n string) bool { return n == name }); len(b.of[r]) == 0 {
			delete(b.of, r)
		}
		changed = append(changed, r)
	}
	for _, r := range now {
		b.ranges.Insert(r)
		b.of[r] = append(b.of[r], name)
		changed = append(changed, r)
	}
	b.judgeIn(changed)
	for _, e := range b.nodes {
		if slices.ContainsFunc(e.addresses, func(a netip.Prefix) bool { return slices.ContainsFunc(changed, a.Overlaps) }) {
			b.locate(e)
		}
	}
}

// forgetPool drops what is known of a pool that is gone.
func (b *State) forgetPool(p *clustercidr.Pool) {
	b.replaceRanges(p.Name, p.Extent(), nil)
	delete(b.blocking, p.Name)
	delete(b.staying, p.Name)
	delete(b.traffic, p.ID)
}

// judgeIn judges every Node that holds something in the prefixes.
func (b *State) judgeIn(prefixes []netip.Prefix) {
	for _, p := range prefixes {
		for h := range b.ledger.Holdings(p) {
			if h.Owner.Kind == ipam.Node {
				b.judge(types.UID(h.Owner.ID))
			}
		}
	}
}

// judge says of one Node whether it shares addresses and whether it is in no range.
func (b *State) judge(uid types.UID) {
	wasSharing, wasOutsider := b.sharing[uid], b.outOfRange[uid]
	blocks := b.ledger.Held(OwnerOf(uid))
	mark(b.sharing, uid, b.shares(uid))
	mark(b.outOfRange, uid, len(blocks) > 0 && !slices.ContainsFunc(blocks, b.inRange))
	// One that shares may share with others than before.
	if wasSharing || b.sharing[uid] || wasOutsider != b.outOfRange[uid] {
		b.recheck.add(b.names[uid])
	}
}

// inRange reports whether a range contains the block.
func (b *State) inRange(block netip.Prefix) bool {
	for r := range b.ranges.Overlapping(block) {
		return r.Bits() <= block.Bits() // those that contain it come first
	}
	return false
}

// blockers returns how many Nodes belong to a pool.
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

// maxStaying is how many Nodes one walk finds at most for [State.InUse], so that it has to walk that much less often.
const maxStaying = 1000

// InUse reports whether a Node belongs to the pool of this name. It is asked at every Node that leaves a pool which is being deleted, and
// the Nodes of another pool may hold blocks of the same range; so it does not walk as long as it knows one that stays.
func (b *State) InUse(name string) bool {
	p, ok := b.pools[name]
	if !ok {
		return false
	}
	left := func(uid types.UID) bool {
		_, known := b.names[uid]
		return !known || !b.belongs(uid, p)
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

// Figures is what a scrape takes out of the state, which it must not hold for long.
type Figures struct {
	Holding, Sharing, OutOfRange int
	InDoubt                      int
	Pending                      map[PendingReason]int
	States                       map[string]ipam.State // by the ClusterCIDR's name, as is
	Blockers                     map[string]int        // of terminating ones
	Ranges                       []RangeFigures
}

type RangeFigures struct {
	ClusterCIDR string // name
	Family      ipam.Family
	Status      *networkingv1.RangeStatus
	Traffic     traffic
	CoveredBy   string // the Node's name; empty if none does
}

func (b *State) Figures() Figures {
	f := Figures{
		Holding:  b.holding,
		Sharing:  len(b.sharing),
		InDoubt:  b.inDoubt(),
		Pending:  map[PendingReason]int{},
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
			if h, covered := b.coveredBy(r); covered {
				coveredBy = b.names[types.UID(h.Owner.ID)]
			}
			f.Ranges = append(f.Ranges, RangeFigures{name, r.Family(), b.RangeStatus(p, r), *b.trafficOf(&p.Pool, r.Family()), coveredBy})
		}
	}
	return f
}

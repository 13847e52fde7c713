package allocator

import (
	"maps"
	"net/netip"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/multicidr/controller-manager/controllers/ipam"
	"github.com/multicidr/controller-manager/controllers/nodeipam/clustercidr"
	"github.com/multicidr/controller-manager/controllers/nodeipam/pending"
)

// The oldest pending Node comes first, exactly: no Node is allocated a block from a pool while an older one that the pool selects is pending.
// So blocks are never chosen for one Node alone. A Node that needs podCIDRs, a block that becomes free and a pool that changes are only
// noted, and AllocatePending then decides for all pending Nodes at once.
//
//	Observe ─► arrived ─► AllocatePending ─► reserved
//	                       ▲         │ no pool has a free block
//	          opened pools ┘         ▼
//	                     └──────── settled
//
// Invariant: after AllocatePending no pool that selects a settled Node could allocate blocks to it, so only the pools in opened need another
// look, and of each only until it is full again.
//
// The age of a Node is its creation time and then its name. A Node that gave up a refused reservation in favor of others is not in line for a
// second, and then comes after all that were pending when it gave up; see GiveWay.
type line struct {
	// settled are the pending Nodes that no pool could serve. arrived are those for which that is still open, by name; they may be in settled.
	settled clustercidr.Line
	arrived map[string]*clustercidr.Place
	// opened are the pools that may have got free blocks, by name.
	opened map[string]bool
	// awaiting is which pool's finalizer a settled Node waits for, by the Node's name. Both are names.
	awaiting map[string]string
	// told are the families in which pools are full as pending Nodes were last told, by the pool's name.
	told map[string][]ipam.Family
	// used is which ranges Nodes use, while more than one Node is being decided about.
	used map[ipam.Range]bool
	// looks is how many pending Nodes and opened pools were looked at so far. What a choice costs is that and [clustercidr.Candidates.Checked].
	looks int
	// allocatedTo are the Nodes that were allocated blocks since the last call of Changes, in that order.
	allocatedTo []string
}

func newLine() line {
	return line{arrived: map[string]*clustercidr.Place{}, opened: map[string]bool{}, awaiting: map[string]string{}, told: map[string][]ipam.Family{}}
}

// waiting returns the UID of the pending Node of this name; empty if there is none.
func (l *line) waiting(name string) types.UID {
	if p, ok := l.arrived[name]; ok {
		return p.Node.UID
	}
	if p, ok := l.settled.At(name); ok {
		return p.Node.UID
	}
	return ""
}

// leave forgets that the Node of this name is pending.
func (b *State) leave(name string) {
	delete(b.arrived, name)
	delete(b.awaiting, name)
	delete(b.pending, name)
	b.settled.Leave(name)
}

// queue notes whether a Node is pending. If it is, and another one of its labels has changed since it was settled, everything is open again.
func (b *State) queue(node *v1.Node) {
	switch {
	case clustercidr.ShowsPodCIDRs(node), node.DeletionTimestamp != nil, len(b.ledger.Held(OwnerOf(node.UID))) > 0:
		b.leave(node.Name)
	case b.arrived[node.Name] != nil || !b.settled.Renew(node):
		b.arrive(node)
	}
}

// arrive notes that AllocatePending has to decide about a Node.
func (b *State) arrive(node *v1.Node) {
	if p, ok := b.settled.At(node.Name); ok && b.settled.Renew(node) {
		b.arrived[node.Name] = p
		return
	}
	b.settled.Leave(node.Name)
	if since, p := b.place(node), b.arrived[node.Name]; p == nil || p.Node != node || !p.Since.Equal(since) {
		b.arrived[node.Name] = &clustercidr.Place{Node: node, Since: since}
	}
}

// freed notes that blocks are free, unless others hold them, too.
func (b *State) freed(blocks []netip.Prefix) {
	b.vacate(blocks...)
	var larger map[string]bool // names of pools; who held a whole range of theirs may be named as the reason
	for p := range b.ranges.Overlapping(blocks...) {
		b.open(p)
		if slices.ContainsFunc(blocks, p.LargerThanBlocks) {
			if larger == nil {
				larger = map[string]bool{}
			}
			larger[p.Name] = true
		}
	}
	if larger != nil {
		b.reviewTold(larger)
	}
}

// open notes that a pool may have free blocks.
func (b *State) open(p *clustercidr.Pool) {
	if p.State == ipam.Enabled && !b.notFull.Has(p) {
		b.notFull.Add(p)
	}
	if b.settled.Len() > 0 {
		b.opened[p.Name] = true
	}
}

// poolChanged notes that a pool was added, replaced or dropped: old or now is nil.
func (b *State) poolChanged(old, now *clustercidr.Pool) {
	if b.settled.Len() == 0 {
		return
	}
	begins := canAllocate(now) && !canAllocate(old)
	switch {
	case old == nil && now.AwaitsFinalizer():
		return // Until it has its finalizer, it changes nothing for anybody.
	case len(b.pools) == 0, begins && len(b.pools) == len(b.awaitingFinalizer)+1:
		b.review(nil) // it is another reason whether there is any pool
	}
	if now != nil {
		b.open(now)
		b.review(now)
	}
	if old == nil {
		return
	}
	if now == nil || ipam.Compare(old.First(), now.First()) != 0 {
		b.review(old)
	}
	if old.AwaitsFinalizer() {
		b.goOn(old)
	}
}

// canAllocate reports whether a pool is there, and does not wait for its finalizer.
func canAllocate(p *clustercidr.Pool) bool { return p != nil && !p.AwaitsFinalizer() }

// goOn notes that Nodes need not wait for p's finalizer any more.
func (b *State) goOn(p *clustercidr.Pool) {
	for name, awaited := range b.awaiting {
		if place, ok := b.settled.At(name); ok && awaited == p.Name {
			b.arrived[name] = place
		}
	}
}

// review notes that the reasons why Nodes are pending may have changed, of those that p selects, or of all if p is nil.
func (b *State) review(p *clustercidr.Pool) {
	for _, places := range b.settled.SelectedBy(p) {
		for _, place := range places {
			if b.looks++; p == nil || b.tells(place.Node.Name, p) && p.Matches(place.Node) {
				b.recheck.Add(place.Node.Name)
			}
		}
	}
}

// reviewTold notes that the reasons may have changed of which pending Nodes are told: they name one of these pools. That may be all pools, so
// each Node is looked at once.
func (b *State) reviewTold(pools map[string]bool) {
	for name, w := range b.pending {
		b.looks++
		if slices.ContainsFunc(w.refusals, func(r pending.Refusal) bool { return pools[r.Pool.Name] }) {
			b.recheck.Add(name)
		}
	}
}

// AllocationDue reports whether AllocatePending has something to decide.
func (b *State) AllocationDue() bool { return len(b.arrived)+len(b.opened) > 0 }

// AllocatePending reserves blocks for all pending Nodes that a pool can serve now, the oldest first. Call it after every change of the state,
// unless something that matters for the choice is still to be recorded.
func (b *State) AllocatePending() {
	if !b.AllocationDue() {
		return
	}
	t := turn{b: b, before: len(b.allocatedTo)}
	if place := b.onlyOne(); place != nil {
		t.decide(place)
	} else {
		t.begin()
		for place := t.turns.Next(); place != nil; place = t.turns.Next() {
			t.decide(place)
			t.endFull()
		}
	}
	for _, name := range b.allocatedTo[t.before:] { // only now, since the lists of places must not change before
		b.leave(name)
		b.recheck.Remove(name)
	}
	for _, place := range t.settle {
		if _, ok := b.settled.At(place.Node.Name); !ok {
			b.settled.Enter(place)
		}
	}
	if clear(b.arrived); b.used != nil { // There may have been very many, and a map that was large is slow from then on.
		b.arrived, b.opened, b.used = map[string]*clustercidr.Place{}, map[string]bool{}, nil
	}
}

// onlyOne returns the Node that has arrived if nothing else is to be decided, which is so nearly always; nil if more is.
func (b *State) onlyOne() (only *clustercidr.Place) {
	if len(b.opened) > 0 || len(b.arrived) > 1 {
		return nil
	}
	for _, only = range b.arrived {
	}
	return only
}

// turn is one decision of AllocatePending.
type turn struct {
	b     *State
	turns clustercidr.Turns
	// open are the opened pools that have a free block.
	open map[*clustercidr.Pool]bool
	// everybody is whether these are many. Then all Nodes have their turn, and not only those that one of them selects.
	everybody bool
	// before is how many Nodes had been allocated blocks before; settle are the Nodes that arrived and were not.
	before int
	settle []*clustercidr.Place
}

// decide reserves blocks for a Node whose turn it is.
func (t *turn) decide(place *clustercidr.Place) {
	b, name := t.b, place.Node.Name
	if b.Undecided(name) { // The next renewal of the Lease decides which blocks it may get back. Then it is reserved for.
		return
	}
	b.looks++
	if p, awaits := b.allocate(place.Node); p != nil {
		b.allocatedTo = append(b.allocatedTo, name)
		t.allocated(p)
	} else {
		t.notServed(place, awaits)
	}
}

// maxOpen is how many opened pools are looked at one by one.
const maxOpen = 16

func (t *turn) begin() {
	b := t.b
	arrived := slices.AppendSeq(make([]*clustercidr.Place, 0, len(b.arrived)), maps.Values(b.arrived))
	slices.SortFunc(arrived, (*clustercidr.Place).Compare)
	t.turns.Add(nil, arrived)
	t.open, b.used = map[*clustercidr.Pool]bool{}, map[ipam.Range]bool{}
	for name := range b.opened {
		b.looks++
		if p, ok := b.pools[name]; ok && p.State == ipam.Enabled && !b.closeIfFull(p) {
			t.open[p] = true
		}
	}
	if t.everybody = len(t.open) > maxOpen; t.everybody {
		t.turns.Add(nil, b.settled.Everybody()...)
		return
	}
	for p := range t.open {
		t.turns.Add(p, b.settled.SelectedBy(p)...)
	}
}

// closeIfFull notes that a pool has no free block if that is so.
func (b *State) closeIfFull(p *clustercidr.Pool) bool {
	full := b.ledger.Full(&p.Pool)
	if len(full) > 0 {
		b.close(p, full)
	}
	return len(full) > 0
}

// close notes that a pool has no free block in some families, and that Nodes that it selects need a recheck if they were told of others.
func (b *State) close(p *clustercidr.Pool, full []ipam.Family) {
	b.notFull.Remove(p)
	if told, ok := b.told[p.Name]; ok && !slices.Equal(told, full) {
		b.told[p.Name] = full
		b.review(p)
	}
}

// allocated closes p if it has allocated its last block, so that the turns of those who wait for it end. Where nobody does, the next Node finds
// out. If all Nodes have their turn, it does the same with the opened pools that overlap p: they may have waited for the same blocks.
func (t *turn) allocated(p *clustercidr.Pool) {
	if len(t.open) == 0 || !t.b.closeIfFull(p) || !t.everybody {
		return
	}
	for o := range t.b.ranges.Overlapping(p.Extent()...) {
		if t.open[o] && t.b.closeIfFull(o) {
			delete(t.open, o)
		}
	}
	if len(t.open) == 0 {
		t.turns.Keep(1) // those that arrived
	}
}

// endFull ends the turns of the Nodes that an opened pool selects if it has no free block any more: it was the last one, or another pool that
// overlaps it has allocated it.
func (t *turn) endFull() {
	if t.everybody {
		return
	}
	for p := range t.open {
		if !t.b.notFull.Has(p) {
			delete(t.open, p)
			t.turns.End(p)
		}
	}
}

// notServed notes that a Node stays pending.
func (t *turn) notServed(place *clustercidr.Place, awaits string) {
	b, name := t.b, place.Node.Name
	arrived := b.arrived[name] == place
	if arrived {
		t.settle = append(t.settle, place)
	}
	if arrived || b.awaiting[name] != awaits { // Otherwise what is said about it is still true: it names the pools that come first.
		b.explain(place.Node, awaits)
	}
}

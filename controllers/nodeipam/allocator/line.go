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
// The age of a Node is its creation time and then its name. A Node that gave up a refused reservation in favor of others comes after all that
// were pending then; see GiveWay.
type line struct {
	// settled are the pending Nodes that no pool could serve. arrived are those for which that is still open, by name; they may be in settled.
	settled clustercidr.Line
	arrived map[string]*clustercidr.Place
	// opened are the pools that may have got free blocks, by name.
	opened map[string]bool
	// awaiting is which pool's finalizer a settled Node waits for, by the Node's name. Both are names.
	awaiting map[string]string
	refusals []pending.Refusal // room for those of one Node
	// allocatedTo are the Nodes that were allocated blocks since the last call of Changes, in that order.
	allocatedTo []string
}

func newLine() line {
	return line{arrived: map[string]*clustercidr.Place{}, opened: map[string]bool{}, awaiting: map[string]string{}}
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
	b.arrived[node.Name] = &clustercidr.Place{Node: node, Since: b.place(node)}
}

// freed notes that blocks are free, unless others hold them, too.
func (b *State) freed(blocks []netip.Prefix) {
	b.vacate(blocks...)
	if b.settled.Len() == 0 {
		return
	}
	for p := range b.ranges.Overlapping(blocks...) {
		b.opened[p.Name] = true
		if slices.ContainsFunc(blocks, p.LargerThanBlocks) {
			b.review(p) // it may be named as the reason
		}
	}
}

// poolChanged notes that a pool was added, replaced or dropped: old or now is nil.
func (b *State) poolChanged(old, now *clustercidr.Pool) {
	for _, p := range []*clustercidr.Pool{old, now} {
		if p != nil {
			b.vacate(p.Extent()...)
		}
	}
	if b.settled.Len() == 0 {
		return
	}
	switch {
	case old == nil && now.AwaitsFinalizer():
		return // Until it has its finalizer, it changes nothing for anybody.
	case len(b.pools) == 0, old == nil && len(b.pools) == 1:
		b.review(nil) // it is another reason whether there is any pool
	}
	if now != nil {
		b.opened[now.Name] = true
		b.review(now)
	}
	if old == nil {
		return
	}
	b.review(old)
	if old.AwaitsFinalizer() {
		b.goOn(old)
	}
}

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
	var t clustercidr.Turns
	t.Add(p, b.settled.SelectedBy(p)...)
	for place := t.Next(); place != nil; place = t.Next() {
		b.recheck.Add(place.Node.Name)
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
	t := turn{b: b}
	t.begin()
	for place := t.turns.Next(); place != nil; place = t.turns.Next() {
		name := place.Node.Name
		if b.Undecided(name) { // The next renewal of the Lease decides which blocks it may get back. Then it is reserved for.
			continue
		}
		if p, ok := b.allocate(place.Node); ok {
			b.allocatedTo = append(b.allocatedTo, name)
			t.served = append(t.served, name)
			t.closeIfFull(p)
			continue
		}
		t.notServed(place)
	}
	for _, name := range t.served { // only now, since the lists of places must not change before
		b.leave(name)
		b.recheck.Remove(name)
	}
	for _, place := range t.settle {
		if _, ok := b.settled.At(place.Node.Name); !ok {
			b.settled.Enter(place)
		}
	}
	clear(b.arrived)
	clear(b.opened)
}

// turn is one decision of AllocatePending.
type turn struct {
	b     *State
	turns clustercidr.Turns
	// open are the opened pools that have a free block. If there are many, all Nodes have their turn.
	open []*clustercidr.Pool
	// served are the names of the Nodes that were allocated blocks; settle are the Nodes that arrived and were not.
	served []string
	settle []*clustercidr.Place
}

// maxOpen is how many opened pools are looked at one by one.
const maxOpen = 16

func (t *turn) begin() {
	b := t.b
	t.turns.Add(nil, slices.SortedFunc(maps.Values(b.arrived), (*clustercidr.Place).Compare))
	switch {
	case b.settled.Len() == 0:
	case len(b.opened) > maxOpen:
		t.turns.Add(nil, b.settled.Everybody()...)
	default:
		for name := range b.opened {
			if p, ok := b.pools[name]; ok && p.State == ipam.Enabled && len(b.ledger.Full(&p.Pool)) == 0 {
				t.open = append(t.open, p)
				t.turns.Add(p, b.settled.SelectedBy(p)...)
			}
		}
	}
}

// closeIfFull ends the turns of the Nodes that a pool selects if it has no free block any more.
func (t *turn) closeIfFull(p *clustercidr.Pool) {
	if i := slices.Index(t.open, p); i >= 0 && len(t.b.ledger.Full(&p.Pool)) > 0 {
		t.open = slices.Delete(t.open, i, i+1)
		t.turns.End(p)
	}
}

// notServed notes that a Node stays pending.
func (t *turn) notServed(place *clustercidr.Place) {
	if t.b.arrived[place.Node.Name] == place {
		t.settle = append(t.settle, place)
	}
	for _, p := range slices.Clone(t.open) { // One that overlaps another pool can get full by what was allocated from that.
		if p.Matches(place.Node) {
			t.closeIfFull(p)
		}
	}
}

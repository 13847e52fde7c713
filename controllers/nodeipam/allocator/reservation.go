package allocator

import (
	"net/netip"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/multicidr/controller-manager/controllers/ipam"
	"github.com/multicidr/controller-manager/controllers/nodeipam/clustercidr"
	"github.com/multicidr/controller-manager/controllers/nodeipam/pending"
)

// ReservationState is how far the blocks that a Node holds have come. Only State changes it.
//
//	           sending                 the Node shows podCIDRs
//	reserved ───────────► sent ─────────────────────────────────► assigned
//	    ▲                 │  ▲                                       ▲
//	    │      definitely │  │ sending                               │
//	    │         refused ▼  │             the Node shows podCIDRs   │
//	    └ chosen again ─ refused ────────────────────────────────────┘
//
// In every state, deleting the Node object frees the blocks. In the states reserved and refused, no write of the blocks can take effect any
// more. They can therefore be given up at once: when their pool is no longer eligible, when others hold addresses in them, or when the Node
// would now be allocated something that comes first. In the state sent they stay reserved whatever happens, even if a write was carried
// out, the watch does not show it yet, and a further write is refused. They are only not written again while they could not be allocated
// any more; see HoldBack.
type ReservationState uint8

const (
	// reserved: chosen, never sent.
	reserved ReservationState = iota
	// sent: a write is in flight, or the API server may have carried one out, or may still do so.
	sent
	// refused: the API server has refused every write, or a read has shown that none was stored and none can arrive.
	refused
	// Assigned: the Node shows podCIDRs.
	Assigned
)

func (s ReservationState) String() string {
	return [...]string{"Reserved", "Sent", "Refused", "Assigned"}[s]
}

// revocable reports whether the blocks may be given up while the Node exists.
func (s ReservationState) revocable() bool {
	return s == reserved || s == refused
}

// become moves the blocks of a Node into another state.
func (b *State) become(name string, e *nodeEntry, s ReservationState) {
	switch e.state = s; {
	case s == Assigned:
		e.writes = nil
	case e.writes == nil && s != reserved:
		e.writes = &writes{}
	case e.writes != nil && s != sent:
		e.unansweredUntil, e.stored, e.read = time.Time{}, false, false
	}
	if s.revocable() && len(b.ledger.Held(OwnerOf(e.uid))) > 0 {
		b.revocable[name] = true
	} else {
		delete(b.revocable, name)
	}
}

// stillFree reports whether p could still allocate these blocks, which o holds.
func (b *State) stillFree(o ipam.Owner, p *clustercidr.Pool, blocks []netip.Prefix) bool {
	if !p.Allocates(blocks) {
		return false
	}
	for range b.ledger.Conflicts(o) {
		return false
	}
	return true
}

// keeps reports whether a Node keeps the revocable blocks that it holds: their pool may still allocate them, and no pool that comes first
// has a free block, even if the Node gave up those that it holds.
func (b *State) keeps(node *v1.Node, e *nodeEntry, held []netip.Prefix) bool {
	o, own := OwnerOf(e.uid), b.pools[e.pool]
	if own == nil || !own.Matches(node) || !b.stillFree(o, own, held) {
		return false
	}
	first := func(p *clustercidr.Pool) bool { return ipam.Compare(p.For(node), own.For(node)) < 0 }
	for p := range b.notFull.Of(node) {
		if !first(p) {
			break
		}
		if p.AwaitsFinalizer() || len(b.ledger.Full(&p.Pool)) == 0 {
			return false
		}
	}
	for p := range b.ranges.Overlapping(held...) {
		if p.Matches(node) && first(p) && b.hasFor(o, held, p) {
			return false
		}
	}
	return true
}

// hasFor reports whether p, which overlaps the blocks that a Node holds, has free blocks for it as if it had already given those up.
func (b *State) hasFor(o ipam.Owner, held []netip.Prefix, p *clustercidr.Pool) bool {
	b.ledger.Release(o)
	defer b.ledger.Hold(o, held...)
	return p.State == ipam.Enabled && len(b.ledger.Full(&p.Pool)) == 0
}

// revoke gives up the revocable blocks of a Node, if it holds any.
func (b *State) revoke(name string, held []netip.Prefix) {
	if len(held) == 0 {
		return
	}
	e := b.nodes[name]
	b.hold(OwnerOf(e.uid), nil)
	if e.pool, e.state = "", reserved; e.writes != nil {
		e.failingSince = time.Time{}
	}
	delete(b.revocable, name)
}

// GiveUp removes a Node that needs no podCIDRs from the pending ones, and gives up its reservation unless that may have been written.
func (b *State) GiveUp(node *v1.Node) {
	b.leave(node.Name)
	if e, ok := b.entryOf(node); ok && e.state.revocable() {
		b.revoke(node.Name, b.ledger.Held(OwnerOf(e.uid)))
	}
}

// Reservation is what is to be written to a Node.
type Reservation struct {
	ClusterCIDR string
	Blocks      []netip.Prefix
}

// Reserve returns the Node's reservation, and makes one unless a valid one exists. Nodes that are older come first. If no pool can serve the
// Node, ok is false and the Node is pending from now on; the refusals are those of the first pools that match it, in the order in which they
// are tried.
func (b *State) Reserve(node *v1.Node) (_ Reservation, _ []pending.Refusal, ok bool) {
	b.replaced(node)
	owner := OwnerOf(node.UID)
	if held := b.ledger.Held(owner); len(held) > 0 {
		if e := b.nodes[node.Name]; !e.state.revocable() || b.keeps(node, e, held) {
			return Reservation{ClusterCIDR: e.pool, Blocks: held}, nil, true
		}
		b.revoke(node.Name, held)
	}
	b.arrive(node)
	b.AllocatePending()
	if held := b.ledger.Held(owner); len(held) > 0 {
		b.allocatedTo = slices.DeleteFunc(b.allocatedTo, func(name string) bool { return name == node.Name }) // its caller writes them
		return Reservation{ClusterCIDR: b.nodes[node.Name].pool, Blocks: held}, nil, true
	}
	return Reservation{}, b.pending[node.Name].refusals, false
}

// allocate reserves blocks of the first pool that can serve a Node without blocks, and returns that pool; nil if there is none. awaits is the
// name of the pool whose finalizer the Node then waits for, if any.
func (b *State) allocate(node *v1.Node) (from *clustercidr.Pool, awaits string) {
	type full struct {
		pool *clustercidr.Pool
		in   []ipam.Family
	}
	var found []full
	for p := range b.notFull.Of(node) {
		if p.AwaitsFinalizer() {
			awaits = p.Name // it can allocate in a moment, and takes precedence over the rest
			break
		}
		pick, missing := b.ledger.Look(&p.Pool)
		if b.take(OwnerOf(node.UID), p, pick) {
			from = p
			break
		}
		if len(missing) > 0 {
			found = append(found, full{p, missing})
		}
	}
	for _, f := range found {
		b.close(f.pool, f.in)
	}
	if from != nil {
		e := b.enter(node)
		e.pool = from.Name
		b.become(node.Name, e, reserved)
	}
	return from, awaits
}

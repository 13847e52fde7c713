package allocator

import (
	"iter"
	"maps"
	"net/netip"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/multicidr/controller-manager/controllers/ipam"
	"github.com/multicidr/controller-manager/controllers/nodeipam/clustercidr"
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
	case e.writes == nil:
		e.writes = &writes{}
	case s != sent:
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
	if !allocates(p, blocks) {
		return false
	}
	for range b.ledger.Conflicts(o) {
		return false
	}
	return true
}

// allocates reports whether p could allocate these blocks together if they were free.
func allocates(p *clustercidr.Pool, blocks []netip.Prefix) bool {
	if p.State != ipam.Enabled || len(blocks) != len(p.Ranges) {
		return false
	}
	for i, block := range blocks {
		if r := p.Ranges[i]; block.Bits() != r.BlockBits || !r.Prefix.Contains(block.Addr()) || p.Excluded.Overlaps(block) {
			return false
		}
	}
	return true
}

// pick chooses blocks from p for a Node as if it had already given up the blocks that it holds.
func (b *State) pick(o ipam.Owner, held []netip.Prefix, p *clustercidr.Pool) (ipam.Pick, bool) {
	if len(held) == 0 {
		return b.ledger.Pick(&p.Pool)
	}
	b.ledger.Release(o)
	defer b.ledger.Hold(o, held...)
	return b.ledger.Pick(&p.Pool)
}

// revoke gives up the revocable blocks of a Node, if it holds any.
func (b *State) revoke(name string, held []netip.Prefix) {
	if len(held) == 0 {
		return
	}
	e := b.nodes[name]
	b.hold(OwnerOf(e.uid), nil)
	e.pool, e.state, e.failingSince = "", reserved, time.Time{}
	delete(b.revocable, name)
}

// GiveUp removes a Node that needs no podCIDRs from the pending ones, and gives up its reservation unless that may have been written.
func (b *State) GiveUp(node *v1.Node) {
	delete(b.pending, node.Name)
	if e, ok := b.entryOf(node); ok && e.state.revocable() {
		b.revoke(node.Name, b.ledger.Held(OwnerOf(e.uid)))
	}
}

// Reservation is what is to be written to a Node.
type Reservation struct {
	ClusterCIDR string
	Blocks      []netip.Prefix
}

// Reserve returns the Node's reservation, and makes one unless a valid one exists. If no pool can serve the Node, ok is false and the Node
// is pending from now on; the refusals are those of the pools that match it, in the order in which they were tried.
func (b *State) Reserve(node *v1.Node) (_ Reservation, _ []refusal, ok bool) {
	b.replaced(node)
	owner := OwnerOf(node.UID)
	held := b.ledger.Held(owner)
	e := b.nodes[node.Name]
	if len(held) > 0 && !e.state.revocable() {
		return Reservation{ClusterCIDR: e.pool, Blocks: held}, nil, true
	}
	var refusals []refusal
	for p := range b.inOrder(node) {
		if len(held) > 0 && e.pool == p.Name && b.stillFree(owner, p, held) {
			return Reservation{ClusterCIDR: p.Name, Blocks: held}, nil, true
		}
		pick, ok := b.pick(owner, held, p)
		if ok {
			b.revoke(node.Name, held)
			if b.take(owner, pick) {
				e := b.enter(node)
				e.pool = p.Name
				b.become(node.Name, e, reserved)
				delete(b.pending, node.Name)
				return Reservation{ClusterCIDR: p.Name, Blocks: pick.Blocks}, nil, true
			}
		}
		refusals = append(refusals, refusal{pool: p, full: b.ledger.Full(&p.Pool)})
		if p.AwaitsFinalizer() {
			break // it can allocate in a moment, and takes precedence over the rest
		}
	}
	b.revoke(node.Name, held)
	b.explain(refusals) // only now: a Node that gets blocks after many full pools does not need it
	b.pending[node.Name] = pendingNode{
		uid:      node.UID,
		since:    node.CreationTimestamp.Time,
		refusals: refusals,
		why:      pendingReasonOf(len(b.pools), refusals),
		said:     b.pending[node.Name].said,
	}
	return Reservation{}, refusals, false
}

// inOrder yields the pools that match a Node in the order in which they are tried.
func (b *State) inOrder(node *v1.Node) iter.Seq[*clustercidr.Pool] {
	if b.candidates == nil {
		b.candidates = clustercidr.NewCandidates(maps.Values(b.pools))
	}
	return b.candidates.Of(node)
}

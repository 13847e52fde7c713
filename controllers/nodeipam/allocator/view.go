package allocator

import (
	"iter"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/multicidr/controller-manager/controllers/ipam"
	"github.com/multicidr/controller-manager/controllers/nodeipam/clustercidr"
)

// What others may read of a state. Nothing of it changes the state.

// NodeView is what is known of a Node that holds something, or has addresses.
type NodeView struct {
	UID types.UID
	// ClusterCIDR is the name of that which the blocks are from: the Node's annotation, or that of the reservation.
	ClusterCIDR string
	// Blocks are what the Node holds, and State how far they have come.
	Blocks []netip.Prefix
	State  ReservationState
	// Stored and UnansweredUntil are about the writes of a reservation: whether the API server has said that it carried one out, and until when it
	// may still carry out one that it did not answer.
	Stored          bool
	UnansweredUntil time.Time
	// StoredAt is State.StoredAt. Read says that a read since the last write has shown no podCIDRs, when ReadAfter renewals had been sent.
	StoredAt  time.Time
	Read      bool
	ReadAfter int
	// FailingSince is when the first write of the reservation failed: it was refused, not answered, or not kept.
	FailingSince time.Time
	// Addresses are the Node's own.
	Addresses []netip.Prefix
	// Reported is what was found of its podCIDRs, message by reason. AssignedByOther and Suspected say that another process wrote them.
	Reported                   map[string]string
	AssignedByOther, Suspected string
}

// Node returns what is known of the Node of this name.
func (b *State) Node(name string) (n NodeView, ok bool) {
	e, ok := b.nodes[name]
	if !ok {
		return NodeView{}, false
	}
	return NodeView{
		UID: e.uid, ClusterCIDR: e.pool, Blocks: b.ledger.Held(OwnerOf(e.uid)), State: e.state, Stored: e.stored, UnansweredUntil: e.unansweredUntil, FailingSince: e.failingSince,
		StoredAt: e.storedAt, Read: e.read, ReadAfter: e.readAfter,
		Addresses: e.addresses, Reported: e.reported, AssignedByOther: e.byOther, Suspected: e.suspected,
	}, true
}

// NodeUIDs yields the Nodes that are known, by name.
func (b *State) NodeUIDs() iter.Seq2[string, types.UID] {
	return func(yield func(string, types.UID) bool) {
		for name, e := range b.nodes {
			if !yield(name, e.uid) {
				return
			}
		}
	}
}

// PendingView is what is known of a Node that no ClusterCIDR can serve now.
type PendingView struct {
	UID types.UID
	// Why is for people, and RefusedBy are the ClusterCIDRs that match it, in the order in which they were tried.
	Why       string
	RefusedBy []Refusal
	// Handed and Stored are the reasons of which an event was asked for, and was stored.
	Handed, Stored string
}

// Refusal is why one ClusterCIDR cannot serve a Node.
type Refusal struct{ ClusterCIDR, Reason string }

// Pending returns what is known of the pending Node of this name.
func (b *State) Pending(name string) (p PendingView, ok bool) {
	w, ok := b.pending[name]
	if !ok {
		return PendingView{}, false
	}
	p = PendingView{UID: w.uid, Why: NotAvailable(w.refusals, len(b.pools)), Handed: w.said.handed, Stored: w.said.stored}
	for _, r := range w.refusals {
		p.RefusedBy = append(p.RefusedBy, Refusal{r.pool.Name, r.String()})
	}
	return p, true
}

// Pools returns all pools, by name.
func (b *State) Pools() []*clustercidr.Pool {
	return slices.SortedFunc(maps.Values(b.pools), func(x, y *clustercidr.Pool) int { return strings.Compare(x.Name, y.Name) })
}

// HeldBy returns what an owner holds.
func (b *State) HeldBy(o ipam.Owner) []netip.Prefix { return b.ledger.Held(o) }

// Holdings returns what is held of the addresses of a prefix: what contains another one comes before it.
func (b *State) Holdings(p netip.Prefix) []ipam.Holding { return b.ledger.Overlapping(p) }

// Free returns how many blocks of a range of p are free.
func (b *State) Free(p *clustercidr.Pool, r ipam.Range) uint64 { return b.ledger.Free(&p.Pool, r) }

// Cursor returns where the search in the range of a family goes on.
func (b *State) Cursor(p *clustercidr.Pool, family ipam.Family) netip.Addr {
	return b.ledger.Cursor(&p.Pool, family)
}

// Kept returns the blocks that are kept for Nodes which a list lacks.
func (b *State) Kept() (all []ipam.Holding) {
	for _, doubts := range b.doubts {
		for _, d := range doubts {
			for _, block := range d.blocks {
				all = append(all, ipam.Holding{Owner: d.owner(), Prefix: block})
			}
		}
	}
	return all
}

// GaveWay returns when refused reservations were last given up for pending Nodes.
func (b *State) GaveWay() time.Time { return b.gaveWay }

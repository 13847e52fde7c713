package allocator

import (
	"cmp"
	"iter"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/multicidr/controller-manager/controllers/ipam"
	"github.com/multicidr/controller-manager/controllers/nodeipam/clustercidr"
	"github.com/multicidr/controller-manager/controllers/nodeipam/pending"
)

// Read access to a state. Nothing in this file changes it.

// NodeView is what the state knows about a Node that holds blocks or has addresses.
type NodeView struct {
	UID types.UID
	// ClusterCIDR is the name of the ClusterCIDR that the blocks were allocated from: from the Node's annotation, or from the reservation.
	ClusterCIDR string
	// Blocks are what the Node holds; State is how far they have come.
	Blocks []netip.Prefix
	State  ReservationState
	// Stored is whether the API server has confirmed a write of the reservation; UnansweredUntil is the time until which it may still carry
	// out a write that it has not answered.
	Stored          bool
	UnansweredUntil time.Time
	// StoredAt is State.StoredAt. Read is whether a read since the last write has shown no podCIDRs; ReadAfter is how many renewals had
	// been sent by then.
	StoredAt  time.Time
	Read      bool
	ReadAfter int
	// FailingSince is when a write of the reservation first failed: it was refused, not answered, or not kept.
	FailingSince time.Time
	// GaveWay is the Node's place among pending Nodes if it gave up a refused reservation for others; otherwise that is its creation.
	GaveWay time.Time
	// Addresses are the Node's own addresses.
	Addresses []netip.Prefix
	// Reported are the findings about its podCIDRs, message by reason. AssignedByOther and Suspected say that another process wrote them.
	Reported                   map[string]string
	AssignedByOther, Suspected string
}

// Node returns what the state knows about the Node of this name.
func (b *State) Node(name string) (n NodeView, ok bool) {
	e, ok := b.nodes[name]
	if !ok {
		return NodeView{}, false
	}
	w := cmp.Or(e.writes, &writes{})
	return NodeView{
		UID: e.uid, ClusterCIDR: e.pool, Blocks: b.ledger.Held(OwnerOf(e.uid)), State: e.state,
		Stored: w.stored, UnansweredUntil: w.unansweredUntil, FailingSince: w.failingSince, GaveWay: w.gaveWay, StoredAt: w.storedAt, Read: w.read, ReadAfter: w.readAfter,
		Addresses: e.addresses, Reported: e.reported, AssignedByOther: e.byOther().accused, Suspected: e.byOther().suspected,
	}, true
}

// Shows reports whether this Node has shown podCIDRs, which it holds.
func (b *State) Shows(name string, uid types.UID) bool {
	e, ok := b.nodes[name]
	return ok && e.uid == uid && e.state == Assigned
}

// NodeUIDs yields the name and UID of every known Node, in no particular order.
func (b *State) NodeUIDs() iter.Seq2[string, types.UID] {
	return func(yield func(string, types.UID) bool) {
		for name, e := range b.nodes {
			if !yield(name, e.uid) {
				return
			}
		}
	}
}

// PendingView is what the state knows about a pending Node: one that no ClusterCIDR can serve now.
type PendingView struct {
	UID    types.UID
	Reason pending.Reason
	// Why is for people. RefusedBy are the ClusterCIDRs that match the Node, in the order in which they were tried.
	Why       string
	RefusedBy []Refusal
	// Handed are the reasons for which an event was requested; Stored are those in the last stored event.
	Handed, Stored string
}

// Refusal is why one ClusterCIDR cannot serve a Node.
type Refusal struct{ ClusterCIDR, Reason string }

func (b *State) Pending(name string) (p PendingView, ok bool) {
	w, ok := b.pending[name]
	if !ok {
		return PendingView{}, false
	}
	p = PendingView{UID: w.uid, Reason: w.why, Why: pending.NotAvailable(w.refusals, len(b.pools)), Handed: w.said.handed, Stored: w.said.stored}
	for _, r := range w.refusals {
		p.RefusedBy = append(p.RefusedBy, Refusal{r.Pool.Name, r.String()})
	}
	return p, true
}

// Pools returns all pools, sorted by name.
func (b *State) Pools() []*clustercidr.Pool {
	return slices.SortedFunc(maps.Values(b.pools), func(x, y *clustercidr.Pool) int { return strings.Compare(x.Name, y.Name) })
}

// Candidates yields the pools that match a Node, in the order in which they are tried. The state must not change meanwhile.
func (b *State) Candidates(node *v1.Node) iter.Seq[*clustercidr.Pool] { return b.candidates.Of(node) }

func (b *State) HeldBy(o ipam.Owner) []netip.Prefix { return b.ledger.Held(o) }

// Holdings returns the holdings that overlap a prefix; a prefix comes before those that it contains.
func (b *State) Holdings(p netip.Prefix) []ipam.Holding { return b.ledger.Overlapping(p) }

// Free returns how many blocks of a range of p are free.
func (b *State) Free(p *clustercidr.Pool, r ipam.Range) uint64 { return b.ledger.Free(&p.Pool, r) }

// Cursor returns where the next search in the pool's range of this family starts.
func (b *State) Cursor(p *clustercidr.Pool, family ipam.Family) netip.Addr {
	return b.ledger.Cursor(&p.Pool, family)
}

// GaveWay returns when refused reservations were last given up in favor of pending Nodes.
func (b *State) GaveWay() time.Time { return b.gaveWay }

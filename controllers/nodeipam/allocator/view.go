package allocator

import (
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
	w := writes{}
	if e.writes != nil {
		w = *e.writes
	}
	return NodeView{
		UID: e.uid, ClusterCIDR: e.pool, Blocks: b.ledger.Held(OwnerOf(e.uid)), State: e.state,
		Stored: w.stored, UnansweredUntil: w.unansweredUntil, FailingSince: w.failingSince, GaveWay: w.gaveWay, StoredAt: w.storedAt, Read: w.read, ReadAfter: w.readAfter,
		Addresses: e.addresses, Reported: e.reported, AssignedByOther: e.byOther, Suspected: e.suspected,
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
	UID types.UID
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
	p = PendingView{UID: w.uid, Why: pending.NotAvailable(w.refusals, len(b.pools)), Handed: w.said.handed, Stored: w.said.stored}
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

// Refusal says why a pool that matches a Node cannot serve it now; false if it can, or can once it has its finalizer.
func (b *State) Refusal(p *clustercidr.Pool) (reason string, ok bool) {
	if p.AwaitsFinalizer() || p.State == ipam.Enabled && len(b.ledger.Full(&p.Pool)) == 0 {
		return "", false
	}
	return pending.Explain(p, b.full()).String(), true
}

// PendingReasons returns the names of the pending Nodes, by the reason in one word.
func (b *State) PendingReasons() map[pending.Reason][]string {
	byReason := map[pending.Reason][]string{}
	for name, w := range b.pending {
		byReason[w.why] = append(byReason[w.why], name)
	}
	return byReason
}

// Findings returns what is wrong with the podCIDRs that a Node shows, message by event reason.
func (b *State) Findings(node *v1.Node) map[string]string { return b.findings(node) }

// Shares reports whether others hold addresses that the Node with this UID holds.
func (b *State) Shares(uid types.UID) bool { return b.sharing[uid] }

// BelongsTo reports whether the Node with this UID belongs to p.
func (b *State) BelongsTo(uid types.UID, p *clustercidr.Pool) bool {
	_, known := b.names[uid]
	return known && b.belongs(uid, p)
}

func (b *State) HeldBy(o ipam.Owner) []netip.Prefix { return b.ledger.Held(o) }

// Holdings returns the holdings that overlap a prefix; a prefix comes before those that it contains.
func (b *State) Holdings(p netip.Prefix) []ipam.Holding { return b.ledger.Overlapping(p) }

// Free returns how many blocks of a range of p are free.
func (b *State) Free(p *clustercidr.Pool, r ipam.Range) uint64 { return b.ledger.Free(&p.Pool, r) }

// Usage returns how many blocks of a range of p are in use. Unlike [State.Free] it keeps the count, so that asking again is cheap.
func (b *State) Usage(p *clustercidr.Pool, r ipam.Range) ipam.Usage { return b.ledger.Usage(&p.Pool, r) }

// Held reports whether somebody holds an address of a prefix.
func (b *State) Held(prefix netip.Prefix) bool {
	for range b.ledger.Holdings(prefix) {
		return true
	}
	return false
}

// Cursor returns where the next search in the pool's range of this family starts.
func (b *State) Cursor(p *clustercidr.Pool, family ipam.Family) netip.Addr {
	return b.ledger.Cursor(&p.Pool, family)
}

// GaveWay returns when refused reservations were last given up in favor of pending Nodes.
func (b *State) GaveWay() time.Time { return b.gaveWay }

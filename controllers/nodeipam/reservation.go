package nodeipam

import (
	"net/netip"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/multicidr/controller-manager/controllers/ipam"
)

// state is how far the blocks that a Node holds have come. Only the book moves it.
//
//	           sending                 the Node shows podCIDRs
//	reserved ───────────► sent ─────────────────────────────────► assigned
//	    ▲                 │  ▲                                       ▲
//	    │      definitely │  │ sending                               │
//	    │         refused ▼  │             the Node shows podCIDRs   │
//	    └ chosen again ─ refused ────────────────────────────────────┘
//
// In every state the blocks are free again when the Node object is gone. In the states reserved and refused no write of them can be
// carried out any more, so they can be given up at once: when their pool is not eligible any more, when the blocks are not free of
// others any more, or when the Node would get something else first. In the state sent they stand, whatever happens: also when a write was
// carried out, the watch does not show it yet, and one more is refused.
type state uint8

const (
	// reserved: chosen, and never sent.
	reserved state = iota
	// sent: a write is on its way, or the API server may have carried it out, or may still do.
	sent
	// refused: the API server has refused every write that was sent, or a read tells that none was kept and none can arrive.
	refused
	// assigned: the Node shows podCIDRs.
	assigned
)

func (s state) String() string { return [...]string{"Reserved", "Sent", "Refused", "Assigned"}[s] }

// revocable reports whether the blocks may be given up although the Node is there.
func (s state) revocable() bool {
	return s == reserved || s == refused
}

// become moves what a Node holds into another state.
func (b *book) become(name string, e *nodeEntry, s state) {
	e.state = s
	if s != sent {
		e.unansweredUntil, e.stored = time.Time{}, false
	}
	if s.revocable() && len(b.ledger.Held(ownerOf(e.uid))) > 0 {
		b.revocable[name] = true
	} else {
		delete(b.revocable, name)
	}
}

// entryOf returns the entry of this very Node if it holds a reservation.
func (b *book) entryOf(node *v1.Node) (e *nodeEntry, ok bool) {
	e, ok = b.nodes[node.Name]
	return e, ok && e.uid == node.UID && e.state != assigned && len(b.ledger.Held(ownerOf(e.uid))) > 0
}

// sending notes that a write of the Node's reservation is about to be sent. It reports whether that is the first one
// with these blocks.
func (b *book) sending(node *v1.Node) (first bool) {
	if e, ok := b.entryOf(node); ok {
		held := b.ledger.Held(ownerOf(e.uid))
		first = !slices.Equal(e.tried, held)
		e.tried = held
		b.become(node.Name, e, sent)
	}
	return first
}

// written notes that the API server has carried out a write of the Node's reservation. What becomes of a later one changes nothing about that.
func (b *book) written(node *v1.Node) {
	if e, ok := b.nodes[node.Name]; ok && e.uid == node.UID {
		e.answered = true
	}
	if e, ok := b.entryOf(node); ok && e.state == sent {
		e.stored = true
	}
}

// notCarriedOut notes that the last write of the Node's reservation was not sent, or was refused by the API server; then wasSent is true.
// It reports whether an earlier write was not answered, so that nobody knows whether that one was, or was carried out, as the API server said: a read
// tells.
func (b *book) notCarriedOut(node *v1.Node, wasSent bool) (unknown bool) {
	e, ok := b.entryOf(node)
	switch {
	case !ok:
		return false
	case e.stored, !e.unansweredUntil.IsZero():
		return true
	case wasSent:
		b.become(node.Name, e, refused)
	default:
		b.become(node.Name, e, reserved)
	}
	return false
}

// unanswered notes that nobody knows what came of the last write of the Node's reservation, and until when it can be carried out.
func (b *book) unanswered(node *v1.Node, until time.Time) {
	if e, ok := b.entryOf(node); ok && until.After(e.unansweredUntil) {
		e.unansweredUntil = until
	}
}

// neverCarriedOut notes that a read of the Node which was made when no write could be carried out any more shows no podCIDRs.
func (b *book) neverCarriedOut(node *v1.Node) {
	if e, ok := b.entryOf(node); ok {
		b.become(node.Name, e, refused)
	}
}

// stillFree reports whether p may still give these blocks, which o holds.
func (b *book) stillFree(o ipam.Owner, p *pool, blocks []netip.Prefix) bool {
	if p.State != ipam.Enabled || len(blocks) != len(p.Ranges) {
		return false
	}
	for i, block := range blocks {
		if r := p.Ranges[i]; block.Bits() != r.BlockBits || !r.Prefix.Contains(block.Addr()) || p.Excluded.Overlaps(block) {
			return false
		}
	}
	for range b.ledger.Conflicts(o) {
		return false
	}
	return true
}

// pick chooses from p for a Node that holds some blocks and would give them up for the choice.
func (b *book) pick(o ipam.Owner, held []netip.Prefix, p *pool) (ipam.Pick, bool) {
	if len(held) == 0 {
		return b.ledger.Pick(&p.Pool)
	}
	b.ledger.Release(o)
	defer b.ledger.Hold(o, held...)
	return b.ledger.Pick(&p.Pool)
}

// revoke gives up what a Node holds, if anything, in a state that allows it.
func (b *book) revoke(name string, held []netip.Prefix) {
	if len(held) == 0 {
		return
	}
	e := b.nodes[name]
	b.hold(ownerOf(e.uid), nil)
	e.pool, e.state = "", reserved
	delete(b.revocable, name)
}

// giveUp gives up the reservation of a Node that needs none, unless it may have been written.
func (b *book) giveUp(node *v1.Node) {
	if e, ok := b.entryOf(node); ok && e.state.revocable() {
		b.revoke(node.Name, b.ledger.Held(ownerOf(e.uid)))
	}
}

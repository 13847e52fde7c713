package allocator

import (
	"maps"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/multicidr/controller-manager/controllers/ipam"
	"github.com/multicidr/controller-manager/controllers/nodeipam/clustercidr"
)

// entryOf returns the entry of this very Node if it holds a reservation.
func (b *State) entryOf(node *v1.Node) (e *nodeEntry, ok bool) {
	e, ok = b.known(node)
	return e, ok && e.state != Assigned && len(b.ledger.Held(OwnerOf(e.uid))) > 0
}

// Sending notes that a write of the Node's reservation is about to be sent, when the Lease was last seen to go back as wentBack says. It reports
// whether that is the first write with these blocks.
func (b *State) Sending(node *v1.Node, wentBack int) (first bool) {
	if e, ok := b.entryOf(node); ok {
		held := b.ledger.Held(OwnerOf(e.uid))
		first = !slices.Equal(e.tried, held)
		e.tried, e.read = held, false // A read of before a write tells nothing about it.
		if e.state.revocable() {      // No earlier write of them can have been carried out.
			e.wentBack = wentBack
		}
		b.become(node.Name, e, sent)
	}
	return first
}

// Written notes that the API server says it has carried out a write of podCIDRs, and whether the Node shows them already. What becomes of a later write changes
// nothing about that. It does not end a failure: podCIDRs that are answered with 200 may be left out.
func (b *State) Written(node *v1.Node, now time.Time, shown bool) {
	e, ok := b.known(node)
	if !ok {
		return
	}
	e.answered = true
	if !shown {
		e.storedAt = now
	}
	if e, ok := b.entryOf(node); ok && e.state == sent {
		e.stored = true
	}
}

// StoredAt is when the API server last said that it has stored podCIDRs in this very Node, which has not shown any since; the zero value if it did not.
func (b *State) StoredAt(node *v1.Node) (at time.Time) {
	if e, ok := b.known(node); ok {
		at = e.storedAt
	}
	return at
}

// NotCarriedOut notes that the last write of the Node's reservation was not sent, or was refused by the API server; then wasSent is true.
// It reports whether an earlier write was not answered, so that nobody knows whether that one was, or was carried out, as the API server said: a read
// tells.
func (b *State) NotCarriedOut(node *v1.Node, wasSent bool, now time.Time) (unknown bool) {
	e, ok := b.entryOf(node)
	switch {
	case !ok:
		return false
	case e.stored, !e.unansweredUntil.IsZero():
		return true
	case wasSent:
		b.refuse(node.Name, e, now)
	default:
		b.become(node.Name, e, reserved)
	}
	return false
}

// Unanswered notes that nobody knows what came of the last write of the Node's reservation, and until when it can be carried out.
func (b *State) Unanswered(node *v1.Node, now, until time.Time) {
	e, ok := b.entryOf(node)
	if !ok {
		return
	}
	if until.After(e.unansweredUntil) {
		e.unansweredUntil = until
	}
	if e.failingSince.IsZero() {
		e.failingSince = now
	}
}

// unknown is no value of Renewals.WentBack.
const unknown = -1

// WritesOver reports whether the Node has a reservation of which no write can be carried out any more that was not answered, and whether the Lease did
// not go back since the first write: before that, a write may have been carried out, and lost.
func (b *State) WritesOver(node *v1.Node, now time.Time, wentBack int) bool {
	e, ok := b.entryOf(node)
	return ok && !now.Before(e.unansweredUntil) && e.wentBack == wentBack
}

// ReadWithout notes that a read of the Node, when WritesOver was true, showed no podCIDRs, and how many renewals of the lease were sent until then.
func (b *State) ReadWithout(node *v1.Node, sent int) {
	if e, ok := b.entryOf(node); ok {
		e.read, e.readAfter = true, sent
	}
}

// Conclude takes a reservation for refused if a read has shown no podCIDRs since its last write, and the lease was renewed after that read: without that renewal,
// a restore of etcd of which nobody knows yet would look as if no write had been carried out. It reports whether the Node has given way to others by that.
func (b *State) Conclude(node *v1.Node, now time.Time, r Renewals) (gaveWay bool) {
	e, ok := b.entryOf(node)
	if !ok || !e.read || r.Proven <= e.readAfter || !b.WritesOver(node, now, r.WentBack) {
		return false
	}
	b.refuse(node.Name, e, now)
	return len(b.ledger.Held(OwnerOf(e.uid))) == 0
}

// HoldBack reports whether the next write of the Node's reservation is to be held back. After a read that showed no podCIDRs it waits for the renewal that Conclude
// needs. And if other Nodes are pending for its blocks and writes of this one have gone without an answer for some time, it waits for that read, because each write moves the
// moment at which a read can tell that none was carried out: wait is until that moment, and read is true from then on.
func (b *State) HoldBack(node *v1.Node, now time.Time, wentBack int) (wait time.Duration, read bool) {
	e, ok := b.entryOf(node)
	switch {
	case !ok, e.wentBack != wentBack:
		return 0, false
	case e.read:
		return time.Second, false
	case e.unansweredUntil.IsZero(), e.failingSince.IsZero(), now.Sub(e.failingSince) < failureLasts, !b.inTheWay(e, b.wanted()):
		return 0, false
	}
	wait = max(0, e.unansweredUntil.Sub(now))
	return wait, wait == 0
}

// WasSent reports whether a reservation of this very Node was ever sent.
func (b *State) WasSent(node *v1.Node) bool {
	e, ok := b.known(node)
	return ok && len(e.tried) > 0
}

// failureLasts is for how long every write of a reservation has to fail before its blocks are for others, and how often that happens at most.
const failureLasts = 10 * time.Second

// refuse notes that no write of a Node's reservation was kept and none can be carried out any more. If that goes on for one Node, because what is
// stored of it is not valid or a webhook refuses it, the Node must not keep the last block from Nodes that nobody refuses: they are
// pending, so its blocks are free for them, and it chooses again when it is tried again, after all who were pending then: else two such Nodes would
// hand the block to and fro. That wakes all pending Nodes, so it is done for all such
// Nodes together and not often: if the API server refuses every Node, it helps nobody.
func (b *State) refuse(name string, e *nodeEntry, now time.Time) {
	b.become(name, e, refused)
	if e.failingSince.IsZero() {
		e.failingSince = now
	}
	if now.Sub(b.gaveWay) >= failureLasts {
		b.giveWay(now)
	}
}

// GiveWay makes a Node whose every write has failed for some time give up its blocks for pending Nodes. It returns until when the Node has to wait before
// it is tried again, and then chooses anew; 0 if that is not so. Without this wait, its next write would make the blocks its own again before it is its turn.
func (b *State) GiveWay(node *v1.Node, now time.Time) (wait time.Duration) {
	e, ok := b.entryOf(node)
	if !ok || e.state != refused || now.Sub(e.failingSince) < failureLasts || !b.inTheWay(e, b.wanted()) {
		return 0
	}
	if wait = b.gaveWay.Add(failureLasts).Sub(now); wait > 0 {
		return wait
	}
	b.giveWay(now)
	return time.Second // the others first
}

// giveWay gives up all reservations whose every write has failed for some time, as far as pending Nodes could have their blocks.
func (b *State) giveWay(now time.Time) {
	wanted := b.wanted()
	var last time.Time // the place of the last one that is pending, by the clock of the API server
	for name := range b.pending {
		if place := b.place(name); place.After(last) {
			last = place
		}
	}
	for _, name := range slices.Sorted(maps.Keys(b.revocable)) {
		if e := b.nodes[name]; e.state == refused && now.Sub(e.failingSince) >= failureLasts && b.inTheWay(e, wanted) {
			b.revoke(name, b.ledger.Held(OwnerOf(e.uid)))
			e.gaveWay, b.gaveWay = last.Add(time.Nanosecond), now
		}
	}
}

// wantedRange is a range that has no free block for a pending Node.
type wantedRange struct {
	pool   *clustercidr.Pool
	family ipam.Family
}

// wanted returns the ranges that keep Nodes pending because they are full.
func (b *State) wanted() map[wantedRange]bool {
	wanted := map[wantedRange]bool{}
	for _, w := range b.pending {
		for _, r := range w.refusals {
			for _, family := range r.full {
				wanted[wantedRange{r.pool, family}] = true
			}
		}
	}
	return wanted
}

// inTheWay reports whether a wanted range could give an address that a Node holds.
func (b *State) inTheWay(e *nodeEntry, wanted map[wantedRange]bool) bool {
	for _, block := range b.ledger.Held(OwnerOf(e.uid)) {
		for r := range wanted {
			if r.family == ipam.FamilyOf(block) && r.pool.Gives(block) {
				return true
			}
		}
	}
	return false
}

package allocator

import (
	"maps"
	"net/netip"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/multicidr/controller-manager/controllers/ipam"
	"github.com/multicidr/controller-manager/controllers/nodeipam/clustercidr"
)

// entryOf returns the entry of exactly this Node if it holds a reservation. Then the entry has writes.
func (b *State) entryOf(node *v1.Node) (e *nodeEntry, ok bool) {
	e, ok = b.known(node)
	if ok = ok && e.state != Assigned && len(b.ledger.Held(OwnerOf(e.uid))) > 0; ok && e.writes == nil {
		e.writes = &writes{}
	}
	return e, ok
}

// Sending notes that a write of the Node's reservation is about to be sent. wentBack is the current Renewals.WentBack. It reports whether
// this is the first write of these blocks.
func (b *State) Sending(node *v1.Node, wentBack int) (first bool) {
	if e, ok := b.entryOf(node); ok {
		held := b.ledger.Held(OwnerOf(e.uid))
		first = !slices.Equal(e.tried, held)
		e.tried, e.read = held, false // A read before a write says nothing about the write.
		if e.state.revocable() {      // No earlier write of them can have been carried out.
			e.wentBack, e.from = wentBack, b.pools[e.pool]
		}
		b.become(node.Name, e, sent)
	}
	return first
}

// Written notes that the API server has confirmed a write of podCIDRs, and whether the Node already shows them. The outcome of a later write
// does not change that. It does not end a failure: the API server can answer 200 although podCIDRs were left out.
func (b *State) Written(node *v1.Node, now time.Time, shown bool) {
	e, ok := b.known(node)
	if !ok {
		return
	}
	e.answered = true
	if !shown {
		if e.writes == nil { // It had podCIDRs, and lost them with a restore of etcd.
			e.writes = &writes{}
		}
		e.storedAt = now
	}
	if e, ok := b.entryOf(node); ok && e.state == sent {
		e.stored = true
	}
}

// StoredAt is when the API server last confirmed that it stored podCIDRs in exactly this Node; zero if it did not, or if the Node has shown
// podCIDRs since.
func (b *State) StoredAt(node *v1.Node) (at time.Time) {
	if e, ok := b.known(node); ok && e.writes != nil {
		at = e.storedAt
	}
	return at
}

// NotCarriedOut notes that the last write of the Node's reservation was not sent, or, if wasSent is true, was refused by the API server. It
// reports whether the outcome of the reservation is still unknown, because an earlier write was confirmed or not answered. A read settles
// that.
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

// Unanswered notes that the outcome of the last write of the Node's reservation is unknown, and until when the API server may carry it out.
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

// unknown is not a valid value of Renewals.WentBack.
const unknown = -1

// WritesOver reports whether the Node has a reservation, no unanswered write of it can be carried out any more, and a read tells whether one
// was.
func (b *State) WritesOver(node *v1.Node, now time.Time, wentBack int) bool {
	e, ok := b.entryOf(node)
	return ok && !now.Before(e.unansweredUntil) && b.readTells(e, wentBack)
}

// readTells reports whether a Node that shows no podCIDRs need not keep its reservation. If the Lease has gone back since the first write, a
// write may have been carried out and lost: the machine may use the blocks, so nobody else must get them. Then the Node keeps them while
// its ClusterCIDR could allocate them. If it could not, writing them again would be wrong, too: see Conclude.
func (b *State) readTells(e *nodeEntry, wentBack int) bool {
	return e.wentBack == wentBack || b.lost(e)
}

// taken reports whether other Nodes hold all addresses that a Node holds.
func (b *State) taken(e *nodeEntry) bool {
	o := OwnerOf(e.uid)
	for _, block := range b.ledger.Held(o) {
		covered := false
		for h := range b.ledger.Holdings(block) {
			covered = covered || h.Owner != o && h.Owner.Kind == ipam.Node && h.Prefix.Bits() <= block.Bits()
		}
		if !covered {
			return false
		}
	}
	return true
}

// ReadWithout notes that a read of the Node, made while WritesOver was true, showed no podCIDRs. sent is how many renewals of the Lease had
// been sent by then.
func (b *State) ReadWithout(node *v1.Node, sent int) {
	if e, ok := b.entryOf(node); ok {
		e.read, e.readAfter = true, sent
	}
}

// Conclude marks a reservation as refused if a read since its last write has shown no podCIDRs and the Lease was renewed after that read.
// Without that renewal, a restore of etcd that has not been noticed yet would look as if no write had been carried out. After a restore it
// returns blocks that are in doubt from now on: the Node cannot keep them, and its machine may use them.
func (b *State) Conclude(node *v1.Node, now time.Time, r Renewals) (doubted []netip.Prefix) {
	e, ok := b.entryOf(node)
	if !ok || !e.read || r.Proven <= e.readAfter || !b.WritesOver(node, now, r.WentBack) {
		return nil
	}
	if e.wentBack != r.WentBack && !b.taken(e) {
		doubted = b.ledger.Held(OwnerOf(e.uid))
		b.doubt(node.Name, &doubt{uid: e.uid, pool: e.pool, blocks: doubted, certain: true})
	}
	b.refuse(node.Name, e, now)
	return doubted
}

// HoldBack reports whether to hold back the next write of the Node's reservation. After a read that showed no podCIDRs, the write waits for
// the renewal that Conclude needs. It waits for that read, too, if its blocks could not be allocated any more, or another pool has the name of
// theirs, or Nodes are pending that could use them and its writes have gone unanswered for some time. Every write postpones the moment from
// which a read can tell that none was carried out. wait is the time until that moment; read is true from then on.
func (b *State) HoldBack(node *v1.Node, now time.Time, wentBack int) (wait time.Duration, read bool) {
	e, ok := b.entryOf(node)
	switch {
	case !ok:
		return 0, false
	case e.read, b.lost(e), e.from != nil && e.from.ID != b.pools[e.pool].ID:
	case e.unansweredUntil.IsZero(), e.failingSince.IsZero(), now.Sub(e.failingSince) < failureLasts, !b.inTheWay(e):
		return 0, false
	}
	return b.Settle(node, now, wentBack)
}

// lost reports whether a Node's ClusterCIDR could not allocate the Node's blocks any more.
func (b *State) lost(e *nodeEntry) bool {
	o, p := OwnerOf(e.uid), b.pools[e.pool]
	return p == nil || !b.stillFree(o, p, b.ledger.Held(o))
}

// Settle is HoldBack for a Node that is being deleted and is not written any more: it need not keep blocks that were not stored.
func (b *State) Settle(node *v1.Node, now time.Time, wentBack int) (wait time.Duration, read bool) {
	e, ok := b.entryOf(node)
	switch {
	case !ok, e.state != sent, !b.readTells(e, wentBack):
		return 0, false
	case e.read:
		return time.Second, false
	}
	wait = max(0, e.unansweredUntil.Sub(now))
	return wait, wait == 0
}

// MayBeWritten reports whether the Node holds a reservation that may have been written.
func (b *State) MayBeWritten(node *v1.Node) bool {
	e, ok := b.entryOf(node)
	return ok && !e.state.revocable()
}

// WasSent reports whether a reservation of exactly this Node was ever sent.
func (b *State) WasSent(node *v1.Node) bool {
	e, ok := b.known(node)
	return ok && len(e.tried) > 0
}

// failureLasts is how long all writes of a reservation must have failed before its blocks are released to other Nodes, and the minimum time
// between two such releases.
const failureLasts = 10 * time.Second

// refuse notes that no write of a Node's reservation was stored and none can take effect any more.
func (b *State) refuse(name string, e *nodeEntry, now time.Time) {
	b.become(name, e, refused)
	if e.failingSince.IsZero() {
		e.failingSince = now
	}
}

// GiveWay makes a Node whose writes have all failed for some time give up its blocks in favor of pending Nodes. It returns how long the
// Node must wait before it is tried again and gets a new reservation; 0 if it need not give way.
//
// A single Node can be refused again and again, because its stored object is invalid or a webhook rejects it. It must not keep the last
// block from pending Nodes whose writes would succeed. So it gives up its blocks, and is tried again after all Nodes that are pending now;
// otherwise two such Nodes would pass the block back and forth. That wakes all pending Nodes, so it is done for all such Nodes together,
// and rarely: if the API server refuses every Node, it helps none.
func (b *State) GiveWay(node *v1.Node, now time.Time) (wait time.Duration) {
	e, ok := b.entryOf(node)
	if !ok || e.state != refused || now.Sub(e.failingSince) < failureLasts || !b.inTheWay(e) {
		return 0
	}
	if wait = b.gaveWay.Add(failureLasts).Sub(now); wait > 0 {
		return wait
	}
	b.giveWay(now)
	return time.Second // the other Nodes first
}

// giveWay gives up all reservations whose writes have all failed for some time and whose blocks pending Nodes could use.
func (b *State) giveWay(now time.Time) {
	var last time.Time // place of the last pending Node, by the API server's clock
	for _, places := range b.settled.Everybody() {
		last = places[len(places)-1].Since
	}
	for _, name := range slices.Sorted(maps.Keys(b.revocable)) {
		if e := b.nodes[name]; e.state == refused && now.Sub(e.failingSince) >= failureLasts && b.inTheWay(e) {
			b.revoke(name, b.ledger.Held(OwnerOf(e.uid)))
			e.gaveWay, b.gaveWay = last.Add(time.Nanosecond), now
		}
	}
}

// inTheWay reports whether pending Nodes could be allocated addresses that a Node holds: they are pending because a range with such an
// address is full.
func (b *State) inTheWay(e *nodeEntry) bool {
	for _, block := range b.ledger.Held(OwnerOf(e.uid)) {
		for p := range b.ranges.Overlapping(block) {
			if p.State == ipam.Enabled && p.Gives(block) && slices.Contains(b.ledger.Full(&p.Pool), ipam.FamilyOf(block)) && b.wanted(p) {
				return true
			}
		}
	}
	return false
}

// wanted reports whether a pending Node would be allocated blocks of p if it had any.
func (b *State) wanted(p *clustercidr.Pool) bool {
	var t clustercidr.Turns
	t.Add(p, b.settled.SelectedBy(p)...)
	for place := t.Next(); place != nil; place = t.Next() {
		if _, awaits := b.awaiting[place.Node.Name]; !awaits {
			return true
		}
	}
	return false
}

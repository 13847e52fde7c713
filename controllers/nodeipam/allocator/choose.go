package allocator

import (
	"net/netip"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/multicidr/controller-manager/controllers/ipam"
	"github.com/multicidr/controller-manager/controllers/nodeipam/pool"
)

// Reservation is what is to be written to a Node.
type Reservation struct {
	UID         types.UID
	ClusterCIDR string
	Blocks      []netip.Prefix
	// First is whether these blocks were never sent before.
	First bool
}

// Walk makes the ordinary choice for each Node without blocks, oldest first, if addresses may have become free, or if a pool or service range
// has changed, since the last walk. It leaves out Nodes in back-off: their own worker comes. A pool found full is skipped for the rest of the
// walk.
func (s *State) Walk() {
	if !s.started || !s.walkDue {
		return
	}
	tell := s.tellDue
	s.walkDue, s.tellDue = false, false
	full := map[*pool.Pool]bool{}
	for _, n := range s.waiting {
		if n.state != None || n.heldBack || n.object.DeletionTimestamp != nil {
			continue
		}
		if s.choose(n, full) || tell {
			s.changes.Nodes = append(s.changes.Nodes, n.name)
		}
	}
}

// choose reserves blocks of the first candidate that has a free block in each of its ranges. full are pools known to have none; those that are
// found are added. It reports whether there is one; otherwise the Node stays without blocks, and is pending unless its search ended at a pool
// with allocation None.
func (s *State) choose(n *node, full map[*pool.Pool]bool) bool {
	for p := range s.candidates.Of(n.object) {
		if p.State == ipam.None {
			return false
		}
		if p.State != ipam.Enabled || full[p] {
			continue
		}
		from := s.cursors(p)
		blocks := s.ledger.Reserve(n.owner(), &p.Pool)
		if len(blocks) == 0 {
			full[p] = true
			continue
		}
		n.pool, n.poolID, n.state = p.Name, p.ID, Reserved
		s.countAllocations(p, blocks, from)
		s.touch(blocks...)
		return true
	}
	return false
}

// valid reports whether the pool that a Node's blocks were chosen from may give them to it now: it is the same object and enabled, selects the
// Node, contains and does not exclude them, and nobody else holds their addresses.
func (s *State) valid(n *node) bool {
	p, ok := s.pools[n.pool]
	return ok && p.ID == n.poolID && p.Allocates(s.held(n)) && p.Matches(n.object) && !s.conflicts(n)
}

// release takes away the blocks of a Node that were certainly not written.
func (s *State) release(n *node) {
	s.hold(n, nil)
	n.reservation = reservation{}
}

// Action is what a worker does next for a Node.
type Action uint8

const (
	// Nothing: the Node has podCIDRs, is gone or being deleted, or is pending; whatever may help queues it again.
	Nothing Action = iota
	// Write: call Send and send what it returns.
	Write
	// Wait: the time that Next returns, then ask again.
	Wait
	// Read: one read decides whether blocks that are not sent again were stored. Then call ReadBack or NotStored.
	Read
)

// Next says what to do for the Node of this name, and ends its back-off. If it needs blocks, Next chooses them, after a walk that is
// due, so that older Nodes come first.
//
// Blocks of an unanswered write are sent again, which needs no clock. They are not if their pool may not give them to this Node any more, or if
// the Node is being deleted: then nothing is certain until no write can be carried out any more, and a read decides. After a refusal they are
// sent again until then, for an API server that starts refuses everything for a moment.
func (s *State) Next(name string, now time.Time) (do Action, uid types.UID, wait time.Duration) {
	n, ok := s.nodes[name]
	if !ok || !s.started || n.state == Assigned {
		return Nothing, "", 0
	}
	n.heldBack = false
	if n.state == Sent {
		left := n.unansweredUntil.Sub(now)
		switch again := s.sendsAgain(n); {
		case left <= 0 && (n.refused || !again):
			return Read, n.uid, 0
		case !again:
			return Wait, n.uid, left
		}
	}
	if n.object.DeletionTimestamp != nil {
		if n.state == Reserved {
			s.release(n)
		}
		return Nothing, n.uid, 0
	}
	if !s.hasBlocks(n) {
		return Nothing, n.uid, 0
	}
	return Write, n.uid, 0
}

// sendsAgain reports whether blocks that were sent may be sent again.
func (s *State) sendsAgain(n *node) bool {
	return n.object.DeletionTimestamp == nil && s.valid(n)
}

// hasBlocks reports whether there are blocks for a Node. If it has none, they are chosen, after a walk that is due.
func (s *State) hasBlocks(n *node) bool {
	if n.state == None {
		s.Walk()
	}
	return n.state != None || s.choose(n, map[*pool.Pool]bool{})
}

// Send returns what to write to exactly this Node, and counts it as sent: from now on nothing that happens to others takes the blocks away.
// Blocks that were never sent are checked, and chosen again if they are not valid any more. ok is false if there is nothing to send; then
// ask Next again.
func (s *State) Send(name string, uid types.UID) (r Reservation, ok bool) {
	n := s.nodes[name]
	if n == nil || n.uid != uid || n.state == Assigned || n.object.DeletionTimestamp != nil {
		return Reservation{}, false
	}
	if n.state == Sent && !s.sendsAgain(n) {
		return Reservation{}, false
	}
	if n.state == Reserved && !s.valid(n) {
		s.release(n)
	}
	if !s.hasBlocks(n) {
		return Reservation{}, false
	}
	r = Reservation{UID: n.uid, ClusterCIDR: n.pool, Blocks: s.held(n), First: n.state == Reserved}
	n.state = Sent
	return r, true
}

// sent returns the Node if it is exactly this one and its blocks are sent. Answers count by UID, and only then.
func (s *State) sent(name string, uid types.UID) *node {
	if n := s.nodes[name]; n != nil && n.uid == uid && n.state == Sent {
		return n
	}
	return nil
}

// Stored records that the API server has the podCIDRs that were sent, as of a resource version. kept is false if the Node, as shown, has that
// version and no podCIDRs: something drops them, and the write changed nothing. since is when the Node was first seen, if it is only now known
// to have podCIDRs.
func (s *State) Stored(name string, uid types.UID, version string) (kept bool, since time.Time) {
	n := s.sent(name, uid)
	switch {
	case n == nil:
		return true, time.Time{}
	case !olderThan(n.object, version):
		return false, time.Time{}
	}
	s.leave(n)
	since, n.since = n.since, time.Time{}
	n.state, n.answered, n.refused = Assigned, version, false
	s.touch(s.held(n)...)
	return true, since
}

// Refused records that the API server refused a write of podCIDRs. If no earlier one can still be carried out, the blocks are free at once,
// and the Node is in back-off until Next.
func (s *State) Refused(name string, uid types.UID) {
	n := s.sent(name, uid)
	if n == nil {
		return
	}
	n.heldBack = true
	if n.unansweredUntil.IsZero() {
		s.release(n)
		return
	}
	n.refused = true
}

// NotSent records that a write did not leave this process, or was turned away because of load. That says nothing about the Node.
func (s *State) NotSent(name string, uid types.UID) {
	if n := s.sent(name, uid); n != nil && n.unansweredUntil.IsZero() {
		n.state = Reserved
		s.touch(s.held(n)...)
	}
}

// Unanswered records that the API server may carry out a write of podCIDRs until some time.
func (s *State) Unanswered(name string, uid types.UID, until time.Time) {
	if n := s.sent(name, uid); n != nil && until.After(n.unansweredUntil) {
		n.unansweredUntil = until
	}
}

// ReadBack records podCIDRs that a read shows of a Node, unless that Node is gone by now, or known to have some.
func (s *State) ReadBack(object *v1.Node, now time.Time) (seen Seen) {
	if s.sent(object.Name, object.UID) == nil {
		return Seen{}
	}
	return s.Observe(object, now)
}

// NotStored records that a read, made when no write could be carried out any more, shows that exactly this Node has no podCIDRs, or is gone.
func (s *State) NotStored(name string, uid types.UID) {
	if n := s.sent(name, uid); n != nil {
		s.release(n)
	}
}

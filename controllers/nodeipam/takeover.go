package nodeipam

import (
	"context"
	"fmt"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/klog/v2"

	"github.com/multicidr/controller-manager/controllers/lease"
	"github.com/multicidr/controller-manager/controllers/nodeipam/clustercidr"
	"github.com/multicidr/controller-manager/controllers/nodeipam/fresh"
	"github.com/multicidr/controller-manager/controllers/nodeipam/health"
	"github.com/multicidr/controller-manager/controllers/nodeipam/requests"
)

// Term is this process's term as the leader. A lease.Fence is one.
type Term interface {
	// Predecessor is who led before.
	Predecessor() lease.Predecessor
	// EarlierHolder is who held the Lease last before this process; empty if nobody can tell.
	EarlierHolder() string
	// Vacant is for how long nobody held the Lease before this process.
	Vacant() time.Duration
	// Led is for how long this process has led, or run without leader election, at least.
	Led() time.Duration
	// Mark says that nothing that a predecessor has sent can arrive any more, so that the next leader need not wait for it.
	Mark()
}

// vacantTooLong is for how long nobody can have held a Lease that other allocators do not use, without another allocator at work meanwhile. Where there is none,
// a standby takes the Lease within a retry period after it has run out, two seconds by default; the rest is for clocks that differ.
const vacantTooLong = 30 * time.Second

// waitTakeover returns when no write of another allocator can arrive any more, and the cache of Nodes shows all that have arrived; false if
// ctx was done before. The caches are fresh.
//
// Another allocator, such as the in-tree one, has no fence. Its last PATCH carries no UID, no bound by its lease, and no timeout: the API
// server may carry it out up to its --request-timeout after it has received it, when this process leads already. A choice before that could
// be the same block for another Node. So a leader chooses only after that time, unless the leader before it was this controller, too, whose writes
// are fenced, or the cluster is new.
//
// Without leader election nothing fences the process that ran before this one, and nothing tells who it was. If it was one of ours it has ended
// before this one began, and its last PATCH can only be for a Node that is pending now.
func (c *Controller) waitTakeover(ctx context.Context) bool {
	if c.term == nil {
		return true
	}
	nodes, err := c.nodes.List(labels.Everything())
	if err != nil {
		return true // readAll says so
	}
	predecessor := c.term.Predecessor()
	anyPodCIDRs := slices.ContainsFunc(nodes, clustercidr.ShowsPodCIDRs)
	var w lateWrites
	switch {
	case predecessor == lease.NoElection && slices.ContainsFunc(nodes, func(n *v1.Node) bool { return !clustercidr.ShowsPodCIDRs(n) }):
		w = lateWrites{delay: lease.OverWithoutLease(requests.Timeout), of: "an earlier process",
			why: "there is no leader election, and the API server may still carry out what a process before this one has sent"}
	case predecessor == lease.FencedPredecessor && c.leaseOfItsOwn && anyPodCIDRs && c.term.Vacant() > vacantTooLong:
		w = lateWrites{delay: c.takeoverDelay, of: "another allocator",
			why: fmt.Sprintf("nobody held the Lease for %v, another allocator may have had another Lease meanwhile, and the API server may still carry out what it sent (--node-ipam-takeover-delay=%v)",
				c.term.Vacant().Round(time.Second), c.takeoverDelay)}
	case mayStillWrite(predecessor, anyPodCIDRs):
		w = lateWrites{delay: c.takeoverDelay, of: "another allocator",
			why: fmt.Sprintf("another allocator may have led before, and the API server may still carry out what it sent (--node-ipam-takeover-delay=%v)", c.takeoverDelay)}
	}
	if w.delay > 0 && !c.waitOut(ctx, w) {
		return false
	}
	c.term.Mark()
	return true
}

// lateWrites are what may arrive after the start of this process's term.
type lateWrites struct {
	delay time.Duration // from the start of the term until they are over
	of    string        // whose
	why   string
}

// mayStillWrite reports whether another allocator may have sent a write that has not arrived.
func mayStillWrite(p lease.Predecessor, anyPodCIDRs bool) bool {
	switch p {
	case lease.NoElection: // There is nothing to tell a restart by.
		return false
	case lease.FencedPredecessor:
		return false
	case lease.NoPredecessor: // Of this Lease. Another allocator has another one, or none.
		return anyPodCIDRs
	default:
		return true
	}
}

// waitOut waits until late writes are over, and until the cache of Nodes shows what arrived meanwhile.
func (c *Controller) waitOut(ctx context.Context, w lateWrites) bool {
	logger := klog.FromContext(ctx)
	if left := w.delay - c.term.Led(); left > 0 {
		until := c.now().Add(left).UTC().Format(time.TimeOnly)
		logger.Info("Waiting before the first allocation until the last request of "+w.of+" is over", "until", until, "why", w.why)
		c.health.WaitFor(health.Problem{What: fmt.Sprintf("the last request of %s to be over, at %s UTC: %s. Nothing has to be done", w.of, until, w.why)})
		timer := time.NewTimer(left)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-ctx.Done():
			return false
		}
	}
	return fresh.WaitShown(ctx, &c.health, c.nodeContents())
}

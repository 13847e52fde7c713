// Package takeover makes a new leader wait until no write of an earlier allocator can arrive any more.
package takeover

import (
	"context"
	"fmt"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/klog/v2"

	"github.com/multicidr/controller-manager/controllers/lease"
	"github.com/multicidr/controller-manager/controllers/nodeipam/clustercidr"
	"github.com/multicidr/controller-manager/controllers/nodeipam/fresh"
	"github.com/multicidr/controller-manager/controllers/nodeipam/health"
	"github.com/multicidr/controller-manager/controllers/writes"
)

// Term is this process's term as leader. lease.Fence implements it.
type Term interface {
	// Predecessor is the kind of the previous leader.
	Predecessor() lease.Predecessor
	// Led is at least how long this process has been the leader, or has run without leader election.
	Led() time.Duration
	// Mark records that no write of a predecessor can arrive any more, so that the next leader need not wait for one.
	Mark()
}

// Leader is a new leader, and what it waits with.
type Leader struct {
	Term Term // nil: it does not wait
	// Delay is for how long after the start of the term a write of another allocator may still arrive.
	Delay time.Duration
	// Nodes is the cache of Nodes, and Contents compares it with what the API server has.
	Nodes    corelisters.NodeLister
	Contents fresh.Contents
	Health   *health.Health // is told what the leader waits for
	Now      func() time.Time
}

// Wait returns when no write of another allocator can arrive any more and the cache of Nodes shows all that have arrived; false if
// ctx was done before. The caches must be fresh.
//
// Another allocator, such as the in-tree one, has no fence. Its last PATCH has no UID, no bound by its Lease and no timeout: the API server
// may carry it out up to --request-timeout after receiving it, when this process is already the leader. An allocation before that could
// assign the same block to another Node. So a leader waits for that time, unless the previous leader was also this controller, whose writes
// are fenced, or the cluster is new.
//
// Without leader election nothing fences the previous process, and nothing tells which program it was. If it was this controller, it ended
// before this process began, and its last PATCH can only be for a Node that is pending now.
func (l Leader) Wait(ctx context.Context) bool {
	if l.Term == nil {
		return true
	}
	nodes, err := l.Nodes.List(labels.Everything())
	if err != nil {
		return true // whoever reads all Nodes next reports it
	}
	predecessor := l.Term.Predecessor()
	anyPodCIDRs := slices.ContainsFunc(nodes, clustercidr.ShowsPodCIDRs)
	var w lateWrites
	switch {
	case predecessor == lease.NoElection && slices.ContainsFunc(nodes, func(n *v1.Node) bool { return !clustercidr.ShowsPodCIDRs(n) }):
		w = lateWrites{delay: lease.OverWithoutLease(writes.Timeout), of: "an earlier process",
			why: "there is no leader election, and the API server may still carry out what a process before this one has sent"}
	case mayStillWrite(predecessor, anyPodCIDRs):
		w = lateWrites{delay: l.Delay, of: "another allocator",
			why: fmt.Sprintf("another allocator may have led before, and the API server may still carry out what it sent (--node-ipam-takeover-delay=%v)", l.Delay)}
	}
	if w.delay > 0 && !l.waitOut(ctx, w) {
		return false
	}
	l.Term.Mark()
	return true
}

// lateWrites are writes that may arrive after the start of this process's term.
type lateWrites struct {
	delay time.Duration // from the start of the term until none can arrive
	of    string        // who sent them
	why   string
}

// mayStillWrite reports whether another allocator may have sent a write that has not arrived yet.
func mayStillWrite(p lease.Predecessor, anyPodCIDRs bool) bool {
	switch p {
	case lease.NoElection: // Nothing could distinguish a restart.
		return false
	case lease.FencedPredecessor:
		return false
	case lease.NoPredecessor: // This Lease had no earlier holder. Another allocator has another Lease, or none.
		return anyPodCIDRs
	default:
		return true
	}
}

// waitOut waits until late writes are over and the cache of Nodes shows those that arrived meanwhile.
func (l Leader) waitOut(ctx context.Context, w lateWrites) bool {
	logger := klog.FromContext(ctx)
	if left := w.delay - l.Term.Led(); left > 0 {
		until := l.Now().Add(left).UTC().Format(time.TimeOnly)
		logger.Info("Waiting before the first allocation until the last request of "+w.of+" is over", "until", until, "why", w.why)
		l.Health.WaitFor(health.Problem{What: fmt.Sprintf("the last request of %s to be over, at %s UTC: %s. Nothing has to be done", w.of, until, w.why)})
		timer := time.NewTimer(left)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-ctx.Done():
			return false
		}
	}
	return fresh.WaitShown(ctx, l.Health, l.Contents)
}

package nodeipam

import (
	"context"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/multicidr/controller-manager/controllers/nodeipam/allocator"
	"github.com/multicidr/controller-manager/controllers/nodeipam/api"
	"github.com/multicidr/controller-manager/controllers/nodeipam/health"
	"github.com/multicidr/controller-manager/controllers/nodeipam/metrics"
	"github.com/multicidr/controller-manager/controllers/nodeipam/pool"
	"github.com/multicidr/controller-manager/controllers/queues"
	"github.com/multicidr/controller-manager/controllers/writes"
)

const (
	// walk is the key of a walk over all pending Nodes. No Node has this name.
	walk = ""
	// notKeptRetry is after how long podCIDRs are sent again that the API server confirmed and does not have.
	notKeptRetry = queues.RetryMax
	// tellAfter is for how long a Node has been without podCIDRs before an event says that it is pending. What it needs often comes a moment
	// after it: the ClusterCIDR of the flags, or labels of a cloud provider. The event would ask people for what comes by itself.
	tellAfter = 2 * time.Second
)

// syncNode advances one Node, or makes the walk.
func (c *Controller) syncNode(ctx context.Context, name string) error {
	if name == walk {
		c.with(func(s *allocator.State) { s.Walk() })
		return nil
	}
	err := c.advance(ctx, name)
	c.note(ctx, health.WritesNode, name, err)
	return err
}

// advance does what the state says is next for a Node: at most one request, and what its answer means.
func (c *Controller) advance(ctx context.Context, name string) error {
	var (
		do      allocator.Action
		uid     types.UID
		wait    time.Duration
		pending error
	)
	c.with(func(s *allocator.State) {
		do, uid, wait = s.Next(name, time.Now())
		pending = c.tell(s, name)
	})
	switch do {
	case allocator.Wait:
		return writes.Later(wait)
	case allocator.Read:
		return c.readBack(ctx, name, uid)
	case allocator.Write:
		return c.write(ctx, name, uid)
	}
	return pending
}

// tell writes the events about a Node: why it is pending, or what is wrong with its podCIDRs. It returns what a worker returns if the Node is
// pending, and otherwise nil. The caller holds the lock.
func (c *Controller) tell(s *allocator.State, name string) (pending error) {
	view, _ := s.Node(name)
	for reason, message := range s.Findings(name) {
		c.events.Warn(nodeReference(name, view.UID), reason, message)
	}
	reason, message := s.Why(name)
	if reason == "" || reason == allocator.NoneNeeded {
		return nil
	}
	if early := tellAfter - time.Since(view.Since); early > 0 {
		return writes.Later(early)
	}
	c.events.Warn(nodeReference(name, view.UID), ReasonNotAvailable, message)
	return writes.Pending{} // After refusals it does not start over: whoever takes its place may be refused, too.
}

// write sends the podCIDRs of exactly this Node. It waits for the client-side limit and for the fence before it locks the state, so that what
// is sent is what the state says at that moment.
func (c *Controller) write(ctx context.Context, name string, uid types.UID) error {
	ctx, leave, err := c.api.Permit(ctx)
	if err != nil {
		return err
	}
	var (
		r  allocator.Reservation
		ok bool
	)
	c.with(func(s *allocator.State) { r, ok = s.Send(name, uid) })
	if !ok {
		leave()
		return writes.Later(0) // Ask again what is next.
	}
	logger, podCIDRs := klog.FromContext(ctx), api.PodCIDRs(r.Blocks, c.FromFlags.PrimaryFamily())
	if r.First {
		// Logged before it is sent, for somebody who later must find out what this process may have assigned: an answer can be lost.
		logger.Info("Assigning podCIDRs", "node", klog.KRef("", name), "podCIDRs", podCIDRs, "clusterCIDR", r.ClusterCIDR)
	}
	version, err := api.PatchNode(ctx, c.Client, name, api.PodCIDRsPatch(r.UID, r.ClusterCIDR, podCIDRs, c.Fence.Identity()))
	metrics.CountPatch(err)
	if !api.Unanswered(err) {
		leave()
	}
	return c.answered(name, r, version, err)
}

// answered records what the answer to a write of podCIDRs means.
func (c *Controller) answered(name string, r allocator.Reservation, version string, err error) error {
	until := time.Now().Add(c.Fence.Unanswered())
	kept, since := true, time.Time{}
	c.with(func(s *allocator.State) {
		switch {
		case err == nil && version != "":
			kept, since = s.Stored(name, r.UID, version)
		case api.NotSent(err):
			s.NotSent(name, r.UID)
		case api.Refused(err):
			s.Refused(name, r.UID)
		default:
			s.Unanswered(name, r.UID, until)
		}
	})
	switch {
	case err != nil:
		err = fmt.Errorf("patch podCIDRs of Node %s: %w", name, err)
		if writes.NotThere(err) || apierrors.IsConflict(err) {
			return writes.RefusedLater{Err: err} // It is gone, or another one, and the watch shows which. Or a webhook refused with such a code.
		}
		return err
	case version == "":
		return fmt.Errorf("patch podCIDRs of Node %s: the answer does not say which version it made", name)
	case !kept:
		c.notKept(name)
		return writes.Later(notKeptRetry)
	}
	observeAssignment(since)
	return nil
}

// observeAssignment notes for the metric that a Node has podCIDRs of this process. It is told once for each: at the answer or at the event,
// whichever comes first, and then since is not zero.
func observeAssignment(since time.Time) {
	if !since.IsZero() {
		metrics.ObserveAssignment(time.Since(since).Seconds())
	}
}

// readBack finds out whether podCIDRs were stored that are not sent again. No write of them can be carried out any more.
func (c *Controller) readBack(ctx context.Context, name string, uid types.UID) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), writes.Timeout)
	defer cancel()
	node, err := c.Client.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{}) // from etcd: no cache is asked
	switch {
	case writes.NotThere(err) || err == nil && (node.UID != uid || !pool.ShowsPodCIDRs(node)):
		c.with(func(s *allocator.State) { s.NotStored(name, uid) })
	case err != nil:
		return fmt.Errorf("read Node %s, to find out whether its podCIDRs are stored: %w", name, err)
	default:
		var seen allocator.Seen
		c.with(func(s *allocator.State) { seen = s.ReadBack(node, time.Now()) })
		if seen.Unread != nil {
			return fmt.Errorf("read Node %s: %w", name, seen.Unread)
		}
		c.report(node, seen)
	}
	return writes.Later(0) // Ask again what is next.
}

package nodeipam

import (
	"context"
	"fmt"
	"time"

	"github.com/multicidr/controller-manager/controllers/nodeipam/allocator"
	"github.com/multicidr/controller-manager/controllers/nodeipam/clustercidr"
	"github.com/multicidr/controller-manager/controllers/nodeipam/events"
	"github.com/multicidr/controller-manager/controllers/nodeipam/health"
	"github.com/multicidr/controller-manager/controllers/nodeipam/requests"
	"github.com/multicidr/controller-manager/controllers/nodeipam/seen"
	"github.com/multicidr/controller-manager/controllers/queues"
	"github.com/multicidr/controller-manager/controllers/writes"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
)

// receiptLasts is how long a confirmed write of podCIDRs is not repeated. Until the watch shows it, other events of the Node arrive, mostly
// from its kubelet, and are no reason to write again. After that time something is wrong, such as a restore of etcd, and writing again
// helps.
const receiptLasts = 5 * time.Second

// syncNode advances one Node: it decides, writes, and records the outcome. What it does depends on the cache and the state, not on which
// event queued the Node.
func (c *Controller) syncNode(ctx context.Context, name string) error {
	d, err := c.decide(name)
	switch {
	case err != nil:
		return err
	case d.pause > 0:
		return writes.Later(d.pause)
	case d.read:
		switch without, err := c.readBack(ctx, d.node); {
		case err != nil && !writes.NotThere(err):
			return fmt.Errorf("read Node %s, to find out whether its podCIDRs are stored: %w", name, err)
		case without:
			return writes.Later(queues.ClosedRetry)
		default:
			return writes.Later(queues.RetryMax) // The watch is late and will show the podCIDRs, or that the Node is gone.
		}
	case d.byOther:
		return c.accuse(ctx, d.node)
	}
	if !d.write {
		return nil // it has podCIDRs, is being deleted, or is pending; whatever may help queues it again
	}
	if d.first {
		// Logged before it is sent, for somebody who later must find out what this process may have assigned: an answer can be lost.
		klog.FromContext(ctx).Info("Assigning podCIDRs", "node", klog.KObj(d.node), "podCIDRs", requests.PodCIDRs(d.assign.Blocks, c.primary), "clusterCIDR", d.assign.ClusterCIDR)
	}
	if err := c.write(ctx, d.node, d.assign); err != nil || !d.again {
		return err
	}
	_, _ = c.readBack(ctx, d.node) // If it fails, the next one will be as good.
	return fmt.Errorf("podCIDRs of Node %s: %w", name, requests.ErrNotKept)
}

// decision is what to do about a Node. The zero value is nothing.
type decision struct {
	node *v1.Node
	// assign is written if write is true; first is whether it was never sent before.
	assign       allocator.Reservation
	write, first bool
	// pause is the time until the next look at the Node: assign was confirmed recently, or the next write is held back.
	pause time.Duration
	// again is whether the API server confirmed assign some time ago but the Node does not show it.
	again bool
	// read is whether to read the Node before the next write, because a read can now tell if an unanswered write was carried out.
	read bool
	// byOther is whether another process seems to have written the Node's podCIDRs.
	byOther bool
}

// decide looks at a Node and decides under one lock. Otherwise the event handler could record a younger Node of this name in between.
func (c *Controller) decide(name string) (d decision, err error) {
	c.with(func(b *allocator.State) {
		d.node, err = c.observeNode(b, name)
		switch node := d.node; {
		case err != nil || node == nil:
		case clustercidr.ShowsPodCIDRs(node):
			for _, reason := range b.Report(node) {
				c.announce(events.AboutNode, name, reason)
			}
			d.byOther = b.Suspected(name)
		case node.DeletionTimestamp != nil:
			// It needs no blocks any more. Blocks that may have been written stay reserved until the object is gone, or until it is certain
			// that they were not written.
			now, renewals := c.now(), c.renewals()
			c.conclude(b, node, now, renewals)
			b.GiveUp(node)
			d.pause, d.read = b.Settle(node, now, renewals.WentBack)
		case b.Undecided(name):
			// The next renewal of the Lease decides which blocks it may get back.
		case c.waitsForList(node):
			// What would be chosen may be the podCIDRs of a Node that handlers have not heard of.
		default:
			c.reserve(b, &d)
		}
	})
	return d, err
}

// reserve decides for a Node that needs podCIDRs. If no ClusterCIDR can allocate them, it queues an event.
func (c *Controller) reserve(b *allocator.State, d *decision) {
	now, renewals := c.now(), c.renewals()
	c.conclude(b, d.node, now, renewals)
	if d.pause = b.GiveWay(d.node, now); d.pause > 0 {
		return
	}
	if c.waitsForMissed(b, d.node) {
		return
	}
	var say bool
	if d.assign, d.write, say = c.serve(b, d.node); say {
		c.announce(events.AboutNode, d.node.Name, events.ReasonNotAvailable)
	}
	if stored := b.StoredAt(d.node); !stored.IsZero() {
		d.pause = stored.Add(receiptLasts).Sub(now)
		d.again = d.pause <= 0
	}
	if d.write && d.pause <= 0 {
		d.pause, d.read = b.HoldBack(d.node, now, renewals.WentBack)
	}
	if d.write && d.pause <= 0 && !d.read {
		d.first = b.Sending(d.node, renewals.WentBack) // From now on nothing that happens to others takes the blocks away.
	}
}

// observeNode records in the state what the cache now shows of a Node, and returns the Node; nil if it does not exist, or if its event has
// not been handled yet. The caller holds the lock on the state, so the state never goes back to an older version.
//
// The cache is ahead of the events, by seconds after a pause. Choosing for a Node before its event means choosing before earlier events of
// other Nodes, and possibly allocating podCIDRs that those Nodes already have. So anything that is ahead, including a deletion, is left to
// its event.
func (c *Controller) observeNode(b *allocator.State, name string) (*v1.Node, error) {
	node, err := c.nodes.Get(name)
	gone := err != nil && apierrors.IsNotFound(err)
	c.settle(b, name)
	if gone || err == nil && (clustercidr.ShowsPodCIDRs(node) || node.DeletionTimestamp != nil) {
		c.listed.WaitsNoMore(name)
	}
	switch {
	case gone, err == nil && c.ahead(node):
		return nil, nil
	case err != nil:
		return nil, err
	}
	if uid, known := b.UID(name); known && uid != node.UID {
		return nil, nil // The other Node's event decides whether this name is in doubt.
	}
	blocks, _ := clustercidr.PodCIDRsOf(node)
	b.Observe(node, blocks, clustercidr.AddressesOf(node))
	if b.Reclaim(node) {
		c.health.Doubts(name, b.InDoubt(name))
	}
	return node, nil
}

// ahead reports whether a Node is newer than the last handled event. Resource versions are ordered (KEP-5504).
func (c *Controller) ahead(node *v1.Node) bool {
	order, err := resourceversion.CompareResourceVersion(node.ResourceVersion, c.heardVersion)
	return err == nil && order > 0
}

// heard records how recent the handled events are. The caller holds the lock on the state.
func (c *Controller) heard(node *v1.Node) {
	if c.heardVersion == "" || c.ahead(node) {
		c.heardVersion = node.ResourceVersion
	}
}

// nodeEvent is called by the informer for each event.
func (c *Controller) nodeEvent(name string, before, now any) {
	if node, ok := now.(*v1.Node); ok {
		c.firstSeen.See(node, c.now()) // here, because the time in the queue counts
	} else {
		c.firstSeen.Gone(name)
	}
	c.heardOfNode(name, before, now)
	c.noticeOther(before, now)
}

// heardOfNode records an event in the state before anything is decided because of a later event. The Node's worker may be busy with a write
// for seconds, and the Nodes behind it in the queue must not be allocated podCIDRs that a new Node of its name already has. It queues the
// Node only if there is something to do, because most events are status updates from kubelets.
func (c *Controller) heardOfNode(name string, before, now any) {
	c.with(func(b *allocator.State) {
		if !c.filled.Load() {
			c.heardListed(name, nil, before, now)
			return // fill holds the lock while it reads the cache
		}
		if is, ok := now.(*v1.Node); ok {
			c.heard(is)
		}
		c.heardOfEnd(b, name, before, now)
		node, err := c.observeNode(b, name)
		c.heardListed(name, node, before, now)
		if err != nil {
			utilruntime.HandleError(err) // the worker will get it again
		}
		// After a failure the Node is queued again anyway, but only after its back-off.
		if err != nil || node != nil && b.Concerns(node) || c.nodeQueue.NumRequeues(name) > 0 {
			c.nodeQueue.Add(name)
		}
	})
}

// heardOfEnd frees the blocks of a Node that, according to an event, is gone: it was deleted, or a list has another Node of its name. Only
// the earlier Node is gone. The state may already know a younger one of that name, because the start reads the cache, and handlers may get
// its events much later.
func (c *Controller) heardOfEnd(b *allocator.State, name string, before, now any) {
	last := before
	if tombstone, ok := last.(cache.DeletedFinalStateUnknown); ok {
		last = tombstone.Obj
	}
	was, ok := last.(*v1.Node)
	if is, lives := now.(*v1.Node); !ok || lives && is.UID == was.UID {
		return
	}
	if now == nil && last == before {
		c.heard(was) // which has the resource version of its deletion
	}
	if uid, known := b.UID(name); known && uid == was.UID && seen.FromList(before, now) {
		c.missed(b, name, now)
	}
	b.NodeGone(name, was.UID)
}

// write writes a reservation to its Node. Unless the write was not sent or the API server refused it, an error only means that the outcome
// is unknown. The watch will show it; until then the same blocks are written again.
func (c *Controller) write(ctx context.Context, node *v1.Node, r allocator.Reservation) error {
	// A shutdown does not interrupt a write: Run returns when it has ended.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), writes.Timeout)
	defer cancel()
	patched := c.firstSeen.Patching(node, c.now)
	err := c.api.PatchNode(ctx, node.Name, requests.PodCIDRsPatch(node, r, c.primary, c.identity))
	patched(err)
	logger := klog.FromContext(ctx)
	if err == nil {
		c.with(func(b *allocator.State) {
			now, err := c.nodes.Get(node.Name) // The watch may be ahead of the answer.
			awaited := err == nil && now.UID == node.UID && !clustercidr.ShowsPodCIDRs(now)
			if b.Written(node, c.now(), !awaited); awaited {
				c.nodeQueue.AddAfter(node.Name, receiptLasts) // No event comes if an admission policy left the podCIDRs out.
			}
		})
		c.health.Stored(health.WritesNode)
		logger.Info("Assigned podCIDRs", "node", klog.KObj(node), "podCIDRs", requests.PodCIDRs(r.Blocks, c.primary), "clusterCIDR", r.ClusterCIDR)
		return nil
	}
	c.notWritten(ctx, node, err)
	if writes.NotThere(err) || apierrors.IsConflict(err) {
		logger.V(4).Info("The Node is gone or another one by now", "node", klog.KObj(node), "err", err)
		// The watch shows which, usually earlier. But a webhook can also refuse with these codes.
		return writes.RefusedLater{Err: fmt.Errorf("patch podCIDRs of Node %s: %w", node.Name, err)}
	}
	return fmt.Errorf("patch podCIDRs of Node %s: %w", node.Name, err)
}

// notWritten records in the state what an error means for a Node's reservation.
func (c *Controller) notWritten(ctx context.Context, node *v1.Node, err error) {
	if !writes.Answered(err) {
		left := c.fence.Unanswered() // read before the clock: a pause between the two can only make the result longer
		now := c.now()
		c.with(func(b *allocator.State) { b.Unanswered(node, now, now.Add(left)) })
		return
	}
	// A refusal says nothing about an earlier write that was not answered. Once the API server can no longer carry that one out, a read
	// settles it.
	unknown := false
	c.with(func(b *allocator.State) {
		unknown = b.NotCarriedOut(node, !writes.NotSent(err), c.now())
	})
	if unknown && !writes.NotSent(err) { // At first, a restore of etcd looks like a closed fence, and then a read proves nothing.
		_, _ = c.readBack(ctx, node)
	}
}

// readBack finds out whether the Node has podCIDRs that were written, or may have been. If it has none and no write can be carried out any
// more, an admission policy left them out, or the write failed. The Node then need not keep the blocks once the Lease is renewed. After a
// restore of etcd a read tells nothing: the machine may have seen what was there before. readBack reports whether it read a Node without
// podCIDRs.
func (c *Controller) readBack(ctx context.Context, node *v1.Node) (without bool, _ error) {
	over, renewals := false, c.renewals()
	c.with(func(b *allocator.State) { over = b.WritesOver(node, c.now(), renewals.WentBack) })
	if !over {
		return false, nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), writes.Timeout)
	defer cancel()
	now, err := c.api.GetNode(ctx, node.Name)
	if err != nil || now.UID != node.UID || clustercidr.ShowsPodCIDRs(now) {
		klog.FromContext(ctx).V(4).Info("No read tells that podCIDRs are not stored", "node", klog.KObj(node), "err", err)
		return false, err
	}
	c.with(func(b *allocator.State) { b.ReadWithout(node, c.renewals().Sent) })
	return true, nil
}

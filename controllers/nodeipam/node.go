package nodeipam

import (
	"context"
	"fmt"
	"time"

	"github.com/multicidr/controller-manager/controllers/nodeipam/allocator"
	"github.com/multicidr/controller-manager/controllers/nodeipam/clustercidr"
	"github.com/multicidr/controller-manager/controllers/nodeipam/events"
	"github.com/multicidr/controller-manager/controllers/nodeipam/health"
	"github.com/multicidr/controller-manager/controllers/nodeipam/queues"
	"github.com/multicidr/controller-manager/controllers/nodeipam/requests"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
)

// receiptLasts is how long the API server's word that it has stored a write of podCIDRs is enough. Until the watch shows them, other
// events of the Node arrive, its kubelet's above all, and are no reason to write again. After that time something is
// strange, like an etcd that was restored, and writing again is what helps.
const receiptLasts = 5 * time.Second

// syncNode brings one Node on: it decides, writes, and says what came of that. Its outcome depends on what is cached and in the state, not on
// which event called it.
func (c *Controller) syncNode(ctx context.Context, name string) error {
	d, err := c.decide(name)
	switch {
	case err != nil:
		return err
	case d.pause > 0:
		return requests.Later(d.pause)
	case d.read:
		if !c.readBack(ctx, d.node) {
			return requests.Later(queues.RetryMax) // The watch tells, which is late; or the API server does not answer.
		}
		return requests.Later(queues.ClosedRetry)
	case d.byOther:
		return c.accuse(ctx, d.node)
	}
	if !d.write {
		return nil // it has podCIDRs, or goes, or is pending, and whatever may help wakes it
	}
	if d.first {
		// Before it is sent, for who has to find out later what this process may have assigned: an answer can be lost.
		klog.FromContext(ctx).Info("Assigning podCIDRs", "node", klog.KObj(d.node), "podCIDRs", requests.PodCIDRs(d.assign.Blocks, c.primary), "clusterCIDR", d.assign.ClusterCIDR)
	}
	if err := c.write(ctx, d.node, d.assign); err != nil || !d.again {
		return err
	}
	c.readBack(ctx, d.node)
	return fmt.Errorf("podCIDRs of Node %s: %w", name, requests.ErrNotKept)
}

// decision is what is to be done about a Node. The zero value is nothing.
type decision struct {
	node *v1.Node
	// assign is written if write is true; first says that it was not sent before.
	assign       allocator.Reservation
	write, first bool
	// pause is until it is to be looked at again: the API server's word that it has stored assign is still good, or the next write is held back.
	pause time.Duration
	// again says that the API server has stored assign a while ago, as it says, and the Node does not show it.
	again bool
	// read says that a read of the Node can tell whether a write was carried out that was not answered, and that this comes before the next write.
	read bool
	// byOther is whether somebody else seems to have given the Node its podCIDRs.
	byOther bool
}

// decide looks at a Node and decides, at once: between a look and a decision, the event handler could enter a younger Node of this name.
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
			// It needs no blocks any more. Those that may have been written stay its own until the object is gone, or it is certain that they were not.
			now, renewals := c.now(), c.renewals()
			b.Conclude(node, now, allocator.Renewals(renewals))
			b.GiveUp(node)
			d.pause, d.read = b.HoldBack(node, now, renewals.WentBack)
		case b.Undecided(name):
			// What it may have to get back is known after the next renewal of the lease.
		default:
			c.reserve(b, &d)
		}
	})
	return d, err
}

// reserve decides for a Node that needs podCIDRs. If no ClusterCIDR can allocate them, that is handed over to be said.
func (c *Controller) reserve(b *allocator.State, d *decision) {
	now, renewals := c.now(), c.renewals()
	if b.Conclude(d.node, now, allocator.Renewals(renewals)) {
		d.pause = queues.ClosedRetry // the others first
		return
	}
	if d.pause = b.GiveWay(d.node, now); d.pause > 0 {
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
		d.first = b.Sending(d.node, renewals.WentBack) // From here on nothing that others do takes the blocks away.
	}
}

// observeNode enters in the state what the cache shows of a Node now, and returns the Node; nil if there is none, or if the event that brings
// it has not been handled yet. Whoever looks holds the state, so that what is entered never gets older.
//
// The cache runs ahead of the events, by seconds after a pause. To choose for a Node before its event is to choose before the events of
// others that came first, and to give away what they have brought along. So what is ahead is left to its event, also the end of a Node.
func (c *Controller) observeNode(b *allocator.State, name string) (*v1.Node, error) {
	node, err := c.nodes.Get(name)
	c.settle(b, name)
	switch {
	case apierrors.IsNotFound(err), err == nil && c.ahead(node):
		return nil, nil
	case err != nil:
		return nil, err
	}
	if uid, known := b.UID(name); known && uid != node.UID {
		return nil, nil // The event of that tells whether the one before may be in doubt.
	}
	blocks, _ := clustercidr.PodCIDRsOf(node)
	b.Observe(node, blocks, clustercidr.AddressesOf(node))
	if b.Reclaim(node) {
		c.health.Doubts(name, b.InDoubt(name))
	}
	return node, nil
}

// ahead reports whether a Node is newer than the last event that was handled. Resource versions are ordered (KEP-5504).
func (c *Controller) ahead(node *v1.Node) bool {
	order, err := resourceversion.CompareResourceVersion(node.ResourceVersion, c.heardVersion)
	return err == nil && order > 0
}

// heard notes how new the events are. The caller holds the state.
func (c *Controller) heard(node *v1.Node) {
	if c.heardVersion == "" || c.ahead(node) {
		c.heardVersion = node.ResourceVersion
	}
}

// nodeEvent is called by the informer, event by event.
func (c *Controller) nodeEvent(name string, before, now any) {
	if node, ok := now.(*v1.Node); ok {
		c.firstSeen.See(node, c.now()) // here, because its wait in the queue counts
	} else {
		c.firstSeen.Gone(name)
	}
	c.heardOfNode(name, before, now)
	c.noticeOther(before, now)
}

// heardOfNode enters in the state what an event tells, before anything is decided for which a later event is the reason: the Node's worker
// may be busy with a write for seconds, and the Nodes behind it in the queue must not be given what a new Node of its name has
// brought along. It calls the worker only if there is something to do, for most events are kubelets' that report they are well.
func (c *Controller) heardOfNode(name string, before, now any) {
	c.with(func(b *allocator.State) {
		if !c.filled.Load() {
			return // fill reads the cache, and holds the state meanwhile
		}
		if is, ok := now.(*v1.Node); ok {
			c.heard(is)
		}
		c.heardOfEnd(b, name, before, now)
		node, err := c.observeNode(b, name)
		if err != nil {
			utilruntime.HandleError(err) // its worker will have it again
		}
		// After a failure its worker comes again, but later, and until then it counts as one.
		if err != nil || node != nil && b.Concerns(node) || c.nodeQueue.NumRequeues(name) > 0 {
			c.nodeQueue.Add(name)
		}
	})
}

// heardOfEnd frees what a Node holds of which an event tells that it is gone: it was deleted, or a list found another one of its name. Only
// the Node of before is gone. The state may know a younger one of that name: what the start has read, the handlers may hear of much later.
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
		c.heard(was) // which has the version of its deletion
	}
	if uid, known := b.UID(name); known && uid == was.UID && fromList(before, now) {
		c.missed(b, name, now)
	}
	b.NodeGone(name, was.UID)
}

// write puts a reservation into its Node. An error says only that we do not know whether it was carried out, unless the API server has
// refused it or it was not sent. The watch tells what came of it, and until then the same blocks are written again.
func (c *Controller) write(ctx context.Context, node *v1.Node, r allocator.Reservation) error {
	// A shutdown does not cut a write off in the middle: Run returns when it has ended.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), requests.Timeout)
	defer cancel()
	patched := c.firstSeen.Patching(node, c.now)
	err := c.api.PatchNode(ctx, node.Name, requests.PodCIDRsPatch(node, r, c.primary, c.identity))
	patched(err)
	logger := klog.FromContext(ctx)
	if err == nil {
		c.with(func(b *allocator.State) {
			now, err := c.nodes.Get(node.Name) // The watch may have been faster than the answer.
			awaited := err == nil && now.UID == node.UID && !clustercidr.ShowsPodCIDRs(now)
			if b.Written(node, c.now(), !awaited); awaited {
				c.nodeQueue.AddAfter(node.Name, receiptLasts) // No event comes if an admission policy has left the podCIDRs out.
			}
		})
		c.health.Stored(health.WritesNode)
		logger.Info("Assigned podCIDRs", "node", klog.KObj(node), "podCIDRs", requests.PodCIDRs(r.Blocks, c.primary), "clusterCIDR", r.ClusterCIDR)
		return nil
	}
	c.notWritten(ctx, node, err)
	if requests.NotThere(err) || apierrors.IsConflict(err) {
		logger.V(4).Info("The Node is gone or another one by now", "node", klog.KObj(node), "err", err)
		// The watch says which, as a rule before that. But a webhook can refuse with these codes as well.
		return requests.RefusedLater{Err: fmt.Errorf("patch podCIDRs of Node %s: %w", node.Name, err)}
	}
	return fmt.Errorf("patch podCIDRs of Node %s: %w", node.Name, err)
}

// notWritten enters in the state what an error says about a Node's reservation.
func (c *Controller) notWritten(ctx context.Context, node *v1.Node, err error) {
	if !requests.Answered(err) {
		left := c.fence.Unanswered() // before the clock is read: a pause of the process between the two makes it longer, never shorter
		now := c.now()
		c.with(func(b *allocator.State) { b.Unanswered(node, now, now.Add(left)) })
		return
	}
	// A refusal says nothing about an earlier write that was not answered. Once the API server cannot carry that out any more, a read tells.
	unknown := false
	c.with(func(b *allocator.State) {
		unknown = b.NotCarriedOut(node, !requests.NotSent(err), c.now())
	})
	if unknown && !requests.NotSent(err) { // A fence that closes is what a restore of etcd looks like at first, and then a read proves nothing.
		c.readBack(ctx, node)
	}
}

// readBack finds out whether the Node has podCIDRs that were written, or may have been. If not, and nothing can be carried out any more, then an
// admission policy has left them out, or the write was in vain; and they need not stay the Node's once the lease is renewed. After a restore of etcd
// it tells nothing: the machine may have seen what was there. It reports whether it has read a Node without podCIDRs.
func (c *Controller) readBack(ctx context.Context, node *v1.Node) bool {
	over, renewals := false, c.renewals()
	c.with(func(b *allocator.State) { over = b.WritesOver(node, c.now(), renewals.WentBack) })
	if !over {
		return false
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), requests.Timeout)
	defer cancel()
	now, err := c.api.GetNode(ctx, node.Name)
	if err != nil || now.UID != node.UID || clustercidr.ShowsPodCIDRs(now) {
		klog.FromContext(ctx).V(4).Info("No read tells that podCIDRs are not stored", "node", klog.KObj(node), "err", err)
		return false
	}
	c.with(func(b *allocator.State) { b.ReadWithout(node, c.renewals().Sent) })
	return true
}

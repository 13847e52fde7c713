package nodeipam

import (
	"context"

	v1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"

	networkingv1 "github.com/multicidr/controller-manager/apis/networking/v1"
	"github.com/multicidr/controller-manager/controllers/nodeipam/allocator"
	"github.com/multicidr/controller-manager/controllers/nodeipam/author"
	"github.com/multicidr/controller-manager/controllers/nodeipam/clustercidr"
	"github.com/multicidr/controller-manager/controllers/nodeipam/metrics"
	"github.com/multicidr/controller-manager/controllers/writes"
)

// foundEarlier records what nodes, which are all Nodes at the start, reveal about earlier leaders. There are none without leader election:
// start has waited (package takeover), and any later write comes from a running process.
func (c *Controller) foundEarlier(nodes []*v1.Node) {
	if c.fence.Holder() == "" {
		return
	}
	c.earlier = author.FindEarlier(nodes, "", c.now())
}

// noticeOther compares two successive states of a Node. If the Node got podCIDRs that are not from this process, or another process
// replaced this one's name, then another allocator is active, under another Lease or without one. Nothing breaks at once, because its
// podCIDRs are respected. But it does not know the blocks that this process has reserved and not yet written, so sooner or later two Nodes
// get the same addresses. Operators should know before that.
//
// Only this transition counts: podCIDRs that a Node already had may come from an earlier leader or from the allocator that was used before.
// A name on a Node without podCIDRs proves nothing, because the Node may have been saved and created again.
func (c *Controller) noticeOther(before, after any) {
	was, ok := before.(*v1.Node)
	node, ok2 := after.(*v1.Node)
	if !ok || !ok2 || was.UID != node.UID || !clustercidr.ShowsPodCIDRs(node) {
		return
	}
	by, other := author.Other(was, node, c.identity, func() (sent bool) {
		c.with(func(b *allocator.State) { sent = b.WasSent(node) })
		return sent
	})
	if !other {
		return
	}
	message := by.Message(node, c.fence.Holder() != "")
	c.with(func(b *allocator.State) {
		// Events arrive after the cache has changed, so an event may show what the start has already read.
		if !c.filled.Load() || b.ShownAtStart(node) && !by.Replaced || c.earlier.Wrote(node, c.now()) {
			return
		}
		if now, err := c.nodes.Get(node.Name); err == nil && now.UID == node.UID {
			b.Suspect(node, message)
			c.nodeQueue.Add(node.Name)
		}
	})
}

// accuse reports what noticeOther found, if this process is the leader. A process that resumes after a pause sees its successor's writes,
// and the fence is the first to know that it is no longer the leader. A Lease that is valid now was also valid when the podCIDRs were
// written.
//
// podCIDRs without a name are this process's own if the API server confirmed a write of them: a policy then removed the annotations.
func (c *Controller) accuse(ctx context.Context, node *v1.Node) error {
	_, leave, err := c.fence.Enter(ctx, writes.Timeout)
	if err != nil {
		return err
	}
	leave()
	message, own := "", false
	c.with(func(b *allocator.State) { message, own = b.Accuse(node) })
	if own {
		klog.FromContext(ctx).Info("Warning: a mutating webhook or policy takes away the annotations that say where podCIDRs come from. "+
			"Let it keep them: without them a Node belongs to every ClusterCIDR that contains its podCIDRs", "node", klog.KObj(node),
			"annotations", []string{networkingv1.AnnotationLeaseHolder, networkingv1.AnnotationClusterCIDR})
		return nil
	}
	if message == "" {
		return nil
	}
	metrics.AssignedByOther()
	klog.FromContext(ctx).Error(nil, "Another allocator is on", "node", klog.KObj(node), "message", message)
	c.nodeQueue.Add(node.Name) // to report it in an event
	return nil
}

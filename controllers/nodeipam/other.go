package nodeipam

import (
	"context"
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	networkingv1 "github.com/multicidr/controller-manager/apis/networking/v1"
	"github.com/multicidr/controller-manager/controllers/nodeipam/allocator"
	"github.com/multicidr/controller-manager/controllers/nodeipam/clustercidr"
	"github.com/multicidr/controller-manager/controllers/nodeipam/metrics"
	"github.com/multicidr/controller-manager/controllers/text"
	"github.com/multicidr/controller-manager/controllers/writes"
)

// earlierLasts is for how long after the start a write of an earlier leader can arrive. The fence rules that out; where it fails, the bound
// is the API server's --request-timeout, which has the same default.
const earlierLasts = time.Minute

// earlierTerms is what the start found out about earlier leaders. A delayed write of theirs is no sign of a second allocator. It can only
// affect a Node that was pending when this process read all Nodes.
type earlierTerms struct {
	until   time.Time // when none of their writes can arrive any more
	holders map[string]bool
	pending map[types.UID]bool
}

// foundEarlier records what nodes, which are all Nodes at the start, reveal about earlier terms. There are none without leader election:
// start has waited (waitTakeover), and any later write comes from a running process.
func (c *Controller) foundEarlier(nodes []*v1.Node) {
	if c.fence.Holder() == "" {
		return
	}
	c.earlier = earlierTerms{until: c.now().Add(earlierLasts), holders: map[string]bool{}, pending: map[types.UID]bool{}}
	if c.term != nil {
		c.earlier.holders[c.term.EarlierHolder()] = true
	}
	for _, node := range nodes {
		if clustercidr.ShowsPodCIDRs(node) {
			c.earlier.holders[node.Annotations[networkingv1.AnnotationLeaseHolder]] = true
		} else {
			c.earlier.pending[node.UID] = true
		}
	}
	delete(c.earlier.holders, "") // no name could be any process
}

// wroteEarlier reports whether a Node's podCIDRs may have been written by an earlier leader.
func (c *Controller) wroteEarlier(node *v1.Node) bool {
	return c.earlier.holders[node.Annotations[networkingv1.AnnotationLeaseHolder]] && c.earlier.pending[node.UID] && c.now().Before(c.earlier.until)
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
	holder, replaced, other := c.writtenByOther(was, node)
	if !other {
		return
	}
	message := c.otherMessage(node, holder)
	c.with(func(b *allocator.State) {
		// Events arrive after the cache has changed, so an event may show what the start has already read.
		if !c.filled.Load() || b.ShownAtStart(node) && !replaced || c.wroteEarlier(node) {
			return
		}
		if now, err := c.nodes.Get(node.Name); err == nil && now.UID == node.UID {
			b.Suspect(node, message)
			c.nodeQueue.Add(node.Name)
		}
	})
}

// writtenByOther reports whether another process caused the transition between two states of a Node. holder is the name of that process if
// it left one; replaced is whether it replaced this process's name.
func (c *Controller) writtenByOther(was, node *v1.Node) (holder string, replaced, other bool) {
	holder = node.Annotations[networkingv1.AnnotationLeaseHolder]
	// Two processes that choose alike write the same podCIDRs, and the API server refuses neither. If this process was the later one, the
	// Node had podCIDRs before it had a name, and accuse may have taken them for this process's own.
	replaced = c.wrote(was) && holder != "" && !c.wrote(node)
	named := c.wrote(node) && clustercidr.ShowsPodCIDRs(was) && was.Annotations[networkingv1.AnnotationLeaseHolder] == ""
	switch {
	case named:
		return "", replaced, true
	case c.wrote(node) && c.wrote(was) && !clustercidr.ShowsPodCIDRs(was):
		sent := false
		c.with(func(b *allocator.State) { sent = b.WasSent(node) })
		return "", replaced, !sent
	default:
		return holder, replaced, !c.wrote(node) && (!clustercidr.ShowsPodCIDRs(was) || replaced)
	}
}

// otherMessage says that another process wrote a Node's podCIDRs, and what to do.
func (c *Controller) otherMessage(node *v1.Node, holder string) string {
	writer := "It did not say who it is"
	if holder != "" {
		writer = fmt.Sprintf("It is %q", text.Cut(holder, text.MaxValue))
	}
	// Do not suggest --allocate-node-cidrs=false: on a kube-controller-manager that contains this controller, it would remove the range of
	// its flags.
	message := fmt.Sprintf("podCIDRs %s were written by another process than this controller. %s. Only one allocator may be on: turn the other one off (a stock kube-controller-manager: "+
		"add -node-ipam-controller to its --controllers; one of two processes without leader election: stop it)", text.Cut(fmt.Sprint(node.Spec.PodCIDRs), text.MaxListed), writer)
	if c.fence.Holder() != "" {
		message += ", or let the API server keep it out (manifests/fencing)"
	}
	return message + "."
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

// wrote reports whether this process wrote the Node's podCIDRs: the PATCH that writes them adds its name.
func (c *Controller) wrote(node *v1.Node) bool {
	return node.Annotations[networkingv1.AnnotationLeaseHolder] == c.identity
}

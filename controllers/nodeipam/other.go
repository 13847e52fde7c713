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
	"github.com/multicidr/controller-manager/controllers/nodeipam/requests"
	"github.com/multicidr/controller-manager/controllers/nodeipam/text"
)

// earlierLasts is for how long after the start a write of an earlier leader can arrive. Its fence rules that out; where the fence fails, the
// API server's --request-timeout, by default as long as this, is a bound.
const earlierLasts = time.Minute

// earlierTerms is what the start has found of them. What an earlier leader has sent may arrive late, and is no sign of a second allocator. It can
// only concern a Node that was pending when this process read all Nodes.
type earlierTerms struct {
	until   time.Time // when nothing of them can arrive any more
	holders map[string]bool
	pending map[types.UID]bool
}

// foundEarlier enters what nodes, which are all that the start has read, tell about earlier terms. Without leader election there is no such
// thing: the start has waited (waitTakeover), and what comes now comes from a process that runs.
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
	delete(c.earlier.holders, "") // which is anybody
}

// wroteEarlier reports whether a Node's podCIDRs may be from an earlier leader.
func (c *Controller) wroteEarlier(node *v1.Node) bool {
	return c.earlier.holders[node.Annotations[networkingv1.AnnotationLeaseHolder]] && c.earlier.pending[node.UID] && c.now().Before(c.earlier.until)
}

// noticeOther looks at two states of a Node, if there are two. If in between the Node got podCIDRs that are not from this process, or another
// process put its name in the place of this one's, another allocator is on, under another lease or without one. Nothing breaks at once: what it
// wrote is respected. But it does not know what this process has given and not yet written, so sooner or later two Nodes get the same addresses,
// and people should know before.
//
// Only this step tells: what Nodes had before may be of an earlier leader, or of the allocator that was here before. A name that a Node had before
// its podCIDRs, because it was saved and created again, tells nothing.
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
		// Events come after the cache that they are of: what the start has read there is no news.
		if !c.filled.Load() || b.ShownAtStart(node) && !replaced || c.wroteEarlier(node) {
			return
		}
		if now, err := c.nodes.Get(node.Name); err == nil && now.UID == node.UID {
			b.Suspect(node, message)
			c.nodeQueue.Add(node.Name)
		}
	})
}

// writtenByOther reports whether the step from one state of a Node to the next is another process' work: holder is who that is, if it says so, and
// replaced whether it put its name in the place of this process'.
func (c *Controller) writtenByOther(was, node *v1.Node) (holder string, replaced, other bool) {
	holder = node.Annotations[networkingv1.AnnotationLeaseHolder]
	// Two that choose alike write the same podCIDRs, and the API server refuses neither. If this process was the later one, then the Node had
	// them before it had a name, and accuse may have taken them for its own.
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

// otherMessage says that another process has written a Node's podCIDRs, and what to do.
func (c *Controller) otherMessage(node *v1.Node, holder string) string {
	writer := "It did not say who it is"
	if holder != "" {
		writer = fmt.Sprintf("It is %q", text.Cut(holder, text.MaxValue))
	}
	// Not --allocate-node-cidrs=false: on the kube-controller-manager with this controller in it, that would take away the range of its flags.
	message := fmt.Sprintf("podCIDRs %s were written by another process than this controller. %s. Only one allocator may be on: turn the other one off (a stock kube-controller-manager: "+
		"add -node-ipam-controller to its --controllers; one of two processes without leader election: stop it)", text.Cut(fmt.Sprint(node.Spec.PodCIDRs), text.MaxListed), writer)
	if c.fence.Holder() != "" {
		message += ", or let the API server keep it out (manifests/fencing)"
	}
	return message + "."
}

// accuse reports what noticeOther has noticed of a Node, if this process leads. One that was paused and wakes up sees what its successor has written, and
// the fence knows before anybody else that it has been deposed. A lease that is good now was good when that was written.
//
// podCIDRs in nobody's name are this process's own if the API server has carried out a write of them, and a policy left its annotations out.
func (c *Controller) accuse(ctx context.Context, node *v1.Node) error {
	_, leave, err := c.fence.Enter(ctx, requests.Timeout)
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
	c.nodeQueue.Add(node.Name) // which reports it in an event
	return nil
}

// wrote reports whether a Node's podCIDRs are from this process: the PATCH that writes them says so.
func (c *Controller) wrote(node *v1.Node) bool {
	return node.Annotations[networkingv1.AnnotationLeaseHolder] == c.identity
}

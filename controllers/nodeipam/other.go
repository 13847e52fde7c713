package nodeipam

import (
	"context"
	"fmt"

	v1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"

	networkingv1 "github.com/multicidr/controller-manager/apis/networking/v1"
)

// noticeOther looks at two states of a Node, if there are two. If the Node got podCIDRs in between and not from this process, another
// allocator is on, under another lease or without one. Nothing breaks at once: what it wrote is respected. But it does not know
// what this process has given and not yet written, so sooner or later two Nodes get the same addresses, and people should know before.
//
// Only this step tells: what Nodes had before may be of an earlier leader, or of the allocator that was here before.
func (c *Controller) noticeOther(before, after any) {
	was, ok := before.(*v1.Node)
	node, ok2 := after.(*v1.Node)
	if !ok || !ok2 || was.UID != node.UID || showsPodCIDRs(was) || !showsPodCIDRs(node) || c.wrote(node) {
		return
	}
	writer := "It did not say who it is"
	if holder := node.Annotations[networkingv1.AnnotationLeaseHolder]; holder != "" {
		writer = fmt.Sprintf("It is %q", cut(holder, maxValue))
	}
	// Not --allocate-node-cidrs=false: on the kube-controller-manager with this controller in it, that would take away the range of its flags.
	message := fmt.Sprintf("podCIDRs %s were written by another process than the leader. %s. Only one allocator may be on: turn the other one off (a stock kube-controller-manager: "+
		"add -node-ipam-controller to its --controllers), or let the API server keep it out (manifests/fencing).", cut(fmt.Sprint(node.Spec.PodCIDRs), maxListed), writer)
	news := false
	c.with(func(b *book) {
		// Events come after the cache that they are of: what the start has read there is no news.
		e, known := b.nodes[node.Name]
		if news = c.filled.Load() && !(known && e.uid == node.UID && e.atStart); !news {
			return
		}
		if now, err := c.nodes.Get(node.Name); err == nil && now.UID == node.UID {
			b.enter(node).byOther = message
		}
	})
	if !news {
		return
	}
	assignmentsByOthers.Inc()
	klog.FromContext(context.Background()).Error(nil, "Another allocator is on", "node", klog.KObj(node), "message", message)
	c.nodeQueue.Add(node.Name)
}

// wrote reports whether a Node's podCIDRs are from this process: the PATCH that writes them says so.
func (c *Controller) wrote(node *v1.Node) bool {
	return node.Annotations[networkingv1.AnnotationClusterCIDR] != "" && node.Annotations[networkingv1.AnnotationLeaseHolder] == c.holder
}

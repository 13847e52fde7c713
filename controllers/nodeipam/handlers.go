package nodeipam

import (
	"context"
	"fmt"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	networkingapiv1 "k8s.io/api/networking/v1"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	networkingv1 "github.com/multicidr/controller-manager/apis/networking/v1"
	"github.com/multicidr/controller-manager/controllers/ipam"
	"github.com/multicidr/controller-manager/controllers/lease"
	"github.com/multicidr/controller-manager/controllers/nodeipam/allocator"
	"github.com/multicidr/controller-manager/controllers/nodeipam/api"
	"github.com/multicidr/controller-manager/controllers/nodeipam/fromflags"
	"github.com/multicidr/controller-manager/controllers/nodeipam/health"
	"github.com/multicidr/controller-manager/controllers/nodeipam/metrics"
	"github.com/multicidr/controller-manager/controllers/nodeipam/pool"
	"github.com/multicidr/controller-manager/controllers/text"
)

// handle returns an event handler that calls seen for every object that exists, as it changes, and gone for one that does not exist any more.
func handle[O any](seen, gone func(O)) cache.ResourceEventHandlerFuncs {
	return cache.ResourceEventHandlerFuncs{
		AddFunc:    func(object any) { seen(object.(O)) },
		UpdateFunc: func(_, object any) { seen(object.(O)) },
		DeleteFunc: func(object any) {
			if tombstone, ok := object.(cache.DeletedFinalStateUnknown); ok {
				object = tombstone.Obj
			}
			gone(object.(O))
		},
	}
}

// seeNode records what a Node shows.
func (c *Controller) seeNode(node *v1.Node) {
	var seen allocator.Seen
	c.with(func(s *allocator.State) {
		if seen = s.Observe(node, time.Now()); seen.Work {
			c.nodeQueue.Add(node.Name)
		}
	})
	c.report(node, seen)
	if pool.ShowsPodCIDRs(node) {
		c.nodeQueue.Forget(node.Name)
		c.note(context.Background(), health.WritesNode, node.Name, nil)
	}
}

// report says what is remarkable about what a Node shows.
func (c *Controller) report(node *v1.Node, seen allocator.Seen) {
	writer := node.Annotations[networkingv1.AnnotationLeaseHolder]
	switch {
	case seen.Unread != nil:
		utilruntime.HandleError(fmt.Errorf("node %s: %w", node.Name, seen.Unread))
	case seen.NotKept:
		c.notKept(node.Name)
	case writer == c.Fence.Identity():
		observeAssignment(seen.Since)
	case seen.First && (writer != "" || !seen.Own): // Without a writer they are this process's own if it sent them: a policy then removes annotations.
		c.writtenByOther(node)
	}
}

func (c *Controller) nodeGone(node *v1.Node) {
	c.with(func(s *allocator.State) { s.Gone(node.Name, node.UID) })
	c.nodeQueue.Forget(node.Name)
	c.health.Wrote(health.WritesNode, node.Name, nil)
}

// notKept reports podCIDRs that the API server confirmed and does not have. The same blocks are sent again.
func (c *Controller) notKept(name string) {
	_, tell := c.health.Wrote(health.WritesNode, name, fmt.Errorf("podCIDRs of Node %s: %w", name, api.ErrNotKept))
	c.tellWriteFailed(health.WritesNode, name, tell)
	c.nodeQueue.AddAfter(name, notKeptRetry)
}

// writtenByOther reports that another process wrote a Node's podCIDRs while this one leads. Nothing breaks at once, because its podCIDRs are
// respected. But it does not know the blocks that this process has reserved and not yet written, so sooner or later two Nodes get the same.
func (c *Controller) writtenByOther(node *v1.Node) {
	writer := "It did not say who it is"
	if holder := node.Annotations[networkingv1.AnnotationLeaseHolder]; holder != "" {
		writer = fmt.Sprintf("It is %q", text.Cut(holder, text.MaxValue))
	}
	// Do not suggest --allocate-node-cidrs=false: on a kube-controller-manager that contains this controller, it would remove the range of
	// its flags.
	message := fmt.Sprintf("podCIDRs %s were written by another process than this controller. %s. Only one allocator may be on: turn the other one off (a stock kube-controller-manager: "+
		"add -node-ipam-controller to its --controllers; one of two processes without leader election: stop it)", text.Cut(fmt.Sprint(node.Spec.PodCIDRs), text.MaxListed), writer)
	if c.Fence.Predecessor() != lease.NoElection {
		message += ", or let the admission policies keep it out (fencing-kube-controller-manager.yaml of the release, or fencing.enabled of the Helm chart)"
	}
	metrics.AssignedByOther()
	klog.Background().Error(nil, "Another allocator is on", "node", klog.KObj(node), "message", message)
	c.events.Warn(nodeReference(node.Name, node.UID), ReasonAssignedByOther, message+".")
}

// seeClusterCIDR records a ClusterCIDR. A disabled or deleted one stops allocating at once, even while its worker waits for an answer.
func (c *Controller) seeClusterCIDR(cc *networkingv1.ClusterCIDR) {
	var earlier *pool.Pool
	c.with(func(s *allocator.State) { earlier, _ = s.Pool(cc.Name) })
	p := pool.Compile(cc, earlier) // It may take a second. Events of a kind come one after the other.
	if fromflags.Made(cc) && (p.State == ipam.Enabled || p.State == ipam.Disabled) {
		if why := fromflags.Superseded(cc, c.FromFlags); why != "" {
			p.Supersede(why) // even before that is written
		}
	}
	c.with(func(s *allocator.State) {
		known, ok := c.clusterCIDRs[cc.Name]
		if !ok {
			known = &clusterCIDR{}
			c.clusterCIDRs[cc.Name] = known
		}
		known.object = cc
		s.SetPool(p)
	})
	c.queueClusterCIDR(cc.Name)
}

func (c *Controller) clusterCIDRGone(cc *networkingv1.ClusterCIDR) {
	c.with(func(s *allocator.State) {
		delete(c.clusterCIDRs, cc.Name)
		s.DropPool(cc.Name)
	})
	c.clusterCIDRQueue.Forget(cc.Name)
	for _, kind := range []health.Kind{health.WritesClusterCIDR, health.WritesStatus} {
		c.health.Wrote(kind, cc.Name, nil)
	}
	c.queueClusterCIDR(cc.Name)
}

// queueClusterCIDR queues a ClusterCIDR for its finalizer and status, and the flags if they may ask for another one now.
func (c *Controller) queueClusterCIDR(name string) {
	c.clusterCIDRQueue.Add(name)
	if strings.HasPrefix(name, fromflags.Prefix) {
		c.clusterCIDRQueue.Add(followFlags)
	}
}

// seeServiceCIDR records the ranges of a ServiceCIDR. One that is being deleted counts until it is gone: its addresses may still be in use.
func (c *Controller) seeServiceCIDR(serviceCIDR *networkingapiv1.ServiceCIDR) {
	ranges, err := pool.ServiceRangesOf(serviceCIDR)
	if err != nil {
		klog.Background().Error(err, "Passing over service ranges that cannot be read", "serviceCIDR", klog.KObj(serviceCIDR))
	}
	c.with(func(s *allocator.State) { s.SetService(serviceSource(serviceCIDR), ranges) })
}

func (c *Controller) serviceCIDRGone(serviceCIDR *networkingapiv1.ServiceCIDR) {
	c.with(func(s *allocator.State) { s.SetService(serviceSource(serviceCIDR), nil) })
}

func serviceSource(serviceCIDR *networkingapiv1.ServiceCIDR) string {
	return "ServiceCIDR " + serviceCIDR.Name
}

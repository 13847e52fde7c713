package nodeipam

import (
	"context"
	"time"

	networkingapiv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	networkingv1 "github.com/multicidr/controller-manager/apis/networking/v1"
	"github.com/multicidr/controller-manager/controllers/nodeipam/allocator"
	"github.com/multicidr/controller-manager/controllers/nodeipam/health"
)

// lookInterval is how often a missing CRD or permission is looked for again.
const lookInterval = time.Second

// start returns when the state knows every ClusterCIDR and what every Node holds, so that the first choice can be made;
// false if ctx was done before. What is missing is said in the log and by the health check, and waited for.
func (c *Controller) start(ctx context.Context) bool {
	if !c.waitWrites(ctx) {
		return false
	}
	// The informer would look for itself, but with ever longer pauses and without telling people what to do.
	var clusterCIDRsAsOf string
	err := wait.PollUntilContextCancel(ctx, lookInterval, true, func(ctx context.Context) (ok bool, _ error) {
		clusterCIDRsAsOf, ok = c.canRead(ctx)
		return ok, nil
	})
	if err != nil {
		return false
	}
	c.informers.Start(ctx.Done())
	for kind, synced := range c.synced {
		c.health.WaitFor(health.Problem{What: "the cache of " + kind + " to fill"})
		if !cache.WaitForNamedCacheSyncWithContext(ctx, synced) {
			return false
		}
	}
	if c.serviceCIDRs != nil && !c.waitShown(ctx, c.serviceCIDRContents()) {
		return false
	}
	if !c.waitFresh(ctx, cached{c.nodeContents(), c.nodesAsOf, c.nodesVersion}, cached{c.clusterCIDRContents(), clusterCIDRsAsOf, c.clusterCIDRsVersion}) {
		return false
	}
	if !c.waitTakeover(ctx) {
		return false
	}
	if err := c.readAll(ctx); err != nil {
		// Listing a cache fails only for a selector that cannot be parsed.
		klog.FromContext(ctx).Error(err, "Cannot start")
		c.health.WaitFor(health.Problem{What: err.Error()})
		return false
	}
	c.health.WaitFor(health.Problem{})
	klog.FromContext(ctx).Info("Read all ClusterCIDRs and Nodes, starting to serve")
	return true
}

// canRead reports whether ClusterCIDRs and Nodes can be read, and says what to do if not. If so, asOf is the resource version
// of a consistent read of ClusterCIDRs, and c.nodesAsOf that of one of Nodes.
func (c *Controller) canRead(ctx context.Context) (asOf string, ok bool) {
	list, err := c.stored().List(ctx, metav1.ListOptions{Limit: 1})
	t := c.unreadable(err)
	if err == nil && c.nodesAsOf == "" {
		if c.nodesAsOf, err = ReadNodes(ctx, c.client); err != nil {
			t = health.Problem{What: "Nodes cannot be read: if that is forbidden, " + health.ApplyRBAC, Err: err}
		}
	}
	if err == nil {
		return list.GetResourceVersion(), true
	}
	if ctx.Err() == nil && c.health.WaitFor(t) {
		klog.FromContext(ctx).Error(err, "No Node gets podCIDRs: "+t.What)
	}
	return "", false
}

// readAll enters all that is cached in the state.
func (c *Controller) readAll(ctx context.Context) error {
	var err error
	c.entering.Lock()
	defer c.entering.Unlock()
	c.with(func(b *allocator.State) {
		// From here on events are entered as they come, so the caches are read with the state in hand.
		err = c.fill(ctx, b)
		c.filled.Store(err == nil)
	})
	if err != nil {
		return err
	}
	if c.flags != nil {
		c.clusterCIDRQueue.Add(nameFromFlags(c.flags)) // it is made if it is not there
	}
	return nil
}

func (c *Controller) fill(ctx context.Context, b *allocator.State) error {
	clusterCIDRs, err := c.clusterCIDRs.List(labels.Everything())
	if err != nil {
		return err
	}
	nodes, err := c.nodes.List(labels.Everything())
	if err != nil {
		return err
	}
	var serviceCIDRs []*networkingapiv1.ServiceCIDR
	if c.serviceCIDRs != nil {
		if serviceCIDRs, err = c.serviceCIDRs.List(labels.Everything()); err != nil {
			return err
		}
	}
	for _, cc := range clusterCIDRs {
		b.SetPool(c.compile(cc))
	}
	for _, serviceCIDR := range serviceCIDRs {
		b.SetService(serviceSource(serviceCIDR.Name), serviceRangesOf(ctx, serviceCIDR))
	}
	c.foundEarlier(nodes)
	for _, node := range nodes {
		c.heard(node)
	}
	for _, node := range b.Rebuild(nodes, inParallel) {
		c.nodeQueue.Add(node.Name)
	}
	return nil
}

// unreadable says what keeps ClusterCIDRs from being read and what to do about it; the zero value without an error.
func (c *Controller) unreadable(err error) health.Problem {
	switch {
	case err == nil:
		return health.Problem{}
	case apierrors.IsNotFound(err), apierrors.IsForbidden(err) && !c.crdExists():
		return health.Problem{What: health.CRDMissing}
	case apierrors.IsForbidden(err):
		return health.Problem{What: "the controller may not read ClusterCIDRs: " + health.ApplyRBAC, Err: err}
	default:
		return health.Problem{What: "ClusterCIDRs cannot be read", Err: err}
	}
}

// crdExists asks discovery, which answers everybody, while a resource that is not there is forbidden to who has no
// permission. Without an answer it is taken to be there.
func (c *Controller) crdExists() bool {
	_, err := c.clusterCIDRClient.Discovery().ServerResourcesForGroupVersion(networkingv1.SchemeGroupVersion.String())
	return !apierrors.IsNotFound(err)
}

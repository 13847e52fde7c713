package nodeipam

import (
	"context"
	"net/netip"
	"sync"

	networkingapiv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/multicidr/controller-manager/controllers/nodeipam/allocator"
	"github.com/multicidr/controller-manager/controllers/nodeipam/contents"
	"github.com/multicidr/controller-manager/controllers/nodeipam/fresh"
	"github.com/multicidr/controller-manager/controllers/nodeipam/fromflags"
	"github.com/multicidr/controller-manager/controllers/nodeipam/health"
	"github.com/multicidr/controller-manager/controllers/nodeipam/internal/parallel"
	"github.com/multicidr/controller-manager/controllers/nodeipam/stored"
	"github.com/multicidr/controller-manager/controllers/nodeipam/takeover"
)

// start returns when the state knows every ClusterCIDR and what every Node holds, so that allocation can begin; false if ctx was done
// before. While it waits, the log and the health check report what is missing.
func (c *Controller) start(ctx context.Context) bool {
	if !c.waitWrites(ctx) {
		return false
	}
	// The informer would retry by itself, but with ever longer pauses and without saying what to do.
	var clusterCIDRsAsOf string
	err := wait.PollUntilContextCancel(ctx, fresh.LookInterval, true, func(ctx context.Context) (ok bool, _ error) {
		clusterCIDRsAsOf, ok = c.canRead(ctx)
		return ok, nil
	})
	if err != nil {
		return false
	}
	c.informers.Start(ctx.Done())
	for _, kind := range []string{"Nodes", "ClusterCIDRs"} {
		if !c.waitSynced(ctx, kind) {
			return false
		}
	}
	if c.serviceCIDRs != nil && !c.waitServiceCIDRs(ctx) {
		return false
	}
	if !fresh.Wait(ctx, &c.health, fresh.Cache{Contents: c.nodeContents(), AsOf: c.nodesAsOf, Version: c.nodesVersion}, fresh.Cache{Contents: c.clusterCIDRContents(), AsOf: clusterCIDRsAsOf, Version: c.clusterCIDRsVersion}) {
		return false
	}
	leader := takeover.Leader{Term: c.term, Delay: c.takeoverDelay, Nodes: c.nodes, Contents: c.nodeContents(), Health: &c.health, Now: c.now}
	if !leader.Wait(ctx) {
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

func (c *Controller) waitSynced(ctx context.Context, kind string) bool {
	c.health.WaitFor(health.Problem{What: "the cache of " + kind + " to fill"})
	synced := cache.WaitForCacheSync(ctx.Done(), c.synced[kind]) // WaitForNamedCacheSync calls it an error when ctx ends
	if synced {
		klog.FromContext(ctx).Info("Caches are synced", "kind", kind) // as other controllers say it
	}
	return synced
}

// waitServiceCIDRs waits until the cache shows all ServiceCIDRs. The API server may have none, even if discovery said that it has: while
// several API servers are upgraded one after the other, requests reach older ones, too, and an upgrade can be undone. kube-controller-manager
// does not ask discovery. If ServiceCIDRs come later, the informer tells.
func (c *Controller) waitServiceCIDRs(ctx context.Context) bool {
	waiting, stop := context.WithCancel(ctx)
	defer stop()
	var looking sync.WaitGroup
	defer looking.Wait()
	defer stop()
	looking.Go(func() {
		if fresh.Absent(waiting, c.client.NetworkingV1().ServiceCIDRs().List) {
			stop()
		}
	})
	if c.waitSynced(waiting, "ServiceCIDRs") && fresh.WaitShown(waiting, &c.health, c.serviceCIDRContents()) {
		return true
	}
	if ctx.Err() == nil {
		klog.FromContext(ctx).Info("The API server does not have ServiceCIDRs: until it has, the controller knows only the service ranges in --service-cluster-ip-range")
	}
	return ctx.Err() == nil
}

// canRead reports whether ClusterCIDRs and Nodes can be read, and logs what to do if not. If they can, asOf is the resource version of a
// consistent read of ClusterCIDRs, and c.nodesAsOf that of a consistent read of Nodes.
func (c *Controller) canRead(ctx context.Context) (asOf string, ok bool) {
	limited, cancel := fresh.Limited(ctx)
	defer cancel()
	list, err := stored.ClusterCIDRs(c.dynamic).List(limited, metav1.ListOptions{Limit: 1})
	t := stored.Unreadable(err, c.clusterCIDRClient)
	if err == nil && c.nodesAsOf == "" {
		c.nodesAsOf, err = c.readNodes(ctx)
		t = nodesUnreadable(err)
	}
	if err == nil {
		return list.GetResourceVersion(), true
	}
	c.waitForEnd(ctx, t, err)
	return "", false
}

// waitForEnd reports what must end before a Node can get podCIDRs.
func (c *Controller) waitForEnd(ctx context.Context, t health.Problem, err error) {
	if ctx.Err() == nil && c.health.WaitFor(health.Problem{What: "the end of this problem: " + t.What, Err: t.Err}) {
		klog.FromContext(ctx).Error(err, "No Node gets podCIDRs: "+t.What)
	}
}

func nodesUnreadable(err error) health.Problem {
	return health.Problem{What: "Nodes cannot be read: if that is forbidden, " + health.ApplyRBAC, Err: err}
}

// readAll records everything in the caches in the state.
func (c *Controller) readAll(ctx context.Context) error {
	var err error
	c.entering.Lock()
	defer c.entering.Unlock()
	c.with(func(b *allocator.State) {
		// From now on events are recorded as they come, so the caches are read under the lock on the state.
		err = c.fill(ctx, b)
		c.filled.Store(err == nil)
	})
	if err != nil {
		return err
	}
	if c.flags != nil {
		c.clusterCIDRQueue.Add(fromflags.NameOf(c.flags)) // creates it if it does not exist
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
	c.foundEarlier(nodes)
	all := contents.Contents{Nodes: nodes, Services: map[string][]netip.Prefix{}}
	for _, cc := range clusterCIDRs {
		all.Pools = append(all.Pools, c.compile(cc))
	}
	for _, serviceCIDR := range serviceCIDRs {
		all.Services[contents.ServiceSource(serviceCIDR.Name)] = serviceRangesOf(ctx, serviceCIDR)
	}
	for _, node := range nodes {
		c.heard(node)
	}
	if len(nodes) == 0 {
		c.heardVersion = c.nodesAsOf // Whatever Node comes is newer than that, or already gone.
	}
	for _, node := range all.Fill(b, parallel.Each) {
		c.nodeQueue.Add(node.Name)
	}
	c.forgetKnown(b)
	return nil
}

func (c *Controller) nodeContents() fresh.Contents {
	return fresh.Contents{Kind: "Nodes", Read: c.reads["Nodes"], Shown: fresh.VersionsOf(c.nodes.List)}
}

func (c *Controller) clusterCIDRContents() fresh.Contents {
	return fresh.Contents{Kind: "ClusterCIDRs", Read: c.reads["ClusterCIDRs"], Shown: fresh.VersionsOf(c.clusterCIDRs.List), Gone: c.gone}
}

func (c *Controller) serviceCIDRContents() fresh.Contents {
	return fresh.Contents{Kind: "ServiceCIDRs", Read: c.reads["ServiceCIDRs"], Shown: fresh.VersionsOf(c.serviceCIDRs.List)}
}

func (c *Controller) noteRead(ctx context.Context, err error) {
	if ctx.Err() != nil || apierrors.IsResourceExpired(err) || apierrors.IsGone(err) {
		return // shutdown, or a watch that restarts from a list
	}
	t := stored.Unreadable(err, c.clusterCIDRClient)
	changed := c.health.Read(t)
	switch {
	case changed && err != nil:
		klog.FromContext(ctx).Error(err, "Changes of ClusterCIDRs are not seen: "+t.What)
	case changed:
		klog.FromContext(ctx).Info("Watching ClusterCIDRs again")
	}
}

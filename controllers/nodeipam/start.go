package nodeipam

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/pager"
	"k8s.io/klog/v2"

	"github.com/multicidr/controller-manager/controllers/lease"
	"github.com/multicidr/controller-manager/controllers/nodeipam/allocator"
	"github.com/multicidr/controller-manager/controllers/nodeipam/health"
	"github.com/multicidr/controller-manager/controllers/nodeipam/pool"
	"github.com/multicidr/controller-manager/controllers/writes"
)

const (
	// lookInterval is how often a cache that is behind is looked at.
	lookInterval = 50 * time.Millisecond
	// recordInterval is how often the handlers are asked whether they have recorded everything. cache.WaitForCacheSync asks every 100 ms.
	recordInterval = 5 * time.Millisecond
	// readInterval is how often a read is repeated that fails, and how long a cache is asked for its version.
	readInterval = time.Second
	// askInterval is how often objects are listed again of which the cache does not show some, to see which of these are gone.
	askInterval = 5 * time.Second
	// readTimeout is how long one request is waited for. The API server ends it after a minute; without a limit, a read whose answer is lost on
	// the way would never end.
	readTimeout = 65 * time.Second
)

// kind is one kind of object that is read.
type kind struct {
	name     string
	informer cache.SharedIndexInformer
	handler  cache.ResourceEventHandler
	list     pager.ListPageFunc
	// shows reports whether what is stored in the cache, an object of the same name or nil, is as new as what was listed.
	shows func(stored any, listed metav1.Object) bool
	// optional is whether the controller can do without the kind if the API server says that there is no such thing. A proxy without a backend
	// says that, too, and without Nodes every block would be free.
	optional bool
	// asOf is the resource version of a consistent read, which the cache has to reach; empty if the API server does not serve the kind.
	asOf string
}

func (c *Controller) kinds() []*kind {
	return []*kind{
		{
			name: "ClusterCIDRs", informer: c.informer, handler: handle(c.seeClusterCIDR, c.clusterCIDRGone),
			list: listOf(c.ClusterCIDRClient.NetworkingV1().ClusterCIDRs().List), shows: asNew,
		},
		{
			name: "ServiceCIDRs", informer: c.ServiceCIDRs.Informer(), handler: handle(c.seeServiceCIDR, c.serviceCIDRGone),
			list: listOf(c.Client.NetworkingV1().ServiceCIDRs().List), shows: asNew, optional: true,
		},
		{
			name: "Nodes", informer: c.Nodes.Informer(), handler: handle(c.seeNode, c.nodeGone),
			list: listOf(c.Client.CoreV1().Nodes().List), shows: c.showsNode, asOf: c.NodesAsOf,
		},
	}
}

// listOf returns a function that makes one request for a list, which is consistent as long as the options name no resource version.
func listOf[L runtime.Object](list func(context.Context, metav1.ListOptions) (L, error)) pager.ListPageFunc {
	return func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
		ctx, cancel := context.WithTimeout(ctx, readTimeout)
		defer cancel()
		return list(ctx, options)
	}
}

// start returns true when the state knows what every Node holds, so that allocation can begin; false if ctx was done before. While it waits,
// the log and the health check say what for.
//
// A cache can start behind: an API server answers a first list from its own watch cache, which may lag. Then the writes of an earlier leader
// would be missing, and its blocks would be allocated again. So the caches must be at least as new as a consistent read made after the Lease
// was acquired.
func (c *Controller) start(ctx context.Context) bool {
	began, kinds := time.Now(), c.kinds() // Processes before this one have ended by now, or another one led before.
	if c.Fence.Predecessor() == lease.FencedPredecessor {
		c.Fence.Mark() // Already now: if this process ends before it serves, its successor need not wait for another allocator.
	}
	for _, k := range kinds {
		if !c.read(ctx, k) {
			return false
		}
	}
	go c.informer.Run(ctx.Done())
	if c.StartInformers != nil {
		c.StartInformers(ctx.Done())
	}
	for _, k := range kinds {
		if k.asOf != "" && (!c.waitSynced(ctx, k) || !c.waitFresh(ctx, k)) {
			return false
		}
	}
	nodes := kinds[len(kinds)-1]
	if !c.waitForLateWrites(ctx, began, nodes) || !addHandlers(ctx, kinds) {
		return false
	}
	c.with(func(s *allocator.State) { s.Start() })
	c.clusterCIDRQueue.Add(followFlags)
	c.health.WaitFor(health.Problem{})
	klog.FromContext(ctx).Info("Read all ClusterCIDRs and Nodes, starting to serve")
	return true
}

// addHandlers adds the handlers, and returns true when everything that the caches show is recorded. What a Node's podCIDRs mean depends on
// ClusterCIDRs, so they come first.
func addHandlers(ctx context.Context, kinds []*kind) bool {
	for _, k := range kinds {
		registration, err := k.informer.AddEventHandler(k.handler)
		if err != nil { // The informer has ended, and so has ctx.
			return false
		}
		if k.asOf == "" {
			continue
		}
		if err := wait.PollUntilContextCancel(ctx, recordInterval, true, func(context.Context) (bool, error) { return registration.HasSynced(), nil }); err != nil {
			return false
		}
	}
	return true
}

// read makes a consistent read of a kind, unless there is one. It repeats it until it succeeds, and says what to do.
func (c *Controller) read(ctx context.Context, k *kind) bool {
	err := wait.PollUntilContextCancel(ctx, readInterval, true, func(ctx context.Context) (bool, error) {
		if k.asOf != "" {
			return true, nil
		}
		list, err := k.list(ctx, metav1.ListOptions{Limit: 1}) // An empty resource version means the most recent one.
		if err == nil {
			k.asOf, err = meta.NewAccessor().ResourceVersion(list)
		}
		switch {
		case err == nil || ctx.Err() != nil:
			return err == nil, nil
		case k.optional && apierrors.IsNotFound(err):
			klog.FromContext(ctx).Info("The API server does not have "+k.name+": until it has, the controller knows only the service ranges in --service-cluster-ip-range", "err", err)
			return true, nil
		}
		c.cannotRead(ctx, k, err)
		return false, nil
	})
	return err == nil
}

func (c *Controller) waitSynced(ctx context.Context, k *kind) bool {
	c.health.WaitFor(health.Problem{What: "the cache of " + k.name + " to fill"})
	synced := cache.WaitForCacheSync(ctx.Done(), k.informer.HasSynced)
	if synced {
		klog.FromContext(ctx).Info("Caches are synced", "kind", k.name) // as other controllers say it
	}
	return synced
}

// waitFresh returns true when the cache shows at least what the consistent read of start would have shown.
func (c *Controller) waitFresh(ctx context.Context, k *kind) bool {
	err := wait.PollUntilContextTimeout(ctx, lookInterval, readInterval, true, func(context.Context) (bool, error) {
		order, err := resourceversion.CompareResourceVersion(storeVersion(k.informer.GetStore()), k.asOf)
		return err == nil && order >= 0, nil
	})
	return err == nil || ctx.Err() == nil && c.compare(ctx, k)
}

// storeVersion is the resource version of everything that a store shows; empty if it cannot tell. Stores of client-go before v0.36 cannot.
// The informer's own is that of its reflector, which is ahead of the store.
func storeVersion(store cache.Store) string {
	if s, ok := store.(interface{ LastStoreSyncResourceVersion() string }); ok {
		return s.LastStoreSyncResourceVersion()
	}
	return ""
}

// compare returns true when the cache shows everything that a consistent list shows and that is not gone by then. It needs the objects in the
// cache, not its version: a quiet cache may not learn for a minute, or never, that it has missed nothing.
func (c *Controller) compare(ctx context.Context, k *kind) bool {
	var behind map[string]metav1.Object // what the cache does not show, by name
	err := wait.PollUntilContextCancel(ctx, readInterval, true, func(ctx context.Context) (bool, error) {
		var err error
		if behind, err = k.listAll(ctx); err != nil {
			c.cannotRead(ctx, k, err)
		}
		return err == nil, nil
	})
	if err != nil {
		return false
	}
	ask := time.Now().Add(readInterval)
	err = wait.PollUntilContextCancel(ctx, lookInterval, true, func(ctx context.Context) (bool, error) {
		maps.DeleteFunc(behind, func(name string, listed metav1.Object) bool {
			stored, _, _ := k.informer.GetStore().GetByKey(name)
			return k.shows(stored, listed)
		})
		if len(behind) > 0 && time.Now().After(ask) {
			k.forgetGone(ctx, behind)
			ask = time.Now().Add(askInterval)
			klog.FromContext(ctx).Info("Waiting for a cache that lags", "kind", k.name, "objects", len(behind))
		}
		for name, listed := range behind {
			c.health.WaitFor(health.Problem{What: fmt.Sprintf("the cache of %s to show %s as of resource version %s", k.name, name, listed.GetResourceVersion())})
		}
		return len(behind) == 0, nil
	})
	return err == nil
}

// cannotRead says what to do about a read that fails.
func (c *Controller) cannotRead(ctx context.Context, k *kind, err error) {
	problem := health.ReadProblem(k.name, err)
	if ctx.Err() == nil && c.health.WaitFor(health.Problem{What: "the end of this problem: " + problem.What, Err: problem.Err}) {
		klog.FromContext(ctx).Error(err, "No Node gets podCIDRs: "+problem.What)
	}
}

// listAll makes a consistent list, page by page.
func (k *kind) listAll(ctx context.Context) (map[string]metav1.Object, error) {
	all := map[string]metav1.Object{}
	err := pager.New(k.list).EachListItem(ctx, metav1.ListOptions{}, func(o runtime.Object) error {
		object, err := meta.Accessor(o)
		if err == nil {
			all[object.GetName()] = object
		}
		return err
	})
	return all, err
}

// forgetGone removes from what was listed what is gone by now, or another object. It is one more list and not a read of each, which may be all
// Nodes of a large cluster. If it fails, it removes nothing.
func (k *kind) forgetGone(ctx context.Context, listed map[string]metav1.Object) {
	now, err := k.listAll(ctx)
	maps.DeleteFunc(listed, func(name string, object metav1.Object) bool {
		again, ok := now[name]
		return err == nil && (!ok || again.GetUID() != object.GetUID())
	})
}

// asNew reports whether an object in the cache is at least as new as the listed one.
func asNew(stored any, listed metav1.Object) bool {
	object, err := meta.Accessor(stored)
	if err != nil {
		return false
	}
	order, err := resourceversion.CompareResourceVersion(object.GetResourceVersion(), listed.GetResourceVersion())
	return err == nil && order >= 0
}

// showsNode reports whether a Node with podCIDRs has them in the cache, too. They never change, so under churn this ends. Without leader election one that has none
// must be there as well: a write of the process before may be on its way to it, and then this process waits for it.
func (c *Controller) showsNode(stored any, listed metav1.Object) bool {
	lacks := !pool.ShowsPodCIDRs(listed.(*v1.Node))
	if lacks && c.Fence.Predecessor() != lease.NoElection {
		return true
	}
	node, ok := stored.(*v1.Node)
	return ok && node.UID == listed.GetUID() && (lacks || pool.ShowsPodCIDRs(node))
}

// waitForLateWrites returns true when no write of another process can arrive any more, and the cache of Nodes shows those that have.
//
// Another allocator, such as the in-tree one, has no fence. Its last PATCH has no UID, no bound by its Lease and no timeout: the API server may
// carry it out up to --request-timeout after receiving it, when this process is already the leader. So a leader waits for that time, unless
// the Lease says that a fenced leader of ours held it last, or no Node has podCIDRs.
//
// Without leader election nothing fences a process of ours before this one, which has ended, and whose last PATCH can only be for a Node that
// has no podCIDRs now.
func (c *Controller) waitForLateWrites(ctx context.Context, began time.Time, nodes *kind) bool {
	shown := nodes.informer.GetStore().List()
	has := func(o any) bool { return pool.ShowsPodCIDRs(o.(*v1.Node)) }
	anyHas, anyLacks := slices.ContainsFunc(shown, has), slices.ContainsFunc(shown, func(o any) bool { return !has(o) })
	var (
		left    time.Duration
		of, why string
	)
	switch predecessor := c.Fence.Predecessor(); {
	case predecessor == lease.NoElection && anyLacks:
		left, of = lease.OverWithoutLease(writes.Timeout)-time.Since(began), "an earlier process"
		why = "there is no leader election, and the API server may still carry out what a process before this one has sent"
	case predecessor == lease.NoElection, predecessor == lease.FencedPredecessor:
	case predecessor == lease.NoPredecessor && !anyHas: // The cluster is new.
	default:
		left, of = c.TakeoverDelay-time.Since(began), "another allocator"
		why = fmt.Sprintf("another allocator may have led before, and the API server may still carry out what it sent (--node-ipam-takeover-delay=%v)", c.TakeoverDelay)
	}
	if left > 0 {
		until := time.Now().Add(left).UTC().Format(time.TimeOnly)
		klog.FromContext(ctx).Info("Waiting before the first allocation until the last request of "+of+" is over", "until", until, "why", why)
		c.health.WaitFor(health.Problem{What: fmt.Sprintf("the last request of %s to be over, at %s UTC: %s. Nothing has to be done", of, until, why)})
		select {
		case <-time.After(left):
		case <-ctx.Done():
			return false
		}
	}
	if of != "" && !c.compare(ctx, nodes) {
		return false
	}
	c.Fence.Mark()
	return true
}

// ReadNodes makes a consistent read of Nodes and returns its resource version: what Config.NodesAsOf is. It reads only one Node.
func ReadNodes(ctx context.Context, client kubernetes.Interface) (asOf string, err error) {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	nodes, err := client.CoreV1().Nodes().List(ctx, metav1.ListOptions{Limit: 1})
	if err != nil {
		return "", fmt.Errorf("read Nodes: %w", err)
	}
	return nodes.ResourceVersion, nil
}

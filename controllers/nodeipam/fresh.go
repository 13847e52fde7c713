package nodeipam

import (
	"context"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/klog/v2"
)

// freshInterval is how often a cache is looked at that is not as new as it has to be.
const freshInterval = 50 * time.Millisecond

// cached is a cache of one kind of object and the resource version that it has to have reached before the first choice.
//
// A cache can start behind: an API server answers a first list from a cache of its own, which may lag. What a leader of
// earlier wrote would be missing, and its blocks given again. So a leader makes a consistent read of its own after it has
// won the lease, and waits until its caches have seen all that this read could have seen. Resource versions of one kind of
// object are ordered (KEP-5504).
type cached struct {
	kind string
	// asOf is the resource version of that read.
	asOf string
	// version is the resource version that the cache shows, all of it.
	version func() string
}

// ReadNodes makes a consistent read of Nodes and returns its resource version. It reads one Node, whatever their number.
//
// A watch that starts after it is at least as new at once; one that runs already may learn only by its next bookmark,
// which the API server sends about once a minute, that nothing it should know of has happened.
func ReadNodes(ctx context.Context, client kubernetes.Interface) (asOf string, err error) {
	// No resource version means the most recent one.
	nodes, err := client.CoreV1().Nodes().List(ctx, metav1.ListOptions{Limit: 1})
	if err != nil {
		return "", fmt.Errorf("read Nodes: %w", err)
	}
	return nodes.ResourceVersion, nil
}

// waitFresh returns when all caches are as new as they have to be; false if ctx was done before.
func (c *Controller) waitFresh(ctx context.Context, caches ...cached) bool {
	for _, cache := range caches {
		told := false
		err := wait.PollUntilContextCancel(ctx, freshInterval, true, func(ctx context.Context) (bool, error) {
			version := cache.version()
			order, err := resourceversion.CompareResourceVersion(version, cache.asOf)
			if err == nil && order >= 0 {
				return true, nil
			}
			t := trouble{what: fmt.Sprintf("the cache of %s to be as new as when this process became the leader, or the controller started again (it has resource version %q and needs %q)", cache.kind, version, cache.asOf), err: err}
			if version == "" {
				t.what = "a cache that tells its resource version: turn client-go's feature AtomicFIFO on (environment variable KUBE_FEATURE_AtomicFIFO), which is the default"
			}
			c.health.waitFor(t)
			if !told {
				klog.FromContext(ctx).Info("Waiting for a cache that lags", "kind", cache.kind, "resourceVersion", version, "needed", cache.asOf)
				told = true
			}
			return false, nil
		})
		if err != nil {
			return false
		}
	}
	return true
}

// waitServiceCIDRs returns when the cache of ServiceCIDRs shows all that a consistent read does; false if ctx was done before. There are
// few of them and they hardly ever change, so their cache could wait long for news by which it could tell how new it is.
func (c *Controller) waitServiceCIDRs(ctx context.Context) bool {
	err := wait.PollUntilContextCancel(ctx, freshInterval, true, func(ctx context.Context) (bool, error) {
		list, err := c.client.NetworkingV1().ServiceCIDRs().List(ctx, metav1.ListOptions{})
		if err != nil {
			c.health.waitFor(trouble{"ServiceCIDRs to be readable: if that is forbidden, " + ApplyRBAC, err})
			return false, nil
		}
		for _, read := range list.Items {
			shown, err := c.serviceCIDRs.Get(read.Name)
			if err == nil {
				var order int
				if order, err = resourceversion.CompareResourceVersion(shown.ResourceVersion, read.ResourceVersion); order >= 0 && err == nil {
					continue
				}
			}
			c.health.waitFor(trouble{fmt.Sprintf("the cache of ServiceCIDRs to show %s as of resource version %s", read.Name, read.ResourceVersion), err})
			return false, nil
		}
		return true, nil
	})
	return err == nil
}

package nodeipam

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
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
	contents
	// asOf is the resource version of that read.
	asOf string
	// version is the resource version that the cache shows, all of it; empty if the cache cannot tell, which depends on feature gates of
	// client-go, and these on --emulated-version. Then the read and the cache are compared object by object.
	version func() string
}

// contents are the objects of one kind: those that exist and those in a cache.
type contents struct {
	kind string
	// read makes a consistent read of all. It returns their resource versions, by name.
	read func(ctx context.Context) (map[string]string, error)
	// shown is the resource version of an object in the cache.
	shown func(name string) (string, error)
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
		if cache.version() == "" {
			if !c.waitShown(ctx, cache.contents) {
				return false
			}
			continue
		}
		told := false
		err := wait.PollUntilContextCancel(ctx, freshInterval, true, func(ctx context.Context) (bool, error) {
			version := cache.version()
			order, err := resourceversion.CompareResourceVersion(version, cache.asOf)
			if err == nil && order >= 0 {
				return true, nil
			}
			c.health.waitFor(trouble{what: fmt.Sprintf("the cache of %s to be as new as when this process became the leader, or the controller started again (it has resource version %q and needs %q)", cache.kind, version, cache.asOf), err: err})
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

// waitShown returns when a cache shows all that a consistent read does; false if ctx was done before. It needs nothing from the cache but its objects. An
// object that is gone and that the cache still shows does no harm: what it holds is kept until its event comes.
func (c *Controller) waitShown(ctx context.Context, all contents) bool {
	var (
		missing map[string]string // of the last read
		at      time.Time
		told    bool
	)
	err := wait.PollUntilContextCancel(ctx, freshInterval, true, func(ctx context.Context) (bool, error) {
		if now := time.Now(); at.IsZero() || now.Sub(at) >= lookInterval { // again, for what is missing may be gone meanwhile
			read, err := all.read(ctx)
			if err != nil {
				if ctx.Err() == nil && c.health.waitFor(trouble{all.kind + " to be readable: if that is forbidden, " + ApplyRBAC, err}) {
					klog.FromContext(ctx).Error(err, "No Node gets podCIDRs: "+all.kind+" cannot be read")
				}
				return false, nil
			}
			missing, at = read, now
		}
		maps.DeleteFunc(missing, func(name, needed string) bool {
			shown, err := all.shown(name)
			if err != nil {
				return false
			}
			order, err := resourceversion.CompareResourceVersion(shown, needed)
			return err == nil && order >= 0
		})
		if len(missing) == 0 {
			return true, nil
		}
		name := slices.Min(slices.Collect(maps.Keys(missing)))
		c.health.waitFor(trouble{what: fmt.Sprintf("the cache of %s to show %s as of resource version %s", all.kind, name, missing[name])})
		if !told {
			klog.FromContext(ctx).Info("Waiting for a cache that lags", "kind", all.kind, "object", name, "needed", missing[name])
			told = true
		}
		return false, nil
	})
	return err == nil
}

// readPages makes a consistent read, page by page, and returns the resource versions of all objects by name.
func readPages[L runtime.Object](ctx context.Context, list func(context.Context, metav1.ListOptions) (L, error)) (map[string]string, error) {
	versions := map[string]string{}
	options := metav1.ListOptions{Limit: 500} // No resource version means the most recent one.
	for {
		page, err := list(ctx, options)
		if err != nil {
			return nil, err
		}
		err = meta.EachListItem(page, func(o runtime.Object) error {
			object, err := meta.Accessor(o)
			if err == nil {
				versions[object.GetName()] = object.GetResourceVersion()
			}
			return err
		})
		if err != nil {
			return nil, err
		}
		of, err := meta.ListAccessor(page)
		if err != nil {
			return nil, err
		}
		if options.Continue = of.GetContinue(); options.Continue == "" {
			return versions, nil
		}
	}
}

// versionOfShown is the resource version of what a lister has got.
func versionOfShown[O metav1.Object](get func(string) (O, error)) func(string) (string, error) {
	return func(name string) (string, error) {
		o, err := get(name)
		if err != nil {
			return "", err
		}
		return o.GetResourceVersion(), nil
	}
}

func (c *Controller) nodeContents() contents {
	return contents{"Nodes", func(ctx context.Context) (map[string]string, error) {
		return readPages(ctx, c.client.CoreV1().Nodes().List)
	}, versionOfShown(c.nodes.Get)}
}

func (c *Controller) clusterCIDRContents() contents {
	return contents{"ClusterCIDRs", func(ctx context.Context) (map[string]string, error) {
		return readPages(ctx, c.stored().List)
	}, versionOfShown(c.clusterCIDRs.Get)}
}

// serviceCIDRContents are compared always. There are few ServiceCIDRs and they hardly ever change, so their cache could wait long for news by which it
// could tell how new it is.
func (c *Controller) serviceCIDRContents() contents {
	return contents{"ServiceCIDRs", func(ctx context.Context) (map[string]string, error) {
		return readPages(ctx, c.client.NetworkingV1().ServiceCIDRs().List)
	}, versionOfShown(c.serviceCIDRs.Get)}
}

package nodeipam

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	"k8s.io/controller-manager/pkg/healthz"
	"k8s.io/klog/v2"

	"github.com/multicidr/controller-manager/apis/generated/clientset/versioned"
	networkingv1 "github.com/multicidr/controller-manager/apis/networking/v1"
)

// health is what keeps the controller from its work, for people: the health check, the log and the debug page say it.
// Nobody asks the API server for it; it is what the calls that are made anyway have shown. The zero value is healthy; all
// methods may be called at once.
type health struct {
	mu sync.Mutex
	// waitsFor is what Run waits for before it serves; empty once it does.
	waitsFor string
	// unreadable is why ClusterCIDRs cannot be watched; empty while they are.
	unreadable string
	// refused are the writes that the API server forbade at their last try: error by object by kind of object.
	refused map[string]map[string]error
}

// waitFor says what Run waits for now; empty: it serves. It reports whether that is new.
func (h *health) waitFor(what string) (changed bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	changed = h.waitsFor != what
	h.waitsFor = what
	return changed
}

// read notes how the last try to read ClusterCIDRs ended: why it failed, or empty. It reports whether that is new.
func (h *health) read(why string) (changed bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	changed = h.unreadable != why
	h.unreadable = why
	return changed
}

// wrote notes how the last try to bring an object on ended. It reports whether that made the first forbidden write of the
// kind, or ended the last one.
func (h *health) wrote(kind, name string, err error) (changed bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	before := len(h.refused[kind])
	if !apierrors.IsForbidden(err) {
		delete(h.refused[kind], name)
		return before > 0 && len(h.refused[kind]) == 0
	}
	if h.refused == nil {
		h.refused = map[string]map[string]error{}
	}
	if h.refused[kind] == nil {
		h.refused[kind] = map[string]error{}
	}
	h.refused[kind][name] = err
	return before == 0
}

// Check returns an error that says what to do for as long as the controller cannot do all of its work.
func (h *health) Check(*http.Request) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	var problems []string
	if h.waitsFor != "" {
		problems = append(problems, "not serving Nodes yet; waiting for "+h.waitsFor)
	}
	if h.unreadable != "" && h.unreadable != h.waitsFor {
		problems = append(problems, "changes of ClusterCIDRs are not seen: "+h.unreadable)
	}
	for _, kind := range slices.Sorted(maps.Keys(h.refused)) {
		if refused := h.refused[kind]; len(refused) > 0 {
			first := slices.Min(slices.Collect(maps.Keys(refused)))
			which := kind + " " + first
			if more := len(refused) - 1; more > 0 {
				which += fmt.Sprintf(" and %d more", more)
			}
			problems = append(problems, fmt.Sprintf("%s cannot be written: %s", which, whyForbidden(refused[first])))
		}
	}
	if len(problems) == 0 {
		return nil
	}
	return errors.New(strings.Join(problems, "; "))
}

// HealthChecker reports an error, which says what to do, for as long as the controller cannot do all of its work.
func (c *Controller) HealthChecker() healthz.UnnamedHealthChecker { return &c.health }

// whyForbidden says what to do about a refused call. An admission rule can refuse one as well, in words of its own.
func whyForbidden(err error) string {
	return fmt.Sprintf("the API server forbids it: apply manifests/rbac (%v)", err)
}

// noting passes on what sync returns, and notes which objects the API server forbids to write. All of them lack the same
// permission, as a rule, so only the first is logged.
func (c *Controller) noting(kind string, sync func(context.Context, string) error) func(context.Context, string) error {
	return func(ctx context.Context, name string) error {
		err := sync(ctx, name)
		changed := c.health.wrote(kind, name, err)
		switch {
		case changed && err != nil:
			klog.FromContext(ctx).Error(nil, "Cannot write: "+whyForbidden(err), "kind", kind, "name", name)
		case changed:
			klog.FromContext(ctx).Info("Can write again", "kind", kind)
		}
		return err
	}
}

// newInformer makes the informer of ClusterCIDRs. It is the generated one, save that it notes whether they can be read: an
// informer tells of errors, but not of their end.
func (c *Controller) newInformer(client versioned.Interface, resync time.Duration) cache.SharedIndexInformer {
	clusterCIDRs := client.NetworkingV1().ClusterCIDRs()
	return cache.NewSharedIndexInformerWithOptions(
		cache.ToListWatcherWithWatchListSemantics(&cache.ListWatch{
			ListWithContextFunc: func(ctx context.Context, opts metav1.ListOptions) (runtime.Object, error) {
				list, err := clusterCIDRs.List(ctx, opts)
				if err != nil { // A list that works is not all that it takes: a watch follows.
					c.noteRead(ctx, err)
				}
				return list, err
			},
			WatchFuncWithContext: func(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error) {
				w, err := clusterCIDRs.Watch(ctx, opts)
				c.noteRead(ctx, err)
				return w, err
			},
		}, client),
		&networkingv1.ClusterCIDR{},
		cache.SharedIndexInformerOptions{ResyncPeriod: resync},
	)
}

func (c *Controller) noteRead(ctx context.Context, err error) {
	if ctx.Err() != nil || apierrors.IsResourceExpired(err) || apierrors.IsGone(err) {
		return // the end, or a watch that starts anew from a list
	}
	why := c.whyUnreadable(err)
	changed := c.health.read(why)
	switch {
	case changed && err != nil:
		klog.FromContext(ctx).Error(nil, "Changes of ClusterCIDRs are not seen: "+why)
	case changed:
		klog.FromContext(ctx).Info("Watching ClusterCIDRs again")
	}
}

// whyUnreadable says what keeps ClusterCIDRs from being read and what to do about it; empty without an error.
func (c *Controller) whyUnreadable(err error) string {
	switch {
	case err == nil:
		return ""
	case apierrors.IsNotFound(err), apierrors.IsForbidden(err) && !c.crdExists():
		return "the CustomResourceDefinition of ClusterCIDR is not installed: apply manifests/crds"
	case apierrors.IsForbidden(err):
		return fmt.Sprintf("the controller may not read ClusterCIDRs: apply manifests/rbac (%v)", err)
	default:
		return fmt.Sprintf("ClusterCIDRs cannot be read: %v", err)
	}
}

// crdExists asks discovery, which answers everybody, while a resource that is not there is forbidden to who has no
// permission. Without an answer it is taken to be there.
func (c *Controller) crdExists() bool {
	_, err := c.clusterCIDRClient.Discovery().ServerResourcesForGroupVersion(networkingv1.SchemeGroupVersion.String())
	return !apierrors.IsNotFound(err)
}

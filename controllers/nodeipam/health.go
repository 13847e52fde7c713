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
	"github.com/multicidr/controller-manager/controllers/lease"
)

// health is what keeps the controller from its work, for people: the health check, the log and the debug page say it.
// Nobody asks the API server for it; it is what the calls that are made anyway have shown. The zero value is healthy; all
// methods may be called at once.
type health struct {
	mu sync.Mutex
	// waitsFor is what Run waits for before it serves; the zero value once it does.
	waitsFor trouble
	// unreadable is why ClusterCIDRs cannot be watched; the zero value while they are.
	unreadable trouble
	// refused are the writes that the API server forbade at their last try: error by object by kind of object.
	refused map[string]map[string]error
}

// trouble is what is wrong and what to do about it. Two of the same what are the same trouble: an error can name a port or a
// time, and be another one at every try.
type trouble struct {
	what string
	err  error // what the API server said; nil if it was not that
}

func (t trouble) String() string {
	if t.err == nil {
		return t.what
	}
	return fmt.Sprintf("%s (%v)", t.what, t.err)
}

// waitFor says what Run waits for now; the zero value: it serves. It reports whether that is new.
func (h *health) waitFor(t trouble) (changed bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	changed = h.waitsFor.what != t.what
	h.waitsFor = t
	return changed
}

// read notes how the last try to read ClusterCIDRs ended: the zero value if it worked. It reports whether that is new.
func (h *health) read(t trouble) (changed bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	changed = h.unreadable.what != t.what
	h.unreadable = t
	return changed
}

// wrote notes how the last try to bring an object on ended. It reports whether that made the first forbidden write of the
// kind, or ended the last one.
func (h *health) wrote(kind, name string, err error) (changed bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	before := len(h.refused[kind])
	if errors.Is(err, lease.ErrClosed) {
		return false // The API server was not asked.
	}
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
	if h.waitsFor.what != "" {
		problems = append(problems, fmt.Sprintf("not serving Nodes yet; waiting for %v", h.waitsFor))
	}
	if h.unreadable.what != "" {
		problems = append(problems, fmt.Sprintf("changes of ClusterCIDRs are not seen: %v", h.unreadable))
	}
	for _, kind := range slices.Sorted(maps.Keys(h.refused)) {
		if refused := h.refused[kind]; len(refused) > 0 {
			first := slices.Min(slices.Collect(maps.Keys(refused)))
			which := kind + " " + first
			if more := len(refused) - 1; more > 0 {
				which += fmt.Sprintf(" and %d more", more)
			}
			problems = append(problems, fmt.Sprintf("%s cannot be written: %v", which, trouble{whyForbidden(refused[first]), refused[first]}))
		}
	}
	if len(problems) == 0 {
		return nil
	}
	return errors.New(strings.Join(problems, "; "))
}

// HealthChecker reports an error, which says what to do, for as long as the controller cannot do all of its work.
func (c *Controller) HealthChecker() healthz.UnnamedHealthChecker { return &c.health }

// whyForbidden says what to do about a refused call. An admission rule of others can refuse one as well; its words are in the error.
func whyForbidden(err error) string {
	if refusedByPolicy(err) {
		return "the API server takes another process for the leader: this passes if the lease has just changed hands, else the policy looks at another Lease than ours (manifests/fencing)"
	}
	return "the API server forbids it: apply manifests/rbac"
}

// noting passes on what sync returns, and notes which objects the API server forbids to write. All of them lack the same
// permission, as a rule, so only the first is logged.
func (c *Controller) noting(kind string, sync func(context.Context, string) error) func(context.Context, string) error {
	return func(ctx context.Context, name string) error {
		err := sync(ctx, name)
		changed := c.health.wrote(kind, name, err)
		switch {
		case changed && err != nil:
			klog.FromContext(ctx).Error(err, "Cannot write: "+whyForbidden(err), "kind", kind, "name", name)
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
	t := c.unreadable(err)
	changed := c.health.read(t)
	switch {
	case changed && err != nil:
		klog.FromContext(ctx).Error(err, "Changes of ClusterCIDRs are not seen: "+t.what)
	case changed:
		klog.FromContext(ctx).Info("Watching ClusterCIDRs again")
	}
}

// unreadable says what keeps ClusterCIDRs from being read and what to do about it; the zero value without an error.
func (c *Controller) unreadable(err error) trouble {
	switch {
	case err == nil:
		return trouble{}
	case apierrors.IsNotFound(err), apierrors.IsForbidden(err) && !c.crdExists():
		return trouble{what: "the CustomResourceDefinition of ClusterCIDR is not installed: apply manifests/crds"}
	case apierrors.IsForbidden(err):
		return trouble{"the controller may not read ClusterCIDRs: apply manifests/rbac", err}
	default:
		return trouble{"ClusterCIDRs cannot be read", err}
	}
}

// crdExists asks discovery, which answers everybody, while a resource that is not there is forbidden to who has no
// permission. Without an answer it is taken to be there.
func (c *Controller) crdExists() bool {
	_, err := c.clusterCIDRClient.Discovery().ServerResourcesForGroupVersion(networkingv1.SchemeGroupVersion.String())
	return !apierrors.IsNotFound(err)
}

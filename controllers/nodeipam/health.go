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

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/controller-manager/pkg/healthz"
	"k8s.io/klog/v2"

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
	// broken is the panic that has ended the controller; nil if none has.
	broken any
	// refused are the writes that the API server refused until somebody does something: why, by object, by kind of object.
	refused map[string]map[string]trouble
	// doubted are the blocks, for people, of the Nodes that are in doubt.
	doubted map[string]string
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
	return cut(fmt.Sprintf("%s (%v)", t.what, t.err), maxProblem)
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

// wrote notes how the last try to bring an object on ended. It reports whether that is new: a refusal of another sort than those that
// are known of the kind, or the end of the last one.
func (h *health) wrote(kind, name string, err error) (changed bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	refused := h.refused[kind]
	if err == nil {
		before := len(refused)
		delete(refused, name)
		return before > 0 && len(refused) == 0
	}
	t := writeTrouble(err)
	if t.what == "" {
		return false // A call that got no answer, for one. What was refused before may still be.
	}
	if refused == nil {
		refused = map[string]trouble{}
		if h.refused == nil {
			h.refused = map[string]map[string]trouble{}
		}
		h.refused[kind] = refused
	}
	changed = true
	for _, other := range refused {
		changed = changed && other.what != t.what
	}
	refused[name] = t
	return changed
}

// breaks notes the panic that ends the controller: the first one, for others may follow from it.
func (h *health) breaks(panicked any) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.broken == nil || h.broken == errTorn {
		h.broken = panicked
	}
}

// Check returns an error that says what to do for as long as the controller cannot do all of its work.
func (h *health) Check(*http.Request) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.broken != nil {
		return errBroken
	}
	var problems []string
	if h.waitsFor.what != "" {
		problems = append(problems, fmt.Sprintf("not serving Nodes yet; waiting for %v", h.waitsFor))
	}
	if h.unreadable.what != "" {
		problems = append(problems, fmt.Sprintf("changes of ClusterCIDRs are not seen: %v", h.unreadable))
	}
	if doubtful := h.doubtful(); doubtful != "" {
		problems = append(problems, doubtful)
	}
	for _, kind := range slices.Sorted(maps.Keys(h.refused)) {
		if refused := h.refused[kind]; len(refused) > 0 {
			first := slices.Min(slices.Collect(maps.Keys(refused)))
			which := kind + " " + first
			if more := len(refused) - 1; more > 0 {
				which += fmt.Sprintf(" and %d more", more)
			}
			problems = append(problems, fmt.Sprintf("%s cannot be written: %v", which, refused[first]))
		}
	}
	if len(problems) == 0 {
		return nil
	}
	return errors.New(strings.Join(problems, "; "))
}

// HealthChecker reports an error, which says what to do, for as long as the controller cannot do all of its work.
func (c *Controller) HealthChecker() healthz.UnnamedHealthChecker { return &c.health }

// What to do where something is not installed. The chart has its own CRD, role and bindings, and in a cluster that uses it manifests/rbac
// would bind a service account that nobody has.
const (
	ApplyCRD  = "apply manifests/crds, or run helm upgrade if the Helm chart is used"
	ApplyRBAC = "apply manifests/rbac, or run helm upgrade if the Helm chart is used"
)

// What the start, the watch and writes say alike of the CRD.
const crdMissing = "the CustomResourceDefinition of ClusterCIDR is not installed: " + ApplyCRD

// writeTrouble says why a write was refused and what to do about it; the zero value if err is of another sort and trying again may help.
// An admission rule of others can forbid a write as well; its words are in the error.
func writeTrouble(err error) trouble {
	switch {
	case errors.Is(err, lease.ErrClosed):
		return trouble{} // The API server was not asked.
	case apierrors.IsNotFound(err) && apierrors.HasStatusCause(err, metav1.CauseTypeUnexpectedServerResponse):
		// It is the resource that does not exist, not an object. Of all that is written, only that of the CRD can be missing.
		return trouble{crdMissing, err}
	case !apierrors.IsForbidden(err):
		return trouble{}
	case strings.Contains(err.Error(), "custom resource definition is terminating"):
		// The API server gives no machine-readable cause, and its discovery documents may be older than its answer.
		return trouble{"the CustomResourceDefinition of ClusterCIDR is being deleted, which goes on until the last ClusterCIDR is gone: then " + ApplyCRD + ", and apply the ClusterCIDRs anew", err}
	case refusedByPolicy(err):
		return trouble{"the API server takes another process for the leader: this passes if the lease has just changed hands, else the policy looks at another Lease than ours (manifests/fencing)", err}
	default:
		return trouble{"the API server forbids it: " + ApplyRBAC, err}
	}
}

// noting passes on what sync returns, and notes which objects the API server refuses to write. All of them lack the same
// permission, as a rule, so only the first is logged.
func (c *Controller) noting(kind string, sync func(context.Context, string) error) func(context.Context, string) error {
	return func(ctx context.Context, name string) error {
		err := sync(ctx, name)
		changed := c.health.wrote(kind, name, err)
		switch {
		case changed && err != nil:
			klog.FromContext(ctx).Error(err, "Cannot write: "+writeTrouble(err).what, "kind", kind, "name", name)
		case changed:
			klog.FromContext(ctx).Info("Can write again", "kind", kind)
		}
		return err
	}
}

// unreadable says what keeps ClusterCIDRs from being read and what to do about it; the zero value without an error.
func (c *Controller) unreadable(err error) trouble {
	switch {
	case err == nil:
		return trouble{}
	case apierrors.IsNotFound(err), apierrors.IsForbidden(err) && !c.crdExists():
		return trouble{what: crdMissing}
	case apierrors.IsForbidden(err):
		return trouble{"the controller may not read ClusterCIDRs: " + ApplyRBAC, err}
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

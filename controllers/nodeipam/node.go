package nodeipam

import (
	"context"
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
)

// writeTimeout bounds one PATCH. A leader has stopped writing this long after it stopped deciding.
const writeTimeout = 5 * time.Second

// syncNode brings one Node on. Its outcome depends on what is cached and in the book, not on which event called it.
func (c *Controller) syncNode(ctx context.Context, name string) error {
	node, err := c.nodes.Get(name)
	switch {
	case apierrors.IsNotFound(err):
		c.with(func(b *book) { b.gone(name) })
		return nil
	case err != nil:
		return err
	case len(node.Spec.PodCIDRs) > 0 || node.Spec.PodCIDR != "":
		c.observe(node)
		return nil
	case node.DeletionTimestamp != nil:
		// Its blocks, if it has a reservation, stay its own until the object is gone; it needs no new ones.
		c.with(func(b *book) {
			b.replaced(node)
			delete(b.waiting, name)
		})
		return nil
	}
	r, ok := c.reserve(node)
	if !ok {
		return nil // it waits, and whatever may help wakes it
	}
	return c.write(ctx, node, r)
}

// observe takes the podCIDRs that a Node shows as what it holds, and reports what is wrong with them, once.
func (c *Controller) observe(node *v1.Node) {
	blocks, _ := podCIDRsOf(node)
	c.with(func(b *book) {
		b.observe(node, blocks)
		found := b.findings(node)
		e := b.nodes[node.Name]
		for reason, message := range found {
			if e.reported[reason] != message {
				c.recorder.Event(node, v1.EventTypeWarning, reason, message)
			}
		}
		if _, ok := found[ReasonConflict]; ok && e.reported[ReasonConflict] == "" {
			for other := range b.conflicts(node.UID) {
				c.nodeQueue.Add(other) // it has the same conflict to report
			}
		}
		e.reported = found
	})
}

// reserve returns the Node's reservation. If there is none because no pool can serve it, an event on the Node says why,
// once for the same reasons.
func (c *Controller) reserve(node *v1.Node) (r reservation, ok bool) {
	c.with(func(b *book) {
		var refusals []refusal
		if r, refusals, ok = b.reserve(node); ok {
			return
		}
		if n := len(refusals); n > 0 && refusals[n-1].pool.aboutToServe() {
			return // it serves, or says why not, in a moment
		}
		w := b.waiting[node.Name]
		said := fmt.Sprintf("%t %s", len(b.pools) > 0, reasons(refusals))
		if said == w.said {
			return
		}
		w.said = said
		b.waiting[node.Name] = w
		c.recorder.Event(node, v1.EventTypeWarning, ReasonNotAvailable, notAvailable(refusals, len(b.pools)))
	})
	return r, ok
}

// write puts a reservation into its Node. Whatever the answer, the reservation stands: an error says only that we do not
// know. The watch tells, and until then the same blocks are written again.
func (c *Controller) write(ctx context.Context, node *v1.Node, r reservation) error {
	// A shutdown does not cut a write off in the middle: Run returns when it has ended.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), writeTimeout)
	defer cancel()
	_, err := c.client.CoreV1().Nodes().Patch(ctx, node.Name, types.MergePatchType, podCIDRsPatch(node, r, c.primary), metav1.PatchOptions{FieldManager: Name})
	logger := klog.FromContext(ctx)
	switch {
	case err == nil:
		logger.Info("Assigned podCIDRs", "node", klog.KObj(node), "podCIDRs", podCIDRs(r.blocks, c.primary), "clusterCIDR", r.pool)
		return nil
	case apierrors.IsNotFound(err), apierrors.IsConflict(err):
		logger.V(4).Info("The Node is gone or another one by now", "node", klog.KObj(node), "err", err)
		return nil // the watch will say which
	case apierrors.IsForbidden(err):
		return fmt.Errorf("patch podCIDRs of Node %s (apply manifests/rbac to allow it): %w", node.Name, err)
	default:
		return fmt.Errorf("patch podCIDRs of Node %s: %w", node.Name, err)
	}
}

package nodeipam

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/klog/v2"
)

// writeTimeout bounds one write; under a leader lease that is short, a third of the lease does.
const writeTimeout = 5 * time.Second

// syncNode brings one Node on. Its outcome depends on what is cached and in the book, not on which event called it.
func (c *Controller) syncNode(ctx context.Context, name string) error {
	node, err := c.nodes.Get(name)
	switch {
	case apierrors.IsNotFound(err):
		c.with(func(b *book) { b.gone(name) })
		c.sightings.gone(name)
		return nil
	case err != nil:
		return err
	}
	served, err := c.observe(ctx, node)
	switch {
	case err != nil || served:
		return err
	case node.DeletionTimestamp != nil:
		// Its blocks, if it has a reservation, stay its own until the object is gone; it needs no new ones.
		c.with(func(b *book) { delete(b.waiting, name) })
		return nil
	}
	r, ok, err := c.reserve(ctx, node)
	if err != nil || !ok {
		return err // it waits, and whatever may help wakes it
	}
	return c.write(ctx, node, r)
}

// observe enters what a Node shows, and reports what is wrong with its podCIDRs, once. It returns whether it has any.
func (c *Controller) observe(ctx context.Context, node *v1.Node) (served bool, err error) {
	var found, reported map[string]string
	c.with(func(b *book) {
		blocks, unreadable := podCIDRsOf(node)
		b.observe(node, blocks, addressesOf(node))
		if served = len(blocks)+len(unreadable) > 0; !served {
			return
		}
		found = b.findings(node)
		e := b.enter(node)
		reported, e.reported = e.reported, found
	})
	for _, reason := range slices.Sorted(maps.Keys(found)) {
		message := found[reason]
		if reported[reason] == message {
			continue
		}
		if err := c.say(ctx, subjectOfNode(node), reason, message); err != nil {
			c.with(func(b *book) { b.enter(node).reported = nil })
			return served, err
		}
	}
	return served, nil
}

// reserve returns the Node's reservation. If there is none because no pool can serve the Node, an event on it says why, once
// for the same reasons.
func (c *Controller) reserve(ctx context.Context, node *v1.Node) (r reservation, ok bool, err error) {
	var message, before, now string
	c.with(func(b *book) {
		var refusals []refusal
		if r, refusals, ok = b.reserve(node); ok {
			return
		}
		if n := len(refusals); n > 0 && refusals[n-1].pool.aboutToServe() {
			return // it serves, or says why not, in a moment
		}
		w := b.waiting[node.Name]
		before, now = w.said, fmt.Sprintf("%t %s", len(b.pools) > 0, reasons(refusals))
		message = notAvailable(refusals, len(b.pools))
		w.said = now
		b.waiting[node.Name] = w
	})
	if ok || before == now {
		return r, ok, nil
	}
	if err := c.say(ctx, subjectOfNode(node), ReasonNotAvailable, message); err != nil {
		c.with(func(b *book) {
			if w, ok := b.waiting[node.Name]; ok {
				w.said = before
				b.waiting[node.Name] = w
			}
		})
		return r, false, err
	}
	return r, false, nil
}

// write puts a reservation into its Node. Whatever the answer, the reservation stands: an error says only that we do not
// know. The watch tells, and until then the same blocks are written again.
func (c *Controller) write(ctx context.Context, node *v1.Node, r reservation) error {
	// A shutdown does not cut a write off in the middle: Run returns when it has ended.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), writeTimeout)
	defer cancel()
	patched := c.patching(node)
	err := c.api.patchNode(ctx, node.Name, podCIDRsPatch(node, r, c.primary, c.holder))
	patched(err)
	logger := klog.FromContext(ctx)
	switch {
	case err == nil:
		logger.Info("Assigned podCIDRs", "node", klog.KObj(node), "podCIDRs", podCIDRs(r.blocks, c.primary), "clusterCIDR", r.pool)
		return nil
	case apierrors.IsNotFound(err), apierrors.IsConflict(err):
		logger.V(4).Info("The Node is gone or another one by now", "node", klog.KObj(node), "err", err)
		return nil // the watch will say which
	default:
		return fmt.Errorf("patch podCIDRs of Node %s: %w", node.Name, err)
	}
}

package nodeipam

import (
	"context"
	"errors"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/klog/v2"

	networkingv1 "github.com/multicidr/controller-manager/apis/networking/v1"
	"github.com/multicidr/controller-manager/controllers/ipam"
	"github.com/multicidr/controller-manager/controllers/lease"
)

// syncClusterCIDR enters one ClusterCIDR in the book and keeps its finalizer: there before the first block is given,
// gone when, and only when, the object is being deleted and no Node belongs to it.
func (c *Controller) syncClusterCIDR(ctx context.Context, name string) error {
	cc, err := c.clusterCIDRs.Get(name)
	switch {
	case apierrors.IsNotFound(err):
		c.with(func(b *book) {
			b.dropPool(name)
			delete(c.statusWritten, name)
		})
		return c.followFlags(ctx)
	case err != nil:
		return err
	}

	p := c.compile(cc)
	var inUse bool
	c.with(func(b *book) {
		b.setPool(p)
		inUse = b.inUse(name)
		b.touched[name] = true // a write of its status that came late may have undone a newer one
	})

	finalized := slices.Contains(cc.Finalizers, networkingv1.Finalizer)
	switch {
	case p.State == ipam.Terminating && finalized && !inUse:
		// From setPool on nothing is given from p any more, so what was not in use then stays so.
		err = c.patchFinalizers(ctx, cc, false)
	case p.State != ipam.Terminating && p.State != ipam.Invalid && !finalized:
		err = c.patchFinalizers(ctx, cc, true)
	}
	if err != nil && p.State == ipam.Pending && !errors.Is(err, lease.ErrClosed) {
		failed := *p
		failed.problem = "its finalizer cannot be added: " + err.Error()
		c.with(func(b *book) { b.setPool(&failed) })
	}
	if err != nil {
		return err
	}
	if _, ok := cc.Labels[networkingv1.LabelCreatedFromFlags]; ok {
		return c.followFlags(ctx)
	}
	return nil
}

func (c *Controller) patchFinalizers(ctx context.Context, cc *networkingv1.ClusterCIDR, present bool) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), writeTimeout)
	defer cancel()
	err := c.api.patchClusterCIDR(ctx, cc.Name, finalizersPatch(cc, present))
	switch {
	case err == nil:
		klog.FromContext(ctx).Info("Updated finalizer", "clusterCIDR", klog.KObj(cc), "present", present)
		return nil
	case apierrors.IsNotFound(err), apierrors.IsConflict(err):
		return nil // it has changed since it was cached, and that event comes
	default:
		return fmt.Errorf("patch finalizers of ClusterCIDR %s: %w", cc.Name, err)
	}
}

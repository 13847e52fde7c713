package nodeipam

import (
	"context"
	"net/netip"

	networkingapiv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/klog/v2"
)

// flagServiceRanges names --service-cluster-ip-range among the sources of service ranges.
const flagServiceRanges = "--service-cluster-ip-range"

// syncServiceCIDR enters the ranges of one ServiceCIDR in the book. One that is being deleted counts until it is gone: its
// addresses may still be in use.
func (c *Controller) syncServiceCIDR(ctx context.Context, name string) error {
	serviceCIDR, err := c.serviceCIDRs.Get(name)
	switch {
	case apierrors.IsNotFound(err):
		c.with(func(b *book) { b.setService(serviceSource(name), nil) })
		return nil
	case err != nil:
		return err
	}
	c.with(func(b *book) { b.setService(serviceSource(name), serviceRangesOf(ctx, serviceCIDR)) })
	return nil
}

func serviceSource(name string) string { return "ServiceCIDR " + name }

func serviceRangesOf(ctx context.Context, serviceCIDR *networkingapiv1.ServiceCIDR) []netip.Prefix {
	var ranges []netip.Prefix
	for _, s := range serviceCIDR.Spec.CIDRs {
		r, err := parseCIDR(s)
		if err != nil {
			klog.FromContext(ctx).Error(err, "Passing over a service range that cannot be read", "serviceCIDR", klog.KObj(serviceCIDR), "cidr", s)
			continue
		}
		ranges = append(ranges, r)
	}
	return ranges
}

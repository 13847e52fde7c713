package nodeipam

import (
	"context"
	"net/netip"

	networkingapiv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/klog/v2"

	"github.com/multicidr/controller-manager/controllers/nodeipam/allocator"
	"github.com/multicidr/controller-manager/controllers/nodeipam/clustercidr"
	"github.com/multicidr/controller-manager/controllers/nodeipam/contents"
)

// heardOfServiceCIDR is called by the informer for each event. From then on no block in a new service range is allocated. A ServiceCIDR
// that is being deleted counts until it is gone: its addresses may still be in use.
func (c *Controller) heardOfServiceCIDR(name string) {
	c.with(func(b *allocator.State) {
		if !c.filled.Load() {
			return // fill holds the lock while it reads the cache
		}
		switch serviceCIDR, err := c.serviceCIDRs.Get(name); {
		case apierrors.IsNotFound(err):
			b.SetService(contents.ServiceSource(name), nil)
		case err != nil:
			utilruntime.HandleError(err)
		default:
			b.SetService(contents.ServiceSource(name), serviceRangesOf(context.Background(), serviceCIDR))
		}
	})
}

func serviceRangesOf(ctx context.Context, serviceCIDR *networkingapiv1.ServiceCIDR) []netip.Prefix {
	ranges, unreadable := clustercidr.ServiceRangesOf(serviceCIDR)
	for _, err := range unreadable {
		klog.FromContext(ctx).Error(err, "Passing over a service range that cannot be read", "serviceCIDR", klog.KObj(serviceCIDR))
	}
	return ranges
}

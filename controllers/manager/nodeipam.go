package manager

import (
	"context"
	"errors"
	"strings"
	"sync"

	"k8s.io/klog/v2"
	"k8s.io/kubernetes/cmd/kube-controller-manager/app"
	"k8s.io/kubernetes/cmd/kube-controller-manager/names"
	kubectrlmgrconfig "k8s.io/kubernetes/pkg/controller/apis/config"

	"github.com/multicidr/controller-manager/controllers/nodeipam"
	"github.com/multicidr/controller-manager/controllers/nodeipam/fromflags"
	nodehealth "github.com/multicidr/controller-manager/controllers/nodeipam/health"
	nodemetrics "github.com/multicidr/controller-manager/controllers/nodeipam/metrics"
	nodeoptions "github.com/multicidr/controller-manager/controllers/nodeipam/options"
)

// NodeIPAM describes the controller that allocates podCIDRs to Nodes from ClusterCIDRs. It replaces upstream's node-ipam-controller,
// which writes the same fields of the same Nodes from --cluster-cidr and therefore cannot run beside it.
func NodeIPAM() Descriptor {
	options := nodeoptions.New()
	watches := &nodehealth.Watches{}
	var first sync.Once
	return Descriptor{
		Name:     nodeipam.Name,
		Alias:    nodeipam.Alias,
		Replaces: names.NodeIpamController,
		Flags:    options,
		Prepare: func(c app.ControllerContext) {
			err := errors.Join(watches.Follow("Nodes", c.InformerFactory.Core().V1().Nodes().Informer()),
				watches.Follow("ServiceCIDRs", c.InformerFactory.Networking().V1().ServiceCIDRs().Informer()))
			if err != nil {
				klog.ErrorS(err, "The health check cannot tell when watches fail", "controller", nodeipam.Name)
			}
		},
		New: func(ctx context.Context, c Context) (app.Controller, error) {
			first.Do(func() { context.AfterFunc(ctx, nodemetrics.Show(nodemetrics.Source{})) }) // What follows can fail for as long as the process runs.
			config, err := c.NewClientConfig(nodeipam.Name)
			if err != nil {
				return nil, err
			}
			return options.Build(config, flagsOf(c.ComponentConfig), nodeipam.Config{
				Nodes:        c.InformerFactory.Core().V1().Nodes(),
				NodesAsOf:    c.NodesAsOf,
				ServiceCIDRs: c.InformerFactory.Networking().V1().ServiceCIDRs(),
				Watches:      watches,
				Fence:        c.Fence,
			})
		},
	}
}

// flagsOf returns the flags of the in-tree allocator.
func flagsOf(c kubectrlmgrconfig.KubeControllerManagerConfiguration) fromflags.Flags {
	return fromflags.Flags{
		Allocate:         c.KubeCloudShared.AllocateNodeCIDRs,
		ClusterCIDR:      c.KubeCloudShared.ClusterCIDR,
		NodeMaskSize:     c.NodeIPAMController.NodeCIDRMaskSize,
		NodeMaskSizeIPv4: c.NodeIPAMController.NodeCIDRMaskSizeIPv4,
		NodeMaskSizeIPv6: c.NodeIPAMController.NodeCIDRMaskSizeIPv6,
		// As the user wrote it: upstream's options split it.
		ServiceRange: strings.Trim(c.NodeIPAMController.ServiceCIDR+","+c.NodeIPAMController.SecondaryServiceCIDR, ","),
	}
}

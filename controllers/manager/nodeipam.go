package manager

import (
	"context"
	"fmt"
	"net/netip"
	"strings"

	"github.com/spf13/pflag"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/flowcontrol"
	"k8s.io/kubernetes/cmd/kube-controller-manager/app"
	"k8s.io/kubernetes/cmd/kube-controller-manager/names"
	kubectrlmgrconfig "k8s.io/kubernetes/pkg/controller/apis/config"
	nodeipamconfig "k8s.io/kubernetes/pkg/controller/nodeipam/config"
	netutils "k8s.io/utils/net"

	"github.com/multicidr/controller-manager/apis/generated/clientset/versioned"
	networkingv1 "github.com/multicidr/controller-manager/apis/networking/v1"
	"github.com/multicidr/controller-manager/controllers/ipam"
	"github.com/multicidr/controller-manager/controllers/lease"
	"github.com/multicidr/controller-manager/controllers/nodeipam"
)

// NodeIPAMController is the name of the controller that serves Nodes from ClusterCIDRs.
const NodeIPAMController = nodeipam.Name

// NodeIPAM is the controller that gives every Node its Pod ranges from ClusterCIDRs. It does the work of upstream's
// node-ipam-controller, which writes the same fields of the same Nodes from --cluster-cidr and so cannot run beside it.
func NodeIPAM() Descriptor {
	flags := &nodeIPAMFlags{syncs: 30, burst: 100}
	return Descriptor{
		Name:              NodeIPAMController,
		Aliases:           []string{"multicidrnodeipam"},
		DisabledByDefault: true,
		ReadsNodes:        true,
		Replaces:          []string{names.NodeIpamController},
		Flags:             flags,
		New:               flags.newController,
	}
}

type nodeIPAMFlags struct {
	syncs int32
	qps   float32
	burst int
}

func (f *nodeIPAMFlags) AddFlags(fs *pflag.FlagSet) {
	fs.Int32Var(&f.syncs, "concurrent-node-cidr-syncs", f.syncs,
		"The number of Nodes that the "+NodeIPAMController+" serves concurrently. Larger number = faster start of large clusters, but more network load")
	fs.Float32Var(&f.qps, "node-ipam-kube-api-qps", f.qps,
		"QPS to use while talking with kubernetes apiserver for the "+NodeIPAMController+". 0 means no limit here: the priority and fairness rules of the server decide.")
	fs.IntVar(&f.burst, "node-ipam-kube-api-burst", f.burst,
		"Burst to use while talking with kubernetes apiserver for the "+NodeIPAMController+". Only used with --node-ipam-kube-api-qps.")
}

func (f *nodeIPAMFlags) Validate() []error {
	var errs []error
	if f.syncs < 1 {
		errs = append(errs, fmt.Errorf("--concurrent-node-cidr-syncs must be greater than 0, got %d", f.syncs))
	}
	if f.qps < 0 {
		errs = append(errs, fmt.Errorf("--node-ipam-kube-api-qps must be 0 (no limit) or greater, got %v", f.qps))
	}
	if f.burst < 1 {
		errs = append(errs, fmt.Errorf("--node-ipam-kube-api-burst must be greater than 0, got %d", f.burst))
	}
	return errs
}

// limit applies the flags to a client configuration. All clients made from it share one limit: a user gives one number.
func (f *nodeIPAMFlags) limit(config *rest.Config) *rest.Config {
	config = rest.CopyConfig(config)
	config.QPS = -1 // To client-go 0 is its own default of 5.
	if f.qps > 0 {
		config.RateLimiter = flowcontrol.NewTokenBucketRateLimiter(f.qps, f.burst)
	}
	return config
}

func (f *nodeIPAMFlags) newController(_ context.Context, c Context) (app.Controller, error) {
	config, err := c.NewClientConfig(NodeIPAMController)
	if err != nil {
		return nil, err
	}
	config = f.limit(config)
	config.Wrap(lease.Transport)
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("create the client for Nodes: %w", err)
	}
	// The API server stores custom resources as JSON and speaks nothing else for them.
	config.ContentType, config.AcceptContentTypes = "", ""
	clusterCIDRClient, err := versioned.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("create the client for ClusterCIDRs: %w", err)
	}
	shared, serviceRange := c.ComponentConfig.KubeCloudShared, serviceRangeOf(c.ComponentConfig.NodeIPAMController)
	var fromFlags *networkingv1.ClusterCIDRSpec
	if shared.AllocateNodeCIDRs {
		if fromFlags, err = flagsOf(c.ComponentConfig).Spec(); err != nil {
			return nil, err
		}
	}
	var serviceRanges []netip.Prefix
	if serviceRange != "" {
		if serviceRanges, err = nodeipam.ParseCIDRs("--service-cluster-ip-range", serviceRange); err != nil {
			return nil, err
		}
	}
	return nodeipam.New(nodeipam.Config{
		Client:            client,
		ClusterCIDRClient: clusterCIDRClient,
		Nodes:             c.InformerFactory.Core().V1().Nodes(),
		NodesAsOf:         c.NodesAsOf,
		ServiceCIDRs:      c.InformerFactory.Networking().V1().ServiceCIDRs(),
		ServiceRanges:     serviceRanges,
		FromFlags:         fromFlags,
		PrimaryFamily:     primaryFamily(shared.ClusterCIDR, serviceRange),
		Workers:           int(f.syncs),
		Fence:             c.Fence,
	})
}

// flagsOf are the flags of the in-tree allocator.
func flagsOf(c kubectrlmgrconfig.KubeControllerManagerConfiguration) nodeipam.Flags {
	return nodeipam.Flags{
		ClusterCIDR:      c.KubeCloudShared.ClusterCIDR,
		NodeMaskSize:     c.NodeIPAMController.NodeCIDRMaskSize,
		NodeMaskSizeIPv4: c.NodeIPAMController.NodeCIDRMaskSizeIPv4,
		NodeMaskSizeIPv6: c.NodeIPAMController.NodeCIDRMaskSizeIPv6,
	}
}

// serviceRangeOf is --service-cluster-ip-range as it was written; upstream's options take it apart.
func serviceRangeOf(c nodeipamconfig.NodeIPAMControllerConfiguration) string {
	return strings.Trim(c.ServiceCIDR+","+c.SecondaryServiceCIDR, ",")
}

// primaryFamily is the family of the first CIDR in --cluster-cidr, else of --service-cluster-ip-range, else IPv4. It comes
// first in podCIDRs and so decides which of a Pod's addresses is its podIP.
func primaryFamily(clusterCIDR, serviceCIDR string) ipam.Family {
	for _, list := range []string{clusterCIDR, serviceCIDR} {
		first, _, _ := strings.Cut(list, ",")
		switch {
		case netutils.IsIPv4CIDRString(strings.TrimSpace(first)):
			return ipam.IPv4
		case netutils.IsIPv6CIDRString(strings.TrimSpace(first)):
			return ipam.IPv6
		}
	}
	return ipam.IPv4
}

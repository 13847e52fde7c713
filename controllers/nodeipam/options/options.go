// Package options are the flags of the multi-CIDR node IPAM controller, the same in every program that contains it, and the way from them to a
// controller.
package options

import (
	"context"
	"fmt"
	"math"
	"time"

	"github.com/spf13/pflag"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/flowcontrol"

	"github.com/multicidr/controller-manager/apis/generated/clientset/versioned"
	"github.com/multicidr/controller-manager/controllers/lease"
	"github.com/multicidr/controller-manager/controllers/nodeipam"
	"github.com/multicidr/controller-manager/controllers/nodeipam/fromflags"
)

// Options are the controller's own flags.
type Options struct {
	syncs int32
	qps   float32
	burst int
	// takeoverDelay is nodeipam.Config.TakeoverDelay.
	takeoverDelay time.Duration
}

// New returns the defaults.
func New() *Options { return &Options{syncs: 30, burst: 100, takeoverDelay: time.Minute} }

// AddFlags adds the flags.
func (o *Options) AddFlags(fs *pflag.FlagSet) {
	fs.Int32Var(&o.syncs, "concurrent-node-cidr-syncs", o.syncs,
		"The number of Nodes that the "+nodeipam.Name+" serves concurrently. Larger number = faster start of large clusters, but more network load")
	fs.Float32Var(&o.qps, "node-ipam-kube-api-qps", o.qps,
		"QPS to use while talking with kubernetes apiserver for the "+nodeipam.Name+". 0 means no limit here: the priority and fairness rules of the server decide.")
	fs.IntVar(&o.burst, "node-ipam-kube-api-burst", o.burst,
		"Burst to use while talking with kubernetes apiserver for the "+nodeipam.Name+". Only used with --node-ipam-kube-api-qps.")
	fs.DurationVar(&o.takeoverDelay, "node-ipam-takeover-delay", o.takeoverDelay,
		"How long the "+nodeipam.Name+" waits after it became the leader, before it allocates, if another allocator may have led before. "+
			"Until then the API server may carry out the last request of that allocator, so this must not be less than the --request-timeout of kube-apiserver. 0 means no wait.")
}

// AddRangeFlags adds the flags of the in-tree allocator that say more about --cluster-cidr, for programs that do not have them.
func AddRangeFlags(fs *pflag.FlagSet, f *fromflags.Flags) {
	fs.Int32Var(&f.NodeMaskSize, "node-cidr-mask-size", f.NodeMaskSize, "Mask size of a Node's block of --cluster-cidr, if that has one family. 0: 24 for IPv4, 64 for IPv6.")
	fs.Int32Var(&f.NodeMaskSizeIPv4, "node-cidr-mask-size-ipv4", f.NodeMaskSizeIPv4, "Mask size of a Node's IPv4 block of --cluster-cidr. 0: 24.")
	fs.Int32Var(&f.NodeMaskSizeIPv6, "node-cidr-mask-size-ipv6", f.NodeMaskSizeIPv6, "Mask size of a Node's IPv6 block of --cluster-cidr. 0: 64.")
	fs.StringVar(&f.ServiceRange, "service-cluster-ip-range", f.ServiceRange,
		"CIDR, or one CIDR of each family, separated by a comma. The controller allocates nothing from it, nor from the CIDRs of ServiceCIDR objects. Needed if the API server has no ServiceCIDRs.")
}

// Validate returns what is wrong with the values.
func (o *Options) Validate() []error {
	var errs []error
	if o.syncs < 1 {
		errs = append(errs, fmt.Errorf("--concurrent-node-cidr-syncs must be greater than 0, got %d", o.syncs))
	}
	if o.qps < 0 || math.IsNaN(float64(o.qps)) {
		errs = append(errs, fmt.Errorf("--node-ipam-kube-api-qps must be 0 (no limit) or greater, got %v", o.qps))
	}
	if o.burst < 1 {
		errs = append(errs, fmt.Errorf("--node-ipam-kube-api-burst must be greater than 0, got %d", o.burst))
	}
	if o.takeoverDelay < 0 {
		errs = append(errs, fmt.Errorf("--node-ipam-takeover-delay must be 0 (no wait) or greater, got %v", o.takeoverDelay))
	}
	return errs
}

// Build returns the controller. cfg has the informers and the fence; Build adds clients and the values of flags.
func (o *Options) Build(config *rest.Config, flags fromflags.Flags, cfg nodeipam.Config) (_ *nodeipam.Controller, err error) {
	config = rest.CopyConfig(config)
	config.QPS = -1 // In client-go, 0 means the default of 5. The limit is the controller's own, which waits for it before it decides.
	if o.qps > 0 {
		cfg.Limiter = flowcontrol.NewTokenBucketRateLimiter(o.qps, o.burst)
	}
	config.Wrap(lease.Transport)
	if cfg.Client, err = kubernetes.NewForConfig(config); err != nil {
		return nil, fmt.Errorf("create the client for Nodes: %w", err)
	}
	// The API server only speaks JSON for custom resources.
	config.ContentType, config.AcceptContentTypes = "", ""
	if cfg.ClusterCIDRClient, err = versioned.NewForConfig(config); err != nil {
		return nil, fmt.Errorf("create the client for ClusterCIDRs: %w", err)
	}
	cfg.FromFlags = flags
	cfg.Workers = int(o.syncs)
	cfg.TakeoverDelay = o.takeoverDelay
	return nodeipam.New(cfg)
}

// Run runs the controller, with informers of its own, in a program that is not kube-controller-manager, until ctx is done. built gets the
// controller before it runs. An error means that the flags, which were not validated, are wrong.
func (o *Options) Run(ctx context.Context, config *rest.Config, flags fromflags.Flags, fence *lease.Fence, built func(*nodeipam.Controller)) error {
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("create the client of informers: %w", err)
	}
	factory := informers.NewSharedInformerFactoryWithOptions(client, 0, informers.WithTransform(nodeipam.WithoutManagedFields))
	controller, err := o.Build(config, flags, nodeipam.Config{
		Nodes: factory.Core().V1().Nodes(), ServiceCIDRs: factory.Networking().V1().ServiceCIDRs(), StartInformers: factory.Start, Fence: fence,
	})
	if err != nil {
		return err
	}
	built(controller)
	controller.Run(ctx)
	return nil
}

package clusteripam

import (
	"fmt"
	"math"
	"slices"

	"github.com/spf13/pflag"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/flowcontrol"

	"github.com/multicidr/controller-manager/controllers/clusteripam/claims"
	"github.com/multicidr/controller-manager/controllers/clusteripam/gate"
	"github.com/multicidr/controller-manager/controllers/clusteripam/incluster"
	"github.com/multicidr/controller-manager/controllers/clusteripam/infoblox"
	"github.com/multicidr/controller-manager/controllers/clusteripam/runner"
	"github.com/multicidr/controller-manager/controllers/lease"
	"github.com/multicidr/controller-manager/controllers/writes"
)

// Names returns the names of the controllers, in the order in which they work on a claim.
func Names() []string {
	return []string{claims.Name, gate.Name, incluster.Name, infoblox.Name}
}

// Options are the flags of the controllers, the same in every program that contains them.
type Options struct {
	syncs int32
	qps   float32
	burst int
	// instance is the InfobloxInstance of claims that name none.
	instance string
	// secretNamespace has the credentials of InfobloxInstances.
	secretNamespace string
	// k0rdentNamespace is where k0rdent's manager has its Lease.
	k0rdentNamespace string
	// force: allocate even if another provider has installed the pools.
	force bool
	// namespace is the only one whose objects are worked on, and watchFilter the value of the label of the IPAddressClaims that are; empty means all.
	namespace, watchFilter string
}

// NewOptions returns the defaults.
func NewOptions() *Options {
	return &Options{syncs: 10, burst: 100, secretNamespace: "kube-system", k0rdentNamespace: "kcm-system"}
}

// AddFlags adds the flags.
func (o *Options) AddFlags(fs *pflag.FlagSet) {
	fs.Int32Var(&o.syncs, "cluster-ipam-concurrent-syncs", o.syncs,
		"The number of objects that each controller of Cluster IPAM works on concurrently. Larger number = faster start of many machines, but more network load")
	fs.Float32Var(&o.qps, "cluster-ipam-kube-api-qps", o.qps,
		"QPS to use while talking with kubernetes apiserver for each controller of Cluster IPAM. 0 means no limit here: the priority and fairness rules of the server decide.")
	fs.IntVar(&o.burst, "cluster-ipam-kube-api-burst", o.burst,
		"Burst to use while talking with kubernetes apiserver for each controller of Cluster IPAM. Only used with --cluster-ipam-kube-api-qps.")
	fs.StringVar(&o.instance, "cluster-ipam-infoblox-instance", o.instance,
		"Name of the InfobloxInstance of ClusterIPAMClaims without the annotation networking.x-k8s.io/infoblox-instance. Empty: the only one that exists.")
	fs.StringVar(&o.secretNamespace, "cluster-ipam-infoblox-namespace", o.secretNamespace, "Namespace of the Secrets with the credentials of InfobloxInstances.")
	fs.StringVar(&o.k0rdentNamespace, "cluster-ipam-k0rdent-namespace", o.k0rdentNamespace,
		"Namespace in which k0rdent's own manager has its Lease. While that is renewed, the "+claims.Name+" and the "+gate.Name+" stand by. Empty: they never do.")
	fs.StringVar(&o.namespace, "cluster-ipam-namespace", o.namespace,
		"The only namespace whose claims, pools and ClusterDeployments are worked on, without the Global pools. Empty: all namespaces.")
	fs.StringVar(&o.watchFilter, "cluster-ipam-watch-filter", o.watchFilter,
		"Value of the label cluster.x-k8s.io/watch-filter of the IPAddressClaims that are worked on. Empty: all of them.")
	fs.BoolVar(&o.force, "cluster-ipam-force-allocation", o.force,
		"Allocate addresses although another provider has installed the CustomResourceDefinitions of the pools. Only right if that provider does not run: two allocators give one address twice.")
}

// AddProviderFlags adds second names for two of them, which other providers of Cluster API have, too.
func (o *Options) AddProviderFlags(fs *pflag.FlagSet) {
	fs.StringVar(&o.namespace, "namespace", o.namespace, "The same as --cluster-ipam-namespace.")
	fs.StringVar(&o.watchFilter, "watch-filter", o.watchFilter, "The same as --cluster-ipam-watch-filter.")
}

// LeaseName returns the name of the Lease of a program: processes that work on different objects need different ones.
func (o *Options) LeaseName(program string) string {
	for _, part := range []string{o.namespace, o.watchFilter} {
		if part != "" {
			program += "-" + part
		}
	}
	return program
}

// Validate returns what is wrong with the values.
func (o *Options) Validate() []error {
	var errs []error
	if o.syncs < 1 {
		errs = append(errs, fmt.Errorf("--cluster-ipam-concurrent-syncs must be greater than 0, got %d", o.syncs))
	}
	if o.qps < 0 || math.IsNaN(float64(o.qps)) {
		errs = append(errs, fmt.Errorf("--cluster-ipam-kube-api-qps must be 0 (no limit) or greater, got %v", o.qps))
	}
	if o.burst < 1 {
		errs = append(errs, fmt.Errorf("--cluster-ipam-kube-api-burst must be greater than 0, got %d", o.burst))
	}
	return errs
}

// Build returns the controller of this name. config has the credentials of the controller.
func (o *Options) Build(name string, config *rest.Config, fence writes.Fence) (*runner.Controller, error) {
	config = o.limit(config)
	config.Wrap(lease.Transport)
	base, workers := runner.Config{Client: config, Fence: fence}, int(o.syncs)
	switch name {
	case claims.Name:
		base.Other = o.k0rdent()
		return claims.New(base, workers, o.namespace, o.instance)
	case gate.Name:
		base.Other = o.k0rdent()
		return gate.New(base, workers, o.namespace)
	case incluster.Name:
		base.Yield = o.yield
		return incluster.New(incluster.Config{Config: base, Workers: workers, Namespace: o.namespace, WatchFilter: o.watchFilter})
	case infoblox.Name:
		base.Yield = o.yield
		return infoblox.New(infoblox.Config{Config: base, Workers: workers, SecretNamespace: o.secretNamespace, Namespace: o.namespace, WatchFilter: o.watchFilter})
	default:
		return nil, fmt.Errorf("there is no controller %q, only %q", name, slices.Sorted(slices.Values(Names())))
	}
}

// limit applies the flags to a client configuration. All clients made from it share one limit.
func (o *Options) limit(config *rest.Config) *rest.Config {
	config = rest.CopyConfig(config)
	config.QPS = -1 // In client-go, 0 means the default of 5.
	if o.qps > 0 {
		config.RateLimiter = writes.Limiter{RateLimiter: flowcontrol.NewTokenBucketRateLimiter(o.qps, o.burst), Flag: "cluster-ipam-kube-api-qps"}
	}
	return config
}

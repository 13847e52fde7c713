package standalone

import (
	"context"
	"slices"
	"sync"
	"time"

	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/informers"
	cliflag "k8s.io/component-base/cli/flag"
	"k8s.io/klog/v2"

	"github.com/multicidr/controller-manager/controllers/lease"
	"github.com/multicidr/controller-manager/controllers/nodeipam"
	"github.com/multicidr/controller-manager/controllers/nodeipam/fresh"
	"github.com/multicidr/controller-manager/controllers/nodeipam/fromflags"
	nodehealth "github.com/multicidr/controller-manager/controllers/nodeipam/health"
	nodeoptions "github.com/multicidr/controller-manager/controllers/nodeipam/options"
	"github.com/multicidr/controller-manager/controllers/nodeipam/stored"
)

// lookInterval is the interval at which the start checks again for what is missing.
const lookInterval = time.Second

// serviceCIDRInterval is the interval at which an API server without ServiceCIDRs is asked again.
const serviceCIDRInterval = 10 * time.Second

// nodeIPAM is the program node-ipam-controller.
type nodeIPAM struct {
	flags   fromflags.Flags
	options *nodeoptions.Options
}

func newNodeIPAM() *nodeIPAM {
	return &nodeIPAM{flags: fromflags.Flags{Allocate: true}, options: nodeoptions.New()} // here --cluster-cidr alone is enough
}

func (*nodeIPAM) name() string { return "node-ipam-controller" }

func (*nodeIPAM) describe() string {
	return `Allocates Pod ranges, node.spec.podCIDRs, to Nodes from ClusterCIDR objects, beside a kube-controller-manager
that does not (--allocate-node-cidrs=false).

The text of a flag ends with its environment variable, in [$]. If both are set, the flag wins. An empty variable counts as
not set.`
}

func (*nodeIPAM) controllers() []string { return []string{nodeipam.Name} }

func (*nodeIPAM) idle() string { return "not serving Nodes yet" }

// variables are those of kubernetes-sigs/node-ipam-controller.
func (*nodeIPAM) variables() []variable {
	return []variable{
		{name: "IPAM_API_SERVER_URL", flag: "apiserver"},
		{name: "IPAM_KUBECONFIG", flag: "kubeconfig"},
		{name: "IPAM_WEBSERVER_BIND_ADDR", flag: "webserver-bind-address"},
		{name: "IPAM_HEALTH_PROBE_ADDR", flag: "webserver-bind-address", older: true},
		{name: "IPAM_ENABLE_LEADER_ELECTION", flag: "enable-leader-election"},
		{name: "IPAM_LEASE_DURATION", flag: "leader-elect-lease-duration"},
		{name: "IPAM_RENEW_DEADLINE", flag: "leader-elect-renew-deadline"},
		{name: "IPAM_LEADER_ELECT_RETRY_PERIOD", flag: "leader-elect-retry-period"},
		{name: "IPAM_RESOURCE_LOCK", flag: "leader-elect-retry-period", older: true},
		{name: "IPAM_RESOURCE_LOCK_NAME", flag: "leader-elect-resource-lock"},
		{name: "IPAM_RESOURCE_NAME", flag: "leader-elect-resource-name"},
		{name: "IPAM_LEADER_ELECT_ID", flag: "leader-elect-id"},
		{name: "IPAM_LEADER_ELECT_NAMESPACE", flag: "leader-elect-namespace"},
	}
}

func (n *nodeIPAM) addFlags(sections *cliflag.NamedFlagSets) {
	fs := sections.FlagSet("node ipam")
	fs.StringVar(&n.flags.ClusterCIDR, "cluster-cidr", n.flags.ClusterCIDR,
		"CIDR, or one CIDR of each family, separated by a comma. The controller creates a ClusterCIDR from it. The family of the first CIDR comes first in podCIDRs.")
	fs.Int32Var(&n.flags.NodeMaskSize, "node-cidr-mask-size", n.flags.NodeMaskSize, "Mask size of a Node's block of --cluster-cidr, if that has one family. 0: 24 for IPv4, 64 for IPv6.")
	fs.Int32Var(&n.flags.NodeMaskSizeIPv4, "node-cidr-mask-size-ipv4", n.flags.NodeMaskSizeIPv4, "Mask size of a Node's IPv4 block of --cluster-cidr. 0: 24.")
	fs.Int32Var(&n.flags.NodeMaskSizeIPv6, "node-cidr-mask-size-ipv6", n.flags.NodeMaskSizeIPv6, "Mask size of a Node's IPv6 block of --cluster-cidr. 0: 64.")
	fs.StringVar(&n.flags.ServiceRange, "service-cluster-ip-range", n.flags.ServiceRange,
		"CIDR, or one CIDR of each family, separated by a comma. The controller allocates nothing from it, nor from the CIDRs of ServiceCIDR objects. Needed if the API server has no ServiceCIDRs.")
	n.options.AddFlags(fs)
}

func (n *nodeIPAM) validate() []error { return append(n.flags.Validate(), n.options.Validate()...) }

// run builds a new controller when the last one has ended by itself, and when the API server begins to serve ServiceCIDRs, for example after
// an upgrade.
func (n *nodeIPAM) run(ctx context.Context, p *process, fence *lease.Fence) error {
	controlled := p.health.controllers[0]
	asOf, serviceCIDRs, err := look(ctx, p, controlled)
	if err != nil {
		return nil // ctx is done
	}
	factory := informers.NewSharedInformerFactoryWithOptions(p.client, 0, informers.WithTransform(stored.StripManagedFields))
	watches := &nodehealth.Watches{}
	cfg := nodeipam.Config{Nodes: factory.Core().V1().Nodes(), NodesAsOf: asOf, Watches: watches, Fence: fence, Term: fence, LeaseOfItsOwn: true}
	watches.Nodes(factory)
	running, stop := context.WithCancel(ctx)
	defer stop() // the informers are not waited for: see nodeipam.Controller.Run
	run := func(ctx context.Context) error {
		return p.runAgain(ctx, controlled, func(again bool) (controller, error) {
			if again {
				cfg.NodesAsOf = "" // It is older than the writes of the last controller.
			}
			built, err := n.options.Build(p.config, n.flags, cfg)
			if err != nil {
				return nil, err
			}
			factory.Start(running.Done())
			return built, nil
		})
	}
	if !serviceCIDRs {
		klog.FromContext(ctx).Info("The API server has no ServiceCIDRs: until it has, the controller knows only the service ranges in --service-cluster-ip-range")
		if err := untilServed(running, p.client.Discovery(), run); err != nil || running.Err() != nil {
			return err
		}
		klog.FromContext(ctx).Info("The API server serves ServiceCIDRs now: the controller restarts and reads them")
		cfg.NodesAsOf = ""
	}
	watches.ServiceCIDRs(factory)
	cfg.ServiceCIDRs = factory.Networking().V1().ServiceCIDRs()
	return run(running)
}

// untilServed calls run with a context that ends when the API server serves ServiceCIDRs, or with ctx. It returns what run returns.
func untilServed(ctx context.Context, api discovery.DiscoveryInterface, run func(context.Context) error) error {
	ctx, stop := context.WithCancel(ctx)
	var looking sync.WaitGroup
	defer looking.Wait()
	defer stop()
	looking.Go(func() {
		err := wait.PollUntilContextCancel(ctx, serviceCIDRInterval, false, func(context.Context) (bool, error) {
			served, err := hasServiceCIDRs(api)
			return served && err == nil, nil
		})
		if err == nil {
			stop()
		}
	})
	return run(ctx)
}

// look reads what must be read after the lease was acquired and before the informers start: the resource version of Nodes (see
// fresh.ReadNodes), and whether the API server has ServiceCIDRs. It retries until it succeeds. An error means that ctx is done.
func look(ctx context.Context, p *process, c *checked) (nodesAsOf string, serviceCIDRs bool, err error) {
	err = wait.PollUntilContextCancel(ctx, lookInterval, true, func(ctx context.Context) (bool, error) {
		var err error
		if nodesAsOf, err = fresh.ReadNodes(ctx, p.client); err != nil {
			c.waitForAndLog(ctx, "Nodes cannot be read: if that is forbidden, "+nodehealth.ApplyRBAC, err)
			return false, nil
		}
		if serviceCIDRs, err = hasServiceCIDRs(p.client.Discovery()); err != nil {
			c.waitForAndLog(ctx, "the API server does not say whether it has ServiceCIDRs", err)
			return false, nil
		}
		return true, nil
	})
	return nodesAsOf, serviceCIDRs, err
}

// waitForAndLog notes what the start waits for, and logs it when it is new.
func (c *checked) waitForAndLog(ctx context.Context, what string, err error) {
	if ctx.Err() == nil && c.waitFor(what, err) {
		klog.FromContext(ctx).Error(err, "No Node gets podCIDRs: "+what)
	}
}

// hasServiceCIDRs reports whether the API server has ServiceCIDRs, which Kubernetes has had since 1.33. Without them their informer would
// never sync.
func hasServiceCIDRs(api discovery.DiscoveryInterface) (bool, error) {
	list, err := api.ServerResourcesForGroupVersion(networkingv1.SchemeGroupVersion.String())
	if err != nil && !apierrors.IsNotFound(err) {
		return false, err
	}
	if err == nil && slices.ContainsFunc(list.APIResources, func(r metav1.APIResource) bool { return r.Name == "servicecidrs" }) {
		return true, nil
	}
	return false, nil
}

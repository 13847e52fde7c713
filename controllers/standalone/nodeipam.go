package standalone

import (
	"cmp"
	"context"

	"github.com/spf13/pflag"

	"k8s.io/client-go/informers"
	cliflag "k8s.io/component-base/cli/flag"

	"github.com/multicidr/controller-manager/controllers/configfile"
	"github.com/multicidr/controller-manager/controllers/configfile/component"
	"github.com/multicidr/controller-manager/controllers/lease"
	"github.com/multicidr/controller-manager/controllers/nodeipam"
	"github.com/multicidr/controller-manager/controllers/nodeipam/beside"
	"github.com/multicidr/controller-manager/controllers/nodeipam/fromflags"
	nodehealth "github.com/multicidr/controller-manager/controllers/nodeipam/health"
	nodeoptions "github.com/multicidr/controller-manager/controllers/nodeipam/options"
	"github.com/multicidr/controller-manager/controllers/nodeipam/stored"
)

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
not set. Flags and variables win over the file of --config.`
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
	fs.BoolVar(&n.flags.Allocate, "allocate-node-cidrs", n.flags.Allocate,
		"Create a ClusterCIDR from --cluster-cidr. Without it --cluster-cidr only says which family comes first in podCIDRs. ClusterCIDRs that exist are served in any case.")
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

// renamed are flags of kube-controller-manager that kubernetes-sigs/node-ipam-controller calls otherwise.
var renamed = map[string]string{
	"leader-elect":                    "enable-leader-election",
	"leader-elect-resource-namespace": "leader-elect-namespace",
	"master":                          "apiserver",
}

// setFromFile takes a file of kube-controller-manager, too, whose flags this program has in part.
func (*nodeIPAM) setFromFile(file *configfile.File, fs *pflag.FlagSet) (unknown []string, err error) {
	if err := file.Read(); err != nil {
		return nil, err
	}
	if !file.Component() {
		values, err := file.Flat(fs)
		if err != nil {
			return nil, err
		}
		return file.Set(fs, values)
	}
	values, err := component.Values(file)
	if err != nil {
		return nil, err
	}
	for i := range values {
		values[i].Flag = cmp.Or(renamed[values[i].Flag], values[i].Flag)
	}
	return file.Set(fs, values)
}

// run starts the informers itself, so what must be read before they start is.
func (n *nodeIPAM) run(ctx context.Context, p *process, fence *lease.Fence) error {
	controlled := p.health.controllers[0]
	factory := informers.NewSharedInformerFactoryWithOptions(p.client, 0, informers.WithTransform(stored.StripManagedFields))
	watches := &nodehealth.Watches{}
	watches.Nodes(factory)
	informing, stop := context.WithCancel(ctx)
	defer stop() // They are not waited for: see nodeipam.Controller.Run.
	return beside.Program{
		Config: p.config, Client: p.client, Fence: fence,
		Nodes: factory.Core().V1().Nodes(), Informers: factory, StartInformers: func() { factory.Start(informing.Done()) }, Watches: watches,
		Waits: controlled.waitFor,
		Again: func(ctx context.Context, build func(again bool) (*nodeipam.Controller, error)) error {
			return p.runAgain(ctx, controlled, func(again bool) (controller, error) {
				built, err := build(again)
				if err != nil {
					return nil, err // A nil pointer would not be nil as an interface.
				}
				return built, nil
			})
		},
	}.Run(ctx, n.flags, n.options)
}

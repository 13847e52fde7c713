package standalone

import (
	"context"

	"k8s.io/client-go/rest"
	cliflag "k8s.io/component-base/cli/flag"

	"github.com/multicidr/controller-manager/controllers/lease"
	"github.com/multicidr/controller-manager/controllers/nodeipam"
	"github.com/multicidr/controller-manager/controllers/nodeipam/fromflags"
	nodeoptions "github.com/multicidr/controller-manager/controllers/nodeipam/options"
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

func (n *nodeIPAM) lease() string { return n.name() }

func (*nodeIPAM) describe() string {
	return `Allocates Pod ranges, node.spec.podCIDRs, to Nodes from ClusterCIDR objects, beside a kube-controller-manager
that does not (--allocate-node-cidrs=false).

The text of a flag ends with its environment variable, in [$]. If both are set, the flag wins. An empty variable counts as
not set.`
}

func (*nodeIPAM) controllers() []string { return []string{nodeipam.Name} }

// variables are those of kubernetes-sigs/node-ipam-controller.
func (*nodeIPAM) variables() []variable {
	return []variable{
		{name: "IPAM_API_SERVER_URL", flag: "apiserver"},
		{name: "IPAM_KUBECONFIG", flag: "kubeconfig"},
		{name: "IPAM_WEBSERVER_BIND_ADDR", flag: "webserver-bind-address"},
		{name: "IPAM_HEALTH_PROBE_ADDR", flag: "webserver-bind-address"},
		{name: "IPAM_ENABLE_LEADER_ELECTION", flag: "enable-leader-election"},
		{name: "IPAM_LEASE_DURATION", flag: "leader-elect-lease-duration"},
		{name: "IPAM_RENEW_DEADLINE", flag: "leader-elect-renew-deadline"},
		{name: "IPAM_LEADER_ELECT_RETRY_PERIOD", flag: "leader-elect-retry-period"},
		{name: "IPAM_RESOURCE_LOCK_NAME", flag: "leader-elect-resource-lock"},
		{name: "IPAM_RESOURCE_NAME", flag: "leader-elect-resource-name"},
		{name: "IPAM_LEADER_ELECT_ID", flag: "leader-elect-id"},
		{name: "IPAM_LEADER_ELECT_NAMESPACE", flag: "leader-elect-namespace"},
	}
}

func (n *nodeIPAM) addFlags(sections *cliflag.NamedFlagSets) {
	fs := sections.FlagSet("node ipam")
	fs.BoolVar(&n.flags.Allocate, "allocate-node-cidrs", n.flags.Allocate,
		"Create a ClusterCIDR from --cluster-cidr. Without it --cluster-cidr only says which family comes first in podCIDRs. ClusterCIDRs that exist are used in any case.")
	fs.StringVar(&n.flags.ClusterCIDR, "cluster-cidr", n.flags.ClusterCIDR,
		"CIDR, or one CIDR of each family, separated by a comma. The controller creates a ClusterCIDR from it. The family of the first CIDR comes first in podCIDRs.")
	nodeoptions.AddRangeFlags(fs, &n.flags)
	n.options.AddFlags(fs)
}

func (n *nodeIPAM) validate() []error { return append(n.flags.Validate(), n.options.Validate()...) }

func (n *nodeIPAM) run(ctx context.Context, config *rest.Config, fence *lease.Fence, built func(string, any)) error {
	return n.options.Run(ctx, config, n.flags, fence, func(c *nodeipam.Controller) { built(nodeipam.Name, c) })
}

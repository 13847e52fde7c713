package clusteripam

import (
	"fmt"
	"slices"
	"strings"

	"github.com/multicidr/controller-manager/controllers/clusteripam/runner"
)

// An object that two programs write flips between them, and two allocators give one address twice. So a controller leaves its work to the
// original program where that is installed.

// k0rdentLease is the leader Lease of k0rdent's manager, which does the work of two controllers.
const k0rdentLease = "31c555b4.k0rdent.mirantis.com"

func (o *Options) k0rdent() *runner.Other {
	if o.k0rdentNamespace == "" {
		return nil
	}
	return &runner.Other{Program: "k0rdent's manager", Namespace: o.k0rdentNamespace, Name: k0rdentLease}
}

const (
	// labelProvider on a CustomResourceDefinition names the provider of Cluster API that has installed it. A Lease would not tell: leader
	// election of these providers is off by default, and two of them use one name.
	labelProvider = "cluster.x-k8s.io/provider"
	// core is the provider of claims, addresses and Clusters: Cluster API itself, which allocates nothing.
	core = "cluster-api"
	// ourProviders is how the label begins where clusterctl has installed these controllers: docs/cluster-ipam/clusterctl.md names the providers.
	ourProviders = "ipam-multicidr"
)

// yield implements runner.Yield: an allocator leaves its pools to another provider, unless it is forced not to.
func (o *Options) yield(labels map[*runner.Kind]map[string]string) (why string) {
	var owned []string
	for kind, of := range labels {
		if provider := of[labelProvider]; provider != "" && provider != core && !strings.HasPrefix(provider, ourProviders) {
			owned = append(owned, fmt.Sprintf("%s (%s)", kind, provider))
		}
	}
	if o.force || len(owned) == 0 {
		return ""
	}
	slices.Sort(owned)
	return fmt.Sprintf("another provider to go: the label %s says that it has installed the CustomResourceDefinitions of %s, so it allocates. "+
		"If that provider does not run, set --cluster-ipam-force-allocation; else turn this controller off", labelProvider, strings.Join(owned, ", "))
}

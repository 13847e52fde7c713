package clusteripam

import (
	"fmt"
	"slices"
	"strings"

	"github.com/multicidr/controller-manager/controllers/clusteripam/shell"
)

// An object that two programs write flips between them, and two allocators give one address twice. So a controller leaves its work to the
// original program where that is installed.

// k0rdentLease is the leader Lease of k0rdent's manager, which does the work of two controllers.
const k0rdentLease = "31c555b4.k0rdent.mirantis.com"

func (o *Options) k0rdent() *shell.Other {
	if o.k0rdentNamespace == "" {
		return nil
	}
	return &shell.Other{Program: "k0rdent's manager", Namespace: o.k0rdentNamespace, Name: k0rdentLease}
}

// labelProvider on a CustomResourceDefinition names the provider of Cluster API that has installed it. A Lease would not tell: leader
// election of these providers is off by default, and two of them use one name.
const labelProvider = "cluster.x-k8s.io/provider"

// pools are the kinds whose CustomResourceDefinitions a provider brings. Those of claims and addresses belong to Cluster API itself.
var pools = []*shell.Kind{shell.InClusterIPPools, shell.GlobalInClusterIPPools, shell.InfobloxIPPools, shell.InfobloxInstances}

// yield is why an allocator leaves its pools to another provider; nil if it is forced not to.
func (o *Options) yield() shell.Yield {
	if o.force {
		return nil
	}
	return yieldToProvider
}

func yieldToProvider(labels map[*shell.Kind]map[string]string) (why string) {
	var owned []string
	for kind, of := range labels {
		if provider := of[labelProvider]; provider != "" && slices.Contains(pools, kind) {
			owned = append(owned, fmt.Sprintf("%s (%s)", kind, provider))
		}
	}
	if len(owned) == 0 {
		return ""
	}
	slices.Sort(owned)
	return fmt.Sprintf("another provider to go: the label %s says that it has installed the CustomResourceDefinitions of %s, so it allocates. "+
		"If that provider does not run, set --cluster-ipam-force-allocation; else turn this controller off", labelProvider, strings.Join(owned, ", "))
}

package runner

import "k8s.io/apimachinery/pkg/runtime/schema"

// Kind is a kind of object. Kinds are compared by address.
type Kind struct {
	// Name is the kind's name, as in manifests and in texts for users.
	Name            string
	Group, Resource string
	// Versions are those that this project understands, the preferred one first. All of them are read into the same Go type.
	Versions []string
}

func (k *Kind) String() string { return k.Name }

// plural is the name of several objects of the kind, in texts for users.
func (k *Kind) plural() string { return k.Name + k.Resource[len(k.Name):] }

// crd is the name of the kind's CustomResourceDefinition.
func (k *Kind) crd() string { return k.Resource + "." + k.Group }

func (k *Kind) apiVersion(version string) string {
	return schema.GroupVersion{Group: k.Group, Version: version}.String()
}

func (k *Kind) resource(version string) schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: k.Group, Version: version, Resource: k.Resource}
}

// Groups of the kinds.
const (
	GroupK0rdent    = "k0rdent.mirantis.com"
	GroupIPAM       = "ipam.cluster.x-k8s.io"
	GroupClusterAPI = "cluster.x-k8s.io"
)

// The kinds that the controllers read and write.
var (
	ClusterIPAMClaims  = &Kind{Name: "ClusterIPAMClaim", Group: GroupK0rdent, Resource: "clusteripamclaims", Versions: []string{"v1beta1"}}
	ClusterIPAMs       = &Kind{Name: "ClusterIPAM", Group: GroupK0rdent, Resource: "clusteripams", Versions: []string{"v1beta1"}}
	ClusterDeployments = &Kind{Name: "ClusterDeployment", Group: GroupK0rdent, Resource: "clusterdeployments", Versions: []string{"v1beta1"}}

	InClusterIPPools       = &Kind{Name: "InClusterIPPool", Group: GroupIPAM, Resource: "inclusterippools", Versions: []string{"v1alpha2"}}
	GlobalInClusterIPPools = &Kind{Name: "GlobalInClusterIPPool", Group: GroupIPAM, Resource: "globalinclusterippools", Versions: []string{"v1alpha2"}}
	// A prefix pool gives each claim a prefix of several addresses.
	InClusterPrefixPools       = &Kind{Name: "InClusterPrefixPool", Group: GroupIPAM, Resource: "inclusterprefixpools", Versions: []string{"v1alpha2"}}
	GlobalInClusterPrefixPools = &Kind{Name: "GlobalInClusterPrefixPool", Group: GroupIPAM, Resource: "globalinclusterprefixpools", Versions: []string{"v1alpha2"}}

	InfobloxInstances = &Kind{Name: "InfobloxInstance", Group: GroupIPAM, Resource: "infobloxinstances", Versions: []string{"v1alpha1"}}
	InfobloxIPPools   = &Kind{Name: "InfobloxIPPool", Group: GroupIPAM, Resource: "infobloxippools", Versions: []string{"v1alpha1"}}

	IPAddressClaims = &Kind{Name: "IPAddressClaim", Group: GroupIPAM, Resource: "ipaddressclaims", Versions: []string{"v1beta2", "v1beta1"}}
	IPAddresses     = &Kind{Name: "IPAddress", Group: GroupIPAM, Resource: "ipaddresses", Versions: []string{"v1beta2", "v1beta1"}}

	// Clusters and Machines of Cluster API are not there without it.
	Clusters = &Kind{Name: "Cluster", Group: GroupClusterAPI, Resource: "clusters", Versions: []string{"v1beta2", "v1beta1"}}
	Machines = &Kind{Name: "Machine", Group: GroupClusterAPI, Resource: "machines", Versions: []string{"v1beta2", "v1beta1"}}

	Secrets = &Kind{Name: "Secret", Resource: "secrets", Versions: []string{"v1"}}
)

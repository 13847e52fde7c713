package v1beta1

import "k8s.io/apimachinery/pkg/runtime/schema"

// GroupName is the API group of this package.
const GroupName = "k0rdent.mirantis.com"

// GroupVersion is the group and version of every type in this package.
var GroupVersion = schema.GroupVersion{Group: GroupName, Version: "v1beta1"}

// Kinds of this package.
const (
	KindClusterIPAMClaim  = "ClusterIPAMClaim"
	KindClusterIPAM       = "ClusterIPAM"
	KindClusterDeployment = "ClusterDeployment"
)

// Providers: who gives the addresses of a claim.
const (
	// ProviderInCluster: an InClusterIPPool with the name of the claim.
	ProviderInCluster = "in-cluster"
	// ProviderInfoblox: an InfobloxIPPool with the name of the claim.
	ProviderInfoblox = "ipam-infoblox"
)

// Phases of a ClusterIPAM.
const (
	PhasePending = "Pending"
	PhaseBound   = "Bound"
)

// ProviderDataIPPool is the name of the one entry in status.providerData of a ClusterIPAM, and of the key in spec.config of a ClusterDeployment
// that gets a copy of it.
const ProviderDataIPPool = "ipPool"

// ConfigIPAMEnabled is the key in spec.config of a ClusterDeployment that says that the addresses come from a pool.
const ConfigIPAMEnabled = "ipamEnabled"

// InlineClaimSuffix follows the name of a ClusterDeployment in the name of the claim that its spec.ipamClaim.spec describes.
const InlineClaimSuffix = "-ipam"

// AnnotationInfobloxInstance on a ClusterIPAMClaim names the InfobloxInstance that gives its addresses.
const AnnotationInfobloxInstance = "networking.x-k8s.io/infoblox-instance"

// AnnotationConfirmPool on a ClusterIPAMClaim confirms that its pool, which has the addresses of spec.clusterNetwork, gets those of spec.nodeNetwork.
// Its value is these addresses, as the pool gets them, joined by commas.
const AnnotationConfirmPool = "networking.x-k8s.io/confirm-pool"

// Condition types. The first two are k0rdent's.
const (
	// ConditionInvalidClaim on a ClusterIPAMClaim is True while its spec cannot be carried out. Without a problem it is absent.
	ConditionInvalidClaim = "InvalidClaimCondition"
	// ConditionProviderError on a ClusterIPAMClaim is True while the provider cannot serve it. Without a problem it is absent.
	ConditionProviderError = "IPAMProviderConditionError"
	// ConditionIPAMReady on a ClusterDeployment is True once its claim is bound and its config has the pool.
	ConditionIPAMReady = "IPAMReady"
)

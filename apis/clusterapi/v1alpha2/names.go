package v1alpha2

import "k8s.io/apimachinery/pkg/runtime/schema"

// GroupName is the API group of this package.
const GroupName = "ipam.cluster.x-k8s.io"

// GroupVersion is the group and version of every type in this package.
var GroupVersion = schema.GroupVersion{Group: GroupName, Version: "v1alpha2"}

// Kinds of this package.
const (
	KindInClusterIPPool           = "InClusterIPPool"
	KindGlobalInClusterIPPool     = "GlobalInClusterIPPool"
	KindInClusterPrefixPool       = "InClusterPrefixPool"
	KindGlobalInClusterPrefixPool = "GlobalInClusterPrefixPool"
)

// LabelManagedBy with the value ManagedBy on the CRD of a pool says that the CRD is ours: no other provider allocates from such pools.
const (
	LabelManagedBy = "app.kubernetes.io/managed-by"
	ManagedBy      = "cluster-ipam-controller"
)

// LabelProvider on the CRD of a pool names the provider of Cluster API that allocates from such pools.
const LabelProvider = "cluster.x-k8s.io/provider"

// Condition types of a pool. A CRD that is not ours does not store them.
const (
	// ConditionReady is True while an address can be allocated from the pool.
	ConditionReady = "Ready"
	// ConditionConflicted is True while two IPAddresses of the pool have the same address. The message names them.
	ConditionConflicted = "Conflicted"
)

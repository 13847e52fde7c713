package v1beta2

import "k8s.io/apimachinery/pkg/runtime/schema"

// GroupName is the API group of this package.
const GroupName = "ipam.cluster.x-k8s.io"

// GroupVersion is the group and version of every type in this package.
var GroupVersion = schema.GroupVersion{Group: GroupName, Version: "v1beta2"}

// Kinds of this package.
const (
	KindIPAddressClaim = "IPAddressClaim"
	KindIPAddress      = "IPAddress"
)

// Finalizers that all providers of addresses write.
const (
	// FinalizerReleaseAddress keeps an IPAddressClaim until its address is free.
	FinalizerReleaseAddress = "ipam.cluster.x-k8s.io/ReleaseAddress"
	// FinalizerProtectAddress keeps an IPAddress until its claim is being deleted.
	FinalizerProtectAddress = "ipam.cluster.x-k8s.io/ProtectAddress"
	// FinalizerProtectPool keeps a pool while addresses of it are allocated.
	FinalizerProtectPool = "ipam.cluster.x-k8s.io/ProtectPool"
)

// Labels and annotations of Cluster API.
const (
	// LabelClusterName names the Cluster that an object belongs to. An IPAddress gets that of its claim.
	LabelClusterName = "cluster.x-k8s.io/cluster-name"
	// AnnotationPaused, with any value, on a claim, a pool or a Cluster keeps the controller from it.
	AnnotationPaused = "cluster.x-k8s.io/paused"
)

// ConditionReady on an IPAddressClaim is True once the claim has an address.
const ConditionReady = "Ready"

// Reasons of ConditionReady.
const (
	// ReasonAllocationFailed (False): the address could not be written; the message says why.
	ReasonAllocationFailed = "AllocationFailed"
	// ReasonPoolNotReady (False): the pool is missing, being deleted, or not valid.
	ReasonPoolNotReady = "PoolNotReady"
	// ReasonPoolExhausted (False): the pool has no free address.
	ReasonPoolExhausted = "PoolExhausted"
)

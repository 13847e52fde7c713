// Package v1alpha2 has the pools whose addresses are allocated in the cluster itself.
//
// Group, version, kinds and fields are those of Cluster API's in-cluster provider (v1.1), so its manifests apply unchanged. The CRDs made from
// these types refuse by themselves what that provider refuses in a webhook, and their status has conditions, which that provider's has not.
//
// +k8s:deepcopy-gen=package
// +groupName=ipam.cluster.x-k8s.io
package v1alpha2

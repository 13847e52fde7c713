// Package v1alpha1 has the pools whose addresses an Infoblox server allocates.
//
// Group, version, kinds and fields are those of Cluster API's Infoblox provider (v0.2), so its manifests apply unchanged. The gateway of a
// subnet is optional here.
//
// +k8s:deepcopy-gen=package
// +groupName=ipam.cluster.x-k8s.io
package v1alpha1

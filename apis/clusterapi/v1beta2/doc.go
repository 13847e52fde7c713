// Package v1beta2 is the contract of Cluster API about single addresses: whoever wants one creates an IPAddressClaim that names a pool, and the
// controller of that pool answers with an IPAddress of the same name.
//
// Group, version, kinds and fields are Cluster API's. The CRDs made from them accept and refuse the same objects as Cluster API's own, which are
// used instead where they are installed.
//
// +k8s:deepcopy-gen=package
// +groupName=ipam.cluster.x-k8s.io
package v1beta2

// Package v1 is the API of the multi-CIDR node IPAM controller: a ClusterCIDR is one range of Pod addresses (or one IPv4
// and one IPv6 range), from which the controller allocates one block for each Node.
//
// Group, version, kind, fields and finalizer are those of kubernetes-sigs/node-ipam-controller (KEP-2593), so a
// manifest written for that project applies unchanged. The optional additions are ipv6PerNodeHostBits, priority,
// excludedCIDRs, allocation and the status. An object without them behaves as KEP-2593 says.
//
// The CRD refuses every mistake that can be seen in the object alone. The schema and CEL markers below are the only
// validation. Objects that were stored under an older CRD can break any of the rules.
//
// +k8s:deepcopy-gen=package
// +groupName=networking.x-k8s.io
package v1

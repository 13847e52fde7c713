// Package v1 is the API of the multi-CIDR node IPAM controller: ClusterCIDR, one range (or one IPv4 and one IPv6
// range) of Pod addresses that is cut into one block for each Node it serves.
//
// Group, version, kind, fields and finalizer are those of kubernetes-sigs/node-ipam-controller (KEP-2593), so a
// manifest written for it applies unchanged. The optional additions are ipv6PerNodeHostBits, priority, excludedCIDRs,
// allocation and the status; an object without them behaves as KEP-2593 says.
//
// Everything that can be known from the object alone is refused at admission by the CRD: the schema and CEL markers
// below are the only validation there is. Objects stored under an older CRD may break any of the rules.
//
// +k8s:deepcopy-gen=package
// +groupName=networking.x-k8s.io
package v1

// Package claims runs cluster-ipam-controller: it gives every ClusterIPAMClaim a ClusterIPAM and a pool, and reports when the pool can give
// addresses. Package binding decides; this package reads and writes.
//
// The key of all work is the claim. A ClusterIPAM and a pool have the name of their claim, so an event about one of them queues that claim.
package claims

// Package gate runs cluster-deployment-ipam-controller: it writes into a ClusterDeployment where its addresses come from, once its
// ClusterIPAMClaim is bound. Package opening decides; this package reads and writes.
//
// The key of all work is the ClusterDeployment. An event about a claim, or about the ClusterIPAM with its name, queues every
// ClusterDeployment that names or describes the claim.
package gate

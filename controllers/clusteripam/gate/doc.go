// Package gate runs cluster-deployment-ipam-controller: it writes into a ClusterDeployment where its addresses come from, once its ClusterIPAMClaim is
// bound.
//
// A ClusterDeployment names a claim (spec.ipamClaim.ref), or describes one (spec.ipamClaim.spec), which is then created and kept in step. Its gate
// opens once the claim is bound to it: config.ipamEnabled and config.ipPool are written, both in one patch. It never closes again: the cluster
// uses these values.
//
// An entry config.ipPool that names a pool of the claim is the controller's, which keeps it up to date. Any other one was written by somebody else, and stays.
// So does ipamEnabled: false beside an entry. The condition IPAMReady says so.
package gate

// Package opening decides when a ClusterDeployment gets its addresses, and what is written into it then. It makes no calls.
//
// A ClusterDeployment names a claim (spec.ipamClaim.ref), or describes one (spec.ipamClaim.spec), which is then created and kept in step. Its gate
// opens once the claim is bound to it: config.ipamEnabled and config.ipPool are written, both in one patch. It never closes again: the cluster
// uses these values.
//
// No value flips between two writers. The entry that was written last is in an annotation. An entry in config that is another one was
// written by somebody else, and stays. So does ipamEnabled: false beside an entry. The condition IPAMReady says so.
package opening

// Package claims runs cluster-ipam-controller: it gives every ClusterIPAMClaim a ClusterIPAM and a pool with its name, and reports when the pool
// can give addresses.
//
//	ClusterIPAMClaim c ──► ClusterIPAM c ──► InClusterIPPool c or InfobloxIPPool c
//	       ▲ bound             ▲ phase, providerData      │
//	       └───────────────────┴──────────────────────────┘ the pool can give addresses
//
// The function decide looks at everything and returns the next write, or none if all is well. It makes no calls, and would return the same after a restart. The
// watch brings the write back, and then decide returns the one after it.
//
// Names are no proof of ownership: another program or user may have created an object with the name of the claim.
//
//   - A ClusterIPAM belongs to the claim whose UID is that of its controller owner reference. One without a controller is adopted if it names
//     this claim or none. Any other is left alone, and the claim is not bound.
//   - A pool belongs to the claim whose UID is in its owner references. One that belongs to no claim is adopted only if it says already what
//     the claim says: to write the addresses of the claim into an unrelated pool could take addresses from under its users.
//
// Of a pool only the addresses, the prefix and the gateway are written (of an InfobloxIPPool the instance and the subnets). What users add, such as
// excludedAddresses, stays.
//
// The first spec.cluster of a claim is recorded on its ClusterIPAM. If somebody removes the field and sets another value later, the record stays.
package claims

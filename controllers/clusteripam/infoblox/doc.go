// Package infoblox gives IPAddressClaims addresses from an Infoblox: the infoblox-ip-pool-controller.
//
// Infoblox chooses an address, in one atomic step, when it creates a host record. What belongs to whom is decided by package host, from what package
// known has noted about claims, IPAddresses and pools. Requests are sent by package wapi, and package wapitest is an Infoblox for tests. The path of one
// claim:
//
//  1. An InfobloxInstance is checked when it, its Secret or the time of the last check changes (instance.go). Then its InfobloxIPPools are
//     (pool.go), and then the claims that wait for them go on.
//  2. Before anything is sent to Infoblox, the claim gets its finalizer, the name of its host record and where that is (prepare). Whatever
//     becomes of the pool or of this process, the record can be found again.
//  3. The host records of that name are read. The claim's own has its UID in the comment. If there is none, it is created (obtain).
//  4. The address that Infoblox has chosen is written into an IPAddress, unless another IPAddress has it (create).
//  5. When the claim is deleted, the address goes from Infoblox first, then the IPAddress, then the claim's finalizer (release.go).
//
// A write whose answer is lost may have been carried out, and may still be. A second create of the same name is refused by Infoblox, so it is sent
// at once. Everything else, and the end of a release, waits until the lost write is over (settles). So does a create after a lost update or delete:
// the new record would have the same reference.
//
// One claim at a time works on the host records of a name (claimRecord). Writes to Infoblox pass the fence of the leader Lease like those to the API
// server.
package infoblox

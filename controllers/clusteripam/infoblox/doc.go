// Package infoblox gives IPAddressClaims addresses from an Infoblox: the infoblox-ip-pool-controller.
//
// Infoblox chooses an address, in one atomic step, when it creates a host record. Which record and which address are a claim's is decided in record.go, from what
// Infoblox has; package contract does everything that claims of all providers have in common, and package wapi sends the requests. The path of one claim:
//
//  1. An InfobloxInstance is checked when it, its Secret or the time of the last check changes (instance.go). Then its InfobloxIPPools are (pool.go),
//     and then the claims that wait for them go on.
//  2. Prepare chooses the host record, which stays until the claim goes: its name and place are written to the claim before anything is written to Infoblox.
//  3. Allocate reads the records of that name. The claim's own has its token in the comment. If there is none, it is created.
//  4. The address is written to the claim, then to an IPAddress.
//  5. When the claim is deleted, the IPAddress goes, and then Release removes the address and the token from the record, which goes with its last address.
//
// The token is the UID that the claim had first, and moves with it. A record with the token of a claim that was moved here, or put back, is found again.
//
// A write whose answer is lost may have been carried out, and may still be: for 15 seconds after it nothing is sent about records of that name, and nothing
// that they say is used (work). The same holds for what an earlier process, or another cluster, may have sent: see claimShown. Writes to Infoblox pass the fence of the leader
// Lease like those to the API server.
package infoblox

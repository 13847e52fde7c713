// Package infoblox gives IPAddressClaims addresses from an Infoblox: the infoblox-ip-pool-controller.
//
// Infoblox chooses an address, in one atomic step, when it creates a host record. Package contract does everything that claims of all providers have in common, and
// package wapi sends the requests. The files, in the order to read them:
//
//	hosts.go     whose a host record and its addresses are, and what to write: pure
//	held.go      what other claims and IPAddresses hold
//	deadline.go  one claim at a time works on the records of a name, and none while an unanswered write can still be carried out
//	provider.go  the path of one claim, with its longest step in allocate.go; name.go and machine.go choose the name of its record
//	checks.go    whether InfobloxInstances and InfobloxIPPools can be used
//
// The path of one claim:
//
//  1. Prepare chooses the host record, which stays until the claim goes: its name and place are written to the claim before anything is written to Infoblox.
//  2. Allocate reads the records of that name. The claim's own has its token in the comment. If there is none, it is created.
//  3. The address is written to the claim, then to an IPAddress.
//  4. When the claim is deleted, the IPAddress goes, and then Release removes the address and the token from the record, which goes with its last address.
//
// The token is the UID that the claim had first, and moves with it. A record with the token of a claim that was moved here, or put back, is found again.
package infoblox

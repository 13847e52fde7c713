// Package book has all that the in-cluster IP pool controller knows, and decides what it writes: which address a claim gets, when an
// address becomes free, and what the pools' statuses say. Values in, values out: it makes no calls and reads no clock.
//
// The caller tells the book what the caches show (SetPool, SetClaim, SetAddress, SetCluster and their counterparts), asks for the next
// request about a claim or a pool ([Book.NextForClaim], [Book.NextForPool]), sends it, and tells the book the answer ([Book.Done]).
// [Book.Changes] returns the claims and pools to ask about.
//
//	SetPool, SetClaim, … ──► state ──► Changes ──► queue ──► NextFor… ──► one request ──► Done ──► state
//
// An address is reserved for a claim, by the claim's UID, at the moment at which the book learns that the claim needs one or that one is
// free. Claims that wait for a pool get its addresses in the order of their creation. From then on the address is held by the claim until
// the claim is gone, and by its IPAddress until that is gone. Nothing else frees it: not an error, and not a lost answer.
//
// An IPAddress belongs to the claim of its name. That is the contract of Cluster API. IPAddresses that another program wrote hold their
// addresses, too.
package book

// Package addresses says which single addresses a pool has, which of them are in use, and which one is allocated next. It contains the whole
// decision: values in, values out; no clock, lock, log or client.
//
//   - [Spec] is a pool as the user writes it: a list of addresses, ranges and CIDRs, exclusions, a gateway and a prefix length.
//   - [Pool] is a compiled Spec: the addresses that can be allocated, as ranges in ascending order.
//   - [Usage] knows which addresses are in use. Its Next is the lowest free address of a pool. The number of steps is limited by the length
//     of an address. It depends neither on the size of the pool nor on how many addresses are in use.
//
// Addresses in use need not belong to the pool: a pool can shrink, and other programs can write IPAddresses. Nothing here is safe for
// concurrent use.
package addresses

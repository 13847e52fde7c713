// Package addresses says which blocks a pool has, single addresses or prefixes of one length, which of them are in use, and which one is
// allocated next. It contains the whole decision: values in, values out; no clock, lock, log or client.
//
//   - [Spec] is a pool as the user writes it: a list of addresses, ranges and CIDRs, exclusions, a gateway and a prefix length.
//   - [PrefixSpec] is the same for a pool of prefixes.
//   - [Pool] is a compiled Spec: the blocks that can be allocated, as ranges in ascending order.
//   - [Usage] has the blocks in use. Its Next is the lowest free block of a pool. The number of steps depends neither on the size of a range
//     nor on how many blocks are in use.
//
// Blocks in use need not belong to the pool: a pool can shrink, and other programs can write IPAddresses. Nothing here is safe for
// concurrent use.
package addresses

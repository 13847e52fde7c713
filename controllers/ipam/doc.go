// Package ipam decides which block of addresses is allocated to which Node. It contains the whole decision and nothing else: values in,
// values out; no clock, lock, log, metric, context or randomness, and no import outside the standard library. Equal histories give equal
// answers.
//
// It has three types, from the bottom up:
//
//   - [PrefixMap]: prefixes that are taken, with a value for each. It answers "the next free /b inside this range, from this address on, then
//     from the start of the range". The number of steps is limited by the length of an address. It does not depend on the width of the range
//     or on how full the range is.
//   - [Pool]: one source of blocks (a compiled ClusterCIDR), with one [Range] per address family. [Compare] is the order in which pools are
//     tried for one Node.
//   - [Ledger]: which owner holds which prefixes. [Ledger.Reserve] makes somebody the holder of one block of every range of a pool, if each of
//     them has a free one. A partial allocation, with one family but not the other, cannot be represented.
//
// One ledger covers the whole address space, because two pools can share addresses and cut them into blocks of different sizes. A block is
// free if it overlaps no holding, from whichever pool that was allocated. The exclusions of a pool are not holdings: they limit only that
// pool.
//
// Nothing here is safe for concurrent use. The caller holds a lock.
package ipam

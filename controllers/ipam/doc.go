// Package ipam decides which block of addresses goes to whom. It is the whole of the decision and nothing else: values
// in, values out; no clock, lock, log, metric, context or randomness, and no import outside the standard library. Equal
// histories give equal answers.
//
// Three types, from the bottom up:
//
//   - [PrefixSet]: which addresses are taken. It answers "the next free /b inside this range, from here on, around" in
//     a number of steps bounded by the length of an address, whatever the range's width and however full it is.
//   - [Pool]: one source of blocks (a ClusterCIDR, compiled), with one [Range] per address family. [Compare] is the
//     order in which pools are tried for one Node.
//   - [Ledger]: who holds what. [Ledger.Pick] chooses one block from every range of the first pool that can serve all
//     of them and changes nothing; [Ledger.Reserve] makes the choice a holding. Half an allocation, one family without
//     the other, has no representation.
//
// One ledger covers the whole address space, because two pools may share addresses and cut them into blocks of
// different sizes: a block is free when it overlaps nothing that anyone holds, whichever pool that came from. What a pool
// excludes is nobody's: it limits that pool only.
//
// Nothing here is safe for concurrent use; the caller holds a lock around pick and reserve.
package ipam

package ipam

import (
	"math"
	"net/netip"
)

// Usage is how many blocks of a range are in use.
type Usage struct {
	// Allocated blocks are held by a Node, as they are: a block that is only a part of what a Node holds, or contains it,
	// is not counted here. Nor is it free.
	Allocated uint64
	// Free blocks overlap nothing held by anyone, and nothing that the pool excludes; math.MaxUint64 stands for that many or more.
	Free uint64
}

// counts keeps the Usage of ranges in step with the ledger, for a cost that does not depend on how much is held in them.
// The zero value counts nothing.
type counts struct {
	prefixes PrefixSet                       // of the counted ranges
	usage    map[netip.Prefix]map[int]*Usage // by prefix and block length
}

// Usage returns the usage of r, a range of p. The first call visits every holding inside r; from then on the ledger keeps count, and
// answers at once, until [Ledger.Forget] of a pool with that range. Counted each time are only what is free inside of p's exclusions, and,
// of ranges with 2^64 blocks and more, the free blocks.
func (l *Ledger) Usage(p *Pool, r Range) Usage {
	u, ok := l.counts.usage[r.Prefix][r.BlockBits]
	if !ok {
		u = l.count(r)
		l.counts.add(r, u)
	}
	if r.Blocks() == math.MaxUint64 {
		return Usage{Allocated: u.Allocated, Free: l.Free(p, r)}
	}
	return Usage{Allocated: u.Allocated, Free: u.Free - l.excluded(p, r)}
}

// free returns how many blocks of r overlap nothing held by anyone.
func (l *Ledger) free(r Range) uint64 { return l.taken.Free(r.Prefix, r.BlockBits) }

func (l *Ledger) count(r Range) *Usage {
	u := &Usage{Free: l.free(r)}
	for p := range l.taken.Overlapping(r.Prefix) {
		if r.has(p) && l.allocated(p) {
			u.Allocated++
		}
	}
	return u
}

// minus is -1: sums of uint64 wrap around.
const minus = math.MaxUint64

// recount adds what the blocks around p count for to the usage of every counted range, sign times. Once with minus before p is
// inserted or removed and once with 1 after it, it keeps them right.
func (l *Ledger) recount(p netip.Prefix, sign uint64) {
	for q := range l.counts.prefixes.Overlapping(p) {
		for bits, u := range l.counts.usage[q] {
			r := Range{Prefix: q, BlockBits: bits}
			u.Free += sign * l.free(r.around(p))
			if r.has(p) && l.allocated(p) {
				u.Allocated += sign
			}
		}
	}
}

// around returns the part of r whose blocks overlap p, which has to overlap r: the one block that contains p, or those
// inside p.
func (r Range) around(p netip.Prefix) Range {
	bits := min(max(p.Bits(), r.Prefix.Bits()), r.BlockBits)
	addr := p.Addr()
	if p.Bits() < r.Prefix.Bits() {
		addr = r.Prefix.Addr()
	}
	return Range{Prefix: netip.PrefixFrom(addr, bits).Masked(), BlockBits: r.BlockBits}
}

// has reports whether p is a block of r.
func (r Range) has(p netip.Prefix) bool {
	return p.Bits() == r.BlockBits && r.Prefix.Contains(p.Addr())
}

func (c *counts) add(r Range, u *Usage) {
	if c.usage == nil {
		c.usage = map[netip.Prefix]map[int]*Usage{}
	}
	if c.usage[r.Prefix] == nil {
		c.usage[r.Prefix] = map[int]*Usage{}
		c.prefixes.Insert(r.Prefix)
	}
	c.usage[r.Prefix][r.BlockBits] = u
}

func (c *counts) drop(r Range) {
	if _, ok := c.usage[r.Prefix][r.BlockBits]; !ok {
		return
	}
	delete(c.usage[r.Prefix], r.BlockBits)
	if len(c.usage[r.Prefix]) == 0 {
		delete(c.usage, r.Prefix)
		c.prefixes.Remove(r.Prefix)
	}
}

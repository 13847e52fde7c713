package ipam

import (
	"math"
	"net/netip"
	"slices"
)

// Usage says how many blocks of a range are in use.
type Usage struct {
	// Allocated is the number of blocks that a Node holds exactly. A block that is only a part of a prefix that a Node holds, or that
	// contains one, is neither allocated nor free.
	Allocated uint64
	// Free is the number of blocks that overlap no holding and no exclusion of the pool. math.MaxUint64 means that number or more.
	Free uint64
}

// counts keeps the Usage of ranges up to date with the ledger. The cost of an update does not depend on the number of holdings in the
// ranges. The zero value counts nothing.
type counts struct {
	ranges PrefixMap[[]*counted] // those with the same prefix have blocks of different sizes
}

type counted struct {
	Range
	Usage
}

// Usage returns the usage of r, a range of p. The first call visits every holding inside r. From then on the ledger keeps the count and
// answers at once, until [Ledger.Forget] of a pool with that range. Two numbers are recomputed: the free blocks inside the exclusions of p
// after a change there, and the free blocks of a range with 2^64 blocks or more in each call.
func (l *Ledger) Usage(p *Pool, r Range) Usage {
	u, ok := l.counts.of(r)
	if !ok {
		u = l.count(r)
		l.counts.add(u)
	}
	if r.Blocks() == math.MaxUint64 {
		return Usage{Allocated: u.Allocated, Free: l.Free(p, r)}
	}
	return Usage{Allocated: u.Allocated, Free: u.Free - l.excluded(p, r)}
}

// free returns how many blocks of r overlap no holding.
func (l *Ledger) free(r Range) uint64 { return l.taken.Free(r.Prefix, r.BlockBits) }

func (l *Ledger) count(r Range) *counted {
	u := &counted{r, Usage{Free: l.free(r)}}
	for p := range l.taken.Overlapping(r.Prefix) {
		if r.has(p) && l.allocated(p) {
			u.Allocated++
		}
	}
	return u
}

// minus is -1: sums of uint64 wrap around.
const minus = math.MaxUint64

// recount adds the usage of the blocks around p, times sign, to the usage of every counted range. Call it with minus before p is inserted
// or removed, and with 1 afterwards.
func (l *Ledger) recount(p netip.Prefix, sign uint64) {
	for same := range l.counts.ranges.Values(p) {
		for _, u := range same {
			u.Free += sign * l.free(u.around(p))
			if u.has(p) && l.allocated(p) {
				u.Allocated += sign
			}
		}
	}
}

// around returns the part of r whose blocks overlap p: the block that contains p, or the blocks inside p. p must overlap r.
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

func (c *counts) of(r Range) (u *counted, ok bool) {
	if same := c.ranges.At(r.Prefix); same != nil {
		if i := slices.IndexFunc(*same, func(u *counted) bool { return u.Range == r }); i >= 0 {
			return (*same)[i], true
		}
	}
	return nil, false
}

func (c *counts) add(u *counted) {
	same := c.ranges.Insert(u.Prefix)
	*same = append(*same, u)
}

func (c *counts) drop(r Range) {
	if u, ok := c.of(r); ok {
		same := c.ranges.At(r.Prefix)
		*same = slices.DeleteFunc(*same, func(o *counted) bool { return o == u })
		c.ranges.Remove(r.Prefix)
	}
}

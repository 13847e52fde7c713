package addresses

import (
	"math"
	"net/netip"

	"github.com/multicidr/controller-manager/controllers/ipam"
)

// Usage knows which blocks are in use, and which block of a pool is free. The zero value is empty and has no pool. A block can be in use several times; it is
// free again when it has been freed as often. Blocks in use can have any length: a block of the pool that overlaps one of them is not free.
type Usage struct {
	pool  Pool
	inUse ipam.PrefixSet
	times map[netip.Prefix]int
	// free is how many blocks of each span of the pool are free. A span with math.MaxInt blocks or more is not counted.
	free              []int
	total, outOfRange int
}

// Counts are numbers of blocks; math.MaxInt means that number or more.
type Counts struct {
	// Total is how many blocks the pool has. Free of them overlap none that is in use.
	Total, Free int
	// Used is how many blocks are in use, and OutOfRange how many of those the pool does not have.
	Used, OutOfRange int
}

// SetPool replaces the pool; nil has no blocks. Blocks in use stay in use.
func (u *Usage) SetPool(p *Pool) {
	times := u.times
	*u = Usage{}
	if p != nil {
		u.pool = *p
	}
	for _, s := range u.pool.spans {
		n := s.blocks(u.pool.bits)
		u.free, u.total = append(u.free, n), plus(u.total, n)
	}
	for b, n := range times {
		u.Use(b)
		u.times[b] = n
	}
}

// Use notes that b is in use once more. It reports whether it was not before. b must be valid, masked and without a zone.
func (u *Usage) Use(b netip.Prefix) (first bool) {
	if u.times == nil {
		u.times = map[netip.Prefix]int{}
	}
	if u.times[b]++; u.times[b] > 1 {
		return false
	}
	u.count(u.around(b), -1)
	u.inUse.Insert(b)
	if !u.pool.Contains(b) {
		u.outOfRange++
	}
	return true
}

// Free undoes one Use of b. It reports whether b is not in use any more.
func (u *Usage) Free(b netip.Prefix) (last bool) {
	switch u.times[b] {
	case 0:
		return false
	case 1:
		delete(u.times, b)
		u.inUse.Remove(b)
		u.count(u.around(b), 1)
		if !u.pool.Contains(b) {
			u.outOfRange--
		}
		return true
	}
	u.times[b]--
	return false
}

// Next returns the lowest free block of the pool. ok is false if there is none.
func (u *Usage) Next() (_ netip.Prefix, ok bool) {
	for i, s := range u.pool.spans {
		if u.free[i] == 0 {
			continue
		}
		everything := netip.PrefixFrom(s.first, 0).Masked()
		b, ok := u.inUse.NextFree(everything, u.pool.bits, s.first) // goes on at the lowest address if there is none up to the highest one
		if ok && !b.Addr().Less(s.first) && !s.last.Less(b.Addr()) {
			return b, true
		}
	}
	return netip.Prefix{}, false
}

// Counts returns how many blocks there are, and how many are in use.
func (u *Usage) Counts() Counts {
	c := Counts{Total: u.total, Used: len(u.times), OutOfRange: u.outOfRange}
	for _, n := range u.free {
		c.Free = plus(c.Free, n)
	}
	return c
}

// around returns the blocks of the pool that b overlaps, as one prefix.
func (u *Usage) around(b netip.Prefix) netip.Prefix {
	if b.Bits() < u.pool.bits || b.Addr().BitLen() < u.pool.bits {
		return b
	}
	return block(b.Addr(), u.pool.bits)
}

// count notes that every block of the pool in r that overlaps none in use is not free any more (change is -1), or is free again (1). r is not smaller than a block.
func (u *Usage) count(r netip.Prefix, change int) {
	s, i := spanOf(r), u.pool.index(r.Addr())
	if i == len(u.pool.spans) || s.last.Less(u.pool.spans[i].first) {
		return
	}
	inside := !s.first.Less(u.pool.spans[i].first) && !u.pool.spans[i].last.Less(s.last)
	if inside && !u.inUse.Overlaps(r) {
		if u.free[i] < math.MaxInt {
			u.free[i] += change * s.blocks(u.pool.bits)
		}
		return
	}
	if _, any := u.inUse.NextFree(r, u.pool.bits, r.Addr()); !any || r.Bits() >= u.pool.bits {
		return
	}
	lower := netip.PrefixFrom(r.Addr(), r.Bits()+1)
	u.count(lower, change)
	u.count(netip.PrefixFrom(spanOf(lower).last.Next(), r.Bits()+1), change)
}

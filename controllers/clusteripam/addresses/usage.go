package addresses

import (
	"math"
	"math/big"
	"net/netip"

	"github.com/multicidr/controller-manager/controllers/ipam"
)

// Usage has the blocks in use, with a value each, and knows which block of a pool is free. The zero value is empty and has no pool. Blocks in use can
// have any length: a block of the pool that overlaps one of them is not free.
type Usage[V any] struct {
	ipam.PrefixMap[V]
	pool Pool
	full int // so many spans at the start of the pool have no free block
}

// Counts are numbers of blocks; math.MaxInt means that number or more.
type Counts struct {
	// Total is how many blocks the pool has. Free of them overlap none that is in use.
	Total, Free int
	// Used is how many blocks are in use, and OutOfRange how many of those the pool does not have.
	Used, OutOfRange int
}

// SetPool replaces the pool; nil has no blocks. Blocks in use stay in use.
func (u *Usage[V]) SetPool(p *Pool) {
	if u.full, u.pool = 0, (Pool{}); p != nil {
		u.pool = *p
	}
}

// Remove undoes one Insert of exactly b.
func (u *Usage[V]) Remove(b netip.Prefix) (ok bool) {
	u.full = min(u.full, u.pool.index(b.Masked().Addr()))
	return u.PrefixMap.Remove(b)
}

// Next returns the lowest free block of the pool. ok is false if there is none.
func (u *Usage[V]) Next() (_ netip.Prefix, ok bool) {
	for ; u.full < len(u.pool.spans); u.full++ {
		s := u.pool.spans[u.full]
		everything := netip.PrefixFrom(s.first, 0).Masked()
		b, ok := u.NextFree(everything, u.pool.bits, s.first) // goes on at the lowest address if there is none up to the highest one
		if ok && !b.Addr().Less(s.first) && !s.last.Less(b.Addr()) {
			return b, true
		}
	}
	return netip.Prefix{}, false
}

// Counts returns how many blocks there are, and how many are in use. It looks at every block in use.
func (u *Usage[V]) Counts() (c Counts) {
	free := new(big.Int)
	if c.Total = number(u.pool.total); u.pool.total != nil {
		free.Set(u.pool.total)
	}
	for _, family := range []netip.Addr{netip.IPv4Unspecified(), netip.IPv6Unspecified()} {
		var before netip.Prefix // covers those blocks of the pool that the ones before overlap
		for b := range u.Overlapping(netip.PrefixFrom(family, 0)) {
			if c.Used++; !u.pool.Contains(b) {
				c.OutOfRange++
			}
			if covers := u.pool.around(b); !before.IsValid() || !before.Overlaps(covers) {
				before = covers
				free.Sub(free, u.pool.within(spanOf(covers)))
			}
		}
	}
	c.Free = number(free)
	return c
}

// Empty reports whether no block is in use.
func (u *Usage[V]) Empty() bool {
	return !u.Overlaps(netip.PrefixFrom(netip.IPv4Unspecified(), 0)) && !u.Overlaps(netip.PrefixFrom(netip.IPv6Unspecified(), 0))
}

// number is n, or math.MaxInt if n is larger; nil is 0.
func number(n *big.Int) int {
	switch {
	case n == nil:
		return 0
	case n.IsInt64():
		return int(n.Int64())
	}
	return math.MaxInt
}

package addresses

import (
	"encoding/binary"
	"math"
	"net/netip"

	"github.com/multicidr/controller-manager/controllers/ipam"
)

// Usage knows which blocks are in use, and which block of a pool is free. The zero value is empty and has no pool. A block can be in use several times; it is
// free again when it has been freed as often. Blocks in use can have any length: a block of the pool that overlaps one of them is not free.
type Usage struct {
	pool  *Pool // nil: no blocks
	inUse ipam.PrefixSet
	times map[netip.Prefix]int
	// full has the spans of the pool in which no block is free: span i as the IPv4 address with the number i, so that the set finds the first span that is not full.
	full ipam.PrefixSet
	// taken is how many blocks of the pool are not free. It is not counted if the pool has too many.
	taken, outOfRange int
}

// Counts are numbers of blocks; math.MaxInt means that number or more.
type Counts struct {
	// Total is how many blocks the pool has. Free of them overlap none that is in use.
	Total, Free int
	// Used is how many blocks are in use, and OutOfRange how many of those the pool does not have.
	Used, OutOfRange int
}

// SetPool replaces the pool. Blocks in use stay in use.
func (u *Usage) SetPool(p *Pool) {
	times := u.times
	*u = Usage{pool: p}
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
	n := u.free(u.around(b))
	u.inUse.Insert(b)
	u.count(b, n, 1)
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
		u.count(b, u.free(u.around(b)), -1)
		return true
	}
	u.times[b]--
	return false
}

// Next returns the lowest free block of the pool. ok is false if there is none.
func (u *Usage) Next() (_ netip.Prefix, ok bool) {
	if u.pool == nil {
		return netip.Prefix{}, false
	}
	first, _ := u.full.NextFree(netip.PrefixFrom(netip.IPv4Unspecified(), 0), 32, netip.Addr{})
	number := first.Addr().As4()
	i := int(binary.BigEndian.Uint32(number[:]))
	if i >= len(u.pool.spans) {
		return netip.Prefix{}, false
	}
	return u.nextIn(u.pool.spans[i])
}

// nextIn returns the lowest free block of a span.
func (u *Usage) nextIn(s span) (_ netip.Prefix, ok bool) {
	everything := netip.PrefixFrom(s.first, 0).Masked()
	b, ok := u.inUse.NextFree(everything, u.pool.bits, s.first) // goes on at the lowest address if there is none up to the highest one
	return b, ok && !b.Addr().Less(s.first) && !s.last.Less(b.Addr())
}

// Counts returns how many blocks there are, and how many are in use.
func (u *Usage) Counts() Counts {
	c := Counts{Used: len(u.times), OutOfRange: u.outOfRange}
	if u.pool != nil {
		c.Total, c.Free = u.pool.total, u.pool.total-u.taken
	}
	return c
}

// count notes that b is in use now, or is not any more, and that n blocks of the pool have become taken or free by that.
func (u *Usage) count(b netip.Prefix, n, change int) {
	if u.pool == nil || !u.pool.Contains(b) {
		u.outOfRange += change
	}
	if u.pool == nil || n == 0 {
		return
	}
	if u.pool.total < math.MaxInt {
		u.taken += n * change
	}
	changed := spanOf(b)
	for i := u.pool.index(changed.first); i < len(u.pool.spans) && !changed.last.Less(u.pool.spans[i].first); i++ {
		number := single(netip.AddrFrom4([4]byte(binary.BigEndian.AppendUint32(nil, uint32(i)))))
		_, open := u.nextIn(u.pool.spans[i])
		switch full := u.full.Overlaps(number); {
		case !open && !full:
			u.full.Insert(number)
		case open && full:
			u.full.Remove(number)
		}
	}
}

// around returns the blocks of the pool that b overlaps, as one prefix.
func (u *Usage) around(b netip.Prefix) netip.Prefix {
	if u.pool == nil || b.Bits() < u.pool.bits || b.Addr().BitLen() < u.pool.bits {
		return b
	}
	return block(b.Addr(), u.pool.bits)
}

// free returns how many free blocks of the pool lie in r, which is not smaller than a block.
func (u *Usage) free(r netip.Prefix) int {
	if u.pool == nil {
		return 0
	}
	s, i := spanOf(r), u.pool.index(r.Addr())
	if i == len(u.pool.spans) || s.last.Less(u.pool.spans[i].first) {
		return 0
	}
	inside := !s.first.Less(u.pool.spans[i].first) && !u.pool.spans[i].last.Less(s.last)
	if inside && !u.inUse.Overlaps(r) {
		return s.blocks(u.pool.bits)
	}
	if _, any := u.inUse.NextFree(r, u.pool.bits, r.Addr()); !any || r.Bits() >= u.pool.bits {
		return 0
	}
	lower := netip.PrefixFrom(r.Addr(), r.Bits()+1)
	return plus(u.free(lower), u.free(netip.PrefixFrom(spanOf(lower).last.Next(), r.Bits()+1)))
}

func single(a netip.Addr) netip.Prefix { return netip.PrefixFrom(a, a.BitLen()) }

package addresses

import (
	"encoding/binary"
	"math"
	"net/netip"

	"github.com/multicidr/controller-manager/controllers/ipam"
)

// Usage knows which addresses are in use, and which address of a pool is free. The zero value is empty and has no pool. An address can be
// in use several times; it is free again when it has been freed as often.
type Usage struct {
	pool  *Pool // nil: no addresses
	inUse ipam.PrefixSet
	times map[netip.Addr]int
	// used is, for each span of the pool, how many of its addresses are in use. full has the spans in which no address is free: span i as
	// the IPv4 address with the number i, so that the set finds the first span that is not full.
	used       []int
	full       ipam.PrefixSet
	outOfRange int
}

// Counts are numbers of addresses; math.MaxInt means that number or more.
type Counts struct {
	// Total is how many addresses the pool has. Free of them are not in use.
	Total, Free int
	// Used is how many addresses are in use, and OutOfRange how many of those the pool does not have.
	Used, OutOfRange int
}

// SetPool replaces the pool. Addresses in use stay in use.
func (u *Usage) SetPool(p *Pool) {
	*u = Usage{pool: p, inUse: u.inUse, times: u.times}
	if p != nil {
		u.used = make([]int, len(p.spans))
	}
	for a := range u.times {
		u.count(a, 1)
	}
}

// Use notes that a is in use once more. It reports whether it was not before. a must be valid and without a zone.
func (u *Usage) Use(a netip.Addr) (first bool) {
	if u.times == nil {
		u.times = map[netip.Addr]int{}
	}
	if u.times[a]++; u.times[a] > 1 {
		return false
	}
	u.inUse.Insert(single(a))
	u.count(a, 1)
	return true
}

// Free undoes one Use of a. It reports whether a is not in use any more.
func (u *Usage) Free(a netip.Addr) (last bool) {
	switch u.times[a] {
	case 0:
		return false
	case 1:
		delete(u.times, a)
		u.inUse.Remove(single(a))
		u.count(a, -1)
		return true
	}
	u.times[a]--
	return false
}

// Times is how many times a is in use.
func (u *Usage) Times(a netip.Addr) int { return u.times[a] }

// Next returns the lowest free address of the pool. ok is false if there is none.
func (u *Usage) Next() (_ netip.Addr, ok bool) {
	if u.pool == nil || len(u.pool.spans) == 0 {
		return netip.Addr{}, false
	}
	first, _ := u.full.NextFree(netip.PrefixFrom(netip.IPv4Unspecified(), 0), 32, netip.Addr{})
	b := first.Addr().As4()
	i := int(binary.BigEndian.Uint32(b[:]))
	if i >= len(u.pool.spans) {
		return netip.Addr{}, false
	}
	from := u.pool.spans[i].first
	everything, _ := from.Prefix(0)
	free, ok := u.inUse.NextFree(everything, from.BitLen(), from) // in this span, because the span is not full
	return free.Addr(), ok
}

// Counts returns how many addresses there are, and how many are in use.
func (u *Usage) Counts() Counts {
	c := Counts{Used: len(u.times), OutOfRange: u.outOfRange}
	if u.pool == nil {
		return c
	}
	c.Total = u.pool.total
	if c.Free = c.Total; c.Total < math.MaxInt {
		c.Free -= c.Used - c.OutOfRange
	}
	return c
}

// count counts a change of the number of addresses in use: by one, at a.
func (u *Usage) count(a netip.Addr, change int) {
	if u.pool == nil {
		u.outOfRange += change
		return
	}
	i, ok := u.pool.index(a)
	if !ok {
		u.outOfRange += change
		return
	}
	size, number := u.pool.spans[i].size(), netip.AddrFrom4([4]byte(binary.BigEndian.AppendUint32(nil, uint32(i))))
	if u.used[i] == size {
		u.full.Remove(single(number))
	}
	if u.used[i] += change; u.used[i] == size {
		u.full.Insert(single(number))
	}
}

func single(a netip.Addr) netip.Prefix { return netip.PrefixFrom(a, a.BitLen()) }

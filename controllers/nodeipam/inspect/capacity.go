package inspect

import (
	"math"
	"net/netip"
	"slices"

	"github.com/multicidr/controller-manager/controllers/ipam"
	"github.com/multicidr/controller-manager/controllers/nodeipam/allocator"
	"github.com/multicidr/controller-manager/controllers/nodeipam/clustercidr"
)

// room returns how many more Nodes get podCIDRs if all of them have these candidates, in their order. Every Node takes from the first
// candidate that has a free block in each of its families, so the first one is used up before the second one is touched. Addresses that
// several candidates share count once: for the candidate that is used up first. math.MaxUint64 means that number or more.
func (c *Cluster) room(candidates []*clustercidr.Pool) (total uint64) {
	var u usedUp
	for i, p := range candidates {
		free := uint64(math.MaxUint64)
		for _, r := range p.Ranges {
			free = min(free, c.free(p, r)-u.of(c, p, r))
		}
		if total += free; total < free {
			return math.MaxUint64
		}
		if !slices.ContainsFunc(candidates[i+1:], p.SharesWith) {
			continue
		}
		for _, r := range p.Ranges {
			for _, prefix := range u.next(c, p, r, free) {
				u.Insert(prefix)
			}
		}
	}
	return total
}

// usedUp are addresses that are free in the state and used up by earlier candidates.
type usedUp struct{ ipam.PrefixSet }

// of returns how many of the free blocks of a range are used up.
func (u *usedUp) of(c *Cluster, p *clustercidr.Pool, r ipam.Range) (n uint64) {
	var last netip.Prefix
	for prefix := range u.Overlapping(r.Prefix) {
		part := ipam.Range{Prefix: prefix, BlockBits: r.BlockBits}
		switch {
		case prefix.Bits() > r.BlockBits: // a part of a block
			part.Prefix = netip.PrefixFrom(prefix.Addr(), r.BlockBits).Masked()
		case prefix.Bits() < r.Prefix.Bits():
			part.Prefix = r.Prefix
		}
		if part.Prefix != last { // Several parts of a block follow each other.
			n += c.state.Free(p, part)
		}
		last = part.Prefix
	}
	return n
}

// next returns prefixes that contain exactly the next n free blocks of a range, from the cursor on. They are what n times Pick and Reserve take,
// found in as many steps as there are gaps between holdings.
func (u *usedUp) next(c *Cluster, p *clustercidr.Pool, r ipam.Range, n uint64) (prefixes []netip.Prefix) {
	cursor := c.state.Cursor(p, r.Family())
	if !r.Prefix.Contains(cursor) {
		cursor = r.Prefix.Addr()
	}
	first := netip.PrefixFrom(cursor, r.BlockBits).Masked().Addr()
	for _, behind := range []bool{true, false} { // behind the cursor first, and then from the start up to it
		s := search{state: c.state, used: u, p: p, blockBits: r.BlockBits, first: first, behind: behind, left: n}
		s.walk(r.Prefix)
		prefixes, n = append(prefixes, s.found...), s.left
	}
	return prefixes
}

// search finds free blocks on one side of an address.
type search struct {
	state     *allocator.State
	used      *usedUp
	p         *clustercidr.Pool
	blockBits int
	first     netip.Addr
	behind    bool // at first or behind it
	left      uint64
	found     []netip.Prefix
}

func (s *search) walk(prefix netip.Prefix) {
	if s.left == 0 {
		return
	}
	lower, upper, divisible := halves(prefix)
	divisible = divisible && prefix.Bits() < s.blockBits
	straddles := prefix.Contains(s.first) && prefix.Addr() != s.first
	if !straddles && (prefix.Addr().Compare(s.first) >= 0) != s.behind {
		return
	}
	blocks := ipam.Range{Prefix: prefix, BlockBits: s.blockBits}.Blocks()
	switch {
	case divisible && (straddles || blocks > s.left || !s.free(prefix)):
		s.walk(lower)
		s.walk(upper)
	case s.free(prefix):
		s.found = append(s.found, prefix)
		s.left -= min(s.left, blocks)
	}
}

// free reports whether nobody holds any of a prefix, it is not used up, and s.p does not exclude any of it.
func (s *search) free(prefix netip.Prefix) bool {
	for range s.state.Exhausted().Ledger.Holdings(prefix) {
		return false
	}
	return !s.used.Overlaps(prefix) && !s.p.Excluded.Overlaps(prefix)
}

// halves divides a prefix; ok is false for a single address.
func halves(p netip.Prefix) (lower, upper netip.Prefix, ok bool) {
	if p.IsSingleIP() {
		return p, p, false
	}
	bits := p.Bits()
	bytes := p.Addr().AsSlice()
	bytes[bits/8] |= 0x80 >> (bits % 8)
	second, _ := netip.AddrFromSlice(bytes)
	return netip.PrefixFrom(p.Addr(), bits+1), netip.PrefixFrom(second, bits+1), true
}

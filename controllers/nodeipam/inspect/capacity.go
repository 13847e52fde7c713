package inspect

import (
	"math"
	"net/netip"
	"slices"
	"strconv"

	"github.com/multicidr/controller-manager/controllers/ipam"
	"github.com/multicidr/controller-manager/controllers/nodeipam/clustercidr"
)

// room returns how many more Nodes get podCIDRs if all of them have these candidates, in their order. Every Node takes from the first
// candidate that has a free block in each of its families, so the first one is used up before the second one is touched. Addresses that
// several candidates share count once: for the candidate that is used up first. math.MaxUint64 means that number or more.
func (c *Cluster) room(candidates []*clustercidr.Pool) (total uint64) {
	var taken *ipam.Ledger // a copy of what is held, only if it is needed
	for i, p := range candidates {
		shared := slices.ContainsFunc(candidates[i+1:], p.SharesWith)
		if shared && taken == nil {
			taken = c.copyOf(candidates)
		}
		free := c.fewestFree(p)
		if taken != nil {
			free = fewestFreeIn(taken, p)
		}
		if total += free; total < free {
			return math.MaxUint64
		}
		if shared {
			useUp(taken, p, free, i)
		}
	}
	return total
}

// copyOf returns a ledger with all that is held in the ranges of pools, and with their cursors.
func (c *Cluster) copyOf(pools []*clustercidr.Pool) *ipam.Ledger {
	l := &ipam.Ledger{}
	seen := map[ipam.Owner]bool{}
	for _, p := range pools {
		for _, r := range p.Ranges {
			l.SetCursor(&p.Pool, r.Family(), c.state.Cursor(p, r.Family()))
			for _, h := range c.state.Holdings(r.Prefix) {
				if !seen[h.Owner] {
					seen[h.Owner] = true
					l.Hold(h.Owner, c.state.HeldBy(h.Owner)...)
				}
			}
		}
	}
	return l
}

func fewestFreeIn(l *ipam.Ledger, p *clustercidr.Pool) uint64 {
	n := uint64(math.MaxUint64)
	for _, r := range p.Ranges {
		n = min(n, l.Free(&p.Pool, r))
	}
	return n
}

// useUp holds the next n free blocks in each range of p. It does what n times Pick and Reserve do, in as many steps as there are gaps between
// holdings.
func useUp(l *ipam.Ledger, p *clustercidr.Pool, n uint64, number int) {
	var used []netip.Prefix
	for _, r := range p.Ranges {
		used = append(used, nextFree(l, p, r, n)...)
	}
	l.Hold(ipam.Owner{Kind: ipam.Kept, ID: strconv.Itoa(number)}, used...)
}

// nextFree returns prefixes that contain exactly the next n free blocks of a range, from the cursor on.
func nextFree(l *ipam.Ledger, p *clustercidr.Pool, r ipam.Range, n uint64) (prefixes []netip.Prefix) {
	cursor := l.Cursor(&p.Pool, r.Family())
	if !r.Prefix.Contains(cursor) {
		cursor = r.Prefix.Addr()
	}
	first := netip.PrefixFrom(cursor, r.BlockBits).Masked().Addr()
	for _, behind := range []bool{true, false} { // behind the cursor first, and then from the start up to it
		s := search{l: l, p: p, blockBits: r.BlockBits, first: first, behind: behind, left: n}
		s.walk(r.Prefix)
		prefixes, n = append(prefixes, s.found...), s.left
	}
	return prefixes
}

// search finds free blocks on one side of an address.
type search struct {
	l         *ipam.Ledger
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

// free reports whether nobody holds any of a prefix, and s.p does not exclude any of it.
func (s *search) free(prefix netip.Prefix) bool {
	for range s.l.Holdings(prefix) {
		return false
	}
	return !s.p.Excluded.Overlaps(prefix)
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

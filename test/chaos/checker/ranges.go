package checker

import (
	"cmp"
	"fmt"
	"math"
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

// Range is a prefix that is cut into blocks of one length. At most 2^62 blocks.
type Range struct {
	Prefix    netip.Prefix
	BlockBits int
}

// ParseRange reads a range with the length of its blocks, such as 10.0.0.0/16:24.
func ParseRange(s string) (Range, error) {
	// IPv6 has colons too; the last one is ours.
	i := strings.LastIndexByte(s, ':')
	if i < 0 {
		return Range{}, fmt.Errorf("%q: want PREFIX:BLOCKLENGTH, for example 10.0.0.0/16:24", s)
	}
	prefix, err := netip.ParsePrefix(s[:i])
	if err != nil {
		return Range{}, err
	}
	bits, err := strconv.Atoi(s[i+1:])
	if err != nil {
		return Range{}, fmt.Errorf("%q: block length: %w", s, err)
	}
	return newRange(prefix, bits)
}

func newRange(prefix netip.Prefix, blockBits int) (Range, error) {
	r := Range{Prefix: prefix.Masked(), BlockBits: blockBits}
	if blockBits < prefix.Bits() || blockBits > prefix.Addr().BitLen() || blockBits-prefix.Bits() > 62 {
		return Range{}, fmt.Errorf("%v cannot be cut into /%d blocks here", prefix, blockBits)
	}
	return r, nil
}

func (r Range) total() uint64 { return 1 << (r.BlockBits - r.Prefix.Bits()) }

// isBlock reports whether p is one of r's blocks.
func (r Range) isBlock(p netip.Prefix) bool {
	return p.Bits() == r.BlockBits && p.Masked() == p && r.Prefix.Contains(p.Addr())
}

// free returns how many of r's blocks share no address with any of held.
func (r Range) free(held []netip.Prefix) uint64 {
	type span struct{ first, last uint64 }
	var spans []span
	for _, h := range held {
		switch {
		case !h.Overlaps(r.Prefix):
		case h.Bits() <= r.Prefix.Bits():
			return 0
		case h.Bits() >= r.BlockBits:
			i := r.index(h.Addr())
			spans = append(spans, span{i, i})
		default:
			i := r.index(h.Masked().Addr())
			spans = append(spans, span{i, i + 1<<(r.BlockBits-h.Bits()) - 1})
		}
	}
	slices.SortFunc(spans, func(a, b span) int { return cmp.Compare(a.first, b.first) })
	free, next := uint64(0), uint64(0) // next is the first block that no span so far has covered
	for _, s := range spans {
		if s.first > next {
			free += s.first - next
		}
		next = max(next, s.last+1)
	}
	return free + r.total() - next
}

// index returns which block of r has the address.
func (r Range) index(a netip.Addr) uint64 {
	bytes, index := a.AsSlice(), uint64(0)
	for bit := r.Prefix.Bits(); bit < r.BlockBits; bit++ {
		index = index<<1 | uint64(bytes[bit/8]>>(7-bit%8)&1)
	}
	return index
}

// freeTuples returns how many Nodes could still get one block from every range.
func freeTuples(ranges []Range, held []netip.Prefix) uint64 {
	n := uint64(math.MaxUint64)
	for _, r := range ranges {
		n = min(n, r.free(held))
	}
	if len(ranges) == 0 {
		return 0
	}
	return n
}

// parsePrefixes reads CIDRs. One that cannot be read is an error: the API server lets none in.
func parsePrefixes(cidrs []string) ([]netip.Prefix, error) {
	prefixes := make([]netip.Prefix, len(cidrs))
	for i, s := range cidrs {
		p, err := netip.ParsePrefix(s)
		if err != nil {
			return nil, err
		}
		prefixes[i] = p
	}
	return prefixes, nil
}

// overlapping returns the first two of a and b that share an address.
func overlapping(a, b []netip.Prefix) (x, y netip.Prefix, ok bool) {
	for _, x := range a {
		for _, y := range b {
			if x.Overlaps(y) {
				return x, y, true
			}
		}
	}
	return x, y, false
}

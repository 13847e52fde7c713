package checker

import (
	"fmt"
	"math/big"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	netutils "k8s.io/utils/net"
)

// Range is a prefix that is cut into blocks of one length.
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
	if blockBits < prefix.Bits() || blockBits > prefix.Addr().BitLen() {
		return Range{}, fmt.Errorf("%v cannot be cut into /%d blocks here", prefix, blockBits)
	}
	return r, nil
}

// total returns the number of blocks, of which ::/0 can have 2^124.
func (r Range) total() *big.Int { return pow2(r.BlockBits - r.Prefix.Bits()) }

func pow2(n int) *big.Int { return new(big.Int).Lsh(big.NewInt(1), uint(n)) }

// isBlock reports whether p is one of r's blocks.
func (r Range) isBlock(p netip.Prefix) bool {
	return p.Bits() == r.BlockBits && p.Masked() == p && r.Prefix.Contains(p.Addr())
}

// free returns how many of r's blocks share no address with any of held.
func (r Range) free(held []netip.Prefix) *big.Int {
	type span struct{ first, end *big.Int } // of blocks, without end
	var spans []span
	for _, h := range held {
		if !h.Overlaps(r.Prefix) {
			continue
		}
		// The part of h that is in r, as whole blocks: at least the one that h is inside of.
		if h.Bits() < r.Prefix.Bits() {
			h = r.Prefix
		}
		first := r.index(h.Masked().Addr())
		spans = append(spans, span{first, new(big.Int).Add(first, pow2(max(0, r.BlockBits-h.Bits())))})
	}
	slices.SortFunc(spans, func(a, b span) int { return a.first.Cmp(b.first) })
	free, next := new(big.Int), new(big.Int) // next is the first block that no span so far has covered
	for _, s := range spans {
		if s.first.Cmp(next) > 0 {
			free.Add(free, new(big.Int).Sub(s.first, next))
		}
		if s.end.Cmp(next) > 0 {
			next = s.end
		}
	}
	return free.Add(free, new(big.Int).Sub(r.total(), next))
}

// index returns which block of r has the address.
func (r Range) index(a netip.Addr) *big.Int {
	distance := new(big.Int).Sub(new(big.Int).SetBytes(a.AsSlice()), new(big.Int).SetBytes(r.Prefix.Addr().AsSlice()))
	return distance.Rsh(distance, uint(a.BitLen()-r.BlockBits))
}

// freeTuples returns how many Nodes could still get one block from every range.
func freeTuples(ranges []Range, held []netip.Prefix) *big.Int {
	least := new(big.Int)
	for i, r := range ranges {
		if free := r.free(held); i == 0 || free.Cmp(least) < 0 {
			least = free
		}
	}
	return least
}

// parsePrefixes reads CIDRs, as the API server has stored them: those of a Node may have leading zeros, host bits, or be IPv4 addresses written as
// IPv6 ones.
func parsePrefixes(cidrs []string) ([]netip.Prefix, error) {
	prefixes := make([]netip.Prefix, len(cidrs))
	for i, s := range cidrs {
		_, network, err := netutils.ParseCIDRSloppy(s)
		if err != nil {
			return nil, err
		}
		address, _ := netip.AddrFromSlice(network.IP)
		bits, of := network.Mask.Size()
		if bits > of-address.Unmap().BitLen() { // else it is all IPv4 addresses or more, which nobody means by it
			bits -= of - address.Unmap().BitLen()
			address = address.Unmap()
		}
		prefixes[i] = netip.PrefixFrom(address, bits)
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

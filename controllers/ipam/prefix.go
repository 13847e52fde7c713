package ipam

import (
	"fmt"
	"math"
	"net/netip"
	"slices"
)

// Family is an address family. The zero value is IPv4.
type Family uint8

const (
	IPv4 Family = iota
	IPv6
)

// FamilyOf returns p's family. An IPv4-mapped IPv6 prefix counts as IPv6, as in net/netip.
func FamilyOf(p netip.Prefix) Family {
	if p.Addr().Is4() {
		return IPv4
	}
	return IPv6
}

// Bits returns the length of the family's addresses: 32 or 128.
func (f Family) Bits() int {
	if f == IPv4 {
		return 32
	}
	return 128
}

func (f Family) String() string {
	if f == IPv4 {
		return "IPv4"
	}
	return "IPv6"
}

// Range is a prefix that is cut into aligned blocks of one length. Use [NewRange] to make one.
// Invariant: Prefix is masked, and Prefix.Bits() <= BlockBits <= Family().Bits().
type Range struct {
	Prefix    netip.Prefix
	BlockBits int
}

// NewRange returns the range of p whose blocks have hostBits host bits each. Host bits set in p are masked off.
func NewRange(p netip.Prefix, hostBits int) (Range, error) {
	if !p.IsValid() {
		return Range{}, fmt.Errorf("%v is not a prefix", p)
	}
	free := FamilyOf(p).Bits() - p.Bits()
	if hostBits < 0 || hostBits > free {
		return Range{}, fmt.Errorf("a block of %d host bits does not fit into %v, which has %d", hostBits, p, free)
	}
	return Range{Prefix: p.Masked(), BlockBits: FamilyOf(p).Bits() - hostBits}, nil
}

func (r Range) Family() Family { return FamilyOf(r.Prefix) }

// Blocks returns the number of all blocks of the range, held or not. math.MaxUint64 means that number or more.
func (r Range) Blocks() uint64 { return pow2(r.BlockBits - r.Prefix.Bits()) }

// Without returns the prefixes of a that are not in b, in the order of a. It compares each with each: a Node has at most two.
func Without(a, b []netip.Prefix) (rest []netip.Prefix) {
	for _, p := range a {
		if !slices.Contains(b, p) {
			rest = append(rest, p)
		}
	}
	return rest
}

// pow2 returns 2^n, or math.MaxUint64 if 2^n does not fit.
func pow2(n int) uint64 {
	if n >= 64 {
		return math.MaxUint64
	}
	return 1 << n
}

// After returns the address behind p; it is not valid if p ends at the end of the address space.
func After(p netip.Prefix) netip.Addr {
	return keyOf(p.Addr()).last(uint8(p.Bits())).addr(FamilyOf(p)).Next()
}

func add(a, b uint64) uint64 {
	if a > math.MaxUint64-b {
		return math.MaxUint64
	}
	return a + b
}

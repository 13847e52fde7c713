package ipam

import (
	"math/rand/v2"
	"net/netip"
)

// dice is the source of choices in random tests: it returns a number in [0, n), where 0 < n <= 256.
type dice func(n int) int

func one[T any](d dice, of []T) T { return of[d(len(of))] }

// seeded returns dice that roll the same numbers every time.
func seeded(seed uint64) dice { return rand.New(rand.NewPCG(seed, 0)).IntN }

// scripted returns dice that read their numbers from data, so that a fuzzer can choose them. After the last number they roll 0.
func scripted(data *[]byte) dice {
	return func(n int) int {
		if len(*data) == 0 {
			return 0
		}
		b := int((*data)[0])
		*data = (*data)[1:]
		return b % n
	}
}

// someRange returns a range that probably shares addresses with others, because there are only few places and lengths.
func (d dice) someRange(f Family) Range {
	length := one(d, [][]int{{0, 8, 20, 24, 26, 28, 30, 32}, {0, 8, 32, 48, 118, 120, 124, 128}}[f])
	block := min(length+one(d, []int{0, 1, 2, 3, 4, 6, 8, 16, 24, 32, 104, 128}), f.Bits())
	return Range{netip.PrefixFrom(d.somePlace(f), length).Masked(), block}
}

// somePlace returns one of a few addresses: both ends of the address space, and places inside.
func (d dice) somePlace(f Family) netip.Addr {
	return netip.MustParseAddr(one(d, [][]string{
		{"0.0.0.0", "10.0.0.0", "10.0.0.64", "10.0.8.0", "255.255.255.192"},
		{"::", "fd00::", "fd00::40", "fd00:0:0:1::", "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffc0"},
	}[f]))
}

// somePrefixIn returns a prefix of a length between shortest and longest at an address inside p.
func (d dice) somePrefixIn(p netip.Prefix, shortest, longest int) netip.Prefix {
	hostBits := p.Addr().BitLen() - p.Bits()
	at := first(p)
	for range d(4) {
		if hostBits > 0 {
			near := one(d, []int{8, 8, 128}) // mostly close to p's length, so that prefixes meet
			at.SetBit(at, hostBits-1-d(min(hostBits, near)), uint(d(2)))
		}
	}
	return netip.PrefixFrom(addrAt(at, FamilyOf(p)), max(longest-d(10), min(shortest, longest)))
}

// someForeignPrefix returns a narrow prefix near the ranges, or a prefix of any length, from a single address to the whole
// address space.
func (d dice) someForeignPrefix() netip.Prefix {
	f := Family(d(2))
	if d(10) > 0 {
		return d.somePrefixIn(netip.PrefixFrom(d.somePlace(f), f.Bits()-6), f.Bits()-8, f.Bits())
	}
	bits := one(d, []int{0, 1, f.Bits() / 2, f.Bits() - 1, f.Bits(), d(f.Bits() + 1)})
	return netip.PrefixFrom(d.somePlace(f), bits)
}

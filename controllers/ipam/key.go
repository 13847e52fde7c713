package ipam

import (
	"encoding/binary"
	"math/bits"
	"net/netip"
)

// key is an address as a bit string. Its first bit is the top bit of hi. An IPv4 address fills the top 32 bits, and the
// rest is zero. All functions count bits from the left, so they work for both families.
type key struct{ hi, lo uint64 }

func keyOf(a netip.Addr) key {
	if a.Is4() {
		b := a.As4()
		return key{hi: uint64(binary.BigEndian.Uint32(b[:])) << 32}
	}
	b := a.As16()
	return key{hi: binary.BigEndian.Uint64(b[:8]), lo: binary.BigEndian.Uint64(b[8:])}
}

func (k key) addr(f Family) netip.Addr {
	if f == IPv4 {
		var b [4]byte
		binary.BigEndian.PutUint32(b[:], uint32(k.hi>>32))
		return netip.AddrFrom4(b)
	}
	var b [16]byte
	binary.BigEndian.PutUint64(b[:8], k.hi)
	binary.BigEndian.PutUint64(b[8:], k.lo)
	return netip.AddrFrom16(b)
}

// mask returns the key whose first n bits are one.
func mask(n uint8) key {
	if n <= 64 {
		return key{hi: ^uint64(0) << (64 - n)}
	}
	return key{hi: ^uint64(0), lo: ^uint64(0) << (128 - n)}
}

func (k key) and(o key) key { return key{k.hi & o.hi, k.lo & o.lo} }
func (k key) or(o key) key  { return key{k.hi | o.hi, k.lo | o.lo} }
func (k key) not() key      { return key{^k.hi, ^k.lo} }

func (k key) less(o key) bool {
	return k.hi < o.hi || k.hi == o.hi && k.lo < o.lo
}

// bit returns bit i, counted from the left. Requires i < 128.
func (k key) bit(i uint8) int {
	if i < 64 {
		return int(k.hi >> (63 - i) & 1)
	}
	return int(k.lo >> (127 - i) & 1)
}

// withBit returns k with bit i set.
func (k key) withBit(i uint8) key {
	if i < 64 {
		k.hi |= 1 << (63 - i)
	} else {
		k.lo |= 1 << (127 - i)
	}
	return k
}

// common returns the number of leading bits that k and o share, at most limit.
func (k key) common(o key, limit uint8) uint8 {
	n := bits.LeadingZeros64(k.hi ^ o.hi)
	if n == 64 {
		n += bits.LeadingZeros64(k.lo ^ o.lo)
	}
	return min(uint8(n), limit)
}

// last returns the highest address of k/n. The bits of k after the first n must be zero.
func (k key) last(n uint8) key { return k.or(mask(n).not()) }

package ipam

import (
	"math/big"
	"net/netip"
	"testing"

	"github.com/multicidr/controller-manager/test/seeds"
)

// FuzzRange checks the arithmetic of keys and ranges against big integers.
func FuzzRange(f *testing.F) {
	f.Add(false, uint64(0), uint64(0), uint64(0), uint64(0), uint8(0), uint8(0))
	f.Add(false, uint64(0x0a000000)<<32, uint64(0), uint64(0x0a000100)<<32, uint64(0), uint8(16), uint8(8))
	f.Add(false, ^uint64(0), uint64(0), uint64(0), uint64(0), uint8(32), uint8(0))
	f.Add(true, uint64(0xfd)<<56, uint64(1), uint64(0xfd)<<56, uint64(2), uint8(64), uint8(64))
	f.Add(true, ^uint64(0), ^uint64(0), ^uint64(0), ^uint64(0)-1, uint8(128), uint8(0))
	f.Add(true, uint64(0), uint64(0xffff0a000000), uint64(1), uint64(0), uint8(104), uint8(65))
	f.Fuzz(func(t *testing.T, v6 bool, hi, lo, hi2, lo2 uint64, length, hostBits uint8) {
		fam, k, k2 := IPv4, key{hi: hi &^ (1<<32 - 1)}, key{hi: hi2 &^ (1<<32 - 1)}
		if v6 {
			fam, k, k2 = IPv6, key{hi, lo}, key{hi2, lo2}
		}
		checkKeys(t, fam, k, k2, uint8(int(length)%(fam.Bits()+1)))
		checkRange(t, netip.PrefixFrom(k.addr(fam), int(length)%(fam.Bits()+1)), int(int8(hostBits)))
	})
}

func checkKeys(t *testing.T, f Family, k, other key, n uint8) {
	t.Helper()
	if keyOf(k.addr(f)) != k {
		t.Errorf("keyOf(%v) = %v, want %v", k.addr(f), keyOf(k.addr(f)), k)
	}
	a, b := k.number(), other.number()
	if got, want := k.less(other), a.Cmp(b) < 0; got != want {
		t.Errorf("%v.less(%v) = %v, want %v", k, other, got, want)
	}
	differing := new(big.Int).Xor(a, b).BitLen() // position of the first difference, from the right
	if got, want := int(k.common(other, n)), min(128-differing, int(n)); got != want {
		t.Errorf("%v.common(%v, %d) = %d, want %d", k, other, n, got, want)
	}
	rest := new(big.Int).Sub(size(128-int(n)), big.NewInt(1))
	if got, want := mask(n).number(), new(big.Int).Sub(size(128), size(128-int(n))); got.Cmp(want) != 0 {
		t.Errorf("mask(%d) = %x, want %x", n, got, want)
	}
	if got, want := k.and(mask(n)).number(), new(big.Int).AndNot(a, rest); got.Cmp(want) != 0 {
		t.Errorf("%v masked to %d is %x, want %x", k, n, got, want)
	}
	if got, want := k.and(mask(n)).last(n).number(), new(big.Int).Or(a, rest); got.Cmp(want) != 0 {
		t.Errorf("last(%d) of %v is %x, want %x", n, k, got, want)
	}
	if n == 128 {
		return
	}
	if got, want := k.bit(n), int(a.Bit(127-int(n))); got != want {
		t.Errorf("%v.bit(%d) = %d, want %d", k, n, got, want)
	}
	if got, want := k.withBit(n).number(), new(big.Int).SetBit(a, 127-int(n), 1); got.Cmp(want) != 0 {
		t.Errorf("%v.withBit(%d) = %x, want %x", k, n, got, want)
	}
}

// number returns k as the 128-bit number that it stands for.
func (k key) number() *big.Int {
	n := new(big.Int).Lsh(new(big.Int).SetUint64(k.hi), 64)
	return n.Or(n, new(big.Int).SetUint64(k.lo))
}

func checkRange(t *testing.T, p netip.Prefix, hostBits int) {
	t.Helper()
	free := p.Addr().BitLen() - p.Bits()
	r, err := NewRange(p, hostBits)
	if fits := 0 <= hostBits && hostBits <= free; fits != (err == nil) {
		t.Fatalf("NewRange(%v, %d): %v", p, hostBits, err)
	}
	if a := After(p); a != addrAt(after(p), FamilyOf(p)) {
		t.Errorf("After(%v) = %v", p, a)
	}
	if err != nil {
		return
	}
	if r.Prefix != p.Masked() || r.BlockBits != p.Addr().BitLen()-hostBits {
		t.Errorf("NewRange(%v, %d) = %v", p, hostBits, r)
	}
	if want := capped(size(free - hostBits)); r.Blocks() != want {
		t.Errorf("%v has %d blocks, want %d", r, r.Blocks(), want)
	}
}

// FuzzPrefixSet lets the fuzzer choose the steps of a set's history.
func FuzzPrefixSet(f *testing.F) {
	addRandom(f)
	f.Fuzz(func(t *testing.T, data []byte) {
		h := setHistory{t: t, dice: scripted(&data)}
		defer func() { seeds.Report(t, 0, h.told) }()
		for steps := 0; len(data) > 0 && steps < 100; steps++ {
			h.step()
		}
		h.end()
	})
}

// FuzzLedger lets the fuzzer choose the pools and the steps of a ledger's history.
func FuzzLedger(f *testing.F) {
	addRandom(f)
	f.Fuzz(func(t *testing.T, data []byte) {
		h := newHistory(t, scripted(&data))
		defer func() { seeds.Report(t, 0, h.told) }()
		for steps := 0; len(data) > 0 && steps < 100; steps++ {
			h.step()
		}
		h.end()
	})
}

// addRandom gives the fuzzer histories of some length to start from.
func addRandom(f *testing.F) {
	for seed := range uint64(8) {
		d := seeded(seed)
		data := make([]byte, 100<<(seed%4))
		for i := range data {
			data[i] = byte(d(256))
		}
		f.Add(data)
	}
}

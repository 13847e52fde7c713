package ipam

import (
	"fmt"
	"iter"
	"net/netip"
	"slices"
	"testing"

	"github.com/multicidr/controller-manager/test/seeds"
)

// TestPrefixSetAgainstList compares a set with a plain list after each of many random steps.
func TestPrefixSetAgainstList(t *testing.T) {
	seeds.Each(t, 20, func(t *testing.T, seed uint64) {
		h := setHistory{t: t, dice: seeded(seed)}
		defer func() { seeds.Report(t, seed, h.told) }()
		for range 200 {
			h.step()
		}
		h.end()
	})
}

// setHistory is a set, a list of its members (each as often as it was inserted), and everything that was done to both.
type setHistory struct {
	t testing.TB
	dice
	set  PrefixSet
	list prefixList
	told []string
}

func (h *setHistory) fail(format string, args ...any) {
	h.t.Helper()
	h.t.Fatalf(format, args...)
}

func (h *setHistory) step() {
	h.t.Helper()
	p := h.someForeignPrefix()
	if len(h.list) > 0 && h.dice(2) == 0 {
		p = one(h.dice, h.list[:min(len(h.list), 256)])
	}
	if h.dice(5) < 3 {
		h.told = append(h.told, fmt.Sprintf("insert %v", p))
		h.set.Insert(p)
		h.list = append(h.list, p.Masked())
	} else {
		h.remove(p)
	}
	h.ask(h.someForeignPrefix())
}

func (h *setHistory) remove(p netip.Prefix) {
	h.t.Helper()
	h.told = append(h.told, fmt.Sprintf("remove %v", p))
	i := slices.Index(h.list, p.Masked())
	if got, want := h.set.Remove(p), i >= 0; got != want {
		h.fail("Remove(%v) = %v, want %v", p, got, want)
	}
	if i >= 0 {
		h.list = slices.Delete(h.list, i, i+1)
	}
}

// ask compares every answer about p and the blocks inside p.
func (h *setHistory) ask(p netip.Prefix) {
	h.t.Helper()
	members := map[netip.Prefix]uint32{}
	for _, m := range h.list {
		members[m]++
	}
	if got, want := h.set.Overlaps(p), h.list.overlaps(p); got != want {
		h.fail("Overlaps(%v) = %v, want %v", p, got, want)
	}
	var overlapping []netip.Prefix
	for m := range members {
		if m.Overlaps(p) {
			overlapping = append(overlapping, m)
		}
	}
	slices.SortFunc(overlapping, byAddress)
	if got := slices.Collect(h.set.Overlapping(p)); !slices.Equal(got, overlapping) {
		h.fail("Overlapping(%v) = %v, want %v", p, got, overlapping)
	}
	if n := h.dice(len(overlapping) + 1); !slices.Equal(firstOf(n, h.set.Overlapping(p)), overlapping[:n]) {
		h.fail("Overlapping(%v), left after %d, differs from %v", p, n, overlapping)
	}

	f := FamilyOf(p)
	bits, from := min(p.Bits()+h.dice(10), f.Bits()), h.someForeignPrefix().Addr()
	block, ok := h.set.NextFree(p, bits, from)
	wantBlock, wantOK := h.list.nextFree(p, bits, from)
	if block != wantBlock || ok != wantOK {
		h.fail("NextFree(%v, %d, %v) = %v, %v, want %v, %v", p, bits, from, block, ok, wantBlock, wantOK)
	}
	free, taken := count(&h.set, &PrefixSet{}, p, bits)
	if wantFree, wantTaken := h.list.free(p, bits), h.list.taken(p, bits); free != wantFree || taken != wantTaken {
		h.fail("count(%v, %d) = %d, %d, want %d, %d", p, bits, free, taken, wantFree, wantTaken)
	}
}

// end removes everything. Nothing may be left then.
func (h *setHistory) end() {
	h.t.Helper()
	for len(h.list) > 0 {
		h.remove(h.list[h.dice(min(len(h.list), 256))])
		h.ask(h.someForeignPrefix())
	}
	if h.set != (PrefixSet{}) {
		h.fail("trie nodes leaked: %+v", h.set)
	}
}

func firstOf(n int, seq iter.Seq[netip.Prefix]) []netip.Prefix {
	var got []netip.Prefix
	if n == 0 {
		return got
	}
	for p := range seq {
		if got = append(got, p); len(got) == n {
			break
		}
	}
	return got
}

// TestImpossibleBlockLengths: a block that is wider than the range, or narrower than an address, is never free.
func TestImpossibleBlockLengths(t *testing.T) {
	for _, bits := range []int{-1, 0, 23, 33, 128, 129, 1000} {
		var s PrefixSet
		if block, ok := s.NextFree(pfx("10.0.0.0/24"), bits, netip.Addr{}); ok {
			t.Errorf("NextFree gave %v for a /%d", block, bits)
		}
	}
}

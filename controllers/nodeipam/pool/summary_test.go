package pool

import (
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"
)

// TestSummary compares summaries of prefixes in 10.0.0.0/24 and fd00::/120 with the addresses themselves.
func TestSummary(t *testing.T) {
	networks := []netip.Addr{netip.MustParseAddr("10.0.0.0"), netip.MustParseAddr("fd00::")}
	contains := func(prefixes []netip.Prefix) (all [2][256]bool) {
		for f, addr := range networks {
			for i := range 256 {
				all[f][i] = slices.ContainsFunc(prefixes, func(p netip.Prefix) bool { return p.Contains(addr) })
				addr = addr.Next()
			}
		}
		return all
	}
	random := rand.New(rand.NewPCG(1, 2))
	for range 3000 {
		var all []netip.Prefix
		for range random.IntN(30) {
			b := networks[random.IntN(2)].AsSlice()
			b[len(b)-1] = byte(random.IntN(256))
			addr, _ := netip.AddrFromSlice(b)
			all = append(all, netip.PrefixFrom(addr, addr.BitLen()-random.IntN(5)).Masked())
		}
		exact, few := Summary(all, 1000), Summary(all, 4)
		if contains(exact) != contains(all) {
			t.Fatalf("%v: the summary %v contains other addresses", all, exact)
		}
		for i, p := range exact {
			if i > 0 && exact[i-1].Overlaps(p) || slices.ContainsFunc(exact[:i], func(o netip.Prefix) bool {
				j, ok := join(o, p)
				return ok && o.Bits() == p.Bits() && j.Bits() == p.Bits()-1
			}) {
				t.Fatalf("%v: the summary %v can be shorter", all, exact)
			}
		}
		want, got := contains(all), contains(few)
		for f := range want {
			for i := range want[f] {
				if want[f][i] && !got[f][i] {
					t.Fatalf("%v: the summary %v lacks an address", all, few)
				}
			}
		}
		if len(few) > 4 {
			t.Fatalf("%v: the summary %v is too long", all, few)
		}
	}
	// As little as possible is added.
	got := Summary([]netip.Prefix{netip.MustParsePrefix("10.0.0.0/24"), netip.MustParsePrefix("10.0.2.0/24"), netip.MustParsePrefix("10.0.8.0/24")}, 2)
	if want := []netip.Prefix{netip.MustParsePrefix("10.0.0.0/22"), netip.MustParsePrefix("10.0.8.0/24")}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

package pool

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"

	networkingv1 "github.com/multicidr/controller-manager/apis/networking/v1"
	. "github.com/multicidr/controller-manager/controllers/nodeipam/internal/objects"
)

// TestRanges adds, replaces and removes pools whose ranges overlap now and then, in one family or in both: they are the same, or one contains the
// other, and some are not cut into blocks. After each step Ranges says the same as a look at all pools.
func TestRanges(t *testing.T) {
	alone, meet := 0, 0
	for seed := range uint64(200) {
		d := rand.New(rand.NewPCG(seed, 1))
		var r Ranges
		var pools []*Pool
		drawn := func() *Pool {
			bits := 20 + d.IntN(6)
			spec := networkingv1.ClusterCIDRSpec{PerNodeHostBits: 4, IPv4: netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 0, byte(d.IntN(64)), 0}), bits).Masked().String()}
			if d.IntN(2) == 0 {
				spec.IPv6 = fmt.Sprintf("fd00:0:0:%x::/%d", d.IntN(16), 62+d.IntN(4))
			}
			if d.IntN(3) == 0 {
				spec.PerNodeHostBits = 1 // against the rules, so its ranges are not cut
			}
			return Compile(ClusterCIDR("cc", spec))
		}
		for step := range 60 {
			switch n := d.IntN(10); {
			case n < 5 || len(pools) == 0:
				p := drawn()
				if len(pools) > 0 && d.IntN(10) == 0 {
					p = pools[d.IntN(len(pools))].With("another one", "") // with the same ranges
				}
				pools = append(pools, p)
				r.Replace(nil, p)
			case n < 7:
				i, p := d.IntN(len(pools)), drawn()
				if d.IntN(2) == 0 {
					p = pools[i].With("a problem", "") // with the same ranges
				}
				r.Replace(pools[i], p)
				pools[i] = p
			default:
				i := d.IntN(len(pools))
				r.Replace(pools[i], nil)
				pools = slices.Delete(pools, i, i+1)
			}
			for _, p := range pools {
				found := map[*Pool]bool{}
				for o := range r.Overlapping(p.Extent()...) {
					found[o] = true
				}
				want := map[*Pool]bool{}
				for _, o := range pools {
					if slices.ContainsFunc(o.Extent(), func(a netip.Prefix) bool { return slices.ContainsFunc(p.Extent(), a.Overlaps) }) {
						want[o] = true
					}
				}
				if !maps.Equal(found, want) {
					t.Fatalf("seed %d, step %d: %v overlaps %d pools, want %d", seed, step, p.Extent(), len(found), len(want))
				}
				if r.Alone(p) != (len(want) == 1) {
					t.Fatalf("seed %d, step %d: %v is alone: %t, but it overlaps %d pools, itself among them", seed, step, p.Extent(), r.Alone(p), len(want))
				}
				if r.Alone(p) {
					alone++
				} else {
					meet++
				}
			}
		}
		for _, p := range pools {
			r.Replace(p, nil)
		}
		if len(r.meeting) > 0 || len(slices.Collect(r.Overlapping(netip.MustParsePrefix("0.0.0.0/0"), netip.MustParsePrefix("::/0")))) > 0 {
			t.Fatalf("seed %d: left over: %v", seed, r)
		}
	}
	if min(alone, meet) < 10_000 {
		t.Errorf("%d pools were alone and %d were not: too few to compare", alone, meet)
	}
}

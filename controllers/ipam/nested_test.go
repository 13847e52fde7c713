package ipam

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
)

// Nested yields the pairs that a comparison of each with each finds, and those only.
func TestNested(t *testing.T) {
	for _, prefixes := range []string{
		"", "10.0.0.0/8", "10.0.0.0/24 10.0.1.0/24", "10.0.0.0/8 10.0.0.0/16 10.0.0.0/24 10.1.0.0/24 11.0.0.0/8",
		"10.0.0.0/8 10.0.0.0/8 10.0.0.0/9 10.128.0.0/9", "10.0.0.0/16 10.1.0.0/16 10.1.1.0/24 10.2.0.0/16 fd00::/8 fd00::/64",
	} {
		var all []Holding
		for i, p := range strings.Fields(prefixes) {
			all = append(all, Holding{Owner: Owner{Kind: Node, ID: fmt.Sprint(i)}, Prefix: netip.MustParsePrefix(p)})
		}
		var want, got []string
		for i, outer := range all {
			for _, inner := range all[i+1:] {
				if outer.Prefix.Overlaps(inner.Prefix) {
					want = append(want, outer.Owner.ID+" "+inner.Owner.ID)
				}
			}
		}
		for outer, inner := range Nested(slices.Values(all)) {
			got = append(got, outer.Owner.ID+" "+inner.Owner.ID)
		}
		slices.Sort(want)
		slices.Sort(got)
		if !slices.Equal(got, want) {
			t.Errorf("%s: got %v, want %v", prefixes, got, want)
		}
		for range Nested(slices.Values(all)) {
			break // and an end before the end is no panic
		}
	}
}

package traffic

import (
	"net/netip"
	"testing"
)

func TestDistance(t *testing.T) {
	for name, tc := range map[string]struct {
		from, to string
		want     float64
	}{
		"none":                      {"10.0.0.0", "10.0.0.0", 0},
		"forward":                   {"10.0.0.0", "10.0.1.0", 256},
		"back":                      {"10.0.1.1", "10.0.1.0", -1},
		"back, over half of IPv6":   {"fd00:0:0:1::", "fd00::ffff:ffff:ffff:ffff", -1},
		"further than 64 bits hold": {"fd00::", "fd01::", 0x1p112},
	} {
		if got := distance(netip.MustParseAddr(tc.from), netip.MustParseAddr(tc.to)); got != tc.want {
			t.Errorf("%s: distance from %s to %s is %v, want %v", name, tc.from, tc.to, got, tc.want)
		}
	}
}

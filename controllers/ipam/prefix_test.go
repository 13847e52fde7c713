package ipam

import (
	"fmt"
	"math"
	"net/netip"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

func TestNewRange(t *testing.T) {
	for name, tc := range map[string]struct {
		prefix   netip.Prefix
		hostBits int
		want     Range
		blocks   uint64
		wantErr  string
	}{
		"a /16 of /24s":             {prefix: pfx("10.0.0.0/16"), hostBits: 8, want: Range{pfx("10.0.0.0/16"), 24}, blocks: 256},
		"host bits are masked off":  {prefix: pfx("10.0.7.9/16"), hostBits: 8, want: Range{pfx("10.0.0.0/16"), 24}, blocks: 256},
		"one block":                 {prefix: pfx("10.0.0.0/24"), hostBits: 8, want: Range{pfx("10.0.0.0/24"), 24}, blocks: 1},
		"single addresses":          {prefix: pfx("10.0.0.0/24"), hostBits: 0, want: Range{pfx("10.0.0.0/24"), 32}, blocks: 256},
		"all of IPv4":               {prefix: pfx("0.0.0.0/0"), hostBits: 0, want: Range{pfx("0.0.0.0/0"), 32}, blocks: 1 << 32},
		"an IPv6 /48 of /64s":       {prefix: pfx("fd00::/48"), hostBits: 64, want: Range{pfx("fd00::/48"), 64}, blocks: 65536},
		"2^63 blocks are counted":   {prefix: pfx("fd00::/1"), hostBits: 64, want: Range{pfx("8000::/1"), 64}, blocks: 1 << 63},
		"2^64 blocks are too many":  {prefix: pfx("fd00::/0"), hostBits: 64, want: Range{pfx("::/0"), 64}, blocks: math.MaxUint64},
		"all of IPv6":               {prefix: pfx("::/0"), hostBits: 0, want: Range{pfx("::/0"), 128}, blocks: math.MaxUint64},
		"IPv4-mapped is IPv6":       {prefix: pfx("::ffff:10.0.0.0/112"), hostBits: 8, want: Range{pfx("::ffff:10.0.0.0/112"), 120}, blocks: 256},
		"a block larger than it":    {prefix: pfx("10.0.0.0/24"), hostBits: 9, wantErr: "a block of 9 host bits does not fit into 10.0.0.0/24, which has 8"},
		"IPv6's host bits for IPv4": {prefix: pfx("10.0.0.0/8"), hostBits: 64, wantErr: "a block of 64 host bits does not fit into 10.0.0.0/8, which has 24"},
		"negative host bits":        {prefix: pfx("10.0.0.0/24"), hostBits: -1, wantErr: "a block of -1 host bits does not fit into 10.0.0.0/24, which has 8"},
		"no prefix":                 {hostBits: 8, wantErr: "invalid Prefix is not a prefix"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := NewRange(tc.prefix, tc.hostBits)
			gotErr := ""
			if err != nil {
				gotErr = err.Error()
			}
			if diff := cmp.Diff(tc.wantErr, gotErr); diff != "" {
				t.Fatalf("error (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(tc.want, got, cmpopts.EquateComparable(netip.Prefix{})); diff != "" {
				t.Errorf("range (-want +got):\n%s", diff)
			}
			if err == nil && got.Blocks() != tc.blocks {
				t.Errorf("Blocks() = %d, want %d", got.Blocks(), tc.blocks)
			}
		})
	}
}

// TestTextOfValues checks that every value has its own text, because messages contain these texts.
func TestTextOfValues(t *testing.T) {
	want := "IPv4 IPv6 Node/a Service/a Enabled Disabled Terminating Invalid None"
	got := fmt.Sprint(IPv4, " ", IPv6, " ", Owner{Node, "a"}, " ", Owner{Service, "a"}, " ",
		Enabled, " ", Disabled, " ", Terminating, " ", Invalid, " ", None)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestWithout(t *testing.T) {
	a, b, c := pfx("10.0.0.0/24"), pfx("10.0.1.0/24"), pfx("fd00::/64")
	for what, tc := range map[string]struct{ a, b, want []netip.Prefix }{
		"nothing from nothing":   {nil, nil, nil},
		"nothing from some":      {[]netip.Prefix{a, c}, nil, []netip.Prefix{a, c}},
		"some from nothing":      {nil, []netip.Prefix{a}, nil},
		"all, in another order":  {[]netip.Prefix{a, c}, []netip.Prefix{c, a}, nil},
		"one of two":             {[]netip.Prefix{a, c}, []netip.Prefix{b, a}, []netip.Prefix{c}},
		"what is wider is other": {[]netip.Prefix{a}, []netip.Prefix{pfx("10.0.0.0/23")}, []netip.Prefix{a}},
	} {
		if got := Without(tc.a, tc.b); !slices.Equal(got, tc.want) {
			t.Errorf("%s: %v, want %v", what, got, tc.want)
		}
	}
}

package checker

import (
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestParseRange(t *testing.T) {
	tests := map[string]struct {
		in   string
		want string // empty: refused
	}{
		"IPv4":                             {in: "10.0.0.0/16:24", want: "10.0.0.0/16:24"},
		"host bits are masked off":         {in: "10.0.3.4/16:24", want: "10.0.0.0/16:24"},
		"IPv6 has colons of its own":       {in: "fd00::/48:64", want: "fd00::/48:64"},
		"no block length":                  {in: "10.0.0.0/16"},
		"blocks larger than the range":     {in: "10.0.0.0/16:15"},
		"blocks smaller than an address":   {in: "10.0.0.0/16:33"},
		"more blocks than an int64 counts": {in: "::/0:124", want: "::/0:124"},
		"the block length is not a number": {in: "10.0.0.0/16:x"},
	}
	for sentence, tc := range tests {
		t.Run(sentence, func(t *testing.T) {
			got, err := ParseRange(tc.in)
			if tc.want == "" {
				if err == nil {
					t.Errorf("%v, want an error", got)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			want := rng(tc.want)
			if got != want {
				t.Errorf("got %v, want %v", got, want)
			}
		})
	}
}

// rng makes a range without ParseRange.
func rng(s string) Range {
	for i := len(s) - 1; ; i-- {
		if s[i] == ':' {
			bits := 0
			for _, digit := range s[i+1:] {
				bits = 10*bits + int(digit-'0')
			}
			return Range{Prefix: netip.MustParsePrefix(s[:i]), BlockBits: bits}
		}
	}
}

func TestFree(t *testing.T) {
	tests := map[string]struct {
		in   string
		held []string
		want string
	}{
		"nothing is held":                       {in: "10.0.0.0/16:24", want: "256"},
		"one block":                             {in: "10.0.0.0/16:24", held: []string{"10.0.7.0/24"}, want: "255"},
		"the same block twice":                  {in: "10.0.0.0/16:24", held: []string{"10.0.7.0/24", "10.0.7.0/24"}, want: "255"},
		"first and last block":                  {in: "10.0.0.0/16:24", held: []string{"10.0.255.0/24", "10.0.0.0/24"}, want: "254"},
		"a small prefix spoils a block":         {in: "10.0.0.0/16:24", held: []string{"10.0.7.16/28", "10.0.7.32/28"}, want: "255"},
		"a large prefix spoils several":         {in: "10.0.0.0/16:24", held: []string{"10.0.16.0/20"}, want: "240"},
		"nested prefixes count once":            {in: "10.0.0.0/16:24", held: []string{"10.0.16.0/20", "10.0.17.0/24", "10.0.31.0/28"}, want: "240"},
		"everything is in one prefix":           {in: "10.0.0.0/16:24", held: []string{"10.0.0.0/8"}, want: "0"},
		"the range itself":                      {in: "10.0.0.0/16:24", held: []string{"10.0.0.0/16"}, want: "0"},
		"what lies elsewhere does not count":    {in: "10.0.0.0/16:24", held: []string{"10.1.0.0/24", "fd00::/64"}, want: "256"},
		"a range of one block":                  {in: "10.0.0.0/24:24", want: "1"},
		"IPv6 across bytes":                     {in: "fd00::/61:66", held: []string{"fd00::/66", "fd00:0:0:7:c000::/66"}, want: "30"},
		"a wide IPv6 range":                     {in: "fd00::/16:78", held: []string{"fd00::1/128"}, want: "4611686018427387903"},
		"the widest range":                      {in: "::/0:124", held: []string{"8000::/1", "::1/128"}, want: "10633823966279326983230456482242756607"},
		"2^64 blocks, less one":                 {in: "::/0:64", held: []string{"ffff::/64"}, want: "18446744073709551615"},
		"a prefix wider than the range":         {in: "fd00::/16:64", held: []string{"::/0"}, want: "0"},
		"host bits of what is held are ignored": {in: "10.0.0.0/16:24", held: []string{"10.0.17.5/20"}, want: "240"},
	}
	for sentence, tc := range tests {
		t.Run(sentence, func(t *testing.T) {
			held, err := parsePrefixes(tc.held)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, rng(tc.in).free(held).String()); diff != "" {
				t.Errorf("free (-want +got):\n%s", diff)
			}
		})
	}
}

func TestParsePrefixes(t *testing.T) {
	for in, want := range map[string]string{
		"10.0.3.4/16":         "10.0.0.0/16",
		"010.000.000.000/08":  "10.0.0.0/8",
		"::ffff:10.1.0.0/112": "10.1.0.0/16",
		"::ffff:0:0/96":       "::ffff:0.0.0.0/96",
		"::ffff:0:0/95":       "::fffe:0:0/95",
		"::/0":                "::/0",
		"2001:DB8:0:0::1/64":  "2001:db8::/64",
		"255.255.255.255/32":  "255.255.255.255/32",
	} {
		got, err := parsePrefixes([]string{in})
		if err != nil || got[0].String() != want {
			t.Errorf("%s: %v, %v, want %s", in, got, err, want)
		}
	}
	if got, err := parsePrefixes([]string{"10.0.0.0"}); err == nil {
		t.Errorf("%v, want an error", got)
	}
}

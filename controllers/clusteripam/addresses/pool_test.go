package addresses

import (
	"math"
	"strings"
	"testing"
)

// What cluster-api-ipam-provider-in-cluster v1.1.0 makes of these pools: its totals, its first addresses, and what its webhook refuses.
func TestPool(t *testing.T) {
	for name, tc := range map[string]struct {
		Spec
		total   int
		first   string
		refused string // a part of the error
	}{
		"a subnet":                              {Spec: Spec{Addresses: list("192.168.1.0/24"), Prefix: 24, Gateway: "192.168.1.1"}, total: 253, first: "192.168.1.2"},
		"with its reserved addresses":           {Spec: Spec{Addresses: list("192.168.1.0/24"), Prefix: 24, Gateway: "192.168.1.1", AllocateReserved: true}, total: 255, first: "192.168.1.0"},
		"without a prefix":                      {Spec: Spec{Addresses: list("172.16.40.200/29")}, total: 8, first: "172.16.40.200"},
		"a small subnet":                        {Spec: Spec{Addresses: list("172.16.40.200/29"), Prefix: 29}, total: 6, first: "172.16.40.201"},
		"a part of a subnet":                    {Spec: Spec{Addresses: list("172.16.40.200/29"), Prefix: 24, Gateway: "172.16.40.1"}, total: 8, first: "172.16.40.200"},
		"host bits are ignored":                 {Spec: Spec{Addresses: list("172.16.40.203/29"), Prefix: 29}, total: 6, first: "172.16.40.201"},
		"a list":                                {Spec: Spec{Addresses: list("10.0.0.5", "10.0.0.7"), Prefix: 24, Gateway: "10.0.0.1"}, total: 2, first: "10.0.0.5"},
		"a list in another order":               {Spec: Spec{Addresses: list("10.0.0.7", "10.0.0.5", "10.0.0.7"), Prefix: 24}, total: 2, first: "10.0.0.5"},
		"a list with the gateway":               {Spec: Spec{Addresses: list("10.0.0.1", "10.0.0.7"), Prefix: 24, Gateway: "10.0.0.1"}, total: 1, first: "10.0.0.7"},
		"only the gateway":                      {Spec: Spec{Addresses: list("10.0.0.1"), Prefix: 24, Gateway: "10.0.0.1"}},
		"a range":                               {Spec: Spec{Addresses: list("10.0.0.10-10.0.0.20"), Prefix: 24}, total: 11, first: "10.0.0.10"},
		"a /31":                                 {Spec: Spec{Addresses: list("10.0.0.4/31"), Prefix: 31}},
		"a /32":                                 {Spec: Spec{Addresses: list("10.0.0.4/32"), Prefix: 32}},
		"a /31, with its reserved addresses":    {Spec: Spec{Addresses: list("10.0.0.4/31"), Prefix: 31, AllocateReserved: true}, total: 2, first: "10.0.0.4"},
		"the reserved addresses of a wider one": {Spec: Spec{Addresses: list("10.0.0.5", "10.0.0.0/29"), Prefix: 24}, total: 7, first: "10.0.0.1"},
		"exclusions":                            {Spec: Spec{Addresses: list("10.0.0.0/24"), Excluded: list("10.0.0.2-10.0.0.9", "10.0.0.128/25"), Prefix: 24, Gateway: "10.0.0.1"}, total: 118, first: "10.0.0.10"},
		"an excluded lowest address":            {Spec: Spec{Addresses: list("10.0.0.0/29"), Excluded: list("10.0.0.0/31"), Prefix: 29}, total: 5, first: "10.0.0.2"},
		"all excluded":                          {Spec: Spec{Addresses: list("10.0.0.0/29"), Excluded: list("0.0.0.0/0"), Prefix: 29}},
		"IPv6":                                  {Spec: Spec{Addresses: list("fd00::/120"), Prefix: 120, Gateway: "fd00::1"}, total: 254, first: "fd00::2"},
		"IPv6 has no broadcast address":         {Spec: Spec{Addresses: list("fd00::fe-fd00::ff"), Prefix: 120}, total: 2, first: "fd00::fe"},
		"more addresses than can be counted":    {Spec: Spec{Addresses: list("fd00::/64"), Prefix: 64, Gateway: "fd00::1"}, total: math.MaxInt, first: "fd00::2"},
		"all addresses":                         {Spec: Spec{Addresses: list("::/0")}, total: math.MaxInt, first: "::1"},
		"all IPv4 addresses":                    {Spec: Spec{Addresses: list("0.0.0.0/0")}, total: 1<<32 - 2, first: "0.0.0.1"},
		"the end of the address space":          {Spec: Spec{Addresses: list("255.255.255.254-255.255.255.255"), Prefix: 24}, total: 1, first: "255.255.255.254"},
		"a gateway elsewhere":                   {Spec: Spec{Addresses: list("10.0.0.0/24"), Prefix: 24, Gateway: "192.168.7.1"}, total: 254, first: "10.0.0.1"},
		"zones are ignored":                     {Spec: Spec{Addresses: list("fe80::1%eth0", "fe80::1%eth1"), Prefix: 64}, total: 1, first: "fe80::1"},
		"IPv4 written as IPv6":                  {Spec: Spec{Addresses: list("::ffff:10.0.0.1"), Prefix: 64}, refused: "Write it as IPv4, such as 10.0.0.1"},
		"a CIDR of IPv4 written as IPv6":        {Spec: Spec{Addresses: list("::ffff:10.0.0.0/120"), Prefix: 120}, refused: "Write it as IPv4, such as 10.0.0.0"},
		"another subnet":                        {Spec: Spec{Addresses: list("10.0.0.0/24", "10.0.1.5"), Prefix: 24}, refused: "10.0.1.5 is not in 10.0.0.0/24"},
		"both families":                         {Spec: Spec{Addresses: list("10.0.0.0/24", "fd00::1"), Prefix: 24}, refused: "one pool for each family"},
		"a gateway of the other family":         {Spec: Spec{Addresses: list("10.0.0.0/24"), Prefix: 24, Gateway: "fd00::1"}, refused: "spec.gateway"},
		"a gateway that is no address":          {Spec: Spec{Addresses: list("10.0.0.0/24"), Prefix: 24, Gateway: "router"}, refused: "spec.gateway"},
		"exclusions of the other family":        {Spec: Spec{Addresses: list("10.0.0.0/24"), Excluded: list("fd00::1"), Prefix: 24}, refused: "spec.excludedAddresses has fd00::1"},
		"an exclusion that is no address":       {Spec: Spec{Addresses: list("10.0.0.0/24"), Excluded: list("x"), Prefix: 24}, refused: `spec.excludedAddresses: "x"`},
		"a prefix that is too long":             {Spec: Spec{Addresses: list("10.0.0.0/24"), Prefix: 33}, refused: "from 0 to 32"},
		"a negative prefix":                     {Spec: Spec{Addresses: list("10.0.0.0/24"), Prefix: -5}, refused: "spec.prefix is -5"},
		"a reversed range":                      {Spec: Spec{Addresses: list("10.0.0.9-10.0.0.2"), Prefix: 24}, refused: "ends before it starts"},
		"blanks":                                {Spec: Spec{Addresses: list("10.0.0.1 - 10.0.0.2"), Prefix: 24}, refused: "is not an address, a range"},
		"a range of two families":               {Spec: Spec{Addresses: list("10.0.0.1-fd00::1"), Prefix: 24}, refused: "is not an address, a range"},
		"half a range":                          {Spec: Spec{Addresses: list("10.0.0.1-"), Prefix: 24}, refused: "is not an address, a range"},
		"a CIDR with too many bits":             {Spec: Spec{Addresses: list("192.168.1.0/33"), Prefix: 24}, refused: "or a CIDR"},
		"a word":                                {Spec: Spec{Addresses: list("nope"), Prefix: 24}, refused: "is not an address"},
		"an empty entry":                        {Spec: Spec{Addresses: list(""), Prefix: 24}, refused: "is not an address"},
		"no entry":                              {Spec: Spec{Prefix: 24}, refused: "spec.addresses is empty"},
	} {
		t.Run(name, func(t *testing.T) {
			p, err := Compile(tc.Spec)
			if err != nil || tc.refused != "" {
				if tc.refused == "" || err == nil || !strings.Contains(err.Error(), tc.refused) {
					t.Fatalf("error %v, want one with %q", err, tc.refused)
				}
				return
			}
			var u Usage[struct{}]
			u.SetPool(p)
			first := ""
			if a, ok := u.Next(); ok {
				first = a.Addr().String()
			}
			if c := u.Counts(); c != (Counts{Total: tc.total, Free: tc.total}) || first != tc.first {
				t.Errorf("%+v, first %q; want %d addresses, first %q", c, first, tc.total, tc.first)
			}
		})
	}
}

// What the same provider makes of prefix pools.
func TestPrefixPool(t *testing.T) {
	for name, tc := range map[string]struct {
		PrefixSpec
		total   int
		first   string
		refused string // a part of the error
	}{
		"the default length":             {PrefixSpec: PrefixSpec{Prefixes: list("fd00::/60")}, total: 16, first: "fd00::/64"},
		"one prefix":                     {PrefixSpec: PrefixSpec{Prefixes: list("fd00::/64"), Gateway: "fd00::1"}, total: 1, first: "fd00::/64"},
		"several, unordered":             {PrefixSpec: PrefixSpec{Prefixes: list("fd00:2::/55", "fd00:1::/56"), Length: 56}, total: 3, first: "fd00:1::/56"},
		"overlapping":                    {PrefixSpec: PrefixSpec{Prefixes: list("fd00::/56", "fd00::/58")}, total: 256, first: "fd00::/64"},
		"an excluded address":            {PrefixSpec: PrefixSpec{Prefixes: list("fd00::/62"), Excluded: list("fd00::7")}, total: 3, first: "fd00:0:0:1::/64"},
		"an excluded range":              {PrefixSpec: PrefixSpec{Prefixes: list("fd00::/62"), Excluded: list("fd00:0:0:0:1::-fd00:0:0:2::")}, total: 1, first: "fd00:0:0:3::/64"},
		"all excluded":                   {PrefixSpec: PrefixSpec{Prefixes: list("fd00::/62"), Excluded: list("::/0")}},
		"single addresses":               {PrefixSpec: PrefixSpec{Prefixes: list("fd00::/126"), Length: 128, Gateway: "fd00::"}, total: 4, first: "fd00::/128"},
		"everything, in halves":          {PrefixSpec: PrefixSpec{Prefixes: list("::/0"), Length: 1}, total: 2, first: "::/1"},
		"a half":                         {PrefixSpec: PrefixSpec{Prefixes: list("8000::/1"), Length: 1}, total: 1, first: "8000::/1"},
		"more than can be counted":       {PrefixSpec: PrefixSpec{Prefixes: list("::/0"), Length: 64}, total: math.MaxInt, first: "::/64"},
		"the most that can be counted":   {PrefixSpec: PrefixSpec{Prefixes: list("::/0"), Length: 62}, total: 1 << 62, first: "::/62"},
		"IPv4":                           {PrefixSpec: PrefixSpec{Prefixes: list("10.0.0.0/8")}, refused: "is not an IPv6 CIDR without host bits"},
		"an address":                     {PrefixSpec: PrefixSpec{Prefixes: list("fd00::1")}, refused: "is not an IPv6 CIDR without host bits"},
		"host bits":                      {PrefixSpec: PrefixSpec{Prefixes: list("fd00::1/60")}, refused: "is not an IPv6 CIDR without host bits"},
		"smaller than what a claim gets": {PrefixSpec: PrefixSpec{Prefixes: list("fd00::/65")}, refused: "which has the length 64"},
		"a length that is too long":      {PrefixSpec: PrefixSpec{Prefixes: list("fd00::/60"), Length: 129}, refused: "from 1 to 128"},
		"no entry":                       {PrefixSpec: PrefixSpec{}, refused: "spec.prefixes is empty"},
		"an IPv4 gateway":                {PrefixSpec: PrefixSpec{Prefixes: list("fd00::/60"), Gateway: "10.0.0.1"}, refused: "spec.gateway"},
		"an IPv4 exclusion":              {PrefixSpec: PrefixSpec{Prefixes: list("fd00::/60"), Excluded: list("10.0.0.1")}, refused: "spec.excludedPrefixes has 10.0.0.1"},
	} {
		t.Run(name, func(t *testing.T) {
			p, err := CompilePrefixes(tc.PrefixSpec)
			if err != nil || tc.refused != "" {
				if tc.refused == "" || err == nil || !strings.Contains(err.Error(), tc.refused) {
					t.Fatalf("error %v, want one with %q", err, tc.refused)
				}
				return
			}
			var u Usage[struct{}]
			u.SetPool(p)
			first := ""
			if b, ok := u.Next(); ok {
				first = b.String()
			}
			if c := u.Counts(); c != (Counts{Total: tc.total, Free: tc.total}) || first != tc.first {
				t.Errorf("%+v, first %q; want %d prefixes, first %q", c, first, tc.total, tc.first)
			}
		})
	}
}

func list(entries ...string) []string { return entries }

func TestShared(t *testing.T) {
	for name, tc := range map[string]struct {
		a, b Spec
		want string
	}{
		"the same":              {Spec{Addresses: list("10.0.0.0/24"), Prefix: 24}, Spec{Addresses: list("10.0.0.0/24"), Prefix: 24}, "10.0.0.1"},
		"one address":           {Spec{Addresses: list("10.0.0.0/24"), Prefix: 24}, Spec{Addresses: list("10.0.0.200", "10.0.1.1"), Prefix: 16}, "10.0.0.200"},
		"not what is excluded":  {Spec{Addresses: list("10.0.0.0/24"), Prefix: 24}, Spec{Addresses: list("10.0.0.0/24"), Excluded: list("10.0.0.0-10.0.0.99"), Prefix: 24}, "10.0.0.100"},
		"not the gateway":       {Spec{Addresses: list("10.0.0.7"), Prefix: 24}, Spec{Addresses: list("10.0.0.0/24"), Gateway: "10.0.0.7", Prefix: 24}, ""},
		"neighbors":             {Spec{Addresses: list("10.0.0.1-10.0.0.9"), Prefix: 24}, Spec{Addresses: list("10.0.0.10-10.0.0.20"), Prefix: 24}, ""},
		"of different families": {Spec{Addresses: list("10.0.0.1"), Prefix: 24}, Spec{Addresses: list("fd00::1"), Prefix: 24}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			a, err := Compile(tc.a)
			if err != nil {
				t.Fatal(err)
			}
			b, err := Compile(tc.b)
			if err != nil {
				t.Fatal(err)
			}
			for _, pair := range [][2]*Pool{{a, b}, {b, a}} {
				got := ""
				if at, ok := pair[0].Shared(pair[1]); ok {
					got = at.String()
				}
				if got != tc.want {
					t.Errorf("the first shared address is %q, want %q", got, tc.want)
				}
			}
		})
	}
}

package addresses

import (
	"fmt"
	"math"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/multicidr/controller-manager/test/seeds"
)

// slow is a pool and its usage as a list of blocks that are looked at one by one.
type slow struct {
	pool []netip.Prefix
	used map[netip.Prefix]int
}

// each lists the addresses of entries.
func each(entries []string) (as []netip.Addr) {
	for _, e := range entries {
		from, to, isRange := strings.Cut(e, "-")
		if p, err := netip.ParsePrefix(e); err == nil {
			for a := p.Masked().Addr(); p.Contains(a); a = a.Next() {
				as = append(as, a)
			}
			continue
		}
		if !isRange {
			to = from
		}
		for a := netip.MustParseAddr(from); a.IsValid() && a.Compare(netip.MustParseAddr(to)) <= 0; a = a.Next() {
			as = append(as, a)
		}
	}
	slices.SortFunc(as, netip.Addr.Compare)
	return slices.Compact(as)
}

// slowPool lists the addresses of a small, valid spec. It shares no code with Compile.
func slowPool(s Spec) (all []netip.Prefix) {
	addresses, excluded := each(s.Addresses), each(s.Excluded)
	if !s.AllocateReserved {
		subnet, _ := addresses[0].Prefix(s.Prefix)
		excluded = append(excluded, subnet.Addr())
		for a := subnet.Addr(); a.Is4() && subnet.Contains(a); a = a.Next() {
			if !subnet.Contains(a.Next()) {
				excluded = append(excluded, a)
			}
		}
	}
	for _, a := range addresses {
		if a.String() != s.Gateway && !slices.Contains(excluded, a) {
			all = append(all, single(a))
		}
	}
	return all
}

// slowPrefixes lists the prefixes of a small, valid spec. It shares no code with CompilePrefixes.
func slowPrefixes(s PrefixSpec) (all []netip.Prefix) {
	excluded := each(s.Excluded)
	for _, a := range each(s.Prefixes) {
		p, _ := a.Prefix(s.Length)
		if p.Addr() == a && !slices.ContainsFunc(excluded, p.Contains) {
			all = append(all, p)
		}
	}
	return all
}

func (s *slow) isFree(p netip.Prefix) bool {
	for used := range s.used {
		if used.Overlaps(p) {
			return false
		}
	}
	return true
}

func (s *slow) counts() (c Counts) {
	c = Counts{Total: len(s.pool), Used: len(s.used)}
	for p := range s.used {
		if !slices.Contains(s.pool, p) {
			c.OutOfRange++
		}
	}
	for _, p := range s.pool {
		if s.isFree(p) {
			c.Free++
		}
	}
	return c
}

func (s *slow) next() (netip.Prefix, bool) {
	for _, p := range s.pool {
		if s.isFree(p) {
			return p, true
		}
	}
	return netip.Prefix{}, false
}

func single(a netip.Addr) netip.Prefix { return netip.PrefixFrom(a, a.BitLen()) }

// dice return a number in [0, n), where 0 < n <= 256.
type dice func(n int) int

func (d dice) addr(family int) netip.Addr {
	base := []string{"10.0.0.", "255.255.255.", "fd00::", "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ff"}[2*family+d(2)]
	if family == 0 {
		return netip.MustParseAddr(fmt.Sprint(base, 224+d(32)))
	}
	return netip.MustParseAddr(fmt.Sprintf("%s%02x", base, 224+d(32)))
}

func (d dice) entry(family int) string {
	a := d.addr(family)
	switch d(3) {
	case 0:
		return a.String()
	case 1:
		p, _ := a.Prefix(a.BitLen() - d(5))
		return netip.PrefixFrom(a, p.Bits()).String()
	}
	b := a
	for range d(9) {
		if b.Next().IsValid() {
			b = b.Next()
		}
	}
	return a.String() + "-" + b.String()
}

// block is an address, and sometimes a prefix that has it.
func (d dice) block(family int) netip.Prefix {
	a := d.addr(family)
	if d(2) == 0 {
		return single(a)
	}
	return block(a, a.BitLen()-d(6))
}

func (d dice) prefixSpec() (s PrefixSpec) {
	s.Length = 124 + d(5)
	for range 1 + d(3) {
		a := d.addr(1)
		s.Prefixes = append(s.Prefixes, block(a, s.Length-d(4)).String())
	}
	for range d(3) {
		s.Excluded = append(s.Excluded, d.entry(1))
	}
	return s
}

func (d dice) spec() (s Spec) {
	family := d(2)
	for range 1 + d(4) {
		s.Addresses = append(s.Addresses, d.entry(family))
	}
	for range d(3) {
		s.Excluded = append(s.Excluded, d.entry(family))
	}
	if d(2) == 0 {
		s.Gateway = d.addr(family).String()
	}
	s.Prefix = []int{24, 120}[family] + d(8)
	s.AllocateReserved = d(3) == 0
	return s
}

// history makes random pools and uses, and compares every answer with that of the slow implementation.
func history(t *testing.T, d dice, steps int) {
	var u Usage[struct{}]
	want := slow{used: map[netip.Prefix]int{}}
	var told []string
	for range steps {
		switch {
		case d(12) == 0:
			spec := d.spec()
			p, err := Compile(spec)
			if err != nil {
				continue // the families and subnets of random entries often differ
			}
			u.SetPool(p)
			want.pool = slowPool(spec)
			told = append(told, fmt.Sprintf("%+v", spec))
		case d(12) == 0:
			spec := d.prefixSpec()
			p, err := CompilePrefixes(spec)
			if err != nil {
				t.Fatalf("%+v: %v", spec, err)
			}
			u.SetPool(p)
			want.pool = slowPrefixes(spec)
			told = append(told, fmt.Sprintf("%+v", spec))
		case d(3) == 0:
			b := d.block(d(2))
			u.Remove(b)
			if want.used[b]--; want.used[b] <= 0 {
				delete(want.used, b)
			}
			told = append(told, fmt.Sprint("free ", b))
		default:
			b, ok := u.Next()
			if !ok || d(4) == 0 {
				b = d.block(d(2))
			}
			want.used[b]++
			u.Insert(b)
			told = append(told, fmt.Sprint("use ", b))
		}
		if got, want := u.Counts(), want.counts(); got != want {
			t.Fatalf("counts %+v, want %+v\n%s", got, want, strings.Join(told, "\n"))
		}
		got, ok := u.Next()
		if want, wantOK := want.next(); got != want || ok != wantOK {
			t.Fatalf("next %v, want %v\n%s", got, want, strings.Join(told, "\n"))
		}
	}
}

// A span with more blocks than are counted, all of them in use.
func TestNothingOutsideOfThePool(t *testing.T) {
	p, err := CompilePrefixes(PrefixSpec{Prefixes: list("8000::/1"), Length: 64})
	if err != nil {
		t.Fatal(err)
	}
	var u Usage[struct{}]
	u.SetPool(p)
	first, _ := u.Next()
	u.Insert(first)
	if n := u.Counts().Free; n != math.MaxInt {
		t.Errorf("%d are free", n)
	}
	u.Insert(block(first.Addr(), 1))
	if b, ok := u.Next(); ok {
		t.Errorf("the next one is %v", b)
	}
}

func TestRandomHistories(t *testing.T) {
	seeds.Each(t, 3000, func(t *testing.T, seed uint64) {
		defer seeds.Report(t, seed, nil)
		history(t, rand.New(rand.NewPCG(seed, 0)).IntN, 60)
	})
}

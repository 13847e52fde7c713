package addresses

import (
	"fmt"
	"math"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

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
	var u Usage
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
			last := u.Free(b)
			if want.used[b]--; want.used[b] <= 0 {
				delete(want.used, b)
			}
			told = append(told, fmt.Sprintf("free %v: %t", b, last))
		default:
			b, ok := u.Next()
			if !ok || d(4) == 0 {
				b = d.block(d(2))
			}
			want.used[b]++
			if first := u.Use(b); first != (want.used[b] == 1) {
				t.Fatalf("%v is in use for the first time: %t\n%s", b, first, strings.Join(told, "\n"))
			}
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
	var u Usage
	u.SetPool(p)
	first, _ := u.Next()
	u.Use(first)
	if n := u.Counts().Free; n != math.MaxInt {
		t.Errorf("%d are free", n)
	}
	u.Use(block(first.Addr(), 1))
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

func FuzzHistory(f *testing.F) {
	f.Add([]byte{0, 1, 2, 3, 4, 5, 6, 7, 8, 9})
	f.Fuzz(func(t *testing.T, data []byte) {
		history(t, func(n int) int {
			if len(data) == 0 {
				return 0
			}
			b := int(data[0])
			data = data[1:]
			return b % n
		}, len(data))
	})
}

// FuzzCompile: any text compiles or is refused, and what the lowest free address is belongs to the pool.
func FuzzCompile(f *testing.F) {
	f.Add("10.0.0.0/24", "10.0.0.1-10.0.0.9", "10.0.0.1", 24)
	f.Add("fd00::/64", "fd00::", "", 64)
	f.Fuzz(func(t *testing.T, address, excluded, gateway string, prefix int) {
		p, err := Compile(Spec{Addresses: []string{address}, Excluded: []string{excluded}, Gateway: gateway, Prefix: prefix})
		if err != nil {
			return
		}
		var u Usage
		u.SetPool(p)
		a, ok := u.Next()
		if ok != (u.Counts().Total > 0) || ok && !p.Contains(a) {
			t.Errorf("%+v, and the first is %v", u.Counts(), a)
		}
	})
}

// TestExtremes: what one object can hold does not keep the controller busy. CPU time is limited, because a clock also measures what else
// the machine does. The limit is ten times what it takes.
func TestExtremes(t *testing.T) {
	for name, spec := range map[string]Spec{
		"30,000 IPv4 ranges":    manyEntries(30_000, "IPv4"),
		"30,000 IPv6 addresses": manyEntries(30_000, "IPv6"),
		"everything":            {Addresses: list("::/0")},
	} {
		t.Run(name, func(t *testing.T) {
			before := cpu(t)
			p, err := Compile(spec)
			if err != nil {
				t.Fatal(err)
			}
			var u Usage
			for range 3 {
				u.SetPool(p)
				for range 20_000 {
					a, ok := u.Next()
					if !ok {
						break
					}
					u.Use(a)
				}
			}
			if took := cpu(t) - before; took > 5*time.Second {
				t.Errorf("it took %v", took)
			}
		})
	}
}

func cpu(t *testing.T) time.Duration {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		t.Fatal(err)
	}
	return time.Duration(usage.Utime.Nano())
}

// BenchmarkNext allocates and frees one address of a pool in which 60,000 addresses are in use.
func BenchmarkNext(b *testing.B) {
	for name, spec := range map[string]Spec{
		"a subnet":      {Addresses: list("10.0.0.0/8"), Prefix: 8},
		"IPv6":          {Addresses: list("fd00::/64"), Prefix: 64},
		"30,000 ranges": manyEntries(30_000, "IPv4"),
	} {
		b.Run(name, func(b *testing.B) {
			p, err := Compile(spec)
			if err != nil {
				b.Fatal(err)
			}
			var u Usage
			u.SetPool(p)
			used := make([]netip.Prefix, 60_000)
			for i := range used {
				used[i], _ = u.Next()
				u.Use(used[i])
			}
			d := rand.New(rand.NewPCG(1, 1))
			for b.Loop() {
				u.Free(used[d.IntN(len(used))])
				a, _ := u.Next()
				u.Use(a)
			}
		})
	}
}

package ipam

import (
	"encoding/binary"
	"net/netip"
	"slices"
	"syscall"
	"testing"
	"time"
)

// numberedPrefixes returns n different prefixes, neither sorted nor adjacent.
func numberedPrefixes(n int) []netip.Prefix {
	all := make([]netip.Prefix, n)
	for i := range all {
		var a [16]byte
		a[0] = 0xfd
		binary.BigEndian.PutUint32(a[4:], uint32(i)*2654435761) // odd, so each i has a place of its own
		all[i] = netip.PrefixFrom(netip.AddrFrom16(a), 64)
	}
	return all
}

// TestLongListsAreNotQuadratic gives 300,000 prefixes to each owner. If each of them were searched for in a list, every step would
// take minutes. Without that it takes a second.
func TestLongListsAreNotQuadratic(t *testing.T) {
	const n = 300_000
	many := numberedPrefixes(n)
	var l Ledger
	for _, step := range []struct {
		what string
		do   func() (got, want int)
	}{
		{"all are new", func() (int, int) { l.Hold(numbered(1), many...); return len(l.Held(numbered(1))), n }},
		{"nothing changes", func() (int, int) { l.Hold(numbered(1), many...); return len(l.Held(numbered(1))), n }},
		{"each is there twice", func() (int, int) {
			l.Hold(numbered(1), slices.Concat(many, many)...)
			return len(l.Held(numbered(1))), n
		}},
		{"the order is another one", func() (int, int) {
			backwards := slices.Clone(many)
			slices.Reverse(backwards)
			l.Hold(numbered(1), backwards...)
			return len(l.Held(numbered(1))), n
		}},
		{"every other one goes", func() (int, int) {
			var half []netip.Prefix
			for i := 0; i < n; i += 2 {
				half = append(half, many[i])
			}
			l.Hold(numbered(1), half...)
			return len(l.Held(numbered(1))), n / 2
		}},
		{"another owner has all of them", func() (int, int) {
			l.Hold(numbered(2), many...)
			conflicts := 0
			for range l.Conflicts(numbered(1)) {
				conflicts++
			}
			return conflicts, n / 2
		}},
		{"both go", func() (int, int) {
			l.Release(numbered(1))
			l.Release(numbered(2))
			return len(l.Overlapping(pfx("::/0"))), 0
		}},
	} {
		done, began := make(chan bool), cpuTime(t)
		go func() {
			defer close(done)
			if got, want := step.do(); got != want {
				t.Errorf("%s: %d, want %d", step.what, got, want)
			}
		}()
		for ended := false; !ended; {
			select {
			case <-done:
				ended = true
			case <-time.After(time.Second):
				if cpuTime(t)-began > 40*time.Second {
					t.Fatalf("%s: no end with %d prefixes", step.what, n)
				}
			}
		}
	}
}

// cpuTime is what this process has had of the CPUs: on a machine with much else to do, a clock tells nothing about how much work something is.
func cpuTime(t *testing.T) time.Duration {
	var r syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &r); err != nil {
		t.Fatal(err)
	}
	return time.Duration(r.Utime.Nano() + r.Stime.Nano())
}

func TestWithout(t *testing.T) {
	many := numberedPrefixes(3 * short)
	for what, tc := range map[string]struct{ a, b, want []netip.Prefix }{
		"nothing from nothing":         {nil, nil, nil},
		"nothing from few":             {many[:2], nil, many[:2]},
		"few from nothing":             {nil, many[:2], nil},
		"few from few, in another way": {many[:3], []netip.Prefix{many[2], many[0]}, many[1:2]},
		"all from themselves":          {many, many, nil},
		"all but one in the middle":    {many, slices.Concat(many[:5], many[6:]), many[5:6]},
		"one in the middle is another": {many, slices.Concat(many[:5], []netip.Prefix{pfx("10.0.0.0/8")}, many[6:]), many[5:6]},
		"many from few":                {many[:3], many[1:], many[:1]},
		"few from many":                {many, many[4:6], slices.Concat(many[:4], many[6:])},
		"many from many, at both ends": {many[:2*short], many[short:], many[:short]},
		"more than are there":          {many[:2], many, nil},
	} {
		if got := Without(tc.a, tc.b); !slices.Equal(got, tc.want) {
			t.Errorf("%s: %v, want %v", what, got, tc.want)
		}
	}
}

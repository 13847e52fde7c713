package ipam

import (
	"fmt"
	"net/netip"
	"testing"
)

// TestUsageKeepsCount runs random histories of a ledger. After every step it compares the counts that the ledger has kept with
// a new count.
func TestUsageKeepsCount(t *testing.T) {
	for seed := *firstSeed; seed < *firstSeed+uint64(*histories); seed++ {
		t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) {
			t.Parallel()
			h := newHistory(t, seeded(seed))
			counted := map[Range]bool{}
			for range 200 {
				switch p := one(h.dice, h.pools); h.dice(10) {
				case 0:
					for _, r := range p.Ranges {
						h.tell("usage %v", r)
						h.ledger.Usage(p, r)
						counted[r] = true
					}
				case 1:
					h.tell("forget %s", p.Name)
					h.ledger.Forget(p)
					for _, r := range p.Ranges {
						delete(counted, r)
					}
				case 2:
					h.exclude(h.dice(len(h.pools)))
				case 3, 4:
					if pick, ok := h.ledger.Pick(p); ok {
						o := h.someOwner()
						h.tell("reserve %v %v: %v", o, pick.Blocks, h.ledger.Reserve(o, pick))
					}
				default:
					o, prefixes := one(h.dice, h.owners), h.somePrefixes()
					h.tell("hold %v %v", o, prefixes)
					h.ledger.Hold(o, prefixes...)
					h.reference.hold(o, prefixes...) // somePrefixes looks for held prefixes in the reference
				}
				n := 0
				for _, everything := range Everything {
					for same := range h.ledger.counts.ranges.Values(everything) {
						n += len(same)
					}
				}
				if n != len(counted) {
					h.fail("%d ranges are counted, want %d", n, len(counted))
				}
				for _, p := range h.pools {
					for _, r := range p.Ranges {
						if !counted[r] {
							continue
						}
						want := Usage{Allocated: h.ledger.count(r).Allocated, Free: h.ledger.Free(p, r)}
						if got := h.ledger.Usage(p, r); got != want {
							h.fail("Usage(%s, %v) = %+v, want %+v", p.Name, r, got, want)
						}
					}
				}
			}
			for _, o := range h.owners {
				h.ledger.Release(o)
			}
			for r := range counted {
				if got, want := h.ledger.Usage(&Pool{}, r), (Usage{Free: r.Blocks()}); got != want {
					h.fail("Usage(%v) = %+v after everything was released, want %+v", r, got, want)
				}
			}
		})
	}
}

func TestUsage(t *testing.T) {
	cases := map[string]struct {
		held     map[Owner][]string
		excluded []string
		r        Range
		want     Usage
	}{
		"nothing is held": {
			r: cut(t, "10.0.0.0/22", 24), want: Usage{Free: 4},
		},
		"a block that two Nodes hold counts once": {
			held: map[Owner][]string{numbered(1): {"10.0.0.0/24"}, numbered(2): {"10.0.0.0/24"}},
			r:    cut(t, "10.0.0.0/22", 24), want: Usage{Allocated: 1, Free: 3},
		},
		"a part of a block makes it neither allocated nor free": {
			held: map[Owner][]string{numbered(1): {"10.0.0.0/28"}, numbered(2): {"10.0.0.16/28"}},
			r:    cut(t, "10.0.0.0/22", 24), want: Usage{Free: 3},
		},
		"a wider holding makes its blocks neither allocated nor free": {
			held: map[Owner][]string{numbered(1): {"10.0.0.0/23"}},
			r:    cut(t, "10.0.0.0/22", 24), want: Usage{Free: 2},
		},
		"a holding wider than the range leaves nothing": {
			held: map[Owner][]string{{Service, "s"}: {"10.0.0.0/8"}},
			r:    cut(t, "10.0.0.0/22", 24), want: Usage{},
		},
		"an excluded block is not allocated until a Node holds it": {
			held:     map[Owner][]string{numbered(1): {"10.0.1.0/24"}},
			excluded: []string{"10.0.0.0/24", "10.0.1.0/24"},
			r:        cut(t, "10.0.0.0/22", 24), want: Usage{Allocated: 1, Free: 2},
		},
		"a block with several exclusions counts once": {
			excluded: []string{"10.0.0.0/23", "10.0.1.0/24", "10.0.2.0/28", "10.0.2.64/26"},
			r:        cut(t, "10.0.0.0/22", 24), want: Usage{Free: 1},
		},
		"an exclusion wider than the range leaves nothing": {
			excluded: []string{"0.0.0.0/0"},
			r:        cut(t, "10.0.0.0/22", 24), want: Usage{},
		},
		"of 2^65 blocks, as many are free as can be said": {
			held: map[Owner][]string{numbered(1): {"fd00::/120"}},
			r:    cut(t, "fd00::/55", 120), want: Usage{Allocated: 1, Free: 1<<64 - 1},
		},
	}
	for sentence, tc := range cases {
		t.Run(sentence, func(t *testing.T) {
			for _, first := range []bool{true, false} { // asked before and after
				var l Ledger
				p := pool("p", tc.r)
				for _, e := range tc.excluded {
					p.Excluded.Insert(pfx(e))
				}
				if first {
					l.Usage(p, tc.r)
				}
				for o, prefixes := range tc.held {
					var held []netip.Prefix
					for _, p := range prefixes {
						held = append(held, pfx(p))
					}
					l.Hold(o, held...)
				}
				if got := l.Usage(p, tc.r); got != tc.want {
					t.Errorf("counted before: %v; Usage = %+v, want %+v", first, got, tc.want)
				}
			}
		})
	}
}

func TestTaken(t *testing.T) {
	cases := map[string]struct {
		held, excluded []string
		r              Range
		want           uint64
	}{
		"nothing":                        {r: cut(t, "::/0", 124)},
		"a block":                        {held: []string{"fd00::/124"}, r: cut(t, "::/0", 124), want: 1},
		"two addresses of one block":     {held: []string{"fd00::1/128"}, excluded: []string{"fd00::2/128"}, r: cut(t, "::/0", 124), want: 1},
		"a block inside what is wider":   {held: []string{"fd00::/64"}, excluded: []string{"fd00::/60", "fd00::/124"}, r: cut(t, "::/0", 68), want: 256},
		"half of 2^65 blocks":            {excluded: []string{"8000::/1"}, r: cut(t, "::/0", 65), want: 1<<64 - 1},
		"half of 2^64 blocks":            {excluded: []string{"8000::/1"}, r: cut(t, "::/0", 64), want: 1 << 63},
		"all of 2^64 blocks":             {held: []string{"::/0"}, r: cut(t, "fd00::/16", 80), want: 1<<64 - 1},
		"what lies elsewhere":            {held: []string{"fe00::/16", "10.0.0.0/8"}, r: cut(t, "fd00::/16", 80)},
		"of a range that can be counted": {held: []string{"10.0.1.0/28"}, excluded: []string{"10.0.2.0/23"}, r: cut(t, "10.0.0.0/16", 24), want: 3},
	}
	for sentence, tc := range cases {
		t.Run(sentence, func(t *testing.T) {
			var l Ledger
			for i, h := range tc.held {
				l.Hold(numbered(i), pfx(h))
			}
			p := pool("p", tc.r)
			for _, e := range tc.excluded {
				p.Excluded.Insert(pfx(e))
			}
			if got := l.Taken(p, tc.r); got != tc.want {
				t.Errorf("Taken = %d, want %d", got, tc.want)
			}
		})
	}
}

// BenchmarkUsage measures the cost of an allocation while 1,000 ranges are counted, and the cost of all their counts, with
// 100,000 Nodes in them.
func BenchmarkUsage(b *testing.B) {
	layouts := map[string]func(i int) Range{
		"side by side": func(i int) Range { return cut(b, fmt.Sprintf("10.%d.%d.0/18", i/4, i%4*64), 28) },
		"nested":       func(i int) Range { return cut(b, fmt.Sprintf("fd00::/%d", 16+i%32), 80+i/32) },
	}
	for sentence, layout := range layouts {
		var l Ledger
		var pools []*Pool
		for i := range 1000 {
			pools = append(pools, pool(fmt.Sprint(i), layout(i)))
		}
		for i := range 100_000 {
			reserve(b, &l, numbered(i), pools[i%len(pools)])
		}
		all := func() {
			for _, p := range pools {
				l.Usage(p, p.Ranges[0])
			}
		}
		b.Run(sentence+", serve uncounted", func(b *testing.B) { serve(b, &l, pools[0]) })
		all()
		b.Run(sentence+", serve counted", func(b *testing.B) { serve(b, &l, pools[0]) })
		b.Run(sentence+", ask", func(b *testing.B) {
			for b.Loop() {
				all()
			}
		})
	}
}

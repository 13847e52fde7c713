package ipam

import (
	"net/netip"
	"testing"
)

// wide are ranges from 2^4 to 2^128 blocks, named by the lengths of range and block. Nothing may cost more in one than in another because of that number.
func wide(t testing.TB) map[string]Range {
	return map[string]Range{
		"IPv4 24 to 28": cut(t, "10.0.0.0/24", 28),
		"IPv4 8 to 28":  cut(t, "10.0.0.0/8", 28),
		"IPv6 32 to 64": cut(t, "fd00::/32", 64),
		"IPv6 8 to 112": cut(t, "fd00::/8", 112),
		"IPv6 0 to 128": cut(t, "::/0", 128),
	}
}

// TestStepsDoNotDependOnTheNumberOfBlocks counts how many regions a search enters in ranges that are empty, full, full
// but for one region of every size, and taken at random.
func TestStepsDoNotDependOnTheNumberOfBlocks(t *testing.T) {
	for name, r := range wide(t) {
		t.Run(name, func(t *testing.T) {
			var s PrefixSet
			d := seeded(1)
			most := 0
			search := func(from netip.Addr) {
				steps := steps{}
				want, wantOK := s.NextFree(r.Prefix, r.BlockBits, from)
				got, ok := steps.nextFree(&s, r, from)
				if got != want || ok != wantOK {
					t.Fatalf("the counting search found %v, %v, and the real one %v, %v", got, ok, want, wantOK)
				}
				most = max(most, steps.regions)
			}
			// The last block and the sibling of every region on the way to it, taken one after the other, and given
			// back one at a time: a search goes all the way down, up again, and down elsewhere.
			end := after(r.Prefix)
			last := netip.PrefixFrom(addrAt(end.Sub(end, size(r.Family().Bits()-r.BlockBits)), r.Family()), r.BlockBits)
			for bits := r.Prefix.Bits() + 1; bits <= r.BlockBits; bits++ {
				s.Insert(half(netip.PrefixFrom(last.Addr(), bits-1).Masked(), 0))
				search(last.Addr())
				search(r.Prefix.Addr())
				search(netip.Addr{})
			}
			s.Insert(last)
			search(last.Addr())
			for bits := r.Prefix.Bits() + 1; bits <= r.BlockBits; bits++ {
				sibling := half(netip.PrefixFrom(last.Addr(), bits-1).Masked(), 0)
				s.Remove(sibling)
				search(last.Addr())
				search(sibling.Addr())
				s.Insert(sibling)
			}
			for range 300 {
				p := d.somePrefixIn(r.Prefix, r.Prefix.Bits()+1, r.Family().Bits())
				if d(3) == 0 {
					s.Remove(p)
				} else {
					s.Insert(p)
				}
				search(d.somePrefixIn(r.Prefix, r.BlockBits, r.BlockBits).Addr())
			}
			// Two regions a level on the way to the block to start at, and two a level on the way to the answer,
			// which lies above it or, after going around, below.
			depth := r.BlockBits - r.Prefix.Bits() + 1
			if limit := 4 * depth; most > limit || most < depth {
				t.Errorf("a search entered %d regions; its depth is %d, its limit %d", most, depth, limit)
			}
			t.Logf("at most %d regions at depth %d", most, depth)
		})
	}
}

// steps counts the regions that a search enters. It is the search of the trie once more, with nothing but a counter
// added, and is believed only because every answer is compared with the real one's.
type steps struct{ regions int }

func (c *steps) nextFree(s *PrefixSet, r Range, from netip.Addr) (netip.Prefix, bool) {
	start := keyOf(r.Prefix.Addr())
	at := start
	if r.Prefix.Contains(from) {
		at = keyOf(from).and(mask(uint8(r.BlockBits)))
	}
	n, covered := s.below(r.Prefix)
	if covered {
		return netip.Prefix{}, false
	}
	for _, at := range []key{at, start} {
		if k, ok := c.down(n, start, uint8(r.Prefix.Bits()), uint8(r.BlockBits), at); ok {
			return netip.PrefixFrom(k.addr(r.Family()), r.BlockBits), true
		}
	}
	return netip.Prefix{}, false
}

func (c *steps) down(n *node, r key, rb, b uint8, from key) (key, bool) {
	c.regions++
	if n.largestFree(rb) > b || r.last(rb).less(from) {
		return key{}, false
	}
	if n == nil {
		if r.less(from) {
			return from, true
		}
		return r, true
	}
	if k, ok := c.down(n.in(rb, 0), r, rb+1, b, from); ok {
		return k, true
	}
	return c.down(n.in(rb, 1), r.withBit(rb), rb+1, b, from)
}

// TestMemoryDependsOnHoldingsOnly: n prefixes need fewer than 2n trie nodes, in whatever range and however scattered.
func TestMemoryDependsOnHoldingsOnly(t *testing.T) {
	for name, r := range wide(t) {
		t.Run(name, func(t *testing.T) {
			var l Ledger
			p := pool("p", r)
			d := seeded(1)
			for i := range 200 {
				l.SetCursor(p, r.Family(), d.somePrefixIn(r.Prefix, r.BlockBits, r.BlockBits).Addr())
				pick, ok := l.Pick(p)
				if !ok {
					break
				}
				l.Reserve(numbered(i), pick)
			}
			if n, held := l.taken.root[r.Family()].size(), len(l.held); n >= 2*held || held == 0 {
				t.Errorf("%d trie nodes for %d held blocks", n, held)
			}
		})
	}
}

package ipam

import (
	"net/netip"
	"testing"
	"time"
)

// wide has ranges from 2^4 to 2^128 blocks, named by the lengths of the range and of a block.
func wide(t testing.TB) map[string]Range {
	return map[string]Range{
		"IPv4 24 to 28": cut(t, "10.0.0.0/24", 28),
		"IPv4 8 to 28":  cut(t, "10.0.0.0/8", 28),
		"IPv6 32 to 64": cut(t, "fd00::/32", 64),
		"IPv6 8 to 112": cut(t, "fd00::/8", 112),
		"IPv6 0 to 128": cut(t, "::/0", 128),
	}
}

// TestSearchDoesNotVisitWhatIsFull searches ranges in which every block, or every block but one, is taken separately: up to
// 2^128 holdings. Such a trie fits into memory because it is folded: the halves of a region look alike, so both children
// of a node are the same node. A search that visits full regions or counts blocks would never end.
func TestSearchDoesNotVisitWhatIsFull(t *testing.T) {
	for name, r := range wide(t) {
		for what, shorterBy := range map[string]int{"blocks taken": 0, "half of every block taken": 1} {
			leafBits := min(r.BlockBits+shorterBy, r.Family().Bits())
			first, last := netip.PrefixFrom(r.Prefix.Addr(), r.BlockBits), lastBlock(r)
			for _, free := range []netip.Prefix{{}, first, last} {
				var s PrefixSet
				s.root[r.Family()] = folded(r, leafBits, free)
				for _, from := range []netip.Addr{{}, first.Addr(), last.Addr()} {
					want := answer{block: free, ok: free.IsValid()}
					if want.ok {
						want.free = 1
					}
					if got := ask(t, &s, r, from); got != want {
						t.Errorf("%s, %s, search from %v: got %+v, want %+v", name, what, from, got, want)
					}
				}
			}
		}
	}
}

// answer is the next free block and the number of free blocks.
type answer struct {
	block netip.Prefix
	ok    bool
	free  uint64
}

// ask ends the test if there is no answer in a time that would be enough for thousands.
func ask(t *testing.T, s *PrefixSet, r Range, from netip.Addr) answer {
	t.Helper()
	answers := make(chan answer, 1)
	go func() {
		block, ok := s.NextFree(r.Prefix, r.BlockBits, from)
		free, _ := count(s, &PrefixSet{}, r.Prefix, r.BlockBits)
		answers <- answer{block, ok, free}
	}()
	select {
	case a := <-answers:
		return a
	case <-time.After(10 * time.Second):
		t.Fatalf("no answer in %v from %v: the search visits what is full", r, from)
		panic("unreachable")
	}
}

// folded returns a trie in which every prefix of leafBits inside r is a member, except those in the block that stays free,
// if that block is valid. Below the root the keys of the nodes are wrong. Nothing reads them, because no level is left out.
func folded(r Range, leafBits int, free netip.Prefix) *node[struct{}] {
	at := keyOf(r.Prefix.Addr())
	n := (&node[struct{}]{key: at, bits: uint8(leafBits), count: 1}).updated()
	path := (*node[struct{}])(nil) // the topmost node in the region around the free block; none in the block itself
	for bits := leafBits - 1; bits >= r.Prefix.Bits(); bits-- {
		if free.IsValid() && bits < r.BlockBits {
			i := keyOf(free.Addr()).bit(uint8(bits))
			fork := &node[struct{}]{key: at, bits: uint8(bits)}
			fork.child[i], fork.child[1-i] = path, n
			path = fork.updated()
		}
		n = (&node[struct{}]{key: at, bits: uint8(bits), child: [2]*node[struct{}]{n, n}}).updated()
	}
	if free.IsValid() {
		return path
	}
	return n
}

func lastBlock(r Range) netip.Prefix {
	end := after(r.Prefix)
	return netip.PrefixFrom(addrAt(end.Sub(end, size(r.Family().Bits()-r.BlockBits)), r.Family()), r.BlockBits)
}

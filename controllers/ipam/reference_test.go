package ipam

import (
	"cmp"
	"fmt"
	"math"
	"math/big"
	"net/netip"
	"slices"
)

// reference is the ledger as one would explain it at a whiteboard: a list of who holds what, which is read from end to end for
// every question. It is slow, and too simple to have the mistakes that a trie can have. Addresses are big integers.
type reference struct {
	holdings []Holding
	excluded map[string]prefixList // by Pool.ID
	cursors  map[cursor]netip.Addr
}

func (r *reference) held(o Owner) []netip.Prefix {
	var held []netip.Prefix
	for _, h := range r.holdings {
		if h.Owner == o {
			held = append(held, h.Prefix)
		}
	}
	return held
}

func (r *reference) hold(o Owner, prefixes ...netip.Prefix) {
	r.holdings = slices.DeleteFunc(r.holdings, func(h Holding) bool { return h.Owner == o })
	for _, p := range prefixes {
		if h := (Holding{o, p.Masked()}); p.IsValid() && !slices.Contains(r.holdings, h) {
			r.holdings = append(r.holdings, h)
		}
	}
}

func (r *reference) overlapping(p netip.Prefix) []Holding {
	var found []Holding
	for _, h := range r.holdings {
		if h.Prefix.Overlaps(p) {
			found = append(found, h)
		}
	}
	slices.SortFunc(found, func(a, b Holding) int {
		return cmp.Or(
			byAddress(a.Prefix, b.Prefix),
			cmp.Compare(a.Owner.Kind, b.Owner.Kind),
			cmp.Compare(a.Owner.ID, b.Owner.ID),
		)
	})
	return found
}

func (r *reference) conflicts(o Owner) []Holding {
	var others []Holding
	for _, p := range r.held(o) {
		for _, h := range r.overlapping(p) {
			if h.Owner != o && !slices.Contains(others, h) {
				others = append(others, h)
			}
		}
	}
	return others
}

// without lists the addresses that p cannot allocate: those that anybody holds, and the exclusions of p.
func (r *reference) without(p *Pool) prefixList { return append(r.taken(), r.excluded[p.ID]...) }

// gives looks for an address that neither of two pools excludes.
func (r *reference) gives(p *Pool, prefix netip.Prefix, others *Pool) bool {
	excluded := slices.Concat(r.excluded[p.ID], r.excluded[others.ID])
	for _, rng := range p.Ranges {
		if !rng.Prefix.Overlaps(prefix) {
			continue
		}
		both := rng.Prefix
		if prefix.Bits() > both.Bits() {
			both = prefix.Masked()
		}
		if _, ok := excluded.nextFree(both, rng.Family().Bits(), netip.Addr{}); ok {
			return true
		}
	}
	return false
}

// allocated counts the blocks of rng that a Node holds.
func (r *reference) allocated(rng Range) uint64 {
	blocks := map[netip.Prefix]bool{}
	for _, h := range r.holdings {
		if h.Owner.Kind == Node && h.Prefix.Bits() == rng.BlockBits && rng.Prefix.Overlaps(h.Prefix) {
			blocks[h.Prefix] = true
		}
	}
	return uint64(len(blocks))
}

// taken lists what is held, a prefix as often as it has holders.
func (r *reference) taken() prefixList {
	var taken prefixList
	for _, h := range r.holdings {
		taken = append(taken, h.Prefix)
	}
	return taken
}

func (r *reference) blocks(p *Pool) []netip.Prefix {
	var blocks []netip.Prefix
	for _, rng := range p.Ranges {
		if b, ok := r.without(p).nextFree(rng.Prefix, rng.BlockBits, r.cursor(p, rng.Family())); ok {
			blocks = append(blocks, b)
		}
	}
	return blocks
}

func (r *reference) full(p *Pool) []Family {
	var full []Family
	for _, rng := range p.Ranges {
		if r.without(p).free(rng.Prefix, rng.BlockBits) == 0 {
			full = append(full, rng.Family())
		}
	}
	return full
}

func (r *reference) reserve(o Owner, p *Pool, blocks []netip.Prefix) {
	for _, b := range blocks {
		r.hold(o, blocks...)
		r.setCursor(p, FamilyOf(b), addrAt(after(b), FamilyOf(b)))
	}
}

// cursor is the key of one cursor.
type cursor struct {
	pool   string // Pool.ID
	family Family
}

func (r *reference) cursor(p *Pool, f Family) netip.Addr { return r.cursors[cursor{p.ID, f}] }

func (r *reference) setCursor(p *Pool, f Family, a netip.Addr) {
	if r.cursors == nil {
		r.cursors = map[cursor]netip.Addr{}
	}
	r.cursors[cursor{p.ID, f}] = a
}

func (r *reference) forget(p *Pool) {
	r.setCursor(p, IPv4, netip.Addr{})
	r.setCursor(p, IPv6, netip.Addr{})
}

// byAddress orders prefixes by their first address, a wider one first.
func byAddress(a, b netip.Prefix) int {
	return cmp.Or(a.Addr().Compare(b.Addr()), cmp.Compare(a.Bits(), b.Bits()))
}

// prefixList is the set of prefixes of the reference.
type prefixList []netip.Prefix

func (l prefixList) overlaps(p netip.Prefix) bool { return slices.ContainsFunc(l, p.Overlaps) }

// countable is the width up to which the reference looks at every block of a range.
const countable = 6

// nextFree looks at every block if a range is narrow, and skips what is taken if it is wide. If it can do both, the two
// results must agree, so that the reference is checked too.
func (l prefixList) nextFree(within netip.Prefix, bits int, from netip.Addr) (netip.Prefix, bool) {
	bySkipping, ok := l.nextFreeBySkipping(within, bits, from)
	if bits-within.Bits() <= countable {
		byLooking, okToo := l.nextFreeByLooking(within, bits, from)
		if byLooking != bySkipping || ok != okToo {
			panic(fmt.Sprintf("the reference contradicts itself: next free /%d in %v from %v without %v: %v or %v",
				bits, within, from, l, byLooking, bySkipping))
		}
	}
	return bySkipping, ok
}

func (l prefixList) nextFreeByLooking(within netip.Prefix, bits int, from netip.Addr) (netip.Prefix, bool) {
	blocks := everyBlock(within, bits)
	start := max(0, slices.IndexFunc(blocks, func(b netip.Prefix) bool { return b.Contains(from) }))
	for _, b := range slices.Concat(blocks[start:], blocks[:start]) {
		if !l.overlaps(b) {
			return b, true
		}
	}
	return netip.Prefix{}, false
}

func (l prefixList) nextFreeBySkipping(within netip.Prefix, bits int, from netip.Addr) (netip.Prefix, bool) {
	if !within.Contains(from) {
		from = within.Masked().Addr()
	}
	cursor := netip.PrefixFrom(from, bits).Masked()
	if b, ok := l.firstFree(first(cursor), after(within), bits, FamilyOf(within)); ok {
		return b, true
	}
	return l.firstFree(first(within), first(cursor), bits, FamilyOf(within))
}

// firstFree returns the lowest free block at or above lo and below end.
func (l prefixList) firstFree(lo, end *big.Int, bits int, f Family) (netip.Prefix, bool) {
	for at := lo; at.Cmp(end) < 0; {
		block := netip.PrefixFrom(addrAt(at, f), bits)
		i := slices.IndexFunc(l, block.Overlaps)
		if i < 0 {
			return block, true
		}
		at = after(block)
		if behind := after(l[i]); behind.Cmp(at) > 0 {
			at = behind // still aligned: a prefix that is wider than a block ends where a block ends
		}
	}
	return netip.Prefix{}, false
}

// free counts the blocks one by one if a range is narrow. If it is wide, it subtracts the blocks that are overlapped from the
// number of all blocks.
func (l prefixList) free(within netip.Prefix, bits int) uint64 {
	if bits-within.Bits() <= countable {
		n := uint64(0)
		for _, b := range everyBlock(within, bits) {
			if !l.overlaps(b) {
				n++
			}
		}
		return n
	}
	return capped(new(big.Int).Sub(size(bits-within.Bits()), l.touched(within, bits)))
}

// taken counts the blocks that are not free.
func (l prefixList) taken(within netip.Prefix, bits int) uint64 {
	return capped(l.touched(within, bits))
}

func (l prefixList) touched(within netip.Prefix, bits int) *big.Int {
	var held prefixList // the blocks and wider prefixes, each once and none inside another
	for _, p := range l {
		if !p.Overlaps(within) {
			continue
		}
		if p.Bits() <= within.Bits() {
			return size(bits - within.Bits())
		}
		p = netip.PrefixFrom(p.Addr(), min(p.Bits(), bits)).Masked()
		held = slices.DeleteFunc(held, func(q netip.Prefix) bool { return p.Bits() <= q.Bits() && p.Overlaps(q) })
		if !held.overlaps(p) {
			held = append(held, p)
		}
	}
	n := new(big.Int)
	for _, p := range held {
		n.Add(n, size(bits-p.Bits()))
	}
	return n
}

// everyBlock lists the blocks of a narrow range.
func everyBlock(within netip.Prefix, bits int) []netip.Prefix {
	var blocks []netip.Prefix
	for at := first(within); at.Cmp(after(within)) < 0; {
		b := netip.PrefixFrom(addrAt(at, FamilyOf(within)), bits)
		blocks = append(blocks, b)
		at = after(b)
	}
	return blocks
}

// first returns, as numbers, the first address of p, and after, the address behind its last one.
func first(p netip.Prefix) *big.Int { return new(big.Int).SetBytes(p.Masked().Addr().AsSlice()) }

func after(p netip.Prefix) *big.Int {
	return new(big.Int).Add(first(p), size(p.Addr().BitLen()-p.Bits()))
}

func size(hostBits int) *big.Int { return new(big.Int).Lsh(big.NewInt(1), uint(hostBits)) }

// capped returns n, or math.MaxUint64 if n does not fit.
func capped(n *big.Int) uint64 {
	if !n.IsUint64() {
		return math.MaxUint64
	}
	return n.Uint64()
}

// addrAt returns the address with number n, or the invalid address if the family has none.
func addrAt(n *big.Int, f Family) netip.Addr {
	if n.BitLen() > f.Bits() {
		return netip.Addr{}
	}
	a, _ := netip.AddrFromSlice(n.FillBytes(make([]byte, f.Bits()/8)))
	return a
}

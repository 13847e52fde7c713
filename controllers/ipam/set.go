package ipam

import (
	"iter"
	"net/netip"
)

// PrefixMap is a counted set of prefixes of both families, with a value for each member: a prefix that is inserted twice must be removed
// twice. Members can overlap and nest. The zero value is the empty set. All methods need valid prefixes.
//
// Each family is a path-compressed binary trie. Every node knows the length of the largest free aligned block below it. So
// [PrefixMap.NextFree] skips full parts without looking inside. The cost of an operation does not depend on the number of blocks in a
// range.
type PrefixMap[V any] struct {
	root [2]*node[V] // by Family
}

// PrefixSet is a PrefixMap in which only the members count.
type PrefixSet = PrefixMap[struct{}]

// node stands for the prefix key/bits.
//
// Invariants: either count > 0, or both children exist. A child is inside the half of the node that its index names. free has the value
// that updated computes.
type node[V any] struct {
	key   key
	child [2]*node[V]
	value V      // the zero value unless the node is a member
	count uint32 // insertions of exactly this prefix minus removals
	bits  uint8
	free  uint8 // length of the shortest (largest) prefix inside that overlaps no member at or below the node; none if there is none
}

// none means "no free block". It is longer than any prefix.
const none = 255

// Insert inserts p, and returns its value, which the caller may modify until p is removed.
func (s *PrefixMap[V]) Insert(p netip.Prefix) (value *V) {
	p = p.Masked()
	root := &s.root[FamilyOf(p)]
	at, member := (*root).insert(keyOf(p.Addr()), uint8(p.Bits()))
	*root = at
	return &member.value
}

// At returns the value of p; nil if p is not a member.
func (s *PrefixMap[V]) At(p netip.Prefix) (value *V) {
	if n, _ := s.below(p); n != nil && int(n.bits) == p.Bits() && n.count > 0 {
		return &n.value
	}
	return nil
}

// Remove undoes one insertion of exactly p. It reports whether there was one.
func (s *PrefixMap[V]) Remove(p netip.Prefix) (ok bool) {
	p = p.Masked()
	root := &s.root[FamilyOf(p)]
	*root, ok = (*root).remove(keyOf(p.Addr()), uint8(p.Bits()))
	return ok
}

// Overlaps reports whether a member shares an address with p.
func (s *PrefixMap[V]) Overlaps(p netip.Prefix) bool {
	n, covered := s.below(p)
	return covered || n != nil
}

// Overlapping yields the members that share an address with p. It yields a member once, even if it was inserted several
// times. First come the members that contain p, widest first, then those inside p in the order of their addresses, a wider
// member before those that it contains. The set must not change meanwhile.
func (s *PrefixMap[V]) Overlapping(p netip.Prefix) iter.Seq[netip.Prefix] {
	return func(yield func(netip.Prefix) bool) {
		f := FamilyOf(p)
		for n := range s.overlapping(p) {
			if !yield(n.prefix(f)) {
				return
			}
		}
	}
}

// Values yields the values of the members that Overlapping yields, in the same order.
func (s *PrefixMap[V]) Values(p netip.Prefix) iter.Seq[V] {
	return func(yield func(V) bool) {
		for n := range s.overlapping(p) {
			if !yield(n.value) {
				return
			}
		}
	}
}

// overlapping is like Overlapping, but yields the nodes of the members.
func (s *PrefixMap[V]) overlapping(p netip.Prefix) iter.Seq[*node[V]] {
	return func(yield func(*node[V]) bool) {
		p := p.Masked()
		k, b := keyOf(p.Addr()), uint8(p.Bits())
		n := s.root[FamilyOf(p)]
		for ; n != nil && n.bits < b && n.contains(k, b); n = n.child[k.bit(n.bits)] {
			if n.count > 0 && !yield(n) {
				return
			}
		}
		if n.inside(k, b) {
			n.walk(yield)
		}
	}
}

// NextFree returns the first aligned block of the given length inside within that overlaps no member. The search starts
// at the block that contains from, goes to the end of within, and continues at its start. If from is not inside
// within, the search begins at the start. ok is false if within has no such block.
func (s *PrefixMap[V]) NextFree(within netip.Prefix, bits int, from netip.Addr) (block netip.Prefix, ok bool) {
	return nextFree(s, &PrefixSet{}, within, bits, from)
}

// nextFree is like NextFree, for blocks that overlap no member of either set.
func nextFree[V any](s *PrefixMap[V], without *PrefixSet, within netip.Prefix, bits int, from netip.Addr) (block netip.Prefix, ok bool) {
	within = within.Masked()
	f := FamilyOf(within)
	if bits < within.Bits() || bits > f.Bits() {
		return netip.Prefix{}, false
	}
	n, covered := s.below(within)
	o, excluded := without.below(within)
	if covered || excluded {
		return netip.Prefix{}, false
	}
	start, startBits, b := keyOf(within.Addr()), uint8(within.Bits()), uint8(bits)
	at := start
	if within.Contains(from) {
		at = keyOf(from).and(mask(b))
	}
	k, ok := firstFree(n, o, start, startBits, b, at)
	if !ok && at != start {
		k, ok = firstFree(n, o, start, startBits, b, start)
	}
	if !ok {
		return netip.Prefix{}, false
	}
	return netip.PrefixFrom(k.addr(f), bits), true
}

// count returns how many aligned blocks of the given length inside within overlap no member of either set, and how many overlap one.
// math.MaxUint64 means that number or more. It may visit every member inside within.
func count[V any](s *PrefixMap[V], without *PrefixSet, within netip.Prefix, bits int) (free, taken uint64) {
	within = within.Masked()
	n, covered := s.below(within)
	o, excluded := without.below(within)
	if covered || excluded {
		return 0, pow2(bits - within.Bits())
	}
	return countBlocks(n, o, uint8(within.Bits()), uint8(bits))
}

// below returns the topmost node that is p or inside p, or nil if there is no member there. covered reports
// whether a member strictly contains p.
func (s *PrefixMap[V]) below(p netip.Prefix) (n *node[V], covered bool) {
	p = p.Masked()
	k, b := keyOf(p.Addr()), uint8(p.Bits())
	n = s.root[FamilyOf(p)]
	for ; n != nil && n.bits < b && n.contains(k, b); n = n.child[k.bit(n.bits)] {
		covered = covered || n.count > 0
	}
	if !n.inside(k, b) {
		return nil, covered
	}
	return n, covered
}

func (n *node[V]) prefix(f Family) netip.Prefix { return netip.PrefixFrom(n.key.addr(f), int(n.bits)) }

// contains reports whether n's prefix contains k/b.
func (n *node[V]) contains(k key, b uint8) bool {
	return n.bits <= b && n.key.common(k, n.bits) == n.bits
}

// inside reports whether n is not nil and k/b contains n's prefix.
func (n *node[V]) inside(k key, b uint8) bool {
	return n != nil && b <= n.bits && n.key.common(k, b) == b
}

// insert adds k/b at or below the place of n. It returns the node that is at this place now, and the node of k/b.
//
//	n = nil        k/b = n        k/b inside n     n inside k/b      neither
//
//	  k/b             n+1              n                k/b             fork
//	                                  / \               /               /  \
//	                                 .  k/b            n               n   k/b
func (n *node[V]) insert(k key, b uint8) (at, member *node[V]) {
	if n == nil {
		member = (&node[V]{key: k, bits: b, count: 1}).updated()
		return member, member
	}
	shared := n.key.common(k, min(n.bits, b))
	switch {
	case shared == n.bits && shared == b:
		n.count++
		return n.updated(), n
	case shared == n.bits:
		c := &n.child[k.bit(n.bits)]
		before := (*c).largestFree(n.bits + 1)
		*c, member = (*c).insert(k, b)
		if (*c).largestFree(n.bits+1) != before { // otherwise n.free does not change, and the other child need not be visited
			n.updated()
		}
		return n, member
	case shared == b:
		member = &node[V]{key: k, bits: b, count: 1}
		member.child[n.key.bit(b)] = n
		return member.updated(), member
	default:
		member = (&node[V]{key: k, bits: b, count: 1}).updated()
		fork := &node[V]{key: k.and(mask(shared)), bits: shared}
		fork.child[n.key.bit(shared)] = n
		fork.child[k.bit(shared)] = member
		return fork.updated(), member
	}
}

// remove undoes one insertion of k/b at or below the place of n. It returns the node that is at this place now.
func (n *node[V]) remove(k key, b uint8) (_ *node[V], ok bool) {
	if n == nil || !n.contains(k, b) {
		return n, false
	}
	if n.bits == b {
		if n.count == 0 {
			return n, false
		}
		n.count--
		if n.count == 0 {
			var zero V
			n.value = zero
		}
	} else {
		c := &n.child[k.bit(n.bits)]
		if *c, ok = (*c).remove(k, b); !ok {
			return n, false
		}
	}
	switch {
	case n.count > 0 || n.child[0] != nil && n.child[1] != nil:
		return n.updated(), true
	case n.child[0] != nil:
		return n.child[0], true
	default:
		return n.child[1], true
	}
}

// updated recomputes n.free from the children.
func (n *node[V]) updated() *node[V] {
	if n.count > 0 {
		n.free = none
	} else {
		n.free = min(n.child[0].largestFree(n.bits+1), n.child[1].largestFree(n.bits+1))
	}
	return n
}

// largestFree returns the length of the largest free block of a region of length b in which n is the topmost node.
func (n *node[V]) largestFree(b uint8) uint8 {
	switch {
	case n == nil:
		return b
	case n.bits == b:
		return n.free
	default:
		return b + 1 // n is in one half of the region; the other half is free
	}
}

// in returns the topmost node of half i of a region of length b in which n is the topmost node. Requires b < the length of an address.
func (n *node[V]) in(b uint8, i int) *node[V] {
	switch {
	case n == nil:
		return nil
	case n.bits == b:
		return n.child[i]
	case n.key.bit(b) == i:
		return n
	default:
		return nil
	}
}

// firstFree returns the lowest block of length b at or above from in region r/rb that is free in two sets, where n and o are the topmost nodes
// of the sets in the region. Requires rb <= b and from aligned to b.
//
// With one empty set it takes O(address bits) steps. If a region that it enters is wholly at or above from, either largestFree rejects the
// region at once, or the region contains the answer. And only one path of regions contains from strictly inside. With two sets it takes more
// steps where the free blocks of one are the members of the other: at most the number of nodes of the smaller set times the length of an address.
func firstFree[V, W any](n *node[V], o *node[W], r key, rb, b uint8, from key) (key, bool) {
	switch {
	case n.largestFree(rb) > b || o.largestFree(rb) > b || r.last(rb).less(from):
		return key{}, false
	case n == nil && o == nil:
		if r.less(from) {
			return from, true
		}
		return r, true
	}
	if k, ok := firstFree(n.in(rb, 0), o.in(rb, 0), r, rb+1, b, from); ok {
		return k, true
	}
	return firstFree(n.in(rb, 1), o.in(rb, 1), r.withBit(rb), rb+1, b, from)
}

// countBlocks returns how many blocks of length b in a region of length rb are free in two sets, and how many are not, where n and o are the
// topmost nodes of the sets in the region.
func countBlocks[V, W any](n *node[V], o *node[W], rb, b uint8) (free, taken uint64) {
	switch {
	case n.largestFree(rb) > b || o.largestFree(rb) > b:
		return 0, pow2(int(b - rb))
	case n == nil && o == nil:
		return pow2(int(b - rb)), 0
	}
	free, taken = countBlocks(n.in(rb, 0), o.in(rb, 0), rb+1, b)
	free1, taken1 := countBlocks(n.in(rb, 1), o.in(rb, 1), rb+1, b)
	return add(free, free1), add(taken, taken1)
}

// walk yields the members at and below n in address order, a wider one before those inside it. It reports whether to continue.
func (n *node[V]) walk(yield func(*node[V]) bool) bool {
	return n == nil ||
		(n.count == 0 || yield(n)) && n.child[0].walk(yield) && n.child[1].walk(yield)
}

package ipam

import (
	"fmt"
	"net/netip"
	"reflect"
	"slices"
)

// broken returns what is wrong inside l: an index that contradicts the others, or a trie that does not fit its members. It
// does not check whether l holds what it should.
func (l *Ledger) broken() error {
	shared := map[netip.Prefix][]*holder{}
	members := map[netip.Prefix]uint32{}
	for o, h := range l.held {
		if h.Owner != o || len(h.prefixes) == 0 {
			return fmt.Errorf("%v is in the place of %v, or holds an empty list: %v", h.Owner, o, h.prefixes)
		}
		for _, p := range h.prefixes {
			if p != p.Masked() || !p.IsValid() {
				return fmt.Errorf("%v holds %v, which is not masked or not valid", o, p)
			}
			shared[p] = append(shared[p], h)
			members[p]++
		}
	}
	for p, holders := range shared {
		slices.SortFunc(holders, compareHolders)
		n, _ := l.taken.below(p)
		switch {
		case n == nil || n.prefix(FamilyOf(p)) != p:
			return fmt.Errorf("%v is held, but not in the trie", p)
		case len(holders) > 1 && n.value != nil:
			return fmt.Errorf("%v has %d holders and yet one in the trie", p, len(holders))
		case len(holders) == 1 && n.value != holders[0]:
			return fmt.Errorf("%v is held by %v, but the trie says %v", p, holders[0].Owner, n.value)
		case len(holders) == 1:
			delete(shared, p)
		}
	}
	if (len(shared) > 0 || len(l.shared) > 0) && !reflect.DeepEqual(l.shared, shared) {
		return fmt.Errorf("holders of the same prefix are %v, but what owners hold says %v", l.shared, shared)
	}
	return l.taken.broken(members)
}

// broken returns what is wrong in s, which must have exactly the given members with the given counts.
func (s *PrefixMap[V]) broken(members map[netip.Prefix]uint32) error {
	rest := len(members)
	for f := IPv4; f <= IPv6; f++ {
		var inFamily []netip.Prefix
		for p := range members {
			if FamilyOf(p) == f {
				inFamily = append(inFamily, p)
			}
		}
		free := map[netip.Prefix]uint8{}
		everything := addrAt(size(0).SetUint64(0), f)
		shortestFree(netip.PrefixFrom(everything, 0), inFamily, free)

		var visit func(n *node[V]) error
		visit = func(n *node[V]) error {
			if n == nil {
				return nil
			}
			p := n.prefix(f)
			switch {
			case int(n.bits) > f.Bits() || n.key != keyOf(p.Masked().Addr()):
				return fmt.Errorf("node %v has bits set behind its length", p)
			case n.count != members[p]:
				return fmt.Errorf("node %v counts %d insertions, not %d", p, n.count, members[p])
			case n.count == 0 && !reflect.ValueOf(n.value).IsZero():
				return fmt.Errorf("node %v is no member, but keeps the value of one: %v", p, n.value)
			case n.count == 0 && (n.child[0] == nil || n.child[1] == nil):
				return fmt.Errorf("node %v is neither a member nor a fork", p)
			case n.free != free[p]:
				return fmt.Errorf("node %v says its largest free block is a /%d, not /%d", p, n.free, free[p])
			}
			if n.count > 0 {
				rest--
			}
			for i, c := range n.child {
				if c != nil && !half(p, i).Contains(c.key.addr(f)) {
					return fmt.Errorf("node %v has child %v in half %d", p, c.prefix(f), i)
				}
				if c != nil && c.bits <= n.bits {
					return fmt.Errorf("node %v has child %v, which is not inside", p, c.prefix(f))
				}
				if err := visit(c); err != nil {
					return err
				}
			}
			return nil
		}
		if err := visit(s.root[f]); err != nil {
			return err
		}
	}
	if rest != 0 {
		return fmt.Errorf("%d of the members %v are not in the trie", rest, members)
	}
	return nil
}

// shortestFree returns the length of the shortest prefix at or below p that overlaps none of the given members, which are the
// members at or below p. It records the answer for p and for everything below p that has members.
func shortestFree(p netip.Prefix, members []netip.Prefix, found map[netip.Prefix]uint8) uint8 {
	if len(members) == 0 {
		return uint8(p.Bits())
	}
	free := uint8(none)
	if p.Bits() < p.Addr().BitLen() {
		for i := range 2 {
			h := half(p, i)
			var below []netip.Prefix
			for _, m := range members {
				if m != p && h.Contains(m.Addr()) {
					below = append(below, m)
				}
			}
			free = min(free, shortestFree(h, below, found))
		}
	}
	if slices.Contains(members, p) {
		free = none
	}
	found[p] = free
	return free
}

// half returns the lower or upper half of p.
func half(p netip.Prefix, i int) netip.Prefix {
	lower := netip.PrefixFrom(p.Masked().Addr(), p.Bits()+1)
	if i == 0 {
		return lower
	}
	return netip.PrefixFrom(addrAt(after(lower), FamilyOf(p)), p.Bits()+1)
}

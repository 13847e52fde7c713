package ipam

import (
	"cmp"
	"iter"
	"net/netip"
	"slices"
	"strings"
)

// Owner is an owner of prefixes: a Node, or a service range.
type Owner struct {
	Kind Kind
	ID   string
}

// Kind is the kind of an owner.
type Kind uint8

const (
	Node Kind = iota
	Service
)

func (k Kind) String() string { return [...]string{"Node", "Service"}[k] }

func (o Owner) String() string { return o.Kind.String() + "/" + o.ID }

func compareOwners(a, b Owner) int {
	return cmp.Or(cmp.Compare(a.Kind, b.Kind), strings.Compare(a.ID, b.ID))
}

// Holding says that an owner holds a prefix.
type Holding struct {
	Owner  Owner
	Prefix netip.Prefix
}

// Ledger knows which owner holds which prefixes. The zero value is an empty ledger.
//
// Holdings of different owners can overlap, because the ledger must accept what another allocator wrote to a Node. But [Ledger.Reserve]
// never adds such an overlap. An address is free again only when its last holder has released it.
//
// Invariant: taken has exactly the prefixes in held, each once per owner and with its owners, sorted by kind and ID.
type Ledger struct {
	taken   PrefixMap[[]Owner]
	held    [2]map[string][]netip.Prefix // by kind and ID
	cursors map[string][2]netip.Addr     // by Pool.ID and Family: where the search for the pool's next block continues
}

// look returns one free block of every range of p, in the order of Pool.Ranges, whatever the state of p. In each range the search goes on where
// the last one ended, wraps around, and takes the first aligned block that overlaps no holding and no exclusion of p. If a range of p has no free
// block, there are no blocks, and full has the families of all such ranges, IPv4 first.
func (l *Ledger) look(p *Pool) (blocks []netip.Prefix, full []Family) {
	var found [2]netip.Prefix // on the stack: many full pools may be tried before one that has a free block
	bits, from := 0, l.cursors[p.ID]
	for i, r := range p.Ranges {
		block, ok := nextFree(&l.taken, &p.Excluded, r.Prefix, r.BlockBits, from[r.Family()])
		if found[i] = block; !ok {
			bits |= 1 << r.Family()
		}
	}
	if bits > 0 || len(p.Ranges) == 0 {
		return nil, families[bits]
	}
	return slices.Clone(found[:len(p.Ranges)]), nil
}

// families are the lists of families, each at the sum of 1<<f for every f in it.
var families = [...][]Family{nil, {IPv4}, {IPv6}, {IPv4, IPv6}}

// Full returns the families in which p has no free block. It does not depend on p's state. The caller must not modify it.
func (l *Ledger) Full(p *Pool) []Family {
	_, full := l.look(p)
	return full
}

// Reserve makes o, which must hold nothing, the holder of one free block of every range of p, whatever the state of p, and moves p's cursors
// behind them. If a range of p has no free block, or if p has no ranges, it changes nothing and returns nothing. The caller must not modify
// what it returns.
func (l *Ledger) Reserve(o Owner, p *Pool) (blocks []netip.Prefix) {
	blocks, _ = l.look(p)
	if len(blocks) > 0 {
		l.replace(o, blocks)
	}
	for _, b := range blocks {
		l.ContinueBehind(p, b)
	}
	return blocks
}

// Hold replaces everything that o holds by the given prefixes, even if others hold them too. It records facts: the podCIDRs that a Node
// shows, or a service range. Invalid prefixes have no addresses and are ignored. Host bits are masked off.
func (l *Ledger) Hold(o Owner, prefixes ...netip.Prefix) {
	var now []netip.Prefix
	for _, p := range prefixes {
		if p = p.Masked(); p.IsValid() && !slices.Contains(now, p) {
			now = append(now, p)
		}
	}
	l.replace(o, now)
}

// replace replaces everything that o holds by now, which must be valid, masked and without duplicates.
func (l *Ledger) replace(o Owner, now []netip.Prefix) {
	before := l.Held(o)
	for _, p := range now {
		if slices.Contains(before, p) {
			continue
		}
		owners := l.taken.Insert(p)
		i, _ := slices.BinarySearchFunc(*owners, o, compareOwners)
		*owners = slices.Insert(*owners, i, o)
	}
	for _, p := range before {
		if slices.Contains(now, p) {
			continue
		}
		owners := l.taken.At(p)
		*owners = slices.DeleteFunc(*owners, func(other Owner) bool { return other == o })
		l.taken.Remove(p)
	}
	if len(now) == 0 {
		delete(l.held[o.Kind], o.ID)
		return
	}
	if l.held[o.Kind] == nil {
		l.held[o.Kind] = map[string][]netip.Prefix{}
	}
	l.held[o.Kind][o.ID] = now
}

// Held returns what o holds, in the order in which Hold or Reserve got it. The caller must not modify it.
func (l *Ledger) Held(o Owner) []netip.Prefix { return l.held[o.Kind][o.ID] }

// Holdings yields every holding that shares an address with p, which must be valid. First come the holdings that contain p, widest first, then
// those inside p in address order, a wider one before those that it contains. Holdings of the same prefix are ordered by the owner's kind and
// ID. The ledger must not change meanwhile.
func (l *Ledger) Holdings(p netip.Prefix) iter.Seq[Holding] {
	return func(yield func(Holding) bool) {
		f := FamilyOf(p)
		for n := range l.taken.overlapping(p) {
			for _, o := range n.value {
				if !yield(Holding{Owner: o, Prefix: n.prefix(f)}) {
					return
				}
			}
		}
	}
}

// Conflicts yields the holdings of others that share an address with something that o holds, each once. It goes through the
// prefixes of o, and for each prefix yields in the order of [Ledger.Holdings]. The ledger must not change meanwhile.
func (l *Ledger) Conflicts(o Owner) iter.Seq[Holding] {
	return func(yield func(Holding) bool) {
		held := l.Held(o)
		for i, p := range held {
			for h := range l.Holdings(p) {
				if h.Owner == o || slices.ContainsFunc(held[:i], h.Prefix.Overlaps) {
					continue
				}
				if !yield(h) {
					return
				}
			}
		}
	}
}

// Shared yields pairs of holdings that have addresses in common inside a prefix and conflict: their owners differ, and at least one is a Node.
// Service ranges may overlap each other. Not all pairs are yielded, as there may be as many as the square of the number of holdings: the first
// of a pair is the widest holding around the second. But every Node that conflicts with another owner there is in a pair. The ledger must not
// change meanwhile.
func (l *Ledger) Shared(within netip.Prefix) iter.Seq2[Holding, Holding] {
	return func(yield func(widest, other Holding) bool) {
		var widest Holding // what comes next lies in it, or behind it
		for h := range l.Holdings(within) {
			switch {
			case !widest.Prefix.IsValid() || !widest.Prefix.Overlaps(h.Prefix):
				widest = h
			case widest.Owner != h.Owner && (widest.Owner.Kind == Node || h.Owner.Kind == Node):
				if !yield(widest, h) {
					return
				}
			}
		}
	}
}

// Cursor returns the address at which the search for p's next block of family f starts. The invalid address means the
// start of the range.
func (l *Ledger) Cursor(p *Pool, f Family) netip.Addr { return l.cursors[p.ID][f] }

// ContinueBehind makes the search for p's next block of a block's family start behind that block, or at the start of the range if that is not
// inside p's range.
func (l *Ledger) ContinueBehind(p *Pool, block netip.Prefix) {
	l.setCursor(p, FamilyOf(block), After(block)) // The invalid address means the start of the range.
}

func (l *Ledger) setCursor(p *Pool, f Family, a netip.Addr) {
	if l.cursors == nil {
		l.cursors = map[string][2]netip.Addr{}
	}
	at := l.cursors[p.ID]
	at[f] = a
	l.cursors[p.ID] = at
}

// Forget drops p's cursors. Blocks of p that are held stay held.
func (l *Ledger) Forget(p *Pool) { delete(l.cursors, p.ID) }

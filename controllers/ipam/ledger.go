package ipam

import (
	"cmp"
	"iter"
	"maps"
	"net/netip"
	"slices"
	"strings"
)

// Owner is an owner of prefixes: a Node (by its UID), a service range, or a reason to allocate them to nobody.
type Owner struct {
	Kind Kind
	ID   string
}

type Kind uint8

const (
	Node Kind = iota
	Service
	// Kept is for addresses that must not be allocated, although no known Node or service range has them.
	Kept
)

func (k Kind) String() string { return [...]string{"Node", "Service", "Kept"}[k] }

func (o Owner) String() string { return o.Kind.String() + "/" + o.ID }

func compareOwners(a, b Owner) int {
	return cmp.Or(cmp.Compare(a.Kind, b.Kind), strings.Compare(a.ID, b.ID))
}

// Holding says that an owner holds a prefix.
type Holding struct {
	Owner  Owner
	Prefix netip.Prefix
}

// Conflicting reports whether two overlapping holdings are a conflict: they have different owners and at least one is a Node. Service
// ranges may overlap each other, and kept blocks conflict with nothing.
func Conflicting(a, b Holding) bool {
	return a.Owner != b.Owner && (a.Owner.Kind == Node || b.Owner.Kind == Node) && a.Owner.Kind != Kept && b.Owner.Kind != Kept
}

// Ledger knows which owner holds which prefixes. The zero value is an empty ledger.
//
// Holdings of different owners can overlap, because the ledger must accept what another allocator wrote to a Node. But [Ledger.Pick] and
// [Ledger.Reserve] never add such an overlap. An address is free again only when its last holder has released it.
//
// Invariant: the value of a member of taken is its holder, if it has only one. The holders of all other members are in shared. So the usual
// case, a block with one holder, needs no entry in an index.
type Ledger struct {
	taken   PrefixMap[*holder]         // every prefix once per holder
	shared  map[netip.Prefix][]*holder // sorted by kind and ID
	held    map[Owner]*holder
	cursors map[string]*[2]netip.Addr // by Pool.ID and Family: where the search for the pool's next block continues
	// counts and exclusions are derived from the fields above.
	counts     counts
	exclusions exclusions
}

// holder is an owner that holds something.
type holder struct {
	Owner
	prefixes []netip.Prefix
}

// Pick is one free block of every range of a pool, in the order of Pool.Ranges. After Reserve it belongs to the ledger and must not be
// modified.
type Pick struct {
	Pool   *Pool
	Blocks []netip.Prefix
	From   [2]netip.Addr // by Family: the cursors at which the search started
}

// Pick chooses one block of every range of the first pool that is enabled and has a free block in each of its ranges. It
// changes nothing: a pool with a free block in only one of two families loses nothing.
func (l *Ledger) Pick(pools ...*Pool) (Pick, bool) {
	for _, p := range pools {
		if p.State != Enabled || len(p.Ranges) == 0 {
			continue
		}
		if pick, full := l.Look(p); len(full) == 0 {
			return pick, true
		}
	}
	return Pick{}, false
}

// Look is Pick for one pool, whatever its state, and says what is missing: it chooses nothing if a range of p has no free block, and returns
// the families of all such ranges. The caller must not modify full.
func (l *Ledger) Look(p *Pool) (pick Pick, full []Family) {
	var found [2]netip.Prefix // on the stack: many full pools may be tried before one that can serve
	bits, from, without := 0, l.cursorsOf(p), l.exclusions.in(p)
	for i, r := range p.Ranges {
		block, ok := nextFree(&l.taken, without, r.Prefix, r.BlockBits, from[r.Family()])
		if found[i] = block; !ok {
			bits |= 1 << r.Family()
		}
	}
	if bits > 0 || len(p.Ranges) == 0 {
		return Pick{}, families[bits]
	}
	return Pick{Pool: p, Blocks: slices.Clone(found[:len(p.Ranges)]), From: from}, nil
}

// families are the lists of families, each at the sum of 1<<f for every f in it.
var families = [...][]Family{nil, {IPv4}, {IPv6}, {IPv4, IPv6}}

// Full returns the families in which p has no free block. It does not depend on p's state.
func (l *Ledger) Full(p *Pool) []Family {
	_, full := l.Look(p)
	return full
}

// Reserve makes o the holder of all picked blocks, and moves the pool's cursors past them. It returns false and changes nothing if the pick
// is empty, if o already holds anything, or if a block overlaps a holding. In the last case the ledger has changed since the pick, and the
// caller must pick again.
func (l *Ledger) Reserve(o Owner, pick Pick) bool {
	if len(pick.Blocks) == 0 || l.held[o] != nil || slices.ContainsFunc(pick.Blocks, l.taken.Overlaps) {
		return false
	}
	l.replace(&holder{Owner: o}, pick.Blocks)
	at := l.cursorsIn(pick.Pool)
	for _, b := range pick.Blocks {
		at[FamilyOf(b)], _ = next(b) // at the end of the address space this is the invalid address, which means the start of the range
	}
	return true
}

// Hold replaces everything that o holds by the given prefixes, even if others hold them too. It records facts: the podCIDRs that a Node
// shows, or a service range. Holding the same prefixes again changes nothing. Invalid prefixes have no addresses and are ignored. Host bits
// are masked off.
//
// It reports whether o alone holds the addresses that are new to it: it is false if a new prefix overlaps any holding, of o or of others.
func (l *Ledger) Hold(o Owner, prefixes ...netip.Prefix) (alone bool) {
	now := masked(prefixes)
	h := l.held[o]
	if h == nil {
		h = &holder{Owner: o}
	}
	if slices.Equal(h.prefixes, now) {
		return true
	}
	return l.replace(h, now)
}

// replace replaces everything that h holds by now. now must be valid, masked, without duplicates, and different from what h holds. The
// result is that of Hold.
func (l *Ledger) replace(h *holder, now []netip.Prefix) (alone bool) {
	before := h.prefixes
	alone = true
	for _, p := range Without(now, before) {
		alone = l.add(h, p) && alone
	}
	for _, p := range Without(before, now) {
		l.drop(h, p)
	}
	if len(now) == 0 {
		delete(l.held, h.Owner)
		return alone
	}
	if before == nil {
		if l.held == nil {
			l.held = map[Owner]*holder{}
		}
		l.held[h.Owner] = h
	}
	h.prefixes = now
	return alone
}

// Expect makes room for this many more owners.
func (l *Ledger) Expect(owners int) {
	held := make(map[Owner]*holder, len(l.held)+owners)
	maps.Copy(held, l.held)
	l.held = held
}

// Release removes everything that o holds. It reports whether there was anything.
func (l *Ledger) Release(o Owner) bool {
	held := l.held[o] != nil
	l.Hold(o)
	return held
}

// Held returns what o holds, in the order in which Hold or Reserve got it. The caller must not modify it.
func (l *Ledger) Held(o Owner) []netip.Prefix {
	if h := l.held[o]; h != nil {
		return h.prefixes
	}
	return nil
}

// All yields every owner that holds something, with its prefixes, in no particular order. The ledger must not change meanwhile.
func (l *Ledger) All() iter.Seq2[Owner, []netip.Prefix] {
	return func(yield func(Owner, []netip.Prefix) bool) {
		for o, h := range l.held {
			if !yield(o, h.prefixes) {
				return
			}
		}
	}
}

// Overlapping returns every holding that shares an address with p, which must be valid. First come the holdings that contain p, widest
// first, then those inside p in address order. Holdings of the same prefix are ordered by the owner's kind and ID.
func (l *Ledger) Overlapping(p netip.Prefix) []Holding { return slices.Collect(l.Holdings(p)) }

// Holdings yields what [Ledger.Overlapping] returns, for callers that may not need all of it: one prefix can overlap every
// other. The ledger must not change meanwhile.
func (l *Ledger) Holdings(p netip.Prefix) iter.Seq[Holding] {
	return func(yield func(Holding) bool) {
		f := FamilyOf(p)
		for n := range l.taken.overlapping(p) {
			q := n.prefix(f)
			if n.count == 1 {
				if !yield(Holding{Owner: n.value.Owner, Prefix: q}) {
					return
				}
				continue
			}
			for _, h := range l.shared[q] {
				if !yield(Holding{Owner: h.Owner, Prefix: q}) {
					return
				}
			}
		}
	}
}

// Conflicts yields the holdings of others that share an address with something that o holds, each once. It goes through the
// prefixes of o, and for each prefix yields in the order of [Ledger.Overlapping]. The ledger must not change meanwhile.
func (l *Ledger) Conflicts(o Owner) iter.Seq[Holding] {
	return func(yield func(Holding) bool) {
		held := l.Held(o)
		var earlier PrefixSet // the prefixes of o before p, if there are many
		for i, p := range held {
			yielded := func(q netip.Prefix) bool {
				if i <= short {
					return slices.ContainsFunc(held[:i], q.Overlaps)
				}
				return earlier.Overlaps(q)
			}
			for h := range l.Holdings(p) {
				if h.Owner == o || yielded(h.Prefix) {
					continue
				}
				if !yield(h) {
					return
				}
			}
			if len(held) > short {
				earlier.Insert(p)
			}
		}
	}
}

// Free returns how many blocks of r overlap no holding and no exclusion of p. r is one of p's ranges or a part of one. math.MaxUint64 means
// that number or more. Free may visit every holding inside r, so it is for reports and not for allocation.
func (l *Ledger) Free(p *Pool, r Range) uint64 {
	return free(&l.taken, &p.Excluded, r.Prefix, r.BlockBits)
}

// Taken returns how many blocks of r overlap a holding or an exclusion of p. r is one of p's ranges or a part of one. math.MaxUint64 means
// that number or more. Taken is for ranges with 2^64 blocks or more, for which Free cannot return the number of free blocks. Like Free, it
// may visit every holding inside r.
func (l *Ledger) Taken(p *Pool, r Range) (n uint64) {
	var taken []netip.Prefix
	for _, members := range []iter.Seq[netip.Prefix]{l.taken.Overlapping(r.Prefix), p.Excluded.Overlapping(r.Prefix)} {
		for t := range members {
			taken = append(taken, r.around(t).Prefix)
		}
	}
	slices.SortFunc(taken, netip.Prefix.Compare)
	var last netip.Prefix // the last prefix that was counted
	for _, t := range taken {
		if last.IsValid() && last.Contains(t.Addr()) {
			continue // inside last: a wider prefix comes first
		}
		n = add(n, pow2(r.BlockBits-t.Bits()))
		last = t
	}
	return n
}

// Cursor returns the address at which the search for p's next block of family f starts. The invalid address means the
// start of the range.
func (l *Ledger) Cursor(p *Pool, f Family) netip.Addr { return l.cursorsOf(p)[f] }

func (l *Ledger) cursorsOf(p *Pool) (at [2]netip.Addr) {
	if c := l.cursors[p.ID]; c != nil {
		at = *c
	}
	return at
}

func (l *Ledger) SetCursor(p *Pool, f Family, a netip.Addr) { l.cursorsIn(p)[f] = a }

// cursorsIn returns p's cursors to be changed.
func (l *Ledger) cursorsIn(p *Pool) *[2]netip.Addr {
	at := l.cursors[p.ID]
	if at == nil {
		at = new([2]netip.Addr)
		if l.cursors == nil {
			l.cursors = map[string]*[2]netip.Addr{}
		}
		l.cursors[p.ID] = at
	}
	return at
}

// Forget drops p's cursors, and the counts of its ranges and exclusions. Blocks of p that are held stay held.
func (l *Ledger) Forget(p *Pool) {
	for _, r := range p.Ranges {
		l.counts.drop(r)
	}
	l.exclusions.drop(p)
	delete(l.cursors, p.ID)
}

// add makes h a holder of p. It reports whether p overlaps no other holding.
func (l *Ledger) add(h *holder, p netip.Prefix) (alone bool) {
	l.recount(p, minus)
	defer l.recount(p, 1)
	l.exclusions.changed(p, false)
	n, covered := l.taken.insert(p)
	if n.count == 1 {
		n.value = h
		return !covered && n.child == [2]*node[*holder]{}
	}
	holders := l.shared[p]
	if n.count == 2 {
		holders = []*holder{n.value}
		n.value = nil
	}
	if l.shared == nil {
		l.shared = map[netip.Prefix][]*holder{}
	}
	i, _ := slices.BinarySearchFunc(holders, h, compareHolders)
	l.shared[p] = slices.Insert(holders, i, h)
	return false
}

func (l *Ledger) drop(h *holder, p netip.Prefix) {
	l.recount(p, minus)
	defer l.recount(p, 1)
	l.exclusions.changed(p, true)
	l.taken.Remove(p)
	holders, ok := l.shared[p]
	if !ok {
		return
	}
	i, _ := slices.BinarySearchFunc(holders, h, compareHolders)
	if holders = slices.Delete(holders, i, i+1); len(holders) > 1 {
		l.shared[p] = holders
		return
	}
	delete(l.shared, p)
	*l.taken.At(p) = holders[0]
}

func compareHolders(a, b *holder) int { return compareOwners(a.Owner, b.Owner) }

// allocated reports whether one of the holders of p is a Node.
func (l *Ledger) allocated(p netip.Prefix) bool {
	n, _ := l.taken.below(p)
	switch {
	case n == nil || int(n.bits) != p.Bits() || n.count == 0:
		return false
	case n.count == 1:
		return n.value.Kind == Node
	default:
		return slices.ContainsFunc(l.shared[p], func(h *holder) bool { return h.Kind == Node })
	}
}

// Nested yields the pairs of holdings that share addresses, the containing one first. The holdings must come in the order of Holdings: a
// prefix comes before those that it contains. The number of pairs can be the square of the number of holdings, so take only as many as
// needed.
func Nested(holdings iter.Seq[Holding]) iter.Seq2[Holding, Holding] {
	return func(yield func(outer, inner Holding) bool) {
		var around []Holding // holdings that contain the next one, widest first
		for h := range holdings {
			for len(around) > 0 && !around[len(around)-1].Prefix.Overlaps(h.Prefix) {
				around = around[:len(around)-1]
			}
			for _, outer := range around {
				if !yield(outer, h) {
					return
				}
			}
			around = append(around, h)
		}
	}
}

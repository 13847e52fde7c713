package ipam

import (
	"cmp"
	"iter"
	"maps"
	"net/netip"
	"slices"
	"strings"
)

// Owner is who holds prefixes: a Node by its UID, a service range, or whoever keeps them from everybody.
type Owner struct {
	Kind Kind
	ID   string
}

type Kind uint8

const (
	Node Kind = iota
	Service
	// Kept is for addresses that nobody may be given, although neither a Node nor a Service is known to have them.
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

// Ledger knows who holds what. The zero value is an empty ledger.
//
// Holdings of different owners may overlap, because what others wrote into a Node has to be believed; but [Ledger.Pick]
// and [Ledger.Reserve] never add such an overlap. An address is free again only when its last holder released it.
//
// Invariant: a member of taken that is held once names its holder itself; the holders of all others are in shared. So what
// usually is, one holder of a block, costs no index of its own.
type Ledger struct {
	taken   PrefixSet                  // every prefix once per holder
	shared  map[netip.Prefix][]*holder // by kind and ID
	held    map[Owner]*holder
	cursors map[cursor]netip.Addr
	// counts and exclusions follow from the rest.
	counts     counts
	exclusions exclusions
}

// holder is an owner that holds something.
type holder struct {
	Owner
	prefixes []netip.Prefix
}

// cursor names the place where the search for the next block of a pool's range goes on.
type cursor struct {
	pool   string // Pool.ID
	family Family
}

// Pick is one free block from every range of a pool, in the order of Pool.Ranges. Once reserved it is the ledger's, and must not be changed.
type Pick struct {
	Pool   *Pool
	Blocks []netip.Prefix
}

// Pick chooses one block from every range of the first pool that is enabled and can serve all of its ranges. It changes
// nothing: a pool that can serve one family but not the other loses nothing.
func (l *Ledger) Pick(pools ...*Pool) (Pick, bool) {
	for _, p := range pools {
		if p.State != Enabled || len(p.Ranges) == 0 {
			continue
		}
		if blocks, full := l.blocks(p); len(full) == 0 {
			return Pick{Pool: p, Blocks: blocks}, true
		}
	}
	return Pick{}, false
}

// Full returns the families in which p has no free block, whatever p's state.
func (l *Ledger) Full(p *Pool) []Family {
	_, full := l.blocks(p)
	return full
}

func (l *Ledger) blocks(p *Pool) (blocks []netip.Prefix, full []Family) {
	blocks = make([]netip.Prefix, 0, len(p.Ranges))
	for _, r := range p.Ranges {
		b, ok := l.nextFree(p, r)
		if !ok {
			full = append(full, r.Family())
			continue
		}
		blocks = append(blocks, b)
	}
	return blocks, full
}

// Reserve makes o the holder of the picked blocks, all or none, and moves the pool's cursors behind them. It reports
// false, and changes nothing, if the pick is empty, if o holds anything already, or if a block overlaps what anyone
// holds: then the pick was made before something else changed, and has to be made again.
func (l *Ledger) Reserve(o Owner, pick Pick) bool {
	if len(pick.Blocks) == 0 || l.held[o] != nil || slices.ContainsFunc(pick.Blocks, l.taken.Overlaps) {
		return false
	}
	l.replace(&holder{Owner: o}, pick.Blocks)
	for _, b := range pick.Blocks {
		after, _ := next(b) // at the end of the address space the invalid address, which means the range's start
		l.SetCursor(pick.Pool, FamilyOf(b), after)
	}
	return true
}

// Hold makes the given prefixes all that o holds, whoever else holds them. It is how the ledger learns of what is a
// fact already: podCIDRs that a Node shows, a service range. Held the second time, nothing changes.
// A prefix that is not valid stands for no address and is passed over; host bits are masked off.
//
// It reports whether o is alone, as far as what it did not hold before goes: false if that overlaps anything that is held, by o or others.
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

// replace makes the prefixes, which are valid, masked and different, all that h holds, and other than before. It reports what Hold does.
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

// Expect makes room for so many owners.
func (l *Ledger) Expect(owners int) {
	held := make(map[Owner]*holder, len(l.held)+owners)
	maps.Copy(held, l.held)
	l.held = held
}

// Release ends all that o holds. It reports whether there was anything.
func (l *Ledger) Release(o Owner) bool {
	held := l.held[o] != nil
	l.Hold(o)
	return held
}

// Held returns what o holds, in the order in which it was given. The caller must not change it.
func (l *Ledger) Held(o Owner) []netip.Prefix {
	if h := l.held[o]; h != nil {
		return h.prefixes
	}
	return nil
}

// All yields everybody who holds anything with what Held says, in no order. The ledger must not change meanwhile.
func (l *Ledger) All() iter.Seq2[Owner, []netip.Prefix] {
	return func(yield func(Owner, []netip.Prefix) bool) {
		for o, h := range l.held {
			if !yield(o, h.prefixes) {
				return
			}
		}
	}
}

// Overlapping returns every holding that shares an address with p, which has to be valid: those that contain p, widest first, then those
// inside p in the order of their addresses; holders of the same prefix in the order of their kind and ID.
func (l *Ledger) Overlapping(p netip.Prefix) []Holding { return slices.Collect(l.Holdings(p)) }

// Holdings yields what [Ledger.Overlapping] returns, for callers that may not want all: one prefix can overlap every
// other. The ledger must not change meanwhile.
func (l *Ledger) Holdings(p netip.Prefix) iter.Seq[Holding] {
	return func(yield func(Holding) bool) {
		f := FamilyOf(p)
		for n := range l.taken.overlapping(p) {
			q := n.prefix(f)
			if n.count == 1 {
				if !yield(Holding{Owner: n.holder.Owner, Prefix: q}) {
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

// Conflicts yields the holdings of others that share an address with something o holds, each once: for one prefix that o
// holds after the other, in the order of [Ledger.Overlapping]. The ledger must not change meanwhile.
func (l *Ledger) Conflicts(o Owner) iter.Seq[Holding] {
	return func(yield func(Holding) bool) {
		held := l.Held(o)
		var earlier PrefixSet // what o holds before p, if there may be much of it
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

// Free returns how many blocks of r, which is one of p's ranges or a part of it, overlap nothing that is held by anyone or excluded by p;
// math.MaxUint64 stands for that many or more. It may visit every holding inside r, so it is for reports, not for choosing.
func (l *Ledger) Free(p *Pool, r Range) uint64 {
	return free(&l.taken, &p.Excluded, r.Prefix, r.BlockBits)
}

// Taken returns how many blocks of r, which is one of p's ranges or a part of it, overlap something that is held or excluded by p;
// math.MaxUint64 stands for that many or more. It is for ranges with 2^64 blocks and more, of which Free cannot say what is left; like
// Free, it may visit every holding inside r.
func (l *Ledger) Taken(p *Pool, r Range) (n uint64) {
	var taken []netip.Prefix
	for _, set := range []*PrefixSet{&l.taken, &p.Excluded} {
		for t := range set.Overlapping(r.Prefix) {
			taken = append(taken, r.around(t).Prefix)
		}
	}
	slices.SortFunc(taken, netip.Prefix.Compare)
	var last netip.Prefix // of those that were counted
	for _, t := range taken {
		if last.IsValid() && last.Contains(t.Addr()) {
			continue // a wider one comes before those inside it
		}
		n = add(n, pow2(r.BlockBits-t.Bits()))
		last = t
	}
	return n
}

// Cursor returns the address where the search for p's next block of family f starts, or the invalid address, which
// means the start of the range.
func (l *Ledger) Cursor(p *Pool, f Family) netip.Addr { return l.cursors[cursor{p.ID, f}] }

func (l *Ledger) SetCursor(p *Pool, f Family, a netip.Addr) {
	if l.cursors == nil {
		l.cursors = map[cursor]netip.Addr{}
	}
	l.cursors[cursor{p.ID, f}] = a
}

// Forget drops p's cursors and all that is remembered of its ranges and exclusions. What is held from p stays held.
func (l *Ledger) Forget(p *Pool) {
	for _, r := range p.Ranges {
		l.counts.drop(r)
	}
	l.exclusions.drop(p)
	delete(l.cursors, cursor{p.ID, IPv4})
	delete(l.cursors, cursor{p.ID, IPv6})
}

// add reports whether p overlaps nothing else that is held.
func (l *Ledger) add(h *holder, p netip.Prefix) (alone bool) {
	l.recount(p, minus)
	defer l.recount(p, 1)
	l.exclusions.changed(p, false)
	n, covered := l.taken.insert(p)
	if n.count == 1 {
		n.holder = h
		return !covered && n.child == [2]*node{}
	}
	holders := l.shared[p]
	if n.count == 2 {
		holders = []*holder{n.holder}
		n.holder = nil
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
	n, _ := l.taken.below(p)
	n.holder = holders[0]
}

func compareHolders(a, b *holder) int { return compareOwners(a.Owner, b.Owner) }

// allocated reports whether one of the holders of p is a Node.
func (l *Ledger) allocated(p netip.Prefix) bool {
	n, _ := l.taken.below(p)
	switch {
	case n == nil || int(n.bits) != p.Bits() || n.count == 0:
		return false
	case n.count == 1:
		return n.holder.Kind == Node
	default:
		return slices.ContainsFunc(l.shared[p], func(h *holder) bool { return h.Kind == Node })
	}
}

package ipam

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"

	"github.com/multicidr/controller-manager/controllers/internal/race"
	"github.com/multicidr/controller-manager/test/seeds"
)

// TestRandomHistories applies the same random steps to a ledger and to the reference, and compares every answer after
// every step.
func TestRandomHistories(t *testing.T) {
	seeds.Each(t, race.Part(uint64(40)), func(t *testing.T, seed uint64) {
		h := newHistory(t, seeded(seed))
		defer func() { seeds.Report(t, seed, h.told) }()
		for range 100 {
			h.step()
		}
		h.end()
	})
}

// history is a ledger, the reference, and everything that was done to both.
type history struct {
	t testing.TB
	dice
	ledger    Ledger
	reference reference
	foreign   int // how many steps of 100 bring facts that were not asked for
	owners    []Owner
	pools     []*Pool
	told      []string
}

func newHistory(t testing.TB, d dice) *history {
	h := &history{t: t, dice: d, foreign: one(d, []int{2, 8, 20})}
	for i := range 16 {
		h.owners = append(h.owners, Owner{[]Kind{Node, Node, Node, Service}[i%4], fmt.Sprint("o", i)})
	}
	for i := range 2 + d(4) {
		p := pool(fmt.Sprint("p", i))
		families := 1 + d(3)
		for f := IPv4; f <= IPv6; f++ {
			if families&(1<<f) != 0 {
				p.Ranges = append(p.Ranges, h.someRange(f))
			}
		}
		h.pools = append(h.pools, p)
		h.tell("pool %s %v", p.Name, p.Ranges)
	}
	return h
}

func (h *history) tell(format string, args ...any) {
	h.told = append(h.told, fmt.Sprintf(format, args...))
}

func (h *history) fail(format string, args ...any) {
	h.t.Helper()
	h.t.Fatalf(format, args...)
}

// same compares an answer of the ledger with the reference's.
func same[T comparable](h *history, got, want []T, format string, args ...any) {
	h.t.Helper()
	if !slices.Equal(got, want) {
		h.fail("%s = %v, want %v", fmt.Sprintf(format, args...), got, want)
	}
}

// step does one thing to both ledgers and asks both everything.
func (h *history) step() {
	switch d := h.dice(100); {
	case d < h.foreign:
		h.hold(one(h.dice, h.owners), h.somePrefixes())
	case d < 40:
		h.release(one(h.dice, h.owners))
	case d < 56:
		p, f, a := one(h.dice, h.pools), Family(h.dice(2)), h.somePrefix().Addr()
		h.tell("cursor %s %v %v", p.Name, f, a)
		h.ledger.setCursor(p, f, a)
		h.reference.setCursor(p, f, a)
	case d < 58:
		p := one(h.dice, h.pools)
		h.tell("forget %s", p.Name)
		h.ledger.Forget(p)
		h.reference.forget(p)
	case d < 60:
		h.exclude(h.dice(len(h.pools)))
	default:
		if o := one(h.dice, h.owners); len(h.reference.held(o)) == 0 {
			h.reserve(o, one(h.dice, h.pools))
		}
	}
	h.ask()
}

// exclude makes a pool exclude something else, or nothing.
func (h *history) exclude(i int) {
	p := *h.pools[i] // a changed pool is a new one; whoever has the old one keeps it
	p.Excluded = PrefixSet{}
	var excluded prefixList
	for range one(h.dice, []int{0, 1, 1, 2, 3, 8}) {
		if e := h.somePrefix().Masked(); !slices.Contains(excluded, e) {
			excluded = append(excluded, e)
			p.Excluded.Insert(e)
		}
	}
	h.tell("exclude %s %v", p.Name, excluded)
	if h.reference.excluded == nil {
		h.reference.excluded = map[string]prefixList{}
	}
	h.pools[i], h.reference.excluded[p.ID] = &p, excluded
}

// look compares the blocks that a pool would give, and checks the rules for them, whatever the reference answers.
func (h *history) look(p *Pool) {
	h.t.Helper()
	blocks, full := h.ledger.look(p)
	same(h, full, h.reference.full(p), "families that are full in %s", p.Name)
	same(h, h.ledger.Full(p), full, "Full(%s)", p.Name)
	var want []netip.Prefix
	if len(full) == 0 {
		want = h.reference.blocks(p)
	}
	same(h, blocks, want, "blocks of %s", p.Name)
	for i, b := range blocks {
		if r := p.Ranges[i]; b.Bits() != r.BlockBits || b != b.Masked() || !r.Prefix.Contains(b.Addr()) {
			h.fail("%v is not a block of %v", b, r)
		}
		if others := h.reference.overlapping(b); len(others) > 0 {
			h.fail("picked %v overlaps %v", b, others)
		}
		if excluded := h.reference.excluded[p.ID]; excluded.overlaps(b) {
			h.fail("pool %s excludes %v and gave %v", p.Name, excluded, b)
		}
	}
}

// reserve reserves what look shows; ask sees if a Reserve that found nothing changed anything.
func (h *history) reserve(o Owner, p *Pool) {
	h.t.Helper()
	want, _ := h.ledger.look(p)
	blocks := h.ledger.Reserve(o, p)
	h.tell("reserve %v %s %v", o, p.Name, blocks)
	same(h, blocks, want, "Reserve(%v, %s)", o, p.Name)
	h.reference.reserve(o, p, blocks)
	if conflicts := slices.Collect(h.ledger.Conflicts(o)); len(conflicts) > 0 {
		h.fail("Reserve made conflicts: %v", conflicts)
	}
}

func (h *history) release(o Owner) {
	h.t.Helper()
	h.tell("release %v", o)
	h.ledger.Hold(o)
	h.reference.hold(o)
}

func (h *history) hold(o Owner, prefixes []netip.Prefix) {
	h.tell("hold %v %v", o, prefixes)
	for range 1 + h.dice(2) { // twice is as once
		h.ledger.Hold(o, prefixes...)
	}
	h.reference.hold(o, prefixes...)
}

// ask compares every answer.
func (h *history) ask() {
	h.t.Helper()
	for _, o := range h.owners {
		same(h, h.ledger.Held(o), h.reference.held(o), "Held(%v)", o)
		same(h, slices.Collect(h.ledger.Conflicts(o)), h.reference.conflicts(o), "Conflicts(%v)", o)
	}
	for _, p := range h.pools {
		h.look(p)
		for _, r := range p.Ranges {
			without := h.reference.without(p)
			want := Usage{Allocated: h.reference.allocated(r), Free: without.free(r.Prefix, r.BlockBits)}
			want.Unavailable = without.taken(r.Prefix, r.BlockBits) - want.Allocated
			same(h, []Usage{h.ledger.Usage(p, r)}, []Usage{want}, "Usage(%s, %v)", p.Name, r)
			f := r.Family()
			same(h, []netip.Addr{h.ledger.Cursor(p, f)}, []netip.Addr{h.reference.cursor(p, f)}, "Cursor(%s, %v)", p.Name, f)
		}
	}
	p, o, q := one(h.dice, h.pools), one(h.dice, h.pools), h.somePrefix()
	same(h, []bool{p.Gives(q, &o.Excluded)}, []bool{h.reference.gives(p, q, o)}, "%s.Gives(%v, excluded by %s)", p.Name, q, o.Name)
	h.askShared(h.somePrefix())
	for range 3 {
		p := h.somePrefix()
		same(h, slices.Collect(h.ledger.Holdings(p)), h.reference.overlapping(p), "Holdings(%v)", p)
	}
}

// askShared: each pair conflicts inside the prefix, and every Node that conflicts with another owner there is in a pair.
func (h *history) askShared(within netip.Prefix) {
	h.t.Helper()
	conflict := func(a, b Holding) bool {
		return a.Owner != b.Owner && (a.Owner.Kind == Node || b.Owner.Kind == Node) && a.Prefix.Overlaps(b.Prefix)
	}
	all, paired := h.reference.overlapping(within), map[Owner]bool{}
	for a, b := range h.ledger.Shared(within) {
		if !conflict(a, b) || a.Prefix.Bits() > b.Prefix.Bits() || !slices.Contains(all, a) || !slices.Contains(all, b) {
			h.fail("Shared(%v) yields %v and %v", within, a, b)
		}
		paired[a.Owner], paired[b.Owner] = true, true
	}
	for _, a := range all {
		if a.Owner.Kind == Node && slices.ContainsFunc(all, func(b Holding) bool { return conflict(a, b) }) && !paired[a.Owner] {
			h.fail("Shared(%v) leaves out %v", within, a)
		}
	}
}

// end releases and forgets everything. Nothing may be left then.
func (h *history) end() {
	h.t.Helper()
	for _, o := range h.owners {
		h.release(o)
		h.ask()
	}
	for _, p := range h.pools {
		h.ledger.Forget(p)
		if f := Family(h.dice(2)); h.ledger.Cursor(p, f).IsValid() {
			h.fail("the %v cursor of %s is still there", f, p.Name)
		}
	}
	if h.ledger.taken != (PrefixMap[[]Owner]{}) {
		h.fail("trie nodes leaked: %+v", &h.ledger)
	}
}

// somePrefixes returns podCIDRs that a Node could show, whoever has written them.
func (h *history) somePrefixes() []netip.Prefix {
	var prefixes []netip.Prefix
	for range one(h.dice, []int{0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 8}) {
		prefixes = append(prefixes, h.somePrefix())
	}
	if len(prefixes) > 0 && h.dice(8) == 0 {
		prefixes = append(prefixes, netip.Prefix{}) // unreadable
	}
	return prefixes
}

// somePrefix returns a valid prefix, maybe with host bits set: near a block of a pool, near something held, or foreign.
func (h *history) somePrefix() netip.Prefix {
	switch d := h.dice(20); {
	case d < 10: // in a pool or around it, from wider than the range to narrower than a block
		if p := one(h.dice, h.pools); len(p.Ranges) > 0 {
			r := one(h.dice, p.Ranges)
			return h.somePrefixIn(r.Prefix, max(0, r.Prefix.Bits()+h.dice(8)-2), min(r.Family().Bits(), r.BlockBits+h.dice(3)))
		}
		fallthrough
	case d < 14: // the same as something held, its parent, or inside of it
		for _, o := range h.owners[h.dice(len(h.owners)):] {
			if held := h.reference.held(o); len(held) > 0 {
				p := held[0]
				bits := min(max(0, p.Bits()-1+h.dice(3)), p.Addr().BitLen())
				return h.somePrefixIn(p, bits, bits)
			}
		}
		fallthrough
	default:
		return h.someForeignPrefix()
	}
}

package nodeipam

import (
	"fmt"
	"maps"
	"net/netip"
	"strings"

	"k8s.io/apimachinery/pkg/types"

	"github.com/multicidr/controller-manager/controllers/ipam"
)

// snapshot is what a book says at one time, taken out of it in one short walk, so that the lock is free while people are
// told. It shares with the book only what is never changed, but replaced.
type snapshot struct {
	pools     []*pool
	cursors   map[*pool][]netip.Addr // by the index of the range
	held      []ownedBlocks
	addresses []ownedBlocks
	nodes     []namedEntry
	waiting   map[string]waitingNode
}

// namedEntry is the entry of the Node of that name.
type namedEntry struct {
	name string
	nodeEntry
}

// everything is the whole address space.
var everything = []netip.Prefix{netip.PrefixFrom(netip.IPv4Unspecified(), 0), netip.PrefixFrom(netip.IPv6Unspecified(), 0)}

func (b *book) snapshot() snapshot {
	s := snapshot{
		cursors: make(map[*pool][]netip.Addr, len(b.pools)),
		held:    make([]ownedBlocks, 0, len(b.nodes)),
		nodes:   make([]namedEntry, 0, len(b.nodes)),
		waiting: maps.Clone(b.waiting),
	}
	for _, p := range b.pools {
		s.pools = append(s.pools, p)
		for _, r := range p.Ranges {
			s.cursors[p] = append(s.cursors[p], b.ledger.Cursor(&p.Pool, r.Family()))
		}
	}
	for name, e := range b.nodes {
		s.nodes = append(s.nodes, namedEntry{name, *e})
	}
	for owner, prefixes := range b.ledger.All() {
		s.held = append(s.held, ownedBlocks{owner, prefixes})
	}
	for owner, prefixes := range b.addresses.All() {
		s.addresses = append(s.addresses, ownedBlocks{owner, prefixes})
	}
	return s
}

// book makes a book that says the same, for one reader to ask.
func (s snapshot) book() *book {
	b := newBook()
	for _, p := range s.pools {
		b.setPool(p)
		for i, r := range p.Ranges {
			b.ledger.SetCursor(&p.Pool, r.Family(), s.cursors[p][i])
		}
	}
	for _, e := range s.nodes {
		b.nodes[e.name] = &e.nodeEntry
		b.names[e.uid] = e.name
	}
	for _, o := range s.held {
		b.hold(o.owner, o.blocks)
	}
	for _, o := range s.addresses {
		b.addresses.Hold(o.owner, o.blocks...)
	}
	b.waiting = s.waiting
	return b
}

// conflict is two holders of the same addresses; the second one's prefix lies in the first one's.
type conflict struct{ outer, inner ipam.Holding }

// conflicting reports whether two holdings that overlap should not: one at least is a Node's. Two service ranges may.
func conflicting(a, b ipam.Holding) bool {
	return a.Owner != b.Owner && (a.Owner.Kind == ipam.Node || b.Owner.Kind == ipam.Node)
}

// maxConflicts bounds how many conflicts are shown. Were all Nodes to hold the same block, there would be millions.
const maxConflicts = 1000

// company is with whom a Node shares addresses: some of them, and how many more.
type company struct {
	names []string
	more  int
}

func (c *company) String() string {
	text := strings.Join(c.names, "; ")
	if c.more > 0 {
		text += fmt.Sprintf("; %d more", c.more)
	}
	return text
}

// allConflicts returns the conflicts of the whole address space, at most maxConflicts of them, how many there are in all, and
// with whom each Node is in conflict.
func (b *book) allConflicts() (some []conflict, total int, with map[types.UID]*company) {
	with = map[types.UID]*company{}
	note := func(about, other ipam.Holding) {
		if about.Owner.Kind != ipam.Node {
			return
		}
		uid := types.UID(about.Owner.ID)
		if with[uid] == nil {
			with[uid] = &company{}
		}
		if c := with[uid]; len(c.names) == maxNamed {
			c.more++
		} else {
			c.names = append(c.names, fmt.Sprintf("%s (%v)", b.nameOf(other.Owner), other.Prefix))
		}
	}
	for _, all := range everything {
		var around []ipam.Holding // those that contain the next one, widest first
		for _, h := range b.ledger.Overlapping(all) {
			if h.Owner.Kind == ipam.Kept {
				continue
			}
			for len(around) > 0 && !around[len(around)-1].Prefix.Overlaps(h.Prefix) {
				around = around[:len(around)-1]
			}
			for _, outer := range around {
				if !conflicting(outer, h) {
					continue
				}
				if total++; total <= maxConflicts {
					some = append(some, conflict{outer, h})
				}
				note(outer, h)
				note(h, outer)
			}
			around = append(around, h)
		}
	}
	return some, total, with
}

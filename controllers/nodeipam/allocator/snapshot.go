package allocator

import (
	"maps"
	"net/netip"

	"github.com/multicidr/controller-manager/controllers/nodeipam/clustercidr"
)

// Snapshot is a copy of a state, taken in one short walk so that the lock is not held while the copy is shown to people. It shares with the
// state only objects that are replaced, never modified.
type Snapshot struct {
	pools     []*clustercidr.Pool
	cursors   map[*clustercidr.Pool][]netip.Addr // by the index of the range
	held      []ownedBlocks
	addresses []ownedBlocks
	nodes     []namedEntry
	waiting   map[string]pendingNode
}

// namedEntry is a Node's name and entry.
type namedEntry struct {
	name string
	nodeEntry
}

func (b *State) Snapshot() Snapshot {
	s := Snapshot{
		cursors: make(map[*clustercidr.Pool][]netip.Addr, len(b.pools)),
		held:    make([]ownedBlocks, 0, len(b.nodes)),
		nodes:   make([]namedEntry, 0, len(b.nodes)),
		waiting: maps.Clone(b.pending),
	}
	for _, p := range b.pools {
		s.pools = append(s.pools, p)
		for _, r := range p.Ranges {
			s.cursors[p] = append(s.cursors[p], b.ledger.Cursor(&p.Pool, r.Family()))
		}
	}
	for name, e := range b.nodes {
		if s.nodes = append(s.nodes, namedEntry{name, *e}); e.writes != nil {
			s.nodes[len(s.nodes)-1].writes = new(*e.writes) // the only thing in an entry that is modified
		}
	}
	for owner, prefixes := range b.ledger.All() {
		s.held = append(s.held, ownedBlocks{owner, prefixes})
	}
	for owner, prefixes := range b.addresses.All() {
		s.addresses = append(s.addresses, ownedBlocks{owner, prefixes})
	}
	return s
}

// State builds an equal state for a single reader.
func (s Snapshot) State() *State {
	b := New()
	for _, p := range s.pools {
		b.SetPool(p)
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
	b.pending = s.waiting
	return b
}

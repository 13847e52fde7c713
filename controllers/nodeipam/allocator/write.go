package allocator

import (
	"net/netip"
	"slices"

	"github.com/multicidr/controller-manager/controllers/ipam"
	"github.com/multicidr/controller-manager/controllers/nodeipam/clustercidr"
)

// All that changes what is held, and which pools there are, goes through the functions of this file. They note for whom that may change something
// (see Changes), so nobody else has to.

// hold makes blocks all that owner holds, and notes what that may change for others.
func (b *State) hold(owner ipam.Owner, blocks []netip.Prefix) {
	before := b.ledger.Held(owner)
	if slices.Equal(before, blocks) {
		return
	}
	freed := ipam.Without(before, blocks)
	b.changed = b.changed || len(freed) > 0
	b.touch(before...)
	b.touch(blocks...)
	b.ledger.Hold(owner, blocks...)
	b.held(owner, before, b.ledger.Held(owner))
}

// take reserves what was picked for owner, and reports whether that was still possible.
func (b *State) take(owner ipam.Owner, pick ipam.Pick) bool {
	tries := b.tries(pick)
	if !b.ledger.Reserve(owner, pick) {
		return false
	}
	b.touch(pick.Blocks...)
	b.allocated(pick, tries)
	return true
}

// holdAddresses makes these all the addresses of its own that a Node has in ranges.
func (b *State) holdAddresses(owner ipam.Owner, addresses []netip.Prefix) {
	before := b.addresses.Held(owner)
	if slices.Equal(before, addresses) {
		return
	}
	b.touch(before...)
	b.touch(addresses...)
	b.addresses.Hold(owner, addresses...)
}

// belong enters which pool a Node's blocks came from. If it was known before, the ClusterCIDR that it belonged to may be able to go.
func (b *State) belong(e *nodeEntry, pool string, blocks []netip.Prefix, known bool) {
	if e.pool == pool {
		return
	}
	if e.pool = pool; known {
		b.changed = true
		b.touch(blocks...)
	}
}

// SetPool enters a pool in place of the one of the same name. While it is pending, it keeps the problem of the one before until another one is known:
// a try to add its finalizer says which. It returns the pool as it is in the state.
func (b *State) SetPool(p *clustercidr.Pool) *clustercidr.Pool {
	old, known := b.pools[p.Name]
	if known && old.ID == p.ID {
		if old.State == ipam.Pending && p.State == ipam.Pending && p.Problem == "" {
			p = p.With(old.Problem, old.Cause)
		}
		if old.Equal(p) {
			return old
		}
		b.touchPool(old)
		b.enterPool(p, old.Extent())
		b.changed = true
		return p
	}
	b.DropPool(p.Name)
	for family, cursor := range p.Cursors { // Where an earlier process left off. From now on we know better than the object.
		b.ledger.SetCursor(&p.Pool, family, cursor)
	}
	b.enterPool(p, nil)
	// One that is about to serve helps nobody yet. Who were called for that would stand behind younger Nodes when it serves.
	b.changed = b.changed || !p.AwaitsFinalizer()
	return p
}

// enterPool makes p the pool of its name, whose ranges were those of before.
func (b *State) enterPool(p *clustercidr.Pool, before []netip.Prefix) {
	b.pools[p.Name] = p
	b.poolsChanged = true
	b.candidates = nil
	mark(b.terminating, p.Name, p.State == ipam.Terminating || p.Superseded)
	mark(b.awaitingFinalizer, p.Name, p.AwaitsFinalizer())
	if len(b.pools) == 1 { // While there is none, nobody is reported as outside of them.
		for uid := range b.outOfRange {
			b.recheck.add(b.names[uid])
		}
	}
	b.replaceRanges(p.Name, before, p.Extent())
	b.touchPool(p)
}

// mark says of a name whether it is in a set.
func mark[K comparable](set map[K]bool, name K, is bool) {
	if is {
		set[name] = true
	} else {
		delete(set, name)
	}
}

// DropPool forgets a pool that is gone. What Nodes hold from it stays held.
func (b *State) DropPool(name string) {
	p, ok := b.pools[name]
	if !ok {
		return
	}
	b.ledger.Forget(&p.Pool)
	delete(b.pools, name)
	delete(b.terminating, name)
	delete(b.awaitingFinalizer, name)
	b.poolsChanged = true
	b.candidates = nil
	b.forgetPool(p)
	b.touchPool(p)
	b.changed = true
}

// SetService enters what a source of service ranges, a ServiceCIDR or a flag, has now; none when it is gone.
func (b *State) SetService(source string, ranges []netip.Prefix) {
	b.hold(ipam.Owner{Kind: ipam.Service, ID: source}, ranges)
}

// touch notes that the status of the pools around these prefixes may be another.
func (b *State) touch(prefixes ...netip.Prefix) {
	for _, prefix := range prefixes {
		for r := range b.ranges.Overlapping(prefix) {
			for _, name := range b.of[r] {
				b.touchName(name)
			}
		}
	}
}

func (b *State) touchName(name string) {
	b.touched.add(name)
	delete(b.blocking, name)
}

func (b *State) touchPool(p *clustercidr.Pool) {
	b.touchName(p.Name)
	b.touch(p.Extent()...)
}

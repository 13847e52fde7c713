package allocator

import (
	"net/netip"
	"slices"

	"github.com/multicidr/controller-manager/controllers/ipam"
	"github.com/multicidr/controller-manager/controllers/nodeipam/clustercidr"
	"github.com/multicidr/controller-manager/controllers/nodeipam/names"
)

// Every change of what is held and of the set of pools goes through this file. These functions note what the change may affect (see
// Changes), so their callers need not.

// hold replaces everything that owner holds with blocks, and notes what that may affect.
func (b *State) hold(owner ipam.Owner, blocks []netip.Prefix) {
	before := b.ledger.Held(owner)
	if slices.Equal(before, blocks) {
		return
	}
	b.touch(before...)
	b.touch(blocks...)
	b.ledger.Hold(owner, blocks...)
	b.freed(ipam.Without(before, blocks))
	b.held(owner, before, b.ledger.Held(owner))
}

// take reserves a pick from p for owner, and reports whether its blocks were still free.
func (b *State) take(owner ipam.Owner, p *clustercidr.Pool, pick ipam.Pick) bool {
	if !b.ledger.Reserve(owner, pick) {
		return false
	}
	if b.touchName(p.Name); !b.ranges.Alone(p) {
		b.touch(pick.Blocks...)
	}
	b.holding++
	b.traffic.Allocated(pick)
	return true
}

// holdAddresses replaces a Node's own addresses that lie in ranges.
func (b *State) holdAddresses(owner ipam.Owner, addresses []netip.Prefix) {
	before := b.addresses.Held(owner)
	if slices.Equal(before, addresses) {
		return
	}
	b.touch(before...)
	b.touch(addresses...)
	b.addresses.Hold(owner, addresses...)
}

// belong records which pool a Node's blocks came from. If the Node was known before, the ClusterCIDR that it belonged to may no longer be
// in use.
func (b *State) belong(e *nodeEntry, pool string, blocks []netip.Prefix, known bool) {
	if e.pool == pool {
		return
	}
	if e.pool = pool; known {
		b.touch(blocks...)
		b.vacate(blocks...)
	}
}

// SetPool adds a pool, or replaces the one of the same name. A pool that stays pending keeps its known problem until an attempt to add its
// finalizer reports another one. SetPool returns the pool that is now in the state.
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
		b.candidates.Remove(old)
		b.notFull.Remove(old)
		b.enterPool(old, p)
		b.poolChanged(old, p)
		return p
	}
	b.DropPool(p.Name)
	for family, cursor := range p.Cursors { // Where an earlier process left off. From now on the state is newer than the object.
		b.ledger.SetCursor(&p.Pool, family, cursor)
	}
	b.enterPool(nil, p)
	b.poolChanged(nil, p)
	return p
}

// enterPool makes p the pool of its name, in place of old, which may be nil.
func (b *State) enterPool(old, p *clustercidr.Pool) {
	b.pools[p.Name] = p
	b.poolsChanged = true
	b.candidates.Add(p)
	if p.State == ipam.Enabled || p.AwaitsFinalizer() {
		b.notFull.Add(p)
	}
	names.Mark(b.terminating, p.Name, p.State == ipam.Terminating || p.Superseded)
	names.Mark(b.awaitingFinalizer, p.Name, p.AwaitsFinalizer())
	if len(b.pools) == 1 { // Without any pool, no Node is reported as out of range.
		for uid := range b.outOfRange {
			b.recheck.Add(b.names[uid])
		}
	}
	b.replaceRanges(old, p)
	b.touchPool(p)
}

// DropPool forgets a deleted pool. Nodes keep the blocks that they hold from it.
func (b *State) DropPool(name string) {
	p, ok := b.pools[name]
	if !ok {
		return
	}
	b.ledger.Forget(&p.Pool)
	delete(b.pools, name)
	delete(b.terminating, name)
	delete(b.awaitingFinalizer, name)
	delete(b.told, name)
	b.poolsChanged = true
	b.candidates.Remove(p)
	b.notFull.Remove(p)
	b.forgetPool(p)
	b.touchPool(p)
	b.poolChanged(p, nil)
}

// SetService replaces the service ranges of a source (a ServiceCIDR or a flag); none if the source is gone.
func (b *State) SetService(source string, ranges []netip.Prefix) {
	b.hold(ipam.Owner{Kind: ipam.Service, ID: source}, ranges)
}

// touch notes that the status of the pools that overlap these prefixes may have changed.
func (b *State) touch(prefixes ...netip.Prefix) {
	for p := range b.ranges.Overlapping(prefixes...) {
		b.touchName(p.Name)
	}
}

// vacate notes that terminating pools that overlap these prefixes may no longer be in use.
func (b *State) vacate(prefixes ...netip.Prefix) {
	if len(b.terminating) == 0 {
		return
	}
	for p := range b.ranges.Overlapping(prefixes...) {
		if b.terminating[p.Name] {
			b.vacated.Add(p.Name)
		}
	}
}

func (b *State) touchName(name string) {
	b.touched.Add(name)
	delete(b.blocking, name)
}

func (b *State) touchPool(p *clustercidr.Pool) {
	b.touchName(p.Name)
	b.touch(p.Extent()...)
	b.vacate(p.Extent()...)
}

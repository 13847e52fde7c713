package allocator

import (
	"net/netip"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/multicidr/controller-manager/controllers/ipam"
	"github.com/multicidr/controller-manager/controllers/nodeipam/clustercidr"
)

// A Node that is gone frees its blocks. When a watch says so, that is so. When a list lacks the Node, there is another possibility: etcd was
// restored from a backup that was made before the Node was created, and its machine runs on. So the blocks of a Node that is missing from a
// list are kept until the leader lease proves that etcd has all that this process wrote: a renewal that was sent afterwards has succeeded.
// If instead the lease went back, the blocks are in doubt for as long as this process lives, and people are told.
//
//	list without the Node     renewal sent     it succeeded: free
//	        |----------------------|------------------|
//	        |                      the lease went back: in doubt
//
// Without leader election there is no such proof, and blocks are freed at once.

// ListedWithin is how many renewals after the lease went back a list can come that shows for the first time what the restore has lost: every
// two seconds one, and an informer that lost its watch lists again within a minute. A list that comes later has Nodes that were deleted.
const ListedWithin = 150

// doubt is about the blocks of a Node that is missing from a list.
type doubt struct {
	uid    types.UID
	pool   string
	blocks []netip.Prefix
	sent   int // renewals, until it was missed
	// certain is whether etcd was restored.
	certain bool
}

// owner holds the blocks. Nobody gets them, and nobody conflicts with them.
func (d *doubt) owner() ipam.Owner {
	return ipam.Owner{Kind: ipam.Kept, ID: "a Node in doubt with the UID " + string(d.uid)}
}

// Renewals is what a lease tells of its renewals: see lease.Renewals.
type Renewals struct{ Sent, Proven, WentBack int }

// Keep keeps the blocks of a Node that the state has and a list has not: instead is the Node of that name in the list, or nil if there is none, and
// sent is how many renewals of the lease were sent until now. It is called before the state forgets the Node.
func (b *State) Keep(name string, instead *v1.Node, sent int) {
	e, known := b.nodes[name]
	if !known || instead != nil && instead.UID == e.uid {
		return
	}
	blocks := b.ledger.Held(OwnerOf(e.uid))
	if len(blocks) == 0 || e.state.revocable() { // no write of them was ever stored
		return
	}
	d := &doubt{uid: e.uid, pool: e.pool, blocks: blocks, sent: sent}
	b.hold(d.owner(), blocks)
	b.doubts[name] = append(b.doubts[name], d)
}

// Decide ends the doubts about a name that the renewals have decided. It returns the blocks of those that became certain, which stay.
func (b *State) Decide(name string, r Renewals) (certain [][]netip.Prefix) {
	for _, d := range b.doubts[name] {
		switch {
		case d.certain:
		case r.WentBack > 0 && d.sent <= r.WentBack+ListedWithin:
			d.certain = true
			certain = append(certain, d.blocks)
		case r.Proven > d.sent:
			b.endDoubt(name, d)
		}
	}
	return certain
}

// InDoubt returns the blocks that are kept for Nodes of a name because etcd was restored.
func (b *State) InDoubt(name string) (blocks []netip.Prefix) {
	for _, d := range b.doubts[name] {
		if d.certain {
			blocks = append(blocks, d.blocks...)
		}
	}
	return blocks
}

// endDoubt frees what is kept.
func (b *State) endDoubt(name string, d *doubt) {
	b.hold(d.owner(), nil)
	if b.doubts[name] = slices.DeleteFunc(slices.Clone(b.doubts[name]), func(o *doubt) bool { return o == d }); len(b.doubts[name]) == 0 {
		delete(b.doubts, name)
	}
}

// Reclaim gives a Node that is back the blocks that are kept for its name, if its ClusterCIDR may serve it still; and ends the doubt when
// the Node shows these blocks. One that shows others does not: a restore can have brought back an earlier Node of the name, and Pods on the
// machine keep the addresses that they have, whatever the Node got when it registered again. It reports whether it ended a doubt.
func (b *State) Reclaim(node *v1.Node) (ended bool) {
	for _, d := range b.doubts[node.Name] {
		switch {
		case clustercidr.ShowsPodCIDRs(node):
			if shown, _ := clustercidr.PodCIDRsOf(node); slices.Equal(shown, d.blocks) {
				b.endDoubt(node.Name, d)
				ended = true
			}
		case d.certain && node.DeletionTimestamp == nil && len(b.ledger.Held(OwnerOf(node.UID))) == 0 && b.mayHave(node, d) && !b.disputed(d):
			b.endDoubt(node.Name, d)
			e := b.enter(node)
			e.pool = d.pool
			b.become(node.Name, e, sent)
			e.stored, e.wentBack = true, unknown // it was stored before the restore
			delete(b.pending, node.Name)
			b.hold(OwnerOf(node.UID), d.blocks)
			ended = true
		}
	}
	return ended
}

// Doubted reports whether blocks are kept for Nodes of a name.
func (b *State) Doubted(name string) bool { return len(b.doubts[name]) > 0 }

// Undecided reports whether it is open yet if a Node of this name gets back what another one had. settle looks again.
func (b *State) Undecided(name string) bool {
	return slices.ContainsFunc(b.doubts[name], func(d *doubt) bool { return !d.certain })
}

// mayHave reports whether the ClusterCIDR that blocks in doubt came from may give them to a Node now.
func (b *State) mayHave(node *v1.Node, d *doubt) bool {
	p, ok := b.pools[d.pool]
	if !ok || p.State != ipam.Enabled || slices.ContainsFunc(d.blocks, func(block netip.Prefix) bool { return !p.Contains(block) }) {
		return false
	}
	return p.Matches(node)
}

// disputed reports whether somebody else has got blocks in doubt meanwhile, such as a Node that was created with them.
func (b *State) disputed(d *doubt) bool {
	for range b.ledger.Conflicts(d.owner()) {
		return true
	}
	return false
}

// inDoubt is how many Nodes are.
func (b *State) inDoubt() (n int) {
	for _, doubts := range b.doubts {
		if slices.ContainsFunc(doubts, func(d *doubt) bool { return d.certain }) {
			n++
		}
	}
	return n
}

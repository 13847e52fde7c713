package allocator

import (
	"net/netip"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/multicidr/controller-manager/controllers/ipam"
	"github.com/multicidr/controller-manager/controllers/nodeipam/clustercidr"
)

// A deleted Node's blocks become free. A deletion event from a watch is certain. A list that lacks a Node is not: etcd may have been
// restored from a backup made before the Node was created, while its machine keeps running. So the blocks of a Node that is missing from a
// list are kept until the leader Lease proves that etcd still has everything this process wrote: a renewal sent after the list has
// succeeded. If the Lease went back instead, the blocks are in doubt for the lifetime of this process, and this is reported.
//
//	list without the Node     renewal sent     it succeeded: free
//	        |----------------------|------------------|
//	        |                      the Lease went back: in doubt
//
// Without leader election there is no such proof, and the blocks are freed at once.

// ListedWithin is for how many renewals after the Lease went back a Node missing from a list is attributed to the restore. There is a
// renewal every two seconds, and an informer that lost its watch lists again within a minute. Nodes missing from a later list were deleted.
const ListedWithin = 150

// doubt is about blocks of a Node that is missing from a list, or that could not keep them after a restore.
type doubt struct {
	uid    types.UID
	pool   string
	blocks []netip.Prefix
	sent   int // number of renewals sent when the Node was found missing
	// certain is whether etcd is known to have been restored.
	certain bool
}

// owner is the owner of the blocks. They are allocated to no Node, and nothing conflicts with them.
func (d *doubt) owner() ipam.Owner {
	return ipam.Owner{Kind: ipam.Kept, ID: "a Node in doubt with the UID " + string(d.uid)}
}

// Renewals counts the renewals of a Lease: see lease.Renewals.
type Renewals struct{ Sent, Proven, WentBack int }

// Keep keeps the blocks of a Node that is in the state but missing from a list. instead is the Node of that name in the list, or nil; sent
// is how many renewals of the Lease have been sent. Call it before the state forgets the Node.
func (b *State) Keep(name string, instead *v1.Node, sent int) {
	e, known := b.nodes[name]
	if !known || instead != nil && instead.UID == e.uid {
		return
	}
	blocks := b.ledger.Held(OwnerOf(e.uid))
	if len(blocks) == 0 || e.state.revocable() { // no write of them was ever stored
		return
	}
	b.doubt(name, &doubt{uid: e.uid, pool: e.pool, blocks: blocks, sent: sent})
}

// doubt keeps blocks. A Node can have lost blocks before, in an earlier restore.
func (b *State) doubt(name string, d *doubt) {
	for _, earlier := range b.doubts[name] {
		if earlier.uid == d.uid {
			d.blocks, d.certain = slices.Concat(ipam.Without(earlier.blocks, d.blocks), d.blocks), d.certain || earlier.certain
			b.endDoubt(name, earlier)
			break
		}
	}
	b.hold(d.owner(), d.blocks)
	b.doubts[name] = append(b.doubts[name], d)
}

// Decide ends the doubts about a name that the renewals have resolved. It returns the blocks that are now certain to be lost to a restore;
// these stay reserved.
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

// InDoubt returns the blocks that are kept for Nodes of this name because etcd was restored.
func (b *State) InDoubt(name string) (blocks []netip.Prefix) {
	for _, d := range b.doubts[name] {
		if d.certain {
			blocks = append(blocks, d.blocks...)
		}
	}
	return blocks
}

// endDoubt frees the kept blocks.
func (b *State) endDoubt(name string, d *doubt) {
	b.hold(d.owner(), nil)
	if b.doubts[name] = slices.DeleteFunc(slices.Clone(b.doubts[name]), func(o *doubt) bool { return o == d }); len(b.doubts[name]) == 0 {
		delete(b.doubts, name)
	}
}

// Reclaim reserves the blocks kept for a name for a Node that is back, if its ClusterCIDR may still serve it. If the Node already shows
// these blocks, the doubt ends. If it shows other blocks, the doubt stays: a restore can bring back an earlier Node of the name, and Pods
// on the machine keep their addresses whatever the Node was allocated when it registered again. Reclaim reports whether it ended a doubt.
func (b *State) Reclaim(node *v1.Node) (ended bool) {
	for _, d := range b.doubts[node.Name] {
		switch {
		case clustercidr.ShowsPodCIDRs(node):
			if shown, _ := clustercidr.PodCIDRsOf(node); len(shown) == len(d.blocks) && len(ipam.Without(d.blocks, shown)) == 0 {
				b.endDoubt(node.Name, d)
				ended = true
			}
		case d.certain && node.DeletionTimestamp == nil && len(b.ledger.Held(OwnerOf(node.UID))) == 0 && b.mayHave(node, d) && !b.disputed(d):
			b.endDoubt(node.Name, d)
			e := b.enter(node)
			e.pool = d.pool
			b.become(node.Name, e, sent)
			e.stored, e.wentBack = true, unknown // it was stored before the restore
			b.leave(node.Name)
			b.hold(OwnerOf(node.UID), d.blocks)
			ended = true
		}
	}
	return ended
}

// Doubted reports whether blocks are kept for Nodes of this name.
func (b *State) Doubted(name string) bool { return len(b.doubts[name]) > 0 }

// Undecided reports whether it is not decided yet if a Node of this name gets back the blocks of an earlier one. The controller rechecks
// such names.
func (b *State) Undecided(name string) bool {
	return slices.ContainsFunc(b.doubts[name], func(d *doubt) bool { return !d.certain })
}

// mayHave reports whether the ClusterCIDR of the blocks in doubt may allocate them to a Node now.
func (b *State) mayHave(node *v1.Node, d *doubt) bool {
	p, ok := b.pools[d.pool]
	return ok && p.Allocates(d.blocks) && p.Matches(node)
}

// disputed reports whether another owner now holds blocks in doubt, such as a Node that was created with them.
func (b *State) disputed(d *doubt) bool {
	for range b.ledger.Conflicts(d.owner()) {
		return true
	}
	return false
}

// inDoubt is the number of Node names with blocks in doubt.
func (b *State) inDoubt() (n int) {
	for _, doubts := range b.doubts {
		if slices.ContainsFunc(doubts, func(d *doubt) bool { return d.certain }) {
			n++
		}
	}
	return n
}

package nodeipam

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/multicidr/controller-manager/controllers/ipam"
	"github.com/multicidr/controller-manager/controllers/lease"
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

// listedWithin is how many renewals after the lease went back a list can come that shows for the first time what the restore has lost: every
// two seconds one, and an informer that lost its watch lists again within a minute. A list that comes later has Nodes that were deleted.
const listedWithin = 150

// witness tells whether etcd has what this process wrote. A lease.Fence is one.
type witness interface{ Renewals() lease.Renewals }

// doubtInterval is how often a Node that is missing from a list is looked at. Usually the lease is renewed every two seconds.
const doubtInterval = time.Second

// doubt is about the blocks of a Node that is missing from a list.
type doubt struct {
	uid    types.UID
	pool   string
	blocks []netip.Prefix
	// instead is the Node of that name that the list has with podCIDRs; empty if there is none.
	instead types.UID
	sent    int // renewals, until it was missed
	// certain is whether etcd was restored.
	certain bool
}

// owner holds the blocks. Nobody gets them, and nobody conflicts with them.
func (d *doubt) owner() ipam.Owner {
	return ipam.Owner{Kind: ipam.Kept, ID: "a Node in doubt with the UID " + string(d.uid)}
}

// missed keeps the blocks of a Node that the book has and a list has not: now is the Node of that name in the list, or nil if there is none. It
// is called before the book forgets the Node.
func (c *Controller) missed(b *book, name string, now any) {
	instead, _ := now.(*v1.Node)
	e, known := b.nodes[name]
	if c.witness == nil || !known || instead != nil && instead.UID == e.uid {
		return
	}
	blocks := b.ledger.Held(ownerOf(e.uid))
	if len(blocks) == 0 || e.state.revocable() { // no write of them was ever stored
		return
	}
	d := &doubt{uid: e.uid, pool: e.pool, blocks: blocks, sent: c.witness.Renewals().Sent}
	if instead != nil && showsPodCIDRs(instead) {
		d.instead = instead.UID
	}
	b.hold(d.owner(), blocks)
	b.doubts[name] = append(b.doubts[name], d)
	c.settle(b, name)
}

// settle ends the doubts about a name that the lease has decided, and looks again soon at the others.
func (c *Controller) settle(b *book, name string) {
	if len(b.doubts[name]) == 0 {
		return
	}
	renewals := c.witness.Renewals()
	for _, d := range b.doubts[name] {
		switch {
		case d.certain:
		case renewals.WentBack > 0 && d.sent <= renewals.WentBack+listedWithin:
			d.certain = true
			c.health.doubts(name, d.blocks)
			klog.Background().Error(nil, "A Node is in doubt: etcd was restored from a backup, and the Node is gone. Its blocks are kept, because its machine may use them. "+
				"Put the Node back as docs/restore-etcd.md says. If no machine of the Nodes in doubt runs, restart this process, which frees all these blocks", "node", klog.KRef("", name), "podCIDRs", d.blocks)
		case renewals.Proven > d.sent:
			c.endDoubt(b, name, d)
		default:
			c.nodeQueue.AddAfter(name, doubtInterval)
		}
	}
}

// undecided reports whether it is open yet if a Node of this name gets back what another one had. settle looks again.
func (b *book) undecided(name string) bool {
	return slices.ContainsFunc(b.doubts[name], func(d *doubt) bool { return !d.certain })
}

// endDoubt frees what is kept.
func (c *Controller) endDoubt(b *book, name string, d *doubt) {
	b.hold(d.owner(), nil)
	if b.doubts[name] = slices.DeleteFunc(slices.Clone(b.doubts[name]), func(o *doubt) bool { return o == d }); len(b.doubts[name]) == 0 {
		delete(b.doubts, name)
		c.health.doubts(name, nil)
	}
}

// reclaim gives a Node that is back the blocks that are kept for its name, if its ClusterCIDR may serve it still; and ends the doubt when
// the Node has podCIDRs, unless it was there with them when the other one was missed.
func (c *Controller) reclaim(b *book, node *v1.Node) {
	for _, d := range b.doubts[node.Name] {
		switch {
		case showsPodCIDRs(node):
			if shown, _ := podCIDRsOf(node); node.UID != d.instead || slices.Equal(shown, d.blocks) {
				c.endDoubt(b, node.Name, d)
			}
		case d.certain && node.DeletionTimestamp == nil && len(b.ledger.Held(ownerOf(node.UID))) == 0 && b.mayHave(node, d) && !b.disputed(d):
			c.endDoubt(b, node.Name, d)
			e := b.enter(node)
			e.pool = d.pool
			b.become(node.Name, e, sent)
			e.stored = true // it was, before the restore
			delete(b.waiting, node.Name)
			b.hold(ownerOf(node.UID), d.blocks)
		}
	}
}

// mayHave reports whether the ClusterCIDR that blocks in doubt came from may give them to a Node now.
func (b *book) mayHave(node *v1.Node, d *doubt) bool {
	p, ok := b.pools[d.pool]
	if !ok || p.State != ipam.Enabled || slices.ContainsFunc(d.blocks, func(block netip.Prefix) bool { return !p.contains(block) }) {
		return false
	}
	return !p.Selective || slices.ContainsFunc(p.terms, func(t term) bool { return t.matches(node) })
}

// disputed reports whether somebody else has got blocks in doubt meanwhile, such as a Node that was created with them.
func (b *book) disputed(d *doubt) bool {
	for range b.ledger.Conflicts(d.owner()) {
		return true
	}
	return false
}

// inDoubt is how many Nodes are.
func (b *book) inDoubt() (n int) {
	for _, doubts := range b.doubts {
		if slices.ContainsFunc(doubts, func(d *doubt) bool { return d.certain }) {
			n++
		}
	}
	return n
}

// fromList reports whether an informer found a change by listing: it does not know the last state of an object that is gone, or it finds
// another object of the name.
func fromList(before, now any) bool {
	if _, ok := before.(cache.DeletedFinalStateUnknown); ok {
		return true
	}
	was, ok := before.(*v1.Node)
	is, ok2 := now.(*v1.Node)
	return ok && ok2 && was.UID != is.UID
}

// doubts notes the blocks that are kept for a Node; none when that is over.
func (h *health) doubts(name string, blocks []netip.Prefix) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(blocks) == 0 {
		delete(h.doubted, name)
		return
	}
	if h.doubted == nil {
		h.doubted = map[string]string{}
	}
	h.doubted[name] = blocksText(blocks)
}

// doubtful says which Nodes are in doubt; empty if none is.
func (h *health) doubtful() string {
	if len(h.doubted) == 0 {
		return ""
	}
	names := slices.Sorted(maps.Keys(h.doubted))
	first := names[:min(len(names), maxNamed)]
	for i, name := range first {
		first[i] = name + " " + h.doubted[name]
	}
	more := ""
	if len(names) > len(first) {
		more = fmt.Sprintf(" and %d more", len(names)-len(first))
	}
	return "etcd was restored from a backup, and these Nodes are gone: " + strings.Join(first, "; ") + more +
		". Their blocks are kept until this process ends, or the controller starts anew after a panic. Put the Nodes back as docs/restore-etcd.md says"
}

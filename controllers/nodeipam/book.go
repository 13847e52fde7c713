package nodeipam

import (
	"iter"
	"net/netip"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	networkingv1 "github.com/multicidr/controller-manager/apis/networking/v1"
	"github.com/multicidr/controller-manager/controllers/ipam"
)

// book is all that the controller knows: the pools, who holds what, which Node belongs to which pool, who waits. It
// makes no calls and reads no clock. Not safe for concurrent use: Controller.with holds the lock.
type book struct {
	ledger ipam.Ledger
	// addresses are the Nodes' own, as far as they lie in a range: they take nothing from it, but that is reported. Usually there are none.
	addresses ipam.Ledger
	pools     map[string]*pool // by the ClusterCIDR's name
	// candidates has the pools in the order in which they are tried; nil if they have changed since it was made.
	candidates *candidates
	// terminating are the pools that are being deleted, or will be, once no Node belongs to them.
	terminating map[string]bool
	// soon are the pools that serve once they have their finalizer, which Nodes wait for.
	soon    map[string]bool
	nodes   map[string]*nodeEntry  // by name: all Nodes that hold anything
	names   map[types.UID]string   // of the Nodes in nodes
	waiting map[string]waitingNode // by name
	doubts  map[string][]*doubt    // by the Node's name: blocks that are kept although the Node is gone
	tally

	// What happened since effects was called:
	changed bool    // something became free or a pool became another, which may help a waiting Node or let a ClusterCIDR go
	touched nameSet // pools whose status may be another
	// suspects are the Nodes about whose podCIDRs there may be something else to say, because of what others hold or of a range that
	// came or went.
	suspects     nameSet
	poolsChanged bool // a pool came, went or became another one
	// putOff are ClusterCIDRs that are looked at again once soon is empty.
	putOff nameSet
	// revocable are the Nodes, by name, with a reservation that is chosen again when it is not right any more.
	revocable map[string]bool
}

type nodeEntry struct {
	uid       types.UID
	addresses []netip.Prefix // the Node's own
	// pool names the ClusterCIDR that the blocks came from: the Node's annotation, or the reservation's pool.
	pool string
	// state is that of the blocks, if the Node holds any.
	state state
	// unansweredUntil is until when the API server may still carry out a write of the reservation that it did not answer; the zero value
	// if it answered each. Only in state sent.
	unansweredUntil time.Time
	// stored is whether the API server has said that it carried out a write of the reservation. Only in state sent.
	stored bool
	// atStart is whether the Node showed podCIDRs already when the book was filled.
	atStart bool
	// reported is what was handed over to be said about its podCIDRs in events, message by reason.
	reported map[string]string
	// tried is what this process has sent for it last, and answered whether the API server has ever said that it carried such a write out.
	tried    []netip.Prefix
	answered bool
	// byOther says that another process gave it its podCIDRs while this one led; empty if none did. suspected is the same before it is
	// certain that this process leads.
	byOther, suspected string
}

func newBook() *book {
	return &book{
		pools:       map[string]*pool{},
		terminating: map[string]bool{},
		soon:        map[string]bool{},
		nodes:       map[string]*nodeEntry{},
		names:       map[types.UID]string{},
		waiting:     map[string]waitingNode{},
		revocable:   map[string]bool{},
		doubts:      map[string][]*doubt{},
		tally:       newTally(),
	}
}

func ownerOf(uid types.UID) ipam.Owner { return ipam.Owner{Kind: ipam.Node, ID: string(uid)} }

// observe enters what a Node shows: its addresses, and its podCIDRs, if any, as what it holds, whoever wrote them.
func (b *book) observe(node *v1.Node, blocks, addresses []netip.Prefix) {
	b.replaced(node)
	owner := ownerOf(node.UID)
	_, known := b.nodes[node.Name]
	if !known && len(addresses) == 0 && len(blocks) == 0 {
		return
	}
	e := b.enter(node)
	if !slices.Equal(e.addresses, addresses) {
		e.addresses = addresses
		b.locate(e)
	}
	if len(blocks) == 0 {
		return // what is reserved for it stays so
	}
	delete(b.waiting, node.Name)
	b.become(node.Name, e, assigned)
	if annotated := node.Annotations[networkingv1.AnnotationClusterCIDR]; e.pool != annotated {
		e.pool = annotated
		if known {
			b.changed = true // the ClusterCIDR that it belonged to may be able to go
			b.touch(blocks...)
		}
	}
	b.hold(owner, blocks)
}

// locate enters which of a Node's own addresses lie in a range.
func (b *book) locate(e *nodeEntry) {
	var inside []netip.Prefix
	for _, a := range e.addresses {
		if b.inRange(a) {
			inside = append(inside, a)
		}
	}
	owner := ownerOf(e.uid)
	before := b.addresses.Held(owner)
	if slices.Equal(before, inside) {
		return
	}
	b.touch(before...)
	b.touch(inside...)
	b.addresses.Hold(owner, inside...)
}

// hold makes blocks all that owner holds, and notes what that may change for others.
func (b *book) hold(owner ipam.Owner, blocks []netip.Prefix) {
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

// gone frees all that this Node holds: there is no such Node any more. Another one of the name is not concerned.
func (b *book) gone(name string, uid types.UID) {
	if w, ok := b.waiting[name]; ok && w.uid == uid {
		delete(b.waiting, name)
	}
	e, ok := b.nodes[name]
	if !ok || e.uid != uid {
		return
	}
	owner := ownerOf(e.uid)
	b.hold(owner, nil)
	b.touch(b.addresses.Held(owner)...)
	b.addresses.Release(owner)
	delete(b.nodes, name)
	delete(b.names, e.uid)
	delete(b.revocable, name)
}

// known returns the entry of this very Node, if there is one.
func (b *book) known(node *v1.Node) (e *nodeEntry, ok bool) {
	e, ok = b.nodes[node.Name]
	return e, ok && e.uid == node.UID
}

// uidOf returns the UID of the Node of this name, as far as it holds or has held something.
func (b *book) uidOf(name string) (uid types.UID, ok bool) {
	if e, ok := b.nodes[name]; ok {
		return e.uid, true
	}
	return "", false
}

// shownAtStart reports whether this very Node had podCIDRs when the book was filled.
func (b *book) shownAtStart(node *v1.Node) bool {
	e, ok := b.known(node)
	return ok && e.atStart
}

// pool returns the pool of this name.
func (b *book) pool(name string) (p *pool, ok bool) {
	p, ok = b.pools[name]
	return p, ok
}

// enter returns the Node's entry.
func (b *book) enter(node *v1.Node) *nodeEntry {
	e, ok := b.nodes[node.Name]
	if !ok {
		e = &nodeEntry{uid: node.UID}
		b.nodes[node.Name] = e
		b.names[node.UID] = node.Name
	}
	return e
}

// replaced frees what a Node of the same name with another UID holds. That one is gone, for a name has one Node at a
// time: its deletion and the creation of this one can reach us as one update.
func (b *book) replaced(node *v1.Node) {
	if uid, ok := b.uidOf(node.Name); ok && uid != node.UID {
		b.gone(node.Name, uid)
	}
	if w, ok := b.waiting[node.Name]; ok && w.uid != node.UID {
		delete(b.waiting, node.Name)
	}
}

// setPool enters a pool in place of the one of the same name. While it is pending, it keeps the problem of the one before until another one is known:
// a try to add its finalizer says which. It returns the pool as it is in the book.
func (b *book) setPool(p *pool) *pool {
	old, known := b.pools[p.Name]
	if known && old.ID == p.ID && old.State == ipam.Pending && p.State == ipam.Pending && p.problem == "" {
		p = p.with(old.problem, old.cause)
	}
	if known && old.equal(p) {
		return old
	}
	if known && old.ID != p.ID {
		b.dropPool(p.Name)
		known = false
	}
	if !known {
		// Where an earlier process left off. From now on we know better than the object.
		for family, cursor := range p.cursors {
			b.ledger.SetCursor(&p.Pool, family, cursor)
		}
	}
	var before []netip.Prefix
	if known {
		before = old.extent()
		b.touchPool(old)
	}
	b.pools[p.Name] = p
	b.poolsChanged = true
	b.candidates = nil
	if delete(b.terminating, p.Name); p.State == ipam.Terminating || p.superseded {
		b.terminating[p.Name] = true
	}
	if delete(b.soon, p.Name); p.aboutToServe() {
		b.soon[p.Name] = true
	}
	if len(b.pools) == 1 { // While there is none, nobody is reported as outside of them.
		for uid := range b.outsiders {
			b.suspects.add(b.names[uid])
		}
	}
	b.replaceRanges(p.Name, before, p.extent())
	b.touchPool(p)
	// A new one that is about to serve helps nobody yet. Who were called for that would stand behind younger Nodes when it serves.
	b.changed = b.changed || known || !p.aboutToServe()
	return p
}

// dropPool forgets a pool that is gone. What Nodes hold from it stays held.
func (b *book) dropPool(name string) {
	p, ok := b.pools[name]
	if !ok {
		return
	}
	b.ledger.Forget(&p.Pool)
	delete(b.pools, name)
	delete(b.terminating, name)
	delete(b.soon, name)
	b.poolsChanged = true
	b.candidates = nil
	b.forgetPool(p)
	b.touchPool(p)
	b.changed = true
}

// setService enters what a source of service ranges, a ServiceCIDR or a flag, has now; none when it is gone.
func (b *book) setService(source string, ranges []netip.Prefix) {
	b.hold(ipam.Owner{Kind: ipam.Service, ID: source}, ranges)
}

// members yields the UIDs of the Nodes that belong to p, each once, in the order of their first block in p.
func (b *book) members(p *pool) iter.Seq[types.UID] {
	return func(yield func(types.UID) bool) {
		seen := map[types.UID]bool{}
		for _, r := range p.extent() {
			for h := range b.ledger.Holdings(r) {
				uid := types.UID(h.Owner.ID)
				if h.Owner.Kind != ipam.Node || seen[uid] || !b.belongs(uid, p) {
					continue
				}
				if seen[uid] = true; !yield(uid) {
					return
				}
			}
		}
	}
}

// belongs reports whether a Node belongs to p: to the pool that it names if all its blocks lie inside that, else to
// every pool that contains one of its blocks. A reservation that no write can carry out any more keeps no pool.
func (b *book) belongs(uid types.UID, p *pool) bool {
	if b.nodes[b.names[uid]].state.revocable() {
		return false
	}
	blocks := b.ledger.Held(ownerOf(uid))
	outside := func(p *pool) bool {
		return slices.ContainsFunc(blocks, func(block netip.Prefix) bool { return !p.contains(block) })
	}
	if named, ok := b.pools[b.nodes[b.names[uid]].pool]; ok && !outside(named) {
		return named == p
	}
	return slices.ContainsFunc(blocks, p.contains)
}

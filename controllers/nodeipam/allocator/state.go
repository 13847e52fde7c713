package allocator

import (
	"iter"
	"net/netip"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	networkingv1 "github.com/multicidr/controller-manager/apis/networking/v1"
	"github.com/multicidr/controller-manager/controllers/ipam"
	"github.com/multicidr/controller-manager/controllers/nodeipam/clustercidr"
)

// State is all that the controller knows: the pools, who holds what, which Node belongs to which pool, who waits. It
// makes no calls and reads no clock. Not safe for concurrent use: Controller.with holds the lock.
type State struct {
	ledger ipam.Ledger
	// addresses are the Nodes' own, as far as they lie in a range: they take nothing from it, but that is reported. Usually there are none.
	addresses ipam.Ledger
	pools     map[string]*clustercidr.Pool // by the ClusterCIDR's name
	// candidates has the pools in the order in which they are tried; nil if they have changed since it was made.
	candidates *clustercidr.Candidates
	// terminating are the pools that are being deleted, or will be, once no Node belongs to them.
	terminating map[string]bool
	// soon are the pools that serve once they have their finalizer, which Nodes wait for.
	awaitingFinalizer map[string]bool
	nodes             map[string]*nodeEntry  // by name: all Nodes that hold anything
	names             map[types.UID]string   // of the Nodes in nodes
	pending           map[string]pendingNode // by name
	doubts            map[string][]*doubt    // by the Node's name: blocks that are kept although the Node is gone
	stats

	// What happened since Changes was called:
	changed bool    // something became free or a pool became another, which may help a waiting Node or let a ClusterCIDR go
	touched nameSet // pools whose status may be another
	// recheck are the Nodes about whose podCIDRs there may be something else to say, because of what others hold or of a range that
	// came or went.
	recheck      nameSet
	poolsChanged bool // a pool came, went or became another one
	// putOff are ClusterCIDRs that are looked at again once soon is empty.
	putOff nameSet
	// gaveWay is when refused reservations were last given up for pending Nodes.
	gaveWay time.Time
	// revocable are the Nodes, by name, with a reservation that is chosen again when it is not right any more.
	revocable map[string]bool
}

type nodeEntry struct {
	uid       types.UID
	addresses []netip.Prefix // the Node's own
	// pool names the ClusterCIDR that the blocks came from: the Node's annotation, or the reservation's pool.
	pool string
	// state is that of the blocks, if the Node holds any.
	state ReservationState
	// unansweredUntil is until when the API server may still carry out a write of the reservation that it did not answer; the zero value
	// if it answered each. Only in state sent.
	unansweredUntil time.Time
	// failingSince is when the first write of the reservation failed: it was refused, not answered, or not kept. The zero value: none has.
	failingSince time.Time
	// gaveWay is its place among pending Nodes, by creation, if it gave up such a reservation for Nodes that were pending. They come before it, and
	// who is created later does not.
	gaveWay time.Time
	// wentBack is Renewals.WentBack as it was when a write of the reservation was first sent; unknown if that was before a restore of etcd.
	wentBack int
	// stored is whether the API server has said that it carried out a write of the reservation. Only in state sent.
	stored bool
	// storedAt is when it last said so; the zero value once the Node shows podCIDRs.
	storedAt time.Time
	// read says that a read since the last write has shown no podCIDRs, when readAfter renewals of the lease had been sent. Only in state sent.
	read      bool
	readAfter int
	// atStart is whether the Node showed podCIDRs already when the state was filled.
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

func New() *State {
	return &State{
		pools:             map[string]*clustercidr.Pool{},
		terminating:       map[string]bool{},
		awaitingFinalizer: map[string]bool{},
		nodes:             map[string]*nodeEntry{},
		names:             map[types.UID]string{},
		pending:           map[string]pendingNode{},
		revocable:         map[string]bool{},
		doubts:            map[string][]*doubt{},
		stats:             newStats(),
	}
}

func OwnerOf(uid types.UID) ipam.Owner { return ipam.Owner{Kind: ipam.Node, ID: string(uid)} }

// Observe enters what a Node shows: its addresses, and its podCIDRs, if any, as what it holds, whoever wrote them.
func (b *State) Observe(node *v1.Node, blocks, addresses []netip.Prefix) {
	b.replaced(node)
	owner := OwnerOf(node.UID)
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
	delete(b.pending, node.Name)
	b.become(node.Name, e, Assigned)
	b.belong(e, node.Annotations[networkingv1.AnnotationClusterCIDR], blocks, known)
	b.hold(owner, blocks)
}

// locate enters which of a Node's own addresses lie in a range.
func (b *State) locate(e *nodeEntry) {
	var inside []netip.Prefix
	for _, a := range e.addresses {
		if b.inRange(a) {
			inside = append(inside, a)
		}
	}
	b.holdAddresses(OwnerOf(e.uid), inside)
}

// NodeGone frees all that this Node holds: there is no such Node any more. Another one of the name is not concerned.
func (b *State) NodeGone(name string, uid types.UID) {
	if w, ok := b.pending[name]; ok && w.uid == uid {
		delete(b.pending, name)
	}
	e, ok := b.nodes[name]
	if !ok || e.uid != uid {
		return
	}
	owner := OwnerOf(e.uid)
	b.hold(owner, nil)
	b.holdAddresses(owner, nil)
	delete(b.nodes, name)
	delete(b.names, e.uid)
	delete(b.revocable, name)
}

// known returns the entry of this very Node, if there is one.
func (b *State) known(node *v1.Node) (e *nodeEntry, ok bool) {
	e, ok = b.nodes[node.Name]
	return e, ok && e.uid == node.UID
}

// UID returns the UID of the Node of this name, as far as it holds or has held something.
func (b *State) UID(name string) (uid types.UID, ok bool) {
	if e, ok := b.nodes[name]; ok {
		return e.uid, true
	}
	return "", false
}

// ShownAtStart reports whether this very Node had podCIDRs when the state was filled.
func (b *State) ShownAtStart(node *v1.Node) bool {
	e, ok := b.known(node)
	return ok && e.atStart
}

// Pool returns the pool of this name.
func (b *State) Pool(name string) (p *clustercidr.Pool, ok bool) {
	p, ok = b.pools[name]
	return p, ok
}

// enter returns the Node's entry.
func (b *State) enter(node *v1.Node) *nodeEntry {
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
func (b *State) replaced(node *v1.Node) {
	if uid, ok := b.UID(node.Name); ok && uid != node.UID {
		b.NodeGone(node.Name, uid)
	}
	if w, ok := b.pending[node.Name]; ok && w.uid != node.UID {
		delete(b.pending, node.Name)
	}
}

// Members yields the UIDs of the Nodes that belong to p, each once, in the order of their first block in p.
func (b *State) Members(p *clustercidr.Pool) iter.Seq[types.UID] {
	return func(yield func(types.UID) bool) {
		seen := map[types.UID]bool{}
		for _, r := range p.Extent() {
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
func (b *State) belongs(uid types.UID, p *clustercidr.Pool) bool {
	if b.nodes[b.names[uid]].state.revocable() {
		return false
	}
	blocks := b.ledger.Held(OwnerOf(uid))
	outside := func(p *clustercidr.Pool) bool {
		return slices.ContainsFunc(blocks, func(block netip.Prefix) bool { return !p.Contains(block) })
	}
	if named, ok := b.pools[b.nodes[b.names[uid]].pool]; ok && !outside(named) {
		return named == p
	}
	return slices.ContainsFunc(blocks, p.Contains)
}

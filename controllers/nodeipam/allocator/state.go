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
	"github.com/multicidr/controller-manager/controllers/nodeipam/names"
)

// State is everything the controller knows: the pools, which blocks each owner holds, which pool each Node belongs to, and which Nodes are
// pending. It makes no calls and reads no clock. Not safe for concurrent use: Controller.with holds the lock.
type State struct {
	ledger ipam.Ledger
	// addresses are the Nodes' own addresses that lie in a range. They use up no block, but they are reported. Usually there are none.
	addresses ipam.Ledger
	// near are the surroundings of the Nodes' own addresses. Most ranges overlap none of them, and then no Node need be asked for its addresses.
	near  clustercidr.Surroundings
	pools map[string]*clustercidr.Pool // by the ClusterCIDR's name
	// candidates holds the pools in the order in which they are tried.
	candidates clustercidr.Candidates
	// notFull holds those of them that can allocate, or await their finalizer, and were not found to be full since blocks in their ranges
	// became free. So a full pool is looked at once, and not for each Node.
	notFull clustercidr.Candidates
	// terminating are the pools that are deleted once no Node belongs to them.
	terminating map[string]bool
	// awaitingFinalizer are the pools that can allocate as soon as they have their finalizer. Pending Nodes wait for that.
	awaitingFinalizer map[string]bool
	nodes             map[string]*nodeEntry  // by name: every Node that holds anything
	names             map[types.UID]string   // of the Nodes in nodes
	pending           map[string]pendingNode // by name
	doubts            map[string][]*doubt    // by the Node's name: blocks that stay reserved although the Node is gone
	line
	stats

	// What has happened since the last call of Changes:
	touched names.Set // pools whose status may have changed
	// vacated are terminating pools that may no longer be in use.
	vacated names.Set
	// recheck are the Nodes whose findings may have changed, because of what others hold or because a range was added or removed.
	recheck      names.Set
	poolsChanged bool // a pool was added, removed or changed
	// putOff are ClusterCIDRs to recheck once awaitingFinalizer is empty.
	putOff names.Set
	// gaveWay is when refused reservations were last given up in favor of pending Nodes.
	gaveWay time.Time
	// revocable are the names of the Nodes whose reservation may be replaced if it no longer fits.
	revocable map[string]bool
}

type nodeEntry struct {
	uid       types.UID
	addresses []netip.Prefix // the Node's own
	// pool is the name of the ClusterCIDR that the blocks were allocated from: from the Node's annotation, or from the reservation.
	pool string
	// writes is what became of the writes of podCIDRs that the Node has not shown. nil until a reservation is about to be sent, and again once
	// the Node shows podCIDRs. Most Nodes do, so this takes no memory for them.
	*writes
	// other is what was noted about another process that assigned its podCIDRs. It is replaced, never modified, and nil for most Nodes.
	other *otherWriter
	// reported are the findings about its podCIDRs that were passed on for events: message by reason.
	reported map[string]string
	// tried are the blocks that this process last sent for the Node; answered is whether the API server has ever confirmed such a write.
	tried    []netip.Prefix
	answered bool
	// atStart is whether the Node already showed podCIDRs when the state was filled.
	atStart bool
	// state is the state of the blocks, if the Node holds any. The three small fields are side by side, since there is an entry for each Node.
	state ReservationState
}

// otherWriter is the message that another process assigned a Node's podCIDRs while this one was the leader.
type otherWriter struct {
	accused   string // what is reported
	suspected string // the message before this process is certain that it is the leader
}

// byOther returns what was noted about another process; empty messages if nothing was.
func (e *nodeEntry) byOther() (o otherWriter) {
	if e.other != nil {
		o = *e.other
	}
	return o
}

type writes struct {
	// unansweredUntil is the time until which the API server may still carry out a write of the reservation that it has not answered; zero
	// if every write was answered. Only in state sent.
	unansweredUntil time.Time
	// failingSince is when a write of the reservation first failed: it was refused, not answered, or not kept; zero if none failed.
	failingSince time.Time
	// gaveWay replaces the Node's creation time in the order of pending Nodes if it gave up a refused reservation for Nodes that were
	// pending. Those come before it; Nodes created later do not.
	gaveWay time.Time
	// wentBack is the value of Renewals.WentBack when the reservation was first sent; unknown if that was before a restore of etcd.
	wentBack int
	from     *clustercidr.Pool // of the reservation when that was first sent; another one may have its name by now. nil: unknown
	// stored is whether the API server has confirmed a write of the reservation. Only in state sent.
	stored   bool
	storedAt time.Time // when it last did so; zero once the Node shows podCIDRs
	// read is whether a read since the last write has shown no podCIDRs; readAfter is how many renewals of the Lease had been sent by then.
	// Only in state sent.
	read      bool
	readAfter int
}

func New() *State {
	return &State{
		near:              clustercidr.Surroundings{},
		pools:             map[string]*clustercidr.Pool{},
		terminating:       map[string]bool{},
		awaitingFinalizer: map[string]bool{},
		nodes:             map[string]*nodeEntry{},
		names:             map[types.UID]string{},
		pending:           map[string]pendingNode{},
		revocable:         map[string]bool{},
		doubts:            map[string][]*doubt{},
		line:              newLine(),
		stats:             newStats(),
	}
}

func OwnerOf(uid types.UID) ipam.Owner { return ipam.Owner{Kind: ipam.Node, ID: string(uid)} }

// Observe records what a Node shows: its addresses, and its podCIDRs, if any, as the blocks that it holds, no matter which program wrote
// them. A Node that needs podCIDRs is pending from then on, until AllocatePending has blocks for it.
func (b *State) Observe(node *v1.Node, blocks, addresses []netip.Prefix) {
	b.replaced(node)
	if len(blocks) > 0 {
		b.leave(node.Name)
	} else {
		b.queue(node)
	}
	owner := OwnerOf(node.UID)
	_, known := b.nodes[node.Name]
	if !known && len(addresses) == 0 && len(blocks) == 0 {
		return
	}
	e := b.enter(node)
	if !slices.Equal(e.addresses, addresses) {
		e.addresses = b.near.Replace(e.addresses, addresses)
		b.locate(e)
	}
	if len(blocks) == 0 {
		if e.state == Assigned { // A restore of etcd took them away, and its machine may use them. They count as a write that may be lost.
			b.become(node.Name, e, sent)
			e.stored, e.wentBack = true, unknown
		}
		return // it keeps its reservation
	}
	b.become(node.Name, e, Assigned)
	b.belong(e, node.Annotations[networkingv1.AnnotationClusterCIDR], blocks, known)
	b.hold(owner, blocks)
}

// locate records which of a Node's own addresses lie in a range.
func (b *State) locate(e *nodeEntry) {
	var inside []netip.Prefix
	for _, a := range e.addresses {
		if b.ranges.Contain(a) {
			inside = append(inside, a)
		}
	}
	b.holdAddresses(OwnerOf(e.uid), inside)
}

// NodeGone frees everything that this Node holds, because it no longer exists. It does not affect another Node of the same name.
func (b *State) NodeGone(name string, uid types.UID) {
	if b.waiting(name) == uid {
		b.leave(name)
	}
	e, ok := b.nodes[name]
	if !ok || e.uid != uid {
		return
	}
	owner := OwnerOf(e.uid)
	b.hold(owner, nil)
	b.holdAddresses(owner, nil)
	b.near.Replace(e.addresses, nil)
	delete(b.nodes, name)
	delete(b.names, e.uid)
	delete(b.revocable, name)
}

// known returns the entry for exactly this Node, by UID, if there is one.
func (b *State) known(node *v1.Node) (e *nodeEntry, ok bool) {
	e, ok = b.nodes[node.Name]
	return e, ok && e.uid == node.UID
}

// UID returns the UID of the Node of this name if it holds or has held anything.
func (b *State) UID(name string) (uid types.UID, ok bool) {
	if e, ok := b.nodes[name]; ok {
		return e.uid, true
	}
	return "", false
}

// ShownAtStart reports whether exactly this Node had podCIDRs when the state was filled.
func (b *State) ShownAtStart(node *v1.Node) bool {
	e, ok := b.known(node)
	return ok && e.atStart
}

func (b *State) Pool(name string) (p *clustercidr.Pool, ok bool) {
	p, ok = b.pools[name]
	return p, ok
}

// enter returns the Node's entry, and adds it if there is none.
func (b *State) enter(node *v1.Node) *nodeEntry {
	e, ok := b.nodes[node.Name]
	if !ok {
		e = &nodeEntry{uid: node.UID}
		b.nodes[node.Name] = e
		b.names[node.UID] = node.Name
	}
	return e
}

// replaced frees what a Node of the same name with another UID holds. That Node is gone, because Node names are unique: an informer can
// deliver its deletion and the creation of this one as a single update.
func (b *State) replaced(node *v1.Node) {
	if uid, ok := b.UID(node.Name); ok && uid != node.UID {
		b.NodeGone(node.Name, uid)
	}
	if uid := b.waiting(node.Name); uid != "" && uid != node.UID {
		b.leave(node.Name)
	}
}

// Members yields the UID of each Node that belongs to p once, ordered by the Node's first block in p.
func (b *State) Members(p *clustercidr.Pool) iter.Seq[types.UID] {
	return func(yield func(types.UID) bool) {
		seen := map[types.UID]bool{}
		for _, r := range p.Extent() {
			for h := range b.ledger.Holdings(r) {
				uid := types.UID(h.Owner.ID)
				if h.Owner.Kind != ipam.Node || seen[uid] || !b.BelongsTo(uid, p) {
					continue
				}
				if seen[uid] = true; !yield(uid) {
					return
				}
			}
		}
	}
}

// BelongsTo reports whether a Node that holds something belongs to p. If all its blocks lie inside the pool that it names, it belongs to that pool only; otherwise
// to every pool that contains one of its blocks. A revocable reservation does not count: it keeps no pool in use.
func (b *State) BelongsTo(uid types.UID, p *clustercidr.Pool) bool {
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

package nodeipam

import (
	"cmp"
	"iter"
	"maps"
	"net/netip"
	"slices"
	"strings"
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

type waitingNode struct {
	uid      types.UID
	since    time.Time // the Node's creation
	refusals []refusal
	why      waitReason
	said     said // in events about it
}

// reservation is what is to be written into a Node.
type reservation struct {
	pool   string
	blocks []netip.Prefix
}

// refusal is why one pool that matches a Node cannot serve it.
type refusal struct {
	pool     *pool
	full     []ipam.Family // if State is Enabled
	cover    string        // which Nodes hold a whole range of the pool
	used     bool          // Nodes hold something in its full ranges
	excludes bool          // its full ranges have exclusions, and what nobody holds may be in them
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

// gone frees all that a Node of this name holds: there is no such Node any more.
func (b *book) gone(name string) {
	delete(b.waiting, name)
	e, ok := b.nodes[name]
	if !ok {
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
	if e, ok := b.nodes[node.Name]; ok && e.uid != node.UID {
		b.gone(node.Name)
	}
	if w, ok := b.waiting[node.Name]; ok && w.uid != node.UID {
		delete(b.waiting, node.Name)
	}
}

// reserve returns the Node's reservation, made now unless there is one that stands. If no pool can serve the Node, ok is false: it
// waits from now on, and the refusals of the pools that match it are returned in the order in which they were tried.
func (b *book) reserve(node *v1.Node) (_ reservation, _ []refusal, ok bool) {
	b.replaced(node)
	owner := ownerOf(node.UID)
	held := b.ledger.Held(owner)
	e := b.nodes[node.Name]
	if len(held) > 0 && !e.state.revocable() {
		return reservation{pool: e.pool, blocks: held}, nil, true
	}
	var refusals []refusal
	for p := range b.inOrder(node) {
		if len(held) > 0 && e.pool == p.Name && b.stillFree(owner, p, held) {
			return reservation{pool: p.Name, blocks: held}, nil, true
		}
		pick, ok := b.pick(owner, held, p)
		if ok {
			b.revoke(node.Name, held)
			tries := b.tries(pick)
			if b.ledger.Reserve(owner, pick) {
				e := b.enter(node)
				e.pool = p.Name
				b.become(node.Name, e, reserved)
				delete(b.waiting, node.Name)
				b.touch(pick.Blocks...)
				b.allocated(pick, tries)
				return reservation{pool: p.Name, blocks: pick.Blocks}, nil, true
			}
		}
		refusals = append(refusals, refusal{pool: p, full: b.ledger.Full(&p.Pool)})
		if p.aboutToServe() {
			break // in a moment it can serve, and it comes before the rest
		}
	}
	b.revoke(node.Name, held)
	b.explain(refusals) // only now: a Node that is served after many full pools has no use for it
	b.waiting[node.Name] = waitingNode{
		uid:      node.UID,
		since:    node.CreationTimestamp.Time,
		refusals: refusals,
		why:      waitReasonOf(len(b.pools), refusals),
		said:     b.waiting[node.Name].said,
	}
	return reservation{}, refusals, false
}

// inOrder yields the pools that match a Node in the order in which they are tried.
func (b *book) inOrder(node *v1.Node) iter.Seq[*pool] {
	if b.candidates == nil {
		b.candidates = newCandidates(maps.Values(b.pools))
	}
	return b.candidates.of(node)
}

// setPool enters a pool in place of the one of the same name.
func (b *book) setPool(p *pool) {
	old, known := b.pools[p.Name]
	if known && old.equal(p) {
		return
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

// conflicts yields what others hold of the addresses that a Node holds; what is kept from everybody does not count. It may be very many: take a few.
func (b *book) conflicts(uid types.UID) iter.Seq[ipam.Holding] {
	return func(yield func(ipam.Holding) bool) {
		for h := range b.ledger.Conflicts(ownerOf(uid)) {
			if h.Owner.Kind != ipam.Kept && !yield(h) {
				return
			}
		}
	}
}

// shares reports whether others hold addresses that a Node holds.
func (b *book) shares(uid types.UID) bool {
	for range b.conflicts(uid) {
		return true
	}
	return false
}

// nameOf writes an owner for people.
func (b *book) nameOf(o ipam.Owner) string {
	switch o.Kind {
	case ipam.Node:
		return "Node " + b.names[types.UID(o.ID)]
	case ipam.Service:
		return "service range " + o.ID
	default:
		return o.ID
	}
}

// outside reports whether there are pools but none contains any of the blocks.
func (b *book) outside(blocks []netip.Prefix) bool {
	return len(b.pools) > 0 && !slices.ContainsFunc(blocks, b.inRange)
}

// touch notes that the status of the pools around these prefixes may be another.
func (b *book) touch(prefixes ...netip.Prefix) {
	for _, prefix := range prefixes {
		for r := range b.ranges.Overlapping(prefix) {
			for _, name := range b.of[r] {
				b.touchName(name)
			}
		}
	}
}

func (b *book) touchName(name string) {
	b.touched.add(name)
	delete(b.blocking, name)
}

func (b *book) touchPool(p *pool) {
	b.touchName(p.Name)
	b.touch(p.extent()...)
}

// effects is whom changes of the book may concern.
type effects struct {
	nodes        []string // suspects, and those that wait, oldest first
	terminating  []string // ClusterCIDRs that may be able to go, or were put off
	clusterCIDRs []string // whose status may be another
}

// effects returns whom the changes since the last call may concern. It is good until the book changes.
func (b *book) effects() effects {
	e := effects{clusterCIDRs: b.touched.take(), nodes: b.suspects.take()}
	if len(b.soon) == 0 {
		e.terminating = b.putOff.take()
	}
	if !b.changed {
		return e
	}
	b.changed = false
	if b.poolsChanged { // Else what was refused would be sent again whenever a block becomes free.
		b.poolsChanged = false
		e.nodes = append(e.nodes, slices.Sorted(maps.Keys(b.revocable))...)
	}
	e.nodes = append(e.nodes, slices.SortedFunc(maps.Keys(b.waiting), func(x, y string) int {
		return byAge(b.waiting[x].since, x, b.waiting[y].since, y)
	})...)
	e.terminating = append(e.terminating, slices.Sorted(maps.Keys(b.terminating))...)
	return e
}

// byAge compares two Nodes by their creation: the older one is served first.
func byAge(created time.Time, name string, otherCreated time.Time, otherName string) int {
	return cmp.Or(created.Compare(otherCreated), strings.Compare(name, otherName))
}

// nameSet is a set of names. Nearly every event puts one or two into such a set and takes them out again, so few do without a map.
type nameSet struct {
	few  []string // in order
	many map[string]bool
}

// maxFew is how many names are few.
const maxFew = 8

func (s *nameSet) add(name string) {
	if s.many != nil {
		s.many[name] = true
		return
	}
	i, ok := slices.BinarySearch(s.few, name)
	if ok {
		return
	}
	if s.few = slices.Insert(s.few, i, name); len(s.few) > maxFew {
		s.many = map[string]bool{}
		for _, name := range s.few {
			s.many[name] = true
		}
		s.few = nil
	}
}

// take returns all names, in order, and empties the set. What it returns is good until a name is added.
func (s *nameSet) take() []string {
	names := s.few
	if s.few = s.few[:0]; s.many != nil {
		names = slices.Sorted(maps.Keys(s.many))
		s.many = nil
	}
	return names
}

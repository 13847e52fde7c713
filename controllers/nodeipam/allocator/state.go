// Package allocator knows what every Node holds and decides which blocks a Node gets. It makes no calls, reads no clock and takes no lock.
package allocator

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/apimachinery/pkg/util/sets"

	networkingv1 "github.com/multicidr/controller-manager/apis/networking/v1"
	"github.com/multicidr/controller-manager/controllers/ipam"
	"github.com/multicidr/controller-manager/controllers/nodeipam/pool"
)

// ReservationState is how far the blocks that a Node holds have come.
//
//	                     Send                 the API server answers 200, or the Node shows podCIDRs
//	None ──► Reserved ─────────► Sent ─────────────────────────────────────────────────────────────► Assigned
//	  ▲          │                │ │
//	  └──────────┴────────────────┘ └─► Sent again, with the same blocks, if there was no answer
//	  no longer valid   refused, or a read shows that nothing was stored
type ReservationState uint8

const (
	// None: the Node holds nothing.
	None ReservationState = iota
	// Reserved: chosen, and no write is under way. The blocks are checked again when they are sent.
	Reserved
	// Sent: a write is in flight, or may have been or may still be carried out. Nothing that happens to others takes the blocks away.
	Sent
	// Assigned: the Node has podCIDRs.
	Assigned
)

// State is everything that the controller knows: the pools, the Nodes and what each of them holds. Handlers feed it in the order of the
// events of each kind, and workers look at nothing else. Not safe for concurrent use.
type State struct {
	ledger     ipam.Ledger
	addresses  ipam.PrefixMap[[]*node] // the Nodes' own, for reports; an address can pass to another Node before the first is gone
	services   map[string][]netip.Prefix
	pools      map[string]*pool.Pool // by the ClusterCIDR's name
	candidates pool.Candidates
	extents    ipam.PrefixMap[[]*pool.Pool]
	nodes      map[string]*node // by name, which is also their ID as owners in the ledger
	waiting    []*node          // all Nodes without podCIDRs, oldest first
	// walkDue is whether addresses may have become free, or a pool or service range has changed, since the last walk; tellDue is whether what
	// is said about pending Nodes may have changed, too.
	walkDue, tellDue bool
	started          bool // until then handlers only record
	// youngest are the blocks of the youngest Node in each range, by Pool.ID and family, until Start.
	youngest map[string][2]found
	changes  Changes
	traffic  map[string]*[2]Traffic // by Pool.ID and family
}

// node is what is known about one Node.
type node struct {
	name string
	uid  types.UID
	// object is the Node as last shown, while it has no podCIDRs.
	object    *v1.Node
	addresses []netip.Prefix
	// since is when the Node was first seen without podCIDRs; zero when it has some.
	since time.Time
	// unreadable are its podCIDRs that cannot be parsed.
	unreadable []string
	// heldBack is whether the Node is in back-off after a refusal.
	heldBack bool
	reservation
}

// reservation is what is known about the blocks that a Node holds. The blocks themselves are in the ledger.
type reservation struct {
	state ReservationState
	// pool is the name of the ClusterCIDR that the blocks are from: as chosen, or as the Node's annotation says. poolID is the ID of a pool that
	// was chosen, until the Node shows podCIDRs.
	pool, poolID string
	// answered is the resource version in which the Node has podCIDRs: of the answer to a write, to a read, or as shown. What is older does not
	// contradict it.
	answered string
	// unansweredUntil is until when the API server may carry out a write that it did not answer; zero if every write was answered. A later
	// answer of 200 does not end it: a webhook may have dropped the podCIDRs of that one.
	unansweredUntil time.Time
	// refused is whether a write was refused after one without answer, so that in the end a read decides.
	refused bool
}

// Changes are the objects that need work because the state has changed.
type Changes struct {
	Nodes        []string         // that have blocks to be written, or something new to be told
	ClusterCIDRs sets.Set[string] // whose status, or finalizer, may have to change
	Walk         bool             // Walk is due
}

func New() *State {
	return &State{
		services: map[string][]netip.Prefix{}, pools: map[string]*pool.Pool{}, nodes: map[string]*node{},
		traffic: map[string]*[2]Traffic{}, changes: Changes{ClusterCIDRs: sets.Set[string]{}}, youngest: map[string][2]found{},
	}
}

// Started reports whether Start was called. An earlier state says nothing about the cluster.
func (s *State) Started() bool { return s.started }

// Changes returns what has to be done because of what happened since the last call.
func (s *State) Changes() Changes {
	c := s.changes
	c.Walk = s.started && s.walkDue
	if s.changes.Nodes = nil; len(c.ClusterCIDRs) > 0 {
		s.changes.ClusterCIDRs = sets.Set[string]{}
	}
	return c
}

func (n *node) owner() ipam.Owner { return ipam.Owner{Kind: ipam.Node, ID: n.name} }

// held returns the blocks that a Node holds.
func (s *State) held(n *node) []netip.Prefix { return s.ledger.Held(n.owner()) }

// Seen is what an observation of a Node means for the caller.
type Seen struct {
	// Work: the Node needs blocks, or a decision about those that were sent, or has findings to be told.
	Work bool
	// NotKept: the API server confirmed podCIDRs that this newer version of the Node does not have.
	NotKept bool
	// First: the Node shows podCIDRs for the first time, and was seen without before. Own: these were sent for it.
	First, Own bool
	// Since is when the Node was first seen, if it shows podCIDRs, had none, and no answer has told of them before.
	Since time.Time
	// Unread: the Node could not be read, so nothing of it was recorded, and it keeps what it held.
	Unread error
}

// Observe records what a Node shows. Its podCIDRs are what it holds, no matter who wrote them. A Node with another UID replaces the one
// before: that one is gone.
func (s *State) Observe(object *v1.Node, now time.Time) (seen Seen) {
	n := s.nodes[object.Name]
	if n != nil && n.uid != object.UID {
		s.Gone(object.Name, n.uid)
		n = nil
	}
	read, err := pool.Read(object)
	if err != nil {
		return Seen{Unread: err}
	}
	isNew := n == nil
	if isNew {
		n = &node{name: object.Name, uid: object.UID}
		s.nodes[n.name] = n
	}
	s.locate(n, read.Addresses)
	if pool.ShowsPodCIDRs(object) {
		return s.shown(n, object, read, isNew)
	}
	return s.shownWithout(n, object, now)
}

// shownWithout records a Node without podCIDRs.
func (s *State) shownWithout(n *node, object *v1.Node, now time.Time) (seen Seen) {
	if n.state == Assigned {
		if olderThan(object, n.answered) {
			return Seen{}
		}
		n.state, n.answered, seen.NotKept = Sent, "", true
	}
	before := n.object
	n.object = object
	if before == nil {
		n.since = now
		s.wait(n)
	}
	deleted := object.DeletionTimestamp != nil
	relabelled := before != nil && !maps.Equal(before.Labels, object.Labels)
	seen.Work = s.started && (n.state == None && !n.heldBack || relabelled || deleted)
	return seen
}

// shown records the podCIDRs of a Node.
func (s *State) shown(n *node, object *v1.Node, read pool.Reading, isNew bool) (seen Seen) {
	held, before := s.held(n), n.reservation
	seen.Own = before.state >= Sent && sameBlocks(held, read.Blocks)
	seen.First = s.started && !isNew && (before.state != Assigned || before.poolID != "") // poolID: only an answer has told so far
	s.leave(n)
	n.reservation = reservation{state: Assigned, pool: object.Annotations[networkingv1.AnnotationClusterCIDR], answered: object.ResourceVersion}
	seen.Since, n.since = n.since, time.Time{}
	n.unreadable, n.heldBack = read.Unreadable, false
	s.hold(n, read.Blocks)
	if !s.started {
		s.recordAge(object, read.Blocks)
	} else if before.state == Sent || before.pool != n.pool { // What is shown of a disabled ClusterCIDR may wait for this, or the Node belongs to another one.
		s.touch(held...)
	}
	seen.Work = s.hasFindings(n)
	return seen
}

// olderThan reports whether a Node is shown as it was before a resource version. Resource versions are ordered (KEP-5504).
func olderThan(object *v1.Node, version string) bool {
	order, err := resourceversion.CompareResourceVersion(object.ResourceVersion, version)
	return err == nil && order < 0
}

func sameBlocks(a, b []netip.Prefix) bool {
	return len(a) == len(b) && len(ipam.Without(a, b)) == 0
}

// Gone frees everything that this Node holds: it no longer exists. It does not affect another Node of the same name.
func (s *State) Gone(name string, uid types.UID) {
	n, ok := s.nodes[name]
	if !ok || n.uid != uid {
		return
	}
	s.hold(n, nil)
	s.locate(n, nil)
	s.leave(n)
	delete(s.nodes, name)
}

// older orders Nodes by creation, then by name.
func older(x, y *node) int {
	return cmp.Or(x.object.CreationTimestamp.Compare(y.object.CreationTimestamp.Time), strings.Compare(x.name, y.name))
}

// wait adds a Node to those without podCIDRs.
func (s *State) wait(n *node) {
	i, _ := slices.BinarySearchFunc(s.waiting, n, older)
	s.waiting = slices.Insert(s.waiting, i, n)
}

// leave removes a Node from those without podCIDRs, if it is one, and drops its object.
func (s *State) leave(n *node) {
	if n.object != nil {
		if i, ok := slices.BinarySearchFunc(s.waiting, n, older); ok && s.waiting[i] == n {
			s.waiting = slices.Delete(s.waiting, i, i+1)
		}
	}
	n.object = nil
}

// hold replaces the blocks that a Node holds.
func (s *State) hold(n *node, blocks []netip.Prefix) {
	before := s.held(n)
	if slices.Equal(before, blocks) {
		return
	}
	s.ledger.Hold(n.owner(), blocks...)
	if freed := ipam.Without(before, blocks); s.started && len(freed) > 0 {
		s.countReleases(n, freed)
		s.walkDue = true
	}
	if s.started {
		s.changed(before, blocks)
	}
}

// changed notes that somebody has other addresses than before.
func (s *State) changed(before, after []netip.Prefix) {
	for _, differing := range [][]netip.Prefix{ipam.Without(before, after), ipam.Without(after, before)} {
		s.touch(differing...)
		s.tellHolders(differing)
	}
}

// touch notes that the status of the pools around these addresses may have changed.
func (s *State) touch(prefixes ...netip.Prefix) {
	for _, prefix := range prefixes {
		for p := range s.poolsAround(prefix) {
			s.changes.ClusterCIDRs.Insert(p.Name)
		}
	}
}

// tellHolders queues the Nodes with podCIDRs that have addresses in these prefixes: whether they conflict, or lie in no ClusterCIDR, may have
// changed.
func (s *State) tellHolders(prefixes []netip.Prefix) {
	for _, prefix := range prefixes {
		for h := range s.ledger.Holdings(prefix) {
			if h.Owner.Kind == ipam.Node && s.nodes[h.Owner.ID].state == Assigned {
				s.changes.Nodes = append(s.changes.Nodes, h.Owner.ID)
			}
		}
	}
}

// locate records a Node's own addresses.
func (s *State) locate(n *node, addresses []netip.Prefix) {
	if slices.Equal(n.addresses, addresses) {
		return
	}
	for _, a := range n.addresses {
		remove(&s.addresses, a, n)
	}
	for _, a := range addresses {
		add(&s.addresses, a, n)
	}
	if s.started {
		s.touch(n.addresses...)
		s.touch(addresses...)
	}
	n.addresses = addresses
}

// add and remove change the list that is the value of a prefix.
func add[V comparable](to *ipam.PrefixMap[[]V], p netip.Prefix, v V) {
	list := to.Insert(p)
	*list = append(*list, v)
}

func remove[V comparable](from *ipam.PrefixMap[[]V], p netip.Prefix, v V) {
	list := from.At(p)
	*list = slices.DeleteFunc(*list, func(o V) bool { return o == v })
	from.Remove(p)
}

// SetPool adds or replaces the pool of a ClusterCIDR, as shown.
func (s *State) SetPool(p *pool.Pool) {
	s.changes.ClusterCIDRs.Insert(p.Name)
	if old := s.pools[p.Name]; old == nil || !old.Equal(p) {
		s.replacePool(old, p)
	}
}

// DropPool forgets the pool of a ClusterCIDR that is gone. Blocks that Nodes hold stay held.
func (s *State) DropPool(name string) {
	if old, ok := s.pools[name]; ok {
		s.replacePool(old, nil)
	}
}

func (s *State) replacePool(old, now *pool.Pool) {
	var before, after []netip.Prefix
	if old != nil {
		before = old.Extent
		s.candidates.Remove(old)
		for _, r := range before {
			remove(&s.extents, r, old)
		}
		if delete(s.pools, old.Name); now == nil || now.ID != old.ID {
			s.ledger.Forget(&old.Pool)
			delete(s.traffic, old.ID)
		}
	}
	if now != nil {
		after = now.Extent
		for _, r := range after {
			add(&s.extents, r, now)
		}
		s.pools[now.Name] = now
		s.candidates.Add(now)
	}
	s.touch(before...) // What a pool excludes changes what its neighbours share.
	s.touch(after...)
	s.changed(before, after)
	s.walkDue, s.tellDue = true, true
	if old == nil && len(s.pools) == 1 { // Without a ClusterCIDR no Node was out of range.
		s.tellAstray()
	}
}

// SetService replaces the service ranges from one source: a flag, or a ServiceCIDR by its name.
func (s *State) SetService(source string, ranges []netip.Prefix) {
	before := s.services[source]
	if slices.Equal(before, ranges) {
		return
	}
	if s.services[source] = ranges; len(ranges) == 0 {
		delete(s.services, source)
	}
	s.ledger.Hold(ipam.Owner{Kind: ipam.Service, ID: source}, ranges...)
	s.changed(before, ranges)
	s.walkDue, s.tellDue = true, true
}

// Start ends the time in which handlers only record: the state has everything that existed when the caches were found to be fresh. The search
// in each range goes on behind the block of the youngest Node in it, so that blocks freed before rest as long as possible. The first walk
// is then due.
func (s *State) Start() {
	for name, p := range s.pools {
		s.changes.ClusterCIDRs.Insert(name)
		for _, last := range s.youngest[p.ID] {
			if last.block.IsValid() {
				s.ledger.ContinueBehind(&p.Pool, last.block)
			}
		}
	}
	s.youngest = nil
	s.changes.Nodes = append(s.changes.Nodes, s.sharing().UnsortedList()...)
	s.started, s.walkDue, s.tellDue = true, true, true
}

// found is a block that a Node had before this process started.
type found struct {
	created time.Time // the Node
	block   netip.Prefix
}

// recordAge notes the blocks of a Node, unless there are younger Nodes in the same ranges; of Nodes of the same second the highest block counts.
func (s *State) recordAge(object *v1.Node, blocks []netip.Prefix) {
	for _, block := range blocks {
		is := found{object.CreationTimestamp.Time, block}
		for p := range s.poolsAround(block) {
			of := s.youngest[p.ID]
			if was := of[ipam.FamilyOf(block)]; cmp.Or(is.created.Compare(was.created), block.Compare(was.block)) > 0 {
				of[ipam.FamilyOf(block)] = is
				s.youngest[p.ID] = of
			}
		}
	}
}

// tellAstray queues all Nodes with something wrong with their podCIDRs by themselves.
func (s *State) tellAstray() {
	for name, n := range s.nodes {
		if n.state == Assigned && s.isAstray(n) {
			s.changes.Nodes = append(s.changes.Nodes, name)
		}
	}
}

// Package allocator knows what every Node holds and decides which blocks a Node gets. It makes no calls, reads no clock and takes no lock.
package allocator

import (
	"cmp"
	"net/netip"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"

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

func (s ReservationState) String() string {
	return [...]string{"Pending", "Reserved", "Reserved", "Allocated"}[s]
}

// State is everything that the controller knows: the pools, the Nodes and what each of them holds. Handlers feed it in the order of the
// events of each kind, and workers look at nothing else. Not safe for concurrent use.
type State struct {
	ledger     ipam.Ledger
	addresses  ipam.PrefixMap[[]*node] // the Nodes' own, for reports; an address can pass to another Node before the first is gone
	services   map[string][]netip.Prefix
	pools      map[string]*pool.Pool // by the ClusterCIDR's name
	candidates pool.Candidates
	ranges     ipam.PrefixMap[[]*pool.Pool]
	nodes      map[string]*node // by name
	names      map[types.UID]string
	waiting    []*node // all Nodes without podCIDRs, oldest first
	// walkDue is whether addresses may have become free, or a pool or service range has changed, since the last walk; tellDue is whether what
	// is said about pending Nodes may have changed, too.
	walkDue, tellDue bool
	started          bool // until then handlers only record
	changes          Changes
	traffic          map[string]*[2]Traffic // by Pool.ID and family
}

// node is what is known about one Node.
type node struct {
	name string
	uid  types.UID
	// object is the Node as last shown, while it has no podCIDRs or unreadable ones, and before Start.
	object    *v1.Node
	addresses []netip.Prefix
	// pool is the name of the ClusterCIDR that the blocks are from: from the annotation, or from the reservation, which is also from poolID.
	pool   string
	poolID string
	// answered is the resource version in which the Node has podCIDRs: of the answer to a write, to a read, or as shown. What is older does not
	// contradict it.
	answered string
	// unansweredUntil is until when the API server may carry out a write that it did not answer; zero if every write was answered. A later
	// answer of 200 does not end it: a webhook may have dropped the podCIDRs of that one.
	unansweredUntil time.Time
	state           ReservationState
	// refused is whether a write was refused after one without answer, so that in the end a read decides; heldBack is whether the Node is in
	// back-off after a refusal.
	refused, heldBack bool
}

// Changes are the objects that need work because the state has changed.
type Changes struct {
	Nodes        []string        // that have blocks to be written, or something new to be told
	ClusterCIDRs map[string]bool // whose status, or finalizer, may have to change
	Walk         bool            // Walk is due
}

func New() *State {
	return &State{
		services: map[string][]netip.Prefix{}, pools: map[string]*pool.Pool{}, nodes: map[string]*node{}, names: map[types.UID]string{},
		traffic: map[string]*[2]Traffic{}, changes: Changes{ClusterCIDRs: map[string]bool{}},
	}
}

// Changes returns what has to be done because of what happened since the last call.
func (s *State) Changes() Changes {
	c := s.changes
	c.Walk = s.started && s.walkDue
	if s.changes.Nodes = nil; len(c.ClusterCIDRs) > 0 {
		s.changes.ClusterCIDRs = map[string]bool{}
	}
	return c
}

func ownerOf(uid types.UID) ipam.Owner { return ipam.Owner{Kind: ipam.Node, ID: string(uid)} }

// Seen is what an observation of a Node means for the caller.
type Seen struct {
	// Work: the Node needs blocks, or a decision about those that were sent, or has findings to be told.
	Work bool
	// NotKept: the API server confirmed podCIDRs that this newer version of the Node does not have.
	NotKept bool
	// First: the Node shows podCIDRs for the first time, and was seen without before. Own: these were sent for it.
	First, Own bool
	// Unread: the Node could not be read, so nothing of it was recorded, and it keeps what it held.
	Unread error
}

// Observe records what a Node shows. Its podCIDRs are what it holds, no matter who wrote them. A Node with another UID replaces the one
// before: that one is gone.
func (s *State) Observe(object *v1.Node) (seen Seen) {
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
		s.nodes[n.name], s.names[n.uid] = n, n.name
	}
	s.locate(n, read.Addresses)
	if pool.ShowsPodCIDRs(object) {
		return s.shown(n, object, read, isNew)
	}
	return s.shownWithout(n, object)
}

// shownWithout records a Node without podCIDRs.
func (s *State) shownWithout(n *node, object *v1.Node) (seen Seen) {
	if n.state == Assigned {
		if olderThan(object, n.answered) {
			return Seen{}
		}
		n.state, n.answered, seen.NotKept = Sent, "", true
	}
	before := n.object
	n.object = object
	if before == nil {
		s.wait(n)
	}
	deleted := object.DeletionTimestamp != nil
	relabelled := before != nil && !sameLabels(before.Labels, object.Labels)
	seen.Work = n.state == None && !n.heldBack || relabelled || deleted
	return seen
}

// shown records the podCIDRs of a Node.
func (s *State) shown(n *node, object *v1.Node, read pool.Reading, isNew bool) (seen Seen) {
	held := s.ledger.Held(ownerOf(n.uid))
	seen.Own = n.state >= Sent && sameBlocks(held, read.Blocks)
	seen.First = s.started && !isNew && (n.state != Assigned || n.poolID != "") // poolID: only an answer has told so far
	if s.leave(n); s.started && n.state == Sent {
		s.touch(held...) // What is shown of a disabled ClusterCIDR may wait for this.
	}
	n.state, n.answered, n.unansweredUntil, n.refused, n.heldBack = Assigned, object.ResourceVersion, time.Time{}, false, false
	named := n.pool
	n.pool, n.poolID = object.Annotations[networkingv1.AnnotationClusterCIDR], ""
	if !s.started || len(read.Unreadable) > 0 {
		n.object = object
	}
	s.hold(n, read.Blocks)
	s.renamed(n, named)
	seen.Work = s.started && (len(read.Unreadable) > 0 || s.hasFindings(n.uid))
	return seen
}

// renamed notes that a Node may belong to another ClusterCIDR than before.
func (s *State) renamed(n *node, before string) {
	if s.started && n.pool != before {
		s.touch(s.ledger.Held(ownerOf(n.uid))...)
	}
}

// olderThan reports whether a Node is shown as it was before a resource version. Resource versions are ordered (KEP-5504).
func olderThan(object *v1.Node, version string) bool {
	order, err := resourceversion.CompareResourceVersion(object.ResourceVersion, version)
	return err == nil && order < 0
}

func sameBlocks(a, b []netip.Prefix) bool {
	return len(a) == len(b) && len(ipam.Without(a, b)) == 0
}

func sameLabels(a, b map[string]string) bool {
	if len(a) != len(b) {
		return false
	}
	for key, value := range a {
		if other, ok := b[key]; !ok || other != value {
			return false
		}
	}
	return true
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
	delete(s.names, uid)
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
	owner := ownerOf(n.uid)
	before := s.ledger.Held(owner)
	if slices.Equal(before, blocks) {
		return
	}
	if !s.started {
		s.ledger.Hold(owner, blocks...)
		return
	}
	freed, taken := ipam.Without(before, blocks), ipam.Without(blocks, before)
	conflicted := len(freed) > 0 && s.conflicts(n.uid)
	s.ledger.Hold(owner, blocks...)
	s.countReleases(n, freed)
	s.walkDue = s.walkDue || len(freed) > 0
	s.touch(before...)
	s.touch(blocks...)
	if conflicted || len(taken) > 0 && s.conflicts(n.uid) {
		s.tellHolders(before)
		s.tellHolders(blocks)
	}
}

// touch notes that the status of the pools around these addresses may have changed.
func (s *State) touch(prefixes ...netip.Prefix) {
	for _, prefix := range prefixes {
		for pools := range s.ranges.Values(prefix) {
			for _, p := range pools {
				s.changes.ClusterCIDRs[p.Name] = true
			}
		}
	}
}

// tellHolders queues the Nodes with addresses in these prefixes that have findings.
func (s *State) tellHolders(prefixes []netip.Prefix) {
	for _, prefix := range prefixes {
		for h := range s.ledger.Holdings(prefix) {
			if n := s.nodes[s.names[types.UID(h.Owner.ID)]]; h.Owner.Kind == ipam.Node && n.state == Assigned {
				s.changes.Nodes = append(s.changes.Nodes, n.name)
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
		nodes := s.addresses.At(a)
		*nodes = slices.DeleteFunc(*nodes, func(o *node) bool { return o == n })
		s.addresses.Remove(a)
	}
	for _, a := range addresses {
		nodes := s.addresses.Insert(a)
		*nodes = append(*nodes, n)
	}
	if s.started {
		s.touch(n.addresses...)
		s.touch(addresses...)
	}
	n.addresses = addresses
}

// SetPool adds or replaces the pool of a ClusterCIDR, as shown.
func (s *State) SetPool(p *pool.Pool) {
	old := s.pools[p.Name]
	s.changes.ClusterCIDRs[p.Name] = true
	if old != nil && old.Equal(p) {
		return
	}
	s.replacePool(old, p)
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
		before = old.Extent()
		s.candidates.Remove(old)
		for _, r := range before {
			pools := s.ranges.At(r)
			*pools = slices.DeleteFunc(slices.Clone(*pools), func(p *pool.Pool) bool { return p == old })
			s.ranges.Remove(r)
		}
		if delete(s.pools, old.Name); now == nil || now.ID != old.ID {
			s.ledger.Forget(&old.Pool)
			delete(s.traffic, old.ID)
		}
	}
	if now != nil {
		after = now.Extent()
		for _, r := range after {
			pools := s.ranges.Insert(r)
			*pools = append(slices.Clone(*pools), now)
		}
		s.pools[now.Name] = now
		s.candidates.Add(now)
	}
	if !s.started {
		return
	}
	s.touch(before...)
	s.touch(after...)
	s.walkDue, s.tellDue = true, true
	s.tellHolders(ipam.Without(before, after))
	s.tellHolders(ipam.Without(after, before))
	if old == nil && len(s.pools) == 1 { // Without a ClusterCIDR no Node was out of range.
		s.tellOutsiders()
	}
}

// tellOutsiders queues the Nodes whose blocks lie in no ClusterCIDR.
func (s *State) tellOutsiders() {
	for name, n := range s.nodes {
		if n.state == Assigned && s.OutOfRange(s.ledger.Held(ownerOf(n.uid))) {
			s.changes.Nodes = append(s.changes.Nodes, name)
		}
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
	if s.started {
		s.touch(before...)
		s.touch(ranges...)
		s.walkDue, s.tellDue = true, true
		s.tellHolders(before)
		s.tellHolders(ranges)
	}
}

// Start ends the time in which handlers only record: the state has everything that existed when the caches were found to be fresh. The search
// in each range goes on behind the block of the youngest Node in it, so that blocks freed before rest as long as possible. The first walk
// is then due.
func (s *State) Start() {
	youngest := map[*pool.Pool]*[2]time.Time{}
	for _, n := range s.nodes {
		if n.state != Assigned {
			continue
		}
		for _, block := range s.ledger.Held(ownerOf(n.uid)) {
			s.continueBehind(block, n.object.CreationTimestamp.Time, youngest)
		}
		if _, unreadable := pool.PodCIDRsOf(n.object); len(unreadable) > 0 || s.hasFindings(n.uid) {
			if s.changes.Nodes = append(s.changes.Nodes, n.name); len(unreadable) > 0 {
				continue
			}
		}
		n.object = nil
	}
	for name := range s.pools {
		s.changes.ClusterCIDRs[name] = true
	}
	s.started, s.walkDue, s.tellDue = true, true, true
}

// continueBehind moves the cursors of the pools around a block behind it, if its Node is the youngest so far.
func (s *State) continueBehind(block netip.Prefix, created time.Time, youngest map[*pool.Pool]*[2]time.Time) {
	family := ipam.FamilyOf(block)
	for pools := range s.ranges.Values(block) {
		for _, p := range pools {
			last := youngest[p]
			if last == nil {
				last = &[2]time.Time{}
				youngest[p] = last
			}
			at := s.ledger.Cursor(&p.Pool, family)
			behind := after(block)
			if created.Before(last[family]) || created.Equal(last[family]) && at.IsValid() && behind.Less(at) {
				continue
			}
			last[family] = created
			s.ledger.SetCursor(&p.Pool, family, behind)
		}
	}
}

// after returns the address behind a block; invalid at the end of the address space, which means the start of the range.
func after(block netip.Prefix) netip.Addr {
	bytes := block.Addr().AsSlice()
	for bit := block.Bits(); bit < 8*len(bytes); bit++ {
		bytes[bit/8] |= 1 << (7 - bit%8)
	}
	last, _ := netip.AddrFromSlice(bytes)
	return last.Next()
}

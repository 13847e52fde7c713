package nodeipam

import (
	"cmp"
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
	ledger  ipam.Ledger
	pools   map[string]*pool       // by the ClusterCIDR's name
	nodes   map[string]*nodeEntry  // by name: Nodes that show podCIDRs or have a reservation
	names   map[types.UID]string   // of the Nodes in nodes
	waiting map[string]waitingNode // by name
	// changed: something became free or a pool became another, which may let a waiting Node be served or a ClusterCIDR go.
	changed bool
}

type nodeEntry struct {
	uid types.UID
	// pool names the ClusterCIDR that the blocks came from: the Node's annotation, or the reservation's pool.
	pool string
	// reported is what the last events about its podCIDRs said, message by reason.
	reported map[string]string
}

type waitingNode struct {
	since time.Time // the Node's creation
	said  string    // the reasons in the last event about it
}

// reservation is what is to be written into a Node.
type reservation struct {
	pool   string
	blocks []netip.Prefix
}

// refusal is why one pool that matches a Node cannot serve it.
type refusal struct {
	pool *pool
	full []ipam.Family // if State is Enabled
}

func newBook() *book {
	return &book{
		pools:   map[string]*pool{},
		nodes:   map[string]*nodeEntry{},
		names:   map[types.UID]string{},
		waiting: map[string]waitingNode{},
	}
}

func ownerOf(uid types.UID) ipam.Owner { return ipam.Owner{Kind: ipam.Node, ID: string(uid)} }

// observe enters the podCIDRs that a Node shows as what it holds, whoever wrote them.
func (b *book) observe(node *v1.Node, blocks []netip.Prefix) {
	e := b.enter(node)
	e.pool = node.Annotations[networkingv1.AnnotationClusterCIDR]
	delete(b.waiting, node.Name)
	before := b.ledger.Held(ownerOf(node.UID))
	b.ledger.Hold(ownerOf(node.UID), blocks...)
	for _, block := range before {
		b.changed = b.changed || !slices.Contains(blocks, block)
	}
}

// gone frees all that a Node of this name holds: there is no such Node any more.
func (b *book) gone(name string) {
	delete(b.waiting, name)
	if e, ok := b.nodes[name]; ok {
		b.changed = b.ledger.Release(ownerOf(e.uid)) || b.changed
		delete(b.nodes, name)
		delete(b.names, e.uid)
	}
}

// enter returns the Node's entry.
func (b *book) enter(node *v1.Node) *nodeEntry {
	b.replaced(node)
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
}

// reserve returns the Node's reservation, made now unless there is one. If no pool can serve the Node, ok is false: it
// waits from now on, and the refusals of the pools that match it are returned in the order in which they were tried.
func (b *book) reserve(node *v1.Node) (_ reservation, _ []refusal, ok bool) {
	b.replaced(node)
	owner := ownerOf(node.UID)
	if held := b.ledger.Held(owner); len(held) > 0 {
		return reservation{pool: b.nodes[node.Name].pool, blocks: held}, nil, true
	}
	candidates := b.candidates(node)
	if i := slices.IndexFunc(candidates, (*pool).aboutToServe); i >= 0 {
		candidates = candidates[:i+1] // in a moment it can serve, and it comes before the rest
	}
	pools := make([]*ipam.Pool, len(candidates))
	for i, p := range candidates {
		pools[i] = &p.Pool
	}
	if pick, ok := b.ledger.Pick(pools...); ok && b.ledger.Reserve(owner, pick) {
		b.enter(node).pool = pick.Pool.Name
		delete(b.waiting, node.Name)
		return reservation{pool: pick.Pool.Name, blocks: pick.Blocks}, nil, true
	}
	refusals := make([]refusal, len(candidates))
	for i, p := range candidates {
		refusals[i] = refusal{pool: p, full: b.ledger.Full(&p.Pool)}
	}
	b.waiting[node.Name] = waitingNode{since: node.CreationTimestamp.Time, said: b.waiting[node.Name].said}
	return reservation{}, refusals, false
}

// candidates returns the pools whose selector matches the Node, in the order in which they are tried.
func (b *book) candidates(node *v1.Node) []*pool {
	type candidate struct {
		*pool
		specificity int
	}
	var matching []candidate
	for _, p := range b.pools {
		if specificity, ok := p.matches(node); ok {
			matching = append(matching, candidate{p, specificity})
		}
	}
	slices.SortFunc(matching, func(x, y candidate) int {
		return ipam.Compare(ipam.Candidate{Pool: &x.Pool, Specificity: x.specificity}, ipam.Candidate{Pool: &y.Pool, Specificity: y.specificity})
	})
	pools := make([]*pool, len(matching))
	for i, c := range matching {
		pools[i] = c.pool
	}
	return pools
}

// setPool enters a pool in place of the one of the same name.
func (b *book) setPool(p *pool) {
	if old, ok := b.pools[p.Name]; ok {
		if old.equal(p) {
			return
		}
		if old.ID != p.ID {
			b.dropPool(p.Name)
		}
	}
	b.pools[p.Name] = p
	b.ledger.Hold(exclusionsOf(p), p.excluded...)
	b.changed = true
}

// dropPool forgets a pool that is gone. What Nodes hold from it stays held.
func (b *book) dropPool(name string) {
	p, ok := b.pools[name]
	if !ok {
		return
	}
	b.ledger.Forget(&p.Pool)
	b.ledger.Release(exclusionsOf(p))
	delete(b.pools, name)
	b.changed = true
}

func exclusionsOf(p *pool) ipam.Owner { return ipam.Owner{Kind: ipam.Exclusion, ID: p.ID} }

// inUse reports whether a Node belongs to the pool of this name.
func (b *book) inUse(name string) bool {
	p, ok := b.pools[name]
	if !ok {
		return false
	}
	for _, r := range p.Ranges {
		for _, h := range b.ledger.Overlapping(r.Prefix) {
			if h.Owner.Kind == ipam.Node && b.belongs(types.UID(h.Owner.ID), p) {
				return true
			}
		}
	}
	return false
}

// belongs reports whether a Node belongs to p: to the pool that it names if all its blocks lie inside that, else to
// every pool that contains one of its blocks.
func (b *book) belongs(uid types.UID, p *pool) bool {
	blocks := b.ledger.Held(ownerOf(uid))
	outside := func(p *pool) bool {
		return slices.ContainsFunc(blocks, func(block netip.Prefix) bool { return !p.contains(block) })
	}
	if named, ok := b.pools[b.nodes[b.names[uid]].pool]; ok && !outside(named) {
		return named == p
	}
	return slices.ContainsFunc(blocks, p.contains)
}

// conflicts returns the names of the other Nodes that hold addresses which a Node holds, and what they hold.
func (b *book) conflicts(uid types.UID) map[string]netip.Prefix {
	others := map[string]netip.Prefix{}
	for _, h := range b.ledger.Conflicts(ownerOf(uid)) {
		if h.Owner.Kind == ipam.Node {
			others[b.names[types.UID(h.Owner.ID)]] = h.Prefix
		}
	}
	return others
}

// outside reports whether there are pools but none contains any of the blocks.
func (b *book) outside(blocks []netip.Prefix) bool {
	for _, p := range b.pools {
		if slices.ContainsFunc(blocks, p.contains) {
			return false
		}
	}
	return len(b.pools) > 0
}

// toWake returns whom the changes since the last call may help: the waiting Nodes, oldest first, and the ClusterCIDRs that are being deleted.
func (b *book) toWake() (nodes, pools []string) {
	if !b.changed {
		return nil, nil
	}
	b.changed = false
	nodes = slices.SortedFunc(maps.Keys(b.waiting), func(x, y string) int {
		return cmp.Or(b.waiting[x].since.Compare(b.waiting[y].since), strings.Compare(x, y))
	})
	for name, p := range b.pools {
		if p.State == ipam.Terminating {
			pools = append(pools, name)
		}
	}
	return nodes, pools
}

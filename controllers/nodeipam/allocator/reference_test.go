package allocator

import (
	"maps"
	"net/netip"
	"slices"

	v1 "k8s.io/api/core/v1"

	"github.com/multicidr/controller-manager/controllers/ipam"
	"github.com/multicidr/controller-manager/controllers/nodeipam/clustercidr"
	"github.com/multicidr/controller-manager/controllers/nodeipam/pending"
)

// reference is a second implementation, slow and obvious, of who is allocated what: each pending Node, the oldest first, asks all pools that
// select it, in order, and walks over all their blocks. It knows no index, no line and no full pools, and remembers only which block each
// range allocated last. Whether a pool selects a Node and which of two comes first have tests of their own: TestCandidates and
// TestCompareOrdersByOneRuleAfterTheOther.
type reference struct {
	pools map[string]slowPool
	last  map[rangeID]netip.Addr // of the block allocated last
	given map[rangeID]given
}

// given is how many blocks of a range were allocated, and how many were looked at for that: those after the last one, one after the other.
type given struct{ blocks, tries int }

// rangeID is the UID of a ClusterCIDR and the family of a range.
type rangeID struct {
	uid    string
	family ipam.Family
}

// slowPool is a pool and all blocks of each of its ranges that it does not exclude.
type slowPool struct {
	*clustercidr.Pool
	blocks [][]netip.Prefix
}

// choice is what one decision means for one Node: blocks of a pool, a pool whose finalizer it awaits, or neither.
type choice struct {
	pool   string
	blocks []netip.Prefix
	awaits string
}

// holdings are what each owner holds.
type holdings map[ipam.Owner][]netip.Prefix

func (h holdings) overlap(block netip.Prefix) bool {
	for _, held := range h {
		if slices.ContainsFunc(held, block.Overlaps) {
			return true
		}
	}
	return false
}

// without are the holdings when o has given up its own.
func (h holdings) without(o ipam.Owner) holdings {
	rest := maps.Clone(h)
	delete(rest, o)
	return rest
}

func newReference() reference {
	return reference{pools: map[string]slowPool{}, last: map[rangeID]netip.Addr{}, given: map[rangeID]given{}}
}

func (r reference) set(p *clustercidr.Pool) {
	if old, ok := r.pools[p.Name]; ok && old.ID != p.ID {
		r.drop(p.Name)
	}
	s := slowPool{Pool: p}
	for _, in := range p.Ranges {
		s.blocks = append(s.blocks, slices.DeleteFunc(blocksOf(in), func(b netip.Prefix) bool { return slices.ContainsFunc(p.Exclusions, b.Overlaps) }))
	}
	r.pools[p.Name] = s
}

func (r reference) drop(name string) {
	for _, family := range []ipam.Family{ipam.IPv4, ipam.IPv6} {
		delete(r.last, rangeID{r.pools[name].ID, family})
		delete(r.given, rangeID{r.pools[name].ID, family})
	}
	delete(r.pools, name)
}

func blocksOf(r ipam.Range) (all []netip.Prefix) {
	for a := r.Prefix.Addr(); r.Prefix.Contains(a); {
		all = append(all, netip.PrefixFrom(a, r.BlockBits))
		for range 1 << (a.BitLen() - r.BlockBits) {
			a = a.Next()
		}
	}
	return all
}

// candidates are the pools that select a Node, in the order in which they are tried.
func (r reference) candidates(node *v1.Node) (all []slowPool) {
	for _, p := range r.pools {
		if p.Matches(node) {
			all = append(all, p)
		}
	}
	slices.SortFunc(all, func(x, y slowPool) int { return ipam.Compare(x.For(node), y.For(node)) })
	return all
}

// free returns the next free block of each range of p: the first one after the last, or else the first one of the range. full are the
// families that have none.
func (r reference) free(h holdings, p slowPool) (blocks []netip.Prefix, full []ipam.Family) {
	for i, in := range p.Ranges {
		free := slices.DeleteFunc(slices.Clone(p.blocks[i]), h.overlap)
		if len(free) == 0 {
			full = append(full, in.Family())
			continue
		}
		last := r.last[rangeID{p.ID, in.Family()}]
		next := slices.IndexFunc(free, func(b netip.Prefix) bool { return last.Less(b.Addr()) })
		blocks = append(blocks, free[max(0, next)])
	}
	return blocks, full
}

// choose returns what a Node that holds nothing would be allocated.
func (r reference) choose(h holdings, node *v1.Node) choice {
	for _, p := range r.candidates(node) {
		if p.AwaitsFinalizer() {
			return choice{awaits: p.Name}
		}
		if blocks, full := r.free(h, p); p.State == ipam.Enabled && len(full) == 0 {
			return choice{pool: p.Name, blocks: blocks}
		}
	}
	return choice{}
}

// decide allocates blocks to these Nodes, which hold none, one after the other, and enters them into h.
func (r reference) decide(h holdings, line []*v1.Node) map[string]choice {
	all := map[string]choice{}
	for _, node := range line {
		c := r.choose(h, node)
		for i, block := range c.blocks {
			id := rangeID{r.pools[c.pool].ID, ipam.FamilyOf(block)}
			r.given[id] = given{r.given[id].blocks + 1, r.given[id].tries + tries(r.pools[c.pool].Ranges[i], r.last[id], block)}
			r.last[id] = block.Addr()
		}
		if len(c.blocks) > 0 {
			h[OwnerOf(node.UID)] = c.blocks
		}
		all[node.Name] = c
	}
	return all
}

// tries is how many blocks of a range somebody looks at who finds this one after the last.
func tries(in ipam.Range, last netip.Addr, block netip.Prefix) (n int) {
	all := blocksOf(in)
	at := max(0, slices.IndexFunc(all, func(b netip.Prefix) bool { return last.Less(b.Addr()) }))
	for n = 1; all[at] != block; n++ {
		at = (at + 1) % len(all)
	}
	return n
}

// keeps reports whether a Node keeps blocks that it may still give up: they are free for their pool but for the Node itself, and it would be
// allocated others of that pool if it gave them up.
func (r reference) keeps(h holdings, node *v1.Node, pool string, held []netip.Prefix) bool {
	p, ok := r.pools[pool]
	others := h.without(OwnerOf(node.UID))
	if !ok || len(held) != len(p.Ranges) || r.choose(others, node).pool != pool {
		return false
	}
	for i, block := range held {
		if others.overlap(block) || !slices.Contains(p.blocks[i], block) {
			return false
		}
	}
	return true
}

// saying is what is said about one of the pools that select a pending Node.
type saying struct {
	pool  string
	state ipam.State
	full  []ipam.Family // if the pool is Enabled
}

// holds reports whether what was said is true now. Another family may be full since.
func (s saying) holds(now saying) bool {
	return s.pool == now.pool && s.state == now.state && (len(s.full) > 0) == (len(now.full) > 0) &&
		!slices.ContainsFunc(s.full, func(f ipam.Family) bool { return !slices.Contains(now.full, f) })
}

// why says why a Node is pending: the first pools that select it, and what is wrong with each.
func (r reference) why(h holdings, node *v1.Node) (all []saying) {
	candidates := r.candidates(node)
	for _, p := range candidates[:min(len(candidates), pending.Most)] {
		s := saying{pool: p.Name, state: p.State}
		if p.State == ipam.Enabled {
			_, s.full = r.free(h, p)
		}
		all = append(all, s)
	}
	return all
}

// saidOf is what the state says.
func saidOf(w pendingNode) (all []saying) {
	for _, r := range w.refusals {
		all = append(all, saying{r.Pool.Name, r.Pool.State, r.Full})
	}
	return all
}

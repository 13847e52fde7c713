package ipam

import (
	"net/netip"
	"slices"
)

// excluded is what a ledger caches about a pool with exclusions, so that it need not visit all of them for each pick and each count. It is
// built when it is needed, is derived only from the pool and the holdings, and is dropped by [Ledger.Forget].
type excluded struct {
	pool *Pool      // the pool that it was built for, or one with the same ranges and exclusions
	set  PrefixSet  // like Pool.Excluded, with node.full
	free [2]*uint64 // by family: the number of blocks that overlap an exclusion but no holding; nil: not counted yet
}

// exclusions has an entry for every pool with exclusions. The zero value is empty.
type exclusions struct {
	pools  map[string]*excluded // by Pool.ID
	ranges PrefixMap[[]*excluded]
}

// of returns the entry of p, and builds it if necessary. It is nil if p excludes nothing.
func (e *exclusions) of(p *Pool) *excluded {
	x := e.pools[p.ID]
	if x != nil && (x.pool == p || x.pool.Excluded == p.Excluded && slices.Equal(x.pool.Ranges, p.Ranges)) {
		return x
	}
	e.drop(p)
	if p.Excluded == (PrefixSet{}) {
		return nil
	}
	x = &excluded{pool: p}
	for f, root := range p.Excluded.root {
		x.set.root[f] = root.copied()
	}
	if e.pools == nil {
		e.pools = map[string]*excluded{}
	}
	e.pools[p.ID] = x
	for _, r := range p.Ranges {
		of := e.ranges.Insert(r.Prefix)
		*of = append(*of, x)
	}
	return x
}

func (e *exclusions) drop(p *Pool) {
	x := e.pools[p.ID]
	if x == nil {
		return
	}
	delete(e.pools, p.ID)
	for _, r := range x.pool.Ranges {
		of := e.ranges.At(r.Prefix)
		*of = slices.DeleteFunc(*of, func(o *excluded) bool { return o == x })
		e.ranges.Remove(r.Prefix)
	}
}

// changed notes that p has one more holder or, if dropped, one less.
func (e *exclusions) changed(p netip.Prefix, dropped bool) {
	for xs := range e.ranges.Values(p) {
		for _, x := range xs {
			// Only an excluded block changes the count. The block can be wider than p.
			if f := FamilyOf(p); x.free[f] != nil && x.set.Overlaps(x.around(p)) {
				x.free[f] = nil
			}
			if dropped {
				x.set.notFull(p)
			}
		}
	}
}

// around returns p, or the block that contains it.
func (x *excluded) around(p netip.Prefix) netip.Prefix {
	for _, r := range x.pool.Ranges {
		if r.Prefix.Overlaps(p) {
			return r.around(p).Prefix
		}
	}
	return p
}

// in returns what p excludes.
func (e *exclusions) in(p *Pool) *PrefixSet {
	if x := e.of(p); x != nil {
		return &x.set
	}
	return &p.Excluded
}

// excluded returns how many blocks of r, a range of p, overlap an exclusion of p but no holding.
func (l *Ledger) excluded(p *Pool, r Range) uint64 {
	x := l.exclusions.of(p)
	if x == nil {
		return 0
	}
	counted := &x.free[r.Family()]
	if *counted == nil {
		n := l.countExcluded(p, r)
		*counted = &n
	}
	return **counted
}

func (l *Ledger) countExcluded(p *Pool, r Range) (n uint64) {
	var last netip.Prefix // the last prefix that was counted
	for e := range p.Excluded.Overlapping(r.Prefix) {
		around := r.around(e)
		if last.IsValid() && last.Contains(around.Prefix.Addr()) {
			continue // inside last: a wider prefix comes first
		}
		n = add(n, l.free(around))
		last = around.Prefix
	}
	return n
}

// Excluding returns up to n exclusions of p, in address order, that prevent the allocation of blocks of r which nobody holds. It returns
// none while p has a free block in r.
func (l *Ledger) Excluding(p *Pool, r Range, n int) []netip.Prefix {
	if _, ok := nextFree(&l.taken, l.exclusions.in(p), r.Prefix, r.BlockBits, r.Prefix.Addr()); ok {
		return nil
	}
	var found []netip.Prefix
	for at := r.Prefix.Addr(); len(found) < n && r.Prefix.Contains(at); {
		block, ok := l.taken.NextFree(r.Prefix, r.BlockBits, at)
		if !ok || block.Addr().Less(at) {
			break // no more blocks
		}
		for e := range p.Excluded.Overlapping(block) { // the widest comes first
			found = append(found, e)
			block = wider(block, e)
			break
		}
		at, _ = next(block)
	}
	return found
}

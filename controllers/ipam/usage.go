package ipam

import (
	"iter"
	"net/netip"
	"slices"
)

// What this file counts and lists is for reports. All of it may visit every holding inside a range, and none of it is needed for an allocation.

// Usage says how many blocks of a range are in use.
type Usage struct {
	// Allocated is the number of blocks that a Node holds exactly. A block that is only a part of a prefix that a Node holds, or that
	// contains one, is neither allocated nor free.
	Allocated uint64
	// Free is what [Ledger.Free] returns.
	Free uint64
}

// Usage returns the usage of r, one of p's ranges.
func (l *Ledger) Usage(p *Pool, r Range) Usage {
	u := Usage{Free: l.Free(p, r)}
	for n := range l.taken.overlapping(r.Prefix) {
		if int(n.bits) == r.BlockBits && slices.ContainsFunc(n.value, func(o Owner) bool { return o.Kind == Node }) {
			u.Allocated++
		}
	}
	return u
}

// Free returns how many blocks of r overlap no holding and no exclusion of p. r is one of p's ranges or a part of one. math.MaxUint64 means
// that number or more.
func (l *Ledger) Free(p *Pool, r Range) uint64 {
	return free(&l.taken, &p.Excluded, r.Prefix, r.BlockBits)
}

// Taken returns how many blocks of r overlap a holding or an exclusion of p. r is one of p's ranges or a part of one. math.MaxUint64 means
// that number or more. Taken is for ranges with 2^64 blocks or more, for which Free cannot return the number of free blocks.
func (l *Ledger) Taken(p *Pool, r Range) (n uint64) {
	var taken []netip.Prefix
	for _, members := range []iter.Seq[netip.Prefix]{l.taken.Overlapping(r.Prefix), p.Excluded.Overlapping(r.Prefix)} {
		for t := range members {
			taken = append(taken, r.around(t).Prefix)
		}
	}
	slices.SortFunc(taken, netip.Prefix.Compare)
	var last netip.Prefix // the last prefix that was counted
	for _, t := range taken {
		if last.IsValid() && last.Contains(t.Addr()) {
			continue // inside last: a wider prefix comes first
		}
		n = add(n, pow2(r.BlockBits-t.Bits()))
		last = t
	}
	return n
}

// Excluding returns up to n exclusions of p, in address order, that prevent the allocation of blocks of r which nobody holds. It returns
// none while p has a free block in r.
func (l *Ledger) Excluding(p *Pool, r Range, n int) []netip.Prefix {
	if _, ok := nextFree(&l.taken, &p.Excluded, r.Prefix, r.BlockBits, r.Prefix.Addr()); ok {
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

package ipam

import "slices"

// What this file counts and lists is for reports. All of it may visit every holding inside a range, and none of it is needed for an allocation.

// Usage says how many blocks of a range are in use. math.MaxUint64 means that number or more.
type Usage struct {
	// Allocated is the number of blocks that a Node holds exactly. A block that is only a part of a prefix that a Node holds, or that contains
	// one, is Unavailable, like one that overlaps a service range or an exclusion.
	Allocated, Unavailable uint64
	// Free is the number of blocks that overlap no holding and no exclusion.
	Free uint64
}

// Usage returns the usage of r, one of p's ranges or a part of one.
func (l *Ledger) Usage(p *Pool, r Range) Usage {
	free, taken := count(&l.taken, &p.Excluded, r.Prefix, r.BlockBits)
	u := Usage{Free: free}
	for n := range l.taken.overlapping(r.Prefix) {
		if int(n.bits) == r.BlockBits && slices.ContainsFunc(n.value, func(o Owner) bool { return o.Kind == Node }) {
			u.Allocated++
		}
	}
	u.Unavailable = taken - u.Allocated
	return u
}

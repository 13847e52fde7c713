package clustercidr

import (
	"iter"
	"net/netip"
	"slices"

	"github.com/multicidr/controller-manager/controllers/ipam"
)

// Ranges finds the pools whose ranges overlap a prefix. The zero value has no pools.
type Ranges struct {
	all ipam.PrefixSet
	of  map[netip.Prefix][]*Pool // the pools that have this range
}

// Replace removes the ranges of a pool and adds those of another one; either may be nil. It returns those that only one of them has.
func (r *Ranges) Replace(old, now *Pool) (changed []netip.Prefix) {
	var before, after []netip.Prefix
	if old != nil {
		before = old.Extent()
	}
	if now != nil {
		after = now.Extent()
	}
	for _, prefix := range before {
		r.all.Remove(prefix)
		if r.of[prefix] = slices.DeleteFunc(r.of[prefix], func(p *Pool) bool { return p == old }); len(r.of[prefix]) == 0 {
			delete(r.of, prefix)
		}
	}
	for _, prefix := range after {
		if r.of == nil {
			r.of = map[netip.Prefix][]*Pool{}
		}
		r.all.Insert(prefix)
		r.of[prefix] = append(r.of[prefix], now)
	}
	return append(slices.Clone(ipam.Without(before, after)), ipam.Without(after, before)...)
}

// Overlapping yields the pools with a range that overlaps one of the prefixes, some of them more than once.
func (r *Ranges) Overlapping(prefixes ...netip.Prefix) iter.Seq[*Pool] {
	return func(yield func(*Pool) bool) {
		for _, prefix := range prefixes {
			for found := range r.all.Overlapping(prefix) {
				for _, p := range r.of[found] {
					if !yield(p) {
						return
					}
				}
			}
		}
	}
}

// Contain reports whether a range contains the whole block.
func (r *Ranges) Contain(block netip.Prefix) bool {
	for found := range r.all.Overlapping(block) {
		return found.Bits() <= block.Bits() // those that contain it come first
	}
	return false
}

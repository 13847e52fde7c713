package clustercidr

import (
	"iter"
	"net/netip"
	"slices"

	"github.com/multicidr/controller-manager/controllers/ipam"
)

// Ranges finds the pools whose ranges overlap a prefix. The zero value has no pools.
type Ranges struct {
	pools ipam.PrefixMap[[]*Pool] // by range
	// meeting are the pools whose ranges overlap those of another one. Usually there are none.
	meeting map[*Pool]bool
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
		pools := r.pools.At(prefix)
		*pools = slices.DeleteFunc(*pools, func(p *Pool) bool { return p == old })
		r.pools.Remove(prefix)
	}
	for _, prefix := range after {
		pools := r.pools.Insert(prefix)
		*pools = append(*pools, now)
	}
	r.meet(old, now, before, after)
	return append(slices.Clone(ipam.Without(before, after)), ipam.Without(after, before)...)
}

// meet updates which pools are not alone after a pool with the ranges before became one with the ranges after.
func (r *Ranges) meet(old, now *Pool, before, after []netip.Prefix) {
	delete(r.meeting, old)
	for p := range r.Overlapping(before...) {
		if r.meeting[p] && !r.meets(p) {
			delete(r.meeting, p)
		}
	}
	if now == nil || !r.meets(now) {
		return
	}
	if r.meeting == nil {
		r.meeting = map[*Pool]bool{}
	}
	for p := range r.Overlapping(after...) {
		r.meeting[p] = true
	}
}

func (r *Ranges) meets(p *Pool) bool {
	for other := range r.Overlapping(p.Extent()...) {
		if other != p {
			return true
		}
	}
	return false
}

// Alone reports whether no range of another pool overlaps those of p, which is one of the pools.
func (r *Ranges) Alone(p *Pool) bool { return !r.meeting[p] }

// Overlapping yields the pools with a range that overlaps one of the prefixes, some of them more than once.
func (r *Ranges) Overlapping(prefixes ...netip.Prefix) iter.Seq[*Pool] {
	return func(yield func(*Pool) bool) {
		for _, prefix := range prefixes {
			for pools := range r.pools.Values(prefix) {
				for _, p := range pools {
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
	for found := range r.pools.Overlapping(block) {
		return found.Bits() <= block.Bits() // those that contain it come first
	}
	return false
}

// Surroundings are the subnets, of usual sizes, in which addresses lie: how many of these each has. They are few where the addresses are
// many, so they tell quickly that nobody has an address in a prefix.
type Surroundings map[netip.Prefix]int

// Replace removes the surroundings of some addresses and adds those of others, which it returns.
func (s Surroundings) Replace(old, now []netip.Prefix) []netip.Prefix {
	for _, a := range old {
		if around := surroundings(a); s[around] > 1 {
			s[around]--
		} else {
			delete(s, around)
		}
	}
	for _, a := range now {
		s[surroundings(a)]++
	}
	return now
}

// Overlap reports whether one of them shares an address with one of the prefixes.
func (s Surroundings) Overlap(prefixes []netip.Prefix) bool {
	for around := range s {
		if slices.ContainsFunc(prefixes, around.Overlaps) {
			return true
		}
	}
	return false
}

func surroundings(address netip.Prefix) netip.Prefix {
	bits := 24
	if ipam.FamilyOf(address) == ipam.IPv6 {
		bits = 64
	}
	return netip.PrefixFrom(address.Addr(), bits).Masked()
}

package ipam

import (
	"cmp"
	"net/netip"
	"strings"
)

// Pool is a source of blocks: a ClusterCIDR, compiled. The ledger only reads it.
type Pool struct {
	// ID tells a pool from an earlier one of the same name (the object's UID); the search cursors belong to it.
	ID   string
	Name string
	// Priority: higher is tried first.
	Priority int32
	// Selective is whether the pool has a nodeSelector. One without serves every Node, after all that have one.
	Selective bool
	// Selector is the nodeSelector in canonical text; it only breaks ties.
	Selector string
	// Ranges has at most one range of each family, IPv4 first. A Node gets one block from each.
	Ranges []Range
	// Excluded are addresses of which this pool never gives a block. They say nothing about other pools with the same addresses.
	Excluded PrefixSet
	// State says whether the pool may give blocks. The zero value is Enabled.
	State State
}

// State is whether a pool may give new blocks. What is held from it stays held in every state.
type State uint8

const (
	Enabled State = iota
	// Pending: not all that must be true before the first block is given is so yet.
	Pending
	Disabled
	Terminating
	Invalid
)

func (s State) String() string {
	return [...]string{"Enabled", "Pending", "Disabled", "Terminating", "Invalid"}[s]
}

// Candidate is a pool whose selector matches one Node.
type Candidate struct {
	*Pool
	// Specificity is the number of requirements in the matching term of the selector, the largest one where several
	// match.
	Specificity int
}

// Compare orders candidates of one Node: negative where a is to be tried before b. It is a total order of pools with
// different names.
//
//  1. priority, higher first
//  2. with a selector before without
//  3. specificity, higher first
//  4. blocks in all (dual stack: of the smaller range), fewer first
//  5. host bits, fewer first
//  6. selector text, lower first
//  7. address of the first range, lower first
//  8. name, lower first
func Compare(a, b Candidate) int {
	return cmp.Or(
		-cmp.Compare(a.Priority, b.Priority),
		-cmp.Compare(btoi(a.Selective), btoi(b.Selective)),
		-cmp.Compare(a.Specificity, b.Specificity),
		cmp.Compare(a.capacity(), b.capacity()),
		cmp.Compare(a.hostBits(), b.hostBits()),
		strings.Compare(a.Selector, b.Selector),
		a.compareAddress(b.Pool),
		strings.Compare(a.Name, b.Name),
	)
}

// Gives reports whether p has a block with an address of prefix that is not excluded, held or not.
func (p *Pool) Gives(prefix netip.Prefix) bool {
	for _, r := range p.Ranges {
		if !r.Prefix.Overlaps(prefix) {
			continue
		}
		around := r.around(prefix)
		if _, ok := p.Excluded.NextFree(around.Prefix, around.BlockBits, netip.Addr{}); ok {
			return true
		}
	}
	return false
}

// Shares reports whether there is an address that p and o could both give, were it not held.
func (p *Pool) Shares(o *Pool) bool {
	for _, r := range p.Ranges {
		for _, other := range o.Ranges {
			if r.shares(&p.Excluded, other, &o.Excluded) {
				return true
			}
		}
	}
	return false
}

// shares reports whether there is an address in a block of r that overlaps nothing in excluded, and in a block of other that overlaps
// nothing in otherExcluded.
func (r Range) shares(excluded *PrefixSet, other Range, otherExcluded *PrefixSet) bool {
	if !r.Prefix.Overlaps(other.Prefix) {
		return false
	}
	both := r.Prefix
	if other.Prefix.Bits() > both.Bits() {
		both = other.Prefix
	}
	n, none := excluded.in(r, both)
	o, noOther := otherExcluded.in(other, both)
	return !none && !noOther && freeOfBoth(n, o, uint8(both.Bits()), uint8(r.BlockBits), uint8(other.BlockBits))
}

// in is below for what excludes blocks of r, one of which may be wider than p.
func (s *PrefixSet) in(r Range, p netip.Prefix) (n *node, covered bool) {
	if around := r.around(p).Prefix; around.Bits() < p.Bits() {
		return nil, s.Overlaps(around)
	}
	return s.below(p)
}

// capacity returns the binary logarithm of the blocks that the smaller range has in all.
func (p *Pool) capacity() int {
	c := 128
	for _, r := range p.Ranges {
		c = min(c, r.BlockBits-r.Prefix.Bits())
	}
	return c
}

// hostBits returns the host bits of the first range's blocks.
func (p *Pool) hostBits() int {
	if len(p.Ranges) == 0 {
		return 0
	}
	return p.Ranges[0].Family().Bits() - p.Ranges[0].BlockBits
}

func (p *Pool) compareAddress(o *Pool) int {
	if len(p.Ranges) == 0 || len(o.Ranges) == 0 {
		return cmp.Compare(len(p.Ranges), len(o.Ranges))
	}
	return p.Ranges[0].Prefix.Addr().Compare(o.Ranges[0].Prefix.Addr())
}

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}

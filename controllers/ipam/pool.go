package ipam

import (
	"cmp"
	"net/netip"
	"strings"
)

// Pool is a source of blocks: a compiled ClusterCIDR. The ledger only reads it.
type Pool struct {
	// ID is the UID of the object. It differs from that of an earlier pool with the same name. Search cursors belong to an ID.
	ID   string
	Name string
	// Priority: higher is tried first.
	Priority int32
	// Selective is whether the pool has a nodeSelector. A pool without one matches every Node, and is tried after all pools of the same
	// priority that have one.
	Selective bool
	// Selector is the nodeSelector as canonical text. It only breaks ties.
	Selector string
	// Ranges has at most one range of each family, IPv4 first. A Node gets one block of each range.
	Ranges []Range
	// Excluded are addresses that this pool never allocates. They do not affect other pools with the same addresses.
	Excluded PrefixSet
	// State says whether new blocks may be allocated from the pool. The zero value is Enabled.
	State State
}

// State says whether new blocks may be allocated from a pool. In every state, held blocks stay held.
type State uint8

const (
	Enabled State = iota
	Disabled
	Terminating
	Invalid
	// None: the Nodes that the pool selects need no blocks from anybody.
	None
)

func (s State) String() string {
	return [...]string{"Enabled", "Disabled", "Terminating", "Invalid", "None"}[s]
}

// Candidate is a pool whose selector matches one Node.
type Candidate struct {
	*Pool
	// Specificity is the number of requirements in the matching term of the selector. If several terms match, it is the
	// largest number.
	Specificity int
}

// Compare orders the candidates of one Node. It is negative if a is tried before b. It is a total order of pools with
// different names.
//
//  1. priority, higher first
//  2. with a selector before without
//  3. specificity, higher first
//  4. number of all blocks (dual stack: of the smaller range), fewer first
//  5. host bits, fewer first
//  6. selector text, lower first
//  7. address of the first range, lower first
//  8. name, lower first
func Compare(a, b Candidate) int {
	if a.Priority != b.Priority || a.Selective != b.Selective || a.Specificity != b.Specificity {
		return cmp.Or(
			-cmp.Compare(a.Priority, b.Priority),
			-cmp.Compare(btoi(a.Selective), btoi(b.Selective)),
			-cmp.Compare(a.Specificity, b.Specificity),
		)
	}
	if c := cmp.Or(cmp.Compare(a.capacity(), b.capacity()), cmp.Compare(a.hostBits(), b.hostBits())); c != 0 {
		return c // A selector can be long: its text is compared only if that is needed.
	}
	return cmp.Or(
		strings.Compare(a.Selector, b.Selector),
		a.compareAddress(b.Pool),
		strings.Compare(a.Name, b.Name),
	)
}

// Rule is one of the rules of Compare, by its number there.
type Rule uint8

const (
	ByPriority Rule = iota + 1
	BySelective
	BySpecificity
	ByCapacity
	ByHostBits
	BySelector
	ByAddress
	ByName
)

// Deciding returns the first rule by which two candidates differ; 0 if there is none. It is for reports and as slow as it is plain.
func Deciding(a, b Candidate) Rule {
	for i, differ := range []bool{
		a.Priority != b.Priority,
		a.Selective != b.Selective,
		a.Specificity != b.Specificity,
		a.capacity() != b.capacity(),
		a.hostBits() != b.hostBits(),
		a.Selector != b.Selector,
		a.compareAddress(b.Pool) != 0,
		a.Name != b.Name,
	} {
		if differ {
			return Rule(i + 1)
		}
	}
	return 0
}

// Gives reports whether p has a block, held or not, that overlaps prefix and no exclusion.
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

// Shares reports whether both p and o could allocate some address if nobody held it.
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

// shares reports whether some address is both in a block of r that overlaps nothing in excluded, and in a block of other that overlaps
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

// in is like below, for the exclusions that affect the blocks of r in p. Such a block can be wider than p.
func (s *PrefixMap[V]) in(r Range, p netip.Prefix) (n *node[V], covered bool) {
	if around := r.around(p).Prefix; around.Bits() < p.Bits() {
		return nil, s.Overlaps(around)
	}
	return s.below(p)
}

// capacity returns the binary logarithm of the number of all blocks of the smaller range.
func (p *Pool) capacity() int {
	c := 128
	for _, r := range p.Ranges {
		c = min(c, r.BlockBits-r.Prefix.Bits())
	}
	return c
}

// hostBits returns the number of host bits of a block of the first range.
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

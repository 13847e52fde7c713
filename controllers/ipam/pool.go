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
	// Excluded are addresses that this pool never allocates. They do not affect other pools with the same addresses. Invariant: none of them is
	// smaller than a block of its family, as no part of such a block could be allocated.
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

// Rule is one of the rules by which candidates are ordered. Each decides only where those before it do not.
type Rule uint8

const (
	ByPriority    Rule = iota + 1 // higher first
	BySelective                   // with a selector before without
	BySpecificity                 // higher first
	ByCapacity                    // number of all blocks (dual stack: of the smaller range), fewer first
	ByHostBits                    // fewer first
	BySelector                    // text of the selector, lower first; it can be long, so it comes into play only here
	ByAddress                     // of the first range, lower first
	ByName                        // lower first
)

// Compare orders the candidates of one Node. It is negative if a is tried before b. It is a total order of pools with different names.
func Compare(a, b Candidate) int {
	order, _ := Order(a, b)
	return order
}

// Order is what Compare returns, and the rule that decides; 0 if none does.
func Order(a, b Candidate) (order int, by Rule) {
	for by = ByPriority; by <= ByName; by++ {
		if order = a.compareBy(by, b); order != 0 {
			return order, by
		}
	}
	return 0, 0
}

func (a Candidate) compareBy(rule Rule, b Candidate) int {
	switch rule {
	case ByPriority:
		return cmp.Compare(b.Priority, a.Priority)
	case BySelective:
		return btoi(b.Selective) - btoi(a.Selective)
	case BySpecificity:
		return cmp.Compare(b.Specificity, a.Specificity)
	case ByCapacity:
		return cmp.Compare(a.capacity(), b.capacity())
	case ByHostBits:
		return cmp.Compare(a.hostBits(), b.hostBits())
	case BySelector:
		return strings.Compare(a.Selector, b.Selector)
	case ByAddress:
		return a.compareAddress(b.Pool)
	default:
		return strings.Compare(a.Name, b.Name)
	}
}

// Gives reports whether p could allocate an address inside prefix that others do not exclude, if nobody held it.
func (p *Pool) Gives(prefix netip.Prefix, others *PrefixSet) bool {
	for _, r := range p.Ranges {
		if !r.Prefix.Overlaps(prefix) {
			continue
		}
		both := r.Prefix
		if prefix.Bits() > both.Bits() {
			both = prefix
		}
		if _, ok := nextFree(&p.Excluded, others, both, r.Family().Bits(), netip.Addr{}); ok {
			return true
		}
	}
	return false
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

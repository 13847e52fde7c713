package clustercidr

import (
	"cmp"
	"iter"
	"maps"
	"slices"

	v1 "k8s.io/api/core/v1"

	"github.com/multicidr/controller-manager/controllers/ipam"
)

// Candidates finds the pools that match a Node, in the order in which they are tried, without checking every pool.
//
// It has one entry per selector term. An entry's position does not depend on the Node, only on the pool and on how many requirements the
// term has. So the first entry of a pool that matches a Node determines the pool's position. Most terms require a label or the name to have
// certain values; such an entry is only checked for Nodes that have one of these values. Large selectors are not indexed, so that the work
// per pool is bounded.
//
// Candidates are immutable; if the pools change, build new ones.
type Candidates struct {
	entries []entry // in the order in which they are tried
	by      map[attribute][]int
	keys    []string // label keys in by
	rest    []int    // entries that are not in by
}

// entry is a pool with one term of its selector; a pool without a selector has one entry. For a large selector, one entry has all terms
// with the same number of requirements.
type entry struct {
	*Pool
	alternatives []term
	specificity  int // number of requirements in each alternative
	rank         int // order of the pool among entries of equal specificity
}

// matches reports whether one of the entry's terms matches a Node.
func (e *entry) matches(node *v1.Node) bool {
	if !e.Selective {
		return true
	}
	for i := range e.alternatives {
		if e.alternatives[i].matches(node) {
			return true
		}
	}
	return false
}

// attribute is a label of a Node, or its name.
type attribute struct{ key, value string }

// nameKey is the key that stands for the Node's name; no label has it.
const nameKey = ""

func NewCandidates(pools iter.Seq[*Pool]) *Candidates {
	c := &Candidates{by: map[attribute][]int{}}
	common := map[attribute]int{} // how many terms require each attribute
	// Selector texts may be long, so compare pools and not entries, of which there are more.
	ranked := slices.SortedFunc(pools, func(x, y *Pool) int {
		return ipam.Compare(ipam.Candidate{Pool: &x.Pool}, ipam.Candidate{Pool: &y.Pool})
	})
	for rank, p := range ranked {
		if !p.Selective {
			c.entries = append(c.entries, entry{Pool: p, rank: rank})
		}
		for rest := p.terms; len(rest) > 0; {
			n := 1
			for p.large && n < len(rest) && rest[n].requirements == rest[0].requirements {
				n++
			}
			c.entries = append(c.entries, entry{p, rest[:n], rest[0].requirements, rank})
			for _, attributes := range rest[0].oneOf {
				for _, a := range attributes {
					common[a]++
				}
			}
			rest = rest[n:]
		}
	}
	slices.SortFunc(c.entries, func(x, y entry) int { // the same order as ipam.Compare
		if x.Priority != y.Priority || x.Selective != y.Selective {
			return cmp.Compare(x.rank, y.rank)
		}
		return cmp.Or(-cmp.Compare(x.specificity, y.specificity), cmp.Compare(x.rank, y.rank))
	})
	c.index(common)
	return c
}

// index records which entries require which attributes. common is how many terms require each attribute.
func (c *Candidates) index(common map[attribute]int) {
	keys := map[string]bool{}
	for i, e := range c.entries {
		attributes, ok := e.rarest(common)
		if !ok {
			c.rest = append(c.rest, i)
		}
		for _, a := range attributes {
			c.by[a] = append(c.by[a], i)
			keys[a.key] = true
		}
	}
	c.keys = slices.Collect(maps.Keys(keys))
}

// rarest returns the attributes of the requirement that the fewest terms share. A matching Node must have one of them. ok is false if no
// requirement can be indexed.
func (e entry) rarest(common map[attribute]int) (attributes []attribute, ok bool) {
	if len(e.alternatives) != 1 {
		return nil, false
	}
	best := 0
	for _, some := range e.alternatives[0].oneOf {
		n := 0
		for _, a := range some {
			n += common[a]
		}
		if !ok || n < best {
			attributes, best, ok = some, n, true
		}
	}
	return attributes, ok
}

// asked appends, sorted, the entries that require an attribute which the Node has.
func (c *Candidates) asked(asked []int, node *v1.Node) []int {
	asked = append(asked, c.by[attribute{nameKey, node.Name}]...)
	if len(c.keys) < len(node.Labels) {
		for _, key := range c.keys {
			if value, ok := node.Labels[key]; ok {
				asked = append(asked, c.by[attribute{key, value}]...)
			}
		}
	} else {
		for key, value := range node.Labels {
			asked = append(asked, c.by[attribute{key, value}]...)
		}
	}
	slices.Sort(asked)
	return asked
}

// Of yields the pools that match a Node, each once.
func (c *Candidates) Of(node *v1.Node) iter.Seq[*Pool] {
	return func(yield func(*Pool) bool) {
		var few [16]int // usually keeps the slice off the heap
		asked := c.asked(few[:0], node)
		var before []*Pool // yielded pools that have more entries
		for rest := c.rest; len(asked)+len(rest) > 0; {
			from := &rest
			if len(rest) == 0 || len(asked) > 0 && asked[0] < rest[0] {
				from = &asked
			}
			e := &c.entries[(*from)[0]]
			*from = (*from)[1:]
			if !e.matches(node) || slices.Contains(before, e.Pool) {
				continue
			}
			if len(e.terms) > 1 {
				before = append(before, e.Pool)
			}
			if !yield(e.Pool) {
				return
			}
		}
	}
}

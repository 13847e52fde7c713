package nodeipam

import (
	"iter"
	"maps"
	"slices"

	v1 "k8s.io/api/core/v1"

	"github.com/multicidr/controller-manager/controllers/ipam"
)

// candidates finds the pools that match a Node, in the order in which they are tried, without asking every pool.
//
// It has an entry for each term of each selector. Where an entry stands in the order does not depend on the Node: only on its pool and
// on how many requirements its term has. So the first entry of a pool that matches a Node is the one that decides the pool's place.
// Most terms ask for a label or the name with certain values; such an entry is only looked at for Nodes that have one of these.
//
// It does not change once it is made; other pools make a new one.
type candidates struct {
	entries []entry // in order
	by      map[attribute][]int
	keys    []string // of the labels in by
	rest    []int    // the entries that are not in by
}

// entry is a pool as far as one term of its selector goes; of a pool without a selector there is one.
type entry struct {
	*pool
	term *term
}

// attribute is a label of a Node, or its name.
type attribute struct{ key, value string }

// nameKey stands for the name; no label has this key.
const nameKey = ""

// of reports whether a Node has the attribute.
func (a attribute) of(node *v1.Node) bool {
	if a.key == nameKey {
		return node.Name == a.value
	}
	value, ok := node.Labels[a.key]
	return ok && value == a.value
}

func newCandidates(pools iter.Seq[*pool]) *candidates {
	c := &candidates{by: map[attribute][]int{}}
	common := map[attribute]int{} // how many terms ask for an attribute
	for p := range pools {
		if !p.Selective {
			c.entries = append(c.entries, entry{pool: p})
		}
		for i := range p.terms {
			t := &p.terms[i]
			c.entries = append(c.entries, entry{p, t})
			for _, attributes := range t.oneOf {
				for _, a := range attributes {
					common[a]++
				}
			}
		}
	}
	slices.SortFunc(c.entries, func(x, y entry) int { return ipam.Compare(x.candidate(), y.candidate()) })
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
	return c
}

func (e entry) candidate() ipam.Candidate {
	if e.term == nil {
		return ipam.Candidate{Pool: &e.Pool}
	}
	return ipam.Candidate{Pool: &e.Pool, Specificity: e.term.requirements}
}

// rarest returns the attributes one of which a Node must have that matches, by the requirement that the fewest terms share; ok is
// false if no requirement is of that kind.
func (e entry) rarest(common map[attribute]int) (attributes []attribute, ok bool) {
	if e.term == nil {
		return nil, false
	}
	best := 0
	for _, some := range e.term.oneOf {
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

// of yields the pools that match a Node, each once.
func (c *candidates) of(node *v1.Node) iter.Seq[*pool] {
	return func(yield func(*pool) bool) {
		var few [16]int // keeps the slice off the heap, usually
		asked := append(few[:0], c.by[attribute{nameKey, node.Name}]...)
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
		var before []*pool // of those that can come again
		for rest := c.rest; len(asked)+len(rest) > 0; {
			from := &rest
			if len(rest) == 0 || len(asked) > 0 && asked[0] < rest[0] {
				from = &asked
			}
			e := c.entries[(*from)[0]]
			*from = (*from)[1:]
			if e.term != nil && !e.term.matches(node) || slices.Contains(before, e.pool) {
				continue
			}
			if len(e.terms) > 1 {
				before = append(before, e.pool)
			}
			if !yield(e.pool) {
				return
			}
		}
	}
}

package clustercidr

import (
	"cmp"
	"iter"
	"maps"
	"slices"

	v1 "k8s.io/api/core/v1"

	"github.com/multicidr/controller-manager/controllers/ipam"
)

// Candidates finds the pools that match a Node, in the order in which they are tried, without asking every pool.
//
// It has an entry for each term of each selector. Where an entry stands in the order does not depend on the Node: only on its pool and
// on how many requirements its term has. So the first entry of a pool that matches a Node is the one that decides the pool's place.
// Most terms ask for a label or the name with certain values; such an entry is only looked at for Nodes that have one of these. A large
// selector is not indexed, so that what is done here for one pool is bounded.
//
// It does not change once it is made; other pools make a new one.
type Candidates struct {
	entries []entry // in order
	by      map[attribute][]int
	keys    []string // of the labels in by
	rest    []int    // the entries that are not in by
}

// entry is a pool as far as one term of its selector goes; of a pool without a selector there is one. Of a large selector, one entry has all
// terms of as many requirements.
type entry struct {
	*Pool
	alternatives []term
	specificity  int // how many requirements each of them has
	rank         int // of the pool among those that specificity does not tell apart
}

// matches reports whether the pool's selector matches a Node by one of the entry's terms.
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

// nameKey stands for the name; no label has this key.
const nameKey = ""

func NewCandidates(pools iter.Seq[*Pool]) *Candidates {
	c := &Candidates{by: map[attribute][]int{}}
	common := map[attribute]int{} // how many terms ask for an attribute
	// Texts of selectors may be long, so pools are compared and not entries, of which there are more.
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
	slices.SortFunc(c.entries, func(x, y entry) int { // as ipam.Compare
		if x.Priority != y.Priority || x.Selective != y.Selective {
			return cmp.Compare(x.rank, y.rank)
		}
		return cmp.Or(-cmp.Compare(x.specificity, y.specificity), cmp.Compare(x.rank, y.rank))
	})
	c.index(common)
	return c
}

// index enters who asks for which attribute, of which some are common.
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

// rarest returns the attributes one of which a Node must have that matches, by the requirement that the fewest terms share; ok is
// false if no requirement is of that kind.
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

// asked appends the entries that ask for an attribute which a Node has, in order.
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
		var few [16]int // keeps the slice off the heap, usually
		asked := c.asked(few[:0], node)
		var before []*Pool // of those that can come again
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

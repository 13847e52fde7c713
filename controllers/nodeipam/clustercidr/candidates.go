package clustercidr

import (
	"iter"
	"slices"

	v1 "k8s.io/api/core/v1"

	"github.com/multicidr/controller-manager/controllers/ipam"
)

// Candidates finds the pools that match a Node, in the order in which they are tried, without checking every pool. The zero value has no
// pools. Adding or removing a pool hardly depends on how many there are, so that very many ClusterCIDRs can be applied one after the other.
//
// It has one entry per selector term. An entry's position does not depend on the Node, only on the pool and on how many requirements the
// term has. So the first entry of a pool that matches a Node determines the pool's position. Most terms require a label, or that a label or the
// name has certain values; such an entry is only checked for Nodes that have that. Large selectors are not indexed, so that the work per pool
// is bounded.
type Candidates struct {
	entries map[*Pool][]*entry
	by      map[attribute]entries
	rest    entries        // entries that are not in by
	keys    map[string]int // label keys in by, and how often
	common  map[attribute]demand
	// Checked is how many entries were checked for Nodes so far; moved is how many were moved in the index.
	Checked, moved int
}

// demand is how many terms require an attribute, and how many did when it was last checked which entries have a rarer one.
type demand struct{ terms, reviewed int }

// entry is a pool with one term of its selector; a pool without a selector has one entry. For a large selector, one entry has all terms
// with the same number of requirements.
type entry struct {
	*Pool
	alternatives []term
	specificity  int         // number of requirements in each alternative
	in           []attribute // where it is in the index; none if it is in rest
}

// entries are in the order in which they are tried.
type entries []*entry

func compareEntries(x, y *entry) int {
	return ipam.Compare(ipam.Candidate{Pool: &x.Pool.Pool, Specificity: x.specificity}, ipam.Candidate{Pool: &y.Pool.Pool, Specificity: y.specificity})
}

func (s entries) with(e *entry) entries {
	i, _ := slices.BinarySearchFunc(s, e, compareEntries)
	return slices.Insert(s, i, e)
}

func (s entries) without(e *entry) entries {
	i, _ := slices.BinarySearchFunc(s, e, compareEntries)
	for s[i] != e { // Terms of one pool may be equal in order.
		i++
	}
	return slices.Delete(s, i, i+1)
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

// nameKey is the key that stands for the Node's name, and anyValue the value that stands for whatever a label has. No label has them.
const (
	nameKey  = ""
	anyValue = "*"
)

// Add adds a pool that is not there.
func (c *Candidates) Add(p *Pool) {
	if c.entries == nil {
		*c = Candidates{entries: map[*Pool][]*entry{}, by: map[attribute]entries{}, keys: map[string]int{}, common: map[attribute]demand{}}
	}
	c.entries[p] = entriesOf(p)
	for _, e := range c.entries[p] {
		c.count(e, 1)
		e.in = e.rarest(c.common)
		c.index(e)
	}
}

func (c *Candidates) index(e *entry) {
	if len(e.in) == 0 {
		c.rest = c.rest.with(e)
	}
	for _, a := range e.in {
		c.by[a] = c.by[a].with(e)
		c.keys[a.key]++
	}
}

func (c *Candidates) unindex(e *entry) {
	if len(e.in) == 0 {
		c.rest = c.rest.without(e)
	}
	for _, a := range e.in {
		if c.by[a] = c.by[a].without(e); len(c.by[a]) == 0 {
			delete(c.by, a)
		}
		addTo(c.keys, a.key, -1)
	}
}

// review moves the entries that are indexed by an attribute and require a rarer one by now. It is called whenever twice as many terms require
// the attribute, so that no Node is checked against the pools that came first, when nobody could know which attribute all would require.
func (c *Candidates) review(a attribute) {
	for _, e := range slices.Clone(c.by[a]) {
		if in := e.rarest(c.common); !slices.Equal(in, e.in) {
			c.moved++
			c.unindex(e)
			e.in = in
			c.index(e)
		}
	}
}

// Has reports whether a pool is there.
func (c *Candidates) Has(p *Pool) bool {
	_, ok := c.entries[p]
	return ok
}

// Remove removes a pool if it is there.
func (c *Candidates) Remove(p *Pool) {
	for _, e := range c.entries[p] {
		c.count(e, -1)
		c.unindex(e)
	}
	delete(c.entries, p)
}

func entriesOf(p *Pool) (all []*entry) {
	if !p.Selective {
		return []*entry{{Pool: p}}
	}
	for rest := p.terms; len(rest) > 0; {
		n := 1
		for p.large && n < len(rest) && rest[n].requirements == rest[0].requirements {
			n++
		}
		all = append(all, &entry{Pool: p, alternatives: rest[:n], specificity: rest[0].requirements})
		rest = rest[n:]
	}
	return all
}

// count adds n to the number of terms that require what e does. It reviews only once all of them are counted: of two attributes that the same
// terms require, none is rarer, and otherwise all entries would move from one to the other and back.
func (c *Candidates) count(e *entry, n int) {
	var due []attribute
	for i := range e.alternatives {
		for _, attributes := range e.alternatives[i].oneOf {
			for _, a := range attributes {
				d := c.common[a]
				d.terms += n
				if d.terms > 1 && d.terms >= 2*d.reviewed {
					d.reviewed = d.terms
					due = append(due, a)
				}
				if c.common[a] = d; d.terms == 0 {
					delete(c.common, a)
				}
			}
		}
	}
	for _, a := range due {
		c.review(a)
	}
}

// addTo adds n to a count, and drops it at 0.
func addTo[K comparable](counts map[K]int, key K, n int) {
	if counts[key] += n; counts[key] == 0 {
		delete(counts, key)
	}
}

// rarest returns the attributes of the requirement that the fewest terms share so far. A matching Node must have one of them. There are none
// if no requirement can be indexed.
func (e *entry) rarest(common map[attribute]demand) (attributes []attribute) {
	if len(e.alternatives) != 1 {
		return nil
	}
	best := 0
	for _, some := range e.alternatives[0].oneOf {
		n := 0
		for _, a := range some {
			n += common[a].terms
		}
		if attributes == nil || n < best {
			attributes, best = some, n
		}
	}
	return attributes
}

// asked appends the lists of entries that require an attribute which the Node has, and the rest. No entry is in two of them.
func (c *Candidates) asked(lists []entries, node *v1.Node) []entries {
	add := func(s entries) {
		if len(s) > 0 {
			lists = append(lists, s)
		}
	}
	add(c.rest)
	add(c.by[attribute{nameKey, node.Name}])
	if len(c.keys) < len(node.Labels) {
		for key := range c.keys {
			if value, ok := node.Labels[key]; ok {
				add(c.by[attribute{key, value}])
				add(c.by[attribute{key, anyValue}])
			}
		}
	} else {
		for key, value := range node.Labels {
			add(c.by[attribute{key, value}])
			add(c.by[attribute{key, anyValue}])
		}
	}
	return lists
}

// First is p as a candidate of the Nodes for which it comes first.
func (p *Pool) First() ipam.Candidate {
	c := ipam.Candidate{Pool: &p.Pool}
	if len(p.terms) > 0 {
		c.Specificity = p.terms[0].requirements // the most
	}
	return c
}

// For is p as a candidate of a Node that it matches.
func (p *Pool) For(node *v1.Node) ipam.Candidate {
	c := ipam.Candidate{Pool: &p.Pool}
	if i := slices.IndexFunc(p.terms, func(t term) bool { return t.matches(node) }); i >= 0 {
		c.Specificity = p.terms[i].requirements
	}
	return c
}

// Of yields the pools that match a Node, each once. They must not change meanwhile.
func (c *Candidates) Of(node *v1.Node) iter.Seq[*Pool] {
	return func(yield func(*Pool) bool) {
		var few [8]entries // usually keeps the slice off the heap
		lists := c.asked(few[:0], node)
		var before []*Pool // yielded pools that have more entries
		for len(lists) > 0 {
			first := 0
			for i := 1; i < len(lists); i++ {
				if compareEntries(lists[i][0], lists[first][0]) < 0 {
					first = i
				}
			}
			c.Checked++
			e := lists[first][0]
			if lists[first] = lists[first][1:]; len(lists[first]) == 0 {
				lists = slices.Delete(lists, first, first+1)
			}
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

package pool

import (
	"iter"
	"slices"

	v1 "k8s.io/api/core/v1"

	"github.com/multicidr/controller-manager/controllers/ipam"
)

// Candidates finds the pools that select a Node, in the order in which they are tried, without asking every pool. The zero value has no pools.
//
// The position of a term does not depend on the Node, only on the pool and on how many requirements the term has. So the first term that
// matches a Node says where its pool comes. Terms that require a label, or the name, to have one of a few values are only looked at for Nodes
// that have it: 1,000 ClusterCIDRs, each for a group of Nodes, cost as little as one.
type Candidates struct {
	by      map[label]entries
	rest    entries // without such a requirement
	entries map[*Pool]entries
}

// entry is a pool with one term of its selector. A pool without a selector has one entry, without a term.
type entry struct {
	ipam.Candidate
	pool *Pool
	term *term
	in   []label // where it is listed; rest if there are none
}

// entries are in the order in which they are tried.
type entries []*entry

// label is a label with a value. The empty key stands for the Node's name.
type label struct{ key, value string }

// maxLabels limits how many labels an entry is listed under, so that no selector makes the lock long.
const maxLabels = 256

func (s entries) with(e *entry) entries {
	i, _ := slices.BinarySearchFunc(s, e, func(x, y *entry) int { return ipam.Compare(x.Candidate, y.Candidate) })
	return slices.Insert(s, i, e)
}

func (s entries) without(p *Pool) entries {
	return slices.DeleteFunc(s, func(e *entry) bool { return e.pool == p })
}

// Add adds a pool that is not there.
func (c *Candidates) Add(p *Pool) {
	if c.entries == nil {
		c.by, c.entries = map[label]entries{}, map[*Pool]entries{}
	}
	if !p.Selective {
		c.add(&entry{Candidate: ipam.Candidate{Pool: &p.Pool}, pool: p})
	}
	for i := range p.terms {
		t := &p.terms[i]
		c.add(&entry{Candidate: ipam.Candidate{Pool: &p.Pool, Specificity: t.requirements}, pool: p, term: t, in: c.rarest(t)})
	}
}

func (c *Candidates) add(e *entry) {
	c.entries[e.pool] = append(c.entries[e.pool], e)
	if len(e.in) == 0 {
		c.rest = c.rest.with(e)
	}
	for _, l := range e.in {
		c.by[l] = c.by[l].with(e)
	}
}

// Remove removes a pool if it is there.
func (c *Candidates) Remove(p *Pool) {
	c.rest = c.rest.without(p)
	for _, e := range c.entries[p] {
		for _, l := range e.in {
			if c.by[l] = c.by[l].without(p); len(c.by[l]) == 0 {
				delete(c.by, l)
			}
		}
	}
	delete(c.entries, p)
}

// rarest returns the labels of one requirement of a term that a label, or the name, is one of a few values: the one under which the fewest
// entries are listed so far. It returns none if there is no such requirement.
func (c *Candidates) rarest(t *term) (in []label) {
	fewest := 0
	consider := func(key string, r v1.NodeSelectorRequirement) {
		if r.Operator != v1.NodeSelectorOpIn || len(r.Values) > maxLabels {
			return
		}
		listed, labels := 0, make([]label, 0, len(r.Values))
		for _, value := range r.Values {
			l := label{key, value}
			listed, labels = listed+len(c.by[l]), append(labels, l)
		}
		if in == nil || listed < fewest {
			in, fewest = labels, listed
		}
	}
	for _, r := range t.source.MatchExpressions {
		consider(r.Key, r)
	}
	for _, r := range t.source.MatchFields {
		consider("", r) // By another field than the name nothing is found.
	}
	return in
}

// Of yields the pools that select a Node, in the order in which they are tried, whatever their state, and what that order goes by. The pools must
// not change meanwhile.
func (c *Candidates) Of(node *v1.Node) iter.Seq2[*Pool, ipam.Candidate] {
	return func(yield func(*Pool, ipam.Candidate) bool) {
		var few [8]entries // keeps the slice off the heap, as a rule
		lists := append(few[:0], c.rest, c.by[label{"", node.Name}])
		for key, value := range node.Labels {
			lists = append(lists, c.by[label{key, value}])
		}
		var before []*Pool // yielded, and may come again
		for e := next(lists); e != nil; e = next(lists) {
			if e.term != nil && !e.term.selector.Match(node) || slices.Contains(before, e.pool) {
				continue
			}
			if len(c.entries[e.pool]) > 1 || len(e.in) > 1 {
				before = append(before, e.pool)
			}
			if !yield(e.pool, e.Candidate) {
				return
			}
		}
	}
}

// next takes the first entry out of several lists; nil if they are empty.
func next(lists []entries) (e *entry) {
	from := -1
	for i, list := range lists {
		if len(list) > 0 && (from < 0 || ipam.Compare(list[0].Candidate, lists[from][0].Candidate) < 0) {
			from = i
		}
	}
	if from >= 0 {
		e, lists[from] = lists[from][0], lists[from][1:]
	}
	return e
}

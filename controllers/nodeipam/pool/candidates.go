package pool

import (
	"iter"
	"slices"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

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

// entry is a pool with those terms of its selector that have the same number of requirements. A pool without a selector has one entry.
type entry struct {
	pool  *Pool
	terms []term
	in    []label // where it is listed; rest if there are none
}

// entries are in the order in which they are tried.
type entries []*entry

// label is a label with a value. The empty key stands for the Node's name.
type label struct{ key, value string }

// maxLabels limits how many labels an entry is listed under, so that no selector makes the lock long.
const maxLabels = 256

func (e *entry) candidate() ipam.Candidate {
	c := ipam.Candidate{Pool: &e.pool.Pool}
	if len(e.terms) > 0 {
		c.Specificity = e.terms[0].requirements
	}
	return c
}

func (e *entry) selects(node *v1.Node) bool {
	return !e.pool.Selective || slices.ContainsFunc(e.terms, func(t term) bool { return t.selector.Match(node) })
}

func compareEntries(x, y *entry) int { return ipam.Compare(x.candidate(), y.candidate()) }

func (s entries) with(e *entry) entries {
	i, _ := slices.BinarySearchFunc(s, e, compareEntries)
	return slices.Insert(s, i, e)
}

func (s entries) without(e *entry) entries {
	i, _ := slices.BinarySearchFunc(s, e, compareEntries)
	return slices.Delete(s, i, i+1)
}

// Add adds a pool that is not there.
func (c *Candidates) Add(p *Pool) {
	if c.entries == nil {
		c.by, c.entries = map[label]entries{}, map[*Pool]entries{}
	}
	for _, e := range entriesOf(p) {
		c.entries[p] = append(c.entries[p], e)
		if e.in = c.rarest(e); len(e.in) == 0 {
			c.rest = c.rest.with(e)
		}
		for _, l := range e.in {
			c.by[l] = c.by[l].with(e)
		}
	}
}

// Remove removes a pool if it is there.
func (c *Candidates) Remove(p *Pool) {
	for _, e := range c.entries[p] {
		if len(e.in) == 0 {
			c.rest = c.rest.without(e)
		}
		for _, l := range e.in {
			if c.by[l] = c.by[l].without(e); len(c.by[l]) == 0 {
				delete(c.by, l)
			}
		}
	}
	delete(c.entries, p)
}

func entriesOf(p *Pool) (all entries) {
	if !p.Selective {
		return entries{{pool: p}}
	}
	for rest := p.terms; len(rest) > 0; {
		n := 1
		for n < len(rest) && rest[n].requirements == rest[0].requirements {
			n++
		}
		all = append(all, &entry{pool: p, terms: rest[:n]})
		rest = rest[n:]
	}
	return all
}

// rarest returns, for each term of e, the labels of one of its requirements: the one under which the fewest entries are listed so far. It
// returns none if a term has no such requirement, or if they are too many.
func (c *Candidates) rarest(e *entry) (in []label) {
	seen := map[label]bool{}
	for _, t := range e.terms {
		var best []label
		listed := -1
		for _, labels := range t.labels() {
			n := 0
			for _, l := range labels {
				n += len(c.by[l])
			}
			if listed < 0 || n < listed {
				best, listed = labels, n
			}
		}
		if listed < 0 {
			return nil
		}
		for _, l := range best {
			if seen[l] {
				continue
			}
			if seen[l] = true; len(seen) > maxLabels {
				return nil
			}
			in = append(in, l)
		}
	}
	return in
}

// labels yields, for each requirement that a label or the name is one of some values, these labels.
func (t term) labels() iter.Seq2[int, []label] {
	return func(yield func(int, []label) bool) {
		for i, r := range slices.Concat(t.source.MatchExpressions, t.source.MatchFields) {
			key := r.Key
			if i >= len(t.source.MatchExpressions) {
				if key = ""; r.Key != metav1.ObjectNameField {
					continue
				}
			}
			if r.Operator != v1.NodeSelectorOpIn || len(r.Values) > maxLabels {
				continue
			}
			labels := make([]label, 0, len(r.Values))
			for _, value := range r.Values {
				labels = append(labels, label{key, value})
			}
			if !yield(i, labels) {
				return
			}
		}
	}
}

// Of yields the pools that select a Node, in the order in which they are tried, whatever their state. The pools must not change meanwhile.
func (c *Candidates) Of(node *v1.Node) iter.Seq[*Pool] {
	return func(yield func(*Pool) bool) {
		var few [8]entries // keeps the slice off the heap, as a rule
		lists := append(few[:0], c.rest, c.by[label{"", node.Name}])
		for key, value := range node.Labels {
			lists = append(lists, c.by[label{key, value}])
		}
		var before []*Pool // yielded, and may come again
		for e := next(lists); e != nil; e = next(lists) {
			if !e.selects(node) || slices.Contains(before, e.pool) {
				continue
			}
			if len(c.entries[e.pool]) > 1 || len(e.in) > 1 {
				before = append(before, e.pool)
			}
			if !yield(e.pool) {
				return
			}
		}
	}
}

// next takes the first entry out of several lists; nil if they are empty.
func next(lists []entries) (e *entry) {
	from := -1
	for i, list := range lists {
		if len(list) > 0 && (from < 0 || compareEntries(list[0], lists[from][0]) < 0) {
			from = i
		}
	}
	if from >= 0 {
		e, lists[from] = lists[from][0], lists[from][1:]
	}
	return e
}

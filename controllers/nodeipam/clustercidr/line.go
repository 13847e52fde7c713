package clustercidr

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
)

// Line has pending Nodes, oldest first, and finds those that a pool selects without checking every Node: it is to a pool what Candidates are
// to a Node. The zero value is empty.
type Line struct {
	places map[string]*Place // by the Node's name
	all    run
	by     map[attribute]*run // by the labels and the name of the Nodes
}

// Place is a Node's place in a line.
type Place struct {
	Node *v1.Node
	// Since orders the Nodes: usually it is the Node's creation.
	Since time.Time
	left  bool // it is in no line any more
}

// Compare is negative if p comes before o.
func (p *Place) Compare(o *Place) int {
	return cmp.Or(p.Since.Compare(o.Since), strings.Compare(p.Node.Name, o.Node.Name))
}

// run has places in their order. One that has left stays until it is the first, or until half of them have left, so that leaving is as fast in
// a long run.
type run struct {
	places []*Place
	left   int
}

func (r *run) enter(p *Place) {
	i := len(r.places) // Nearly always it is younger than all others.
	if i > 0 && p.Compare(r.places[i-1]) <= 0 {
		i, _ = slices.BinarySearchFunc(r.places, p, (*Place).Compare)
	}
	r.places = slices.Insert(r.places, i, p)
}

// leave notes that one of the places has left. It reports whether all have.
func (r *run) leave() (empty bool) {
	for r.left++; len(r.places) > 0 && r.places[0].left; r.left-- {
		r.places = r.places[1:]
	}
	if 2*r.left > len(r.places) {
		r.places, r.left = slices.DeleteFunc(r.places, func(p *Place) bool { return p.left }), 0
	}
	return len(r.places) == 0
}

// Len returns the number of Nodes.
func (l *Line) Len() int { return len(l.places) }

// At returns the place of the Node of this name.
func (l *Line) At(name string) (p *Place, ok bool) {
	p, ok = l.places[name]
	return p, ok
}

// Enter adds a Node that is not there.
func (l *Line) Enter(p *Place) {
	if l.places == nil {
		l.places, l.by = map[string]*Place{}, map[attribute]*run{}
	}
	l.places[p.Node.Name] = p
	l.all.enter(p)
	for a := range attributesOf(p.Node) {
		if l.by[a] == nil {
			l.by[a] = &run{}
		}
		l.by[a].enter(p)
	}
}

// Leave removes the Node of this name, if it is there. Call it only when no places that [Line.SelectedBy] returned are used any more.
func (l *Line) Leave(name string) {
	p, ok := l.places[name]
	if !ok {
		return
	}
	delete(l.places, name)
	p.left = true
	l.all.leave()
	for a := range attributesOf(p.Node) {
		if l.by[a].leave() {
			delete(l.by, a)
		}
	}
}

// Renew replaces the object of a Node that is there. It reports whether that changes nothing for any pool; otherwise it does nothing.
func (l *Line) Renew(node *v1.Node) (same bool) {
	p, ok := l.places[node.Name]
	if same = ok && p.Node.UID == node.UID && maps.Equal(p.Node.Labels, node.Labels); same {
		p.Node = node
	}
	return same
}

// attributesOf yields the labels of a Node, and its name.
func attributesOf(node *v1.Node) func(yield func(attribute) bool) {
	return func(yield func(attribute) bool) {
		if !yield(attribute{nameKey, node.Name}) {
			return
		}
		for key, value := range node.Labels {
			if !yield(attribute{key, value}) || !yield(attribute{key, anyValue}) {
				return
			}
		}
	}
}

// maxRuns is how many lists SelectedBy returns at most. The caller goes through all of them side by side.
const maxRuns = 16

// SelectedBy returns lists of places, each in order, such that every Node that p selects is in one of them. There may be others in them, and
// places that have been left.
func (l *Line) SelectedBy(p *Pool) (lists [][]*Place) {
	if p == nil || !p.Selective || p.large {
		return l.Everybody()
	}
	for i := range p.terms {
		run, ok := l.shortest(p.terms[i].oneOf)
		if !ok || len(lists)+len(run) > maxRuns {
			return l.Everybody()
		}
		lists = append(lists, run...)
	}
	return lists
}

// Everybody returns the places of all Nodes as SelectedBy does.
func (l *Line) Everybody() [][]*Place {
	if len(l.all.places) == 0 {
		return nil
	}
	return [][]*Place{l.all.places}
}

// shortest returns the places of the Nodes that meet one of some requirements, of which each accepts certain values. ok is false if there are no
// requirements.
func (l *Line) shortest(oneOf [][]attribute) (lists [][]*Place, ok bool) {
	best := 0
	for _, attributes := range oneOf {
		var some [][]*Place
		n := 0
		for _, a := range attributes {
			if r := l.by[a]; r != nil {
				some, n = append(some, r.places), n+len(r.places)
			}
		}
		if !ok || n < best {
			lists, best, ok = some, n, true
		}
	}
	return lists, ok
}

// Turns goes through lists of places side by side, in the order of the places. The zero value has no lists. No Node may enter or leave a line
// meanwhile.
type Turns struct{ lists []turn }

type turn struct {
	pool   *Pool // if only Nodes that it selects have their turn
	places []*Place
}

// Add adds lists, each in order. If p is not nil, only Nodes that p selects have their turn.
func (t *Turns) Add(p *Pool, lists ...[]*Place) {
	for _, places := range lists {
		t.lists = append(t.lists, turn{p, places})
	}
}

// Next returns the next place; nil if there is none. A place in several lists comes once.
func (t *Turns) Next() (first *Place) {
	for i := range t.lists {
		l := &t.lists[i]
		for len(l.places) > 0 && (l.places[0].left || l.pool != nil && !l.pool.Matches(l.places[0].Node)) {
			l.places = l.places[1:]
		}
		if len(l.places) > 0 && (first == nil || l.places[0].Compare(first) < 0) {
			first = l.places[0]
		}
	}
	for i := range t.lists {
		if l := &t.lists[i]; len(l.places) > 0 && l.places[0] == first {
			l.places = l.places[1:]
		}
	}
	return first
}

// Keep drops all lists but the first n.
func (t *Turns) Keep(n int) { t.lists = t.lists[:n] }

// End drops the lists that were added for p.
func (t *Turns) End(p *Pool) {
	t.lists = slices.DeleteFunc(t.lists, func(l turn) bool { return l.pool == p })
}

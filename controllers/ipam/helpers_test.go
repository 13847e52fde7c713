package ipam

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"
)

func pfx(s string) netip.Prefix { return netip.MustParsePrefix(s) }

// cut returns the range of a prefix cut into blocks of the given length.
func cut(t testing.TB, prefix string, blockBits int) Range {
	t.Helper()
	p := pfx(prefix)
	r, err := NewRange(p, p.Addr().BitLen()-blockBits)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// pool returns a pool of the given name, which is its ID too.
func pool(name string, ranges ...Range) *Pool { return &Pool{ID: name, Name: name, Ranges: ranges} }

// numbered returns a Node with an ID as long as a UID.
func numbered(i int) Owner { return Owner{Node, fmt.Sprintf("11111111-2222-3333-4444-%012d", i)} }

// clone returns a ledger that is like l and shares nothing with it, without what only follows from the rest.
func clone(l *Ledger) *Ledger {
	c := &Ledger{}
	for id, at := range l.cursors {
		*c.cursorsIn(&Pool{ID: id}) = *at
	}
	cloned := map[*holder]*holder{}
	if l.held != nil {
		c.held = map[Owner]*holder{}
	}
	for o, h := range l.held {
		cloned[h] = &holder{Owner: h.Owner, prefixes: slices.Clone(h.prefixes)}
		c.held[o] = cloned[h]
	}
	if l.shared != nil {
		c.shared = map[netip.Prefix][]*holder{}
	}
	for p, holders := range l.shared {
		for _, h := range holders {
			c.shared[p] = append(c.shared[p], cloned[h])
		}
	}
	for f, root := range l.taken.root {
		c.taken.root[f] = clonedTrie(root, cloned)
	}
	return c
}

func clonedTrie(n *node[*holder], cloned map[*holder]*holder) *node[*holder] {
	if n == nil {
		return nil
	}
	c := *n
	c.value = cloned[n.value]
	c.child = [2]*node[*holder]{clonedTrie(n.child[0], cloned), clonedTrie(n.child[1], cloned)}
	return &c
}

// size returns how many nodes the trie has at and below n.
func (n *node[V]) size() int {
	if n == nil {
		return 0
	}
	return 1 + n.child[0].size() + n.child[1].size()
}

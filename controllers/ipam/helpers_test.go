package ipam

import (
	"fmt"
	"net/netip"
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

// choose returns the first pool that is enabled and has a free block in each of its ranges, and these blocks.
func choose(l *Ledger, pools ...*Pool) (*Pool, []netip.Prefix) {
	for _, p := range pools {
		if blocks, _ := l.look(p); p.State == Enabled && len(blocks) > 0 {
			return p, blocks
		}
	}
	return nil, nil
}

// reserve allocates to one owner, and ends the benchmark or test if nothing is free.
func reserve(t testing.TB, l *Ledger, o Owner, p *Pool) {
	t.Helper()
	if len(l.Reserve(o, p)) == 0 {
		t.Fatalf("%s has no block for %v", p.Name, o)
	}
}

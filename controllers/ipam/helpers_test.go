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

// choose returns a pick of the first pool that is enabled and has a free block in each of its ranges.
func choose(l *Ledger, pools ...*Pool) (Pick, bool) {
	for _, p := range pools {
		if pick, full := l.Look(p); p.State == Enabled && len(full) == 0 && len(pick.Blocks) > 0 {
			return pick, true
		}
	}
	return Pick{}, false
}

// reserve allocates to one owner, and ends the benchmark or test if nothing is free.
func reserve(t testing.TB, l *Ledger, o Owner, p *Pool) {
	t.Helper()
	pick, ok := choose(l, p)
	if !ok || !l.Reserve(o, pick) {
		t.Fatalf("%s has no block for %v", p.Name, o)
	}
}

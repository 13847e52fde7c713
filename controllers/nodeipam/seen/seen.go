// Package seen knows whether the changes of all kinds of objects are seen (Kinds), and have been heard of (Listed). Nothing is chosen while they
// are known not to be: a block can be in a service range, excluded, or another Node's, and the watch that will tell is not open yet, or what it
// told is in the cache and not in the state.
package seen

import (
	"context"
	"slices"
	"strings"
	"sync"

	"github.com/multicidr/controller-manager/controllers/nodeipam/health"
)

// Kind is one kind of object that the controller watches.
type Kind struct {
	// Gap is what its informer knows of gaps.
	Gap func() health.Gap
	// Know returns when the controller knows of all objects that a consistent read shows; false if ctx was done before.
	Know func(ctx context.Context) bool
}

// Kinds are all of them. The zero value has none, and misses nothing. Safe for concurrent use.
type Kinds struct {
	kinds []Kind

	mu    sync.Mutex
	known []int // by kind: how many gaps it had when all that was missed became known
}

// New returns Kinds. Gaps of before count: who reads everything at the start need not have read after them.
func New(kinds ...Kind) *Kinds { return &Kinds{kinds: kinds, known: make([]int, len(kinds))} }

// Missed says which changes are not seen, or may have been missed, and what to do; empty if all are seen.
func (k *Kinds) Missed() string {
	var why []string
	gaps := k.gaps()
	for _, i := range k.missed(gaps) {
		if g := gaps[i]; g.Open {
			why = append(why, "changes of "+g.Kind+" are not seen: "+g.Why())
		} else {
			why = append(why, "changes of "+g.Kind+" were not seen, and the controller has not read all "+g.Kind+" since then")
		}
	}
	return strings.Join(why, "; ")
}

func (k *Kinds) gaps() []health.Gap {
	gaps := make([]health.Gap, len(k.kinds))
	for i, kind := range k.kinds {
		gaps[i] = kind.Gap()
	}
	return gaps
}

// missed returns the indices of the kinds of which changes may have been missed. What the API server does not have does not change.
func (k *Kinds) missed(gaps []health.Gap) (missed []int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for i, g := range gaps {
		if !g.Absent && g.Count > k.known[i] {
			missed = append(missed, i)
		}
	}
	return missed
}

// CatchUp returns true if nothing is missed any more: all watches are open, and of each kind that had a gap, the controller knows what a read
// since then has shown. It waits for reads, and not for watches.
func (k *Kinds) CatchUp(ctx context.Context) bool { return k.catchUp(ctx, k.gaps()) }

func (k *Kinds) catchUp(ctx context.Context, gaps []health.Gap) bool {
	missed := k.missed(gaps)
	if slices.ContainsFunc(missed, func(i int) bool { return gaps[i].Open }) {
		return false
	}
	for _, i := range missed {
		if !k.kinds[i].Know(ctx) {
			return false
		}
	}
	same := func(a, b health.Gap) bool { return a.Count == b.Count && a.Open == b.Open && a.Absent == b.Absent }
	if !slices.EqualFunc(gaps, k.gaps(), same) {
		return false
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, i := range missed {
		k.known[i] = gaps[i].Count
	}
	return true
}

// Run catches up after each gap until ctx is done, and calls then each time. A gap that begins while it reads makes it begin anew.
func (k *Kinds) Run(ctx context.Context, then func()) {
	for ctx.Err() == nil {
		k.runOnce(ctx, then)
	}
}

// runOnce catches up if it can, or else returns when a gap has begun or ended.
func (k *Kinds) runOnce(ctx context.Context, then func()) {
	gaps := k.gaps()
	until, stop := context.WithCancel(ctx)
	defer stop()
	for _, g := range gaps {
		defer context.AfterFunc(g.Until, stop)()
	}
	if len(k.missed(gaps)) > 0 && k.catchUp(until, gaps) {
		then()
		return
	}
	<-until.Done()
}

// Package seen knows whether the changes of all kinds of objects are seen (Kinds), and have been heard of (Listed). Nothing is chosen while they
// are known not to be: a block can be in a service range, excluded, or another Node's, and the watch that will tell is not open yet, or what it
// told is in the cache and not in the state.
package seen

import (
	"context"
	"slices"
	"strings"
	"sync"
	"time"

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
	known []int     // by kind: the number of the last gap after which a read has shown all, and that is known
	since time.Time // since when something has been missed; zero if nothing is, and before Run
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

// CatchUp reads each kind that had a gap and whose watch is open again, and returns true if nothing is missed any more. It waits for reads, and
// not for watches.
func (k *Kinds) CatchUp(ctx context.Context) bool {
	for i, kind := range k.kinds {
		if g := kind.Gap(); !g.Open && slices.Contains(k.missed(k.gaps()), i) {
			k.know(ctx, i, g)
		}
	}
	return len(k.missed(k.gaps())) == 0
}

// know reads one kind of object, until it has another gap. What it finds out stays known while other kinds have gaps. Otherwise nothing would be
// known where the watches of all kinds together end more often than a read of many Nodes takes.
func (k *Kinds) know(ctx context.Context, i int, after health.Gap) {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	defer context.AfterFunc(after.Until, stop)()
	if k.kinds[i].Know(ctx) {
		k.mu.Lock()
		defer k.mu.Unlock()
		k.known[i] = after.Count
	}
}

// Run catches up after each gap until ctx is done. It calls then when nothing is missed any more, also if that is so without a read because
// the API server does not have a kind.
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
	missed := len(k.missed(gaps)) > 0
	k.misses(missed)
	switch {
	case !missed:
		then()
	case k.CatchUp(ctx):
		return
	}
	<-until.Done()
}

// misses notes whether something is missed.
func (k *Kinds) misses(something bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	switch {
	case !something:
		k.since = time.Time{}
	case k.since.IsZero():
		k.since = time.Now()
	}
}

// MissedFor is Missed if Run has not caught up for so long, else empty.
func (k *Kinds) MissedFor(long time.Duration) string {
	k.mu.Lock()
	since := k.since
	k.mu.Unlock()
	if since.IsZero() || time.Since(since) < long {
		return ""
	}
	return k.Missed()
}

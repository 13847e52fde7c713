// Package finalizers judges the attempts to add the controller's finalizer to ClusterCIDRs. A write may not persist: a mutating webhook or policy
// can answer 200 and leave the finalizer out, and a deployment pipeline can put the object back without it. Then there is no event to wait for.
package finalizers

import (
	"time"

	"github.com/multicidr/controller-manager/controllers/queues"
	"github.com/multicidr/controller-manager/controllers/writes"
)

// Patience is how long Nodes wait for a ClusterCIDR after the first attempt to add its finalizer. It equals the timeout of a write, so a
// write that hangs delays Nodes for no longer.
const Patience = writes.Timeout

// Tries are the attempts to add the finalizer to ClusterCIDRs that do not show it, or have shown it only for a short time, by name. Not safe
// for concurrent use.
type Tries map[string]tries

type tries struct {
	first time.Time // first attempt that the API server answered without an error
	last  time.Time // last attempt that the API server confirmed
	shown time.Time // when the finalizer appeared after that; zero while it is missing
	lost  bool      // it appeared and was removed again
}

// Saw notes whether a ClusterCIDR shows the finalizer. If it disappears again soon, something removes it, and adding it again each time would
// never end.
func (t Tries) Saw(name string, finalized bool, now time.Time) {
	tries, ok := t[name]
	switch stays := !tries.shown.IsZero(); {
	case !ok:
	case stays && now.Sub(tries.shown) >= queues.RetryMax:
		delete(t, name)
	case finalized && !stays:
		tries.shown = now
		t[name] = tries
	case !finalized && stays:
		tries.shown, tries.lost = time.Time{}, true
		t[name] = tries
	}
}

// Answered notes that the API server answered an attempt without an error. stored is whether it confirmed it.
func (t Tries) Answered(name string, stored bool, now time.Time) {
	tries, ok := t[name]
	if !ok {
		tries.first = now
	}
	if stored {
		tries.last = now
	}
	t[name] = tries
}

// Verdict is what the attempts say about a ClusterCIDR that does not show the finalizer.
type Verdict int

const (
	// Awaited: it may show it yet.
	Awaited Verdict = iota
	// NeverStored: no attempt was confirmed.
	NeverStored
	// NotKept: it was added, and is missing some time later.
	NotKept
)

// Judge returns what the attempts say about a ClusterCIDR, and how long to wait before the next one.
func (t Tries) Judge(name string, now time.Time) (v Verdict, pause time.Duration) {
	tries, ok := t[name]
	switch early := now.Sub(tries.first) < Patience; {
	case !ok, early && !tries.lost:
		return Awaited, 0
	case early:
		return Awaited, tries.last.Add(queues.ClosedRetry).Sub(now)
	case tries.last.IsZero():
		return NeverStored, 0
	default:
		return NotKept, tries.last.Add(queues.RetryMax).Sub(now) // The object may change at every attempt, and each change is an event.
	}
}

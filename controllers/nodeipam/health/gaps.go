package health

import (
	"context"
	"errors"
	"net/url"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
)

// A kind of object has a gap from the moment at which a read of it fails, its watch breaks off, or the next watch has been requested for a second,
// until a watch is open again. Changes in the gap are then still to come: after an outage of the API server, one kind can be back before
// another, and a watch brings what it missed one by one. A watch that ends when it has to is none, because the next one goes on where it ended.

// Gap is what is known of the gaps of one kind of object.
type Gap struct {
	Kind string
	// Count is how many gaps there were. Open is whether the last one goes on, and Err is its last error.
	Count int
	Open  bool
	Err   error
	// Absent is whether the API server has answered for NotServedFor that it does not have such objects, which may be so.
	Absent bool
	// Until is done when Count, Open or Absent changes.
	Until context.Context
}

// Why says why changes are not seen, and what to do; no error is in it, because errors can differ at every attempt.
func (g Gap) Why() string { return readProblem(g.Err).What }

// optionalKind is the one kind that an API server need not have.
const optionalKind = "ServiceCIDRs"

// NotServedFor is for how long the API server must answer that it has no ServiceCIDRs until the controller does not wait for them any more.
const NotServedFor = 30 * time.Second

// Gap returns what is known now. Safe for concurrent use.
func (c *Changes) Gap() Gap {
	now := c.gap.look()
	now.Kind = c.kind
	return now
}

// gap has a lock of its own, because Changes.note is called under the other one, and may ask the API server.
type gap struct {
	optional bool // see optionalKind

	mu      sync.Mutex
	is      Gap
	changed context.CancelFunc // of is.Until; nil if nobody has it
	absence *time.Timer        // runs since the first of the last errors, if they all were NotFound
}

func (g *gap) look() Gap {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.changed == nil {
		g.is.Until, g.changed = context.WithCancel(context.Background())
	}
	return g.is
}

// change changes something under the lock, and tells.
func (g *gap) change(f func(is *Gap)) {
	before := g.is
	f(&g.is)
	if tells := before.Count != g.is.Count || before.Open != g.is.Open || before.Absent != g.is.Absent; tells && g.changed != nil {
		g.changed()
		g.changed = nil
	}
}

// begins notes that a read has failed or a watch has broken off.
func (g *gap) begins(err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	lacks := g.optional && apierrors.IsNotFound(err)
	switch {
	case !lacks:
		g.stopAbsence()
	case g.absence == nil:
		var t *time.Timer
		t = time.AfterFunc(NotServedFor, func() {
			g.mu.Lock()
			defer g.mu.Unlock()
			if g.absence == t {
				g.change(func(is *Gap) { is.Absent = true })
			}
		})
		g.absence = t
	}
	g.change(func(is *Gap) {
		if !is.Open {
			is.Count++
		}
		is.Open, is.Err, is.Absent = true, err, is.Absent && lacks
	})
}

// ends notes that a watch is open.
func (g *gap) ends() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.stopAbsence()
	g.change(func(is *Gap) { is.Open, is.Absent = false, false })
}

func (g *gap) stopAbsence() {
	if g.absence != nil {
		g.absence.Stop()
		g.absence = nil
	}
}

// The pauses between the attempts of again, before jitter.
const (
	firstPause = 100 * time.Millisecond
	lastPause  = time.Second
)

// again calls read until it succeeds, ctx is done, or the API server has answered something that repeating does not help. An informer would
// repeat after up to a minute, each in its own time, and nothing is allocated before the last one is back. Those few of one process are no
// herd.
func again(ctx context.Context, read func() error) {
	for pause := firstPause; ; pause = min(2*pause, lastPause) {
		err := read()
		if err == nil || !passes(err) {
			return
		}
		next := wait.Jitter(pause, 0.5)
		if asked, ok := apierrors.SuggestsClientDelay(err); ok {
			next = max(next, time.Duration(asked)*time.Second) // The client has repeated it some times already.
		}
		select {
		case <-time.After(next):
		case <-ctx.Done():
			return
		}
	}
}

// passes reports whether an error may be over in a moment: the API server cannot be reached, fails, or turns requests away. An informer has to
// know of a version that is too large, and lists then.
func passes(err error) bool {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return errors.As(err, new(*url.Error))
	}
	return (status.Status().Code >= 500 || apierrors.IsTooManyRequests(err)) && !apierrors.HasStatusCause(err, metav1.CauseTypeResourceVersionTooLarge)
}

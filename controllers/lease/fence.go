package lease

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
	"time"

	"k8s.io/klog/v2"
)

// ErrClosed is wrapped by the error of every write that the fence does not permit. It says nothing about the object, only that this process
// may not write, for now or permanently.
var ErrClosed = errors.New("not this process's turn to write")

// Fence permits writes while a leader lease is valid. The zero value is always open: without leader election there is no other process to
// yield to. Safe for concurrent use.
type Fence struct {
	// These never change. name is the namespace and name of the lease, and holder is this process's identity in it; both are empty in a fence
	// that is always open.
	name, holder string
	clocks       Clocks

	mu sync.Mutex
	// renewed is when the last successful renewal was sent, and duration is how long the lease is valid from then on; zero before the first
	// one.
	renewed  reading
	duration time.Duration
	// stamps are the times in the last successful renewal and in the renewals that were sent since. One of them is in the lease.
	stamps []time.Time
	// deposed: another process has held the lease after this one. ended: this process has given up the lease, or is exiting. Both are
	// final.
	deposed, ended bool

	// open are the writes that have entered and not left: they are in flight, or were never answered.
	open     map[*pass]bool
	refusing bool // the last write was refused

	predecessor Predecessor
	marked      bool // see Mark
}

// Unelected returns the fence of a process without leader election, for simulations with clocks of their own.
func Unelected(clocks Clocks) *Fence { return &Fence{clocks: clocks} }

// Identity returns the identity of this process: that in the lease, or one of its own without leader election.
func (f *Fence) Identity() string {
	if f.holder == "" {
		return unelected()
	}
	return f.holder
}

var unelected = sync.OnceValue(func() string { return Identity("") })

// Enter permits one write, or returns an error with ErrClosed. The write must use the returned context, which ends after atMost or a third
// of the lease, whichever is less. The caller calls leave when it knows the result of the write. If there is no answer, it must not call
// leave: the API server may still carry out the write (see Unanswered), and the lease is not released before that is over. The requests of
// the write should go through Transport.
func (f *Fence) Enter(ctx context.Context, atMost time.Duration) (_ context.Context, leave func(), err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	p, err := f.permit(ctx, atMost)
	if err != nil {
		return nil, nil, err
	}
	ctx, cancel := context.WithTimeout(context.WithValue(ctx, passKey{}, p), p.timeout)
	if f.open == nil {
		f.open = map[*pass]bool{}
	}
	// Those that the API server cannot carry out any more are forgotten.
	maps.DeleteFunc(f.open, func(earlier *pass, _ bool) bool { return earlier.over <= p.entered.monotonic })
	f.open[p] = true
	return ctx, sync.OnceFunc(func() {
		cancel()
		f.mu.Lock()
		defer f.mu.Unlock()
		delete(f.open, p)
	}), nil
}

// A write takes at most a third of the lease, and can be delayed for another third on its way to the API server. The package comment has
// the arithmetic.
const (
	timeoutShare = 3
	transitShare = 3
)

// transitWithoutLease is how long a write can be delayed on its way if there is no leader election. With a lease of 15 seconds, a write
// that is sent right after a renewal has about as much: 15 seconds without the timeout of 5.
const transitWithoutLease = 10 * time.Second

// OverWithoutLease returns for how long the API server can carry out a write that a process without leader election sent with the timeout
// atMost.
func OverWithoutLease(atMost time.Duration) time.Duration { return transitWithoutLease + atMost }

// permit returns a pass for a write that is sent now, or why there is none.
func (f *Fence) permit(ctx context.Context, atMost time.Duration) (*pass, error) {
	p := &pass{clocks: f.clocks, entered: f.clocks.now(), timeout: atMost, transit: transitWithoutLease}
	p.over = p.entered.monotonic + p.timeout + p.transit
	if f.holder != "" {
		p.timeout, p.transit = min(atMost, f.duration/timeoutShare), f.duration/transitShare
		p.over = f.renewed.monotonic + f.duration
	}
	var err error
	if why := f.closed(p); why != "" {
		err = fmt.Errorf("%w: the lease %s %s", ErrClosed, f.name, why)
	}
	f.note(ctx, err)
	return p, err
}

// closed returns why a write may not be sent now, to be read after the name of the lease; empty if it may.
func (f *Fence) closed(p *pass) string {
	left := f.duration - f.renewed.until(p.entered)
	switch {
	case f.ended:
		return "was given up"
	case f.deposed:
		return deposedWhy
	case f.holder == "":
		return ""
	case f.duration == 0:
		return "is not held"
	case left <= p.timeout+p.transit:
		return fmt.Sprintf("is valid for another %v, but a write can take %v on its way and %v in the API server", left, p.transit, p.timeout)
	}
	return ""
}

// note logs when the fence closes and when it opens again, not every refused write.
func (f *Fence) note(ctx context.Context, refusal error) {
	logger := klog.FromContext(ctx)
	switch {
	case refusal != nil && !f.refusing:
		message := "This process writes nothing until it holds a valid lease"
		if f.ended || f.deposed {
			message = "This process writes nothing any more"
		}
		logger.Info(message, "why", refusal)
	case refusal == nil && f.refusing:
		logger.Info("The lease is valid again: this process writes again", "lease", f.name)
	}
	f.refusing = refusal != nil
}

// Close closes the fence permanently. It waits for nothing: the API server may still carry out a write that is in flight, see Unanswered.
func (f *Fence) Close() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.ended = true
}

// Unanswered returns for how long the API server can still carry out a write that was sent and not answered; zero if there is none. Before a
// read may decide about such a write, that time must have passed. The server counts the timeout of a request from the moment at which it
// receives the request, and a request can be delayed on its way. So a write is over when the lease that was valid when it was sent expires
// (without leader election after OverWithoutLease), not when its sender gives up.
//
//	sent          sender gives up       over: the lease of that time expires
//	 |-- transit --|--- timeout ---| ......|
//	 |--- timeout ---|
//
// It uses the monotonic clock, which never runs ahead: setting the wall clock forward does not end a write, and neither does a suspension.
func (f *Fence) Unanswered() (d time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	now := f.clocks.now().monotonic
	for p := range f.open {
		d = max(d, p.over-now)
	}
	return d
}

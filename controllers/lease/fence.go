package lease

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"k8s.io/klog/v2"
)

// ErrClosed is in the error of every write that the fence does not let through. It says nothing about the object: it is not this
// process's turn to write, for now or for good.
var ErrClosed = errors.New("not this process's turn to write")

// Fence lets writes through for as long as a leader lease is good. The zero value is open: without leader election there is nobody
// to yield to. Its methods may be called at once.
type Fence struct {
	clocks func() reading // nil: those of the machine

	mu sync.Mutex
	// name and holder are of the lease; both are empty in a fence that is always open.
	name, holder string
	// renewed is when the last renewal that succeeded was sent, and duration how long it is good from then on; zero before the first.
	renewed  reading
	duration time.Duration
	// stamps are the times in the renewals sent since the last one that succeeded, and in that one: one of them is in the lease.
	stamps []time.Time
	// acquired is when this term began, as the lease tells.
	acquired time.Time
	renewals Renewals
	// deposed says that the lease was another one's after it had been this process's, ended that it was given up or the process ends.
	// Both are for good.
	deposed, ended bool

	// open are the writes that have entered and not left: they are under way, or were never answered.
	open     map[*pass]bool
	idle     chan struct{} // closed when ended and nothing is open
	refusing bool          // the last write that asked was refused

	term term
}

// Holder is who this process is to others that look at the lease; empty without leader election.
func (f *Fence) Holder() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.holder
}

// Enter gives leave for one write, or an error with ErrClosed. The write has to use the context, which ends after atMost or a third of
// the lease, and to call leave when it knows what came of it. A write without an answer does not call leave: the API server may still carry
// it out (Unanswered), and the lease is not released meanwhile. Its requests should go through Transport.
func (f *Fence) Enter(ctx context.Context, atMost time.Duration) (_ context.Context, leave func(), err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	p := &pass{clocks: f.readClocks, entered: f.readClocks(), timeout: atMost, transit: transitWithoutLease}
	if f.holder != "" {
		p.timeout, p.transit = min(atMost, f.duration/timeoutShare), f.duration/transitShare
	}
	err = f.refusal(p)
	f.note(ctx, err)
	if err != nil {
		return nil, nil, err
	}
	p.over = p.entered.monotonic + p.timeout + p.transit
	if f.holder != "" {
		p.over = f.renewed.monotonic + f.duration
	}
	ctx, cancel := context.WithTimeout(context.WithValue(ctx, passKey{}, p), p.timeout)
	if f.open == nil {
		f.open = map[*pass]bool{}
	}
	f.forget(p.entered)
	f.open[p] = true
	return ctx, sync.OnceFunc(func() {
		cancel()
		f.leave(p)
	}), nil
}

// A write takes at most a third of the lease, and may be held up for another third on its way to the API server. See the package comment
// for the arithmetic.
const (
	timeoutShare = 3
	transitShare = 3
)

// transitWithoutLease is for how long a write may be held up on its way if there is no leader election: what a third of 15 seconds and
// what is left of them after a renewal add up to, rounded.
const transitWithoutLease = 10 * time.Second

// Unelected returns the fence of a process without leader election. It is always open. Its term begins now.
func Unelected() *Fence {
	f := &Fence{}
	f.begin()
	return f
}

// OverWithoutLease is for how long the API server may carry out a write that a process without leader election has sent and that was
// to take atMost.
func OverWithoutLease(atMost time.Duration) time.Duration { return transitWithoutLease + atMost }

// left is for how long the lease is good from now on.
func (f *Fence) left(now reading) time.Duration { return f.duration - f.renewed.until(now) }

// forget drops writes without an answer that the API server cannot carry out any more.
func (f *Fence) forget(now reading) {
	for p := range f.open {
		if p.over <= now.monotonic {
			delete(f.open, p)
		}
	}
}

// refusal says why a write may not be sent now; nil if it may.
func (f *Fence) refusal(p *pass) error {
	switch left := f.left(p.entered); {
	case f.ended:
		return fmt.Errorf("%w: %s", ErrClosed, f.title("was given up"))
	case f.deposed:
		return fmt.Errorf("%w: %s", ErrClosed, f.title(deposedWhy))
	case f.holder == "":
		return nil
	case f.duration == 0:
		return fmt.Errorf("%w: %s", ErrClosed, f.title("is not held"))
	case left <= p.timeout+p.transit:
		return fmt.Errorf("%w: %s", ErrClosed, f.title(fmt.Sprintf("is good for another %v, and a write may take %v on its way and %v in the API server", left, p.transit, p.timeout)))
	}
	return nil
}

func (f *Fence) title(what string) string {
	if f.name == "" {
		return "the process ends"
	}
	return "the lease " + f.name + " " + what
}

// note logs when the fence closes and opens again, not every write that it refuses.
func (f *Fence) note(ctx context.Context, refusal error) {
	logger := klog.FromContext(ctx)
	switch {
	case refusal != nil && !f.refusing:
		message := "Nothing is written until this process holds a good lease"
		if f.ended || f.deposed {
			message = "This process writes nothing any more"
		}
		logger.Info(message, "why", refusal)
	case refusal == nil && f.refusing:
		logger.Info("The lease is good again, writing goes on", "lease", f.name)
	}
	f.refusing = refusal != nil
}

func (f *Fence) leave(p *pass) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.open, p)
	f.closeIdle()
}

// closeIdle tells Close, if it waits, that nothing is open any more.
func (f *Fence) closeIdle() {
	if f.ended && len(f.open) == 0 {
		select {
		case <-f.idle:
		default:
			close(f.idle)
		}
	}
}

// Close closes the fence for good and returns when every write that was under way has been answered or given up, at the latest at the last
// deadline of them. A write that was given up may still be carried out: see Unanswered.
func (f *Fence) Close() {
	f.mu.Lock()
	if !f.ended {
		f.ended = true
		f.idle = make(chan struct{})
		f.closeIdle()
	}
	idle, busy := f.idle, f.busy()
	f.mu.Unlock()

	timer := time.NewTimer(busy)
	defer timer.Stop()
	select {
	case <-idle:
	case <-timer.C:
	}
}

// Busy returns for how long Close waits at most.
func (f *Fence) Busy() time.Duration {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.busy()
}

func (f *Fence) busy() (d time.Duration) {
	now := f.readClocks().monotonic
	for p := range f.open {
		d = max(d, p.entered.monotonic+p.timeout-now)
	}
	return d
}

// Unanswered returns for how long the API server may still carry out a write that was sent and not answered; zero if every write was
// answered, or is over. The server counts the timeout of a request from when it receives it, and a request can be held up on its way:
// so a write is over when the lease runs out that was good when the write was sent, and not when its sender gives up.
//
//	sent          sender gives up       over: the lease that was good then runs out
//	 |-- transit --|--- timeout ---| ......|
//	 |--- timeout ---|
//
// By the monotonic clock, which never runs ahead: a clock that was set forward does not end a write.
func (f *Fence) Unanswered() (d time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	now := f.readClocks().monotonic
	for p := range f.open {
		d = max(d, p.over-now)
	}
	return d
}

func (f *Fence) readClocks() reading {
	if f.clocks != nil {
		return f.clocks()
	}
	return readClocks()
}

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
	// deposed says that the lease was another one's after it had been this process's, ended that it was given up or the process ends.
	// Both are for good.
	deposed, ended bool

	inFlight     int
	lastDeadline time.Duration // by the monotonic clock; none of those in flight goes on after it
	idle         chan struct{} // closed when ended and nothing is in flight
	refusing     bool          // the last write that asked was refused
}

// Holder is who this process is to others that look at the lease; empty without leader election.
func (f *Fence) Holder() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.holder
}

// Enter gives leave for one write, or an error with ErrClosed. The write has to use the context, which ends after atMost or a third of
// the lease, and to call leave when it knows what came of it. Without an answer it does not: the API server may carry the write out until
// its deadline, so leave is not called, and Close waits for that. Its requests should go through Transport.
func (f *Fence) Enter(ctx context.Context, atMost time.Duration) (_ context.Context, leave func(), err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	p := &pass{clocks: f.readClocks, entered: f.readClocks(), timeout: atMost}
	if f.holder != "" {
		p.timeout = min(atMost, f.duration/timeoutShare)
	}
	err = f.refusal(p)
	f.note(ctx, err)
	if err != nil {
		return nil, nil, err
	}
	ctx, cancel := context.WithTimeout(context.WithValue(ctx, passKey{}, p), p.timeout)
	f.inFlight++
	f.lastDeadline = max(f.lastDeadline, p.entered.monotonic+p.timeout)
	return ctx, sync.OnceFunc(func() {
		cancel()
		f.leave()
	}), nil
}

// timeoutShare: a write takes at most this part of the lease. See the package comment for the arithmetic.
const timeoutShare = 3

// refusal says why a write may not be sent now; nil if it may.
func (f *Fence) refusal(p *pass) error {
	switch elapsed := f.renewed.until(p.entered); {
	case f.ended:
		return fmt.Errorf("%w: %s", ErrClosed, f.title("was given up"))
	case f.deposed:
		return fmt.Errorf("%w: %s", ErrClosed, f.title(deposedWhy))
	case f.holder == "":
		return nil
	case f.duration == 0:
		return fmt.Errorf("%w: %s", ErrClosed, f.title("is not held"))
	case f.duration-elapsed <= p.timeout:
		return fmt.Errorf("%w: %s", ErrClosed, f.title(fmt.Sprintf("was last renewed %v ago and is good for %v, of which a write needs %v", elapsed, f.duration, p.timeout)))
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

func (f *Fence) leave() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.inFlight--
	if f.ended && f.inFlight == 0 {
		close(f.idle)
	}
}

// Close closes the fence for good and returns when the writes that are under way have ended, at the latest at their deadline.
func (f *Fence) Close() {
	f.mu.Lock()
	if !f.ended {
		f.ended = true
		f.idle = make(chan struct{})
		if f.inFlight == 0 {
			close(f.idle)
		}
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

func (f *Fence) busy() time.Duration {
	if f.inFlight == 0 {
		return 0
	}
	return max(0, f.lastDeadline-f.readClocks().monotonic)
}

func (f *Fence) readClocks() reading {
	if f.clocks != nil {
		return f.clocks()
	}
	return readClocks()
}

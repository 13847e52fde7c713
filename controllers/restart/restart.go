// Package restart runs a controller again that has ended by itself, after a panic for instance, in the same process.
//
// A process that ended instead would stop every other controller in it, would lose its lease, and would meet the same object after its
// restart. A process that did nothing would keep its lease and do no work until a person restarts it.
package restart

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"sync"
	"time"

	"k8s.io/klog/v2"
)

// The pauses before a controller is started again: the first one, twice as long each time, up to the longest one. After a run that lasted
// for steady they begin with the first one again, as the kubelet's do for a container.
const (
	firstPause   = time.Second
	longestPause = time.Minute
	steady       = 10 * time.Minute
)

// Controller is what can be run again. It may have a method Err() error, which says why Run returned before its context was done.
//
// Run returns when everything that it started has ended. Nothing of one Controller may go on when the next one is built.
type Controller interface {
	Run(ctx context.Context)
}

// Runs are the runs of one controller in one process. The zero value has seen none. All methods are safe for concurrent use.
type Runs struct {
	mu    sync.Mutex
	ended int       // how often a run has ended by itself
	last  error     // why, the last time
	at    time.Time // when, the last time
}

// Again builds a controller and runs it until ctx is done. When a run ends before, it builds another one and runs that, after a pause.
// again tells build that there was one before; what was read for the first one is too old for the next one. build returns nil when ctx is
// done. An error of build ends all.
func (r *Runs) Again(ctx context.Context, name string, build func(ctx context.Context, again bool) (Controller, error)) error {
	pause := firstPause
	for again := false; ; again = true {
		c, err := build(ctx, again)
		if err != nil {
			return err
		}
		if ctx.Err() != nil || c == nil {
			return nil
		}
		began := time.Now()
		err = run(ctx, c)
		if ctx.Err() != nil {
			return nil
		}
		if time.Since(began) >= steady {
			pause = firstPause
		}
		klog.FromContext(ctx).Error(err, "A controller has ended by itself. It is built anew and starts again", "controller", name, "times", r.note(err), "pause", pause)
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(pause):
		}
		pause = min(2*pause, longestPause)
	}
}

// run returns why c has ended.
func run(ctx context.Context, c Controller) (err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer func() {
		if p := recover(); p != nil {
			klog.FromContext(ctx).Error(nil, "Panic", "panic", p, "stack", string(debug.Stack()))
			err = fmt.Errorf("panic: %v", p)
		}
	}()
	c.Run(ctx)
	if c, ok := c.(interface{ Err() error }); ok && c.Err() != nil {
		return c.Err()
	}
	return errors.New("it has returned")
}

// note notes the end of a run and returns how many there were.
func (r *Runs) note(why error) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ended++
	r.last, r.at = why, time.Now()
	return r.ended
}

// Explain adds to what a health check says how often the controller has ended by itself, why, and what to do. nil stays nil: a controller
// that works needs no explanation.
func (r *Runs) Explain(problem error) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if problem == nil || r.ended == 0 {
		return problem
	}
	times := "once"
	if r.ended > 1 {
		times = fmt.Sprintf("%d times", r.ended)
	}
	return fmt.Errorf("%w; the controller has ended by itself %s in this process, the last time at %s: %w. This is a defect: report it with the log of this process. "+
		"The controller starts again by itself, the process need not be restarted", problem, times, r.at.UTC().Format(time.RFC3339), r.last)
}

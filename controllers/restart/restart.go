// Package restart runs a controller again, in the same process, after it has ended by itself, for example after a panic.
//
// If the process ended instead, it would stop all its other controllers and lose its lease, and would meet the same object after its
// restart. If the process did nothing, it would keep its lease and do no work until somebody restarts it.
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

// The pauses before a controller is started again: they begin with firstPause and double each time, up to longestPause. After a run that
// lasted for steady they begin with firstPause again, like the kubelet's back-off for a container.
const (
	firstPause   = time.Second
	longestPause = time.Minute
	steady       = 10 * time.Minute
)

// Controller is what Again builds and runs. It may have a method Err() error, which says why Run returned before its context was done.
//
// Run must return only when everything that it started has ended, so that no part of one Controller still works when the next one is built.
// Informers may end later: nothing hears them any more.
type Controller interface {
	Run(ctx context.Context)
}

// Runs counts the runs of one controller in one process. The zero value has counted none. Safe for concurrent use.
type Runs struct {
	mu    sync.Mutex
	ended int       // how often a run has ended by itself
	last  error     // why the last one did
	at    time.Time // when the last one did
}

// Again builds a controller and runs it until ctx is done. If a run ends before that, Again pauses, builds another controller and runs it.
// again tells build that this is not the first controller: anything that was read for an earlier one is too old. build returns nil when ctx
// is done. If build returns an error, Again returns it.
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
		klog.FromContext(ctx).Error(err, "A controller has ended by itself. It is built and started again after a pause", "controller", name, "times", r.note(err), "pause", pause)
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(pause):
		}
		pause = min(2*pause, longestPause)
	}
}

// run runs c and returns why it ended.
func run(ctx context.Context, c Controller) (err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer func() {
		if p := recover(); p != nil {
			err = panicked(ctx, p)
		}
	}()
	c.Run(ctx)
	if c, ok := c.(interface{ Err() error }); ok && c.Err() != nil {
		return c.Err()
	}
	return errors.New("it has returned")
}

// Guard calls f. A panic of f counts as an end of the controller, and becomes an error.
func (r *Runs) Guard(ctx context.Context, f func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = panicked(ctx, p)
			r.note(err)
		}
	}()
	return f()
}

func panicked(ctx context.Context, p any) error {
	klog.FromContext(ctx).Error(nil, "Panic", "panic", p, "stack", string(debug.Stack()))
	return fmt.Errorf("panic: %v", p)
}

// note records the end of a run and returns how many there have been.
func (r *Runs) note(why error) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ended++
	r.last, r.at = why, time.Now()
	return r.ended
}

// Explain adds to the error of a health check how often the controller has ended by itself, why, and what to do. nil stays nil: a
// controller that works needs no explanation.
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
		"You need not restart the process: the controller restarts by itself", problem, times, r.at.UTC().Format(time.RFC3339), r.last)
}

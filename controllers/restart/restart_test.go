package restart

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/klog/v2/ktesting"
)

// scripted is a controller that runs for some time and then ends in some way.
type scripted struct {
	lasts time.Duration
	ends  func()
	err   error
	after *context.Context // of the run
}

func (s scripted) Run(ctx context.Context) {
	*s.after = ctx
	select {
	case <-ctx.Done():
	case <-time.After(s.lasts):
	}
	if s.ends != nil {
		s.ends()
	}
}

func (s scripted) Err() error { return s.err }

// TestAgain runs a controller that ends by itself in one way after the other.
func TestAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, ctx := ktesting.NewTestContext(t)
		ctx, cancel := context.WithCancel(ctx)
		var last context.Context
		atOnce := scripted{err: errors.New("panic: a nil map"), after: &last}
		script := []scripted{
			{ends: func() { panic("in Run itself") }, after: &last}, {after: &last}, atOnce, atOnce, atOnce, atOnce, atOnce, atOnce,
			{lasts: steady, err: errors.New("a late one"), after: &last}, atOnce,
			{lasts: steady - time.Second, after: &last}, {lasts: 1000 * time.Hour, after: &last},
		}
		var r Runs
		problem := errors.New("it does not work")
		if got := r.Explain(problem); got != problem { //nolint:errorlint // the error itself, not one around it
			t.Errorf("nothing has ended, and it is explained: %v", got)
		}
		began, built := time.Now(), 0
		var at []time.Duration
		start := began
		ended := make(chan error)
		go func() {
			ended <- r.Again(ctx, "fake", func(_ context.Context, again bool) (Controller, error) {
				if again != (built > 0) {
					t.Errorf("build %d: again is %t", built, again)
				}
				if built > 0 && last.Err() == nil {
					t.Errorf("build %d: the context of the last run is not done", built)
				}
				at = append(at, time.Since(start))
				built++
				start = time.Now().Add(script[built-1].lasts)
				return script[built-1], nil
			})
		}()

		explained := func(parts ...string) {
			t.Helper()
			got := r.Explain(problem)
			for _, part := range parts {
				if !strings.Contains(got.Error(), part) || !errors.Is(got, problem) {
					t.Errorf("explained as %q, want %q in it", got, part)
				}
			}
		}
		synctest.Wait()
		explained("it does not work; the controller has ended by itself once", "panic: in Run itself", "report it with the log", "You need not restart the process")
		time.Sleep(firstPause)
		synctest.Wait()
		explained("2 times", "it has returned")
		time.Sleep(2 * time.Second)
		synctest.Wait()
		explained("3 times", "panic: a nil map", "the last time at 2000-01-01T00:00:03Z")
		if err := r.Explain(nil); err != nil {
			t.Errorf("all is well, and there is something to explain: %v", err)
		}

		time.Sleep(2*steady + time.Hour)
		synctest.Wait()
		s := time.Second
		want := []time.Duration{0, s, 2 * s, 4 * s, 8 * s, 16 * s, 32 * s, time.Minute, time.Minute, s, 2 * s, 4 * s}
		if diff := cmp.Diff(want, at); diff != "" {
			t.Errorf("pauses before each run (-want +got):\n%s", diff)
		}
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("it ended with its context: %v", err)
		}
		explained("11 times") // The end of the context is no failure.
	})
}

// A process that is told to end does not wait for the end of a pause, and a controller that cannot be built ends all.
func TestAgainEnds(t *testing.T) {
	wrong := errors.New("a wrong flag")
	for name, tc := range map[string]struct {
		build func(context.Context, bool) (Controller, error)
		after time.Duration
		want  error
	}{
		"in a pause": {func(context.Context, bool) (Controller, error) { return scripted{after: new(context.Context)}, nil }, 100 * time.Second, nil},
		"while it is built": {func(ctx context.Context, _ bool) (Controller, error) {
			<-ctx.Done()
			return nil, nil
		}, 100 * time.Second, nil},
		"it cannot be built": {func(context.Context, bool) (Controller, error) { return nil, wrong }, 0, wrong},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				_, ctx := ktesting.NewTestContext(t)
				ctx, cancel := context.WithTimeout(ctx, 100*time.Second)
				defer cancel()
				start := time.Now()
				if err := new(Runs).Again(ctx, "fake", tc.build); !errors.Is(err, tc.want) {
					t.Errorf("got %v, want %v", err, tc.want)
				}
				if got := time.Since(start); got != tc.after {
					t.Errorf("it ended after %v, want %v", got, tc.after)
				}
			})
		})
	}
}

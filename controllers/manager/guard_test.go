package manager

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apiserver/pkg/server/mux"
	controllerhealthz "k8s.io/controller-manager/pkg/healthz"
	"k8s.io/klog/v2/ktesting"
	"k8s.io/kubernetes/cmd/kube-controller-manager/app"

	"github.com/multicidr/controller-manager/controllers/lease"
)

// fake is a controller with everything a controller may have.
type fake struct {
	running chan struct{} // closed by Run
	health  error
}

func (*fake) Name() string { return "fake-controller" }

func (f *fake) Run(ctx context.Context) {
	close(f.running)
	<-ctx.Done()
}

func (f *fake) HealthChecker() controllerhealthz.UnnamedHealthChecker { return check{&f.health} }

func (*fake) DebuggingHandler() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { w.Write([]byte("debug " + r.URL.Path)) })
}

type check struct{ err *error }

func (c check) Check(*http.Request) error { return *c.err }

// What an SRE sees of a controller whose constructor fails, in one way after the other, and then succeeds.
func TestGuardedControllerIsBuiltWhenItCan(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, ctx := ktesting.NewTestContext(t) // Keeps the many log lines of a test that passes to itself.
		ctx, cancel := context.WithCancel(ctx)
		f := &fake{running: make(chan struct{})}
		attempts := []func() (app.Controller, error){
			func() (app.Controller, error) { return nil, errors.New("the service account cannot be made") },
			func() (app.Controller, error) { panic("a nil map") },
			func() (app.Controller, error) { return nil, nil },
			func() (app.Controller, error) { return (*fake)(nil), errors.New("a wrong flag") },
			func() (app.Controller, error) { return f, nil },
		}
		next := make(chan int, len(attempts))
		attempt := 0
		var informersStarted atomic.Int32
		p := &process{health: newHealth(), mux: mux.NewPathRecorderMux("test")}
		p.mux.Handle("/healthz", p.health)
		fence := &lease.Fence{}
		g := p.guard(Descriptor{
			Name: "fake-controller",
			New: func(_ context.Context, c Context) (app.Controller, error) {
				defer func() { attempt++ }()
				if c.Fence != fence {
					t.Error("the constructor got another fence than that of the lease")
				}
				next <- attempt
				return attempts[attempt]()
			},
		}, Context{Fence: fence}, func() { informersStarted.Add(1) })

		wantHealth := func(code int, part string) {
			t.Helper()
			if got := get(p.mux, "/healthz"); got.Code != http.StatusOK {
				t.Errorf("/healthz failed: %v", got.Body)
			}
			if got := get(p.mux, "/healthz/fake-controller"); got.Code != code || !strings.Contains(got.Body.String(), part) {
				t.Errorf("/healthz/fake-controller: got %d %q, want %d and %q", got.Code, got.Body, code, part)
			}
		}
		wantHealth(500, "not built yet")

		ended := make(chan struct{})
		go func() {
			defer close(ended)
			g.Run(ctx)
		}()
		for i, part := range []string{
			"cannot be built: the service account cannot be made",
			"cannot be built: panic in the constructor: a nil map",
			"cannot be built: the constructor returned no controller",
			"cannot be built: a wrong flag",
		} {
			if got := <-next; got != i {
				t.Fatalf("attempt %d, want %d", got, i)
			}
			synctest.Wait()
			wantHealth(500, part)
			if informersStarted.Load() != 0 {
				t.Error("informers were started for a controller that does not exist")
			}
			if got := get(p.mux, "/debug/controllers/fake-controller"); got.Code != http.StatusNotFound {
				t.Errorf("debug handler of a controller that does not exist: %d", got.Code)
			}
		}

		<-f.running
		wantHealth(200, "ok")
		if n := informersStarted.Load(); n != 1 {
			t.Errorf("informers were started %d times, want once", n)
		}
		if diff := cmp.Diff("debug /ledger", get(p.mux, "/debug/controllers/fake-controller/ledger").Body.String()); diff != "" {
			t.Errorf("debug handler (-want +got):\n%s", diff)
		}
		f.health = errors.New("waits for the CRD")
		wantHealth(500, "waits for the CRD")

		cancel()
		<-ended
	})
}

// ending is a controller that runs until it is told to end, or until its context is done.
type ending struct {
	fake
	number int
	end    chan error // why it is to end
	err    error
}

func (e *ending) Run(ctx context.Context) {
	close(e.running)
	select {
	case <-ctx.Done():
	case e.err = <-e.end:
		e.health = errors.New("it has panicked")
	}
}

func (e *ending) Err() error { return e.err }

func (e *ending) HealthChecker() controllerhealthz.UnnamedHealthChecker { return check{&e.health} }

func (e *ending) DebuggingHandler() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, "debug of ", e.number) })
}

// A controller that ends by itself is built anew and runs again, from a fresh start, at the same paths; the process goes on meanwhile.
func TestGuardedControllerThatEndsIsBuiltAnew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, ctx := ktesting.NewTestContext(t)
		ctx, cancel := context.WithCancel(ctx)
		p := &process{health: newHealth(), mux: mux.NewPathRecorderMux("test")}
		p.mux.Handle("/healthz", p.health)
		var mu sync.Mutex // Guards built and asOf.
		var built []*ending
		var asOf []string
		var fails atomic.Bool
		g := p.guard(Descriptor{Name: "fake-controller", New: func(_ context.Context, c Context) (app.Controller, error) {
			if fails.Load() {
				return nil, errors.New("the service account cannot be made")
			}
			mu.Lock()
			defer mu.Unlock()
			e := &ending{fake: fake{running: make(chan struct{})}, number: len(built) + 1, end: make(chan error)}
			built, asOf = append(built, e), append(asOf, c.NodesAsOf)
			return e, nil
		}}, Context{NodesAsOf: "7"}, func() {})
		// PathRecorderMux reports paths that are registered twice.
		handlers := utilruntime.ErrorHandlers
		utilruntime.ErrorHandlers = []utilruntime.ErrorHandler{func(_ context.Context, err error, msg string, _ ...any) { t.Errorf("%s: %v", msg, err) }}
		defer func() { utilruntime.ErrorHandlers = handlers }()

		ended := make(chan struct{})
		go func() {
			defer close(ended)
			g.Run(ctx)
		}()
		want := func(n, code int, debug string, parts ...string) {
			t.Helper()
			synctest.Wait()
			mu.Lock()
			times := len(built)
			mu.Unlock()
			if times != n {
				t.Fatalf("built %d times, want %d", times, n)
			}
			if got := get(p.mux, "/healthz"); got.Code != http.StatusOK {
				t.Errorf("/healthz failed: %v", got.Body)
			}
			got := get(p.mux, "/healthz/fake-controller")
			if got.Code != code {
				t.Errorf("/healthz/fake-controller: %d, want %d", got.Code, code)
			}
			for _, part := range parts {
				if !strings.Contains(got.Body.String(), part) {
					t.Errorf("/healthz/fake-controller: %q, want %q in it", got.Body, part)
				}
			}
			for _, path := range []string{"", "/"} {
				if got := get(p.mux, "/debug/controllers/fake-controller"+path).Body.String(); !strings.HasPrefix(got, debug) {
					t.Errorf("the debug handler at %q says %q, want %q", path, got, debug)
				}
			}
		}
		want(1, 200, "debug of 1", "ok")
		built[0].end <- errors.New("panic: a nil map")
		want(1, 500, "debug of 1", "it has panicked", "has ended by itself once", "panic: a nil map", "report it")
		time.Sleep(time.Second)
		want(2, 200, "debug of 2", "ok")

		// The same again, and then it cannot be built for a while.
		fails.Store(true)
		built[1].end <- errors.New("panic: again")
		time.Sleep(time.Minute)
		want(2, 500, "404", "cannot be built: the service account cannot be made", "has ended by itself 2 times", "panic: again")
		fails.Store(false)
		time.Sleep(time.Minute)
		want(3, 200, "debug of 3", "ok")
		built[2].health = errors.New("waits for the CRD")
		want(3, 500, "debug of 3", "waits for the CRD; the controller has ended by itself 2 times")

		if diff := cmp.Diff([]string{"7", "", ""}, asOf); diff != "" {
			t.Errorf("only the first one may go by what was read at the start of the term (-want +got):\n%s", diff)
		}
		cancel()
		<-ended
	})
}

// A constructor that never succeeds, or never returns before the context ends, must not keep the process from ending.
func TestGuardedControllerEndsWithTheContext(t *testing.T) {
	cases := map[string]func(context.Context, Context) (app.Controller, error){
		"fails for ever":    func(context.Context, Context) (app.Controller, error) { return nil, errors.New("no") },
		"waits for the end": func(ctx context.Context, _ Context) (app.Controller, error) { <-ctx.Done(); return nil, ctx.Err() },
	}
	for sentence, construct := range cases {
		t.Run(sentence, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				_, ctx := ktesting.NewTestContext(t)
				ctx, cancel := context.WithTimeout(ctx, time.Hour)
				defer cancel()
				p := &process{health: newHealth()} // No mux: the process serves nothing.
				p.guard(Descriptor{Name: "fake-controller", New: construct}, Context{}, func() {}).Run(ctx)
				if ctx.Err() == nil {
					t.Error("returned without a controller before the context ended")
				}
			})
		})
	}
}

func TestFailingConstructorIsPaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, ctx := ktesting.NewTestContext(t)
		ctx, cancel := context.WithTimeout(ctx, time.Hour)
		defer cancel()
		calls := 0
		p := &process{health: newHealth()}
		p.guard(Descriptor{Name: "fake-controller", New: func(context.Context, Context) (app.Controller, error) {
			calls++
			return nil, errors.New("no")
		}}, Context{}, func() {}).Run(ctx)
		// Every 30 s, a little more at the start, a little less for the jitter.
		if calls < 100 || calls > 130 {
			t.Errorf("called %d times in an hour, want about 120", calls)
		}
	})
}

func get(h http.Handler, path string) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
	return w
}

package manager

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

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
			func() (app.Controller, error) { return (*fake)(nil), errors.New("a wrong flag") },
			func() (app.Controller, error) { return f, nil },
		}
		next := make(chan int, len(attempts))
		attempt := 0
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
		}, Context{Fence: fence})

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
			"cannot be built: a wrong flag",
		} {
			if got := <-next; got != i {
				t.Fatalf("attempt %d, want %d", got, i)
			}
			synctest.Wait()
			wantHealth(500, part)
			if got := get(p.mux, "/debug/controllers/fake-controller"); got.Code != http.StatusNotFound {
				t.Errorf("debug handler of a controller that does not exist: %d", got.Code)
			}
		}

		<-f.running
		wantHealth(200, "ok")
		if diff := cmp.Diff("debug /ledger", get(p.mux, "/debug/controllers/fake-controller/ledger").Body.String()); diff != "" {
			t.Errorf("debug handler (-want +got):\n%s", diff)
		}
		f.health = errors.New("waits for the CRD")
		wantHealth(500, "waits for the CRD")

		cancel()
		<-ended
	})
}

// A controller that ends by itself would keep its lease and do nothing: the process ends, so that another one takes over.
func TestControllerThatEndsByItselfEndsTheProcess(t *testing.T) {
	_, ctx := ktesting.NewTestContext(t)
	p := &process{health: newHealth()}
	ends := &loop{name: "fake-controller", run: func(context.Context) {}}
	g := p.guard(Descriptor{Name: "fake-controller", New: func(context.Context, Context) (app.Controller, error) { return ends, nil }}, Context{})
	defer func() {
		if got := fmt.Sprint(recover()); !strings.Contains(got, "fake-controller has ended by itself") {
			t.Errorf("panicked with %s", got)
		}
	}()
	g.Run(ctx)
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
				p.guard(Descriptor{Name: "fake-controller", New: construct}, Context{}).Run(ctx)
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
		}}, Context{}).Run(ctx)
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

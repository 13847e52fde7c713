package api

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/flowcontrol"

	"github.com/multicidr/controller-manager/apis/generated/clientset/versioned"
	networkingv1 "github.com/multicidr/controller-manager/apis/networking/v1"
	"github.com/multicidr/controller-manager/controllers/lease"
)

// gate is a fence that counts the writes inside.
type gate struct {
	opens  time.Time
	inside int
}

func (g *gate) Enter(ctx context.Context, atMost time.Duration) (context.Context, func(), error) {
	if time.Now().Before(g.opens) {
		return nil, nil, fmt.Errorf("%w: closed by the test", lease.ErrClosed)
	}
	g.inside++
	ctx, cancel := context.WithTimeout(ctx, atMost)
	return ctx, func() { g.inside--; cancel() }, nil
}

func (g *gate) Unanswered() time.Duration { return 0 }

// server is the transport to an API server that answers every request like that. It notes how many writes were inside of the gate when the
// last one arrived, and its time limit.
type server struct {
	gate    *gate
	code    int // 0: no answer
	inside  int
	timeout time.Duration
}

func (s *server) RoundTrip(r *http.Request) (*http.Response, error) {
	s.inside = s.gate.inside
	if deadline, ok := r.Context().Deadline(); ok {
		s.timeout = time.Until(deadline)
	}
	if s.code == 0 {
		return nil, io.ErrUnexpectedEOF
	}
	status := fmt.Sprintf(`{"kind":"Status","apiVersion":"v1","status":"Failure","code":%d}`, s.code)
	return &http.Response{StatusCode: s.code, Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(strings.NewReader(status)), Request: r}, nil
}

// A deposed leader must not be able to send anything that an invariant depends on. A write without an answer may still be carried out, so it
// keeps a leader that ends from giving up the lease.
func TestWritesPassTheFence(t *testing.T) {
	for name, write := range map[string]func(context.Context, API) error{
		"a ClusterCIDR of the flags": func(ctx context.Context, a API) error { return a.CreateClusterCIDR(ctx, &networkingv1.ClusterCIDR{}) },
		"a finalizer":                func(ctx context.Context, a API) error { return a.PatchClusterCIDR(ctx, "a", []byte("{}")) },
		"a status":                   func(ctx context.Context, a API) error { return a.ApplyStatus(ctx, "a", []byte("{}")) },
	} {
		for answer, tc := range map[string]struct {
			code int
			stay int // inside of the fence when the write has returned
		}{
			"carried out":   {http.StatusOK, 0},
			"refused":       {http.StatusForbidden, 0},
			"not looked at": {http.StatusTooManyRequests, 0},
			"no answer":     {0, 1},
		} {
			t.Run(name+", "+answer, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					g := &gate{opens: time.Now().Add(time.Minute)}
					s := &server{gate: g, code: tc.code}
					client := versioned.NewForConfigOrDie(&rest.Config{Host: "http://api.test", Transport: s, QPS: -1})
					err := write(t.Context(), API{ClusterCIDRs: client, Fence: g})
					if (err == nil) != (tc.code == http.StatusOK) {
						t.Errorf("got error %v", err)
					}
					if s.inside != 1 || s.timeout <= 0 || g.inside != tc.stay {
						t.Errorf("%d writes were inside with %v left, and %d are when it has returned (%v), want %d", s.inside, s.timeout, g.inside, err, tc.stay)
					}
				})
			})
		}
	}
}

func TestPermit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		g := &gate{opens: began.Add(7 * time.Second)}
		f := API{Fence: g, Limiter: flowcontrol.NewTokenBucketRateLimiter(0.1, 1)}
		process, end := context.WithCancel(t.Context())

		write, leave, err := f.Permit(process)
		if waited := time.Since(began); err != nil || waited < 7*time.Second || waited > 7*time.Second+lookAgain {
			t.Fatalf("permitted after %v, error %v", waited, err)
		}
		_, leaveSecond, err := f.Permit(process)
		if waited := time.Since(began); err != nil || waited.Round(time.Second) != 10*time.Second {
			t.Fatalf("the second one is permitted after %v, error %v; want the limit's 10 s", waited, err)
		}
		leaveSecond()

		end()
		if _, _, err := f.Permit(process); !errors.Is(err, context.Canceled) {
			t.Errorf("after the end of the process: %v", err)
		}
		if _, ok := write.Deadline(); !ok || errors.Is(write.Err(), context.Canceled) {
			t.Errorf("a write under way ends with the process: %v", write.Err())
		}
		leave()
		if g.inside != 0 {
			t.Errorf("%d writes are inside", g.inside)
		}
	})
}

// A process that is no longer the leader waits until it ends, and sends nothing.
func TestFenceThatStaysClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		process, end := context.WithTimeout(t.Context(), time.Hour)
		defer end()
		f := API{Fence: &gate{opens: time.Now().Add(24 * time.Hour)}}
		if err := f.PatchClusterCIDR(process, "a", nil); !errors.Is(err, lease.ErrClosed) || !NotSent(err) {
			t.Errorf("got error %v", err)
		}
	})
}

package api

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/util/flowcontrol"

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

var _ Fence = &lease.Fence{}

// server answers every write with err, and notes how many writes were inside of the gate when the last one arrived, and its time limit.
type server struct {
	API
	gate    *gate
	err     error
	inside  int
	timeout time.Duration
}

func (s *server) arrived(ctx context.Context) error {
	s.inside = s.gate.inside
	if deadline, ok := ctx.Deadline(); ok {
		s.timeout = time.Until(deadline)
	}
	return s.err
}

func (s *server) CreateClusterCIDR(ctx context.Context, _ *networkingv1.ClusterCIDR) error {
	return s.arrived(ctx)
}
func (s *server) PatchClusterCIDR(ctx context.Context, _ string, _ []byte) error {
	return s.arrived(ctx)
}
func (s *server) ApplyStatus(ctx context.Context, _ string, _ []byte) error { return s.arrived(ctx) }

// A deposed leader must not be able to send anything that an invariant depends on. A write without an answer may still be carried out, so it
// keeps a leader that ends from giving up the lease.
func TestWritesPassTheFence(t *testing.T) {
	for name, write := range map[string]func(context.Context, Fenced) error{
		"a ClusterCIDR of the flags": func(ctx context.Context, f Fenced) error { return f.CreateClusterCIDR(ctx, nil) },
		"a finalizer":                func(ctx context.Context, f Fenced) error { return f.PatchClusterCIDR(ctx, "a", nil) },
		"a status":                   func(ctx context.Context, f Fenced) error { return f.ApplyStatus(ctx, "a", nil) },
	} {
		for answer, tc := range map[string]struct {
			err  error
			stay int // inside of the fence when the write has returned
		}{
			"carried out":   {nil, 0},
			"refused":       {apierrors.NewForbidden(schema.GroupResource{}, "n", nil), 0},
			"not looked at": {apierrors.NewTooManyRequests("later", 1), 0},
			"no answer":     {context.DeadlineExceeded, 1},
		} {
			t.Run(name+", "+answer, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					g := &gate{opens: time.Now().Add(time.Minute)}
					s := &server{gate: g, err: tc.err}
					if err := write(t.Context(), Fenced{API: s, Fence: g}); !errors.Is(err, tc.err) {
						t.Errorf("got error %v, want %v", err, tc.err)
					}
					if s.inside != 1 || s.timeout <= 0 || g.inside != tc.stay {
						t.Errorf("%d writes were inside with %v left, and %d are when it has returned, want %d", s.inside, s.timeout, g.inside, tc.stay)
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
		f := Fenced{Fence: g, Limiter: flowcontrol.NewTokenBucketRateLimiter(0.1, 1)}
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
		f := Fenced{Fence: &gate{opens: time.Now().Add(24 * time.Hour)}}
		if err := f.PatchClusterCIDR(process, "a", nil); !errors.Is(err, lease.ErrClosed) || !NotSent(err) {
			t.Errorf("got error %v", err)
		}
	})
}

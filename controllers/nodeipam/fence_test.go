package nodeipam

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/ktesting"

	applyv1 "github.com/multicidr/controller-manager/apis/generated/applyconfiguration/networking/v1"
	networkingv1 "github.com/multicidr/controller-manager/apis/networking/v1"
	"github.com/multicidr/controller-manager/controllers/lease"
)

// gate is a Fence that notes who is inside.
type gate struct {
	closed   bool
	inside   int
	entered  int
	deadline time.Duration
}

func (g *gate) Enter(ctx context.Context, atMost time.Duration) (context.Context, func(), error) {
	if g.closed {
		return nil, nil, fmt.Errorf("%w: closed by the test", lease.ErrClosed)
	}
	g.entered++
	g.inside++
	ctx, cancel := context.WithTimeout(ctx, g.deadline)
	return ctx, func() { g.inside--; cancel() }, nil
}

func (g *gate) Holder() string { return "me" }

func (g *gate) Unanswered() time.Duration { return 0 }

// server notes what arrives, and from inside of the gate or not.
type server struct {
	*gate
	arrived []string
}

func (s *server) note(ctx context.Context, write string) error {
	_, bounded := ctx.Deadline()
	s.arrived = append(s.arrived, fmt.Sprintf("%s fenced=%t bounded=%t", write, s.inside == 1, bounded))
	return nil
}

func (s *server) getNode(context.Context, string) (*v1.Node, error) {
	return nil, errors.ErrUnsupported
}

func (s *server) patchNode(ctx context.Context, _ string, _ []byte) error {
	return s.note(ctx, "patchNode")
}
func (s *server) createClusterCIDR(ctx context.Context, cc *networkingv1.ClusterCIDR) (*networkingv1.ClusterCIDR, error) {
	return cc, s.note(ctx, "createClusterCIDR")
}
func (s *server) patchClusterCIDR(ctx context.Context, _ string, _ []byte) error {
	return s.note(ctx, "patchClusterCIDR")
}
func (s *server) deleteClusterCIDR(ctx context.Context, _ string, _ types.UID, _ string) error {
	return s.note(ctx, "deleteClusterCIDR")
}
func (s *server) applyStatus(ctx context.Context, _ *applyv1.ClusterCIDRApplyConfiguration) error {
	return s.note(ctx, "applyStatus")
}
func (s *server) patchStatus(ctx context.Context, _ string, _ []byte) error {
	return s.note(ctx, "patchStatus")
}
func (s *server) createEvent(ctx context.Context, _ *v1.Event) error {
	return s.note(ctx, "createEvent")
}
func (s *server) patchEvent(ctx context.Context, _, _ string, _ []byte) (*v1.Event, error) {
	return &v1.Event{}, s.note(ctx, "patchEvent")
}

// A deposed leader must not be able to send anything that an invariant depends on.
func TestWritesAreFenced(t *testing.T) {
	for name, tc := range map[string]struct {
		write func(api) error
		// what arrives while the fence is open
		want string
		// sentAnyway: also while it is closed
		sentAnyway bool
	}{
		"podCIDRs":   {write: func(a api) error { return a.patchNode(t.Context(), "n", nil) }, want: "patchNode fenced=true bounded=true"},
		"finalizers": {write: func(a api) error { return a.patchClusterCIDR(t.Context(), "a", nil) }, want: "patchClusterCIDR fenced=true bounded=true"},
		"a ClusterCIDR from the flags": {write: func(a api) error { _, err := a.createClusterCIDR(t.Context(), nil); return err },
			want: "createClusterCIDR fenced=true bounded=true"},
		"the end of one from other flags": {write: func(a api) error { return a.deleteClusterCIDR(t.Context(), "a", "uid", "1") },
			want: "deleteClusterCIDR fenced=true bounded=true"},
		"a status":            {write: func(a api) error { return a.applyStatus(t.Context(), nil) }, want: "applyStatus fenced=true bounded=true"},
		"a foreign status":    {write: func(a api) error { return a.patchStatus(t.Context(), "a", nil) }, want: "patchStatus fenced=true bounded=true"},
		"no event":            {write: func(a api) error { return a.createEvent(t.Context(), nil) }, want: "createEvent fenced=false bounded=false", sentAnyway: true},
		"no renewal of event": {write: func(a api) error { _, err := a.patchEvent(t.Context(), "ns", "e", nil); return err }, want: "patchEvent fenced=false bounded=false", sentAnyway: true},
	} {
		t.Run(name, func(t *testing.T) {
			s := &server{gate: &gate{deadline: time.Second}}
			c := newController(Config{Fence: s.gate}, parts{api: s, newQueue: newQueue})
			if err := tc.write(c.api); err != nil {
				t.Error(err)
			}
			if diff := cmp.Diff([]string{tc.want}, s.arrived); diff != "" {
				t.Errorf("arrived while the fence was open (-want +got):\n%s", diff)
			}
			if s.inside != 0 {
				t.Error("the write did not leave the fence")
			}

			s.arrived, s.closed = nil, true
			err := tc.write(c.api)
			if sent := len(s.arrived) > 0; sent != tc.sentAnyway || errors.Is(err, lease.ErrClosed) == sent {
				t.Errorf("while the fence was closed: sent %t, error %v", sent, err)
			}
		})
	}
}

// A write without an answer may still be carried out, so it keeps a leader that ends from giving up the lease.
func TestWriteWithoutAnswerStaysInside(t *testing.T) {
	for name, tc := range map[string]struct {
		err  error
		want int // inside of the fence when the write has returned
	}{
		"carried out": {nil, 0},
		"refused":     {apierrors.NewForbidden(schema.GroupResource{}, "n", nil), 0},
		"no answer":   {context.DeadlineExceeded, 1},
	} {
		t.Run(name, func(t *testing.T) {
			g := &gate{deadline: time.Second}
			if err := (fenced{fence: g}).enter(t.Context(), func(context.Context) error { return tc.err }); !errors.Is(err, tc.err) {
				t.Errorf("got error %v, want %v", err, tc.err)
			}
			if g.inside != tc.want {
				t.Errorf("%d writes are inside, want %d", g.inside, tc.want)
			}
		})
	}
}

// It is not the object's fault, so there is neither an error in the log nor an ever longer wait.
func TestClosedFenceIsNoFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		logger := ktesting.NewLogger(t, ktesting.NewConfig(ktesting.BufferLogs(true), ktesting.Verbosity(0)))
		ctx := klog.NewContext(t.Context(), logger)
		queue := newQueue("test")
		defer queue.ShutDown()
		queue.Add("n")
		start := time.Now()
		var tries []time.Duration
		for range 5 {
			workOne(ctx, queue, func(context.Context, string) error {
				tries = append(tries, time.Since(start))
				return fmt.Errorf("patch podCIDRs of Node n: %w", lease.ErrClosed)
			})
		}
		want := []time.Duration{0, 1 * time.Second, 2 * time.Second, 3 * time.Second, 4 * time.Second}
		if diff := cmp.Diff(want, tries); diff != "" {
			t.Errorf("tries (-want +got):\n%s", diff)
		}
		if got := logger.GetSink().(ktesting.Underlier).GetBuffer().String(); got != "" {
			t.Errorf("logged:\n%s", got)
		}
	})
}

func TestRefusedByPolicy(t *testing.T) {
	forbidden := func(text string) error {
		return fmt.Errorf("patch: %w", apierrors.NewForbidden(schema.GroupResource{Resource: "nodes"}, "n", errors.New(text)))
	}
	for name, tc := range map[string]struct {
		err  error
		want bool
	}{
		"the policy":     {forbidden("ValidatingAdmissionPolicy 'lease-holder.networking.x-k8s.io' with binding 'x' denied request: podCIDRs are set by"), true},
		"another policy": {forbidden("ValidatingAdmissionPolicy 'other' with binding 'x' denied request: no"), false},
		"RBAC":           {forbidden(`User "u" cannot patch resource "nodes" in API group "" at the cluster scope`), false},
		"no error":       {nil, false},
	} {
		t.Run(name, func(t *testing.T) {
			if got := refusedByPolicy(tc.err); got != tc.want {
				t.Errorf("got %t, want %t", got, tc.want)
			}
		})
	}
}

func TestAnswered(t *testing.T) {
	for name, tc := range map[string]struct {
		err  error
		want bool
	}{
		"carried out":                   {nil, true},
		"not sent":                      {fmt.Errorf("patch: %w", lease.ErrClosed), true},
		"refused":                       {apierrors.NewForbidden(schema.GroupResource{}, "n", nil), true},
		"nobody accepts the connection": {fmt.Errorf("patch: %w", &net.OpError{Op: "dial", Err: errors.New("connection refused")}), true},
		"the connection was reset":      {fmt.Errorf("patch: %w", &net.OpError{Op: "read", Err: errors.New("connection reset by peer")}), false},
		"a proxy refused, perhaps after it passed the request on": {apierrors.NewGenericServerResponse(http.StatusForbidden, "PATCH", schema.GroupResource{}, "n", "<html>", 0, true), false},
		"the request took too long":                               {&apierrors.StatusError{ErrStatus: metav1.Status{Status: metav1.StatusFailure, Code: http.StatusRequestTimeout}}, false},
		"refused because there is too much":                       {apierrors.NewTooManyRequests("later", 1), true},
		"the API server gave up":                                  {apierrors.NewTimeoutError("etcd", 1), false},
		"the API server is in trouble":                            {apierrors.NewInternalError(errors.New("etcdserver: request timed out")), false},
		"the connection broke":                                    {io.ErrUnexpectedEOF, false},
		"no answer in time":                                       {context.DeadlineExceeded, false},
	} {
		t.Run(name, func(t *testing.T) {
			if got := answered(tc.err); got != tc.want {
				t.Errorf("got %v, want %v", got, tc.want)
			}
		})
	}
}

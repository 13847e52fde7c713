package requests

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/multicidr/controller-manager/controllers/lease"
	"github.com/multicidr/controller-manager/controllers/nodeipam/internal/testapi"
	"github.com/multicidr/controller-manager/controllers/writes"
)

// A deposed leader must not be able to send anything that an invariant depends on.
func TestWritesAreFenced(t *testing.T) {
	for name, tc := range map[string]struct {
		write func(API) error
		// what arrives while the fence is open
		want string
		// sentAnyway: also while it is closed
		sentAnyway bool
	}{
		"podCIDRs":   {write: func(a API) error { return a.PatchNode(t.Context(), "n", nil) }, want: "patchNode fenced=true bounded=true"},
		"finalizers": {write: func(a API) error { return a.PatchClusterCIDR(t.Context(), "a", nil) }, want: "patchClusterCIDR fenced=true bounded=true"},
		"a ClusterCIDR from the flags": {write: func(a API) error { _, err := a.CreateClusterCIDR(t.Context(), nil); return err },
			want: "createClusterCIDR fenced=true bounded=true"},
		"the end of one from other flags": {write: func(a API) error { return a.DeleteClusterCIDR(t.Context(), "a", "uid", "1") },
			want: "deleteClusterCIDR fenced=true bounded=true"},
		"a status":            {write: func(a API) error { _, err := a.ApplyStatus(t.Context(), nil); return err }, want: "applyStatus fenced=true bounded=true"},
		"a foreign status":    {write: func(a API) error { return a.PatchStatus(t.Context(), "a", nil) }, want: "patchStatus fenced=true bounded=true"},
		"no event":            {write: func(a API) error { return a.CreateEvent(t.Context(), nil) }, want: "createEvent fenced=false bounded=false", sentAnyway: true},
		"no renewal of event": {write: func(a API) error { _, err := a.PatchEvent(t.Context(), "ns", "e", nil); return err }, want: "patchEvent fenced=false bounded=false", sentAnyway: true},
	} {
		t.Run(name, func(t *testing.T) {
			s := &testapi.Server{Gate: &testapi.Gate{Deadline: time.Second}}
			a := Fenced{API: s, Fence: s.Gate}
			if err := tc.write(a); err != nil {
				t.Error(err)
			}
			if diff := cmp.Diff([]string{tc.want}, s.Arrived); diff != "" {
				t.Errorf("arrived while the fence was open (-want +got):\n%s", diff)
			}
			if s.Inside != 0 {
				t.Error("the write did not leave the fence")
			}

			s.Arrived, s.Closed = nil, true
			err := tc.write(a)
			if sent := len(s.Arrived) > 0; sent != tc.sentAnyway || errors.Is(err, lease.ErrClosed) == sent {
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
			g := &testapi.Gate{Deadline: time.Second}
			if err := (Fenced{Fence: g}).enter(t.Context(), func(context.Context) error { return tc.err }); !errors.Is(err, tc.err) {
				t.Errorf("got error %v, want %v", err, tc.err)
			}
			if g.Inside != tc.want {
				t.Errorf("%d writes are inside, want %d", g.Inside, tc.want)
			}
		})
	}
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
			if got := RefusedByPolicy(tc.err); got != tc.want {
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
			if got := writes.Answered(tc.err); got != tc.want {
				t.Errorf("got %v, want %v", got, tc.want)
			}
		})
	}
}

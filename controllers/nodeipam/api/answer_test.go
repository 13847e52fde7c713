package api

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/multicidr/controller-manager/controllers/lease"
)

func TestAnswers(t *testing.T) {
	nodes := schema.GroupResource{Resource: "nodes"}
	const carriedOut, refused, notSent, unanswered = "carried out", "refused", "not sent", "unanswered"
	for name, tc := range map[string]struct {
		err  error
		want string
	}{
		"carried out":                          {nil, carriedOut},
		"forbidden":                            {apierrors.NewForbidden(nodes, "n", nil), refused},
		"invalid, as podCIDRs are set":         {apierrors.NewInvalid(schema.GroupKind{Kind: "Node"}, "n", nil), refused},
		"the UID is another one":               {apierrors.NewConflict(nodes, "n", nil), refused},
		"the Node is gone":                     {apierrors.NewNotFound(nodes, "n"), refused},
		"credentials":                          {apierrors.NewUnauthorized("no"), refused},
		"the fence is closed":                  {lease.ErrClosed, notSent},
		"nobody accepts the connection":        {&net.OpError{Op: "dial", Err: errors.New("connection refused")}, notSent},
		"too many requests":                    {apierrors.NewTooManyRequests("later", 1), notSent},
		"too many requests, in plain text":     {apierrors.NewGenericServerResponse(http.StatusTooManyRequests, "PATCH", nodes, "n", "Too many requests", 1, true), notSent},
		"a proxy's 403, perhaps with it on":    {apierrors.NewGenericServerResponse(http.StatusForbidden, "PATCH", nodes, "n", "<html>", 0, true), unanswered},
		"408":                                  {&apierrors.StatusError{ErrStatus: metav1.Status{Code: http.StatusRequestTimeout}}, unanswered},
		"the API server gave up":               {apierrors.NewTimeoutError("etcd", 1), unanswered},
		"the API server fails":                 {apierrors.NewInternalError(errors.New("etcdserver: request timed out")), unanswered},
		"the API server is about to end":       {apierrors.NewServiceUnavailable("no"), unanswered},
		"the connection broke":                 {io.ErrUnexpectedEOF, unanswered},
		"the connection was reset":             {&net.OpError{Op: "read", Err: errors.New("connection reset by peer")}, unanswered},
		"no answer in time":                    {context.DeadlineExceeded, unanswered},
		"no answer when the process was ended": {context.Canceled, unanswered},
	} {
		t.Run(name, func(t *testing.T) {
			err := tc.err
			if err != nil {
				err = fmt.Errorf("patch: %w", err)
			}
			got := map[string]bool{carriedOut: err == nil, refused: Refused(err), notSent: NotSent(err), unanswered: Unanswered(err)}
			for what, is := range got {
				if is != (what == tc.want) {
					t.Errorf("%s is %t, want only %s", what, is, tc.want)
				}
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
		"no error":       {nil, false},
	} {
		t.Run(name, func(t *testing.T) {
			if got := RefusedByPolicy(tc.err); got != tc.want {
				t.Errorf("got %t, want %t", got, tc.want)
			}
		})
	}
}

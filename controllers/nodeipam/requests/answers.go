package requests

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Later is the error of a postponed action. Nothing was tried, so the outcome of the last attempt, if it failed, still holds.
type Later time.Duration

func (l Later) Error() string { return fmt.Sprintf("put off for %v", time.Duration(l)) }

// RefusedLater is the error of a refused write whose cause usually goes away by itself: the object has changed, and its event is coming.
type RefusedLater struct{ Err error }

func (r RefusedLater) Error() string { return r.Err.Error() }

func (r RefusedLater) Unwrap() error { return r.Err }

// ErrNotKept is the error of a write that the API server confirmed but that does not show.
var ErrNotKept = errors.New("the API server has stored it, and it does not show")

// ErrStoredOtherwise is the error of a create request after which the stored object differs from the one that was sent.
var ErrStoredOtherwise = errors.New("it is not stored as it was sent")

// NotThere reports whether the object of a write does not exist. An API server that does not serve the resource, for example because it has
// not loaded the CRD yet, also answers 404. No event follows such an answer, so the write must be retried.
func NotThere(err error) bool {
	return apierrors.IsNotFound(err) && !apierrors.HasStatusCause(err, metav1.CauseTypeUnexpectedServerResponse)
}

// Answered reports whether the outcome of a request is known: it was carried out, not sent, or refused by the API server. A broken
// connection, a failing server, or an answer that is not from the API server leaves the outcome open.
func Answered(err error) bool { return err == nil || NotSent(err) || refusedByServer(err) }

// NotSent reports whether a request did not leave this process: it was not its turn, or the connection was not accepted.
func NotSent(err error) bool {
	var network *net.OpError
	return NotItsTurn(err) || errors.As(err, &network) && network.Op == "dial"
}

// refusedByServer reports whether the API server itself refused a request with a 4xx code. A proxy may answer like that after it has
// forwarded the request, and a timeout is not a refusal.
func refusedByServer(err error) bool {
	var status apierrors.APIStatus
	if !errors.As(err, &status) || apierrors.HasStatusCause(err, metav1.CauseTypeUnexpectedServerResponse) {
		return false
	}
	code := status.Status().Code
	return code >= http.StatusBadRequest && code < http.StatusInternalServerError && code != http.StatusRequestTimeout
}

// FencingPolicy is part of the name of the ValidatingAdmissionPolicy in manifests/fencing. The API server includes the name in its
// refusals.
const FencingPolicy = "lease-holder.networking.x-k8s.io"

// RefusedByPolicy reports whether the API server considers another process to be the leader. It does so shortly after the Lease has changed
// hands, until it has seen the change, or if the policy reads another Lease.
func RefusedByPolicy(err error) bool {
	return apierrors.IsForbidden(err) && strings.Contains(err.Error(), FencingPolicy)
}

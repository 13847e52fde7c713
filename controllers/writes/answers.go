package writes

import (
	"errors"
	"fmt"
	"net"
	"net/http"
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

// Pending is the error of an object that waits for others: nothing was tried, and its back-off stays as it is.
type Pending struct{}

func (Pending) Error() string { return "pending" }

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

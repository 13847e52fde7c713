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

// Later is the error of who has put something off: nothing was tried, so what is known of the last try, if it failed, stays so.
type Later time.Duration

func (l Later) Error() string { return fmt.Sprintf("put off for %v", time.Duration(l)) }

// RefusedLater is the error of a write that was refused in a way that as a rule passes by itself: the object has changed, and its event comes.
type RefusedLater struct{ Err error }

func (r RefusedLater) Error() string { return r.Err.Error() }

func (r RefusedLater) Unwrap() error { return r.Err }

// ErrNotKept is the error of a write that the API server has carried out, as it says, and that does not show.
var ErrNotKept = errors.New("the API server has stored it, and it does not show")

// ErrStoredOtherwise is the error of a creation after which there is another object than the one that was sent.
var ErrStoredOtherwise = errors.New("it is not stored as it was sent")

// NotThere reports whether an object that was to be written does not exist. An API server that does not serve the resource, because it has
// not got to know the CRD yet for instance, answers with 404 as well; nothing will happen that brings such a write back, so it has
// to be tried again.
func NotThere(err error) bool {
	return apierrors.IsNotFound(err) && !apierrors.HasStatusCause(err, metav1.CauseTypeUnexpectedServerResponse)
}

// Answered reports whether a request is over: it was carried out, not sent, or refused by the API server. A broken connection, a server
// that is in trouble, or an answer that is not the API server's own says nothing about what comes of it.
func Answered(err error) bool { return err == nil || NotSent(err) || refusedByServer(err) }

// NotSent reports whether a request did not leave this process: it was not its turn, or nobody accepted the connection.
func NotSent(err error) bool {
	var network *net.OpError
	return NotItsTurn(err) || errors.As(err, &network) && network.Op == "dial"
}

// refusedByServer reports whether the API server has decided not to carry a request out: a 4xx, in its own words. A proxy may answer so for
// a request that it has passed on, and a timeout is no decision.
func refusedByServer(err error) bool {
	var status apierrors.APIStatus
	if !errors.As(err, &status) || apierrors.HasStatusCause(err, metav1.CauseTypeUnexpectedServerResponse) {
		return false
	}
	code := status.Status().Code
	return code >= http.StatusBadRequest && code < http.StatusInternalServerError && code != http.StatusRequestTimeout
}

// FencingPolicy is in the name of the ValidatingAdmissionPolicy of manifests/fencing, which the API server puts into its refusals.
const FencingPolicy = "lease-holder.networking.x-k8s.io"

// RefusedByPolicy reports whether the API server takes another process for the leader. So shortly after the lease has changed
// hands, until it has seen that; and if the policy looks at another Lease than ours.
func RefusedByPolicy(err error) bool {
	return apierrors.IsForbidden(err) && strings.Contains(err.Error(), FencingPolicy)
}

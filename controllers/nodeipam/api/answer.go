package api

import (
	"bytes"
	"encoding/json"
	"errors"
	"net/http"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/multicidr/controller-manager/controllers/writes"
)

// ErrNotKept is the error of a write that the API server confirmed but that does not show: something takes it away again.
var ErrNotKept = errors.New("the API server has stored it, and it does not show")

// ErrNoStatus is the error of a status write that the API server answers with NotFound. The ClusterCIDR is gone, which the cache shows soon,
// or the API server knows no status of ClusterCIDRs: it gives the same answer.
var ErrNoStatus = errors.New("there is no such ClusterCIDR, or it has no status")

// ErrStoredOtherwise is the error of a ClusterCIDR that was created from flags and has other ranges.
var ErrStoredOtherwise = errors.New("it is not stored as it was sent")

// What an answer to a write proves. Exactly one of these holds: err is nil, Refused, NotSent, Unanswered.

// Refused reports whether the API server itself refused a write: it was not carried out, and will not be. A proxy can answer with the same
// code after it has passed the request on; its answer is no refusal.
func Refused(err error) bool { return err != nil && !NotSent(err) && writes.Answered(err) }

// NotSent reports whether nobody has looked at a write: it did not leave this process, or the API server or a proxy was too busy for it (429). This says nothing about the object.
func NotSent(err error) bool { return writes.NotSent(err) || tooMany(err) }

// tooMany does not look at who answers: what the API server itself says of its limits is plain text, as from a proxy.
func tooMany(err error) bool {
	var status apierrors.APIStatus
	return errors.As(err, &status) && status.Status().Code == http.StatusTooManyRequests
}

// Unanswered reports whether a write may have been carried out, or may still be: the connection broke, the time ran out, or the API server
// failed (408, 5xx).
func Unanswered(err error) bool { return err != nil && !NotSent(err) && !writes.Answered(err) }

// FencingPolicy is part of the name of the ValidatingAdmissionPolicy in manifests/fencing. The API server includes the name in its
// refusals.
const FencingPolicy = "lease-holder.networking.x-k8s.io"

// RefusedByPolicy reports whether the API server considers another process to be the leader. It does so shortly after the Lease has changed
// hands, until it has seen the change, or if the policy reads another Lease, or if the API server does not read Leases any more (see
// manifests/fencing/keep-leases.yaml).
func RefusedByPolicy(err error) bool {
	return apierrors.IsForbidden(err) && strings.Contains(err.Error(), FencingPolicy)
}

// versionIn returns metadata.resourceVersion of an encoded object; empty if there is none.
func versionIn(object []byte) string {
	var decoded metav1.PartialObjectMetadata
	if message, ok := bytes.CutPrefix(object, []byte("k8s\x00")); ok { // protobuf
		var envelope runtime.Unknown
		if envelope.Unmarshal(message) != nil || decoded.Unmarshal(envelope.Raw) != nil {
			return ""
		}
	} else {
		_ = json.Unmarshal(object, &decoded) // The write was carried out, whatever a proxy made of the answer.
	}
	return decoded.ResourceVersion
}

package api

import (
	"bytes"
	"encoding/json"
	"errors"
	"net/http"
	"strings"

	"google.golang.org/protobuf/encoding/protowire"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/multicidr/controller-manager/controllers/writes"
)

// ErrNotKept is the error of a write that the API server confirmed but that does not show: something takes it away again.
var ErrNotKept = errors.New("the API server has stored it, and it does not show")

// ErrNoStatus is the error of a status write that the API server answers with NotFound. The ClusterCIDR is gone, which the cache shows soon,
// or the API server knows no status of ClusterCIDRs: it gives the same answer.
var ErrNoStatus = errors.New("there is no such ClusterCIDR, or it has no status")

// ErrStoredOtherwise is the error of a create request after which the stored object differs from the one that was sent.
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

// Field numbers of the messages around a resource version: runtime.Unknown, PartialObjectMetadata, ObjectMeta.
const (
	fieldRaw             = 2
	fieldMetadata        = 1
	fieldResourceVersion = 6
)

// versionIn returns metadata.resourceVersion of an encoded object, and decodes nothing else: a Node's metadata has managed fields of several
// kilobytes, and there is such an answer for every allocation. It is empty if there is none.
func versionIn(object []byte) string {
	if message, ok := bytes.CutPrefix(object, []byte("k8s\x00")); ok {
		return string(fieldOf(fieldOf(fieldOf(message, fieldRaw), fieldMetadata), fieldResourceVersion))
	}
	var decoded struct {
		Metadata struct {
			ResourceVersion string `json:"resourceVersion"`
		} `json:"metadata"`
	}
	_ = json.Unmarshal(object, &decoded) // The write was carried out, whatever a proxy made of the answer.
	return decoded.Metadata.ResourceVersion
}

// fieldOf returns the first field of this number that is a string, bytes or a message; nil if there is none.
func fieldOf(message []byte, number protowire.Number) []byte {
	for len(message) > 0 {
		n, t, length := protowire.ConsumeTag(message)
		if length < 0 {
			return nil
		}
		message = message[length:]
		if n == number && t == protowire.BytesType {
			value, _ := protowire.ConsumeBytes(message)
			return value
		}
		if length = protowire.ConsumeFieldValue(n, t, message); length < 0 {
			return nil
		}
		message = message[length:]
	}
	return nil
}

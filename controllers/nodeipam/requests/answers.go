package requests

import (
	"errors"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// ErrNotKept is the error of a write that the API server confirmed but that does not show.
var ErrNotKept = errors.New("the API server has stored it, and it does not show")

// ErrNoStatus is the error of a status write that the API server answers with NotFound. The ClusterCIDR is gone, which the cache shows soon,
// or the API server knows no status of ClusterCIDRs: it gives the same answer.
var ErrNoStatus = errors.New("there is no such ClusterCIDR, or it has no status")

// ErrStoredOtherwise is the error of a create request after which the stored object differs from the one that was sent.
var ErrStoredOtherwise = errors.New("it is not stored as it was sent")

// FencingPolicy is part of the name of the ValidatingAdmissionPolicy in manifests/fencing. The API server includes the name in its
// refusals.
const FencingPolicy = "lease-holder.networking.x-k8s.io"

// NotTheLeader is the error of a write that was refused because the API server considers another process to be the leader.
type NotTheLeader struct {
	Lease string // the Lease that this process holds, see Fenced
	Err   error
}

func (e *NotTheLeader) Error() string { return e.Err.Error() }
func (e *NotTheLeader) Unwrap() error { return e.Err }

// Asked is the Lease that the policy looks at, according to the refusal; empty if it does not say.
func (e *NotTheLeader) Asked() string {
	_, name, _ := strings.Cut(e.Error(), "only the holder of the Lease ")
	name, _, _ = strings.Cut(name, " ")
	return name
}

// RefusedByPolicy reports whether the API server considers another process to be the leader. It does so shortly after the Lease has changed
// hands, until it has seen the change, or if the policy reads another Lease, or if the API server does not read Leases any more (see
// manifests/fencing/keep-leases.yaml).
func RefusedByPolicy(err error) bool {
	return apierrors.IsForbidden(err) && strings.Contains(err.Error(), FencingPolicy)
}

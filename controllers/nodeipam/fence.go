package nodeipam

import (
	"context"
	"errors"
	"net"
	"net/http"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	applyv1 "github.com/multicidr/controller-manager/apis/generated/applyconfiguration/networking/v1"
	networkingv1 "github.com/multicidr/controller-manager/apis/networking/v1"
	"github.com/multicidr/controller-manager/controllers/lease"
)

// Fence keeps a process from writing that may not be the leader any more. A lease.Fence is one.
type Fence interface {
	// Enter gives leave for one write, which has to use the context, at most for the time asked for, and to call leave at its end.
	// An error is lease.ErrClosed: it says nothing about the object, only that it is not this process's turn to write.
	Enter(ctx context.Context, atMost time.Duration) (_ context.Context, leave func(), err error)
	// Holder is who this process is in the lease; empty without leader election.
	Holder() string
	// Unanswered is for how long the API server may still carry out a write that entered, was sent, and was not answered.
	Unanswered() time.Duration
}

// closedRetry is how soon a write is tried again that met a closed fence. No request is sent for that, so it need not become rarer.
const closedRetry = time.Second

// fenced is an api behind a fence. A deposed leader must not give podCIDRs that its successor gives to another Node, remove a finalizer
// while its successor gives blocks, or delete a ClusterCIDR because its own flags are older; and its status would hide its successor's
// until something changes. Events pass: they say what this process saw, and nobody decides by them.
type fenced struct {
	api
	fence Fence
}

func (f fenced) patchNode(ctx context.Context, name string, patch []byte) error {
	return f.enter(ctx, func(ctx context.Context) error { return f.api.patchNode(ctx, name, patch) })
}

func (f fenced) createClusterCIDR(ctx context.Context, cc *networkingv1.ClusterCIDR) (stored *networkingv1.ClusterCIDR, err error) {
	err = f.enter(ctx, func(ctx context.Context) (err error) {
		stored, err = f.api.createClusterCIDR(ctx, cc)
		return err
	})
	return stored, err
}

func (f fenced) patchClusterCIDR(ctx context.Context, name string, patch []byte) error {
	return f.enter(ctx, func(ctx context.Context) error { return f.api.patchClusterCIDR(ctx, name, patch) })
}

func (f fenced) deleteClusterCIDR(ctx context.Context, name string, uid types.UID, resourceVersion string) error {
	return f.enter(ctx, func(ctx context.Context) error { return f.api.deleteClusterCIDR(ctx, name, uid, resourceVersion) })
}

func (f fenced) applyStatus(ctx context.Context, patch *applyv1.ClusterCIDRApplyConfiguration) error {
	return f.enter(ctx, func(ctx context.Context) error { return f.api.applyStatus(ctx, patch) })
}

func (f fenced) patchStatus(ctx context.Context, name string, patch []byte) error {
	return f.enter(ctx, func(ctx context.Context) error { return f.api.patchStatus(ctx, name, patch) })
}

func (f fenced) enter(ctx context.Context, write func(context.Context) error) error {
	ctx, leave, err := f.fence.Enter(ctx, writeTimeout)
	if err != nil {
		return err
	}
	if err = write(ctx); answered(err) {
		leave()
	}
	return err
}

// answered reports whether a request is over: it was carried out, not sent, or refused by the API server. A broken connection, a server
// that is in trouble, or an answer that is not the API server's own says nothing about what comes of it.
func answered(err error) bool { return err == nil || notSent(err) || refusedByServer(err) }

// notSent reports whether a request did not leave this process: the fence was closed, or nobody accepted the connection.
func notSent(err error) bool {
	var network *net.OpError
	return errors.Is(err, lease.ErrClosed) || errors.As(err, &network) && network.Op == "dial"
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

// refusedByPolicy reports whether the API server takes another process for the leader. So shortly after the lease has changed
// hands, until it has seen that; and if the policy looks at another Lease than ours.
func refusedByPolicy(err error) bool {
	return apierrors.IsForbidden(err) && strings.Contains(err.Error(), FencingPolicy)
}

// Package api is the controller's interface to the API server: its requests, their bodies, what their answers prove, and the fence that
// every write passes.
package api

import (
	"cmp"
	"context"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/util/flowcontrol"

	"github.com/multicidr/controller-manager/apis/generated/clientset/versioned"
	clustercidrscheme "github.com/multicidr/controller-manager/apis/generated/clientset/versioned/scheme"
	networkingv1 "github.com/multicidr/controller-manager/apis/networking/v1"
	"github.com/multicidr/controller-manager/controllers/lease"
	"github.com/multicidr/controller-manager/controllers/writes"
)

// Manager is the controller's name: in --controllers, and as its ServiceAccount, field manager and event source.
const Manager = "multi-cidr-node-ipam-controller"

// API writes. Each request is sent once: a request that was repeated below would be answered for its last attempt only.
//
// Writes pass a fence. A former leader must not assign podCIDRs that its successor assigns to another Node, remove a finalizer while its
// successor allocates blocks, or disable a ClusterCIDR because its own flags are outdated. Its status would also hide its successor's.
// PatchNode, a function, must be called with the context of Permit. Every other write asks for its permission itself.
type API struct {
	// The client, and that of PatchNode, must not limit requests per second: Limiter does that. They need lease.Transport, which looks at the
	// clocks once more when a request is sent.
	ClusterCIDRs versioned.Interface
	Fence        writes.Fence
	// Limiter is the client-side limit on requests per second; nil: none.
	Limiter flowcontrol.RateLimiter
}

// lookAgain is how often a closed fence is looked at. It opens with a renewal of the Lease.
const lookAgain = 100 * time.Millisecond

// Permit waits for the client-side limit and then for the fence to be open, without a lock of the caller's. It returns the context of one
// write, which has the deadline of that write and does not end with ctx: a write that is under way when the process stops is worth its
// answer. The caller calls leave when the write was answered or is not made after all, and never if it is Unanswered: until such a write
// can no longer be carried out, the Lease is not released.
//
// An error wraps lease.ErrClosed if the fence was closed until ctx ended, and is otherwise ctx's. Nothing was sent then.
func (a API) Permit(ctx context.Context) (_ context.Context, leave func(), err error) {
	if a.Limiter != nil {
		if err := a.Limiter.Wait(ctx); err != nil {
			if ctx.Err() != nil {
				return nil, nil, ctx.Err()
			}
			return nil, nil, fmt.Errorf("%w: %w", lease.ErrClosed, err)
		}
	}
	for ctx.Err() == nil {
		var write context.Context
		if write, leave, err = a.Fence.Enter(context.WithoutCancel(ctx), writes.Timeout); err == nil {
			return write, leave, nil
		}
		select {
		case <-ctx.Done():
		case <-time.After(lookAgain):
		}
	}
	return nil, nil, cmp.Or(err, ctx.Err())
}

// briefly requests only the object's metadata in the answer. A Node lists the images on its disk, which the controller does not need.
const briefly = "application/vnd.kubernetes.protobuf;as=PartialObjectMetadata;g=meta.k8s.io;v=v1," +
	"application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json"

// PatchNode sends a patch of a Node and returns the resource version that it made. It is empty if the patch was carried out and the answer
// does not say which version it made. It is exported for programs that measure an API server with the controller's own request.
func PatchNode(ctx context.Context, client kubernetes.Interface, name string, patch []byte) (resourceVersion string, err error) {
	result := client.CoreV1().RESTClient().Patch(types.StrategicMergePatchType).
		Resource("nodes").Name(name).
		VersionedParams(&metav1.PatchOptions{FieldManager: Manager}, scheme.ParameterCodec).
		SetHeader("Accept", briefly).
		MaxRetries(0).
		Body(patch).Do(ctx)
	if err := result.Error(); err != nil { // That of Raw lacks what the API server says.
		return "", err
	}
	answer, err := result.Raw()
	return versionIn(answer), err
}

// CreateClusterCIDR creates the ClusterCIDR of the flags.
func (a API) CreateClusterCIDR(ctx context.Context, cc *networkingv1.ClusterCIDR) error {
	return a.write(ctx, func(ctx context.Context) error {
		return a.ClusterCIDRs.NetworkingV1().RESTClient().Post().
			Resource("clustercidrs").
			VersionedParams(&metav1.CreateOptions{FieldManager: Manager}, clustercidrscheme.ParameterCodec).
			MaxRetries(0).
			Body(cc).Do(ctx).Error()
	})
}

// PatchClusterCIDR sends a FinalizersPatch or an AllocationPatch.
func (a API) PatchClusterCIDR(ctx context.Context, name string, patch []byte) error {
	return a.patch(ctx, types.MergePatchType, name, metav1.PatchOptions{FieldManager: Manager}, patch)
}

// ApplyStatus sends a StatusPatch. It returns an error with ErrNoStatus if there is no such object, or no such subresource.
func (a API) ApplyStatus(ctx context.Context, name string, patch []byte) error {
	force := true
	err := a.patch(ctx, types.ApplyPatchType, name, metav1.PatchOptions{FieldManager: Manager, Force: &force}, patch, "status")
	if apierrors.IsNotFound(err) {
		return fmt.Errorf("%w: %w", ErrNoStatus, err)
	}
	return err
}

// patch sends a patch of a ClusterCIDR and does not decode its answer: the typed client would turn the answer about an object that cannot be
// decoded into an error, as if nobody knew whether the patch was carried out.
func (a API) patch(ctx context.Context, t types.PatchType, name string, opts metav1.PatchOptions, patch []byte, subresources ...string) error {
	return a.write(ctx, func(ctx context.Context) error {
		return a.ClusterCIDRs.NetworkingV1().RESTClient().Patch(t).
			Resource("clustercidrs").Name(name).SubResource(subresources...).
			VersionedParams(&opts, clustercidrscheme.ParameterCodec).
			MaxRetries(0).
			Body(patch).Do(ctx).Error()
	})
}

// write sends a write when it is permitted.
func (a API) write(ctx context.Context, send func(context.Context) error) error {
	ctx, leave, err := a.Permit(ctx)
	if err != nil {
		return err
	}
	if err = send(ctx); !Unanswered(err) {
		leave()
	}
	return err
}

package requests

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/types"

	applyv1 "github.com/multicidr/controller-manager/apis/generated/applyconfiguration/networking/v1"
	networkingv1 "github.com/multicidr/controller-manager/apis/networking/v1"
)

// Fence keeps a process from writing when it may no longer be the leader. lease.Fence implements it.
type Fence interface {
	// Enter permits one write, for at most the requested time. The write must use the returned context and call leave when it ends. An
	// error is lease.ErrClosed: it says nothing about the object, only that this process must not write now.
	Enter(ctx context.Context, atMost time.Duration) (_ context.Context, leave func(), err error)
	// Holder is this process's identity in the Lease; empty without leader election.
	Holder() string
	// Unanswered is for how long the API server may still carry out a write that entered, was sent, and was not answered.
	Unanswered() time.Duration
}

// Fenced is an API behind a fence. A former leader must not assign podCIDRs that its successor assigns to another Node, remove a finalizer
// while its successor allocates blocks, or delete a ClusterCIDR because its own flags are outdated. Its status would also hide its
// successor's until something changes. Events pass: they report what this process saw, and no decision depends on them.
type Fenced struct {
	API
	Fence Fence
}

func (f Fenced) PatchNode(ctx context.Context, name string, patch []byte) error {
	return f.enter(ctx, func(ctx context.Context) error { return f.API.PatchNode(ctx, name, patch) })
}

func (f Fenced) CreateClusterCIDR(ctx context.Context, cc *networkingv1.ClusterCIDR) (stored *networkingv1.ClusterCIDR, err error) {
	err = f.enter(ctx, func(ctx context.Context) (err error) {
		stored, err = f.API.CreateClusterCIDR(ctx, cc)
		return err
	})
	return stored, err
}

func (f Fenced) PatchClusterCIDR(ctx context.Context, name string, patch []byte) error {
	return f.enter(ctx, func(ctx context.Context) error { return f.API.PatchClusterCIDR(ctx, name, patch) })
}

func (f Fenced) DeleteClusterCIDR(ctx context.Context, name string, uid types.UID, resourceVersion string) error {
	return f.enter(ctx, func(ctx context.Context) error { return f.API.DeleteClusterCIDR(ctx, name, uid, resourceVersion) })
}

func (f Fenced) ApplyStatus(ctx context.Context, patch *applyv1.ClusterCIDRApplyConfiguration) (stored networkingv1.ClusterCIDRStatus, err error) {
	err = f.enter(ctx, func(ctx context.Context) (err error) {
		stored, err = f.API.ApplyStatus(ctx, patch)
		return err
	})
	return stored, err
}

func (f Fenced) PatchStatus(ctx context.Context, name string, patch []byte) error {
	return f.enter(ctx, func(ctx context.Context) error { return f.API.PatchStatus(ctx, name, patch) })
}

func (f Fenced) enter(ctx context.Context, write func(context.Context) error) error {
	ctx, leave, err := f.Fence.Enter(ctx, Timeout)
	if err != nil {
		return err
	}
	if err = write(ctx); Answered(err) {
		leave()
	}
	return err
}

// Timeout limits one write. If the leader Lease is short, a third of the Lease duration is the limit.
const Timeout = 5 * time.Second

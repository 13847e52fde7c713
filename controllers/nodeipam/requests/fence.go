package requests

import (
	"context"

	"k8s.io/apimachinery/pkg/types"

	applyv1 "github.com/multicidr/controller-manager/apis/generated/applyconfiguration/networking/v1"
	networkingv1 "github.com/multicidr/controller-manager/apis/networking/v1"
	"github.com/multicidr/controller-manager/controllers/writes"
)

// Fenced is an API behind a fence. A former leader must not assign podCIDRs that its successor assigns to another Node, remove a finalizer
// while its successor allocates blocks, or delete a ClusterCIDR because its own flags are outdated. Its status would also hide its
// successor's until something changes. Events pass: they report what this process saw, and no decision depends on them.
type Fenced struct {
	API
	Fence writes.Fence
	// Lease is the namespace and name of the fence's Lease, with a slash between them; empty without leader election.
	Lease string
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
	ctx, leave, err := f.Fence.Enter(ctx, writes.Timeout)
	if err != nil {
		return err
	}
	if err = write(ctx); writes.Answered(err) {
		leave()
	}
	if RefusedByPolicy(err) {
		return &NotTheLeader{Lease: f.Lease, Err: err}
	}
	return err
}

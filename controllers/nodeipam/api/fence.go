package api

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"k8s.io/client-go/util/flowcontrol"

	networkingv1 "github.com/multicidr/controller-manager/apis/networking/v1"
	"github.com/multicidr/controller-manager/controllers/lease"
	"github.com/multicidr/controller-manager/controllers/writes"
)

// Fenced is an API whose writes pass a fence. A former leader must not assign podCIDRs that its successor assigns to another Node, remove a
// finalizer while its successor allocates blocks, or disable a ClusterCIDR because its own flags are outdated. Its status would also hide
// its successor's. The clients that it writes with need lease.Transport, which looks at the clocks once more when a request is sent.
//
// PatchNode must be called with the context of Permit. Every other write asks for its permission itself.
type Fenced struct {
	API
	Fence Fence
	// Limiter is the client-side limit on requests per second; nil: none.
	Limiter flowcontrol.RateLimiter
}

// Fence permits writes while this process leads. A *lease.Fence is one.
type Fence interface {
	// Enter permits one write, for at most the requested time, or returns an error with lease.ErrClosed.
	Enter(ctx context.Context, atMost time.Duration) (_ context.Context, leave func(), err error)
}

// lookAgain is how often a closed fence is looked at. It opens with a renewal of the Lease.
const lookAgain = 100 * time.Millisecond

// Permit waits for the client-side limit and then for the fence to be open, without a lock of the caller's. It returns the context of one
// write, which has the deadline of that write and does not end with ctx: a write that is under way when the process stops is worth its
// answer. The caller calls leave when the write was answered or is not made after all, and never if it is Unanswered: until such a write
// can no longer be carried out, the Lease is not released.
//
// An error wraps lease.ErrClosed if the fence was closed until ctx ended, and is otherwise ctx's. Nothing was sent then.
func (f Fenced) Permit(ctx context.Context) (_ context.Context, leave func(), err error) {
	if f.Limiter != nil {
		if err := f.Limiter.Wait(ctx); err != nil {
			if ctx.Err() != nil {
				return nil, nil, ctx.Err()
			}
			return nil, nil, fmt.Errorf("%w: %w", lease.ErrClosed, err)
		}
	}
	for ctx.Err() == nil {
		var write context.Context
		if write, leave, err = f.Fence.Enter(context.WithoutCancel(ctx), writes.Timeout); err == nil {
			return write, leave, nil
		}
		select {
		case <-ctx.Done():
		case <-time.After(lookAgain):
		}
	}
	return nil, nil, cmp.Or(err, ctx.Err())
}

func (f Fenced) CreateClusterCIDR(ctx context.Context, cc *networkingv1.ClusterCIDR) error {
	return f.write(ctx, func(ctx context.Context) error { return f.API.CreateClusterCIDR(ctx, cc) })
}

func (f Fenced) PatchClusterCIDR(ctx context.Context, name string, patch []byte) error {
	return f.write(ctx, func(ctx context.Context) error { return f.API.PatchClusterCIDR(ctx, name, patch) })
}

func (f Fenced) ApplyStatus(ctx context.Context, name string, patch []byte) error {
	return f.write(ctx, func(ctx context.Context) error { return f.API.ApplyStatus(ctx, name, patch) })
}

func (f Fenced) write(ctx context.Context, send func(context.Context) error) error {
	ctx, leave, err := f.Permit(ctx)
	if err != nil {
		return err
	}
	if err = send(ctx); !Unanswered(err) {
		leave()
	}
	return err
}

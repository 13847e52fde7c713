// Package writes has what all writes to the API server have in common: the fence that they pass, the limits on their time and rate, and what
// an answer says about whether a write was carried out.
package writes

import (
	"context"
	"time"
)

// Timeout limits one write. If the leader Lease is short, a third of the Lease duration is the limit.
const Timeout = 5 * time.Second

// Fence keeps a process from writing when it may no longer be the leader. lease.Fence implements it.
type Fence interface {
	// Enter permits one write, for at most the requested time. The write must use the returned context and call leave when it ends. An
	// error is lease.ErrClosed: it says nothing about the object, only that this process must not write now.
	Enter(ctx context.Context, atMost time.Duration) (_ context.Context, leave func(), err error)
	// Unanswered is for how long the API server may still carry out a write that entered, was sent, and was not answered.
	Unanswered() time.Duration
}

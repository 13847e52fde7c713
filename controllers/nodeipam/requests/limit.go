package requests

import (
	"context"
	"errors"
	"fmt"
	"time"

	"k8s.io/client-go/util/flowcontrol"

	"github.com/multicidr/controller-manager/controllers/lease"
)

// ErrThrottled is in the error of a request that was not sent, because the limit of requests per second did not allow it in time.
var ErrThrottled = errors.New("not sent yet: the limit of --node-ipam-kube-api-qps")

// Limiter makes the limit of requests per second known as the reason of an error: client-go's own error looks like that of an API server which does
// not answer.
type Limiter struct{ flowcontrol.RateLimiter }

// Wait waits for at most half of the time that a request has: what is left has to be enough for the API server.
func (l Limiter) Wait(ctx context.Context) error {
	limited := ctx
	if deadline, ok := ctx.Deadline(); ok {
		var cancel context.CancelFunc
		limited, cancel = context.WithTimeout(ctx, time.Until(deadline)/2)
		defer cancel()
	}
	err := l.RateLimiter.Wait(limited)
	if err != nil && !errors.Is(err, context.Canceled) {
		return fmt.Errorf("%w: %s", ErrThrottled, err.Error()) // not wrapped: the end of a context is what a request without an answer ends with
	}
	return err
}

// NotItsTurn reports whether a request was not sent because it was not this process's turn: the fence was closed, or the limit of requests per
// second did not allow it.
func NotItsTurn(err error) bool {
	return errors.Is(err, lease.ErrClosed) || errors.Is(err, ErrThrottled)
}

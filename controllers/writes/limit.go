package writes

import (
	"context"
	"errors"
	"fmt"
	"time"

	"k8s.io/client-go/util/flowcontrol"

	"github.com/multicidr/controller-manager/controllers/lease"
)

// ErrThrottled is wrapped by the error of a request that was not sent in time because of the limit of requests per second.
var ErrThrottled = errors.New("not sent yet: the limit of requests per second")

// Limiter returns an error that names the limit of requests per second. client-go's own error looks like that of an API server that does
// not answer.
type Limiter struct {
	flowcontrol.RateLimiter
	Flag string // sets the limit
}

// Wait waits for at most half of the request's time, so that the other half is left for the API server.
func (l Limiter) Wait(ctx context.Context) error {
	limited := ctx
	if deadline, ok := ctx.Deadline(); ok {
		var cancel context.CancelFunc
		limited, cancel = context.WithTimeout(ctx, time.Until(deadline)/2)
		defer cancel()
	}
	err := l.RateLimiter.Wait(limited)
	if err != nil && !errors.Is(err, context.Canceled) {
		return fmt.Errorf("%w (--%s): %s", ErrThrottled, l.Flag, err.Error()) // not wrapped: a context error means a request without an answer
	}
	return err
}

// NotItsTurn reports whether a request was not sent because the fence was closed or because of the limit of requests per second.
func NotItsTurn(err error) bool {
	return errors.Is(err, lease.ErrClosed) || errors.Is(err, ErrThrottled)
}

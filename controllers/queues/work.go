// Package queues processes keys from a queue. The error of an attempt decides when the next one is made.
package queues

import (
	"context"
	"errors"
	"time"

	"github.com/multicidr/controller-manager/controllers/writes"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"
)

type Queue[K comparable] = workqueue.TypedRateLimitingInterface[K]

// New returns an empty queue. name is its name in metrics, and longest is the longest pause between two attempts.
func New[K comparable](name string, longest time.Duration) Queue[K] {
	return workqueue.NewTypedRateLimitingQueueWithConfig(
		workqueue.NewTypedItemExponentialFailureRateLimiter[K](RetryFirst, longest),
		workqueue.TypedRateLimitingQueueConfig[K]{Name: name},
	)
}

// Work calls sync for keys from the queue until ctx is done and the queue is shut down. Keys that are still queued then are not
// processed.
func Work[K comparable](ctx context.Context, queue Queue[K], sync func(context.Context, K) error) {
	for workOne(ctx, queue, sync) {
	}
}

// workOne calls sync for the next key from the queue. It reports whether there may be more.
func workOne[K comparable](ctx context.Context, queue Queue[K], sync func(context.Context, K) error) (more bool) {
	key, quit := queue.Get()
	if quit {
		return false
	}
	defer queue.Done(key)
	if ctx.Err() != nil {
		return false
	}
	logger := klog.FromContext(ctx)
	var (
		pause   writes.Later
		refused writes.RefusedLater
	)
	switch err := sync(ctx, key); {
	case err == nil:
		queue.Forget(key)
	case errors.As(err, new(writes.Pending)):
	case errors.As(err, &pause):
		queue.AddAfter(key, time.Duration(pause))
	case writes.NotItsTurn(err):
		logger.V(4).Info("Will try again", "err", err) // a closed fence logs that itself, once
		queue.AddAfter(key, ClosedRetry)
	case apierrors.IsForbidden(err), errors.As(err, &refused):
		logger.V(4).Info("Will try again", "err", err) // the controller logs it, once
		queue.AddRateLimited(key)
	default:
		logger.Error(err, "Will try again")
		queue.AddRateLimited(key)
	}
	return true
}

// Pauses between attempts for one object after a failed write: very short at first, then ever longer. No limit is shared by all objects, so
// that an API server outage does not leave a backlog behind.
const (
	RetryFirst = 10 * time.Millisecond
	RetryMax   = 10 * time.Second
)

// ClosedRetry is the pause after a write that met a closed fence. No request was sent, so the pause need not grow.
const ClosedRetry = time.Second

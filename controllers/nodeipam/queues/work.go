// Package queues processes names from a queue. The error of an attempt decides when the next one is made.
package queues

import (
	"context"
	"errors"
	"time"

	"github.com/multicidr/controller-manager/controllers/nodeipam/requests"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"
)

type Queue = workqueue.TypedRateLimitingInterface[string]

// New returns an empty queue. longest is the longest pause between two attempts.
func New(of string, longest time.Duration) Queue {
	return workqueue.NewTypedRateLimitingQueueWithConfig(
		workqueue.NewTypedItemExponentialFailureRateLimiter[string](RetryFirst, longest),
		workqueue.TypedRateLimitingQueueConfig[string]{Name: "multi_cidr_node_ipam_" + of},
	)
}

// Work calls sync for names from the queue until ctx is done and the queue is shut down. Names that are still queued then are not
// processed.
func Work(ctx context.Context, queue Queue, sync func(context.Context, string) error) {
	for WorkOne(ctx, queue, sync) {
	}
}

// WorkOne calls sync for the next name from the queue. It reports whether there may be more.
func WorkOne(ctx context.Context, queue Queue, sync func(context.Context, string) error) (more bool) {
	name, quit := queue.Get()
	if quit {
		return false
	}
	defer queue.Done(name)
	if ctx.Err() != nil {
		return false
	}
	logger := klog.FromContext(ctx)
	var (
		pause   requests.Later
		refused requests.RefusedLater
	)
	switch err := sync(ctx, name); {
	case err == nil:
		queue.Forget(name)
	case errors.As(err, &pause):
		queue.AddAfter(name, time.Duration(pause))
	case requests.NotItsTurn(err):
		logger.V(4).Info("Will try again", "err", err) // a closed fence logs that itself, once
		queue.AddAfter(name, ClosedRetry)
	case apierrors.IsForbidden(err), errors.As(err, &refused):
		logger.V(4).Info("Will try again", "err", err) // Controller.noting logs it, once
		queue.AddRateLimited(name)
	default:
		logger.Error(err, "Will try again")
		queue.AddRateLimited(name)
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

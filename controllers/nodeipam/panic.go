package nodeipam

import (
	"context"
	"fmt"

	"github.com/multicidr/controller-manager/controllers/nodeipam/fresh"
	"github.com/multicidr/controller-manager/controllers/nodeipam/health"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/klog/v2"
)

// After a panic, this Controller makes no more decisions, ends what it started, and returns from Run. Another Controller is built in its
// place, in the same process and under the same Lease (package restart). It starts as a new leader does: from the objects in the API
// server.

// Err is why Run has returned, or is about to return, before its context is done; nil if nothing has panicked.
func (c *Controller) Err() error {
	if panicked := c.health.Panicked(); panicked != nil {
		return fmt.Errorf("panic: %v", panicked)
	}
	return nil
}

// waitWrites returns when none of this process's unanswered writes can be carried out any more; false if ctx was done before. The
// Controller that sent them and knew the blocks in them is gone. So everything must be read after that, and earlier reads are discarded.
//
// The server-side fence does not help here: such a write comes from the holder of the Lease.
func (c *Controller) waitWrites(ctx context.Context) bool {
	told := false
	err := wait.PollUntilContextCancel(ctx, fresh.Interval, true, func(ctx context.Context) (bool, error) {
		left := c.fence.Unanswered()
		if left <= 0 {
			return true, nil
		}
		c.nodesAsOf = ""
		c.health.WaitFor(health.Problem{What: "writes from before the controller started again, which got no answer and may still be carried out"})
		if !told {
			klog.FromContext(ctx).Info("Waiting until no write without an answer can be carried out any more", "controller", Name, "atMost", left)
			told = true
		}
		return false, nil
	})
	return err == nil
}

// leaveNothing is the last step of Run. It removes this Controller's handlers from shared informers, and empties its queues, whose length
// metrics the next Controller's queues continue.
func (c *Controller) leaveNothing() {
	for _, stop := range c.stopHearing {
		if err := stop(); err != nil {
			klog.Background().Error(err, "Cannot remove an event handler", "controller", Name)
		}
	}
	for _, l := range c.lines() {
		for {
			name, none := l.queue.Get()
			if none {
				break
			}
			l.queue.Done(name)
		}
	}
}

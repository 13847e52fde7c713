package nodeipam

import (
	"context"
	"fmt"

	"github.com/multicidr/controller-manager/controllers/nodeipam/fresh"
	"github.com/multicidr/controller-manager/controllers/nodeipam/health"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/klog/v2"
)

// What a panic leads to: this Controller decides nothing more, ends what it started, and returns from Run. Another one is built in its
// place, in the same process and under the same lease (package restart), and starts as a new leader does: from what the API server says.

// Err says why Run has returned, or is about to, before its context is done; nil if nothing has panicked.
func (c *Controller) Err() error {
	if panicked := c.health.Panicked(); panicked != nil {
		return fmt.Errorf("panic: %v", panicked)
	}
	return nil
}

// waitWrites returns when nothing can be carried out any more that this process has written and to which it got no answer; false if ctx was
// done before. The Controller that wrote it, and that knew which blocks it may have given, is gone. So whatever is to be known has to be read
// after that: what was read before is forgotten.
//
// The server-side fence does not help here: such a write comes from the holder of the lease.
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

// leaveNothing is the last that Run does: informers that others use do not call this Controller any more, and its queues are empty, for
// their lengths are metrics that the next Controller's queues go on with.
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

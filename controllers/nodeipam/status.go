package nodeipam

import (
	"context"
	"fmt"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	networkingv1 "github.com/multicidr/controller-manager/apis/networking/v1"
	"github.com/multicidr/controller-manager/controllers/nodeipam/allocator"
	"github.com/multicidr/controller-manager/controllers/nodeipam/conditions"
	"github.com/multicidr/controller-manager/controllers/nodeipam/events"
	"github.com/multicidr/controller-manager/controllers/nodeipam/health"
	"github.com/multicidr/controller-manager/controllers/nodeipam/requests"
	"github.com/multicidr/controller-manager/controllers/writes"
)

// statusInterval is the minimum time between two attempts to write one ClusterCIDR's status. Changes in between are combined in one write.
const statusInterval = time.Second

// statusPatience is how long a status write is delayed while Nodes are queued: under a request limit, each takes the place of a write of
// podCIDRs.
const statusPatience = 10 * time.Second

// syncStatus writes what the state says about a ClusterCIDR to its status, unless the status already says it.
func (c *Controller) syncStatus(ctx context.Context, name string) error {
	d, err := c.decideStatus(name)
	switch {
	case d.early > 0:
		return writes.Later(min(d.early, statusInterval/4)) // the queue of Nodes may be empty earlier
	case apierrors.IsNotFound(err):
		return nil
	case err != nil || !d.due:
		return err
	}

	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), writes.Timeout)
	defer cancel()
	if foreign := requests.ForeignStatus(d.cc, d.want); foreign != nil {
		err = c.api.PatchStatus(ctx, name, foreign)
	}
	var stored networkingv1.ClusterCIDRStatus
	if err == nil {
		stored, err = c.api.ApplyStatus(ctx, requests.StatusPatch(d.cc, d.want))
	}
	switch {
	case writes.NotThere(err):
		return writes.RefusedLater{Err: fmt.Errorf("apply status of ClusterCIDR %s: %w: %w", name, requests.ErrNoStatus, err)}
	case apierrors.IsConflict(err):
		// The object was replaced; or a webhook refused with that code.
		return writes.RefusedLater{Err: fmt.Errorf("apply status of ClusterCIDR %s: %w", name, err)}
	case err != nil:
		return fmt.Errorf("apply status of ClusterCIDR %s: %w", name, err)
	}
	c.health.Stored(health.WritesStatus)
	if !conditions.Shows(withoutTimes(stored), withoutTimes(d.want)) {
		return fmt.Errorf("status of ClusterCIDR %s: %w", name, requests.ErrNotKept)
	}
	return nil
}

// withoutTimes returns a status without transition times, because the API server truncates them to seconds.
func withoutTimes(status networkingv1.ClusterCIDRStatus) networkingv1.ClusterCIDRStatus {
	status.Conditions = slices.Clone(status.Conditions)
	for i := range status.Conditions {
		status.Conditions[i].LastTransitionTime = metav1.Time{}
	}
	return status
}

// statusDecision is what to do about a status.
type statusDecision struct {
	cc    *networkingv1.ClusterCIDR
	want  networkingv1.ClusterCIDRStatus
	due   bool          // the status must change
	early time.Duration // how much too early it is to write
}

// decideStatus compares a ClusterCIDR's status with what it should be.
func (c *Controller) decideStatus(name string) (d statusDecision, err error) {
	interval := statusInterval
	if c.nodeQueue.Len() > 0 {
		interval = statusPatience
	}
	c.with(func(b *allocator.State) {
		if d.early = interval - c.now().Sub(c.statusWritten[name]); d.early > 0 {
			return
		}
		delete(c.statusQueued, name) // later changes queue it again
		if d.cc, err = c.clusterCIDRs.Get(name); err != nil {
			return
		}
		known := false
		if d.want, known = b.Status(d.cc); !known {
			return
		}
		if reason := c.announcer.alarms.Enter(d.cc, d.want, b.InUse); reason != "" {
			c.announce(events.AboutClusterCIDR, name, reason)
		}
		if d.due = !conditions.Shows(d.cc.Status, d.want); d.due {
			c.statusWritten[name] = c.now()
		}
	})
	return d, err
}

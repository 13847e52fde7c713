package nodeipam

import (
	"context"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	metav1ac "k8s.io/client-go/applyconfigurations/meta/v1"

	applyv1 "github.com/multicidr/controller-manager/apis/generated/applyconfiguration/networking/v1"
	networkingv1 "github.com/multicidr/controller-manager/apis/networking/v1"
	"github.com/multicidr/controller-manager/controllers/nodeipam/allocator"
)

// statusInterval is the least time between two tries to write one ClusterCIDR's status. Changes in between go into one write.
const statusInterval = time.Second

// statusPatience is for how long a status stays as it is while Nodes are queued: under a limit of requests each write of a status is
// one of podCIDRs less.
const statusPatience = 10 * time.Second

// syncStatus writes what the state says of one ClusterCIDR into its status, unless that is there already.
func (c *Controller) syncStatus(ctx context.Context, name string) error {
	d, err := c.decideStatus(name)
	switch {
	case d.early > 0:
		return later(min(d.early, statusInterval/4)) // Nodes may be done before
	case apierrors.IsNotFound(err):
		return nil
	case err != nil || !d.due:
		return err
	}

	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), writeTimeout)
	defer cancel()
	if foreign := foreignStatus(d.cc, d.want); foreign != nil {
		err = c.api.patchStatus(ctx, name, foreign)
	}
	if err == nil {
		err = c.api.applyStatus(ctx, statusPatch(d.cc, d.want))
	}
	switch {
	case notThere(err), apierrors.IsConflict(err):
		// gone, or another one of that name; or a webhook refuses with that code
		return refusedLater{fmt.Errorf("apply status of ClusterCIDR %s: %w", name, err)}
	case err != nil:
		return fmt.Errorf("apply status of ClusterCIDR %s: %w", name, err)
	}
	c.health.stored(writesStatus)
	c.statusQueue.AddAfter(name, retryMax) // No event comes if an admission policy has changed it back.
	return c.appliedStatus(d.cc, d.want)
}

// statusDecision is what is to be done about a status.
type statusDecision struct {
	cc    *networkingv1.ClusterCIDR
	want  networkingv1.ClusterCIDRStatus
	due   bool          // it is another one than there is
	early time.Duration // by how much
}

// decideStatus looks at a ClusterCIDR and at what its status should be.
func (c *Controller) decideStatus(name string) (d statusDecision, err error) {
	interval := statusInterval
	if c.nodeQueue.Len() > 0 {
		interval = statusPatience
	}
	c.with(func(b *allocator.State) {
		if d.early = interval - c.now().Sub(c.statusWritten[name]); d.early > 0 {
			return
		}
		delete(c.statusQueued, name) // what changes from here on asks again
		if d.cc, err = c.clusterCIDRs.Get(name); err != nil {
			return
		}
		known := false
		if d.want, known = b.Status(d.cc); !known {
			return
		}
		c.alarmOf(b, d.cc, d.want)
		if d.due = !allocator.StatusShows(d.cc.Status, d.want); d.due {
			c.statusWritten[name] = c.now()
		} else {
			delete(c.statusApplied, name)
		}
	})
	return d, err
}

// appliedStatus notes that the API server has stored a status, as it says. It returns an error if the same was stored a while ago and does not show:
// somebody else may have changed it once, and the watch may be late, but not for long.
func (c *Controller) appliedStatus(cc *networkingv1.ClusterCIDR, status networkingv1.ClusterCIDRStatus) (err error) {
	status.Conditions = slices.Clone(status.Conditions)
	for i := range status.Conditions {
		status.Conditions[i].LastTransitionTime = metav1.Time{} // which is now, at each try, for a condition that does not show
	}
	c.with(func(*allocator.State) {
		last, ok := c.statusApplied[cc.Name]
		if !ok || last.uid != cc.UID || !equality.Semantic.DeepEqual(last.status, status) {
			c.statusApplied[cc.Name] = appliedStatus{cc.UID, status, c.now()}
		} else if c.now().Sub(last.at) >= expectationLasts {
			err = fmt.Errorf("status of ClusterCIDR %s: %w", cc.Name, errNotKept)
		}
	})
	return err
}

// appliedStatus is a status that the API server has stored, and since when it is the same.
type appliedStatus struct {
	uid    types.UID
	status networkingv1.ClusterCIDRStatus
	at     time.Time
}

// alarmOf hands over what there is to say about the state that a ClusterCIDR comes into. One that is deleted while no Node uses it needs nobody.
func (c *Controller) alarmOf(b *allocator.State, cc *networkingv1.ClusterCIDR, now networkingv1.ClusterCIDRStatus) {
	alarmOf := func(status networkingv1.ClusterCIDRStatus) (reason, message string) {
		ready := meta.FindStatusCondition(status.Conditions, networkingv1.ConditionReady)
		if ready == nil {
			return "", ""
		}
		return alarmReasons[ready.Reason], ready.Message
	}
	before, _ := alarmOf(cc.Status)
	reason, message := alarmOf(now)
	if reason == ReasonDeletionBlocked && !b.InUse(cc.Name) {
		reason = ""
	}
	c.alarmed(cc, before, reason, message)
}

// alarmReasons are the reasons of events, by those of the condition Ready that someone should look at.
var alarmReasons = map[string]string{
	networkingv1.ReasonExhausted:   ReasonExhausted,
	networkingv1.ReasonInvalid:     ReasonInvalid,
	networkingv1.ReasonTerminating: ReasonDeletionBlocked,
	networkingv1.ReasonPending:     ReasonFinalizerMissing,
}

// foreignStatus is the merge patch that removes what another writer has put into a status and that should not be there: a server-side apply
// removes only what its own field manager has set before. It is nil if there is nothing of that kind. A ClusterCIDR that has changed
// meanwhile is not patched.
func foreignStatus(cc *networkingv1.ClusterCIDR, want networkingv1.ClusterCIDRStatus) []byte {
	remove := map[string]any{} // null removes
	for field, is := range map[string][2]*networkingv1.RangeStatus{"ipv4": {cc.Status.IPv4, want.IPv4}, "ipv6": {cc.Status.IPv6, want.IPv6}} {
		switch now, want := is[0], is[1]; {
		case now == nil:
		case want == nil:
			remove[field] = nil
		case want.Cursor == "" && now.Cursor != "":
			remove[field] = map[string]any{"cursor": nil}
		}
	}
	if len(remove) == 0 {
		return nil
	}
	return encode(map[string]any{"metadata": map[string]any{"uid": cc.UID, "resourceVersion": cc.ResourceVersion}, "status": remove})
}

// statusPatch is the server-side apply of a status. The UID keeps it from another object of the same name.
func statusPatch(cc *networkingv1.ClusterCIDR, status networkingv1.ClusterCIDRStatus) *applyv1.ClusterCIDRApplyConfiguration {
	s := applyv1.ClusterCIDRStatus()
	for _, c := range status.Conditions {
		s.WithConditions(metav1ac.Condition().WithType(c.Type).WithStatus(c.Status).WithReason(c.Reason).WithMessage(c.Message).
			WithObservedGeneration(c.ObservedGeneration).WithLastTransitionTime(c.LastTransitionTime))
	}
	if status.IPv4 != nil {
		s.WithIPv4(rangePatch(status.IPv4))
	}
	if status.IPv6 != nil {
		s.WithIPv6(rangePatch(status.IPv6))
	}
	return applyv1.ClusterCIDR(cc.Name).WithUID(cc.UID).WithStatus(s)
}

func rangePatch(r *networkingv1.RangeStatus) *applyv1.RangeStatusApplyConfiguration {
	patch := applyv1.RangeStatus().WithCIDR(r.CIDR).WithBlockPrefixLength(r.BlockPrefixLength).
		WithTotal(r.Total).WithAllocated(r.Allocated).WithUnavailable(r.Unavailable).WithFree(r.Free)
	if r.Cursor != "" {
		patch.WithCursor(r.Cursor)
	}
	return patch
}

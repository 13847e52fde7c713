package nodeipam

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/klog/v2"

	networkingv1 "github.com/multicidr/controller-manager/apis/networking/v1"
	"github.com/multicidr/controller-manager/controllers/ipam"
	"github.com/multicidr/controller-manager/controllers/nodeipam/allocator"
	"github.com/multicidr/controller-manager/controllers/nodeipam/api"
	"github.com/multicidr/controller-manager/controllers/nodeipam/fromflags"
	"github.com/multicidr/controller-manager/controllers/nodeipam/health"
	"github.com/multicidr/controller-manager/controllers/writes"
)

const (
	// followFlags is the key for the ClusterCIDRs that the flags ask for. No ClusterCIDR has this name.
	followFlags = ""
	// statusInterval is the least time between two looks at one ClusterCIDR's status. Changes in between are one write.
	statusInterval = time.Second
)

// syncClusterCIDR keeps the finalizer and the status of one ClusterCIDR. A problem with one of them does not stop the other.
func (c *Controller) syncClusterCIDR(ctx context.Context, name string) error {
	if name == followFlags {
		err := c.followFlags(ctx)
		c.note(ctx, health.WritesClusterCIDR, fromflags.Prefix, err)
		return err
	}
	due := c.look(name)
	if due.object == nil {
		c.note(ctx, health.WritesClusterCIDR, name, nil)
		c.note(ctx, health.WritesStatus, name, nil)
		return nil
	}
	var finalizer, status error
	change := due.finalizer != slices.Contains(due.object.Finalizers, networkingv1.Finalizer)
	if change {
		finalizer = c.patchFinalizers(ctx, due.object, due.finalizer)
	}
	c.note(ctx, health.WritesClusterCIDR, name, finalizer)
	switch {
	case change && finalizer == nil && !due.finalizer:
		return nil // It goes, or its event comes.
	case due.early > 0 && finalizer == nil:
		return writes.Later(due.early)
	case due.early > 0 || !due.known:
		return finalizer
	}
	if !shows(due.object.Status, due.status) {
		status = wrote(due.object, "apply status", c.api.ApplyStatus(ctx, name, api.StatusPatch(due.object, due.status)))
	}
	c.note(ctx, health.WritesStatus, name, status)
	return errors.Join(finalizer, status)
}

// due is what a ClusterCIDR should have.
type due struct {
	object    *networkingv1.ClusterCIDR // as last shown; nil if it is gone
	finalizer bool
	early     time.Duration // until its status may be looked at again
	status    networkingv1.ClusterCIDRStatus
	known     bool // status is
}

// look compares a ClusterCIDR with the state, and writes events about what it finds.
func (c *Controller) look(name string) (d due) {
	c.with(func(s *allocator.State) {
		entry, ok := c.clusterCIDRs[name]
		if !ok {
			return
		}
		d.object, d.finalizer = entry.object, c.keepsFinalizer(s, entry.object)
		if d.early = statusInterval - time.Since(entry.looked); d.early > 0 {
			return
		}
		if d.status, d.known = s.Status(entry.object); d.known {
			entry.looked = time.Now()
			c.tellAlarm(s, entry.object, d.status)
		}
	})
	return d
}

// keepsFinalizer reports whether a ClusterCIDR should have the finalizer: until it is being deleted and no Node belongs to it. From the
// moment of its deletion nothing new is allocated from it. An invalid one gets none, and keeps one that it has.
func (c *Controller) keepsFinalizer(s *allocator.State, cc *networkingv1.ClusterCIDR) bool {
	has := slices.Contains(cc.Finalizers, networkingv1.Finalizer)
	if cc.DeletionTimestamp != nil {
		return has && s.InUse(cc.Name)
	}
	p, ok := s.Pool(cc.Name)
	return has || ok && p.State != ipam.Invalid
}

func (c *Controller) patchFinalizers(ctx context.Context, cc *networkingv1.ClusterCIDR, present bool) error {
	err := wrote(cc, "patch finalizers", c.api.PatchClusterCIDR(ctx, cc.Name, api.FinalizersPatch(cc, present)))
	if err == nil {
		klog.FromContext(ctx).Info("Updated finalizer", "clusterCIDR", klog.KObj(cc), "present", present)
	}
	return err
}

// wrote is what the answer to a write about a ClusterCIDR means.
func wrote(cc *networkingv1.ClusterCIDR, what string, err error) error {
	if err == nil {
		return nil
	}
	failed := fmt.Errorf("%s of ClusterCIDR %s: %w", what, cc.Name, err)
	if writes.NotThere(err) || apierrors.IsConflict(err) || errors.Is(err, api.ErrNoStatus) {
		// As a rule the object has changed since it was shown, and an event is coming. But a webhook can also refuse with these codes.
		return writes.RefusedLater{Err: failed}
	}
	return failed
}

// tellAlarm writes an event about a ClusterCIDR that enters a state that somebody should look at: its status does not say so yet.
func (c *Controller) tellAlarm(s *allocator.State, cc *networkingv1.ClusterCIDR, want networkingv1.ClusterCIDRStatus) {
	now := meta.FindStatusCondition(want.Conditions, networkingv1.ConditionReady)
	before := meta.FindStatusCondition(cc.Status.Conditions, networkingv1.ConditionReady)
	alarm := alarms[now.Reason]
	if alarm == "" || before != nil && before.Reason == now.Reason || alarm == ReasonDeletionBlocked && !s.InUse(cc.Name) {
		return
	}
	c.events.Warn(clusterCIDRReference(cc), alarm, now.Message)
}

// shows reports whether a status contains everything in want. What others wrote beside that stays theirs.
func shows(status, want networkingv1.ClusterCIDRStatus) bool {
	for _, w := range want.Conditions {
		if known := meta.FindStatusCondition(status.Conditions, w.Type); known == nil || !equality.Semantic.DeepEqual(*known, w) {
			return false
		}
	}
	return showsRange(status.IPv4, want.IPv4) && showsRange(status.IPv6, want.IPv6)
}

func showsRange(status, want *networkingv1.RangeStatus) bool {
	if want == nil || status == nil {
		return want == nil
	}
	is := *status
	is.Cursor = "" //nolint:staticcheck // An earlier version may have written one.
	return is == *want
}

// followFlags makes the ClusterCIDRs that were made from flags what the flags say now: semantics of package fromflags.
func (c *Controller) followFlags(ctx context.Context) error {
	var (
		all []*networkingv1.ClusterCIDR
		d   fromflags.Decision
	)
	c.with(func(s *allocator.State) {
		for _, name := range slices.Sorted(maps.Keys(c.clusterCIDRs)) {
			all = append(all, c.clusterCIDRs[name].object)
		}
		d = fromflags.Decide(c.FromFlags, all, s.InUse)
	})
	var errs []error
	for _, cc := range d.Create {
		errs = append(errs, c.createFromFlags(ctx, cc))
	}
	for _, cc := range all {
		switch {
		case slices.Contains(d.Enable, cc.Name):
			errs = append(errs, c.writeAllocation(ctx, cc, networkingv1.AllocationEnabled))
		case slices.Contains(d.Disable, cc.Name):
			errs = append(errs, c.writeAllocation(ctx, cc, networkingv1.AllocationDisabled))
		}
	}
	for _, name := range d.Otherwise {
		errs = append(errs, writes.RefusedLater{Err: fmt.Errorf("ClusterCIDR %s: %w", name, api.ErrStoredOtherwise)})
	}
	return errors.Join(errs...)
}

func (c *Controller) createFromFlags(ctx context.Context, cc *networkingv1.ClusterCIDR) error {
	err := c.api.CreateClusterCIDR(ctx, cc)
	if apierrors.IsAlreadyExists(err) {
		return writes.RefusedLater{Err: err} // Its event is coming.
	}
	if err != nil {
		return fmt.Errorf("create ClusterCIDR %s from the flags: %w", cc.Name, err)
	}
	klog.FromContext(ctx).Info("Created a ClusterCIDR from the flags", "clusterCIDR", klog.KObj(cc), "ipv4", cc.Spec.IPv4, "ipv6", cc.Spec.IPv6)
	return nil
}

// writeAllocation enables or disables a ClusterCIDR, and in the same write annotates that the controller did so.
func (c *Controller) writeAllocation(ctx context.Context, cc *networkingv1.ClusterCIDR, mode networkingv1.AllocationMode) error {
	err := wrote(cc, "patch allocation", c.api.PatchClusterCIDR(ctx, cc.Name, api.AllocationPatch(cc, mode)))
	if err == nil {
		klog.FromContext(ctx).Info("Followed the flags", "clusterCIDR", klog.KObj(cc), "allocation", mode)
		if why := fromflags.Superseded(cc, c.FromFlags); mode == networkingv1.AllocationDisabled && why != "" {
			c.events.Warn(clusterCIDRReference(cc), ReasonSuperseded, fromflags.Event(cc, why))
		}
	}
	return err
}

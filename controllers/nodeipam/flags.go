package nodeipam

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/klog/v2"

	networkingv1 "github.com/multicidr/controller-manager/apis/networking/v1"
	"github.com/multicidr/controller-manager/controllers/ipam"
	"github.com/multicidr/controller-manager/controllers/nodeipam/allocator"
	"github.com/multicidr/controller-manager/controllers/nodeipam/clustercidr"
	"github.com/multicidr/controller-manager/controllers/nodeipam/finalizers"
	"github.com/multicidr/controller-manager/controllers/nodeipam/fromflags"
	"github.com/multicidr/controller-manager/controllers/nodeipam/requests"
	"github.com/multicidr/controller-manager/controllers/queues"
	"github.com/multicidr/controller-manager/controllers/writes"
)

// followFlags ensures that exactly one enabled ClusterCIDR exists for the current flags. All others that were made from flags are
// superseded: they are disabled, and deleted once no Node uses them. If flags come back, their ClusterCIDR is enabled again, so processes
// with different flags can take turns as leader. A ClusterCIDR that a user deletes is created again, under another name if Nodes still keep
// the deleted one.
//
// It is called when the ClusterCIDR of this name was looked at. A problem with another ClusterCIDR is left to that one's own turn.
func (c *Controller) followFlags(ctx context.Context, name string) error {
	made, err := c.madeFromFlags()
	if err != nil {
		return err
	}
	live, goes := false, false
	own := turn{c: c, of: name}
	for _, cc := range made {
		switch {
		case c.otherwise(cc):
			// What changed this object would change the next one, too.
		case cc.DeletionTimestamp != nil:
			goes = goes || c.flagsSay(cc) && c.goesAtOnce(cc)
		case !live && c.flagsSay(cc):
			live = true
			own.note(cc.Name, c.reinstate(ctx, cc))
		default:
			own.note(cc.Name, c.retire(ctx, cc))
		}
	}
	if !live && !goes && c.flags != nil { // the name becomes free when the old one is gone, and then this is called again
		own.note(fromflags.NameOf(c.flags), c.makeFromFlags(ctx, made))
	}
	return firstFailed(own.errs...)
}

// madeFromFlags returns all ClusterCIDRs that were made from flags, oldest first.
func (c *Controller) madeFromFlags() ([]*networkingv1.ClusterCIDR, error) {
	made, err := c.clusterCIDRs.List(labels.SelectorFromSet(labels.Set{networkingv1.LabelCreatedFromFlags: "true"}))
	if err != nil {
		return nil, err
	}
	return fromflags.OldestFirst(made), nil
}

// turn collects the errors of one call of followFlags. A ClusterCIDR that cannot be written must not block the others, and an error of
// another ClusterCIDR belongs to that one's own turn.
type turn struct {
	c    *Controller
	of   string
	errs []error
}

func (t *turn) note(name string, err error) {
	var pause writes.Later
	switch {
	case err == nil:
	case name == t.of:
		t.errs = append(t.errs, err)
	case errors.As(err, &pause):
		t.c.clusterCIDRQueue.AddAfter(name, time.Duration(pause))
	default:
		t.c.clusterCIDRQueue.AddRateLimited(name)
	}
}

// otherwise reports whether this process created a ClusterCIDR that was not stored as it was sent.
func (c *Controller) otherwise(cc *networkingv1.ClusterCIDR) bool {
	uid, ok := c.storedOtherwise[cc.Name]
	return ok && uid == cc.UID && cc.DeletionTimestamp == nil
}

// makeFromFlags creates the ClusterCIDR of the flags, under the first free name.
func (c *Controller) makeFromFlags(ctx context.Context, made []*networkingv1.ClusterCIDR) error {
	name := fromflags.NameOf(c.flags)
	for i := 2; ; i++ {
		cc, err := c.clusterCIDRs.Get(name)
		switch {
		case apierrors.IsNotFound(err):
			return c.createFromFlags(ctx, name, made)
		case err != nil:
			return err
		case c.otherwise(cc):
			return fmt.Errorf("ClusterCIDR %s: %w", name, requests.ErrStoredOtherwise) // the next one would be, too
		case cc.DeletionTimestamp == nil && c.flagsSay(cc) && !fromflags.Disabled(cc):
			// An earlier attempt to create it succeeded, and showed only now. Or its label was removed: it still has the ranges of the
			// flags, and the next one would lose its label, too.
			return nil
		}
		name = fmt.Sprintf("%s-%d", fromflags.NameOf(c.flags), i)
	}
}

// goesAtOnce reports whether only this controller's finalizer keeps a ClusterCIDR that is being deleted, and only briefly.
func (c *Controller) goesAtOnce(cc *networkingv1.ClusterCIDR) (goes bool) {
	if since, ok := c.goesSince[cc.Name]; ok && since.uid == cc.UID && c.now().Sub(since.at) > finalizers.Patience {
		return false // A webhook or policy keeps it.
	}
	c.with(func(b *allocator.State) {
		goes = !b.InUse(cc.Name) && slices.Equal(cc.Finalizers, []string{networkingv1.Finalizer})
	})
	return goes
}

// flagsSay reports whether a ClusterCIDR has the ranges that this process's flags ask for.
func (c *Controller) flagsSay(cc *networkingv1.ClusterCIDR) bool {
	return fromflags.Fits(cc, c.flags)
}

// compile is clustercidr.CompileWith, except that a superseded ClusterCIDR is disabled even before that is written: at a start, podCIDRs
// are allocated before that. The caller holds entering.
func (c *Controller) compile(cc *networkingv1.ClusterCIDR) *clustercidr.Pool {
	p := clustercidr.CompileWith(cc, c.selectors)
	if !fromflags.Made(cc) || p.State == ipam.Terminating || p.State == ipam.Invalid {
		return p
	}
	if why := fromflags.Superseded(cc, c.flags); why != "" {
		p.Supersede(why)
	}
	return p
}

func (c *Controller) createFromFlags(ctx context.Context, name string, made []*networkingv1.ClusterCIDR) error {
	cc := fromflags.New(name, c.flags, made)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), writes.Timeout)
	defer cancel()
	stored, err := c.api.CreateClusterCIDR(ctx, cc)
	switch {
	case err == nil && (!fromflags.Made(stored) || !c.flagsSay(stored)):
		c.storedOtherwise[name] = stored.UID
		return fmt.Errorf("ClusterCIDR %s: %w", name, requests.ErrStoredOtherwise)
	case err == nil:
		delete(c.stays, name)
		klog.FromContext(ctx).Info("Created a ClusterCIDR from the flags", "clusterCIDR", klog.KObj(cc), "ipv4", cc.Spec.IPv4, "ipv6", cc.Spec.IPv6)
		c.clusterCIDRQueue.AddAfter(name, queues.RetryMax)
		return nil
	case apierrors.IsAlreadyExists(err):
		// The watch should show it soon. It does not if the object is gone before it was seen, for example after a restore of etcd, or if a
		// webhook gave this answer.
		said := &networkingv1.ClusterCIDR{ObjectMeta: metav1.ObjectMeta{Name: name}}
		if err := c.notAgain(said, created); err != nil {
			return err // Not the second time in a row, but the same one: the watch may be late.
		}
		if err := c.wroteInto(said, created); err != nil {
			return fmt.Errorf("create ClusterCIDR %s from the flags: the API server answers that it exists: %w", name, requests.ErrNotKept)
		}
		return nil
	default:
		return fmt.Errorf("create ClusterCIDR %s from the flags: %w", name, err)
	}
}

// retire disables a superseded ClusterCIDR, and deletes it once no Node uses it. It keeps one that a user has changed: if the flags came
// back, the new one would lack that change.
//
// It deletes only a ClusterCIDR that shows as disabled, at the resource version that it shows. A leader with matching flags enables the
// ClusterCIDR before it allocates from it, so a delayed deletion then fails.
func (c *Controller) retire(ctx context.Context, cc *networkingv1.ClusterCIDR) error {
	if cc.Spec.Allocation != networkingv1.AllocationDisabled {
		return c.writeAllocation(ctx, cc, networkingv1.AllocationDisabled)
	}
	inUse := true
	cc, p, err := c.lookAtClusterCIDR(cc.Name, func(b *allocator.State, cc *networkingv1.ClusterCIDR) {
		// The state knows that this one is disabled, so nothing is allocated from it any more.
		inUse = cc == nil || b.InUse(cc.Name) || c.waitsForUsers(cc.Name)
	})
	if err != nil || inUse || !p.Superseded || !fromflags.Disabled(cc) || fromflags.ChangedByUser(cc) {
		return err // called again when the last Node stops using it
	}
	return c.deleteSuperseded(ctx, cc)
}

// deleteSuperseded deletes a ClusterCIDR of other flags, as it was seen.
func (c *Controller) deleteSuperseded(ctx context.Context, cc *networkingv1.ClusterCIDR) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), writes.Timeout)
	defer cancel()
	err := c.api.DeleteClusterCIDR(ctx, cc.Name, cc.UID, cc.ResourceVersion)
	switch {
	case err == nil:
		klog.FromContext(ctx).Info("Deleting a ClusterCIDR of other flags, which no Node uses", "clusterCIDR", klog.KObj(cc))
		return nil
	case writes.NotThere(err), apierrors.IsConflict(err):
		// As a rule the object has changed since it was cached, and an event is coming; or a webhook refused with that code.
		return writes.RefusedLater{Err: fmt.Errorf("delete ClusterCIDR %s: %w", cc.Name, err)}
	case c.flags == nil && apierrors.IsForbidden(err):
		// Without the flag the controller need not have this permission. The object does no harm, and no Node waits.
		klog.FromContext(ctx).Info("A ClusterCIDR that was made from --cluster-cidr stays, disabled: the controller may not delete ClusterCIDRs. Delete it with kubectl", "clusterCIDR", klog.KObj(cc))
		return nil
	default:
		return fmt.Errorf("delete ClusterCIDR %s: %w", cc.Name, err)
	}
}

// reinstate enables the ClusterCIDR of the flags if the controller had disabled it. One that a user disabled stays disabled.
func (c *Controller) reinstate(ctx context.Context, cc *networkingv1.ClusterCIDR) error {
	if _, annotated := cc.Annotations[networkingv1.AnnotationSuperseded]; !annotated {
		return nil
	}
	return c.writeAllocation(ctx, cc, networkingv1.AllocationEnabled)
}

// writeAllocation enables or disables a ClusterCIDR, and in the same write annotates that the controller did so.
func (c *Controller) writeAllocation(ctx context.Context, cc *networkingv1.ClusterCIDR, mode networkingv1.AllocationMode) error {
	if err := c.notAgain(cc, string(mode)); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), writes.Timeout)
	defer cancel()
	err := c.api.PatchClusterCIDR(ctx, cc.Name, requests.AllocationPatch(cc, mode))
	switch {
	case err == nil:
		klog.FromContext(ctx).Info("Followed the flags", "clusterCIDR", klog.KObj(cc), "allocation", mode)
		return c.wroteInto(cc, string(mode))
	case writes.NotThere(err), apierrors.IsConflict(err):
		// As a rule the object has changed since it was cached, and an event is coming; or a webhook refused with that code.
		return writes.RefusedLater{Err: fmt.Errorf("patch allocation of ClusterCIDR %s: %w", cc.Name, err)}
	default:
		return fmt.Errorf("patch allocation of ClusterCIDR %s: %w", cc.Name, err)
	}
}

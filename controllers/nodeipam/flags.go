package nodeipam

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/klog/v2"

	networkingv1 "github.com/multicidr/controller-manager/apis/networking/v1"
	"github.com/multicidr/controller-manager/controllers/ipam"
	"github.com/multicidr/controller-manager/controllers/nodeipam/allocator"
	"github.com/multicidr/controller-manager/controllers/nodeipam/clustercidr"
	"github.com/multicidr/controller-manager/controllers/nodeipam/fromflags"
	"github.com/multicidr/controller-manager/controllers/nodeipam/queues"
	"github.com/multicidr/controller-manager/controllers/nodeipam/requests"
)

// followFlags sees to it that there is one enabled ClusterCIDR for what the flags say now. All others that were made from flags are
// superseded: they are disabled, and deleted once no Node uses them. Flags that come back enable theirs again, so processes with
// different flags can take turns to lead. A ClusterCIDR that a user deletes is made again, and if Nodes keep the deleted one a while,
// under another name.
//
// It is called when a ClusterCIDR of some name was looked at. What is wrong with another one is left to that one's own turn.
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
			// What keeps it from being right would do the same to the next one.
		case cc.DeletionTimestamp != nil:
			goes = goes || c.flagsSay(cc) && c.goesAtOnce(cc)
		case !live && c.flagsSay(cc):
			live = true
			own.note(cc.Name, c.reinstate(ctx, cc))
		default:
			own.note(cc.Name, c.retire(ctx, cc))
		}
	}
	if !live && !goes && c.flags != nil { // what goes leaves its name, and then this is called again
		own.note(fromflags.NameOf(c.flags), c.makeFromFlags(ctx, made))
	}
	return firstFailed(own.errs...)
}

// madeFromFlags returns all ClusterCIDRs that were made from flags, the oldest one first. A try to create one may be carried out after a later one, so
// there can be two for the same flags. Everybody keeps the same.
func (c *Controller) madeFromFlags() ([]*networkingv1.ClusterCIDR, error) {
	made, err := c.clusterCIDRs.List(labels.SelectorFromSet(labels.Set{networkingv1.LabelCreatedFromFlags: "true"}))
	if err != nil {
		return nil, err
	}
	made = slices.DeleteFunc(made, func(cc *networkingv1.ClusterCIDR) bool { return !fromflags.Made(cc) })
	slices.SortFunc(made, func(a, b *networkingv1.ClusterCIDR) int {
		return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), strings.Compare(a.Name, b.Name))
	})
	return made, nil
}

// turn collects what went wrong when a ClusterCIDR was looked at. One that cannot be written must not keep the others from it, and what is wrong with
// another one belongs to that one's own turn.
type turn struct {
	c    *Controller
	of   string
	errs []error
}

func (t *turn) note(name string, err error) {
	var pause requests.Later
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

// otherwise reports whether a ClusterCIDR was created here and not stored as it was sent.
func (c *Controller) otherwise(cc *networkingv1.ClusterCIDR) bool {
	uid, ok := c.storedOtherwise[cc.Name]
	return ok && uid == cc.UID && cc.DeletionTimestamp == nil
}

// makeFromFlags creates the ClusterCIDR of the flags, under the first name that is free.
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
			return fmt.Errorf("ClusterCIDR %s: %w", name, requests.ErrStoredOtherwise) // as would be the next one
		case cc.DeletionTimestamp == nil && c.flagsSay(cc) && !fromflags.Disabled(cc):
			// An earlier try to create it was not in vain, and showed while others were being looked at. Or somebody has taken its label away: it has the ranges
			// of the flags all the same, and the next one would lose its label, too.
			return nil
		}
		name = fmt.Sprintf("%s-%d", fromflags.NameOf(c.flags), i)
	}
}

// goesAtOnce reports whether nothing but us keeps a ClusterCIDR that is being deleted, and we do not for long.
func (c *Controller) goesAtOnce(cc *networkingv1.ClusterCIDR) (goes bool) {
	if since, ok := c.goesSince[cc.Name]; ok && since.uid == cc.UID && c.now().Sub(since.at) > finalizerPatience {
		return false // A webhook or policy does not let it go.
	}
	c.with(func(b *allocator.State) {
		goes = !b.InUse(cc.Name) && slices.Equal(cc.Finalizers, []string{networkingv1.Finalizer})
	})
	return goes
}

// flagsSay reports whether the flags of this process stand for the ranges of a ClusterCIDR.
func (c *Controller) flagsSay(cc *networkingv1.ClusterCIDR) bool {
	return c.flags != nil && clustercidr.SameRanges(cc.Spec, *c.flags)
}

// compile is the function of that name, save that a superseded ClusterCIDR is disabled, also before it is written: at a start Nodes are
// served before that. The caller holds entering.
func (c *Controller) compile(cc *networkingv1.ClusterCIDR) *clustercidr.Pool {
	p := clustercidr.CompileWith(cc, c.selectors)
	if !fromflags.Made(cc) || p.State == ipam.Terminating || p.State == ipam.Invalid {
		return p
	}
	switch {
	case c.flags == nil:
		p.Supersede("it was made from flags, and the controller has no such flags now")
	case !c.flagsSay(cc):
		p.Supersede("it was made from flags, which now name another range or block size")
	case fromflags.Disabled(cc): // Also one that is about to be enabled again, for a moment.
		p.Supersede("it was made from flags, for which there is another ClusterCIDR")
	}
	return p
}

func (c *Controller) createFromFlags(ctx context.Context, name string, made []*networkingv1.ClusterCIDR) error {
	cc := &networkingv1.ClusterCIDR{
		ObjectMeta: metav1.ObjectMeta{
			Name:       name,
			Labels:     map[string]string{networkingv1.LabelCreatedFromFlags: "true"},
			Finalizers: []string{networkingv1.Finalizer},
		},
		Spec: *c.flags.DeepCopy(),
	}
	cc.Spec.ExcludedCIDRs = fromflags.ExcludedBefore(made, *c.flags)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), requests.Timeout)
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
		// The watch is about to tell. It does not if the object goes before it was seen, when etcd is restored for one; or if a webhook answers so.
		if err := c.wroteInto(&networkingv1.ClusterCIDR{ObjectMeta: metav1.ObjectMeta{Name: name}}, created); err != nil {
			return fmt.Errorf("create ClusterCIDR %s from the flags: the API server answers that it exists: %w", name, requests.ErrNotKept)
		}
		return nil
	default:
		return fmt.Errorf("create ClusterCIDR %s from the flags: %w", name, err)
	}
}

// retire disables a superseded ClusterCIDR, and deletes it once no Node uses it, unless a user has changed it: if the flags came back, it
// would be made again without the change.
//
// Only one that shows that it is disabled is deleted, and as it shows: a leader with its flags enables it before it gives a block of it,
// and then a deletion that arrives late misses.
func (c *Controller) retire(ctx context.Context, cc *networkingv1.ClusterCIDR) error {
	if cc.Spec.Allocation != networkingv1.AllocationDisabled {
		return c.writeAllocation(ctx, cc, networkingv1.AllocationDisabled)
	}
	inUse := true
	cc, p, err := c.lookAtClusterCIDR(cc.Name, func(b *allocator.State, cc *networkingv1.ClusterCIDR) {
		// What is deleted is what the state knows to be disabled: from here on nothing is given from it.
		inUse = cc == nil || b.InUse(cc.Name)
	})
	if err != nil || inUse || !p.Superseded || !fromflags.Disabled(cc) || fromflags.ChangedByUser(cc) {
		return err // whoever stops to use it calls for this again
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), requests.Timeout)
	defer cancel()
	err = c.api.DeleteClusterCIDR(ctx, cc.Name, cc.UID, cc.ResourceVersion)
	switch {
	case err == nil:
		klog.FromContext(ctx).Info("Deleting a ClusterCIDR of other flags, which no Node uses", "clusterCIDR", klog.KObj(cc))
		return nil
	case requests.NotThere(err), apierrors.IsConflict(err):
		// It has changed since it was cached, and that event comes; or a webhook refuses with that code.
		return requests.RefusedLater{Err: fmt.Errorf("delete ClusterCIDR %s: %w", cc.Name, err)}
	case c.flags == nil && apierrors.IsForbidden(err):
		// Without the flag the controller need not be allowed to. It harms nobody, and there is nobody who waits.
		klog.FromContext(ctx).Info("A ClusterCIDR that was made from --cluster-cidr stays, disabled: the controller may not delete ClusterCIDRs. Delete it with kubectl", "clusterCIDR", klog.KObj(cc))
		return nil
	default:
		return fmt.Errorf("delete ClusterCIDR %s: %w", cc.Name, err)
	}
}

// reinstate enables the ClusterCIDR of the flags if the controller had disabled it. What a user has disabled stays so.
func (c *Controller) reinstate(ctx context.Context, cc *networkingv1.ClusterCIDR) error {
	if _, annotated := cc.Annotations[networkingv1.AnnotationSuperseded]; !annotated {
		return nil
	}
	return c.writeAllocation(ctx, cc, networkingv1.AllocationEnabled)
}

// writeAllocation enables or disables a ClusterCIDR, and notes on it, in the same write, that the controller did.
func (c *Controller) writeAllocation(ctx context.Context, cc *networkingv1.ClusterCIDR, mode networkingv1.AllocationMode) error {
	if err := c.notAgain(cc, string(mode)); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), requests.Timeout)
	defer cancel()
	err := c.api.PatchClusterCIDR(ctx, cc.Name, requests.AllocationPatch(cc, mode))
	switch {
	case err == nil:
		klog.FromContext(ctx).Info("Followed the flags", "clusterCIDR", klog.KObj(cc), "allocation", mode)
		return c.wroteInto(cc, string(mode))
	case requests.NotThere(err), apierrors.IsConflict(err):
		// It has changed since it was cached, and that event comes; or a webhook refuses with that code.
		return requests.RefusedLater{Err: fmt.Errorf("patch allocation of ClusterCIDR %s: %w", cc.Name, err)}
	default:
		return fmt.Errorf("patch allocation of ClusterCIDR %s: %w", cc.Name, err)
	}
}

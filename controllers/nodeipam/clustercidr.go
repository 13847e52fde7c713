package nodeipam

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/klog/v2"

	networkingv1 "github.com/multicidr/controller-manager/apis/networking/v1"
	"github.com/multicidr/controller-manager/controllers/ipam"
	"github.com/multicidr/controller-manager/controllers/nodeipam/allocator"
	"github.com/multicidr/controller-manager/controllers/nodeipam/clustercidr"
	"github.com/multicidr/controller-manager/controllers/nodeipam/fromflags"
	"github.com/multicidr/controller-manager/controllers/nodeipam/health"
	"github.com/multicidr/controller-manager/controllers/nodeipam/requests"
	"github.com/multicidr/controller-manager/controllers/queues"
	"github.com/multicidr/controller-manager/controllers/writes"
)

// syncClusterCIDR records one ClusterCIDR in the state and maintains its finalizer. The finalizer is added before the first block is
// allocated. It is removed if, and only if, the object is being deleted and no Node belongs to it.
func (c *Controller) syncClusterCIDR(ctx context.Context, name string) error {
	var (
		cc     *networkingv1.ClusterCIDR
		p      *clustercidr.Pool
		inUse  bool
		urgent bool          // Nodes wait for a ClusterCIDR that is behind this one in the queue, and none waits for this one
		pause  time.Duration // until its finalizer is tried again
		err    error
	)
	cc, _, err = c.lookAtClusterCIDR(name, func(b *allocator.State, cc *networkingv1.ClusterCIDR) {
		known, _ := b.Pool(name)
		if urgent = c.nodesAwait(b) && (cc == nil || known.State == ipam.Terminating); urgent {
			b.PutOff(name)
		}
		if cc != nil {
			inUse = b.InUse(name) || known.State == ipam.Terminating && c.waitsForUsers(name)
			b.RecheckStatus(name) // a delayed status write may have undone a newer one
			p, pause = c.judgeFinalizer(b, known)
		}
	})
	switch {
	case err != nil:
		return err
	case urgent:
		return writes.Later(queues.ClosedRetry) // A write may take seconds.
	case cc == nil:
		if c.stays[name].what != created {
			delete(c.stays, name)
		}
		delete(c.goesSince, name)
		return c.followFlags(ctx, name)
	}

	err = c.keepFinalizer(ctx, cc, p, inUse, pause)
	if strings.HasPrefix(name, fromflags.Prefix) { // with or without the label, which may have been removed
		err = firstFailed(err, c.followFlags(ctx, name)) // One that cannot be deleted must not keep another from being created.
	}
	return err
}

// keepFinalizer adds or removes the finalizer if needed. pause is the time until it may be added again.
func (c *Controller) keepFinalizer(ctx context.Context, cc *networkingv1.ClusterCIDR, p *clustercidr.Pool, inUse bool, pause time.Duration) error {
	finalized := slices.Contains(cc.Finalizers, networkingv1.Finalizer)
	switch {
	case p.State == ipam.Terminating && finalized && !inUse:
		// Since SetPool, nothing is allocated from p any more. So if it was not in use then, it stays so.
		return c.letGo(ctx, cc)
	case pause > 0:
		return writes.Later(pause) // and the outcome of the last attempt stays as it is
	case p.State != ipam.Terminating && p.State != ipam.Invalid && !finalized:
		stored, err := c.patchFinalizers(ctx, cc, true)
		tried := err
		if errors.As(err, new(writes.RefusedLater)) {
			tried = nil // An event is coming. If it does not, judgeFinalizer gives up.
		}
		c.triedFinalizer(p, stored, tried)
		if stored && p.Cause == clustercidr.CauseNotKept {
			return fmt.Errorf("finalizer of ClusterCIDR %s: %w", cc.Name, requests.ErrNotKept)
		}
		return err
	}
	return nil
}

// firstFailed joins errors. If anything failed, it leaves out what was only postponed, because that is retried together with the failure.
func firstFailed(errs ...error) error {
	failed := slices.DeleteFunc(slices.Clone(errs), func(err error) bool { return err == nil || errors.As(err, new(writes.Later)) })
	if len(failed) > 0 {
		errs = failed
	}
	return errors.Join(errs...)
}

// nodesAwait reports whether a Node waits for the finalizer of a ClusterCIDR.
func (c *Controller) nodesAwait(b *allocator.State) bool {
	for name := range b.AwaitingFinalizer() {
		if _, awaited := c.awaited[name]; awaited {
			return true
		}
	}
	return false
}

// letGo removes the controller's finalizer.
func (c *Controller) letGo(ctx context.Context, cc *networkingv1.ClusterCIDR) error {
	const what = "without finalizer"
	if err := c.notAgain(cc, what); err != nil {
		return err
	}
	if since, ok := c.goesSince[cc.Name]; !ok || since.uid != cc.UID {
		c.goesSince[cc.Name] = lastWrite{uid: cc.UID, at: c.now()}
	}
	if _, err := c.patchFinalizers(ctx, cc, false); err != nil {
		return err
	}
	return c.wroteInto(cc, what)
}

// created is the last write to a ClusterCIDR that the cache does not show.
const created = "created"

// lastWrite is a write to a ClusterCIDR that the API server has confirmed.
type lastWrite struct {
	uid  types.UID
	what string
	at   time.Time
}

// notAgain postpones a write that was carried out a moment ago: something undoes it, such as another process with other flags, perhaps at
// every event.
func (c *Controller) notAgain(cc *networkingv1.ClusterCIDR, what string) error {
	last := c.stays[cc.Name]
	if left := last.at.Add(queues.RetryMax).Sub(c.now()); last.uid == cc.UID && last.what == what && left > 0 {
		return writes.Later(left)
	}
	return nil
}

// wroteInto notes a confirmed write and schedules a recheck, because no event comes if an admission policy left the change out. It returns
// an error if this is the second such write in a row.
func (c *Controller) wroteInto(cc *networkingv1.ClusterCIDR, what string) error {
	last := c.stays[cc.Name]
	c.stays[cc.Name] = lastWrite{cc.UID, what, c.now()}
	c.clusterCIDRQueue.AddAfter(cc.Name, queues.RetryMax)
	if last.uid == cc.UID && last.what == what && c.now().Sub(last.at) < 2*queues.RetryMax {
		return fmt.Errorf("ClusterCIDR %s: %w", cc.Name, requests.ErrNotKept)
	}
	return nil
}

// lookAtClusterCIDR records in the state what the cache now shows of a ClusterCIDR, and returns it and its pool; nil if it does not exist.
// also is called with it while the lock on the state is held.
func (c *Controller) lookAtClusterCIDR(name string, also func(*allocator.State, *networkingv1.ClusterCIDR)) (*networkingv1.ClusterCIDR, *clustercidr.Pool, error) {
	c.entering.Lock()
	defer c.entering.Unlock()
	return c.enterClusterCIDR(name, also)
}

// enterClusterCIDR is lookAtClusterCIDR for a caller that holds entering. That lock ensures that the state never goes back to an older
// version, while the state itself stays unlocked during the compilation, which may take a second.
func (c *Controller) enterClusterCIDR(name string, also func(*allocator.State, *networkingv1.ClusterCIDR)) (*networkingv1.ClusterCIDR, *clustercidr.Pool, error) {
	cc, err := c.clusterCIDRs.Get(name)
	switch {
	case apierrors.IsNotFound(err):
		delete(c.selectors, name)
		c.with(func(b *allocator.State) {
			b.DropPool(name)
			delete(c.statusWritten, name)
			delete(c.finalizerTries, name)
			delete(c.awaited, name)
			delete(c.announcer.alarms, name)
			also(b, nil)
		})
		return nil, nil, nil
	case err != nil:
		return nil, nil, err
	}
	p := c.compile(cc)
	c.with(func(b *allocator.State) {
		old, known := b.Pool(name)
		same := known && old.ID == p.ID
		if !same {
			delete(c.finalizerTries, name)
		}
		c.finalizerTries.Saw(name, slices.Contains(cc.Finalizers, networkingv1.Finalizer), c.now())
		if p = b.SetPool(p); !same || !p.AwaitsFinalizer() {
			delete(c.awaited, name)
		}
		also(b, cc)
	})
	return cc, p, nil
}

// heardOfClusterCIDR is called by the informer for each event. So a disabled or deleted ClusterCIDR stops allocating at once, even while
// the worker waits for a write to be answered.
func (c *Controller) heardOfClusterCIDR(name string) {
	err := func() error {
		c.entering.Lock()
		defer c.entering.Unlock()
		if !c.filled.Load() {
			return nil // fill holds entering while it reads the cache
		}
		_, _, err := c.enterClusterCIDR(name, func(*allocator.State, *networkingv1.ClusterCIDR) {})
		return err
	}()
	if err != nil {
		utilruntime.HandleError(err) // the worker will get it again
	}
	c.clusterCIDRQueue.Add(name)
}

// patchFinalizers adds or removes the controller's finalizer. It reports whether the API server confirmed that.
func (c *Controller) patchFinalizers(ctx context.Context, cc *networkingv1.ClusterCIDR, present bool) (stored bool, err error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), writes.Timeout)
	defer cancel()
	err = c.api.PatchClusterCIDR(ctx, cc.Name, requests.FinalizersPatch(cc, present))
	switch {
	case err == nil:
		c.health.Stored(health.WritesClusterCIDR)
		klog.FromContext(ctx).Info("Updated finalizer", "clusterCIDR", klog.KObj(cc), "present", present)
		return true, nil
	case writes.NotThere(err), apierrors.IsConflict(err):
		// As a rule the object has changed since it was cached, and an event is coming. But a webhook can also refuse with these codes.
		return false, writes.RefusedLater{Err: fmt.Errorf("patch finalizers of ClusterCIDR %s: %w", cc.Name, err)}
	default:
		return false, fmt.Errorf("patch finalizers of ClusterCIDR %s: %w", cc.Name, err)
	}
}

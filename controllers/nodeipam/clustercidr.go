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
	"github.com/multicidr/controller-manager/controllers/nodeipam/queues"
	"github.com/multicidr/controller-manager/controllers/nodeipam/requests"
)

// syncClusterCIDR enters one ClusterCIDR in the state and keeps its finalizer: there before the first block is given,
// gone when, and only when, the object is being deleted and no Node belongs to it.
func (c *Controller) syncClusterCIDR(ctx context.Context, name string) error {
	var (
		cc     *networkingv1.ClusterCIDR
		p      *clustercidr.Pool
		inUse  bool
		urgent bool          // Nodes wait for a ClusterCIDR that is behind this one in the queue, and nobody for this one
		pause  time.Duration // until its finalizer is tried again
		err    error
	)
	cc, _, err = c.lookAtClusterCIDR(name, func(b *allocator.State, cc *networkingv1.ClusterCIDR) {
		known, _ := b.Pool(name)
		if urgent = c.nodesAwait(b) && (cc == nil || known.State == ipam.Terminating); urgent {
			b.PutOff(name)
		}
		if cc != nil {
			inUse = b.InUse(name)
			b.RecheckStatus(name) // a write of its status that came late may have undone a newer one
			p, pause = c.judgeFinalizer(b, known)
		}
	})
	switch {
	case err != nil:
		return err
	case urgent:
		return requests.Later(queues.ClosedRetry) // A write may take seconds.
	case cc == nil:
		if c.stays[name].what != created {
			delete(c.stays, name)
		}
		delete(c.goesSince, name)
		return c.followFlags(ctx, name)
	}

	err = c.keepFinalizer(ctx, cc, p, inUse, pause)
	if strings.HasPrefix(name, fromflags.Prefix) { // whatever its label: it may have had another one before
		err = firstFailed(err, c.followFlags(ctx, name)) // One that cannot go does not keep another one from being made.
	}
	return err
}

// keepFinalizer adds or takes away the finalizer, if it has to. pause is until it is added again.
func (c *Controller) keepFinalizer(ctx context.Context, cc *networkingv1.ClusterCIDR, p *clustercidr.Pool, inUse bool, pause time.Duration) error {
	finalized := slices.Contains(cc.Finalizers, networkingv1.Finalizer)
	switch {
	case p.State == ipam.Terminating && finalized && !inUse:
		// From setPool on nothing is given from p any more, so what was not in use then stays so.
		return c.letGo(ctx, cc)
	case pause > 0:
		return requests.Later(pause) // and what is known of the last try stays so
	case p.State != ipam.Terminating && p.State != ipam.Invalid && !finalized:
		stored, err := c.patchFinalizers(ctx, cc, true)
		tried := err
		if errors.As(err, new(requests.RefusedLater)) {
			tried = nil // The event comes. If it does not, judgeFinalizer ends it.
		}
		c.triedFinalizer(p, stored, tried)
		if stored && p.Cause == clustercidr.CauseNotKept {
			return fmt.Errorf("finalizer of ClusterCIDR %s: %w", cc.Name, requests.ErrNotKept)
		}
		return err
	}
	return nil
}

// firstFailed joins errors. What was put off comes again with what has failed.
func firstFailed(errs ...error) error {
	failed := slices.DeleteFunc(slices.Clone(errs), func(err error) bool { return err == nil || errors.As(err, new(requests.Later)) })
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

// letGo takes our finalizer away.
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

// created is what was written last into a ClusterCIDR that the cache does not show.
const created = "created"

// lastWrite is what the API server has said to have stored in a ClusterCIDR.
type lastWrite struct {
	uid  types.UID
	what string
	at   time.Time
}

// notAgain puts a write off that was carried out a moment ago: somebody undoes it, another process with other flags for one, and maybe at each
// event.
func (c *Controller) notAgain(cc *networkingv1.ClusterCIDR, what string) error {
	last := c.stays[cc.Name]
	if left := last.at.Add(queues.RetryMax).Sub(c.now()); last.uid == cc.UID && last.what == what && left > 0 {
		return requests.Later(left)
	}
	return nil
}

// wroteInto notes a write that was carried out, and that it is looked at again: no event comes if an admission policy has left it out. It returns an
// error if it is the second such write in a row.
func (c *Controller) wroteInto(cc *networkingv1.ClusterCIDR, what string) error {
	last := c.stays[cc.Name]
	c.stays[cc.Name] = lastWrite{cc.UID, what, c.now()}
	c.clusterCIDRQueue.AddAfter(cc.Name, queues.RetryMax)
	if last.uid == cc.UID && last.what == what && c.now().Sub(last.at) < 2*queues.RetryMax {
		return fmt.Errorf("ClusterCIDR %s: %w", cc.Name, requests.ErrNotKept)
	}
	return nil
}

// lookAtClusterCIDR enters in the state what the cache shows of a ClusterCIDR now, and returns it and its pool; nil if there is none. also is
// called with it while the state is held.
func (c *Controller) lookAtClusterCIDR(name string, also func(*allocator.State, *networkingv1.ClusterCIDR)) (*networkingv1.ClusterCIDR, *clustercidr.Pool, error) {
	c.entering.Lock()
	defer c.entering.Unlock()
	return c.enterClusterCIDR(name, also)
}

// enterClusterCIDR is lookAtClusterCIDR for a caller that holds entering. So what is entered never gets older, and yet the state is free while
// the object is compiled, which may take a second.
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
			delete(c.announcer.clusterCIDRs, name)
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
		c.sawFinalizer(name, slices.Contains(cc.Finalizers, networkingv1.Finalizer))
		if p = b.SetPool(p); !same || !p.AwaitsFinalizer() {
			delete(c.awaited, name)
		}
		also(b, cc)
	})
	return cc, p, nil
}

// heardOfClusterCIDR is called by the informer, event by event: what is disabled or deleted stops to give at once, also while the worker
// waits for the answer of a write.
func (c *Controller) heardOfClusterCIDR(name string) {
	err := func() error {
		c.entering.Lock()
		defer c.entering.Unlock()
		if !c.filled.Load() {
			return nil // fill reads the cache, and holds entering meanwhile
		}
		_, _, err := c.enterClusterCIDR(name, func(*allocator.State, *networkingv1.ClusterCIDR) {})
		return err
	}()
	if err != nil {
		utilruntime.HandleError(err) // its worker will have it again
	}
	c.clusterCIDRQueue.Add(name)
}

// patchFinalizers adds or takes away our finalizer. It reports whether the API server says that it did.
func (c *Controller) patchFinalizers(ctx context.Context, cc *networkingv1.ClusterCIDR, present bool) (stored bool, err error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), requests.Timeout)
	defer cancel()
	err = c.api.PatchClusterCIDR(ctx, cc.Name, requests.FinalizersPatch(cc, present))
	switch {
	case err == nil:
		c.health.Stored(health.WritesClusterCIDR)
		klog.FromContext(ctx).Info("Updated finalizer", "clusterCIDR", klog.KObj(cc), "present", present)
		return true, nil
	case requests.NotThere(err), apierrors.IsConflict(err):
		// It has changed since it was cached, and that event comes; but a webhook can refuse with these codes as well.
		return false, requests.RefusedLater{Err: fmt.Errorf("patch finalizers of ClusterCIDR %s: %w", cc.Name, err)}
	default:
		return false, fmt.Errorf("patch finalizers of ClusterCIDR %s: %w", cc.Name, err)
	}
}

package nodeipam

import (
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	networkingv1 "github.com/multicidr/controller-manager/apis/networking/v1"
	"github.com/multicidr/controller-manager/controllers/ipam"
	"github.com/multicidr/controller-manager/controllers/nodeipam/allocator"
	"github.com/multicidr/controller-manager/controllers/nodeipam/clustercidr"
	"github.com/multicidr/controller-manager/controllers/nodeipam/queues"
	"github.com/multicidr/controller-manager/controllers/nodeipam/requests"
	"github.com/multicidr/controller-manager/controllers/nodeipam/text"
)

// A ClusterCIDR allocates once it has its finalizer. Nodes that match it wait for that, for it takes milliseconds, and a block of the next
// ClusterCIDR would be theirs for ever. But not everything that is written stays: a mutating webhook or policy can answer 200 and leave the
// finalizer out, and a pipeline can put back the object without it. Then no event comes that anybody could wait for.

// finalizerPatience is for how long Nodes wait for a ClusterCIDR after the first try to add its finalizer. It is as long as a write may
// take: one that hangs lets the Nodes go on after the same time.
const finalizerPatience = requests.Timeout

// untriedPatience is for how long a Node waits for a ClusterCIDR whose finalizer was not tried yet: one write before it may hang.
const untriedPatience = requests.Timeout + time.Second

// causeNotTried is the cause of a pool's problem if other ClusterCIDRs' finalizers get no answer.
const causeNotTried metav1.StatusReason = "FinalizerNotTried"

// finalizerTries are the tries to add the finalizer to a ClusterCIDR that does not show it, or has not for long.
type finalizerTries struct {
	first time.Time // that the API server has answered, and not with an error
	last  time.Time // that it says it has stored
	shown time.Time // when the finalizer was there afterwards; the zero value if it is not
	lost  bool      // it was there and went
}

// sawFinalizer notes whether a ClusterCIDR shows the finalizer. One that loses it again at once has somebody who takes it away; whoever answered that with
// another try each time would never stop. The caller holds the state.
func (c *Controller) sawFinalizer(name string, finalized bool) {
	tries, ok := c.finalizerTries[name]
	switch stays := !tries.shown.IsZero(); {
	case !ok:
	case stays && c.now().Sub(tries.shown) >= queues.RetryMax:
		delete(c.finalizerTries, name)
	case finalized && !stays:
		tries.shown = c.now()
		c.finalizerTries[name] = tries
	case !finalized && stays:
		tries.shown, tries.lost = time.Time{}, true
		c.finalizerTries[name] = tries
	}
}

// judgeFinalizer gives up a pool whose finalizer is not there for long though it was added. It returns the pool as it is then, and for how
// long its finalizer is not to be tried again. Whoever calls it holds the state.
func (c *Controller) judgeFinalizer(b *allocator.State, p *clustercidr.Pool) (_ *clustercidr.Pool, pause time.Duration) {
	tries, ok := c.finalizerTries[p.Name]
	now := c.now()
	switch early := now.Sub(tries.first) < finalizerPatience; {
	case !ok, early && !tries.lost:
		return p, 0
	case early:
		return p, tries.last.Add(queues.ClosedRetry).Sub(now)
	}
	if p.State == ipam.Pending && p.Cause != clustercidr.CauseNotKept {
		if tries.last.IsZero() {
			return b.SetPool(p.With("its finalizer cannot be added: the API server answers as if it were gone or another one", metav1.StatusReasonConflict)), 0
		}
		p = b.SetPool(p.With(clustercidr.FinalizerNotKept, clustercidr.CauseNotKept))
	}
	return p, tries.last.Add(queues.RetryMax).Sub(now) // The object may change at every try, and each change is an event.
}

// serve is state.serve, but a Node does not wait for ever for the finalizer of a ClusterCIDR: those that were not even tried in time, because
// other writes hang before them, are given up until they are. It is for the worker of the Node, which holds the state.
func (c *Controller) serve(b *allocator.State, node *v1.Node) (r allocator.Reservation, ok, say bool) {
	r, ok, say = b.Allocate(node)
	if _, awaits := b.AwaitsFinalizerOf(node.Name); ok || !awaits {
		return r, ok, say
	}
	for _, name := range slices.Sorted(b.AwaitingFinalizer()) { // The Node waits for all that may come first for it at the same time.
		if _, known := c.awaited[name]; !known {
			c.awaited[name] = c.now()
		}
		if p, known := b.Pool(name); known && c.now().Sub(c.awaited[name]) >= untriedPatience {
			b.SetPool(p.With("its finalizer is not added yet, because other writes of ClusterCIDRs get no answer", causeNotTried))
		}
	}
	r, ok, say = b.Allocate(node)
	if p, awaits := b.AwaitsFinalizerOf(node.Name); !ok && awaits {
		c.nodeQueue.AddAfter(node.Name, c.awaited[p.Name].Add(untriedPatience).Sub(c.now()))
		return r, false, false
	}
	return r, ok, say
}

// triedFinalizer notes how a try to add the finalizer to a pool that does not have it ended.
func (c *Controller) triedFinalizer(p *clustercidr.Pool, stored bool, err error) {
	if requests.NotItsTurn(err) {
		c.with(func(*allocator.State) { delete(c.awaited, p.Name) }) // Nothing was tried, and nobody is served meanwhile.
		return
	}
	c.with(func(b *allocator.State) {
		now, ok := b.Pool(p.Name)
		cause := apierrors.ReasonForError(err)
		switch {
		case !ok || now.ID != p.ID:
		case err == nil:
			c.finalizerAnswered(p, stored)
		case now.State == ipam.Pending && (now.Problem == "" || now.Cause != cause):
			b.SetPool(now.With(text.Cut("its finalizer cannot be added: "+err.Error(), text.MaxProblem), cause))
			fallthrough
		default:
			delete(c.finalizerTries, p.Name)
		}
	})
}

// finalizerAnswered notes that the API server has answered a try to add the finalizer to p, and not with an error. The caller holds the state.
func (c *Controller) finalizerAnswered(p *clustercidr.Pool, stored bool) {
	cc, err := c.clusterCIDRs.Get(p.Name)
	if err != nil || string(cc.UID) != p.ID {
		return
	}
	tries, ok := c.finalizerTries[p.Name]
	if !ok {
		tries.first = c.now()
	}
	if stored {
		tries.last = c.now()
	}
	c.finalizerTries[p.Name] = tries
	delete(c.awaited, p.Name)      // From here on judgeFinalizer says for how long.
	for other := range c.awaited { // Writes are answered, so it is soon the turn of the others.
		c.awaited[other] = c.now()
	}
	// The watch may have been faster than the answer.
	c.sawFinalizer(p.Name, slices.Contains(cc.Finalizers, networkingv1.Finalizer))
	c.clusterCIDRQueue.AddAfter(p.Name, finalizerPatience)
}

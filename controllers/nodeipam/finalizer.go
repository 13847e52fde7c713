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
	"github.com/multicidr/controller-manager/controllers/nodeipam/finalizers"
	"github.com/multicidr/controller-manager/controllers/nodeipam/health"
	"github.com/multicidr/controller-manager/controllers/text"
	"github.com/multicidr/controller-manager/controllers/writes"
)

// A ClusterCIDR allocates only once it has its finalizer. Nodes that match it wait for that, because it takes milliseconds, and a block
// from the next ClusterCIDR would be permanent. If it is not kept, they go on: package finalizers.

// untriedPatience is how long a Node waits for a ClusterCIDR whose finalizer was not tried yet: one write ahead of it may hang.
const untriedPatience = writes.Timeout + time.Second

// causeNotTried is the cause of a pool's problem if writes of other ClusterCIDRs hang, so that its finalizer was not tried.
const causeNotTried metav1.StatusReason = "FinalizerNotTried"

// judgeFinalizer gives up a pool whose finalizer is still missing some time after it was added. It returns the resulting pool, and how long
// to wait before the next attempt. The caller holds the lock on the state.
func (c *Controller) judgeFinalizer(b *allocator.State, p *clustercidr.Pool) (_ *clustercidr.Pool, pause time.Duration) {
	verdict, pause := c.finalizerTries.Judge(p.Name, c.now())
	switch {
	case p.State != ipam.Pending || p.Cause == clustercidr.CauseNotKept:
	case verdict == finalizers.NeverStored:
		p = b.SetPool(p.With("its finalizer cannot be added: the API server answers as if it were gone or another one", metav1.StatusReasonConflict))
	case verdict == finalizers.NotKept:
		p = b.SetPool(p.With(clustercidr.FinalizerNotKept, clustercidr.CauseNotKept))
	}
	return p, pause
}

// serve is State.Allocate with a limit on how long a Node waits for finalizers: a ClusterCIDR whose finalizer was not tried in time,
// because other writes hang, is skipped until it is tried. For the worker of the Node, which holds the lock on the state.
func (c *Controller) serve(b *allocator.State, node *v1.Node) (r allocator.Reservation, ok, say bool) {
	r, ok, say = b.Allocate(node)
	if _, awaits := b.AwaitsFinalizerOf(node.Name); ok || !awaits {
		return r, ok, say
	}
	var late []string
	for name := range b.AwaitingFinalizer() { // The Node waits at once for every ClusterCIDR that may come first for it.
		if _, known := c.awaited[name]; !known {
			c.awaited[name] = c.now()
		}
		if c.now().Sub(c.awaited[name]) >= untriedPatience {
			late = append(late, name)
		}
	}
	slices.Sort(late)
	for _, name := range late {
		if p, known := b.Pool(name); known {
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

// triedFinalizer notes the outcome of an attempt to add the finalizer to a pool without it.
func (c *Controller) triedFinalizer(p *clustercidr.Pool, stored bool, err error) {
	if writes.NotItsTurn(err) {
		c.with(func(*allocator.State) { delete(c.awaited, p.Name) }) // Nothing was tried, and nothing is allocated meanwhile.
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
			t, _ := health.WriteProblem(err)
			b.SetPool(now.With(text.Cut("its finalizer cannot be added: "+t.String(), text.MaxProblem), cause))
			fallthrough
		default:
			delete(c.finalizerTries, p.Name)
		}
	})
}

// finalizerAnswered notes that the API server answered an attempt to add the finalizer to p without an error. The caller holds the lock on
// the state.
func (c *Controller) finalizerAnswered(p *clustercidr.Pool, stored bool) {
	cc, err := c.clusterCIDRs.Get(p.Name)
	if err != nil || string(cc.UID) != p.ID {
		return
	}
	c.finalizerTries.Answered(p.Name, stored, c.now())
	delete(c.awaited, p.Name)      // From now on judgeFinalizer sets the limit.
	for other := range c.awaited { // Writes are answered, so the others will be tried soon.
		c.awaited[other] = c.now()
	}
	// The watch may be ahead of the answer.
	c.finalizerTries.Saw(p.Name, slices.Contains(cc.Finalizers, networkingv1.Finalizer), c.now())
	c.clusterCIDRQueue.AddAfter(p.Name, finalizers.Patience)
}

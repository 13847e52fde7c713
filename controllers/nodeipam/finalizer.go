package nodeipam

import (
	"errors"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	networkingv1 "github.com/multicidr/controller-manager/apis/networking/v1"
	"github.com/multicidr/controller-manager/controllers/ipam"
	"github.com/multicidr/controller-manager/controllers/lease"
)

// A ClusterCIDR allocates once it has its finalizer. Nodes that match it wait for that, for it takes milliseconds, and a block of the next
// ClusterCIDR would be theirs for ever. But not everything that is written stays: a mutating webhook or policy can answer 200 and leave the
// finalizer out, and a pipeline can put back the object without it. Then no event comes that anybody could wait for.

// finalizerPatience is for how long Nodes wait for a ClusterCIDR after the first try to add its finalizer. It is as long as a write may
// take: one that hangs lets the Nodes go on after the same time.
const finalizerPatience = writeTimeout

// causeNotTried is the cause of a pool's problem if other ClusterCIDRs' finalizers get no answer.
const causeNotTried metav1.StatusReason = "FinalizerNotTried"

// causeNotKept is the cause of a pool's problem if tries to add its finalizer succeed and it is not there all the same.
const causeNotKept metav1.StatusReason = "FinalizerNotKept"

const (
	finalizerNotKept = "its finalizer is not kept" // short, for an event on a Node may name many ClusterCIDRs
	whoDoesNotKeepIt = ": something takes it away after it was added, such as a mutating webhook or policy, or a pipeline that replaces the object. " +
		"Make that keep " + networkingv1.Finalizer + " in metadata.finalizers."
)

// finalizerTries are the tries to add the finalizer to a ClusterCIDR that does not show it.
type finalizerTries struct {
	first time.Time // that the API server has answered, and not with an error
	last  time.Time // that it says it has stored
}

// judgeFinalizer gives up a pool whose finalizer is not there for long though it was added. It returns the pool as it is then, and for how
// long its finalizer is not to be tried again. Whoever calls it holds the book.
func (c *Controller) judgeFinalizer(b *book, p *pool) (_ *pool, pause time.Duration) {
	tries, ok := c.finalizerTries[p.Name]
	now := c.now()
	if !ok || now.Sub(tries.first) < finalizerPatience {
		return p, 0
	}
	if p.State == ipam.Pending && p.cause != causeNotKept {
		given := *p
		given.problem, given.cause = finalizerNotKept, causeNotKept
		p = &given
		b.setPool(p)
	}
	return p, tries.last.Add(retryMax).Sub(now) // The object may change at every try, and each change is an event.
}

// judgeUntried gives up a pool whose finalizer was not tried yet while such writes get no answer. One after the other, each would take as long as
// a write may take, and Nodes would wait for all of them. That is over, without another try, when the one that got no answer shows its finalizer
// or is deleted. Whoever calls it holds the book.
func (c *Controller) judgeUntried(b *book, p *pool) *pool {
	tried, ok := b.pools[c.unanswered.name]
	if !ok || tried.ID != c.unanswered.id || tried.State != ipam.Pending || p.State != ipam.Pending || p.problem != "" {
		return p
	}
	given := *p
	given.problem, given.cause = "its finalizer cannot be added now: writes of ClusterCIDRs get no answer", causeNotTried
	return &given
}

// triedFinalizer notes how a try to add the finalizer to a pool that does not have it ended.
func (c *Controller) triedFinalizer(p *pool, stored bool, err error) {
	if errors.Is(err, lease.ErrClosed) {
		return // Nothing was tried, and nobody is served meanwhile.
	}
	c.with(func(b *book) {
		now, ok := b.pools[p.Name]
		cause := apierrors.ReasonForError(err)
		c.unanswered.name, c.unanswered.id = "", ""
		if err != nil && !answered(err) {
			c.unanswered.name, c.unanswered.id = p.Name, p.ID
			for _, other := range b.pools {
				if given := c.judgeUntried(b, other); given != other {
					b.setPool(given)
				}
			}
		}
		switch {
		case !ok || now.ID != p.ID:
		case err != nil:
			delete(c.finalizerTries, p.Name)
			if now.State == ipam.Pending && (now.problem == "" || now.cause != cause) {
				failed := *now
				failed.problem, failed.cause = cut("its finalizer cannot be added: "+err.Error(), maxProblem), cause
				b.setPool(&failed)
			}
		default:
			// The watch may have been faster than the answer.
			cc, err := c.clusterCIDRs.Get(p.Name)
			if err != nil || string(cc.UID) != p.ID || slices.Contains(cc.Finalizers, networkingv1.Finalizer) {
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
			c.clusterCIDRQueue.AddAfter(p.Name, finalizerPatience)
		}
	})
}

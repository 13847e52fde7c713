package nodeipam

import (
	"context"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/multicidr/controller-manager/controllers/nodeipam/allocator"
	"github.com/multicidr/controller-manager/controllers/nodeipam/events"
	"github.com/multicidr/controller-manager/controllers/nodeipam/health"
	"github.com/multicidr/controller-manager/controllers/queues"
	"github.com/multicidr/controller-manager/controllers/writes"
)

// Events have their own queue and workers. If the API server lets requests for events hang, because the etcd for events is down or a
// webhook does not answer, that delays neither podCIDRs nor statuses. Code that finds something to report only queues a key: the object and
// the reason. When the worker gets to the key, it asks the state for the message. So only the newest message per object and reason is
// written, and none that is no longer true. Nothing but keys is stored. A key stays until its event is stored or there is nothing left to
// report.

const (
	// eventWorkers is how many events are written concurrently. The number is small because --node-ipam-kube-api-qps limits all requests
	// together: while a PATCH of podCIDRs waits for that limit, at most this many events are ahead of it.
	eventWorkers = 4
	// eventPatience is how long an event lets queued Nodes go first. Without a bound, a request limit and many Nodes could delay events for
	// hours.
	eventPatience = 10 * time.Second
	// eventRetryMax is the longest pause between two attempts to write an event. Events are less urgent than podCIDRs, and thousands of
	// events that cannot be stored must not become a load of their own.
	eventRetryMax = time.Minute
)

// announcer keeps what was queued for events and is not stored yet. Guarded by Controller.mu, like the state.
type announcer struct {
	// since has every queued key and the time at which it was queued.
	since map[string]time.Time
	// alarms are about ClusterCIDRs.
	alarms events.Alarms
	// failing is whether the last attempt to write an event failed.
	failing bool
}

// announce queues a key. The caller holds the lock. A key that is already queued keeps its place and its back-off: the worker will find the
// newest message.
func (c *Controller) announce(kind, name, reason string) { c.announceAfter(0, kind, name, reason) }

// announceAfter is announce for what need not be reported if it is over by then.
func (c *Controller) announceAfter(d time.Duration, kind, name, reason string) {
	key := events.Key(kind, name, reason)
	if _, ok := c.announcer.since[key]; ok {
		return
	}
	c.announcer.since[key] = c.now()
	c.eventQueue.AddAfter(key, d)
}

// announcement is the content of an event.
type announcement struct {
	about           v1.ObjectReference
	reason, message string
	reasons         string // for a pending Node, as in said
}

// syncEvent writes the event of a key, if there is still something to report.
func (c *Controller) syncEvent(ctx context.Context, key string) error {
	if c.letsNodesPass(key) {
		return writes.Later(statusInterval)
	}
	var written announcement
	for {
		var (
			a   announcement
			due bool
		)
		c.with(func(b *allocator.State) {
			// After a write there may be a newer message, or another Node of that name, which announce did not queue because the key was
			// still there.
			if a, due = c.due(b, key); !due || a == written {
				due = false
				delete(c.announcer.since, key)
			}
		})
		if !due {
			return nil
		}
		err := events.Writer{API: c.api, Now: c.now}.Write(ctx, a.about, a.reason, a.message)
		if ctx.Err() != nil {
			return writes.RefusedLater{Err: ctx.Err()} // This process ends; the next one will report it.
		}
		if writes.NotItsTurn(err) {
			return writes.Later(queues.ClosedRetry)
		}
		c.noteEvent(ctx, err)
		if err != nil {
			return writes.RefusedLater{Err: err}
		}
		written = a
		c.with(func(b *allocator.State) { c.announcer.stored(b, a) })
	}
}

// letsNodesPass reports whether an event waits because Nodes are queued: under a request limit, each event takes the place of a PATCH of
// podCIDRs.
func (c *Controller) letsNodesPass(key string) (waits bool) {
	if c.nodeQueue.Len() == 0 {
		return false
	}
	c.with(func(*allocator.State) { waits = c.now().Sub(c.announcer.since[key]) < eventPatience })
	return waits
}

// due returns what to report now. It is not due if the object is gone or was replaced, or if the message is no longer true or already
// stored.
func (c *Controller) due(b *allocator.State, key string) (a announcement, due bool) {
	kind, rest, _ := strings.Cut(key, "/")
	name, reason, _ := strings.Cut(rest, "/")
	a.reason = reason
	switch {
	case reason == events.ReasonWriteFailed:
		uid, ok := b.UID(name)
		why := c.health.Told(health.WritesNode, name)
		if !ok || why == "" {
			return a, false
		}
		a.about, a.message = events.OfNode(name, uid), "podCIDRs cannot be written: "+why
		return a, true
	case reason == events.ReasonStatusWriteFailed:
		p, ok := b.Pool(name)
		why := c.health.Told(health.WritesStatus, name)
		if !ok || why == "" {
			return a, false
		}
		a.about, a.message = events.OfClusterCIDR(name, types.UID(p.ID)), "The status cannot be written: "+why
		return a, true
	case kind == events.AboutClusterCIDR:
		a.about, a.message, due = c.announcer.alarms.Due(name, reason)
		return a, due
	case reason == events.ReasonNotAvailable:
		if about, message := c.whyMissed(name); message != "" {
			a.about, a.message = about, message
			return a, true
		}
		why, due := b.WhyPending(name)
		a.about, a.message, a.reasons = events.OfNode(name, why.UID), why.Message, why.Reasons
		return a, due
	default:
		uid, message := b.Reported(name, reason)
		a.about, a.message = events.OfNode(name, uid), message
		return a, message != ""
	}
}

// stored notes that an event is stored.
func (o *announcer) stored(b *allocator.State, a announcement) {
	switch {
	case a.reason == events.ReasonWriteFailed, a.reason == events.ReasonStatusWriteFailed: // only that they were queued is remembered
	case a.about.Kind == events.AboutClusterCIDR:
		o.alarms.Stored(a.about, a.reason)
	case a.reason == events.ReasonNotAvailable:
		b.SaidWhyPending(a.about.Name, a.about.UID, a.reasons)
	}
}

// noteEvent logs, once each, when events can no longer be written and when they can be written again.
func (c *Controller) noteEvent(ctx context.Context, err error) {
	changed := false
	c.with(func(*allocator.State) {
		changed = c.announcer.failing != (err != nil)
		c.announcer.failing = err != nil
	})
	switch {
	case changed && err != nil:
		klog.FromContext(ctx).Error(err, "Cannot write events. They are retried, and podCIDRs and statuses do not wait for them. See whether the API server can store events")
	case changed:
		klog.FromContext(ctx).Info("Can write events again")
	}
}

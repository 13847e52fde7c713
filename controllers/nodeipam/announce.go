package nodeipam

import (
	"context"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	networkingv1 "github.com/multicidr/controller-manager/apis/networking/v1"
	"github.com/multicidr/controller-manager/controllers/nodeipam/allocator"
	"github.com/multicidr/controller-manager/controllers/nodeipam/events"
	"github.com/multicidr/controller-manager/controllers/nodeipam/health"
	"github.com/multicidr/controller-manager/controllers/nodeipam/queues"
	"github.com/multicidr/controller-manager/controllers/nodeipam/requests"
)

// Events have a line and workers of their own. An API server that lets requests for events hang, because the etcd of events is down or a
// webhook does not answer, then delays no podCIDRs and no status. Whoever finds something to say only hands over its key, which is the object
// and the reason; the worker asks the state what there is to say when it gets to it. So the newest message of an object and a reason is
// written, and nothing that is not true any more. Nothing but keys is kept. A key stays until its event is stored, or until there is nothing to say.

const (
	// eventWorkers is how many events are written at a time. They are few on purpose: --node-ipam-kube-api-qps is one limit for all requests, so
	// at most this many events are before a PATCH of podCIDRs when that has to wait for the limit.
	eventWorkers = 4
	// eventPatience is for how long an event lets Nodes in the queue pass. Without an end, a limit of requests and many Nodes could keep
	// events back for hours.
	eventPatience = 10 * time.Second
	// eventRetryMax is the longest pause between two tries to write one event. Nobody waits for an event as a Node waits for podCIDRs, and
	// thousands of events that cannot be stored must not become a load of their own.
	eventRetryMax = time.Minute
)

// announcer is what is handed over and not stored yet. Controller.mu guards it, like the state.
type announcer struct {
	// since has every key that is handed over, and when that was.
	since map[string]time.Time
	// clusterCIDRs has, by name, what was handed over about the state of a ClusterCIDR, for as long as it is in that state.
	clusterCIDRs map[string]alarm
	// failing is whether the last try to write an event failed.
	failing bool
}

// alarm says that a ClusterCIDR came into a state that someone should look at.
type alarm struct {
	uid             types.UID
	reason, message string
	stored          bool // as an event
}

// announce hands over a key. The caller holds the lock. A key that is there already keeps its place and its back-off: the worker finds the
// newest message when it gets to it.
func (c *Controller) announce(kind, name, reason string) {
	key := events.Key(kind, name, reason)
	if _, ok := c.announcer.since[key]; ok {
		return
	}
	c.announcer.since[key] = c.now()
	c.eventQueue.Add(key)
}

// announcement is what an event says.
type announcement struct {
	about           v1.ObjectReference
	reason, message string
	reasons         string // for a pending Node, as in said
}

// syncEvent writes the event of a key, if there is still something to say.
func (c *Controller) syncEvent(ctx context.Context, key string) error {
	if c.letsNodesPass(key) {
		return requests.Later(statusInterval)
	}
	var written announcement
	for {
		var (
			a   announcement
			due bool
		)
		c.with(func(b *allocator.State) {
			// After a write there may be a newer message, or another Node of that name. Nobody handed over a key that was there.
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
			return requests.RefusedLater{Err: ctx.Err()} // The process ends, and another one will say it.
		}
		if requests.NotItsTurn(err) {
			return requests.Later(queues.ClosedRetry)
		}
		c.noteEvent(ctx, err)
		if err != nil {
			return requests.RefusedLater{Err: err}
		}
		written = a
		c.with(func(b *allocator.State) { c.announcer.stored(b, a) })
	}
}

// letsNodesPass reports whether an event waits because Nodes do: under a limit of requests each event is one PATCH of podCIDRs less.
func (c *Controller) letsNodesPass(key string) (waits bool) {
	if c.nodeQueue.Len() == 0 {
		return false
	}
	c.with(func(*allocator.State) { waits = c.now().Sub(c.announcer.since[key]) < eventPatience })
	return waits
}

// due returns what there is to say now; not due if that is nothing: the subject is gone or another one, or it is not true any more, or said already.
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
		now, ok := c.announcer.clusterCIDRs[name]
		a.about, a.message = events.OfClusterCIDR(name, now.uid), now.message
		return a, ok && now.reason == reason && !now.stored
	case reason == events.ReasonNotAvailable:
		why, due := b.WhyPending(name)
		a.about, a.message, a.reasons = events.OfNode(name, why.UID), why.Message, why.Reasons
		return a, due
	default:
		uid, message := b.Reported(name, reason)
		a.about, a.message = events.OfNode(name, uid), message
		return a, message != ""
	}
}

// stored enters that an event is stored.
func (o *announcer) stored(b *allocator.State, a announcement) {
	switch {
	case a.reason == events.ReasonWriteFailed, a.reason == events.ReasonStatusWriteFailed: // nothing is remembered but that it was handed over
	case a.about.Kind == events.AboutClusterCIDR:
		if now, ok := o.clusterCIDRs[a.about.Name]; ok && now.uid == a.about.UID && now.reason == a.reason {
			now.stored = true
			o.clusterCIDRs[a.about.Name] = now
		}
	case a.reason == events.ReasonNotAvailable:
		b.SaidWhyPending(a.about.Name, a.about.UID, a.reasons)
	}
}

// alarmed hands over what there is to say about the state of a ClusterCIDR: once when it comes into that state, by what its status said before.
// It is remembered here, so the write of the status need not wait for the event. If the process ends in between, the event is lost; the
// condition in the status, which says the same, is not.
func (c *Controller) alarmed(cc *networkingv1.ClusterCIDR, before, reason, message string) {
	known, ok := c.announcer.clusterCIDRs[cc.Name]
	ok = ok && known.uid == cc.UID && known.reason == reason
	switch {
	case reason == "":
		delete(c.announcer.clusterCIDRs, cc.Name)
	case ok:
		known.message = message
		c.announcer.clusterCIDRs[cc.Name] = known
	case before == reason:
		delete(c.announcer.clusterCIDRs, cc.Name) // An earlier process has said it.
	default:
		c.announcer.clusterCIDRs[cc.Name] = alarm{uid: cc.UID, reason: reason, message: message}
		c.announce(events.AboutClusterCIDR, cc.Name, reason)
	}
}

// noteEvent logs when events cannot be written, once, and when they can again.
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

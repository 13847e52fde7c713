package nodeipam

import (
	"context"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/multicidr/controller-manager/controllers/nodeipam/allocator"
	"github.com/multicidr/controller-manager/controllers/nodeipam/events"
	"github.com/multicidr/controller-manager/controllers/nodeipam/fresh"
	"github.com/multicidr/controller-manager/controllers/nodeipam/health"
	"github.com/multicidr/controller-manager/controllers/nodeipam/seen"
)

// After an outage of the API server each kind of object is watched again at a moment of its own. Until all are, and the state has what was
// missed, nothing new is chosen for any Node. What may have been written is written again: that is no choice. Nor does any ClusterCIDR go, because
// a Node that uses it may be among what was missed.

// missedPatience is how long a Node waits for what was missed before an event says so, and health. An API server that restarts is back before that.
const missedPatience = 10 * time.Second

// kinds are the kinds of objects of which changes can be missed. gapsOf returns what tells of the gaps of a kind; nil if nothing does.
func (c *Controller) kinds(gapsOf func(kind string) func() health.Gap) (kinds []seen.Kind) {
	add := func(kind string, know func(context.Context) bool) {
		if gaps := gapsOf(kind); gaps != nil {
			kinds = append(kinds, seen.Kind{Gap: gaps, Know: func(ctx context.Context) bool {
				defer c.health.WaitFor(health.Problem{})
				return know(ctx)
			}})
		}
	}
	add("Nodes", c.knowNodes)
	add("ClusterCIDRs", c.knowClusterCIDRs)
	if c.serviceCIDRs != nil {
		add("ServiceCIDRs", c.knowServiceCIDRs)
	}
	return kinds
}

// waitsForMissed reports whether nothing is chosen for a Node yet. It is queued when something can be.
func (c *Controller) waitsForMissed(b *allocator.State, node *v1.Node) bool {
	if c.seen.Missed() == "" || b.MayBeWritten(node) {
		return false
	}
	c.waits(node)
	return true
}

// waits notes that a Node waits for what the controller does not know yet, of which an event tells if that lasts.
func (c *Controller) waits(node *v1.Node) {
	if c.listed.Wait(node) {
		c.announceAfter(missedPatience, events.AboutNode, node.Name, events.ReasonNotAvailable)
	}
}

// whyMissed is what an event says about a Node that waits for what was missed; empty if it does not.
func (c *Controller) whyMissed(name string) (about v1.ObjectReference, message string) {
	uid, waits := c.listed.Waits(name)
	missed := c.seen.Missed()
	if missed == "" && !c.listed.Complete() {
		missed = "the controller has read a list of Nodes, and not been told of all of them by its informer yet"
	}
	if waits && missed != "" {
		return events.OfNode(name, uid), "Nothing is allocated, because a block may be in use that the controller does not know of: " + missed
	}
	return about, ""
}

// caughtUp is called when nothing is missed any more.
func (c *Controller) caughtUp() {
	c.safely(func() { c.with(func(*allocator.State) { c.heardAll() }) })
}

// knowNodes returns when the cache shows what a read of now shows, and its Nodes with podCIDRs are in the state or noted as listed.
func (c *Controller) knowNodes(ctx context.Context) bool {
	heard, asOf := "", ""
	err := wait.PollUntilContextCancel(ctx, fresh.LookInterval, true, func(ctx context.Context) (_ bool, err error) {
		c.with(func(*allocator.State) { heard = c.heardVersion })
		if asOf, err = c.readNodes(ctx); err != nil {
			c.waitForEnd(ctx, nodesUnreadable(err), err)
		}
		return err == nil, nil
	})
	if err != nil || !fresh.Wait(ctx, &c.health, fresh.Cache{Contents: c.nodeContents(), AsOf: asOf, Version: c.nodesVersion}) {
		return false
	}
	c.with(func(b *allocator.State) {
		var nodes []*v1.Node
		if nodes, err = c.nodes.List(labels.Everything()); err != nil {
			return
		}
		for _, node := range nodes {
			c.listed.Cached(node)
		}
		// What was heard before the read is not newer than the read, unless etcd was restored, and its versions went back.
		if order, e := resourceversion.CompareResourceVersion(heard, asOf); e == nil && order > 0 {
			c.heardVersion = asOf
		}
		c.forgetKnown(b)
	})
	return err == nil
}

// knowClusterCIDRs returns when the state has all ClusterCIDRs that a read of now shows. Handlers may be behind the cache.
func (c *Controller) knowClusterCIDRs(ctx context.Context) bool {
	if !fresh.WaitShown(ctx, &c.health, c.clusterCIDRContents()) {
		return false
	}
	names := map[string]bool{}
	all, err := c.clusterCIDRs.List(labels.Everything())
	for _, cc := range all {
		names[cc.Name] = true
	}
	c.with(func(b *allocator.State) {
		for _, p := range b.Pools() {
			names[p.Name] = true
		}
	})
	for name := range names {
		c.heardOfClusterCIDR(name)
	}
	return err == nil
}

// knowServiceCIDRs does the same with ServiceCIDRs, except that one that is gone may stay in the state until a handler hears of it. While API
// servers are upgraded one after the other, reads can reach one that does not have ServiceCIDRs for as long as the watch of another one is open.
// Then that watch tells of them.
func (c *Controller) knowServiceCIDRs(ctx context.Context) bool {
	reading, stop := context.WithCancel(ctx)
	defer stop()
	contents := c.serviceCIDRContents()
	contents.Read = contents.UnlessAbsent(stop)
	if !fresh.WaitShown(reading, &c.health, contents) && ctx.Err() != nil {
		return false
	}
	all, err := c.serviceCIDRs.List(labels.Everything())
	for _, serviceCIDR := range all {
		c.heardOfServiceCIDR(serviceCIDR.Name)
	}
	return err == nil
}

package nodeipam

import (
	"maps"
	"slices"

	v1 "k8s.io/api/core/v1"

	"github.com/multicidr/controller-manager/controllers/nodeipam/allocator"
)

// waitsForList reports whether nothing is chosen for a Node yet. It is queued when something can be.
func (c *Controller) waitsForList(node *v1.Node) bool {
	if c.listed.Complete() {
		return false
	}
	c.waits(node)
	return true
}

// waitsForUsers reports whether a ClusterCIDR is kept because there may be Nodes that use it and that the controller does not know of. It is
// queued when it knows. The caller holds the lock on the state.
func (c *Controller) waitsForUsers(clusterCIDR string) bool {
	if c.allKnown() {
		return false
	}
	c.mayBeInUse[clusterCIDR] = true
	return true
}

// allKnown reports whether nothing is missed, and handlers have heard of all Nodes with podCIDRs in lists.
func (c *Controller) allKnown() bool { return c.listed.Complete() && c.seen.Missed() == "" }

// heardAll queues the Nodes and ClusterCIDRs that waited, if all is known.
func (c *Controller) heardAll() {
	if !c.allKnown() {
		return
	}
	for _, name := range c.listed.Wake() {
		c.nodeQueue.Add(name)
	}
	for _, name := range slices.Sorted(maps.Keys(c.mayBeInUse)) {
		c.clusterCIDRQueue.Add(name)
	}
	clear(c.mayBeInUse)
}

// ListBegins implements health.Lists, as do the next three.
func (c *Controller) ListBegins() {
	c.safely(func() { c.with(func(*allocator.State) { c.listed.Begins() }) })
}

// ListHas notes a Node of a list.
func (c *Controller) ListHas(nodes ...*v1.Node) {
	c.safely(func() {
		c.with(func(*allocator.State) {
			for _, node := range nodes {
				c.listed.Has(node)
			}
		})
	})
}

// ListLacks notes a Node that is gone before the list ends.
func (c *Controller) ListLacks(node string) {
	c.safely(func() { c.with(func(*allocator.State) { c.listed.Lacks(node) }) })
}

// ListEnds notes that the list is complete.
func (c *Controller) ListEnds() {
	c.safely(func() {
		c.with(func(b *allocator.State) {
			c.listed.Ends()
			c.forgetKnown(b)
		})
	})
}

// forgetKnown drops the Nodes that the state knows with podCIDRs.
func (c *Controller) forgetKnown(b *allocator.State) {
	c.listed.Forget(b.Shows)
	c.heardAll()
}

// heardListed drops a Node of which an event told. shown is the Node that was recorded in the state; nil if none was.
func (c *Controller) heardListed(name string, shown *v1.Node, before, now any) {
	if c.listed.Heard(name, shown, before, now) {
		c.heardAll()
	}
}

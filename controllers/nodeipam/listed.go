package nodeipam

import (
	v1 "k8s.io/api/core/v1"

	"github.com/multicidr/controller-manager/controllers/nodeipam/allocator"
)

// waitsForList reports whether nothing is chosen for a Node yet. It is queued when something can be.
func (c *Controller) waitsForList(node *v1.Node) bool {
	if c.listed.Complete() {
		return false
	}
	c.listed.Wait(node)
	return true
}

// heardAll queues the Nodes that waited, if all is known.
func (c *Controller) heardAll() {
	if !c.listed.Complete() || c.seen.Missed() != "" {
		return
	}
	for _, name := range c.listed.Wake() {
		c.nodeQueue.Add(name)
	}
}

// ListBegins implements health.Lists, as do the next two.
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

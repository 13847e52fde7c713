package nodeipam

import (
	"maps"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	"github.com/multicidr/controller-manager/controllers/nodeipam/allocator"
	"github.com/multicidr/controller-manager/controllers/nodeipam/clustercidr"
)

// A watch delivers events in the order in which the objects changed, so whatever has podCIDRs that an earlier event told of is in the state.
// A list does not: it replaces the cache at once, and handlers then hear of its Nodes in the order of names. Nodes that were put back from a
// backup with their podCIDRs while the watch was down could come after a new one. So what a list shows counts from when it was read: before
// the informer gets a list, its Nodes with podCIDRs that the state does not know are noted, and nothing is chosen until they are known.

// listed are Nodes with podCIDRs in lists of which handlers have not heard yet. Guarded by Controller.mu.
type listed struct {
	reading map[string]types.UID // in a list that is not complete, and may never be
	unheard map[string]types.UID // in complete lists
	waiting map[string]types.UID // Nodes for which something may be chosen when none of these is left, and nothing is missed (seen.go)
}

// waitsForList reports whether nothing is chosen for a Node yet. It is queued when something can be.
func (c *Controller) waitsForList(node *v1.Node) bool {
	if len(c.listed.unheard) == 0 {
		return false
	}
	c.listed.waiting[node.Name] = node.UID
	return true
}

// heardAll queues the Nodes that waited, if all is known.
func (c *Controller) heardAll() {
	if len(c.listed.unheard) > 0 || c.seen.Missed() != "" {
		return
	}
	for _, name := range slices.Sorted(maps.Keys(c.listed.waiting)) {
		c.nodeQueue.Add(name)
	}
	clear(c.listed.waiting)
}

// ListBegins implements health.Lists, as do the next two.
func (c *Controller) ListBegins() {
	c.safely(func() { c.with(func(*allocator.State) { clear(c.listed.reading) }) })
}

// ListHas notes a Node of a list.
func (c *Controller) ListHas(nodes ...*v1.Node) {
	c.safely(func() {
		c.with(func(*allocator.State) {
			for _, node := range nodes {
				if blocks, _ := clustercidr.PodCIDRsOf(node); len(blocks) > 0 {
					c.listed.reading[node.Name] = node.UID
				}
			}
		})
	})
}

// ListEnds notes that the list is complete: handlers will hear of all its changes.
func (c *Controller) ListEnds() {
	c.safely(func() {
		c.with(func(b *allocator.State) {
			maps.Copy(c.listed.unheard, c.listed.reading)
			clear(c.listed.reading)
			c.forgetKnown(b)
		})
	})
}

// forgetKnown drops the Nodes that the state knows with podCIDRs.
func (c *Controller) forgetKnown(b *allocator.State) {
	for name, uid := range c.listed.unheard {
		if b.Shows(name, uid) {
			delete(c.listed.unheard, name)
		}
	}
	c.heardAll()
}

// heardListed drops a Node of which an event told: the state has what the cache shows of it, or it is gone. If the cache is ahead of the event,
// there will be another one. shown is the Node that was recorded in the state; nil if none was.
func (c *Controller) heardListed(name string, shown *v1.Node, before, now any) {
	uid, ok := c.listed.unheard[name]
	if !ok {
		return
	}
	if tombstone, ok := before.(cache.DeletedFinalStateUnknown); ok {
		before = tombstone.Obj
	}
	was, existed := before.(*v1.Node)
	is, exists := now.(*v1.Node)
	ended := existed && was.UID == uid && (!exists || is.UID != uid)
	if ended || shown != nil && shown.UID == uid {
		delete(c.listed.unheard, name)
		c.heardAll()
	}
}

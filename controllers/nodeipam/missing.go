package nodeipam

import (
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"

	"github.com/multicidr/controller-manager/controllers/nodeipam/allocator"
)

// witness tells whether etcd still has what this process wrote.
type witness interface{ Renewals() allocator.Renewals }

// doubtInterval is how often a Node missing from a list is rechecked. Usually the Lease is renewed every two seconds.
const doubtInterval = time.Second

// renewals are those of the leader Lease. Without leader election nothing reveals a restore of etcd, so every read counts as proven at
// once.
func (c *Controller) renewals() allocator.Renewals {
	if c.witness == nil {
		return allocator.Renewals{Sent: -1}
	}
	return c.witness.Renewals()
}

// missed keeps the blocks of a Node that is in the state but missing from a list. now is the Node of that name in the list, or nil. Call it
// before the state forgets the Node. Without leader election nothing can prove that etcd still has what was written, so nothing is kept.
func (c *Controller) missed(b *allocator.State, name string, now any) {
	if c.witness == nil {
		return
	}
	instead, _ := now.(*v1.Node)
	b.Keep(name, instead, c.witness.Renewals().Sent)
	c.settle(b, name)
}

// settle ends the doubts about a name that the Lease has resolved, and schedules a recheck of the others.
func (c *Controller) settle(b *allocator.State, name string) {
	if !b.Doubted(name) {
		return
	}
	for _, d := range b.Decide(name, c.witness.Renewals()) {
		klog.Background().Error(nil, "A Node is in doubt: etcd was restored from a backup, and the Node is gone. Its blocks are kept, because its machine may use them. "+
			"Put the Node back as docs/operators/restore-etcd.md says. If no machine of the Nodes in doubt runs, restart this process, which frees all these blocks", "node", klog.KRef("", name), "podCIDRs", d)
	}
	if b.Undecided(name) { // recheck it soon
		c.nodeQueue.AddAfter(name, doubtInterval)
	}
	c.health.Doubts(name, b.InDoubt(name))
}

// conclude ends a Node's reservation once it is certain that no write of it is stored, and reports blocks that are in doubt from now on.
func (c *Controller) conclude(b *allocator.State, node *v1.Node, now time.Time, renewals allocator.Renewals) {
	if blocks := b.Conclude(node, now, renewals); len(blocks) > 0 {
		klog.Background().Error(nil, "Blocks are in doubt: etcd was restored from a backup, a write of them may have been lost with it, and the Node's ClusterCIDR cannot allocate them any more. "+
			"They are kept, because the machine may use them, and the Node gets others. Reboot its machine, and then restart this process, which frees them", "node", klog.KObj(node), "podCIDRs", blocks)
		c.health.Doubts(node.Name, b.InDoubt(node.Name))
	}
}

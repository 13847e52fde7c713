package nodeipam

import (
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/multicidr/controller-manager/controllers/lease"
	"github.com/multicidr/controller-manager/controllers/nodeipam/allocator"
)

// witness tells whether etcd has what this process wrote. A lease.Fence is one.
type witness interface{ Renewals() lease.Renewals }

// doubtInterval is how often a Node that is missing from a list is looked at. Usually the lease is renewed every two seconds.
const doubtInterval = time.Second

// renewals are those of the leader lease. Without leader election nothing tells of a restore of etcd, so whatever is read counts as proven at once.
func (c *Controller) renewals() lease.Renewals {
	if c.witness == nil {
		return lease.Renewals{Sent: -1}
	}
	return c.witness.Renewals()
}

// missed keeps the blocks of a Node that the state has and a list has not: now is the Node of that name in the list, or nil if there is none. It
// is called before the state forgets the Node. Without leader election nothing proves that etcd has what was written, and nothing is kept.
func (c *Controller) missed(b *allocator.State, name string, now any) {
	if c.witness == nil {
		return
	}
	instead, _ := now.(*v1.Node)
	b.Keep(name, instead, c.witness.Renewals().Sent)
	c.settle(b, name)
}

// settle ends the doubts about a name that the lease has decided, and looks again soon at the others.
func (c *Controller) settle(b *allocator.State, name string) {
	if !b.Doubted(name) {
		return
	}
	for _, d := range b.Decide(name, allocator.Renewals(c.witness.Renewals())) {
		klog.Background().Error(nil, "A Node is in doubt: etcd was restored from a backup, and the Node is gone. Its blocks are kept, because its machine may use them. "+
			"Put the Node back as docs/operators/restore-etcd.md says. If no machine of the Nodes in doubt runs, restart this process, which frees all these blocks", "node", klog.KRef("", name), "podCIDRs", d)
	}
	if b.Undecided(name) { // it is looked at again
		c.nodeQueue.AddAfter(name, doubtInterval)
	}
	c.health.Doubts(name, b.InDoubt(name))
}

// fromList reports whether an informer found a change by listing: it does not know the last state of an object that is gone, or it finds
// another object of the name.
func fromList(before, now any) bool {
	if _, ok := before.(cache.DeletedFinalStateUnknown); ok {
		return true
	}
	was, ok := before.(*v1.Node)
	is, ok2 := now.(*v1.Node)
	return ok && ok2 && was.UID != is.UID
}

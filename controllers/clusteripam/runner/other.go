package runner

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/client-go/tools/cache"
)

// Other is the leader Lease of another program that does the same work. While it is renewed, the program leads.
type Other struct {
	Program, Namespace, Name string
}

// other is when the last renewal or release of that Lease was seen, counted here: clocks of machines differ.
type other struct {
	Other
	seen atomic.Pointer[time.Time] // nil: never
}

const (
	// comesBack is how long after the last renewal a process of the other program may still be the leader, or become it.
	comesBack = 75 * time.Second
	// longAgo: a Lease that was last renewed before that has no leader, however much the clocks of two machines differ.
	longAgo = 10 * time.Minute
)

// leads says that the other program leads; empty if it does not.
func (o *other) leads() (why string) {
	if seen := o.seen.Load(); seen == nil || time.Since(*seen) > comesBack {
		return ""
	}
	return fmt.Sprintf("%s to stop: it does the same work, and renewed or released its Lease %s/%s within the last %v. To let it work, turn this controller off",
		o.Program, o.Namespace, o.Name, comesBack)
}

// renewed records a renewal or a release. The Lease may be deleted after it: that changes nothing.
func (o *other) renewed() {
	now := time.Now()
	o.seen.Store(&now)
}

var leases = &Kind{Name: "Lease", Group: coordinationv1.GroupName, Resource: "leases", Versions: []string{"v1"}}

// watch watches the Lease until ctx is done. synced reports whether it was read.
func (o *other) watch(ctx context.Context, c *Controller) (synced cache.InformerSynced) {
	informer := c.informer(leases, "v1", o.Namespace, "metadata.name="+o.Name, into[coordinationv1.Lease])
	handler, _ := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: func(now any) {
			if at := now.(*coordinationv1.Lease).Spec.RenewTime; at != nil && time.Since(at.Time) <= longAgo {
				o.renewed()
			}
		},
		UpdateFunc: func(before, now any) {
			if !before.(*coordinationv1.Lease).Spec.RenewTime.Equal(now.(*coordinationv1.Lease).Spec.RenewTime) {
				o.renewed()
			}
		},
	})
	go informer.RunWithContext(ctx)
	return handler.HasSynced
}

package runner

import (
	"context"
	"fmt"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/ptr"
)

// other watches the Lease of another program. While it is renewed, the program leads, and for some time after that it may come back. All times are
// counted here, from the last renewal or release that was seen.
type other struct {
	Other

	mu     sync.Mutex
	seen   time.Time // when the last renewal was seen
	valid  time.Duration
	holder string
}

const (
	// comesBack is how long after the end of a Lease the next process of the other program may still take it. It looks every few seconds, and counts
	// the duration of the Lease from what it has seen itself.
	comesBack = time.Minute
	// longAgo: a Lease that was last renewed before that has no leader, however much the clocks of two machines differ.
	longAgo = 10 * time.Minute
)

// leads says that the other program leads; empty if it does not.
func (o *other) leads() (why string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	switch {
	case time.Since(o.seen) > o.valid+comesBack:
		return ""
	case o.holder == "":
		return fmt.Sprintf("%s to stop: it does the same work, and had its Lease %s/%s a moment ago. If it only restarts, it takes it again", o.Program, o.Namespace, o.Name)
	default:
		return fmt.Sprintf("%s to stop: it does the same work, and its Lease %s/%s is held by %s. To let it work, turn this controller off", o.Program, o.Namespace, o.Name, o.holder)
	}
}

// renewed records a renewal or a release. The Lease may be deleted after it: that changes nothing.
func (o *other) renewed(lease *coordinationv1.LeaseSpec) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.seen, o.holder = time.Now(), ptr.Deref(lease.HolderIdentity, "")
	o.valid = time.Duration(ptr.Deref(lease.LeaseDurationSeconds, 0)) * time.Second
}

var leases = &Kind{Name: "Lease", Group: coordinationv1.GroupName, Resource: "leases", Versions: []string{"v1"}}

// watch watches the Lease until ctx is done. synced reports whether it was read.
func (o *other) watch(ctx context.Context, c *Controller) (synced cache.InformerSynced) {
	informer := c.informer(leases, "v1", o.Namespace, "metadata.name="+o.Name, into(func(*coordinationv1.Lease, error) {}))
	handler, _ := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: func(now any) {
			if spec := &now.(*coordinationv1.Lease).Spec; spec.RenewTime != nil && time.Since(spec.RenewTime.Time) <= longAgo {
				o.renewed(spec)
			}
		},
		UpdateFunc: func(before, now any) {
			if spec := &now.(*coordinationv1.Lease).Spec; !before.(*coordinationv1.Lease).Spec.RenewTime.Equal(spec.RenewTime) {
				o.renewed(spec)
			}
		},
	})
	go informer.RunWithContext(ctx)
	return handler.HasSynced
}

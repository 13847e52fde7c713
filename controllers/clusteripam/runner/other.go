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

	mu      sync.Mutex
	holder  string    // empty: nobody holds it
	renewed time.Time // the time in the Lease
	seen    time.Time // when that has changed last
	valid   time.Duration
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

// heard records what the Lease shows.
func (o *other) heard(lease *coordinationv1.Lease) {
	o.mu.Lock()
	defer o.mu.Unlock()
	var renewed time.Time
	if lease.Spec.RenewTime != nil {
		renewed = lease.Spec.RenewTime.Time
	}
	if first := o.renewed.IsZero(); !renewed.Equal(o.renewed) && (!first || time.Since(renewed) <= longAgo) {
		o.seen = time.Now()
	}
	o.holder, o.renewed = ptr.Deref(lease.Spec.HolderIdentity, ""), renewed
	o.valid = time.Duration(max(ptr.Deref(lease.Spec.LeaseDurationSeconds, 0), 1)) * time.Second
}

// gone records that there is no Lease any more. To delete it is to release it.
func (o *other) gone() {
	leads := o.leads() != ""
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.holder, o.renewed = "", (time.Time{}); leads {
		o.seen = time.Now()
	}
}

// watch watches the Lease until ctx is done. synced reports whether it was read.
func (o *other) watch(ctx context.Context, c *Controller) (synced cache.InformerSynced) {
	what := fmt.Sprintf("the Lease of %s", o.Program)
	lw := listWatch(c.kubernetes.CoordinationV1().Leases(o.Namespace), "metadata.name="+o.Name, c.noteRead(ctx, what))
	informer := newInformer(what, lw, &coordinationv1.Lease{}, nil)
	heard := func(lease any) {
		before := o.leads()
		if o.heard(lease.(*coordinationv1.Lease)); o.leads() != before {
			c.again()
		}
	}
	handler, _ := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    heard,
		UpdateFunc: func(_, now any) { heard(now) },
		DeleteFunc: func(any) {
			o.gone()
			c.again()
		},
	})
	go informer.RunWithContext(ctx)
	return handler.HasSynced
}

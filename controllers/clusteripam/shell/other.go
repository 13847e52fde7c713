package shell

import (
	"context"
	"fmt"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/klog/v2"
)

// Other is the leader Lease of another program that does the same work.
type Other struct {
	Program, Namespace, Name string
}

// other watches the Lease of another program. While it is renewed, the program leads, and for some time after that it may come back. All times are
// counted here, from the last renewal or release that was seen.
type other struct {
	Other
	now func() time.Time

	mu      sync.Mutex
	listed  bool   // the Lease was read, or there is none
	holder  string // empty: nobody holds it
	renewed string // the time in the Lease
	seen    time.Time
	valid   time.Duration
	timer   *time.Timer
}

// comesBack is how long after the end of a Lease the next process of the other program may still take it. It looks every few seconds, and counts
// the duration of the Lease from what it has seen itself.
const comesBack = time.Minute

// longAgo: a Lease that was last renewed before that has no leader, however much the clocks of two machines differ.
const longAgo = 10 * time.Minute

func newOther(of Other, now func() time.Time) *other { return &other{Other: of, now: now} }

// leads says that the other program leads; empty if it does not.
func (o *other) leads() (why string, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	switch {
	case !o.listed:
		return "", fmt.Errorf("the Lease %s/%s of %s has not been read yet", o.Namespace, o.Name, o.Program)
	case o.now().Sub(o.seen) > o.valid+comesBack:
		return "", nil
	case o.holder == "":
		return fmt.Sprintf("%s to stop: it does the same work, and had its Lease %s/%s a moment ago. If it only restarts, it takes it again", o.Program, o.Namespace, o.Name), nil
	default:
		return fmt.Sprintf("%s to stop: it does the same work, and its Lease %s/%s is held by %s. To let it work, turn this controller off", o.Program, o.Namespace, o.Name, o.holder), nil
	}
}

// heard records what the Lease shows, and has c look again if that changes who works.
func (o *other) heard(c *Controller, lease *unstructured.Unstructured) {
	before, _ := o.leads()
	o.mu.Lock()
	holder, _, _ := unstructured.NestedString(lease.Object, "spec", "holderIdentity")
	renewed, _, _ := unstructured.NestedString(lease.Object, "spec", "renewTime")
	seconds, _, _ := unstructured.NestedInt64(lease.Object, "spec", "leaseDurationSeconds")
	if renewed != o.renewed {
		o.seen = o.now()
		if at, err := time.Parse(time.RFC3339Nano, renewed); o.renewed == "" && (err != nil || o.now().Sub(at) > longAgo) {
			o.seen = time.Time{}
		}
	}
	o.holder, o.renewed, o.valid = holder, renewed, time.Duration(max(seconds, 1))*time.Second
	o.lookLater(c)
	o.mu.Unlock()
	if after, _ := o.leads(); after != before {
		c.looker.again()
	}
}

// lookLater has c look again when the program cannot come back any more, unless it does.
func (o *other) lookLater(c *Controller) {
	if o.timer != nil {
		o.timer.Stop()
	}
	o.timer = time.AfterFunc(o.valid+comesBack+time.Second, c.looker.again)
}

// gone records that there is no Lease any more. To delete it is to release it.
func (o *other) gone(c *Controller) {
	before, _ := o.leads()
	o.mu.Lock()
	if o.holder, o.renewed = "", ""; before != "" {
		o.seen = o.now()
	}
	o.lookLater(c)
	o.mu.Unlock()
	c.looker.again()
}

var leases = schema.GroupVersionResource{Group: "coordination.k8s.io", Version: "v1", Resource: "leases"}

// watch watches the Lease until ctx is done.
func (o *other) watch(ctx context.Context, c *Controller) {
	var last metav1.Object
	s := &sink{
		shows: func(object metav1.Object) {
			last = object
			o.heard(c, object.(*unstructured.Unstructured))
		},
		gone: func(metav1.Object) {
			last = nil
			o.gone(c)
		},
		known: func() []metav1.Object {
			if last == nil {
				return nil
			}
			return []metav1.Object{last}
		},
		goneSince: func(metav1.Object) {
			last = nil
			o.gone(c)
		},
		synced: make(chan struct{}),
	}
	go func() {
		select {
		case <-s.synced:
			o.mu.Lock()
			o.listed = true
			o.mu.Unlock()
			c.looker.again()
		case <-ctx.Done():
		}
	}()
	what := fmt.Sprintf("the Lease of %s", o.Program)
	klog.FromContext(ctx).V(2).Info("Watching", "what", what)
	reflect(ctx, what, listWatch(c.dynamic.Resource(leases).Namespace(o.Namespace), o.Name, func(err error) { c.noteRead(ctx, what, err) }), s)
}

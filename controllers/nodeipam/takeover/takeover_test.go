package takeover

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/kubernetes/fake"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/multicidr/controller-manager/controllers/lease"
	"github.com/multicidr/controller-manager/controllers/nodeipam/fresh"
	"github.com/multicidr/controller-manager/controllers/nodeipam/health"
	. "github.com/multicidr/controller-manager/controllers/nodeipam/internal/objects"
)

// ledTerm is a term that began at a time.
type ledTerm struct {
	predecessor lease.Predecessor
	begun       time.Time
	marked      atomic.Bool
	earlier     string
	vacant      time.Duration
}

func (t *ledTerm) Predecessor() lease.Predecessor { return t.predecessor }
func (t *ledTerm) Led() time.Duration             { return time.Since(t.begun) }
func (t *ledTerm) EarlierHolder() string          { return t.earlier }
func (t *ledTerm) Vacant() time.Duration          { return t.vacant }
func (t *ledTerm) Mark()                          { t.marked.Store(true) }

func TestTakeoverWait(t *testing.T) {
	const (
		delay    = time.Minute
		ownDelay = 15 * time.Second // what the fence allows a write without a lease
	)
	for name, tc := range map[string]struct {
		predecessor lease.Predecessor
		podCIDRs    bool          // a Node has some
		led         time.Duration // when the caches are fresh
		off         bool          // by the flag
		vacant      time.Duration // nobody held the Lease
		shared      bool          // with other allocators
		want        time.Duration
	}{
		"a new cluster":                                             {predecessor: lease.NoPredecessor},
		"a new Lease, and somebody allocated":                       {predecessor: lease.NoPredecessor, podCIDRs: true, want: delay},
		"one of ours led last":                                      {predecessor: lease.FencedPredecessor, podCIDRs: true},
		"one of ours led last, an hour ago":                         {predecessor: lease.FencedPredecessor, podCIDRs: true, vacant: time.Hour, want: delay},
		"the same, and no Node has podCIDRs":                        {predecessor: lease.FencedPredecessor, vacant: time.Hour},
		"the same, in a Lease of all":                               {predecessor: lease.FencedPredecessor, podCIDRs: true, vacant: time.Hour, shared: true},
		"one of ours died":                                          {predecessor: lease.FencedPredecessor, podCIDRs: true, vacant: 17 * time.Second},
		"another one led last":                                      {predecessor: lease.OtherPredecessor, podCIDRs: true, want: delay},
		"another one led last, and its first PATCH has not arrived": {predecessor: lease.OtherPredecessor, want: delay},
		"part of the time is over":                                  {predecessor: lease.OtherPredecessor, led: 20 * time.Second, want: 40 * time.Second},
		"all of the time is over, since the CRD was missing":        {predecessor: lease.OtherPredecessor, led: time.Hour},
		"it is turned off":                                          {predecessor: lease.OtherPredecessor, podCIDRs: true, off: true},
		"without leader election, and no Node is pending":           {predecessor: lease.NoElection, podCIDRs: true},
		"without leader election":                                   {predecessor: lease.NoElection, want: ownDelay},
		"without leader election, after a panic":                    {predecessor: lease.NoElection, led: time.Minute},
		"without leader election, with the flag for others":         {predecessor: lease.NoElection, off: true, want: ownDelay},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := Node("n")
				n.ResourceVersion = "5"
				if tc.podCIDRs {
					n.Spec.PodCIDRs = []string{"10.0.0.0/24"}
				}
				term := &ledTerm{predecessor: tc.predecessor, begun: time.Now().Add(-tc.led), vacant: tc.vacant}
				l := leader(term, delay, n)
				l.LeaseOfItsOwn = !tc.shared
				if tc.off {
					l.Delay = 0
				}
				begin := time.Now()
				if !l.Wait(t.Context()) {
					t.Fatal("the context was not done")
				}
				if got := time.Since(begin); got != tc.want {
					t.Errorf("it waited for %v, want %v", got, tc.want)
				}
				if !term.marked.Load() {
					t.Error("the next leader will not know that this one has waited")
				}
			})
		})
	}
}

// TestTakeoverIsSeen: what another allocator's last PATCH has written is in the cache before the first choice, people are told what the
// controller waits for, and a leader that ends meanwhile leaves the wait to its successor.
func TestTakeoverIsSeen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		late := Node("late")
		late.ResourceVersion = "10" // which is after 9, also where texts are compared
		early := Node("early")
		early.ResourceVersion = "9"
		term := &ledTerm{predecessor: lease.OtherPredecessor, begun: time.Now()}
		l := leader(term, time.Minute, late, early)
		var shows atomic.Pointer[v1.Node]
		stale := late.DeepCopy()
		stale.ResourceVersion = "8"
		shows.Store(stale)
		l.Nodes = nodesAt{l.Nodes, &shows}
		l.Contents.Shown = fresh.VersionsOf(l.Nodes.List)
		done := make(chan time.Time, 1)
		go func() {
			l.Wait(t.Context())
			done <- time.Now()
		}()
		synctest.Wait()
		const want = "not serving Nodes yet; waiting for the last request of another allocator to be over, at 00:01:00 UTC: another allocator may have led before, and the API server may " +
			"still carry out what it sent (--node-ipam-takeover-delay=1m0s). Nothing has to be done"
		if err := l.Health.Check(nil); err == nil || err.Error() != want {
			t.Errorf("the health check says\n%v, want\n%s", err, want)
		}
		time.Sleep(70 * time.Second)
		if err := l.Health.Check(nil); err == nil || !strings.Contains(err.Error(), `the cache of Nodes to show late as of resource version 10`) {
			t.Errorf("the cache lags, and the health check says %v", err)
		}
		if term.marked.Load() {
			t.Error("the term is marked before the wait is over")
		}
		shows.Store(late)
		if waited := (<-done).Sub(term.begun); waited > 70*time.Second+fresh.Interval {
			t.Errorf("the cache was new after 70s, and it waited for %v", waited)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		term := &ledTerm{predecessor: lease.OtherPredecessor, begun: time.Now()}
		l := leader(term, time.Minute)
		ctx, cancel := context.WithTimeout(t.Context(), 59*time.Second)
		defer cancel()
		if l.Wait(ctx) || term.marked.Load() {
			t.Errorf("it may choose although it was told to end, or says so to its successor (%t)", term.marked.Load())
		}
	})
}

// nodesAt is a lister that shows one of its Nodes as it was.
type nodesAt struct {
	corelisters.NodeLister
	one *atomic.Pointer[v1.Node]
}

func (l nodesAt) List(selector labels.Selector) ([]*v1.Node, error) {
	all, err := l.NodeLister.List(selector)
	for i, n := range all {
		if one := l.one.Load(); one.Name == n.Name {
			all[i] = one
		}
	}
	return all, err
}

// leader has these Nodes in its cache, and its API server has them, too.
func leader(term Term, delay time.Duration, nodes ...*v1.Node) Leader {
	client, cached := fake.NewClientset(), cache.NewIndexer(cache.MetaNamespaceKeyFunc, nil)
	for _, n := range nodes {
		if err := errors.Join(client.Tracker().Add(n), cached.Add(n)); err != nil {
			panic(err)
		}
	}
	lister := corelisters.NewNodeLister(cached)
	return Leader{
		Term: term, Delay: delay, Nodes: lister, Health: &health.Health{}, Now: time.Now,
		Contents: fresh.Contents{Kind: "Nodes", Read: fresh.ReadPages(client.CoreV1().Nodes().List), Shown: fresh.VersionsOf(lister.List)},
	}
}

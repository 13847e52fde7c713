package nodeipam

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"

	networkingv1 "github.com/multicidr/controller-manager/apis/networking/v1"
	"github.com/multicidr/controller-manager/controllers/lease"
	"github.com/multicidr/controller-manager/controllers/nodeipam/allocator"
	"github.com/multicidr/controller-manager/controllers/nodeipam/clustercidr"
	. "github.com/multicidr/controller-manager/controllers/nodeipam/internal/objects"
	"github.com/multicidr/controller-manager/controllers/nodeipam/requests"
	"github.com/multicidr/controller-manager/controllers/writes"
)

// deciding is an API server that answers each PATCH of a Node as the test says, and reads of Nodes from what it has stored.
type deciding struct {
	requests.API
	answers []error // to the next PATCHes; then nil
	stored  *v1.Node
	written []string // podCIDR by podCIDR, whatever the answer
	reads   int
}

func (d *deciding) PatchNode(_ context.Context, _ string, patch []byte) error {
	var node v1.Node
	if err := json.Unmarshal(patch, &node); err != nil {
		return err
	}
	d.written = append(d.written, node.Spec.PodCIDR)
	if len(d.answers) == 0 {
		return nil
	}
	err := d.answers[0]
	d.answers = d.answers[1:]
	return err
}

func (d *deciding) GetNode(context.Context, string) (*v1.Node, error) {
	d.reads++
	return d.stored, nil
}

func (d *deciding) CreateEvent(context.Context, *v1.Event) error { return nil }

func forbidden(why string) error {
	return apierrors.NewForbidden(v1.Resource("nodes"), "n", errors.New(why))
}

// TestReservation tries what a reservation does when its first write ended in one way or another, and then something has changed by which
// its blocks are not right any more. What may have been written stands, and is not written again if it could not be allocated any more; everything else is
// chosen again.
func TestReservation(t *testing.T) {
	const first, inA, inB = "10.1.0.0/24", "10.1.1.0/24", "10.2.0.0/24"
	poolA := func(edits ...func(*networkingv1.ClusterCIDR)) *networkingv1.ClusterCIDR {
		return ClusterCIDR("a", Spec4("10.1.0.0/16", 8, nil), edits...)
	}
	poolB := func(edits ...func(*networkingv1.ClusterCIDR)) *networkingv1.ClusterCIDR {
		return ClusterCIDR("b", Spec4("10.2.0.0/15", 8, nil), edits...)
	}
	disabled := func(cc *networkingv1.ClusterCIDR) { cc.Spec.Allocation = networkingv1.AllocationDisabled }
	set := func(cc *networkingv1.ClusterCIDR) func(*allocator.State) {
		return func(b *allocator.State) { b.SetPool(clustercidr.Compile(cc)) }
	}

	answers := map[string]struct {
		err    error
		stands bool
	}{
		"was not sent":                {fmt.Errorf("patch: %w", lease.ErrClosed), false},
		"was refused":                 {forbidden("podCIDRs have to lie in 10.2.0.0/16"), false},
		"had too much company":        {apierrors.NewTooManyRequests("later", 1), false},
		"was not answered":            {io.ErrUnexpectedEOF, true},
		"met a server that could not": {apierrors.NewInternalError(errors.New("etcdserver: request timed out")), true},
	}
	changes := map[string]struct {
		change func(*allocator.State)
		want   string
		lost   bool // its blocks could not be allocated any more
	}{
		"nothing has changed":                           {func(*allocator.State) {}, first, false},
		"its ClusterCIDR is disabled":                   {set(poolA(disabled)), inB, true},
		"its ClusterCIDR is being deleted":              {set(poolA(Deleted)), inB, true},
		"its ClusterCIDR is gone":                       {func(b *allocator.State) { b.DropPool("a") }, inB, true},
		"its ClusterCIDR has other blocks now":          {set(ClusterCIDR("a", Spec4("10.1.0.0/16", 7, nil), func(cc *networkingv1.ClusterCIDR) { cc.UID = "second" })), "10.1.0.0/25", true},
		"another ClusterCIDR comes first now":           {set(poolB(func(cc *networkingv1.ClusterCIDR) { cc.Spec.Priority = 1 })), inB, false},
		"another Node shows its block":                  {func(b *allocator.State) { b.Observe(Node("foreign"), Pfxs(first), nil) }, inA, true},
		"another Node shows a part of its block":        {func(b *allocator.State) { b.Observe(Node("foreign"), Pfxs("10.1.0.128/25"), nil) }, inA, true},
		"its block is a service range":                  {func(b *allocator.State) { b.SetService("ServiceCIDR s", Pfxs("10.1.0.0/28")) }, inA, true},
		"its block is excluded":                         {set(poolA(func(cc *networkingv1.ClusterCIDR) { cc.Spec.ExcludedCIDRs = []string{first} })), inA, true},
		"a block is excluded that is not its own":       {set(poolA(func(cc *networkingv1.ClusterCIDR) { cc.Spec.ExcludedCIDRs = []string{inA} })), first, false},
		"another ClusterCIDR comes that is tried later": {set(ClusterCIDR("c", Spec4("10.4.0.0/14", 8, nil))), first, false},
	}
	for answer, a := range answers {
		for change, tc := range changes {
			t.Run("a write "+answer+", and "+change, func(t *testing.T) {
				server := &deciding{answers: []error{a.err}}
				c, _ := controllerWith(t, server, time.Now, Node("n"))
				c.with(func(b *allocator.State) { set(poolA())(b); set(poolB())(b) })
				if err := c.syncNode(t.Context(), "n"); err == nil {
					t.Fatal("the first write worked")
				}
				c.with(tc.change)
				if inUse := c.state.InUse("a"); change == "its ClusterCIDR is being deleted" && inUse != a.stands {
					t.Errorf("its ClusterCIDR is in use: %t, want %t", inUse, a.stands)
				}
				err := c.syncNode(t.Context(), "n")
				if heldBack := errors.As(err, new(writes.Later)); heldBack != (a.stands && tc.lost) || err != nil && !heldBack {
					t.Fatal(err)
				}
				want := tc.want
				if a.stands {
					want = first
				}
				written := []string{first, want}
				if a.stands && tc.lost {
					written = written[:1]
				}
				if diff := cmp.Diff(written, server.written); diff != "" {
					t.Errorf("written (-want +got):\n%s", diff)
				}
				if held := Texts(c.state.HeldBy(allocator.OwnerOf("uid-n"))); !slices.Equal(held, []string{want}) {
					t.Errorf("holds %q, want %s", held, want)
				}
			})
		}
	}
}

// TestReservationAfterARefusal follows a reservation of which one write was not answered and the next ones are refused. A refusal says
// nothing about the write before it. Once the API server cannot carry that out any more, a read of the Node does.
func TestReservationAfterARefusal(t *testing.T) {
	const a, b = "10.1.0.0/24", "10.2.0.0/24"
	served := Node("n")
	served.Spec.PodCIDRs, served.Spec.PodCIDR = []string{a}, a
	for name, tc := range map[string]struct {
		stored  *v1.Node
		wait    time.Duration
		written []string
		reads   int
	}{
		"while it may be on its way":            {Node("n"), 10 * time.Second, []string{a, a}, 0},
		"when it cannot be, and did not arrive": {Node("n"), time.Minute, []string{a, a, b}, 1},
		"when it cannot be, and has arrived":    {served, time.Minute, []string{a, a}, 2},
		"when another Node has the name":        {Node("n", UID("second")), time.Minute, []string{a, a}, 2},
	} {
		t.Run(name, func(t *testing.T) {
			now := time.Unix(1000, 0)
			server := &deciding{answers: []error{io.ErrUnexpectedEOF, forbidden("no")}, stored: tc.stored}
			c, _ := controllerWith(t, server, func() time.Time { return now }, Node("n"))
			c.fence = unansweredFor{15 * time.Second}
			c.with(func(b *allocator.State) {
				b.SetPool(clustercidr.Compile(ClusterCIDR("a", Spec4("10.1.0.0/24", 8, nil))))
				b.SetPool(clustercidr.Compile(ClusterCIDR("b", Spec4("10.2.0.0/16", 8, nil))))
			})
			_ = c.syncNode(t.Context(), "n") // is not answered
			now = now.Add(tc.wait)
			_ = c.syncNode(t.Context(), "n") // is refused
			c.with(func(b *allocator.State) { b.DropPool("a") })
			if err := c.syncNode(t.Context(), "n"); err != nil && !errors.As(err, new(writes.Later)) {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.written, server.written); diff != "" {
				t.Errorf("written (-want +got):\n%s", diff)
			}
			if server.reads != tc.reads {
				t.Errorf("%d reads of the Node, want %d", server.reads, tc.reads)
			}
		})
	}
}

// TestReservationThatWasStored follows a reservation that the API server has stored and the watch does not show yet. It is written again after a
// while; if that write is refused or not sent, the first one was stored all the same.
func TestReservationThatWasStored(t *testing.T) {
	for name, tc := range map[string]struct {
		second error
		leaves bool // an admission policy leaves podCIDRs out, and answers 200
	}{
		"refused":                                {second: forbidden("no")},
		"not sent":                               {second: lease.ErrClosed},
		"not answered":                           {second: io.ErrUnexpectedEOF},
		"refused, and the first was left out":    {forbidden("no"), true},
		"left out again, as a read tells":        {nil, true},
		"not sent, after the first was left out": {lease.ErrClosed, true},
	} {
		t.Run(name, func(t *testing.T) {
			now := time.Unix(1000, 0)
			stored := Node("n")
			want := []string{"10.1.0.0/24", "10.1.0.0/24"}
			if !tc.leaves {
				stored.Spec.PodCIDRs = []string{"10.1.0.0/24"}
			}
			// A closed fence is what a restore of etcd looks like at first, and a read would show what was restored.
			keeps := !tc.leaves || errors.Is(tc.second, lease.ErrClosed)
			server := &deciding{answers: []error{nil, tc.second}, stored: stored}
			c, _ := controllerWith(t, server, func() time.Time { return now }, Node("n"))
			c.with(func(b *allocator.State) {
				b.SetPool(clustercidr.Compile(ClusterCIDR("a", Spec4("10.1.0.0/24", 8, nil))))
			})
			for range 2 {
				_ = c.syncNode(t.Context(), "n")
				now = now.Add(time.Minute)
			}
			c.with(func(b *allocator.State) {
				b.SetPool(clustercidr.Compile(ClusterCIDR("a", Spec4("10.1.0.0/24", 8, nil), Deleted)))
			})
			_ = c.syncNode(t.Context(), "n")
			if c.state.InUse("a") != keeps {
				t.Errorf("its ClusterCIDR may go: %t", keeps)
			}
			if !slices.Equal(server.written, want) {
				t.Errorf("written: %q, want %q", server.written, want)
			}
		})
	}
}

// unansweredFor is a Fence that is always open, and whose writes can be carried out for so long after they were not answered.
type unansweredFor struct{ d time.Duration }

func (u unansweredFor) Enter(ctx context.Context, _ time.Duration) (context.Context, func(), error) {
	return ctx, func() {}, nil
}
func (u unansweredFor) Holder() string            { return "" }
func (u unansweredFor) Unanswered() time.Duration { return u.d }

// A Node that could not be given podCIDRs for a while is looked at again when a ClusterCIDR changes, without a timer.
func TestRevocableReservationIsLookedAtAgain(t *testing.T) {
	b := allocator.New()
	b.SetPool(clustercidr.Compile(ClusterCIDR("a", Spec4("10.1.0.0/16", 8, nil))))
	n := Node("n")
	b.Reserve(n)
	b.Changes()
	for _, step := range []struct {
		what string
		do   func()
		want string
	}{
		{"it is sent", func() {
			b.Sending(n, 0)
			b.SetPool(clustercidr.Compile(ClusterCIDR("b", Spec4("10.2.0.0/16", 8, nil))))
		}, ""},
		{"it is refused", func() {
			b.NotCarriedOut(n, true, time.Time{})
			b.SetPool(clustercidr.Compile(ClusterCIDR("c", Spec4("10.3.0.0/16", 8, nil))))
		}, "n"},
		{"the Node shows it", func() {
			b.Observe(n, Pfxs("10.1.0.0/24"), nil)
			b.SetPool(clustercidr.Compile(ClusterCIDR("d", Spec4("10.4.0.0/16", 8, nil))))
		}, ""},
	} {
		if step.do(); strings.Join(b.Changes().Nodes, " ") != step.want {
			t.Errorf("%s, and a ClusterCIDR comes: not woken as wanted, %q", step.what, step.want)
		}
	}
}

// A Node that is being deleted gets no podCIDRs, so blocks that were never sent to it are free at once.
func TestReservationOfANodeThatGoes(t *testing.T) {
	for name, tc := range map[string]struct {
		answer error
		want   int
	}{
		"refused":      {forbidden("no"), 0},
		"not answered": {io.ErrUnexpectedEOF, 1},
	} {
		t.Run(name, func(t *testing.T) {
			c, nodes := controllerWith(t, &deciding{answers: []error{tc.answer}}, time.Now, Node("n"))
			c.with(func(b *allocator.State) {
				b.SetPool(clustercidr.Compile(ClusterCIDR("a", Spec4("10.1.0.0/16", 8, nil))))
			})
			_ = c.syncNode(t.Context(), "n")
			going := Node("n")
			going.DeletionTimestamp = &metav1.Time{Time: time.Unix(1, 0)}
			if err := nodes.Update(going); err != nil {
				t.Fatal(err)
			}
			if err := c.syncNode(t.Context(), "n"); err != nil && !errors.As(err, new(writes.Later)) {
				t.Fatal(err)
			}
			if held := c.state.HeldBy(allocator.OwnerOf("uid-n")); len(held) != tc.want {
				t.Errorf("holds %v, want %d blocks", held, tc.want)
			}
		})
	}
}

// controllerWith makes a controller that knows one Node and has no ClusterCIDR.
func controllerWith(t *testing.T, api requests.API, now func() time.Time, n *v1.Node) (*Controller, cache.Indexer) {
	t.Helper()
	nodes := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{})
	if err := nodes.Add(n); err != nil {
		t.Fatal(err)
	}
	c := newController(Config{}, parts{api: api, now: now, nodes: corelisters.NewNodeLister(nodes), newQueue: newQueue})
	for _, l := range c.lines() {
		t.Cleanup(l.queue.ShutDown)
	}
	return c, nodes
}

// refusesBad refuses every write of a Node whose name begins with bad.
type refusesBad struct {
	*leader
	tries int
}

func (r *refusesBad) PatchNode(ctx context.Context, name string, patch []byte) error {
	if strings.HasPrefix(name, "bad") {
		r.tries++
		return apierrors.NewInvalid(v1.SchemeGroupVersion.WithKind("Node").GroupKind(), name, nil)
	}
	return r.leader.PatchNode(ctx, name, patch)
}

// TestRefusedNodesDoNotPassTheLastBlockOn: Nodes whose every write is refused are older than a Node that nobody refuses, and there are at least two for each free block.
func TestRefusedNodesDoNotPassTheLastBlockOn(t *testing.T) {
	for _, tc := range []struct {
		free, bad int
		beat      time.Duration // of each refused Node's kubelet
		younger   bool
	}{
		{free: 1, bad: 1}, {free: 1, bad: 2}, {free: 1, bad: 3}, {free: 2, bad: 3}, {free: 2, bad: 4},
		{free: 1, bad: 1, beat: 10 * time.Second}, {free: 1, bad: 1, beat: time.Second}, {free: 1, bad: 2, younger: true}, {free: 2, bad: 4, younger: true},
	} {
		t.Run(fmt.Sprintf("%+v", tc), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := newLeader(t, true)
				r := &refusesBad{leader: l}
				l.api = r
				stop := l.start(t)
				for i := range tc.free {
					l.watch(fmt.Sprint("n", i+1), nil)
				}
				created := int64(10)
				if tc.younger {
					created = 1000
				}
				var bad []string
				for i := range tc.bad {
					name := fmt.Sprint("bad", i)
					bad = append(bad, name)
					l.watch(name, Node(name, Created(created+int64(i))))
				}
				time.Sleep(time.Second)
				l.watch("late", Node("late", Created(100)))
				end := time.Now().Add(time.Hour)
				for n := 0; time.Now().Before(end); n++ {
					if tc.beat == 0 {
						time.Sleep(time.Minute)
						continue
					}
					time.Sleep(tc.beat)
					for i, name := range bad {
						l.watch(name, Node(name, Created(created+int64(i)), Label("beat", fmt.Sprint(n))))
					}
				}
				if n := l.node("late"); n.Spec.PodCIDR == "" {
					t.Errorf("an hour later a Node that nobody refuses is pending; %d writes of the others were refused; health: %v", r.tries, l.health.Check(nil))
				}
				stop()
			})
		})
	}
}

package allocator_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	networkingv1 "github.com/multicidr/controller-manager/apis/networking/v1"
	"github.com/multicidr/controller-manager/controllers/ipam"
	"github.com/multicidr/controller-manager/controllers/nodeipam/allocator"
	"github.com/multicidr/controller-manager/controllers/nodeipam/pool"
	. "github.com/multicidr/controller-manager/test/objects"
	"github.com/multicidr/controller-manager/test/said"
)

// Why a Node is pending, and what to do.
func TestPending(t *testing.T) {
	type ccs = []*networkingv1.ClusterCIDR
	one := cc("one", nil, 8, "10.0.0.0/24")
	dual := cc("dual", nil, 8, "10.0.0.0/24", "fd00::/112")
	virtual := allocation(networkingv1.AllocationNone, cc("virtual", nil, 0))
	terminating := cc("going", nil, 8, "10.0.0.0/24")
	Deleted(terminating)
	fill := func(s *state) { s.has(Node("user", From("one")), "10.0.0.0/24") }
	for what, tc := range map[string]struct {
		ccs    ccs
		before func(*state)
		reason allocator.Reason
	}{
		"no ClusterCIDR":       {nil, nil, "NoClusterCIDR"},
		"not selected":         {ccs{cc("x", sel("p=x"), 8, "10.0.0.0/16")}, nil, "NotSelected"},
		"full":                 {ccs{one}, fill, "Full"},
		"full in one family":   {ccs{dual}, fill, "Full"},
		"full of one podCIDR":  {ccs{one}, func(s *state) { s.has(Node("greedy"), "10.0.0.0/8") }, "Full"},
		"all of it excluded":   {ccs{excluding(one.DeepCopy(), "10.0.0.0/28")}, nil, "Full"},
		"all of it services":   {ccs{one}, func(s *state) { s.SetService("--service-cluster-ip-range", Pfxs("10.0.0.0/8")) }, "Full"},
		"disabled":             {ccs{allocation(networkingv1.AllocationDisabled, one)}, nil, "Disabled"},
		"terminating":          {ccs{terminating}, nil, "Terminating"},
		"invalid":              {ccs{cc("bad", nil, 20, "10.0.0.0/24")}, nil, "Invalid"},
		"full before disabled": {ccs{allocation(networkingv1.AllocationDisabled, cc("a", nil, 8, "10.1.0.0/24")), one}, fill, "Full"},
		"None":                 {ccs{virtual}, nil, "None"},
		"full, then None":      {ccs{one, virtual}, fill, "None"},
	} {
		t.Run(what, func(t *testing.T) {
			before := tc.before
			if before == nil {
				before = func(*state) {}
			}
			s := started(t, tc.ccs, before)
			if got := s.serve("n"); got != nil {
				t.Fatalf("it gets %v", got)
			}
			reason, message := s.Why("n")
			said.Check(t, message)
			if reason != tc.reason {
				t.Errorf("got %q, %q", reason, message)
			}
			want := map[allocator.Reason]int{tc.reason: 1}
			delete(want, allocator.NoneNeeded)
			if diff := cmp.Diff(want, s.Counts().Pending); diff != "" {
				t.Errorf("counts (-want +got):\n%s", diff)
			}
		})
	}
}

// Pending Nodes are called again when what is said about them may have changed, and no message grows with the cluster.
func TestPendingIsToldAgain(t *testing.T) {
	s := started(t, nil)
	s.serve("n")
	s.Changes()
	for i := range 100 {
		s.set(cc(fmt.Sprintf("cc%02d", i), nil, 20, fmt.Sprintf("10.%d.0.0/16", i)))
	}
	s.Walk()
	if got := s.Changes().Nodes; len(got) != 1 {
		t.Errorf("%v are called", got)
	}
	if _, message := s.Why("n"); len(message) > 1000 || !strings.Contains(message, "and more") {
		t.Errorf("%d: %s", len(message), message)
	}
}

// A Node in back-off is not said to be pending because a ClusterCIDR is full: it holds no blocks, but there are some.
func TestInBackOffIsNotFull(t *testing.T) {
	s := started(t, []*networkingv1.ClusterCIDR{cc("one", nil, 8, "10.0.0.0/24")})
	s.show(Node("n"))
	s.send("n")
	s.Refused("n", "uid-n")
	if reason, message := s.Why("n"); reason != "" {
		t.Errorf("it is pending: %s: %s", reason, message)
	}
	if pending := s.Counts().Pending; len(pending) > 0 {
		t.Errorf("counted: %v", pending)
	}
}

// What is wrong with podCIDRs is told about the Nodes that have them, and ends when the reason does.
func TestFindings(t *testing.T) {
	var queued []string
	s := started(t, []*networkingv1.ClusterCIDR{cc("cc", nil, 8, "10.0.0.0/16")}, func(s *state) {
		has := func(name string, podCIDRs ...string) {
			if s.has(Node(name), podCIDRs...).Work {
				queued = append(queued, name)
			}
		}
		has("fine", "10.0.0.0/24")
		has("outside", "172.16.0.0/24")
		has("twin", "10.0.5.0/24")
		has("wide", "10.0.4.0/23")
		has("unreadable", "10.0.9.0/24", "ten")
	})
	var all []string
	find := func(name, reason string) {
		t.Helper()
		found := s.Findings(name)
		if reason == "" && len(found) > 0 || reason != "" && (len(found) != 1 || found[reason] == "") {
			t.Errorf("%s: %v, want %s", name, found, reason)
		}
		if reason != "" {
			all = append(all, found[reason])
		}
	}
	queued = append(queued, s.Changes().Nodes...)
	for _, name := range []string{"fine", "outside", "twin", "wide", "unreadable"} {
		if slices.Contains(queued, name) != (name != "fine") {
			t.Errorf("called at the start: %s", queued)
		}
	}
	find("fine", "")
	find("outside", allocator.ReasonOutsideRanges)
	find("twin", allocator.ReasonConflict)
	find("wide", allocator.ReasonConflict)
	find("unreadable", allocator.ReasonUnreadable)
	s.gone("wide")
	find("twin", "")
	if got := s.Changes().Nodes; len(got) != 1 || got[0] != "twin" {
		t.Errorf("%v are called when a conflict ends", got)
	}
	s.SetService("ServiceCIDR kubernetes", Pfxs("10.0.0.0/28"))
	if got := s.Changes().Nodes; len(got) != 1 || got[0] != "fine" {
		t.Errorf("%v are called about a service range", got)
	}
	find("fine", allocator.ReasonConflict)
	s.Changes()
	s.set(cc("more", sel("p=x"), 8, "172.16.0.0/16"))
	find("outside", "")
	if got := s.Changes().Nodes; len(got) != 1 || got[0] != "outside" {
		t.Errorf("%v are called about a new range", got)
	}
	counts := s.Counts()
	if want := (allocator.Counts{Holding: 4, Assigned: 4, Sharing: 1, Pending: counts.Pending}); !cmp.Equal(want, counts) {
		t.Errorf("counts %+v, want %+v", counts, want)
	}
	s.DropPool("more")
	if got := s.Changes().Nodes; len(got) != 1 || got[0] != "outside" {
		t.Errorf("%v are called about a range that is gone", got)
	}
	s.DropPool("cc")
	find("outside", "") // Without a ClusterCIDR nothing is out of range.
	s.Changes()
	s.set(cc("cc", nil, 8, "10.0.0.0/16"))
	if got := strings.Join(s.Changes().Nodes, " "); !strings.Contains(got, "outside") {
		t.Errorf("with the first ClusterCIDR, %q are called", got)
	}
	said.Check(t, all...)
}

func TestReady(t *testing.T) {
	const sixteen = "10.0.0.0/24"
	one := cc("one", nil, 4, sixteen)
	terminating := one.DeepCopy()
	Deleted(terminating)
	for what, tc := range map[string]struct {
		cc     *networkingv1.ClusterCIDR
		before func(*state)
		reason string
	}{
		"available":               {one, nil, networkingv1.ReasonAvailable},
		"disabled":                {allocation(networkingv1.AllocationDisabled, one), nil, networkingv1.ReasonDisabled},
		"None":                    {allocation(networkingv1.AllocationNone, one), nil, networkingv1.ReasonNone},
		"terminating, unused":     {terminating, nil, networkingv1.ReasonTerminating},
		"terminating, in use":     {terminating, func(s *state) { s.has(Node("n"), "10.0.0.0/28") }, networkingv1.ReasonTerminating},
		"invalid":                 {cc("one", nil, 20, sixteen), nil, networkingv1.ReasonInvalid},
		"full of a large podCIDR": {one, func(s *state) { s.has(Node("greedy"), "10.0.0.0/23") }, networkingv1.ReasonExhausted},
		"all of it excluded":      {excluding(one.DeepCopy(), sixteen), nil, networkingv1.ReasonExhausted},
		"all of it services":      {one, func(s *state) { s.SetService("flag", Pfxs(sixteen)) }, networkingv1.ReasonExhausted},
	} {
		t.Run(what, func(t *testing.T) {
			before := tc.before
			if before == nil {
				before = func(*state) {}
			}
			s := started(t, []*networkingv1.ClusterCIDR{tc.cc}, before)
			p, _ := s.Pool("one")
			got := s.Ready(p)
			said.Check(t, got.Message)
			if got.Reason != tc.reason || (got.Status == metav1.ConditionTrue) != (tc.reason == networkingv1.ReasonAvailable) {
				t.Errorf("got %s %s, %q", got.Reason, got.Status, got.Message)
			}
		})
	}
	s := started(t, []*networkingv1.ClusterCIDR{one}, func(s *state) { s.has(Node("n"), "10.0.0.0/28") })
	p := pool.Compile(one, nil)
	p.Supersede("the flags ask for another range")
	s.SetPool(p)
	used := s.Ready(p)
	if used.Reason != networkingv1.ReasonSuperseded {
		t.Errorf("superseded: %s, %q", used.Reason, used.Message)
	}
	s.gone("n")
	said.Check(t, used.Message, s.Ready(p).Message)
}

// That nothing is allocated any more is said when no write from it can be carried out.
func TestStatusWaitsForWrites(t *testing.T) {
	one := cc("one", nil, 4, "10.0.0.0/24")
	for what, end := range map[string]func(*state){
		"stored":     func(s *state) { s.Stored("n", "uid-n", "9") },
		"shown":      func(s *state) { s.has(Node("n"), "10.0.0.0/28") },
		"refused":    func(s *state) { s.Refused("n", "uid-n") },
		"not sent":   func(s *state) { s.NotSent("n", "uid-n") },
		"gone":       func(s *state) { s.gone("n") },
		"not stored": func(s *state) { s.Unanswered("n", "uid-n", now); s.NotStored("n", "uid-n") },
	} {
		s := started(t, []*networkingv1.ClusterCIDR{one})
		s.show(Node("n"))
		s.send("n")
		off := allocation(networkingv1.AllocationDisabled, one)
		s.set(off)
		if _, known := s.Status(off); known {
			t.Errorf("%s: before, the status says Disabled", what)
		}
		s.Changes()
		end(s)
		if status, known := s.Status(off); !known || meta.IsStatusConditionTrue(status.Conditions, networkingv1.ConditionReady) {
			t.Errorf("%s: the status is not known", what)
		}
		if !s.Changes().ClusterCIDRs.Has("one") {
			t.Errorf("%s: nobody looks at the status again", what)
		}
	}
}

func TestStatus(t *testing.T) {
	one := cc("one", nil, 4, "10.0.0.0/24", "fd00::/56")
	one.Spec.IPv6PerNodeHostBits = new(int32(4))
	excluding(one, "10.0.0.16/29")
	one.Generation = 7
	one.Status.Conditions = []metav1.Condition{
		{Type: networkingv1.ConditionReady, Status: metav1.ConditionTrue, LastTransitionTime: metav1.NewTime(now)},
		{Type: "Foreign", Status: metav1.ConditionTrue},
	}
	s := started(t, []*networkingv1.ClusterCIDR{one, cc("other", sel("p=x"), 4, "10.0.0.128/25")}, func(s *state) {
		s.SetService("flag", Pfxs("10.0.0.32/27"))
		s.has(Node("a", address("10.0.0.200"), address("10.0.0.200"), address("10.0.0.201"), address("192.0.2.1")), "10.0.0.0/28", "fd00::/124") // named once
		s.has(Node("b"), "10.0.0.0/29")
	})
	status, known := s.Status(one)
	if !known {
		t.Fatal("not known")
	}
	if diff := cmp.Diff(&networkingv1.RangeStatus{CIDR: "10.0.0.0/24", BlockPrefixLength: 28, Total: 16, Allocated: 1, Free: 12, Unavailable: 3}, status.IPv4); diff != "" {
		t.Errorf("IPv4 (-want +got):\n%s", diff)
	}
	if got := status.IPv6; got.Total != 1<<63-1 || got.Allocated != 1 || got.Unavailable != 0 || got.Free != 1<<63-1 {
		t.Errorf("IPv6: %+v", got)
	}
	var all []string
	for _, condition := range status.Conditions {
		all = append(all, fmt.Sprintf("%s %s %s %s", condition.Type, condition.Status, condition.Reason, condition.Message))
		if condition.ObservedGeneration != 7 {
			t.Errorf("%s as of %d", condition.Type, condition.ObservedGeneration)
		}
		if condition.Type == networkingv1.ConditionReady && !condition.LastTransitionTime.Time.Equal(now) {
			t.Errorf("an unchanged condition gets another transition time: %v", condition.LastTransitionTime)
		}
	}
	said.Check(t, all...)
	another := one.DeepCopy()
	another.UID = "another"
	if _, known := s.Status(another); known {
		t.Error("the status of another ClusterCIDR of that name is known")
	}
}

// A machine's address passes to the next one before the first Node is gone.
func TestAddressOfTwoNodes(t *testing.T) {
	for left, goes := range map[string]string{"first": "second", "second": "first"} {
		s := started(t, []*networkingv1.ClusterCIDR{cc("one", nil, 4, "10.0.0.0/24")})
		s.show(Node("first", address("10.0.0.200")))
		s.show(Node("second", address("10.0.0.200")))
		p, _ := s.Pool("one")
		s.gone(goes)
		if got := s.Overlapping(p).Message; !strings.Contains(got, "10.0.0.200/32 of "+left) {
			t.Errorf("when %s is gone: %s", goes, got)
		}
		s.gone(left)
		if got := s.Overlapping(p).Reason; got != networkingv1.ReasonNoOverlap {
			t.Errorf("when both are gone: %s", got)
		}
	}
}

func address(a string) func(*v1.Node) {
	return func(n *v1.Node) { n.Status.Addresses = append(n.Status.Addresses, v1.NodeAddress{Address: a}) }
}

func TestTraffic(t *testing.T) {
	s := started(t, []*networkingv1.ClusterCIDR{cc("one", nil, 8, "10.0.0.0/22")}, func(s *state) { s.has(Node("old"), "10.0.1.0/24") })
	for _, name := range []string{"a", "b", "c"} { // .2, .3, and .0 after a look at none other
		s.serve(name)
	}
	s.gone("old")
	s.gone("a")
	s.serve("d") // .1
	p, _ := s.Pool("one")
	got := s.Traffic(p, ipam.IPv4)
	if got.Allocations != 4 || got.Releases != 2 || got.TriesSum != 4 || got.Tries[0] != 4 {
		t.Errorf("got %+v", got)
	}
}

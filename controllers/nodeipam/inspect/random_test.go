package inspect

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	v1 "k8s.io/api/core/v1"
	networkingapiv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	networkingv1 "github.com/multicidr/controller-manager/apis/networking/v1"
	"github.com/multicidr/controller-manager/controllers/internal/race"
	"github.com/multicidr/controller-manager/controllers/ipam"
	. "github.com/multicidr/controller-manager/test/objects"
	"github.com/multicidr/controller-manager/test/seeds"
)

func one[T any](d *rand.Rand, all ...T) T { return all[d.IntN(len(all))] }

// draw draws the objects of a small cluster, some of which break a rule.
func draw(d *rand.Rand) (objects Objects) {
	for i := range 1 + d.IntN(6) {
		objects.ClusterCIDRs = append(objects.ClusterCIDRs, drawAny(d, fmt.Sprint("p", i)))
	}
	for i := range d.IntN(10) {
		n := Node(fmt.Sprint("n", i), Created(int64(d.IntN(5))))
		for _, key := range []string{"a", "b"} {
			if d.IntN(2) == 0 {
				Label(key, one(d, "1", "2"))(n)
			}
		}
		switch d.IntN(8) {
		case 0, 1, 2:
			n.Spec.PodCIDRs = []string{one(d, "10.0.0.0/28", "10.0.0.16/28", "10.0.0.32/27", "10.0.0.0/25", "fd00::/124", "10.9.0.0/24", "unreadable")}
			if d.IntN(3) == 0 {
				n.Spec.PodCIDRs = append(n.Spec.PodCIDRs, one(d, "fd00::10/124", "10.0.0.48/28"))
			}
			if d.IntN(2) == 0 {
				From(fmt.Sprint("p", d.IntN(6)))(n)
			}
		case 3:
			n.DeletionTimestamp = &metav1.Time{}
		}
		if d.IntN(4) == 0 {
			n.Status.Addresses = []v1.NodeAddress{{Type: v1.NodeInternalIP, Address: one(d, "10.0.0.5", "192.168.0.1", "fd00::1")}}
		}
		objects.Nodes = append(objects.Nodes, n)
	}
	if d.IntN(3) == 0 {
		objects.ServiceCIDRs = []*networkingapiv1.ServiceCIDR{{
			ObjectMeta: metav1.ObjectMeta{Name: "kubernetes"}, Spec: networkingapiv1.ServiceCIDRSpec{CIDRs: []string{one(d, "10.0.0.0/28", "10.0.0.8/29", "fd00::/124", "unreadable")}},
		}}
	}
	return objects
}

func drawAny(d *rand.Rand, name string) *networkingv1.ClusterCIDR {
	spec := networkingv1.ClusterCIDRSpec{PerNodeHostBits: int32(one(d, 4, 4, 4, 5, 5, 2, 9)), Priority: int32(d.IntN(2))}
	if d.IntN(8) > 0 {
		spec.IPv4 = one(d, "10.0.0.0/27", "10.0.0.32/27", "10.0.0.0/26", "10.0.0.0/25", "10.0.0.0/24", "unreadable")
	}
	if d.IntN(3) == 0 {
		spec.IPv6 = one(d, "fd00::/123", "fd00::/122", "fd00::/120")
	}
	if d.IntN(3) == 0 {
		spec.NodeSelector = one(d, AnyOf(), AnyOf(AllOf()), AnyOf(AllOf(In("a", "1"))), AnyOf(AllOf(In("a", "1", "2"), In("b", "1"))), AnyOf(AllOf(In("a", "1")), AllOf(In("b", "2"), In("a", "2"))))
	}
	if d.IntN(3) == 0 {
		spec.ExcludedCIDRs = []string{one(d, "10.0.0.0/28", "10.0.0.20/32", "10.0.0.0/8", "fd00::/124", "unreadable")}
	}
	spec.Allocation = one(d, "", "", "", networkingv1.AllocationEnabled, networkingv1.AllocationDisabled, "unreadable")
	cc := ClusterCIDR(name, spec)
	for _, edit := range []func(*networkingv1.ClusterCIDR){NoFinalizer, Deleted, func(cc *networkingv1.ClusterCIDR) {
		cc.Status.Conditions = []metav1.Condition{{
			Type: networkingv1.ConditionReady, Status: metav1.ConditionFalse, Reason: one(d, networkingv1.ReasonDisabled, networkingv1.ReasonExhausted), Message: one(d, "", "because"),
		}}
	}} {
		if d.IntN(5) == 0 {
			edit(cc)
		}
	}
	return cc
}

// Whatever a cluster has, every question is answered, and the answers agree with each other.
func TestRandomClusters(t *testing.T) {
	seeds.Each(t, race.Part(uint64(1000)), func(t *testing.T, seed uint64) {
		d := rand.New(rand.NewPCG(seed, 0))
		objects := draw(d)
		fail := func(format string, args ...any) {
			t.Helper()
			t.Fatalf(format, args...)
		}
		defer seeds.Report(t, seed, nil)
		c := New(objects)
		s := c.Status()
		if n := s.Nodes; n.Total != len(objects.Nodes) || n.Allocated+n.Reserved+n.Pending+n.Deleting+n.None != n.Total {
			fail("the Nodes do not add up: %+v", n)
		}
		for _, cc := range s.ClusterCIDRs {
			for _, r := range cc.Ranges {
				if r.Allocated+r.Reserved+r.Unavailable+r.Free != r.Total {
					fail("the blocks of %s do not add up: %+v", cc.Name, r)
				}
			}
		}
		states := map[NodeState]int{}
		for _, n := range objects.Nodes {
			e, ok := c.Explain(n.Name)
			if !ok {
				fail("Node %s is not known", n.Name)
			}
			states[e.State]++
			if why := e.unsound(); why != "" {
				fail("Node %s: %s: %+v", n.Name, why, e)
			}
		}
		if n := s.Nodes; states[Reserved] != n.Reserved || states[Pending] != n.Pending || states[Deleting] != n.Deleting || states[Allocated] != n.Allocated {
			fail("one by one the Nodes are %v, together %+v", states, n)
		}
		for _, view := range Pfxs("10.0.0.0/24", "10.0.0.16/28", "10.0.0.5/32", "fd00::/120", "0.0.0.0/0") {
			c.Who(view)
			for _, strip := range c.Map("", view, d.IntN(6)) {
				if why := strip.unsound(); why != "" {
					fail("map of %v: %s: %+v", view, why, strip)
				}
			}
		}
		if plan, err := objects.Plan(Changes{Apply: objects.ClusterCIDRs}); err != nil || len(plan.ClusterCIDRs)+len(plan.Nodes)+len(plan.Groups) > 0 {
			fail("a plan that changes nothing: %+v, %v", plan, err)
		}
		labels := map[string]string{"a": one(d, "1", "2")}
		changes := Changes{Apply: []*networkingv1.ClusterCIDR{drawAny(d, fmt.Sprint("p", d.IntN(8)))}, NewNodes: 3, Labels: labels}
		switch name := objects.ClusterCIDRs[0].Name; d.IntN(3) {
		case 0:
			changes.Delete = []string{name}
		case 1:
			changes.Disable = []string{name}
		}
		after, _, err := objects.with(changes)
		if err != nil {
			fail("%v", err)
		}
		plan, err := objects.Plan(changes)
		if err != nil {
			fail("%v", err)
		}
		then := New(after)
		for i, n := range plan.NewNodes {
			e := then.ExplainNew(fmt.Sprintf("(new Node %d)", i+1), labels)
			if !slices.Equal(e.PodCIDRs, n.PodCIDRs) || (e.State == Pending) != (len(n.PodCIDRs) == 0) || e.Message != n.Message {
				fail("new Node %d: planned %+v, explained %+v", i+1, n, e)
			}
			if why := e.unsound(); why != "" {
				fail("new Node %d: %s: %+v", i+1, why, e)
			}
		}
	})
}

// unsound says what contradicts itself in an explanation of what the controller would do; empty if nothing does.
func (e *Explanation) unsound() string {
	if e.State != Reserved && e.State != Pending {
		return ""
	}
	chosen := 0
	for _, p := range e.Candidates {
		switch {
		case p.Outcome == Chosen:
			chosen++
		case p.Outcome == Free:
			return p.ClusterCIDR + " has free blocks, and the Node does not get them"
		case p.Outcome == NotReached && chosen == 0:
			return p.ClusterCIDR + " is not reached, and nothing comes first"
		}
	}
	if (chosen == 1) != (e.State == Reserved) || chosen > 1 || (e.State == Pending) != (e.Message != "") {
		return fmt.Sprintf("%s, and %d are chosen", e.State, chosen)
	}
	return ""
}

// unsound says what is wrong with the cells of a strip; empty if nothing is.
func (s *Strip) unsound() string {
	next := s.CIDR.Addr()
	for _, cell := range s.Cells {
		switch {
		case cell.CIDR.Addr() != next || cell.CIDR.Bits() > s.BlockPrefixLength:
			return fmt.Sprintf("%v is not the next cell, or less than a block", cell.CIDR)
		case cell.Free > cell.Total:
			return fmt.Sprintf("%v has more free blocks than there are", cell.CIDR)
		case cell.Free == cell.Total && (cell.Allocated || cell.Reserved || cell.Service):
			return fmt.Sprintf("%v is free and in use", cell.CIDR)
		}
		next = ipam.After(cell.CIDR)
	}
	if next != ipam.After(s.CIDR) {
		return "the cells end too early, or too late"
	}
	return ""
}

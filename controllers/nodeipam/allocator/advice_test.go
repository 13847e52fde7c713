package allocator

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"

	networkingv1 "github.com/multicidr/controller-manager/apis/networking/v1"
	. "github.com/multicidr/controller-manager/controllers/nodeipam/internal/objects"
	"github.com/multicidr/controller-manager/controllers/nodeipam/pending"
)

// TestAdvice carries out every piece of advice that conditions and events give, one at a time. What was found must be gone then: advice that
// leaves it standing sends people around in circles.
func TestAdvice(t *testing.T) {
	// found returns what is said of the ClusterCIDR "a" or the Node "n": the message, or nothing if all is well.
	condition := func(conditionType, healthy string) func(*State) string {
		return func(b *State) string {
			p, ok := b.pools["a"]
			if !ok {
				return ""
			}
			cc := ClusterCIDR("a", networkingv1.ClusterCIDRSpec{})
			status, _ := b.Status(cc)
			if p.ID != string(cc.UID) {
				t.Fatal("another object")
			}
			c := meta.FindStatusCondition(status.Conditions, conditionType)
			if c.Reason == healthy {
				return ""
			}
			return c.Message
		}
	}
	ready := condition(networkingv1.ConditionReady, networkingv1.ReasonAvailable)
	overlapping := condition(networkingv1.ConditionOverlapping, networkingv1.ReasonNoOverlap)
	conflicted := condition(networkingv1.ConditionConflicted, networkingv1.ReasonNoOverlap)
	pending := func(b *State) string {
		if _, ok, _ := b.Allocate(Node("n")); ok {
			return ""
		}
		return pending.NotAvailable(b.pending["n"].refusals, len(b.pools))
	}
	finding := func(reason string, cidrs ...string) func(*State) string {
		return func(b *State) string {
			n := Node("n")
			n.Spec.PodCIDRs = cidrs
			if _, ok := b.nodes["n"]; !ok {
				return "" // it was deleted, and comes back without podCIDRs
			}
			return b.Findings(n)[reason]
		}
	}

	of := func(cidr string, hostBits int32, edits ...func(*networkingv1.ClusterCIDR)) Step {
		return Set(ClusterCIDR("a", Spec4(cidr, hostBits, nil), edits...))
	}
	without := func(cidrs ...string) func(*networkingv1.ClusterCIDR) {
		return func(cc *networkingv1.ClusterCIDR) { cc.Spec.ExcludedCIDRs = cidrs }
	}
	disabled := func(cc *networkingv1.ClusterCIDR) { cc.Spec.Allocation = networkingv1.AllocationDisabled }
	another := Set(ClusterCIDR("b", Spec4("192.168.0.0/16", 8, nil)))
	service := func(source string, cidrs ...string) Step {
		return func(b *State) string { b.SetService(source, Pfxs(cidrs...)); return "" }
	}
	at := func(name, address string) Step {
		return func(b *State) string { b.Observe(Node(name), nil, Pfxs(address)); return "" }
	}
	type advice map[string][]Step // what it says, and what is done then

	for name, tc := range map[string]struct {
		steps  []Step
		found  func(*State) string
		advice advice
	}{
		"a full range": {[]Step{of("10.0.0.0/24", 8), Shows(Node("n1"), "10.0.0.0/24")}, ready,
			advice{"delete Nodes that are not needed": {Gone("n1")}}},
		"a full range, a Node is pending": {[]Step{of("10.0.0.0/24", 8), Shows(Node("n1"), "10.0.0.0/24")}, pending,
			advice{"delete Nodes that are not needed": {Gone("n1")}, "Create another one": {another}}},
		"a range that is full because of its exclusions": {[]Step{of("10.0.0.0/23", 8, without("10.0.1.0/24")), Shows(Node("n1"), "10.0.0.0/24")}, ready,
			advice{"Remove from it what this ClusterCIDR may allocate": {of("10.0.0.0/23", 8)}, "delete Nodes that are not needed": {Gone("n1")}}},
		"a range that is excluded as a whole": {[]Step{of("10.0.0.0/23", 8, without("10.0.0.0/23"))}, ready,
			advice{"Remove from it what this ClusterCIDR may allocate": {of("10.0.0.0/23", 8)}}},
		"the same, a Node is pending": {[]Step{of("10.0.0.0/23", 8, without("10.0.0.0/23"))}, pending,
			advice{"shorten spec.excludedCIDRs where the condition Ready names some": {of("10.0.0.0/23", 8)}, "Create another one": {another}}},
		"a range inside a service range": {[]Step{of("10.0.0.0/23", 8), service("s", "10.0.0.0/16")}, pending,
			advice{"Create another one": {another}}},
		"the same, with a Node in it": {[]Step{of("10.0.0.0/23", 8), service("s", "10.0.0.0/16"), Shows(Node("n1"), "10.0.0.0/24")}, ready,
			advice{"All of it is in service ranges. Create another ClusterCIDR with other addresses": nil}},
		"a Node with a podCIDR larger than a block": {[]Step{of("10.0.0.0/23", 8), Shows(Node("n1"), "10.0.0.0/16")}, ready,
			advice{"Delete the Nodes that should not have them": {Gone("n1")}, "delete Nodes that are not needed": {Gone("n1")}}},
		"a Node with a large podCIDR, another one is pending": {[]Step{of("10.0.0.0/23", 8), Shows(Node("n1"), "10.0.0.0/16")}, pending,
			advice{"delete Nodes that are not needed": {Gone("n1")}, "Create another one": {another}}},
		"a block size that does not fit": {[]Step{of("10.0.0.0/24", 16)}, ready,
			advice{"Delete this ClusterCIDR and create one that is right": {drop("a"), of("10.0.0.0/16", 8)}}},
		"a block size that does not fit, a Node is pending": {[]Step{of("10.0.0.0/24", 16)}, pending, advice{"Create another one": {another}}},
		"an exclusion that cannot be read": {[]Step{of("10.0.0.0/16", 8, without("10.0.0.0/16/2"))}, ready,
			advice{"Correct this field": {of("10.0.0.0/16", 8, without("10.0.0.0/24"))}}},
		"an unknown allocation mode": {[]Step{of("10.0.0.0/16", 8, func(cc *networkingv1.ClusterCIDR) { cc.Spec.Allocation = "Foo" })}, ready,
			advice{"Correct this field": {of("10.0.0.0/16", 8)}}},
		"an exclusion that cannot be read, and a block size that does not fit": {[]Step{of("10.0.0.0/24", 16, without("10.0.0.0/16/2"))}, ready,
			advice{"Delete this ClusterCIDR and create one that is right": {drop("a"), of("10.0.0.0/16", 8)}}},
		"disabled, a Node is pending": {[]Step{of("10.0.0.0/16", 8, disabled)}, pending,
			advice{"set spec.allocation: Enabled": {of("10.0.0.0/16", 8)}, "Create another one": {another}}},
		"no ClusterCIDR": {nil, pending, advice{"Create one that selects this Node": {another}}},
		"none that selects": {[]Step{Set(ClusterCIDR("a", Spec4("10.0.0.0/16", 8, AnyOf(AllOf(In("p", "x"))))))}, pending,
			advice{"create a ClusterCIDR that selects it": {another}}},
		"the address of a Node": {[]Step{of("10.0.0.0/16", 8), at("n1", "10.0.7.9/32")}, overlapping,
			advice{"exclude them": {of("10.0.0.0/16", 8, without("10.0.7.9/32"))}, "use another range": {drop("a"), of("10.1.0.0/16", 8)}}},
		"loopback addresses": {[]Step{of("127.0.0.0/16", 8)}, overlapping,
			advice{"exclude them": {of("127.0.0.0/16", 8, without("127.0.0.0/16"))}, "use another range": {drop("a"), of("10.1.0.0/16", 8)}}},
		"multicast addresses in a wide range": {[]Step{of("192.0.0.0/2", 8)}, overlapping,
			advice{"exclude them": {of("192.0.0.0/2", 8, without("224.0.0.0/4"))}}},
		"the whole address space as a block": {[]Step{of("0.0.0.0/0", 32)}, overlapping,
			advice{"Create a ClusterCIDR with another range and block size, and delete this one": {another, drop("a")}}},
		"a range inside a service range, of itself": {[]Step{of("10.0.0.0/23", 8), service("s", "10.0.0.0/16")}, ready,
			advice{"Create another ClusterCIDR with other addresses": {drop("a"), another}}},
		"another ClusterCIDR": {[]Step{of("10.0.0.0/16", 8), Set(ClusterCIDR("b", Spec4("10.0.5.0/24", 4, nil)))}, overlapping,
			advice{"exclude in one of them what only the other is to allocate": {of("10.0.0.0/16", 8, without("10.0.5.0/24"))}}},
		"another ClusterCIDR, which excludes it": {[]Step{Set(ClusterCIDR("a", Spec4("10.0.5.0/24", 4, nil))), Set(ClusterCIDR("b", Spec4("10.0.0.0/16", 8, nil)))}, overlapping,
			advice{"exclude in one of them what only the other is to allocate": {Set(ClusterCIDR("b", Spec4("10.0.0.0/16", 8, nil), without("10.0.5.0/24")))}}},
		"a service range": {[]Step{of("10.0.0.0/16", 8), service("s", "10.0.0.0/24")}, overlapping,
			advice{"which are never allocated": {of("10.0.0.0/16", 8, without("10.0.0.0/24"))}}},
		"two Nodes with a block": {[]Step{of("10.0.0.0/16", 8), Shows(Node("n"), "10.0.0.0/24"), Shows(Node("n2"), "10.0.0.0/24")}, conflicted,
			advice{"Delete the Nodes that should not have them": {Gone("n2")}}},
		"the same, on the Node": {[]Step{of("10.0.0.0/16", 8), Shows(Node("n"), "10.0.0.0/24"), Shows(Node("n2"), "10.0.0.0/24")}, finding(ReasonConflict, "10.0.0.0/24"),
			advice{"delete this Node": {Gone("n")}, "or the others": {Gone("n2")}}},
		"a podCIDR in no range": {[]Step{another, Shows(Node("n"), "10.0.0.0/24")}, finding(ReasonOutsideRanges, "10.0.0.0/24"),
			advice{"Create a ClusterCIDR that contains them": {of("10.0.0.0/16", 8)}, "delete the Node": {Gone("n")}}},
		"a podCIDR in no range, but in a service range": {[]Step{another, service("s", "10.0.0.0/24"), Shows(Node("n"), "10.0.0.0/24")}, finding(ReasonOutsideRanges, "10.0.0.0/24"),
			advice{"Drain and delete the Node": {Gone("n")}}},
		"a podCIDR of IPv4-mapped addresses": {[]Step{another, Shows(Node("n"), "::ffff:0:0/96")}, finding(ReasonOutsideRanges, "::ffff:0:0/96"),
			advice{"Drain and delete the Node": {Gone("n")}}},
		"a podCIDR that cannot be read": {[]Step{another, at("n", "192.0.2.1/32")}, finding(ReasonUnreadable, "ten"),
			advice{"Delete the Node": {Gone("n")}}},
	} {
		t.Run(name, func(t *testing.T) {
			for says, remedy := range tc.advice {
				b := New()
				for _, s := range tc.steps {
					s(b)
				}
				message := tc.found(b)
				if !strings.Contains(message, says) {
					t.Errorf("%q does not say %q", message, says)
				}
				for _, s := range remedy {
					s(b)
				}
				if still := tc.found(b); remedy != nil && still != "" {
					t.Errorf("%q was done, and it still says: %s", says, still)
				}
			}
			if strings.Contains(firstOf(tc.steps, tc.found), "delete Nodes that are not needed") && tc.advice["delete Nodes that are not needed"] == nil {
				t.Error("it says to delete Nodes that are not needed, which is not tried")
			}
		})
	}
}

// firstOf is what is found at first.
func firstOf(steps []Step, found func(*State) string) string {
	b := New()
	for _, s := range steps {
		s(b)
	}
	return found(b)
}

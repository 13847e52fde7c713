package allocator

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	networkingv1 "github.com/multicidr/controller-manager/apis/networking/v1"
	"github.com/multicidr/controller-manager/controllers/ipam"
	"github.com/multicidr/controller-manager/controllers/nodeipam/clustercidr"
	. "github.com/multicidr/controller-manager/controllers/nodeipam/internal/objects"
	"github.com/multicidr/controller-manager/controllers/nodeipam/pending"
)

// The steps of one history of a state. Each returns what it has to say: a Node's blocks, or why it waits.

type Step func(b *State) string

// Reserve asks for blocks for a Node that shows none, and sends them.
func Reserve(n *v1.Node) Step {
	return func(b *State) string {
		r, refusals, ok := b.Reserve(n)
		if !ok {
			return "waits: " + pending.Text(refusals)
		}
		b.Sending(n, 0)
		return fmt.Sprintf("%s %s", r.ClusterCIDR, strings.Join(Texts(r.Blocks), " "))
	}
}

// Shows says that a Node has podCIDRs.
func Shows(n *v1.Node, cidrs ...string) Step {
	return func(b *State) string { b.Observe(n, Pfxs(cidrs...), nil); return "" }
}

func Gone(name string) Step {
	return func(b *State) string {
		uid, known := b.UID(name)
		if !known {
			uid = b.pending[name].uid
		}
		b.NodeGone(name, uid)
		return ""
	}
}

func Set(cc *networkingv1.ClusterCIDR) Step {
	return func(b *State) string { b.SetPool(clustercidr.Compile(cc)); return "" }
}

func drop(clusterCIDR string) Step {
	return func(b *State) string { b.DropPool(clusterCIDR); return "" }
}

// Woken tells whom the steps since the last call woke.
func Woken(b *State) string {
	b.AllocatePending()
	e := b.Changes()
	return strings.Join(append(e.Nodes, e.Terminating...), " ")
}

func inUse(clusterCIDR string) Step {
	return func(b *State) string { return fmt.Sprint(b.InUse(clusterCIDR)) }
}

func TestBook(t *testing.T) {
	type say struct {
		step Step
		want string
	}
	quiet := func(s Step) say { return say{s, ""} }
	selX := AnyOf(AllOf(In("p", "x")))
	for name, history := range map[string][]say{
		"a reservation stands until the Node is gone, however often it is asked for": {
			quiet(Set(ClusterCIDR("a", Spec4("10.0.0.0/23", 8, nil)))),
			{Reserve(Node("n1")), "a 10.0.0.0/24"},
			{Reserve(Node("n2")), "a 10.0.1.0/24"},
			{Reserve(Node("n1")), "a 10.0.0.0/24"},
			{Reserve(Node("n3")), "waits: a is full (IPv4)"},
			quiet(Gone("n1")),
			{Woken, "n3"},
			{Reserve(Node("n3")), "a 10.0.0.0/24"},
		},
		"a Node outside of the first ClusterCIDR is looked at again": {
			quiet(Shows(Node("n1"), "10.0.0.0/24")),
			{Woken, "n1"},
			quiet(Set(ClusterCIDR("a", Spec4("10.1.0.0/16", 8, nil)))),
			{Woken, "n1"},
			quiet(Set(ClusterCIDR("b", Spec4("10.2.0.0/16", 8, nil)))),
			{Woken, ""},
		},
		"a reservation outlives its ClusterCIDR": {
			quiet(Set(ClusterCIDR("a", Spec4("10.0.0.0/24", 8, nil)))),
			{Reserve(Node("n1")), "a 10.0.0.0/24"},
			quiet(drop("a")),
			quiet(Set(ClusterCIDR("b", Spec4("10.0.0.0/24", 8, nil)))),
			{Reserve(Node("n2")), "waits: b is full (IPv4)"},
			{Reserve(Node("n1")), "a 10.0.0.0/24"},
		},
		"a Node of the same name with another UID is another Node": {
			quiet(Set(ClusterCIDR("a", Spec4("10.0.0.0/23", 8, nil)))),
			{Reserve(Node("n1")), "a 10.0.0.0/24"},
			{Reserve(Node("n1", UID("second"))), "a 10.0.1.0/24"},
			{Reserve(Node("n2")), "a 10.0.0.0/24"},
		},
		"what a Node shows replaces its reservation": {
			quiet(Set(ClusterCIDR("a", Spec4("10.0.0.0/24", 8, nil)))),
			{Reserve(Node("n1")), "a 10.0.0.0/24"},
			{Reserve(Node("n2")), "waits: a is full (IPv4)"},
			quiet(Shows(Node("n1"), "172.16.0.0/24")),
			{Woken, "n2 n1"}, // n1 is outside of every range now
			{Reserve(Node("n2")), "a 10.0.0.0/24"},
		},
		"a reservation confirmed wakes nobody": {
			quiet(Set(ClusterCIDR("a", Spec4("10.0.0.0/24", 8, nil)))),
			{Reserve(Node("n1")), "a 10.0.0.0/24"},
			{Reserve(Node("n2")), "waits: a is full (IPv4)"},
			quiet(Shows(Node("n1", From("a")), "10.0.0.0/24")),
			quiet(Woken),
		},
		"a block shared by two Nodes is free when both are gone": {
			quiet(Set(ClusterCIDR("a", Spec4("10.0.0.0/24", 8, nil)))),
			quiet(Shows(Node("n1"), "10.0.0.0/24")),
			quiet(Shows(Node("n2"), "10.0.0.0/25")),
			quiet(Gone("n1")),
			{Reserve(Node("n3")), "waits: a is full (IPv4)"},
			quiet(Gone("n2")),
			{Reserve(Node("n3")), "a 10.0.0.0/24"},
		},
		"a Node that holds a whole range is named": {
			quiet(Set(ClusterCIDR("a", Spec4("10.0.0.0/23", 8, nil)))),
			quiet(Set(ClusterCIDR("single", Spec4("10.0.4.0/24", 8, nil)))),
			quiet(Shows(Node("larger"), "10.0.0.0/16")),
			quiet(Shows(Node("evil"), "0.0.0.0/0")),
			{Reserve(Node("n1")), "waits: single is full (IPv4; Node evil holds 0.0.0.0/0); a is full (IPv4; Node evil holds 0.0.0.0/0)"},
			quiet(Gone("evil")),
			{Reserve(Node("n1")), "waits: single is full (IPv4; Node larger holds 10.0.0.0/16); a is full (IPv4; Node larger holds 10.0.0.0/16)"},
			quiet(Gone("larger")),
			quiet(Shows(Node("block"), "10.0.4.0/24")), // a block of its own size, though it is all there is
			quiet(Shows(Node("half"), "10.0.0.0/24")),
			quiet(Shows(Node("other-half"), "10.0.1.0/24")),
			{Reserve(Node("n1")), "waits: single is full (IPv4); a is full (IPv4)"},
		},
		"a dual-stack pool that lacks one family loses nothing of the other": {
			quiet(Set(ClusterCIDR("both", networkingv1.ClusterCIDRSpec{IPv4: "10.0.0.0/23", IPv6: "fd00::/120", PerNodeHostBits: 8}))),
			{Reserve(Node("n1")), "both 10.0.0.0/24 fd00::/120"},
			{Reserve(Node("n2")), "waits: both is full (IPv6)"},
			quiet(Set(ClusterCIDR("four", Spec4("10.0.1.0/24", 8, nil)))),
			{Reserve(Node("n2")), "four 10.0.1.0/24"},
		},
		"the next matching pool serves when the first is full": {
			quiet(Set(ClusterCIDR("x", Spec4("10.1.0.0/24", 8, selX)))),
			quiet(Set(ClusterCIDR("all", Spec4("10.2.0.0/16", 8, nil)))),
			{Reserve(Node("n1", Label("p", "x"))), "x 10.1.0.0/24"},
			{Reserve(Node("n2", Label("p", "x"))), "all 10.2.0.0/24"},
		},
		"nobody overtakes a pool that is about to serve, but one that cannot is passed over": {
			quiet(Set(ClusterCIDR("x", Spec4("10.1.0.0/24", 8, selX), NoFinalizer))),
			quiet(Set(ClusterCIDR("all", Spec4("10.2.0.0/16", 8, nil)))),
			{Reserve(Node("n1", Label("p", "x"))), "waits: x is pending"},
			{Reserve(Node("other")), "all 10.2.0.0/24"},
			quiet(func(b *State) string {
				failed := clustercidr.Compile(ClusterCIDR("x", Spec4("10.1.0.0/24", 8, selX), NoFinalizer))
				failed.Problem = "no permission"
				b.SetPool(failed)
				return ""
			}),
			{Woken, "n1"},
			{Reserve(Node("n1", Label("p", "x"))), "all 10.2.1.0/24"},
		},
		"disabled, terminating and invalid pools give nothing": {
			quiet(Set(ClusterCIDR("d", Spec4("10.1.0.0/16", 8, nil), func(cc *networkingv1.ClusterCIDR) { cc.Spec.Allocation = networkingv1.AllocationDisabled }))),
			quiet(Set(ClusterCIDR("i", Spec4("10.2.0.0/16", 20, nil)))),
			quiet(Set(ClusterCIDR("t", Spec4("10.3.0.0/16", 8, nil), Deleted))),
			{Reserve(Node("n1")), "waits: d is disabled; t is terminating; i is invalid (spec.ipv4: a block of 20 host bits does not fit into 10.2.0.0/16, which has 16)"},
		},
		"exclusions count at once and stop counting at once": {
			quiet(Set(ClusterCIDR("a", networkingv1.ClusterCIDRSpec{IPv4: "10.0.0.0/23", PerNodeHostBits: 8, ExcludedCIDRs: []string{"10.0.0.0/28"}}))),
			{Reserve(Node("n1")), "a 10.0.1.0/24"},
			{Reserve(Node("n2")), "waits: a is full (IPv4; it has spec.excludedCIDRs)"},
			quiet(Woken),
			quiet(Set(ClusterCIDR("a", Spec4("10.0.0.0/23", 8, nil)))),
			{Woken, "n2"},
			{Reserve(Node("n2")), "a 10.0.0.0/24"},
		},
		"who holds what a ClusterCIDR excludes is no news for a Node that waits for it": {
			quiet(Set(ClusterCIDR("wide", networkingv1.ClusterCIDRSpec{IPv4: "10.50.0.0/23", PerNodeHostBits: 8, ExcludedCIDRs: []string{"10.50.1.0/24"}}))),
			quiet(Set(ClusterCIDR("special", Spec4("10.50.1.0/24", 4, selX)))),
			{Reserve(Node("n1")), "wide 10.50.0.0/24"},
			{Reserve(Node("n2")), "waits: wide is full (IPv4; it has spec.excludedCIDRs)"},
			{Reserve(Node("s", Label("p", "x"))), "special 10.50.1.0/28"},
			{Reserve(Node("n2")), "waits: wide is full (IPv4; it has spec.excludedCIDRs)"},
		},
		"what one ClusterCIDR excludes another one gives": {
			quiet(Set(ClusterCIDR("wide", networkingv1.ClusterCIDRSpec{IPv4: "10.50.0.0/16", PerNodeHostBits: 8, ExcludedCIDRs: []string{"10.50.5.0/24"}}))),
			quiet(Set(ClusterCIDR("special", Spec4("10.50.5.0/24", 4, selX)))),
			{Reserve(Node("n1", Label("p", "x"))), "special 10.50.5.0/28"},
			quiet(Set(ClusterCIDR("all", networkingv1.ClusterCIDRSpec{IPv4: "0.0.0.0/0", PerNodeHostBits: 8, ExcludedCIDRs: []string{"0.0.0.0/0"}, Allocation: networkingv1.AllocationDisabled}))),
			{Reserve(Node("n2", Label("p", "x"))), "special 10.50.5.16/28"},
			{Reserve(Node("n3")), "wide 10.50.0.0/24"},
		},
		"a ClusterCIDR created again under its name starts anew, its predecessor's exclusions are gone": {
			quiet(Set(ClusterCIDR("a", networkingv1.ClusterCIDRSpec{IPv4: "10.0.0.0/23", PerNodeHostBits: 8, ExcludedCIDRs: []string{"10.0.0.0/24"}}))),
			{Reserve(Node("n1")), "a 10.0.1.0/24"},
			quiet(Set(ClusterCIDR("a", Spec4("10.0.0.0/23", 8, nil), func(cc *networkingv1.ClusterCIDR) { cc.UID = "second" }))),
			{Reserve(Node("n2")), "a 10.0.0.0/24"},
		},
		"the same ClusterCIDR again wakes nobody": {
			quiet(Set(ClusterCIDR("a", Spec4("10.0.0.0/24", 8, selX)))),
			{Reserve(Node("n1")), "waits: "},
			quiet(Set(ClusterCIDR("a", Spec4("10.0.0.0/24", 8, selX)))),
			quiet(Woken),
		},
		"a terminating ClusterCIDR is looked at again when something is freed": {
			quiet(Set(ClusterCIDR("a", Spec4("10.0.0.0/16", 8, nil), Deleted))),
			quiet(Shows(Node("n1"), "10.0.0.0/24")),
			{inUse("a"), "true"},
			quiet(Set(ClusterCIDR("a", Spec4("10.0.0.0/16", 8, nil), Deleted))), // the same, read again
			{inUse("a"), "true"},
			{Woken, "a"},
			quiet(Gone("n1")),
			{Woken, "a"},
			{inUse("a"), "false"},
		},
		"without an annotation a Node belongs to every pool that contains one of its blocks": {
			quiet(Set(ClusterCIDR("a", Spec4("10.0.0.0/16", 8, nil)))),
			quiet(Set(ClusterCIDR("b", Spec4("10.0.0.0/8", 8, nil)))),
			quiet(Set(ClusterCIDR("c", Spec4("10.1.0.0/16", 8, nil)))),
			quiet(Shows(Node("n1"), "10.0.0.0/24", "fd00::/64")),
			{inUse("a"), "true"},
			{inUse("b"), "true"},
			{inUse("c"), "false"},
		},
		"with an annotation it belongs to that pool alone": {
			quiet(Set(ClusterCIDR("a", Spec4("10.0.0.0/16", 8, nil)))),
			quiet(Set(ClusterCIDR("b", Spec4("10.0.0.0/8", 8, nil)))),
			quiet(Shows(Node("n1", From("b")), "10.0.0.0/24")),
			{inUse("a"), "false"},
			{inUse("b"), "true"},
		},
		"an annotation that cannot be true does not count": {
			quiet(Set(ClusterCIDR("a", Spec4("10.0.0.0/16", 8, nil)))),
			quiet(Set(ClusterCIDR("c", Spec4("10.1.0.0/16", 8, nil)))),
			quiet(Shows(Node("n1", From("c")), "10.0.0.0/24")),
			quiet(Shows(Node("n2", From("no such")), "10.1.0.0/24")),
			{inUse("a"), "true"},
			{inUse("c"), "true"},
		},
		"a relabelled Node still belongs to the pool it was served from": {
			quiet(Set(ClusterCIDR("x", Spec4("10.1.0.0/24", 8, selX)))),
			quiet(Shows(Node("n1", From("x"), Label("p", "y")), "10.1.0.0/24")),
			{inUse("x"), "true"},
			quiet(Gone("n1")),
			{inUse("x"), "false"},
		},
		"others are looked at again when what they share, or the range around them, comes or goes": {
			quiet(Set(ClusterCIDR("a", Spec4("10.0.0.0/16", 8, nil)))),
			quiet(Shows(Node("n1", From("a")), "10.0.0.0/24")),
			quiet(Woken),
			quiet(Shows(Node("n2"), "10.0.0.0/25")),
			{Woken, "n1 n2"},
			quiet(Gone("n2")),
			{Woken, "n1 n2"},
			quiet(func(b *State) string { b.SetService("ServiceCIDR s", Pfxs("10.0.0.0/28")); return "" }),
			{Woken, "n1"},
			quiet(func(b *State) string { b.SetService("ServiceCIDR s", nil); return "" }),
			{Woken, "n1"},
			quiet(Shows(Node("n3"), "10.0.1.0/24")),
			quiet(Woken),
			quiet(drop("a")),
			{Woken, "n1 n3"},
		},
		"a podCIDR larger than the range blocks it and belongs to nobody": {
			quiet(Set(ClusterCIDR("a", Spec4("10.0.0.0/24", 8, nil)))),
			quiet(Shows(Node("n1"), "10.0.0.0/16")),
			{inUse("a"), "false"},
			{Reserve(Node("n2")), "waits: a is full (IPv4; Node n1 holds 10.0.0.0/16)"},
		},
		"the oldest Node is woken first": {
			{Reserve(Node("n1", Created(3))), "waits: "},
			{Reserve(Node("n2", Created(1))), "waits: "},
			{Reserve(Node("n3", Created(2))), "waits: "},
			quiet(Woken),
			quiet(Set(ClusterCIDR("a", Spec4("10.0.0.0/16", 8, nil)))),
			{Woken, "n2 n3 n1"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := New()
			for i, s := range history {
				if got := s.step(b); got != s.want {
					t.Fatalf("step %d: got %q, want %q", i+1, got, s.want)
				}
			}
		})
	}
}

// TestAllAtOnceIsOneByOne compares what a state knows after Rebuild with what it knows after Observe of each Node.
func TestAllAtOnceIsOneByOne(t *testing.T) {
	// Few addresses, so that many Nodes share some, lie in no range, or have their own address in one.
	var blocks []string
	for i := range 16 {
		blocks = append(blocks, fmt.Sprintf("10.%d.0.0/16", i), fmt.Sprintf("10.%d.1.0/24", i), fmt.Sprintf("fd00:0:0:%d::/64", i))
	}
	pools := []*clustercidr.Pool{
		clustercidr.Compile(ClusterCIDR("a", Spec4("10.0.0.0/13", 8, nil))),
		clustercidr.Compile(ClusterCIDR("b", Spec4("10.0.0.0/14", 8, nil))),
		clustercidr.Compile(ClusterCIDR("c", networkingv1.ClusterCIDRSpec{IPv6: "fd00::/60"})),
	}
	sharing, outsiders, inside := 0, 0, 0
	for seed := range uint64(200) {
		rng := rand.New(rand.NewPCG(seed, 0))
		var all []*v1.Node
		for i := range rng.IntN(20) {
			n := Node(fmt.Sprint("n", i))
			for range rng.IntN(3) {
				n.Spec.PodCIDRs = append(n.Spec.PodCIDRs, blocks[rng.IntN(len(blocks))])
			}
			for range rng.IntN(2) {
				n.Status.Addresses = append(n.Status.Addresses, v1.NodeAddress{Address: fmt.Sprintf("10.%d.2.%d", rng.IntN(32), i)})
			}
			if rng.IntN(2) == 0 {
				From(pools[rng.IntN(len(pools))].Name)(n)
			}
			all = append(all, n)
		}
		one, each := New(), New()
		known := pools[:rng.IntN(len(pools)+1)]
		for _, b := range []*State{one, each} {
			b.SetService("flag", Pfxs("10.1.1.0/25"))
			for _, p := range known {
				b.SetPool(p)
			}
		}
		one.Rebuild(all, atOnce)
		for _, n := range all {
			blocks, _ := clustercidr.PodCIDRsOf(n)
			each.Observe(n, blocks, clustercidr.AddressesOf(n))
		}
		for _, e := range each.nodes {
			e.atStart = e.state == Assigned // which is what makes the one the start
		}
		if !reflect.DeepEqual(one, each) {
			t.Fatalf("seed %d: all at once: %+v\none by one: %+v", seed, one, each)
		}
		sharing, outsiders, inside = sharing+len(one.sharing), outsiders+len(one.outOfRange), inside+len(one.addresses.Overlapping(Pfx("0.0.0.0/0")))
	}
	if min(sharing, outsiders, inside) < 100 {
		t.Errorf("%d Nodes shared addresses, %d were in no range, %d addresses in one: too few to compare", sharing, outsiders, inside)
	}
}

func TestByFirstBlock(t *testing.T) {
	var all []shown
	for _, blocks := range []string{"fd00:0:0:2::/64", "10.0.2.0/24", "", "10.0.1.0/24 fd00::/64", "fd00:0:0:1::/64", "9.0.0.0/24"} {
		all = append(all, shown{node: Node(blocks), blocks: Pfxs(strings.Fields(blocks)...)})
	}
	var got []string
	for _, h := range byFirstBlock(all) {
		got = append(got, strings.Join(Texts(h.blocks), " "))
		if want := OwnerOf(Node(got[len(got)-1]).UID); h.owner != want {
			t.Errorf("%v holds %v, want %v", h.owner, h.blocks, want)
		}
	}
	if diff := cmp.Diff([]string{"9.0.0.0/24", "10.0.1.0/24 fd00::/64", "10.0.2.0/24", "fd00:0:0:1::/64", "fd00:0:0:2::/64"}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// A ClusterCIDR that another controller served Nodes from, or an older CRD took, may have blocks of a size that is refused today.
func TestInvalidRangeKeepsItsNodes(t *testing.T) {
	for _, hostBits := range []int32{-1, 0, 3, 17, 1 << 30} {
		cc := ClusterCIDR("a", Spec4("10.0.0.0/16", hostBits, nil))
		cc.DeletionTimestamp = &metav1.Time{}
		b := New()
		b.SetPool(clustercidr.Compile(cc))
		b.Observe(Node("n", From("a")), Pfxs("10.0.3.0/24"), nil)
		if !b.InUse("a") {
			t.Errorf("host bits %d: nobody belongs to it, and its finalizer goes", hostBits)
		}
		if found := b.Findings(Node("n", From("a"))); len(found) > 0 {
			t.Errorf("host bits %d: %v", hostBits, found)
		}
	}
}

func TestFindings(t *testing.T) {
	b := New()
	b.SetPool(clustercidr.Compile(ClusterCIDR("a", Spec4("10.0.0.0/16", 8, nil))))
	show := func(name string, cidrs ...string) *v1.Node {
		n := Node(name)
		n.Spec.PodCIDRs = cidrs
		blocks, _ := clustercidr.PodCIDRsOf(n)
		b.Observe(n, blocks, nil)
		return n
	}
	inside := show("inside", "10.0.0.0/24")
	outside := show("outside", "172.16.0.0/24")
	twin := show("twin", "10.0.1.0/24")
	other := show("other", "10.0.1.128/25")
	garbled := show("garbled", "10.0.2.0/24", "ten")
	b.SetService("services", Pfxs("10.96.0.0/12"))
	service := show("service", "10.96.1.0/24")
	for name, tc := range map[string]struct {
		node *v1.Node
		want map[string]string // a part of the message, by reason
	}{
		"nothing wrong":     {inside, map[string]string{}},
		"in no ClusterCIDR": {outside, map[string]string{ReasonOutsideRanges: "[172.16.0.0/24] lie in no ClusterCIDR. They stay as they are and are given to nobody else. Create a ClusterCIDR that contains them, or"}},
		"in no ClusterCIDR but in a service range, where none belongs": {service, map[string]string{
			ReasonOutsideRanges: "[10.96.1.0/24] lie in no ClusterCIDR. They stay as they are and are given to nobody else. Drain and delete the Node and",
			ReasonConflict:      "share addresses with service range services (10.96.0.0/12). Two Pods, or a Pod and a Service, may get the same address: drain and delete this Node and",
		}},
		"shared, said of the one":        {twin, map[string]string{ReasonConflict: "share addresses with Node other (10.0.1.128/25). Two Pods, or a Pod and a Service, may get the same address: drain and delete this Node or the others"}},
		"shared, said of the other":      {other, map[string]string{ReasonConflict: "share addresses with Node twin (10.0.1.0/24)"}},
		"unreadable, what can be counts": {garbled, map[string]string{ReasonUnreadable: `"ten" cannot be read`}},
	} {
		t.Run(name, func(t *testing.T) {
			got := b.Findings(tc.node)
			for reason, part := range tc.want {
				if !strings.Contains(got[reason], part) {
					t.Errorf("%s: %q, want %q in it", reason, got[reason], part)
				}
			}
			if len(got) != len(tc.want) {
				t.Errorf("findings %v, want %v", got, tc.want)
			}
		})
	}
	t.Run("without any ClusterCIDR nobody is outside", func(t *testing.T) {
		b.DropPool("a")
		if got := b.Findings(outside); len(got) > 0 {
			t.Errorf("findings %v, want none", got)
		}
	})
}

func TestNotAvailableSaysWhatToDo(t *testing.T) {
	full := func(name string) pending.Refusal {
		return pending.Refusal{Pool: &clustercidr.Pool{Pool: ipam.Pool{Name: name}}, Full: []ipam.Family{ipam.IPv4, ipam.IPv6}, Used: true}
	}
	in := func(state ipam.State) pending.Refusal {
		return pending.Refusal{Pool: &clustercidr.Pool{Pool: ipam.Pool{Name: "a", State: state}}}
	}
	var many []pending.Refusal
	for i := range 2000 {
		many = append(many, full(fmt.Sprintf("a-name-of-some-length-%d", i)))
	}
	for name, tc := range map[string]struct {
		refusals []pending.Refusal
		pools    int
		want     string
	}{
		"no ClusterCIDR":  {nil, 0, "No ClusterCIDR exists. Create one that selects this Node."},
		"none matches":    {nil, 3, "None of the 3 ClusterCIDRs selects this Node. Change its labels or create a ClusterCIDR that selects it."},
		"one is full":     {[]pending.Refusal{full("a")}, 3, "No ClusterCIDR that selects this Node can serve it: a is full (IPv4 and IPv6). Create another one, or delete Nodes that are not needed."},
		"one is disabled": {[]pending.Refusal{in(ipam.Disabled)}, 3, "can serve it: a is disabled. Create another one, or set spec.allocation: Enabled."},
		"one goes":        {[]pending.Refusal{in(ipam.Terminating)}, 3, "can serve it: a is terminating. Create another one."},
		"of each a bit":   {[]pending.Refusal{in(ipam.Disabled), full("b")}, 3, "a is disabled; b is full (IPv4 and IPv6). Create another one, or set spec.allocation: Enabled, or delete Nodes that are not needed."},
		"more than a few": {many, 3000, "a-name-of-some-length-9 is full (IPv4 and IPv6); and more. Create another one"},
	} {
		t.Run(name, func(t *testing.T) {
			got := pending.NotAvailable(tc.refusals, tc.pools)
			if !strings.Contains(got, tc.want) {
				t.Errorf("got %q, want %q", got, tc.want)
			}
			if len(got) > 1024 {
				t.Errorf("%d bytes; the API server takes 1024", len(got))
			}
		})
	}
}

// A Node's own address is noticed in a range, whichever comes first, until one of them is gone.
func TestAddressesInRanges(t *testing.T) {
	b := New()
	in := ClusterCIDR("in", Spec4("10.0.0.0/16", 8, nil))
	around := ClusterCIDR("around", Spec4("10.0.0.0/8", 8, nil))
	check := func(when string, want map[string]string) {
		t.Helper()
		got := map[string]string{}
		for name, p := range b.pools {
			if c := b.Overlapping(p); strings.Contains(c.Message, "10.0.7.1") {
				got[name] = c.Message[strings.Index(c.Message, "10.0.7.1"):][:len("10.0.7.1/32 of n1")]
			}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", when, diff)
		}
	}
	n := Node("n1")
	b.Observe(n, nil, Pfxs("10.0.7.1/32", "fd00::1/128"))
	b.SetPool(clustercidr.Compile(in))
	check("the range comes after the Node", map[string]string{"in": "10.0.7.1/32 of n1"})
	b.SetPool(clustercidr.Compile(around))
	check("another range comes", map[string]string{"in": "10.0.7.1/32 of n1", "around": "10.0.7.1/32 of n1"})
	b.DropPool("in")
	check("the first range is gone", map[string]string{"around": "10.0.7.1/32 of n1"})
	b.Changes()
	b.Observe(n, nil, Pfxs("192.168.7.1/32"))
	check("the Node has another address", map[string]string{})
	if !slices.Contains(b.touched.Take(), "around") {
		t.Error("the status of the ClusterCIDR is not written anew when the Node has another address")
	}
	b.Observe(n, nil, Pfxs("10.0.7.1/32"))
	check("it has its address again", map[string]string{"around": "10.0.7.1/32 of n1"})
	b.DropPool("around")
	if held := b.addresses.Held(OwnerOf(n.UID)); len(held) > 0 {
		t.Errorf("%v lie in no range, but are kept", held)
	}
	b.SetPool(clustercidr.Compile(in))
	b.NodeGone("n1", "uid-n1")
	check("the Node is gone", map[string]string{})
}

// Nodes that wait are called when a range can serve them, once, the oldest first. Called before, they would stand behind younger ones then.
func TestWaitingNodesAreCalledOnce(t *testing.T) {
	b := New()
	young, old := Node("a"), Node("b")
	young.CreationTimestamp.Time = old.CreationTimestamp.Add(time.Second)
	for _, n := range []*v1.Node{young, old} {
		if _, _, ok := b.Reserve(n); ok {
			t.Fatal("it was served from nowhere")
		}
	}
	b.Changes()
	b.SetPool(clustercidr.Compile(ClusterCIDR("new", Spec4("10.0.0.0/16", 8, nil), NoFinalizer)))
	if got := b.Changes().Nodes; len(got) > 0 {
		t.Errorf("called before the finalizer is there: %v", got)
	}
	b.SetPool(clustercidr.Compile(ClusterCIDR("new", Spec4("10.0.0.0/16", 8, nil))))
	b.AllocatePending()
	if diff := cmp.Diff([]string{"b", "a"}, b.Changes().Nodes); diff != "" {
		t.Errorf("called when it serves (-want +got):\n%s", diff)
	}
}

// atOnce calls f for all indexes below n at once.
func atOnce(n int, f func(i int)) {
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() { f(i) })
	}
	wg.Wait()
}

// TestReplacedPoolIsNoCandidate: why a Node is pending is said of ClusterCIDRs as they are, not as they were.
func TestReplacedPoolIsNoCandidate(t *testing.T) {
	b := New()
	cc := ClusterCIDR("range", Spec4("10.0.0.0/24", 4, nil))
	b.SetPool(clustercidr.Compile(cc))
	cc = cc.DeepCopy()
	cc.Spec.Allocation = networkingv1.AllocationDisabled
	now := b.SetPool(clustercidr.Compile(cc))
	if got := slices.Collect(b.Candidates(Node("node"))); !slices.Equal(got, []*clustercidr.Pool{now}) {
		t.Errorf("%d candidates: %v, want the ClusterCIDR as it is now", len(got), got)
	}
}

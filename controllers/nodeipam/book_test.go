package nodeipam

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	networkingv1 "github.com/multicidr/controller-manager/apis/networking/v1"
	"github.com/multicidr/controller-manager/controllers/ipam"
	. "github.com/multicidr/controller-manager/controllers/nodeipam/internal/objects"
)

// The steps of one history of a book. Each returns what it has to say: a Node's blocks, or why it waits.

type step func(b *book) string

// reserve asks for blocks for a Node that shows none, and sends them.
func reserve(n *v1.Node) step {
	return func(b *book) string {
		r, refusals, ok := b.reserve(n)
		if !ok {
			return "waits: " + reasons(refusals)
		}
		b.sending(n)
		return fmt.Sprintf("%s %s", r.pool, strings.Join(Texts(r.blocks), " "))
	}
}

// shows says that a Node has podCIDRs.
func shows(n *v1.Node, cidrs ...string) step {
	return func(b *book) string { b.observe(n, Pfxs(cidrs...), nil); return "" }
}

func gone(name string) step {
	return func(b *book) string {
		uid, known := b.uidOf(name)
		if !known {
			uid = b.waiting[name].uid
		}
		b.gone(name, uid)
		return ""
	}
}

func set(cc *networkingv1.ClusterCIDR) step {
	return func(b *book) string { b.setPool(compile(cc)); return "" }
}

func drop(clusterCIDR string) step {
	return func(b *book) string { b.dropPool(clusterCIDR); return "" }
}

// woken tells whom the steps since the last call woke.
func woken(b *book) string {
	e := b.effects()
	return strings.Join(append(e.nodes, e.terminating...), " ")
}

func inUse(clusterCIDR string) step {
	return func(b *book) string { return fmt.Sprint(b.inUse(clusterCIDR)) }
}

func TestBook(t *testing.T) {
	type say struct {
		step step
		want string
	}
	quiet := func(s step) say { return say{s, ""} }
	selX := AnyOf(AllOf(In("p", "x")))
	for name, history := range map[string][]say{
		"a reservation stands until the Node is gone, however often it is asked for": {
			quiet(set(ClusterCIDR("a", Spec4("10.0.0.0/23", 8, nil)))),
			{reserve(Node("n1")), "a 10.0.0.0/24"},
			{reserve(Node("n2")), "a 10.0.1.0/24"},
			{reserve(Node("n1")), "a 10.0.0.0/24"},
			{reserve(Node("n3")), "waits: a is full (IPv4)"},
			quiet(gone("n1")),
			{woken, "n3"},
			{reserve(Node("n3")), "a 10.0.0.0/24"},
		},
		"a Node outside of the first ClusterCIDR is looked at again": {
			quiet(shows(Node("n1"), "10.0.0.0/24")),
			{woken, "n1"},
			quiet(set(ClusterCIDR("a", Spec4("10.1.0.0/16", 8, nil)))),
			{woken, "n1"},
			quiet(set(ClusterCIDR("b", Spec4("10.2.0.0/16", 8, nil)))),
			{woken, ""},
		},
		"a reservation outlives its ClusterCIDR": {
			quiet(set(ClusterCIDR("a", Spec4("10.0.0.0/24", 8, nil)))),
			{reserve(Node("n1")), "a 10.0.0.0/24"},
			quiet(drop("a")),
			quiet(set(ClusterCIDR("b", Spec4("10.0.0.0/24", 8, nil)))),
			{reserve(Node("n2")), "waits: b is full (IPv4)"},
			{reserve(Node("n1")), "a 10.0.0.0/24"},
		},
		"a Node of the same name with another UID is another Node": {
			quiet(set(ClusterCIDR("a", Spec4("10.0.0.0/23", 8, nil)))),
			{reserve(Node("n1")), "a 10.0.0.0/24"},
			{reserve(Node("n1", UID("second"))), "a 10.0.1.0/24"},
			{reserve(Node("n2")), "a 10.0.0.0/24"},
		},
		"what a Node shows replaces its reservation": {
			quiet(set(ClusterCIDR("a", Spec4("10.0.0.0/24", 8, nil)))),
			{reserve(Node("n1")), "a 10.0.0.0/24"},
			{reserve(Node("n2")), "waits: a is full (IPv4)"},
			{woken, "n2"}, // the ClusterCIDR is new
			quiet(shows(Node("n1"), "172.16.0.0/24")),
			{woken, "n1 n2"}, // n1 is outside of every range now
			{reserve(Node("n2")), "a 10.0.0.0/24"},
		},
		"a reservation confirmed wakes nobody": {
			quiet(set(ClusterCIDR("a", Spec4("10.0.0.0/24", 8, nil)))),
			{reserve(Node("n1")), "a 10.0.0.0/24"},
			{reserve(Node("n2")), "waits: a is full (IPv4)"},
			{woken, "n2"}, // the ClusterCIDR is new
			quiet(shows(Node("n1", From("a")), "10.0.0.0/24")),
			quiet(woken),
		},
		"a block shared by two Nodes is free when both are gone": {
			quiet(set(ClusterCIDR("a", Spec4("10.0.0.0/24", 8, nil)))),
			quiet(shows(Node("n1"), "10.0.0.0/24")),
			quiet(shows(Node("n2"), "10.0.0.0/25")),
			quiet(gone("n1")),
			{reserve(Node("n3")), "waits: a is full (IPv4)"},
			quiet(gone("n2")),
			{reserve(Node("n3")), "a 10.0.0.0/24"},
		},
		"a Node that holds a whole range is named": {
			quiet(set(ClusterCIDR("a", Spec4("10.0.0.0/23", 8, nil)))),
			quiet(set(ClusterCIDR("single", Spec4("10.0.4.0/24", 8, nil)))),
			quiet(shows(Node("larger"), "10.0.0.0/16")),
			quiet(shows(Node("evil"), "0.0.0.0/0")),
			{reserve(Node("n1")), "waits: single is full (IPv4; Node evil holds 0.0.0.0/0); a is full (IPv4; Node evil holds 0.0.0.0/0)"},
			quiet(gone("evil")),
			{reserve(Node("n1")), "waits: single is full (IPv4; Node larger holds 10.0.0.0/16); a is full (IPv4; Node larger holds 10.0.0.0/16)"},
			quiet(gone("larger")),
			quiet(shows(Node("block"), "10.0.4.0/24")), // a block of its own size, though it is all there is
			quiet(shows(Node("half"), "10.0.0.0/24")),
			quiet(shows(Node("other-half"), "10.0.1.0/24")),
			{reserve(Node("n1")), "waits: single is full (IPv4); a is full (IPv4)"},
		},
		"a dual-stack pool that lacks one family loses nothing of the other": {
			quiet(set(ClusterCIDR("both", networkingv1.ClusterCIDRSpec{IPv4: "10.0.0.0/23", IPv6: "fd00::/120", PerNodeHostBits: 8}))),
			{reserve(Node("n1")), "both 10.0.0.0/24 fd00::/120"},
			{reserve(Node("n2")), "waits: both is full (IPv6)"},
			quiet(set(ClusterCIDR("four", Spec4("10.0.1.0/24", 8, nil)))),
			{reserve(Node("n2")), "four 10.0.1.0/24"},
		},
		"the next matching pool serves when the first is full": {
			quiet(set(ClusterCIDR("x", Spec4("10.1.0.0/24", 8, selX)))),
			quiet(set(ClusterCIDR("all", Spec4("10.2.0.0/16", 8, nil)))),
			{reserve(Node("n1", Label("p", "x"))), "x 10.1.0.0/24"},
			{reserve(Node("n2", Label("p", "x"))), "all 10.2.0.0/24"},
		},
		"nobody overtakes a pool that is about to serve, but one that cannot is passed over": {
			quiet(set(ClusterCIDR("x", Spec4("10.1.0.0/24", 8, selX), NoFinalizer))),
			quiet(set(ClusterCIDR("all", Spec4("10.2.0.0/16", 8, nil)))),
			{reserve(Node("n1", Label("p", "x"))), "waits: x is pending"},
			{reserve(Node("other")), "all 10.2.0.0/24"},
			quiet(func(b *book) string {
				failed := compile(ClusterCIDR("x", Spec4("10.1.0.0/24", 8, selX), NoFinalizer))
				failed.problem = "no permission"
				b.setPool(failed)
				return ""
			}),
			{woken, "n1"},
			{reserve(Node("n1", Label("p", "x"))), "all 10.2.1.0/24"},
		},
		"disabled, terminating and invalid pools give nothing": {
			quiet(set(ClusterCIDR("d", Spec4("10.1.0.0/16", 8, nil), func(cc *networkingv1.ClusterCIDR) { cc.Spec.Allocation = networkingv1.AllocationDisabled }))),
			quiet(set(ClusterCIDR("i", Spec4("10.2.0.0/16", 20, nil)))),
			quiet(set(ClusterCIDR("t", Spec4("10.3.0.0/16", 8, nil), Deleted))),
			{reserve(Node("n1")), "waits: d is disabled; t is terminating; i is invalid (spec.ipv4: a block of 20 host bits does not fit into 10.2.0.0/16, which has 16)"},
		},
		"exclusions count at once and stop counting at once": {
			quiet(set(ClusterCIDR("a", networkingv1.ClusterCIDRSpec{IPv4: "10.0.0.0/23", PerNodeHostBits: 8, ExcludedCIDRs: []string{"10.0.0.0/28"}}))),
			{reserve(Node("n1")), "a 10.0.1.0/24"},
			{reserve(Node("n2")), "waits: a is full (IPv4; it has spec.excludedCIDRs)"},
			{woken, "n2"},
			quiet(set(ClusterCIDR("a", Spec4("10.0.0.0/23", 8, nil)))),
			{woken, "n2"},
			{reserve(Node("n2")), "a 10.0.0.0/24"},
		},
		"who holds what a ClusterCIDR excludes is no news for a Node that waits for it": {
			quiet(set(ClusterCIDR("wide", networkingv1.ClusterCIDRSpec{IPv4: "10.50.0.0/23", PerNodeHostBits: 8, ExcludedCIDRs: []string{"10.50.1.0/24"}}))),
			quiet(set(ClusterCIDR("special", Spec4("10.50.1.0/24", 4, selX)))),
			{reserve(Node("n1")), "wide 10.50.0.0/24"},
			{reserve(Node("n2")), "waits: wide is full (IPv4; it has spec.excludedCIDRs)"},
			{reserve(Node("s", Label("p", "x"))), "special 10.50.1.0/28"},
			{reserve(Node("n2")), "waits: wide is full (IPv4; it has spec.excludedCIDRs)"},
		},
		"what one ClusterCIDR excludes another one gives": {
			quiet(set(ClusterCIDR("wide", networkingv1.ClusterCIDRSpec{IPv4: "10.50.0.0/16", PerNodeHostBits: 8, ExcludedCIDRs: []string{"10.50.5.0/24"}}))),
			quiet(set(ClusterCIDR("special", Spec4("10.50.5.0/24", 4, selX)))),
			{reserve(Node("n1", Label("p", "x"))), "special 10.50.5.0/28"},
			quiet(set(ClusterCIDR("all", networkingv1.ClusterCIDRSpec{IPv4: "0.0.0.0/0", PerNodeHostBits: 8, ExcludedCIDRs: []string{"0.0.0.0/0"}, Allocation: networkingv1.AllocationDisabled}))),
			{reserve(Node("n2", Label("p", "x"))), "special 10.50.5.16/28"},
			{reserve(Node("n3")), "wide 10.50.0.0/24"},
		},
		"a ClusterCIDR created again under its name starts anew, its predecessor's exclusions are gone": {
			quiet(set(ClusterCIDR("a", networkingv1.ClusterCIDRSpec{IPv4: "10.0.0.0/23", PerNodeHostBits: 8, ExcludedCIDRs: []string{"10.0.0.0/24"}}))),
			{reserve(Node("n1")), "a 10.0.1.0/24"},
			quiet(set(ClusterCIDR("a", Spec4("10.0.0.0/23", 8, nil), func(cc *networkingv1.ClusterCIDR) { cc.UID = "second" }))),
			{reserve(Node("n2")), "a 10.0.0.0/24"},
		},
		"the same ClusterCIDR again wakes nobody": {
			quiet(set(ClusterCIDR("a", Spec4("10.0.0.0/24", 8, selX)))),
			{reserve(Node("n1")), "waits: "},
			{woken, "n1"},
			quiet(set(ClusterCIDR("a", Spec4("10.0.0.0/24", 8, selX)))),
			quiet(woken),
		},
		"a terminating ClusterCIDR is looked at again when something is freed": {
			quiet(set(ClusterCIDR("a", Spec4("10.0.0.0/16", 8, nil), Deleted))),
			quiet(shows(Node("n1"), "10.0.0.0/24")),
			{inUse("a"), "true"},
			quiet(set(ClusterCIDR("a", Spec4("10.0.0.0/16", 8, nil), Deleted))), // the same, read again
			{inUse("a"), "true"},
			{woken, "a"},
			quiet(gone("n1")),
			{woken, "a"},
			{inUse("a"), "false"},
		},
		"without an annotation a Node belongs to every pool that contains one of its blocks": {
			quiet(set(ClusterCIDR("a", Spec4("10.0.0.0/16", 8, nil)))),
			quiet(set(ClusterCIDR("b", Spec4("10.0.0.0/8", 8, nil)))),
			quiet(set(ClusterCIDR("c", Spec4("10.1.0.0/16", 8, nil)))),
			quiet(shows(Node("n1"), "10.0.0.0/24", "fd00::/64")),
			{inUse("a"), "true"},
			{inUse("b"), "true"},
			{inUse("c"), "false"},
		},
		"with an annotation it belongs to that pool alone": {
			quiet(set(ClusterCIDR("a", Spec4("10.0.0.0/16", 8, nil)))),
			quiet(set(ClusterCIDR("b", Spec4("10.0.0.0/8", 8, nil)))),
			quiet(shows(Node("n1", From("b")), "10.0.0.0/24")),
			{inUse("a"), "false"},
			{inUse("b"), "true"},
		},
		"an annotation that cannot be true does not count": {
			quiet(set(ClusterCIDR("a", Spec4("10.0.0.0/16", 8, nil)))),
			quiet(set(ClusterCIDR("c", Spec4("10.1.0.0/16", 8, nil)))),
			quiet(shows(Node("n1", From("c")), "10.0.0.0/24")),
			quiet(shows(Node("n2", From("no such")), "10.1.0.0/24")),
			{inUse("a"), "true"},
			{inUse("c"), "true"},
		},
		"a relabelled Node still belongs to the pool it was served from": {
			quiet(set(ClusterCIDR("x", Spec4("10.1.0.0/24", 8, selX)))),
			quiet(shows(Node("n1", From("x"), Label("p", "y")), "10.1.0.0/24")),
			{inUse("x"), "true"},
			quiet(gone("n1")),
			{inUse("x"), "false"},
		},
		"others are looked at again when what they share, or the range around them, comes or goes": {
			quiet(set(ClusterCIDR("a", Spec4("10.0.0.0/16", 8, nil)))),
			quiet(shows(Node("n1", From("a")), "10.0.0.0/24")),
			quiet(woken),
			quiet(shows(Node("n2"), "10.0.0.0/25")),
			{woken, "n1 n2"},
			quiet(gone("n2")),
			{woken, "n1 n2"},
			quiet(func(b *book) string { b.setService("ServiceCIDR s", Pfxs("10.0.0.0/28")); return "" }),
			{woken, "n1"},
			quiet(func(b *book) string { b.setService("ServiceCIDR s", nil); return "" }),
			{woken, "n1"},
			quiet(shows(Node("n3"), "10.0.1.0/24")),
			quiet(woken),
			quiet(drop("a")),
			{woken, "n1 n3"},
		},
		"a podCIDR larger than the range blocks it and belongs to nobody": {
			quiet(set(ClusterCIDR("a", Spec4("10.0.0.0/24", 8, nil)))),
			quiet(shows(Node("n1"), "10.0.0.0/16")),
			{inUse("a"), "false"},
			{reserve(Node("n2")), "waits: a is full (IPv4; Node n1 holds 10.0.0.0/16)"},
		},
		"the oldest Node is woken first": {
			{reserve(Node("n1", Created(3))), "waits: "},
			{reserve(Node("n2", Created(1))), "waits: "},
			{reserve(Node("n3", Created(2))), "waits: "},
			quiet(woken),
			quiet(set(ClusterCIDR("a", Spec4("10.0.0.0/16", 8, nil)))),
			{woken, "n2 n3 n1"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBook()
			for i, s := range history {
				if got := s.step(b); got != s.want {
					t.Fatalf("step %d: got %q, want %q", i+1, got, s.want)
				}
			}
		})
	}
}

func TestNothingLeaks(t *testing.T) {
	b := newBook()
	cc := ClusterCIDR("a", networkingv1.ClusterCIDRSpec{IPv4: "10.0.0.0/20", PerNodeHostBits: 8, ExcludedCIDRs: []string{"10.0.0.0/24"}})
	b.setPool(compile(cc))
	for range 3 {
		for i := range 40 { // more than there are blocks
			n := Node(fmt.Sprint("n", i))
			if r, _, ok := b.reserve(n); ok && i%2 == 0 {
				b.observe(n, r.blocks, nil)
			}
		}
		for i := range 40 {
			b.gone(fmt.Sprint("n", i), types.UID("uid-"+fmt.Sprint("n", i)))
		}
	}
	b.dropPool("a")
	b.effects()
	if len(b.touched.take())+len(b.nodes)+len(b.names)+len(b.waiting)+len(b.pools) > 0 || len(b.ledger.Overlapping(Pfx("0.0.0.0/0"))) > 0 {
		t.Errorf("left in the book: %+v", b)
	}
}

// TestAllAtOnceIsOneByOne compares what a book knows after observeAll with what it knows after observe of each Node.
func TestAllAtOnceIsOneByOne(t *testing.T) {
	// Few addresses, so that many Nodes share some, lie in no range, or have their own address in one.
	var blocks []string
	for i := range 16 {
		blocks = append(blocks, fmt.Sprintf("10.%d.0.0/16", i), fmt.Sprintf("10.%d.1.0/24", i), fmt.Sprintf("fd00:0:0:%d::/64", i))
	}
	pools := []*pool{
		compile(ClusterCIDR("a", Spec4("10.0.0.0/13", 8, nil))),
		compile(ClusterCIDR("b", Spec4("10.0.0.0/14", 8, nil))),
		compile(ClusterCIDR("c", networkingv1.ClusterCIDRSpec{IPv6: "fd00::/60"})),
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
		one, each := newBook(), newBook()
		known := pools[:rng.IntN(len(pools)+1)]
		for _, b := range []*book{one, each} {
			b.setService("flag", Pfxs("10.1.1.0/25"))
			for _, p := range known {
				b.setPool(p)
			}
		}
		one.observeAll(all, atOnce)
		for _, n := range all {
			blocks, _ := podCIDRsOf(n)
			each.observe(n, blocks, addressesOf(n))
		}
		for _, e := range each.nodes {
			e.atStart = e.state == assigned // which is what makes the one the start
		}
		if !reflect.DeepEqual(one, each) {
			t.Fatalf("seed %d: all at once: %+v\none by one: %+v", seed, one, each)
		}
		sharing, outsiders, inside = sharing+len(one.sharing), outsiders+len(one.outsiders), inside+len(one.addresses.Overlapping(Pfx("0.0.0.0/0")))
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
		if want := ownerOf(Node(got[len(got)-1]).UID); h.owner != want {
			t.Errorf("%v holds %v, want %v", h.owner, h.blocks, want)
		}
	}
	if diff := cmp.Diff([]string{"9.0.0.0/24", "10.0.1.0/24 fd00::/64", "10.0.2.0/24", "fd00:0:0:1::/64", "fd00:0:0:2::/64"}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestNameSet(t *testing.T) {
	var s nameSet
	for _, n := range []int{0, 1, 2, maxFew, maxFew + 1, 50, 3} { // and once it had many, few again
		var want []string
		for i := range n {
			name := fmt.Sprintf("%02d", i)
			want = append(want, name)
			s.add(fmt.Sprintf("%02d", n-1-i))
			s.add(name)
		}
		if got := s.take(); !slices.Equal(got, want) {
			t.Errorf("%d names: got %v", n, got)
		}
		if got := s.take(); len(got) > 0 {
			t.Errorf("%d names: left are %v", n, got)
		}
	}
}

// A ClusterCIDR that another controller served Nodes from, or an older CRD took, may have blocks of a size that is refused today.
func TestInvalidRangeKeepsItsNodes(t *testing.T) {
	for _, hostBits := range []int32{-1, 0, 3, 17, 1 << 30} {
		cc := ClusterCIDR("a", Spec4("10.0.0.0/16", hostBits, nil))
		cc.DeletionTimestamp = &metav1.Time{}
		b := newBook()
		b.setPool(compile(cc))
		b.observe(Node("n", From("a")), Pfxs("10.0.3.0/24"), nil)
		if !b.inUse("a") {
			t.Errorf("host bits %d: nobody belongs to it, and its finalizer goes", hostBits)
		}
		if found := b.findings(Node("n", From("a"))); len(found) > 0 {
			t.Errorf("host bits %d: %v", hostBits, found)
		}
	}
}

func TestFindings(t *testing.T) {
	b := newBook()
	b.setPool(compile(ClusterCIDR("a", Spec4("10.0.0.0/16", 8, nil))))
	show := func(name string, cidrs ...string) *v1.Node {
		n := Node(name)
		n.Spec.PodCIDRs = cidrs
		blocks, _ := podCIDRsOf(n)
		b.observe(n, blocks, nil)
		return n
	}
	inside := show("inside", "10.0.0.0/24")
	outside := show("outside", "172.16.0.0/24")
	twin := show("twin", "10.0.1.0/24")
	other := show("other", "10.0.1.128/25")
	garbled := show("garbled", "10.0.2.0/24", "ten")
	b.setService("services", Pfxs("10.96.0.0/12"))
	service := show("service", "10.96.1.0/24")
	for name, tc := range map[string]struct {
		node *v1.Node
		want map[string]string // a part of the message, by reason
	}{
		"nothing wrong":     {inside, map[string]string{}},
		"in no ClusterCIDR": {outside, map[string]string{ReasonOutsideRanges: "[172.16.0.0/24] lie in no ClusterCIDR. They stay as they are and are given to nobody else. Create a ClusterCIDR that contains them, or"}},
		"in no ClusterCIDR but in a service range, where none belongs": {service, map[string]string{
			ReasonOutsideRanges: "[10.96.1.0/24] lie in no ClusterCIDR. They stay as they are and are given to nobody else. Drain and delete the Node and",
			ReasonConflict:      "share addresses with service range services (10.96.0.0/12)",
		}},
		"shared, said of the one":        {twin, map[string]string{ReasonConflict: "share addresses with Node other (10.0.1.128/25)"}},
		"shared, said of the other":      {other, map[string]string{ReasonConflict: "share addresses with Node twin (10.0.1.0/24)"}},
		"unreadable, what can be counts": {garbled, map[string]string{ReasonUnreadable: `"ten" cannot be read`}},
	} {
		t.Run(name, func(t *testing.T) {
			got := b.findings(tc.node)
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
		b.dropPool("a")
		if got := b.findings(outside); len(got) > 0 {
			t.Errorf("findings %v, want none", got)
		}
	})
}

func TestNotAvailableSaysWhatToDo(t *testing.T) {
	full := func(name string) refusal {
		return refusal{pool: &pool{Pool: ipam.Pool{Name: name}}, full: []ipam.Family{ipam.IPv4, ipam.IPv6}, used: true}
	}
	in := func(state ipam.State) refusal { return refusal{pool: &pool{Pool: ipam.Pool{Name: "a", State: state}}} }
	var many []refusal
	for i := range 2000 {
		many = append(many, full(fmt.Sprintf("a-name-of-some-length-%d", i)))
	}
	for name, tc := range map[string]struct {
		refusals []refusal
		pools    int
		want     string
	}{
		"no ClusterCIDR":  {nil, 0, "No ClusterCIDR exists. Create one that selects this Node."},
		"none matches":    {nil, 3, "None of the 3 ClusterCIDRs selects this Node. Change its labels or create a ClusterCIDR that selects it."},
		"one is full":     {[]refusal{full("a")}, 3, "No ClusterCIDR that selects this Node can serve it: a is full (IPv4 and IPv6). Create another one, or delete Nodes that are not needed."},
		"one is disabled": {[]refusal{in(ipam.Disabled)}, 3, "can serve it: a is disabled. Create another one, or set spec.allocation: Enabled."},
		"one goes":        {[]refusal{in(ipam.Terminating)}, 3, "can serve it: a is terminating. Create another one."},
		"of each a bit":   {[]refusal{in(ipam.Disabled), full("b")}, 3, "a is disabled; b is full (IPv4 and IPv6). Create another one, or set spec.allocation: Enabled, or delete Nodes that are not needed."},
		"more than a few": {many, 3000, "a-name-of-some-length-9 is full (IPv4 and IPv6); 1990 more. Create another one"},
	} {
		t.Run(name, func(t *testing.T) {
			got := notAvailable(tc.refusals, tc.pools)
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
	b := newBook()
	in := ClusterCIDR("in", Spec4("10.0.0.0/16", 8, nil))
	around := ClusterCIDR("around", Spec4("10.0.0.0/8", 8, nil))
	check := func(when string, want map[string]string) {
		t.Helper()
		got := map[string]string{}
		for name, p := range b.pools {
			if c := b.overlapping(p); strings.Contains(c.Message, "10.0.7.1") {
				got[name] = c.Message[strings.Index(c.Message, "10.0.7.1"):][:len("10.0.7.1 of n1")]
			}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", when, diff)
		}
	}
	n := Node("n1")
	b.observe(n, nil, Pfxs("10.0.7.1/32", "fd00::1/128"))
	b.setPool(compile(in))
	check("the range comes after the Node", map[string]string{"in": "10.0.7.1 of n1"})
	b.setPool(compile(around))
	check("another range comes", map[string]string{"in": "10.0.7.1 of n1", "around": "10.0.7.1 of n1"})
	b.dropPool("in")
	check("the first range is gone", map[string]string{"around": "10.0.7.1 of n1"})
	b.effects()
	b.observe(n, nil, Pfxs("192.168.7.1/32"))
	check("the Node has another address", map[string]string{})
	if !slices.Contains(b.touched.few, "around") {
		t.Error("the status of the ClusterCIDR is not written anew when the Node has another address")
	}
	b.observe(n, nil, Pfxs("10.0.7.1/32"))
	check("it has its address again", map[string]string{"around": "10.0.7.1 of n1"})
	b.dropPool("around")
	if held := b.addresses.Held(ownerOf(n.UID)); len(held) > 0 {
		t.Errorf("%v lie in no range, but are kept", held)
	}
	b.setPool(compile(in))
	b.gone("n1", "uid-n1")
	check("the Node is gone", map[string]string{})
}

func TestDistance(t *testing.T) {
	for name, tc := range map[string]struct {
		from, to string
		want     float64
	}{
		"none":                      {"10.0.0.0", "10.0.0.0", 0},
		"forward":                   {"10.0.0.0", "10.0.1.0", 256},
		"back":                      {"10.0.1.1", "10.0.1.0", -1},
		"back, over half of IPv6":   {"fd00:0:0:1::", "fd00::ffff:ffff:ffff:ffff", -1},
		"further than 64 bits hold": {"fd00::", "fd01::", 0x1p112},
	} {
		if got := distance(netip.MustParseAddr(tc.from), netip.MustParseAddr(tc.to)); got != tc.want {
			t.Errorf("%s: distance from %s to %s is %v, want %v", name, tc.from, tc.to, got, tc.want)
		}
	}
}

// Nodes that wait are called when a range can serve them, once, the oldest first. Called before, they would stand behind younger ones then.
func TestWaitingNodesAreCalledOnce(t *testing.T) {
	b := newBook()
	young, old := Node("a"), Node("b")
	young.CreationTimestamp.Time = old.CreationTimestamp.Add(time.Second)
	for _, n := range []*v1.Node{young, old} {
		if _, _, ok := b.reserve(n); ok {
			t.Fatal("it was served from nowhere")
		}
	}
	b.effects()
	b.setPool(compile(ClusterCIDR("new", Spec4("10.0.0.0/16", 8, nil), NoFinalizer)))
	if got := b.effects().nodes; len(got) > 0 {
		t.Errorf("called before the finalizer is there: %v", got)
	}
	b.setPool(compile(ClusterCIDR("new", Spec4("10.0.0.0/16", 8, nil))))
	if diff := cmp.Diff([]string{"b", "a"}, b.effects().nodes); diff != "" {
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

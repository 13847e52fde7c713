package pool_test

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	netutils "k8s.io/utils/net"

	networkingv1 "github.com/multicidr/controller-manager/apis/networking/v1"
	"github.com/multicidr/controller-manager/controllers/ipam"
	"github.com/multicidr/controller-manager/controllers/nodeipam/pool"
	. "github.com/multicidr/controller-manager/test/objects"
)

func TestCompile(t *testing.T) {
	ipv4 := networkingv1.ClusterCIDRSpec{PerNodeHostBits: 8, IPv4: "10.244.7.9/16"}
	range4 := []ipam.Range{{Prefix: Pfx("10.244.0.0/16"), BlockBits: 24}}
	for name, tc := range map[string]struct {
		cc          *networkingv1.ClusterCIDR
		wantState   ipam.State
		wantRanges  []ipam.Range
		wantProblem string // a part of it
	}{
		"host bits of the range are masked off": {
			cc: ClusterCIDR("a", ipv4), wantState: ipam.Enabled, wantRanges: range4,
		},
		"one host bits value cuts both families": {
			cc:         ClusterCIDR("a", networkingv1.ClusterCIDRSpec{PerNodeHostBits: 8, IPv4: "10.0.0.0/16", IPv6: "fd00::/112"}),
			wantRanges: []ipam.Range{{Prefix: Pfx("10.0.0.0/16"), BlockBits: 24}, {Prefix: Pfx("fd00::/112"), BlockBits: 120}},
		},
		"IPv6 host bits of its own": {
			cc: ClusterCIDR("a", networkingv1.ClusterCIDRSpec{
				PerNodeHostBits: 8, IPv6PerNodeHostBits: new(int32(64)), IPv4: "10.0.0.0/16", IPv6: "fd00::/48",
			}),
			wantRanges: []ipam.Range{{Prefix: Pfx("10.0.0.0/16"), BlockBits: 24}, {Prefix: Pfx("fd00::/48"), BlockBits: 64}},
		},
		"without the finalizer it allocates": {
			cc: ClusterCIDR("a", ipv4, NoFinalizer), wantState: ipam.Enabled, wantRanges: range4,
		},
		"allocation None: its range is not cut": {
			cc: ClusterCIDR("a", networkingv1.ClusterCIDRSpec{IPv4: "10.244.0.0/16", Allocation: networkingv1.AllocationNone}), wantState: ipam.None,
		},
		"allocation None without any range": {
			cc: ClusterCIDR("a", networkingv1.ClusterCIDRSpec{Allocation: networkingv1.AllocationNone}), wantState: ipam.None,
		},
		"stored with an unknown allocation": {
			cc: ClusterCIDR("a", ipv4, func(cc *networkingv1.ClusterCIDR) { cc.Spec.Allocation = "Some" }), wantState: ipam.Invalid, wantRanges: range4,
			wantProblem: `spec.allocation: "Some" is none of Enabled, Disabled and None`,
		},
		"blocks of one address, as flags accept them": {
			cc:        ClusterCIDR("created-from-flags-0123456789", networkingv1.ClusterCIDRSpec{PerNodeHostBits: 0, IPv4: "10.0.0.0/30"}),
			wantState: ipam.Enabled, wantRanges: []ipam.Range{{Prefix: Pfx("10.0.0.0/30"), BlockBits: 32}},
		},
		"blocks of eight addresses, under any other name": {
			cc:        ClusterCIDR("from-flags", networkingv1.ClusterCIDRSpec{PerNodeHostBits: 3, IPv4: "10.0.0.0/24"}),
			wantState: ipam.Invalid, wantProblem: "spec.ipv4: blocks of 3 host bits are smaller than 4",
		},
		"disabled": {
			cc:        ClusterCIDR("a", ipv4, func(cc *networkingv1.ClusterCIDR) { cc.Spec.Allocation = networkingv1.AllocationDisabled }),
			wantState: ipam.Disabled, wantRanges: range4,
		},
		"being deleted, also when disabled": {
			cc: ClusterCIDR("a", ipv4, Deleted, func(cc *networkingv1.ClusterCIDR) {
				cc.Spec.Allocation = networkingv1.AllocationDisabled
			}),
			wantState: ipam.Terminating, wantRanges: range4,
		},
		"stored without a spec": {
			cc: ClusterCIDR("a", networkingv1.ClusterCIDRSpec{}), wantState: ipam.Invalid, wantProblem: "neither spec.ipv4 nor spec.ipv6",
		},
		"stored with blocks larger than the range": {
			cc:        ClusterCIDR("a", networkingv1.ClusterCIDRSpec{PerNodeHostBits: 16, IPv4: "10.0.0.0/24"}),
			wantState: ipam.Invalid, wantProblem: "spec.ipv4: a block of 16 host bits does not fit into 10.0.0.0/24",
		},
		"stored with blocks below the minimum": {
			cc:        ClusterCIDR("a", networkingv1.ClusterCIDRSpec{PerNodeHostBits: -1, IPv4: "10.0.0.0/24"}),
			wantState: ipam.Invalid, wantProblem: "blocks of -1 host bits are smaller than 4",
		},
		"stored with the wrong family, the other range still counts": {
			cc:        ClusterCIDR("a", networkingv1.ClusterCIDRSpec{PerNodeHostBits: 8, IPv4: "10.244.0.0/16", IPv6: "10.0.0.0/16"}),
			wantState: ipam.Invalid, wantRanges: range4, wantProblem: `spec.ipv6: "10.0.0.0/16" is not an IPv6 range`,
		},
		"stored with an IPv4-mapped range": {
			cc:        ClusterCIDR("a", networkingv1.ClusterCIDRSpec{PerNodeHostBits: 8, IPv6: "::ffff:10.0.0.0/112"}),
			wantState: ipam.Invalid, wantProblem: "is not an IPv6 range",
		},
		"stored with an unknown operator": {
			cc: ClusterCIDR("a", networkingv1.ClusterCIDRSpec{PerNodeHostBits: 8, IPv4: "10.244.0.0/16",
				NodeSelector: AnyOf(AllOf(In("a", "1")), AllOf(v1.NodeSelectorRequirement{Key: "a", Operator: "Foo"}))}),
			wantState: ipam.Invalid, wantRanges: range4, wantProblem: `spec.nodeSelector.nodeSelectorTerms[1].matchExpressions[0].operator: Unsupported value: "Foo"`,
		},
		"stored with IPv4-mapped addresses inside": {
			cc:        ClusterCIDR("a", networkingv1.ClusterCIDRSpec{PerNodeHostBits: 32, IPv6: "::fffe:0:0/95"}),
			wantState: ipam.Invalid, wantProblem: "spec.ipv6: ::fffe:0:0/95 contains IPv4-mapped addresses",
		},
		"stored with an exclusion written as IPv4-mapped": {
			cc:        ClusterCIDR("a", networkingv1.ClusterCIDRSpec{PerNodeHostBits: 8, IPv4: "10.244.0.0/16", ExcludedCIDRs: []string{"::ffff:10.244.0.0/120"}}),
			wantState: ipam.Invalid, wantRanges: range4, wantProblem: "spec.excludedCIDRs: ::ffff:10.244.0.0/120 contains IPv4-mapped addresses",
		},
		"stored with an unreadable exclusion": {
			cc:        ClusterCIDR("a", networkingv1.ClusterCIDRSpec{PerNodeHostBits: 8, IPv4: "10.244.0.0/16", ExcludedCIDRs: []string{"x"}}),
			wantState: ipam.Invalid, wantRanges: range4, wantProblem: "spec.excludedCIDRs",
		},
		"invalid and being deleted": {
			cc:        ClusterCIDR("a", networkingv1.ClusterCIDRSpec{}, Deleted),
			wantState: ipam.Terminating,
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := pool.Compile(tc.cc, nil)
			if p.State != tc.wantState {
				t.Errorf("state %v, want %v (%s)", p.State, tc.wantState, p.Problem)
			}
			if diff := cmp.Diff(tc.wantRanges, p.Ranges, cmp.Comparer(func(a, b netip.Prefix) bool { return a == b }), cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("ranges (-want +got):\n%s", diff)
			}
			if !strings.Contains(p.Problem, tc.wantProblem) || (p.Problem == "") != (tc.wantProblem == "") {
				t.Errorf("problem %q, want %q in it", p.Problem, tc.wantProblem)
			}
			if !p.Equal(pool.Compile(tc.cc, nil)) {
				t.Error("compiled twice, it is not equal to itself")
			}
		})
	}
}

func TestMatches(t *testing.T) {
	node := &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1", Labels: map[string]string{"a": "1", "b": "2"}}}
	named := v1.NodeSelectorRequirement{Key: "metadata.name", Operator: v1.NodeSelectorOpIn, Values: []string{"n1"}}
	for name, tc := range map[string]struct {
		selector        *v1.NodeSelector
		want            bool
		wantSpecificity int
	}{
		"no selector matches every Node":                   {nil, true, 0},
		"no terms match no Node":                           {AnyOf(), false, 0},
		"an empty term matches no Node":                    {AnyOf(v1.NodeSelectorTerm{}), false, 0},
		"one requirement":                                  {AnyOf(AllOf(In("a", "1"))), true, 1},
		"requirements of a term are ANDed":                 {AnyOf(AllOf(In("a", "1"), In("b", "x"))), false, 0},
		"terms are ORed":                                   {AnyOf(AllOf(In("a", "x")), AllOf(In("b", "2"))), true, 1},
		"the largest matching term counts":                 {AnyOf(AllOf(In("a", "1")), AllOf(In("a", "1"), In("b", "2")), AllOf(In("a", "x"), In("b", "2"), In("c", "3"))), true, 2},
		"matchFields knows the name, and counts":           {AnyOf(v1.NodeSelectorTerm{MatchFields: []v1.NodeSelectorRequirement{named}, MatchExpressions: []v1.NodeSelectorRequirement{In("a", "1")}}), true, 2},
		"an empty term beside one that matches is ignored": {AnyOf(v1.NodeSelectorTerm{}, AllOf(In("a", "1"))), true, 1},
	} {
		t.Run(name, func(t *testing.T) {
			p := pool.Compile(ClusterCIDR("a", Spec4("10.0.0.0/16", 8, tc.selector)), nil)
			var c pool.Candidates
			c.Add(p)
			found, specificity := false, 0
			for _, candidate := range c.Of(node) {
				found, specificity = true, candidate.Specificity
			}
			if ok := p.Matches(node); ok != tc.want || found != tc.want || specificity != tc.wantSpecificity {
				t.Errorf("got %v, %v, %d; want %v, %d", ok, found, specificity, tc.want, tc.wantSpecificity)
			}
		})
	}
}

func TestCanonicalSelectorDoesNotDependOnOrder(t *testing.T) {
	exists := v1.NodeSelectorRequirement{Key: "c", Operator: v1.NodeSelectorOpExists}
	a := AnyOf(AllOf(In("a", "1", "2"), exists), AllOf(In("b", "3")))
	b := AnyOf(AllOf(In("b", "3")), AllOf(exists, In("a", "2", "1")))
	canonical := func(selector *v1.NodeSelector) string {
		return pool.Compile(ClusterCIDR("a", Spec4("10.0.0.0/16", 8, selector)), nil).Selector
	}
	if x, y := canonical(a), canonical(b); x != y {
		t.Errorf("%q and %q differ", x, y)
	}
	if x, y := canonical(a), canonical(AnyOf(AllOf(In("a", "1"), exists), AllOf(In("b", "3")))); x == y {
		t.Errorf("another selector is %q too", x)
	}
}

func TestPodCIDRsOf(t *testing.T) {
	for name, tc := range map[string]struct {
		spec           v1.NodeSpec
		want           []netip.Prefix
		wantUnreadable []string
	}{
		"none":                             {spec: v1.NodeSpec{}},
		"both fields":                      {spec: v1.NodeSpec{PodCIDR: "10.0.0.0/24", PodCIDRs: []string{"10.0.0.0/24", "fd00::/64"}}, want: Pfxs("10.0.0.0/24", "fd00::/64")},
		"only the older field":             {spec: v1.NodeSpec{PodCIDR: "10.0.0.0/24"}, want: Pfxs("10.0.0.0/24")},
		"host bits set":                    {spec: v1.NodeSpec{PodCIDRs: []string{"10.0.0.7/24"}}, want: Pfxs("10.0.0.0/24")},
		"leading zeros, as others read it": {spec: v1.NodeSpec{PodCIDRs: []string{"010.001.0.0/24"}}, want: Pfxs("10.1.0.0/24")},
		"an IPv4-mapped address is IPv4":   {spec: v1.NodeSpec{PodCIDRs: []string{"::ffff:10.0.0.0/120"}}, want: Pfxs("10.0.0.0/24")},
		"what cannot be read is told":      {spec: v1.NodeSpec{PodCIDRs: []string{"10.0.0.0/24", "ten"}}, want: Pfxs("10.0.0.0/24"), wantUnreadable: []string{"ten"}},
	} {
		t.Run(name, func(t *testing.T) {
			blocks, unreadable := pool.PodCIDRsOf(&v1.Node{Spec: tc.spec})
			if diff := cmp.Diff(Texts(tc.want), Texts(blocks)); diff != "" {
				t.Errorf("blocks (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(tc.wantUnreadable, unreadable); diff != "" {
				t.Errorf("unreadable (-want +got):\n%s", diff)
			}
		})
	}
}

// TestMappedSpaceIsNotIPv4: one Node with such a podCIDR, which an older API server may have stored, does not hold all of IPv4.
func TestMappedSpaceIsNotIPv4(t *testing.T) {
	for text, want := range map[string]string{
		"::ffff:0:0/96":          "::ffff:0.0.0.0/96",
		"::ffff:10.0.0.0/96":     "::ffff:0.0.0.0/96",
		"::ffff:010.000.0.0/096": "::ffff:0.0.0.0/96",
		"::ffff:0:0/95":          "::fffe:0:0/95",
	} {
		if got, err := pool.ParseCIDR(text); err != nil || got.String() != want {
			t.Errorf("%q is %v, %v, want %v", text, got, err, want)
		}
	}
}

// What is read fast is read as the rest of the cluster reads it.
func TestParseCIDR(t *testing.T) {
	for _, text := range []string{
		"10.0.0.0/24", "10.0.0.9/24", "0.0.0.0/0", "10.0.0.1/32", "010.0.0.0/24", "fd00::/64", "FD00::1/64", "::/0", "fd00::1/128",
		"::ffff:10.0.0.0/120", "::ffff:10.0.0.9/120", "::ffff:010.0.0.0/120", "::ffff:10.0.0.0/97", "::ffff:10.0.0.0/95",
		"", "ten", "10.0.0.0", "10.0.0.0/33", "10.0.0.0/-1", "10.0.0.0/024", "fd00::/129", "fd00::%eth0/64", "10.0.0.0/24 ", "/",
	} {
		got, gotErr := pool.ParseCIDR(text)
		_, n, err := netutils.ParseCIDRSloppy(text)
		if err != nil || gotErr != nil {
			if err == nil || gotErr == nil {
				t.Errorf("%q: error %v, want %v", text, gotErr, err)
			}
			continue
		}
		addr, _ := netip.AddrFromSlice(n.IP)
		bits, size := n.Mask.Size()
		want := netip.PrefixFrom(addr.Unmap(), bits-size+addr.Unmap().BitLen())
		if got != want {
			t.Errorf("%q is %v, want %v", text, got, want)
		}
	}
}

// The API server takes the same exclusion twice.
func TestExclusionWrittenTwice(t *testing.T) {
	cc := ClusterCIDR("a", Spec4("10.0.0.0/16", 8, nil))
	cc.Spec.ExcludedCIDRs = []string{"10.0.1.0/24", "10.0.0.0/24", "10.0.1.0/24"}
	p := pool.Compile(cc, nil)
	if got, want := slices.Collect(p.Excluded.Overlapping(Pfx("10.0.0.0/8"))), Pfxs("10.0.0.0/24", "10.0.1.0/24"); !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

// Ranges that are not cut still belong to their ClusterCIDR: Nodes can have blocks in them.
func TestContains(t *testing.T) {
	for name, cc := range map[string]*networkingv1.ClusterCIDR{
		"enabled":            ClusterCIDR("a", Spec4("10.0.0.0/16", 8, nil)),
		"allocation None":    ClusterCIDR("a", networkingv1.ClusterCIDRSpec{IPv4: "10.0.0.0/16", Allocation: networkingv1.AllocationNone}),
		"a wrong block size": ClusterCIDR("a", Spec4("10.0.0.0/16", 20, nil)),
	} {
		p := pool.Compile(cc, nil)
		for block, want := range map[string]bool{"10.0.3.0/24": true, "10.0.0.0/16": true, "10.0.0.0/15": false, "10.1.0.0/24": false, "fd00::/64": false} {
			if p.Contains(Pfx(block)) != want {
				t.Errorf("%s: contains %s is %t, want %t", name, block, !want, want)
			}
		}
	}
}

func TestAllocates(t *testing.T) {
	spec := networkingv1.ClusterCIDRSpec{PerNodeHostBits: 8, IPv4: "10.0.0.0/16", IPv6: "fd00::/112", ExcludedCIDRs: []string{"10.0.9.0/28"}}
	disabled := spec
	disabled.Allocation = networkingv1.AllocationDisabled
	for name, tc := range map[string]struct {
		spec   networkingv1.ClusterCIDRSpec
		blocks []netip.Prefix
		want   bool
	}{
		"a block of each family":  {spec, Pfxs("10.0.0.0/24", "fd00::/120"), true},
		"IPv6 first":              {spec, Pfxs("fd00::/120", "10.0.0.0/24"), true},
		"a family is missing":     {spec, Pfxs("10.0.0.0/24"), false},
		"one family twice":        {spec, Pfxs("10.0.0.0/24", "10.0.1.0/24"), false},
		"another block size":      {spec, Pfxs("10.0.0.0/25", "fd00::/120"), false},
		"outside of the range":    {spec, Pfxs("10.1.0.0/24", "fd00::/120"), false},
		"excluded in part":        {spec, Pfxs("10.0.9.0/24", "fd00::/120"), false},
		"disabled":                {disabled, Pfxs("10.0.0.0/24", "fd00::/120"), false},
		"nothing to be allocated": {spec, nil, false},
	} {
		if got := pool.Compile(ClusterCIDR("a", tc.spec), nil).Allocates(tc.blocks); got != tc.want {
			t.Errorf("%s: got %t", name, got)
		}
	}
}

// TestEarlier: compiling again, with the earlier pool, gives what compiling from nothing gives, also if the object is another one of that name.
func TestEarlier(t *testing.T) {
	first := ClusterCIDR("a", Spec4("10.0.0.0/16", 8, AnyOf(AllOf(In("a", "1")))))
	earlier := pool.Compile(first, nil)
	changed := first.DeepCopy()
	changed.Generation++
	changed.Spec.Priority, changed.Spec.NodeSelector = 3, AnyOf(AllOf(In("a", "2")))
	replaced := ClusterCIDR("a", Spec4("10.0.0.0/16", 8, AnyOf(AllOf(In("a", "2")))), func(cc *networkingv1.ClusterCIDR) { cc.UID = "another" })
	broken := ClusterCIDR("a", Spec4("10.0.0.0/16", 8, AnyOf(AllOf(v1.NodeSelectorRequirement{Key: "a", Operator: "Foo"}))))
	for name, cc := range map[string]*networkingv1.ClusterCIDR{"the same": first, "changed": changed, "replaced": replaced} {
		again := pool.Compile(cc, earlier)
		if !again.Equal(pool.Compile(cc, nil)) {
			t.Errorf("%s: it depends on the earlier pool", name)
		}
		if n := Node("n", Label("a", "2")); again.Matches(n) != (name != "the same") {
			t.Errorf("%s: it selects %v: %t", name, n.Labels, again.Matches(n))
		}
	}
	if p := pool.Compile(broken, pool.Compile(broken, nil)); p.State != ipam.Invalid || p.Problem == "" {
		t.Errorf("the problem of a selector is forgotten: %v, %q", p.State, p.Problem)
	}
}

func TestRead(t *testing.T) {
	n := Node("n")
	n.Spec.PodCIDRs = []string{"10.0.0.0/24", "ten"}
	for _, address := range []string{"host", "192.0.2.1", "fe80::1%eth0", "::ffff:192.0.2.2"} {
		n.Status.Addresses = append(n.Status.Addresses, v1.NodeAddress{Address: address})
	}
	read, err := pool.Read(n)
	if err != nil {
		t.Fatal(err)
	}
	got := map[string][]string{"blocks": Texts(read.Blocks), "addresses": Texts(read.Addresses), "unreadable": read.Unreadable}
	want := map[string][]string{"blocks": {"10.0.0.0/24"}, "addresses": {"192.0.2.1/32", "fe80::1/128", "192.0.2.2/32"}, "unreadable": {"ten"}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	// What panics while it is read, such as no Node at all, is an error.
	if _, err := pool.Read(nil); err == nil || !strings.Contains(err.Error(), "it keeps what it held") {
		t.Errorf("a panic gives %v", err)
	}
}

// Two ClusterCIDRs share addresses if there are some that neither excludes.
func TestSharesWith(t *testing.T) {
	spec := func(cidr string, hostBits int32, excluded ...string) networkingv1.ClusterCIDRSpec {
		s := Spec4(cidr, hostBits, nil)
		s.ExcludedCIDRs = excluded
		return s
	}
	for name, tc := range map[string]struct {
		p, o networkingv1.ClusterCIDRSpec
		want bool
	}{
		"the same range":                                      {spec("10.0.0.0/16", 8), spec("10.0.0.0/16", 8), true},
		"one inside the other":                                {spec("10.0.3.0/24", 8), spec("10.0.0.0/16", 4), true},
		"side by side":                                        {spec("10.0.0.0/17", 8), spec("10.0.128.0/17", 8), false},
		"the other excludes all of it":                        {spec("10.0.3.0/24", 8), spec("10.0.0.0/16", 8, "10.0.3.0/24"), false},
		"it excludes all of the other":                        {spec("10.0.0.0/16", 8, "10.0.3.0/24"), spec("10.0.3.0/24", 8), false},
		"each excludes what the other does not":               {spec("10.0.0.0/16", 8, "10.0.0.0/17"), spec("10.0.0.0/16", 8, "10.0.128.0/17"), false},
		"it excludes a part of the only block that both have": {spec("10.0.0.0/23", 8, "10.0.0.0/30"), spec("10.0.0.0/24", 4), false},
		"the other excludes a part of that block":             {spec("10.0.0.0/24", 4), spec("10.0.0.0/23", 8, "10.0.0.0/30"), false},
		"they exclude different parts":                        {spec("10.0.0.0/16", 8, "10.0.0.0/18"), spec("10.0.0.0/16", 8, "10.0.128.0/17"), true},
		"the other has a wrong block size":                    {spec("10.0.0.0/16", 8), spec("10.0.0.0/16", 20), true},
		"it allocates nothing itself":                         {spec("10.0.0.0/16", 20), spec("10.0.0.0/16", 8), false},
	} {
		p, o := pool.Compile(ClusterCIDR("p", tc.p), nil), pool.Compile(ClusterCIDR("o", tc.o), nil)
		if got := p.SharesWith(o); got != tc.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

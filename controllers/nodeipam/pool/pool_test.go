package pool

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
	. "github.com/multicidr/controller-manager/controllers/nodeipam/internal/objects"
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
		"without the finalizer it does not serve yet": {
			cc: ClusterCIDR("a", ipv4, NoFinalizer), wantState: ipam.Pending, wantRanges: range4,
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
			p := Compile(tc.cc)
			if p.State != tc.wantState {
				t.Errorf("state %v, want %v (%s)", p.State, tc.wantState, p.Problem)
			}
			if diff := cmp.Diff(tc.wantRanges, p.Ranges, cmp.Comparer(func(a, b netip.Prefix) bool { return a == b }), cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("ranges (-want +got):\n%s", diff)
			}
			if !strings.Contains(p.Problem, tc.wantProblem) || (p.Problem == "") != (tc.wantProblem == "") {
				t.Errorf("problem %q, want %q in it", p.Problem, tc.wantProblem)
			}
			if !p.Equal(Compile(tc.cc)) {
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
			p := Compile(ClusterCIDR("a", networkingv1.ClusterCIDRSpec{PerNodeHostBits: 8, IPv4: "10.0.0.0/16", NodeSelector: tc.selector}))
			specificity, ok := 0, !p.Selective
			for _, term := range p.terms {
				if term.matches(node) {
					specificity, ok = max(specificity, term.requirements), true
				}
			}
			if ok != tc.want || specificity != tc.wantSpecificity {
				t.Errorf("got %v, %d; want %v, %d", ok, specificity, tc.want, tc.wantSpecificity)
			}
		})
	}
}

func TestCanonicalSelectorDoesNotDependOnOrder(t *testing.T) {
	exists := v1.NodeSelectorRequirement{Key: "c", Operator: v1.NodeSelectorOpExists}
	a := AnyOf(AllOf(In("a", "1", "2"), exists), AllOf(In("b", "3")))
	b := AnyOf(AllOf(In("b", "3")), AllOf(exists, In("a", "2", "1")))
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
			blocks, unreadable := PodCIDRsOf(&v1.Node{Spec: tc.spec})
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
		if got, err := ParseCIDR(text); err != nil || got.String() != want {
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
		got, gotErr := ParseCIDR(text)
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

// What others write into a status is no cursor unless it could be ours.
func TestCursorFromStatus(t *testing.T) {
	for cursor, is := range map[string]bool{"10.0.0.0": true, "10.0.0.255": true, "10.0.1.0": true, "10.0.1.1": false, "9.255.255.255": false, "fd00::1": false, "": false} {
		cc := ClusterCIDR("a", Spec4("10.0.0.0/24", 4, nil))
		cc.Status.IPv4 = &networkingv1.RangeStatus{Cursor: cursor}
		if got := len(Compile(cc).Cursors) == 1; got != is {
			t.Errorf("%q is taken for a cursor: %t", cursor, got)
		}
	}
}

// The API server takes the same exclusion twice.
func TestExclusionWrittenTwice(t *testing.T) {
	cc := ClusterCIDR("a", Spec4("10.0.0.0/16", 8, nil))
	cc.Spec.ExcludedCIDRs = []string{"10.0.1.0/24", "10.0.0.0/24", "10.0.1.0/24"}
	if got, want := Compile(cc).Exclusions, Pfxs("10.0.0.0/24", "10.0.1.0/24"); !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

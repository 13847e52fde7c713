package allocator

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"

	networkingv1 "github.com/multicidr/controller-manager/apis/networking/v1"
	. "github.com/multicidr/controller-manager/controllers/nodeipam/internal/objects"
)

// TestSpecialAddresses: what hosts do not take for a Pod's address is reported, unless it is excluded; and it is allocated all the same.
func TestSpecialAddresses(t *testing.T) {
	for name, tc := range map[string]struct {
		spec networkingv1.ClusterCIDRSpec
		want string
	}{
		"none":                         {Spec4("10.0.0.0/8", 8, nil), ""},
		"loopback":                     {Spec4("127.123.234.0/23", 8, nil), "127.123.234.0/23 (loopback)"},
		"all of IPv4":                  {Spec4("0.0.0.0/0", 8, nil), "127.0.0.0/8 (loopback); 169.254.0.0/16 (link-local); 224.0.0.0/4 (multicast)"},
		"all of IPv4, partly excluded": {networkingv1.ClusterCIDRSpec{IPv4: "0.0.0.0/0", PerNodeHostBits: 8, ExcludedCIDRs: []string{"127.0.0.0/8", "169.254.0.0/16"}}, ": 224.0.0.0/4 (multicast)."},
		"all of IPv4, without those":   {networkingv1.ClusterCIDRSpec{IPv4: "0.0.0.0/0", PerNodeHostBits: 8, ExcludedCIDRs: []string{"127.0.0.0/8", "169.254.0.0/16", "224.0.0.0/4"}}, ""},
		"link-local IPv6":              {networkingv1.ClusterCIDRSpec{IPv6: "fe80::/48", PerNodeHostBits: 64}, "fe80::/48 (link-local)"},
		"multicast IPv6":               {networkingv1.ClusterCIDRSpec{IPv6: "ff05::/48", PerNodeHostBits: 64}, "ff05::/48 (multicast)"},
		"loopback IPv6":                {networkingv1.ClusterCIDRSpec{IPv6: "::/112", PerNodeHostBits: 8}, "::1/128 (loopback)"},
		"all of IPv6 as one block":     {networkingv1.ClusterCIDRSpec{IPv6: "::/0", PerNodeHostBits: 128}, "One block is the whole address space"},
	} {
		t.Run(name, func(t *testing.T) {
			b := New()
			cc := ClusterCIDR("a", tc.spec)
			Set(cc)(b)
			status, _ := b.Status(cc)
			got := meta.FindStatusCondition(status.Conditions, networkingv1.ConditionOverlapping)
			reason := networkingv1.ReasonNoOverlap
			if tc.want != "" {
				reason = networkingv1.ReasonSpecialAddresses
			}
			if got.Reason != reason || !strings.Contains(got.Message, tc.want) {
				t.Errorf("%s: %s; want %s: %s", got.Reason, got.Message, reason, tc.want)
			}
			if !meta.IsStatusConditionTrue(status.Conditions, networkingv1.ConditionReady) {
				t.Error("it is not Ready")
			}
		})
	}
}

func TestCursorComesFromTheStatusOnce(t *testing.T) {
	b := New()
	cc := ClusterCIDR("a", Spec4("10.0.0.0/22", 8, nil), func(cc *networkingv1.ClusterCIDR) {
		cc.Status.IPv4 = &networkingv1.RangeStatus{Cursor: "10.0.2.0"}
	})
	Set(cc)(b)
	for _, want := range []string{"a 10.0.2.0/24", "a 10.0.3.0/24", "a 10.0.0.0/24"} {
		if got := Reserve(Node(want))(b); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
		cc = cc.DeepCopy()
		cc.Spec.Priority++ // the pool is entered again, with the old cursor in its status
		Set(cc)(b)
	}
}

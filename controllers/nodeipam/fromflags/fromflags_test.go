package fromflags

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	networkingv1 "github.com/multicidr/controller-manager/apis/networking/v1"
	"github.com/multicidr/controller-manager/controllers/ipam"
	"github.com/multicidr/controller-manager/test/said"
)

func TestSpec(t *testing.T) {
	for name, tc := range map[string]struct {
		flags Flags
		want  *networkingv1.ClusterCIDRSpec
		wrong bool
	}{
		"no range": {flags: Flags{NodeMaskSize: 26}},
		"IPv4, the default block": {
			flags: Flags{Allocate: true, ClusterCIDR: "10.244.0.0/16"},
			want:  &networkingv1.ClusterCIDRSpec{IPv4: "10.244.0.0/16", PerNodeHostBits: 8},
		},
		"IPv6, the default block": {
			flags: Flags{Allocate: true, ClusterCIDR: "fd00::/48"},
			want:  &networkingv1.ClusterCIDRSpec{IPv6: "fd00::/48", PerNodeHostBits: 64},
		},
		"one family, the general mask": {
			flags: Flags{Allocate: true, ClusterCIDR: "10.244.0.0/16", NodeMaskSize: 26},
			want:  &networkingv1.ClusterCIDRSpec{IPv4: "10.244.0.0/16", PerNodeHostBits: 6},
		},
		"one family, its own mask": {
			flags: Flags{Allocate: true, ClusterCIDR: "fd00::/48", NodeMaskSizeIPv6: 80},
			want:  &networkingv1.ClusterCIDRSpec{IPv6: "fd00::/48", PerNodeHostBits: 48},
		},
		"all three masks, which agree": {
			flags: Flags{Allocate: true, ClusterCIDR: "10.244.0.0/16", NodeMaskSize: 26, NodeMaskSizeIPv4: 26, NodeMaskSizeIPv6: 64},
			want:  &networkingv1.ClusterCIDRSpec{IPv4: "10.244.0.0/16", PerNodeHostBits: 6},
		},
		"two families, the default blocks": {
			flags: Flags{Allocate: true, ClusterCIDR: "10.244.0.0/16,fd00::/48"},
			want:  &networkingv1.ClusterCIDRSpec{IPv4: "10.244.0.0/16", IPv6: "fd00::/48", PerNodeHostBits: 8, IPv6PerNodeHostBits: new(int32(64))},
		},
		"two families in the other order are the same object": {
			flags: Flags{Allocate: true, ClusterCIDR: " fd00::/48, 10.244.0.0/16 "},
			want:  &networkingv1.ClusterCIDRSpec{IPv4: "10.244.0.0/16", IPv6: "fd00::/48", PerNodeHostBits: 8, IPv6PerNodeHostBits: new(int32(64))},
		},
		"two families, equal host bits": {
			flags: Flags{Allocate: true, ClusterCIDR: "10.96.0.0/12,fd00:10:96::/112", NodeMaskSizeIPv4: 24, NodeMaskSizeIPv6: 120},
			want:  &networkingv1.ClusterCIDRSpec{IPv4: "10.96.0.0/12", IPv6: "fd00:10:96::/112", PerNodeHostBits: 8},
		},
		"host bits of the range are masked off": {
			flags: Flags{Allocate: true, ClusterCIDR: "10.244.7.9/16"},
			want:  &networkingv1.ClusterCIDRSpec{IPv4: "10.244.0.0/16", PerNodeHostBits: 8},
		},
		"one address for each Node": {
			flags: Flags{Allocate: true, ClusterCIDR: "10.244.0.0/16,fd00::/112", NodeMaskSizeIPv4: 32, NodeMaskSizeIPv6: 128},
			want:  &networkingv1.ClusterCIDRSpec{IPv4: "10.244.0.0/16", IPv6: "fd00::/112"},
		},
		"leading zeros, as kube-controller-manager reads them": {
			flags: Flags{Allocate: true, ClusterCIDR: "010.244.0.0/16"},
			want:  &networkingv1.ClusterCIDRSpec{IPv4: "10.244.0.0/16", PerNodeHostBits: 8},
		},
		"the range only says which family comes first": {flags: Flags{ClusterCIDR: "10.244.0.0/16"}},
		"an empty range":                        {flags: Flags{Allocate: true, ClusterCIDR: " "}},
		"no CIDR":                               {flags: Flags{Allocate: true, ClusterCIDR: "10.244.0.0"}, wrong: true},
		"IPv4-mapped IPv6":                      {flags: Flags{Allocate: true, ClusterCIDR: "::ffff:10.0.0.0/112,fd00::/64"}, wrong: true},
		"two of one family":                     {flags: Flags{Allocate: true, ClusterCIDR: "10.1.0.0/16,10.2.0.0/16"}, wrong: true},
		"IPv4-mapped IPv6 inside a wide range":  {flags: Flags{Allocate: true, ClusterCIDR: "::/1"}, wrong: true},
		"blocks of more bits than an address":   {flags: Flags{Allocate: true, ClusterCIDR: "10.244.0.0/16", NodeMaskSize: 33}, wrong: true},
		"three":                                 {flags: Flags{Allocate: true, ClusterCIDR: "10.1.0.0/16,fd00::/48,10.2.0.0/16"}, wrong: true},
		"the general mask with two families":    {flags: Flags{Allocate: true, ClusterCIDR: "10.244.0.0/16,fd00::/48", NodeMaskSize: 24}, wrong: true},
		"the general mask and one of a family":  {flags: Flags{Allocate: true, ClusterCIDR: "10.244.0.0/16", NodeMaskSize: 24, NodeMaskSizeIPv4: 25}, wrong: true},
		"the mask of a family that is not used": {flags: Flags{Allocate: true, ClusterCIDR: "10.244.0.0/16", NodeMaskSizeIPv6: 64}, wrong: true},
		"blocks larger than the range":          {flags: Flags{Allocate: true, ClusterCIDR: "10.244.0.0/24", NodeMaskSize: 16}, wrong: true},
		"default blocks that do not fit":        {flags: Flags{Allocate: true, ClusterCIDR: "10.244.0.0/26,fd00::/48"}, wrong: true},
		"a mask that is none":                   {flags: Flags{Allocate: true, ClusterCIDR: "10.244.0.0/16", NodeMaskSize: -1}, wrong: true},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := tc.flags.Spec()
			if (err != nil) != tc.wrong {
				t.Fatalf("error %v, want one: %t", err, tc.wrong)
			}
			if err != nil {
				said.Check(t, err.Error())
				return
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestPrimaryFamily(t *testing.T) {
	for want, flags := range map[ipam.Family][]Flags{
		ipam.IPv4: {{}, {ClusterCIDR: "10.0.0.0/8,fd00::/48"}, {ServiceRange: "10.96.0.0/12"}, {ClusterCIDR: "10.0.0.0/8", ServiceRange: "fd00::/112"}},
		ipam.IPv6: {{ClusterCIDR: " fd00::/48, 10.0.0.0/8"}, {ServiceRange: "fd00::/112,10.96.0.0/12"}},
	} {
		for _, f := range flags {
			if got := f.PrimaryFamily(); got != want {
				t.Errorf("%+v: %v, want %v", f, got, want)
			}
		}
	}
}

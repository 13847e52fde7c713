package nodeipam

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	networkingv1 "github.com/multicidr/controller-manager/apis/networking/v1"
)

func TestFlagsSpec(t *testing.T) {
	for name, tc := range map[string]struct {
		flags   Flags
		want    *networkingv1.ClusterCIDRSpec
		wantErr string // a part of it
	}{
		"no range": {flags: Flags{NodeMaskSize: 26}},
		"IPv4, the default block": {
			flags: Flags{ClusterCIDR: "10.244.0.0/16"},
			want:  &networkingv1.ClusterCIDRSpec{IPv4: "10.244.0.0/16", PerNodeHostBits: 8},
		},
		"IPv6, the default block": {
			flags: Flags{ClusterCIDR: "fd00::/48"},
			want:  &networkingv1.ClusterCIDRSpec{IPv6: "fd00::/48", PerNodeHostBits: 64},
		},
		"one family, the general mask": {
			flags: Flags{ClusterCIDR: "10.244.0.0/16", NodeMaskSize: 26},
			want:  &networkingv1.ClusterCIDRSpec{IPv4: "10.244.0.0/16", PerNodeHostBits: 6},
		},
		"one family, its own mask": {
			flags: Flags{ClusterCIDR: "fd00::/48", NodeMaskSizeIPv6: 80},
			want:  &networkingv1.ClusterCIDRSpec{IPv6: "fd00::/48", PerNodeHostBits: 48},
		},
		"two families, the default blocks": {
			flags: Flags{ClusterCIDR: "10.244.0.0/16,fd00::/48"},
			want:  &networkingv1.ClusterCIDRSpec{IPv4: "10.244.0.0/16", IPv6: "fd00::/48", PerNodeHostBits: 8, IPv6PerNodeHostBits: new(int32(64))},
		},
		"two families in the other order are the same object": {
			flags: Flags{ClusterCIDR: " fd00::/48, 10.244.0.0/16 "},
			want:  &networkingv1.ClusterCIDRSpec{IPv4: "10.244.0.0/16", IPv6: "fd00::/48", PerNodeHostBits: 8, IPv6PerNodeHostBits: new(int32(64))},
		},
		"two families, equal host bits": {
			flags: Flags{ClusterCIDR: "10.96.0.0/12,fd00:10:96::/112", NodeMaskSizeIPv4: 24, NodeMaskSizeIPv6: 120},
			want:  &networkingv1.ClusterCIDRSpec{IPv4: "10.96.0.0/12", IPv6: "fd00:10:96::/112", PerNodeHostBits: 8},
		},
		"host bits of the range are masked off": {
			flags: Flags{ClusterCIDR: "10.244.7.9/16"},
			want:  &networkingv1.ClusterCIDRSpec{IPv4: "10.244.0.0/16", PerNodeHostBits: 8},
		},
		"no CIDR":                               {flags: Flags{ClusterCIDR: "10.244.0.0"}, wantErr: "--cluster-cidr: invalid CIDR address: 10.244.0.0: write one CIDR"},
		"two of one family":                     {flags: Flags{ClusterCIDR: "10.1.0.0/16,10.2.0.0/16"}, wantErr: "at most one CIDR of each family"},
		"three":                                 {flags: Flags{ClusterCIDR: "10.1.0.0/16,fd00::/48,10.2.0.0/16"}, wantErr: "at most one CIDR of each family"},
		"the general mask with two families":    {flags: Flags{ClusterCIDR: "10.244.0.0/16,fd00::/48", NodeMaskSize: 24}, wantErr: "use --node-cidr-mask-size-ipv4 and --node-cidr-mask-size-ipv6"},
		"the general mask and one of a family":  {flags: Flags{ClusterCIDR: "10.244.0.0/16", NodeMaskSize: 24, NodeMaskSizeIPv4: 25}, wantErr: "exclude each other"},
		"the mask of a family that is not used": {flags: Flags{ClusterCIDR: "10.244.0.0/16", NodeMaskSizeIPv6: 64}, wantErr: "--node-cidr-mask-size-ipv6 is set, but --cluster-cidr has no IPv6 range"},
		"blocks larger than the range":          {flags: Flags{ClusterCIDR: "10.244.0.0/24", NodeMaskSize: 16}, wantErr: "Nodes cannot get /16 blocks of --cluster-cidr 10.244.0.0/24: use a --node-cidr-mask-size from 24 to 28"},
		"blocks below the minimum":              {flags: Flags{ClusterCIDR: "10.244.0.0/16", NodeMaskSize: 30}, wantErr: "from 16 to 28"},
		"a mask that is none":                   {flags: Flags{ClusterCIDR: "10.244.0.0/16", NodeMaskSize: -1}, wantErr: "cannot get /-1 blocks"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := tc.flags.Spec()
			if tc.wantErr != "" {
				if err == nil || !strings.Contains(err.Error(), tc.wantErr) {
					t.Fatalf("error %v, want %q in it", err, tc.wantErr)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if got == nil {
				return
			}
			// What the flags make must be a ClusterCIDR that serves.
			if p := compile(clusterCIDR("a", *got)); p.problem != "" {
				t.Errorf("it is invalid: %s", p.problem)
			}
			if !sameRanges(*got, *tc.want) || !strings.HasPrefix(nameFromFlags(got), flagsPrefix) {
				t.Errorf("%s is not recognised", nameFromFlags(got))
			}
		})
	}
}

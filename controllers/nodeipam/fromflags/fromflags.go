// Package fromflags says which ClusterCIDR the in-tree allocator's flags stand for, and what becomes of those of other flags.
package fromflags

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"strings"

	netutils "k8s.io/utils/net"

	networkingv1 "github.com/multicidr/controller-manager/apis/networking/v1"
	"github.com/multicidr/controller-manager/controllers/ipam"
	"github.com/multicidr/controller-manager/controllers/nodeipam/pool"
)

// defaultMask is kube-controller-manager's default prefix length of Nodes' blocks, by family.
var defaultMask = [...]int32{ipam.IPv4: 24, ipam.IPv6: 64}

// Flags are the in-tree allocator's flags. They stand for one ClusterCIDR without a selector. Names, defaults and rules are those of
// kube-controller-manager, but for what checkMasks says.
type Flags struct {
	Allocate         bool   // --allocate-node-cidrs: without it, --cluster-cidr only says which family comes first
	ClusterCIDR      string // --cluster-cidr: one CIDR, or one of each family
	NodeMaskSize     int32  // --node-cidr-mask-size: only for a single family; 0: the default
	NodeMaskSizeIPv4 int32  // --node-cidr-mask-size-ipv4; 0: the default
	NodeMaskSizeIPv6 int32  // --node-cidr-mask-size-ipv6; 0: the default
	ServiceRange     string // --service-cluster-ip-range: one CIDR, or one of each family
}

// Spec returns the spec of the ClusterCIDR that the flags stand for; nil if they stand for none.
func (f Flags) Spec() (*networkingv1.ClusterCIDRSpec, error) {
	if !f.Allocate || strings.TrimSpace(f.ClusterCIDR) == "" {
		return nil, nil
	}
	ranges, err := ParseCIDRs("--cluster-cidr", f.ClusterCIDR)
	if err != nil {
		return nil, err
	}
	if err := f.checkMasks(ranges); err != nil {
		return nil, err
	}
	spec := &networkingv1.ClusterCIDRSpec{}
	for _, prefix := range ranges {
		bits, err := f.hostBits(prefix, len(ranges))
		switch {
		case err != nil:
			return nil, err
		case ipam.FamilyOf(prefix) == ipam.IPv4:
			spec.IPv4, spec.PerNodeHostBits = prefix.String(), bits
		default:
			spec.IPv6, spec.IPv6PerNodeHostBits = prefix.String(), &bits
		}
	}
	if bits6 := spec.IPv6PerNodeHostBits; bits6 != nil && (spec.IPv4 == "" || *bits6 == spec.PerNodeHostBits) { // one number for all
		spec.PerNodeHostBits, spec.IPv6PerNodeHostBits = *bits6, nil
	}
	return spec, nil
}

// hostBits returns the block size of one of so many ranges.
func (f Flags) hostBits(prefix netip.Prefix, ranges int) (int32, error) {
	family := ipam.FamilyOf(prefix)
	mask := int(cmp.Or(f.maskOf(family), f.NodeMaskSize, defaultMask[family]))
	if prefix.Overlaps(pool.Mapped) {
		return 0, fmt.Errorf("--cluster-cidr %v contains %s: use a range without them", prefix, pool.WhatMapped)
	}
	if mask < prefix.Bits() || mask > family.Bits() {
		return 0, fmt.Errorf("Nodes cannot get /%d blocks of --cluster-cidr %v: use a %s from %d to %d, or a wider range",
			mask, prefix, f.maskFlag(family, ranges), prefix.Bits(), family.Bits())
	}
	return int32(family.Bits() - mask), nil
}

// ParseCIDRs parses a flag that takes one CIDR, or two of different families, like the flags of kube-controller-manager.
func ParseCIDRs(flag, value string) ([]netip.Prefix, error) {
	var prefixes []netip.Prefix
	for s := range strings.SplitSeq(strings.TrimSpace(value), ",") {
		prefix, err := pool.ReadCIDR(strings.TrimSpace(s))
		if err == nil && prefix.Addr().Is4In6() && prefix.Bits() >= pool.Mapped.Bits() {
			err = fmt.Errorf("%v contains %s", prefix, pool.WhatMapped)
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w: write one CIDR, or one of each family with a comma between them", flag, err)
		}
		prefixes = append(prefixes, prefix)
	}
	if len(prefixes) > 2 || len(prefixes) == 2 && ipam.FamilyOf(prefixes[0]) == ipam.FamilyOf(prefixes[1]) {
		return nil, fmt.Errorf("%s: %q: at most one CIDR of each family", flag, value)
	}
	return prefixes, nil
}

// maskOf returns the value of the flag for one family; 0 if it is not set.
func (f Flags) maskOf(family ipam.Family) int32 {
	return [...]int32{ipam.IPv4: f.NodeMaskSizeIPv4, ipam.IPv6: f.NodeMaskSizeIPv6}[family]
}

// maskFlag returns the flag that says how large the blocks of a family are, or that can say it beside the others.
func (f Flags) maskFlag(family ipam.Family, families int) string {
	if families == 1 && f.maskOf(family) == 0 {
		return "--node-cidr-mask-size"
	}
	return "--node-cidr-mask-size-" + strings.ToLower(family.String())
}

// checkMasks returns an error if the mask flags contradict each other or the ranges. The sizes of both families may stand beside
// --node-cidr-mask-size, as in a file that serves several clusters, if they say the same. Kubernetes refuses that.
func (f Flags) checkMasks(ranges []netip.Prefix) error {
	if len(ranges) > 1 {
		if f.NodeMaskSize != 0 {
			return errors.New("--node-cidr-mask-size cannot be used with two families: use --node-cidr-mask-size-ipv4 and --node-cidr-mask-size-ipv6")
		}
		return nil
	}
	family, other := ipam.IPv4, ipam.IPv6
	if ipam.FamilyOf(ranges[0]) == ipam.IPv6 {
		family, other = other, family
	}
	switch own := f.maskOf(family); {
	case f.NodeMaskSize != 0 && own != 0 && own != f.NodeMaskSize:
		return fmt.Errorf("--node-cidr-mask-size is %d, but --node-cidr-mask-size-%s is %d: remove one of them", f.NodeMaskSize, strings.ToLower(family.String()), own)
	case f.NodeMaskSize == 0 && f.maskOf(other) != 0:
		return fmt.Errorf("--node-cidr-mask-size-%s is set, but --cluster-cidr has no %v range: remove it", strings.ToLower(other.String()), other)
	}
	return nil
}

// Validate returns what is wrong with the values. It is for programs in which only this controller depends on them.
func (f Flags) Validate() []error {
	_, specErr := f.Spec()
	_, serviceErr := f.ServiceRanges()
	return []error{specErr, serviceErr}
}

func (f Flags) ServiceRanges() ([]netip.Prefix, error) {
	if strings.TrimSpace(f.ServiceRange) == "" {
		return nil, nil
	}
	return ParseCIDRs(ServiceRanges, f.ServiceRange)
}

// PrimaryFamily is the family of the first CIDR in --cluster-cidr, or else in --service-cluster-ip-range, or else IPv4. It comes first in
// podCIDRs and so determines which of a Pod's addresses is its podIP.
func (f Flags) PrimaryFamily() ipam.Family {
	for _, list := range []string{f.ClusterCIDR, f.ServiceRange} {
		first, _, _ := strings.Cut(list, ",")
		switch {
		case netutils.IsIPv4CIDRString(strings.TrimSpace(first)):
			return ipam.IPv4
		case netutils.IsIPv6CIDRString(strings.TrimSpace(first)):
			return ipam.IPv6
		}
	}
	return ipam.IPv4
}

// ServiceRanges is the name of --service-cluster-ip-range as a source of service ranges.
const ServiceRanges = "--service-cluster-ip-range"

// Package fromflags is the ClusterCIDR that the flags of the in-tree allocator stand for: what it says, what it is called, and what it takes over from
// those of earlier flags.
package fromflags

import (
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"strings"

	netutils "k8s.io/utils/net"

	networkingv1 "github.com/multicidr/controller-manager/apis/networking/v1"
	"github.com/multicidr/controller-manager/controllers/ipam"
	"github.com/multicidr/controller-manager/controllers/nodeipam/clustercidr"
)

// The prefix lengths of Nodes' blocks that kube-controller-manager takes unless told otherwise.
const (
	defaultMaskSizeIPv4 = 24
	defaultMaskSizeIPv6 = 64
)

// Flags are the flags of the in-tree allocator, which stand for one ClusterCIDR without a selector. Their names, defaults and rules
// are those of kube-controller-manager.
type Flags struct {
	Allocate         bool   // --allocate-node-cidrs: without it --cluster-cidr says only which family comes first
	ClusterCIDR      string // --cluster-cidr: one CIDR, or one of each family
	NodeMaskSize     int32  // --node-cidr-mask-size: of the one family there is; 0: the default
	NodeMaskSizeIPv4 int32  // --node-cidr-mask-size-ipv4; 0: the default
	NodeMaskSizeIPv6 int32  // --node-cidr-mask-size-ipv6; 0: the default
	ServiceRange     string // --service-cluster-ip-range: one CIDR, or one of each family
}

// Spec returns the ClusterCIDR that the flags stand for, nil if --cluster-cidr is not set.
func (f Flags) Spec() (*networkingv1.ClusterCIDRSpec, error) {
	if strings.TrimSpace(f.ClusterCIDR) == "" {
		return nil, nil
	}
	ranges, err := ParseCIDRs("--cluster-cidr", f.ClusterCIDR)
	if err != nil {
		return nil, err
	}
	masks, err := f.masks(ranges)
	if err != nil {
		return nil, err
	}
	spec := &networkingv1.ClusterCIDRSpec{}
	hostBits := map[ipam.Family]int32{}
	for i, prefix := range ranges {
		family := ipam.FamilyOf(prefix)
		bits := family.Bits() - masks[i]
		if prefix.Overlaps(clustercidr.Mapped) && masks[i] > 0 {
			return nil, fmt.Errorf("--cluster-cidr %v contains %s: use a range without them", prefix, clustercidr.WhatMapped)
		}
		if _, err := ipam.NewRange(prefix, bits); err != nil || bits < clustercidr.MinHostBits {
			return nil, fmt.Errorf("Nodes cannot get /%d blocks of --cluster-cidr %v: use a --node-cidr-mask-size from %d to %d, or a wider range",
				masks[i], prefix, prefix.Bits(), family.Bits()-clustercidr.MinHostBits)
		}
		hostBits[family] = int32(bits)
		if family == ipam.IPv4 {
			spec.IPv4 = prefix.String()
		} else {
			spec.IPv6 = prefix.String()
		}
	}
	setHostBits(spec, hostBits)
	return spec, nil
}

// setHostBits says how large blocks are: one number if it is the same for both families.
func setHostBits(spec *networkingv1.ClusterCIDRSpec, hostBits map[ipam.Family]int32) {
	bits4, dual := hostBits[ipam.IPv4]
	bits6, six := hostBits[ipam.IPv6]
	spec.PerNodeHostBits = bits4
	switch {
	case !dual:
		spec.PerNodeHostBits = bits6
	case six && bits6 != bits4:
		spec.IPv6PerNodeHostBits = &bits6
	}
}

// ParseCIDRs reads the value of a flag that takes one CIDR, or two of different families, as upstream's flags do.
func ParseCIDRs(flag, value string) ([]netip.Prefix, error) {
	var prefixes []netip.Prefix
	for s := range strings.SplitSeq(strings.TrimSpace(value), ",") {
		prefix, err := clustercidr.ParseCIDR(strings.TrimSpace(s))
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

// maskOf returns what the flag for one family says; 0 if it is not set.
func (f Flags) maskOf(family ipam.Family) int32 {
	if family == ipam.IPv4 {
		return f.NodeMaskSizeIPv4
	}
	return f.NodeMaskSizeIPv6
}

// checkMasks returns an error if the flags for block lengths do not go together, or with the ranges.
func (f Flags) checkMasks(ranges []netip.Prefix) error {
	if len(ranges) == 1 {
		other := ipam.IPv6
		if ipam.FamilyOf(ranges[0]) == ipam.IPv6 {
			other = ipam.IPv4
		}
		switch {
		case f.NodeMaskSize != 0 && (f.NodeMaskSizeIPv4 != 0 || f.NodeMaskSizeIPv6 != 0):
			return errors.New("--node-cidr-mask-size and --node-cidr-mask-size-ipv4 or -ipv6 exclude each other: remove one of them")
		case f.maskOf(other) != 0:
			return fmt.Errorf("--node-cidr-mask-size-%s is set, but --cluster-cidr has no %v range: remove it", strings.ToLower(other.String()), other)
		}
	} else if f.NodeMaskSize != 0 {
		return errors.New("--node-cidr-mask-size cannot be used with two families: use --node-cidr-mask-size-ipv4 and --node-cidr-mask-size-ipv6")
	}
	return nil
}

// masks returns the block length of each range.
func (f Flags) masks(ranges []netip.Prefix) ([]int, error) {
	if err := f.checkMasks(ranges); err != nil {
		return nil, err
	}
	masks := make([]int, len(ranges))
	for i, prefix := range ranges {
		family := ipam.FamilyOf(prefix)
		fallback := int32(defaultMaskSizeIPv4)
		if family == ipam.IPv6 {
			fallback = defaultMaskSizeIPv6
		}
		for _, size := range []int32{fallback, f.NodeMaskSize, f.maskOf(family)} {
			if size != 0 {
				masks[i] = int(size)
			}
		}
	}
	return masks, nil
}

// flagsPrefix begins the name of every ClusterCIDR that was created from flags (KEP-2593).
const Prefix = "created-from-flags-"

// nameFromFlags depends on what the flags say only, so that every process with the same flags means the same object.
func NameOf(spec *networkingv1.ClusterCIDRSpec) string {
	text, err := json.Marshal(spec)
	if err != nil {
		panic(err) // numbers and strings only
	}
	return fmt.Sprintf("%s%.4x", Prefix, sha256.Sum256(text))
}

// fromFlags reports whether the controller made a ClusterCIDR from flags. It takes the name and the label: somebody who copies such an
// object to make a range of his own copies the label too.
func Made(cc *networkingv1.ClusterCIDR) bool {
	return strings.HasPrefix(cc.Name, Prefix) && cc.Labels[networkingv1.LabelCreatedFromFlags] == "true"
}

// MaxExcluded is how many exclusions the API takes.
const MaxExcluded = 256

// ExcludedBefore returns what users have excluded from ClusterCIDRs that were made from flags, as far as it lies in the ranges of the next one. That
// serves as soon as it is there, and nobody could exclude anything from it before. If these are more than the API takes, more is excluded than
// users have said, and never less.
func ExcludedBefore(made []*networkingv1.ClusterCIDR, next networkingv1.ClusterCIDRSpec) (excluded []string) {
	p := clustercidr.Compile(&networkingv1.ClusterCIDR{Spec: next})
	var all []netip.Prefix
	for _, cc := range made {
		if !Made(cc) {
			continue
		}
		for _, e := range clustercidr.Compile(cc).Exclusions {
			for _, r := range p.Ranges {
				switch {
				case !r.Prefix.Overlaps(e):
				case e.Bits() < r.Prefix.Bits():
					all = append(all, r.Prefix)
				default:
					all = append(all, e)
				}
			}
		}
	}
	for _, e := range clustercidr.Summary(all, MaxExcluded) {
		excluded = append(excluded, e.String())
	}
	return excluded
}

// disabledByUs reports whether it was this controller, here or in another process, that disabled a ClusterCIDR.
func Disabled(cc *networkingv1.ClusterCIDR) bool {
	_, annotated := cc.Annotations[networkingv1.AnnotationSuperseded]
	return annotated && cc.Spec.Allocation == networkingv1.AllocationDisabled
}

// ChangedByUser reports whether a ClusterCIDR that was made from flags has something in it that the controller does not write.
func ChangedByUser(cc *networkingv1.ClusterCIDR) bool {
	return cc.Spec.Priority != 0 || len(cc.Spec.ExcludedCIDRs) > 0
}

// Validate returns what is wrong with the values, for a program in which nothing but this controller depends on them.
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

// PrimaryFamily is the family of the first CIDR in --cluster-cidr, else of --service-cluster-ip-range, else IPv4. It comes
// first in podCIDRs and so decides which of a Pod's addresses is its podIP.
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

// flagServiceRanges names --service-cluster-ip-range among the sources of service ranges.
const ServiceRanges = "--service-cluster-ip-range"

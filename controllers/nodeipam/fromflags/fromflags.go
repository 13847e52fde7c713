// Package fromflags defines the ClusterCIDR that the in-tree allocator's flags stand for: its spec, its name, and the exclusions that it
// takes over from ClusterCIDRs of earlier flags.
package fromflags

import (
	"cmp"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	netutils "k8s.io/utils/net"

	networkingv1 "github.com/multicidr/controller-manager/apis/networking/v1"
	"github.com/multicidr/controller-manager/controllers/ipam"
	"github.com/multicidr/controller-manager/controllers/nodeipam/clustercidr"
)

// kube-controller-manager's default prefix lengths of Nodes' blocks.
const (
	defaultMaskSizeIPv4 = 24
	defaultMaskSizeIPv6 = 64
)

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

// Spec returns the spec of the ClusterCIDR that the flags stand for; nil if --cluster-cidr is not set.
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
			return nil, fmt.Errorf("Nodes cannot get /%d blocks of --cluster-cidr %v: use a %s from %d to %d, or a wider range",
				masks[i], prefix, f.maskFlag(family, len(ranges)), prefix.Bits(), family.Bits()-clustercidr.MinHostBits)
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

// setHostBits sets the block sizes; a single number if both families have the same.
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

// ParseCIDRs parses a flag that takes one CIDR, or two of different families, like the flags of kube-controller-manager.
func ParseCIDRs(flag, value string) ([]netip.Prefix, error) {
	var prefixes []netip.Prefix
	for s := range strings.SplitSeq(strings.TrimSpace(value), ",") {
		prefix, err := clustercidr.ParseCIDR(strings.TrimSpace(s))
		if strings.Contains(s, ":") && err == nil && ipam.FamilyOf(prefix) == ipam.IPv4 {
			err = fmt.Errorf("%s contains %s", s, clustercidr.WhatMapped)
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
	if family == ipam.IPv4 {
		return f.NodeMaskSizeIPv4
	}
	return f.NodeMaskSizeIPv6
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

// Prefix is the name prefix of every ClusterCIDR that was created from flags (KEP-2593).
const Prefix = "created-from-flags-"

// NameOf returns the name of the ClusterCIDR. It depends only on the flags, so that all processes with the same flags use the same object.
func NameOf(spec *networkingv1.ClusterCIDRSpec) string {
	text, err := json.Marshal(spec)
	if err != nil {
		panic(err) // only numbers and strings
	}
	return fmt.Sprintf("%s%.4x", Prefix, sha256.Sum256(text))
}

// Made reports whether the controller made a ClusterCIDR from flags. It checks the name and the label, because a user who copies such an
// object to make another range also copies the label.
func Made(cc *networkingv1.ClusterCIDR) bool {
	return strings.HasPrefix(cc.Name, Prefix) && cc.Labels[networkingv1.LabelCreatedFromFlags] == "true"
}

// OldestFirst returns those ClusterCIDRs that were made from flags, oldest first. An attempt to create one may be carried out after a later
// attempt, so there can be two for the same flags. The order makes every process keep the same one. It changes all.
func OldestFirst(all []*networkingv1.ClusterCIDR) (made []*networkingv1.ClusterCIDR) {
	made = slices.DeleteFunc(all, func(cc *networkingv1.ClusterCIDR) bool { return !Made(cc) })
	slices.SortFunc(made, func(a, b *networkingv1.ClusterCIDR) int {
		return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), strings.Compare(a.Name, b.Name))
	})
	return made
}

// Fits reports whether a ClusterCIDR has the ranges that flags ask for; nil asks for none.
func Fits(cc *networkingv1.ClusterCIDR, flags *networkingv1.ClusterCIDRSpec) bool {
	return flags != nil && clustercidr.SameRanges(cc.Spec, *flags)
}

// Superseded says why a ClusterCIDR that was made from flags allocates nothing any more; empty if it is the one of these flags.
func Superseded(cc *networkingv1.ClusterCIDR, flags *networkingv1.ClusterCIDRSpec) (why string) {
	switch {
	case flags == nil:
		return "it was made from flags, and the controller has no such flags now"
	case !Fits(cc, flags):
		return "it was made from flags, which now name another range or block size"
	case Disabled(cc): // Briefly also one that is about to be enabled again.
		return "it was made from flags, for which there is another ClusterCIDR"
	default:
		return ""
	}
}

// New returns the ClusterCIDR of flags, to be created. made are those that exist.
func New(name string, flags *networkingv1.ClusterCIDRSpec, made []*networkingv1.ClusterCIDR) *networkingv1.ClusterCIDR {
	cc := &networkingv1.ClusterCIDR{
		ObjectMeta: metav1.ObjectMeta{
			Name:       name,
			Labels:     map[string]string{networkingv1.LabelCreatedFromFlags: "true"},
			Finalizers: []string{networkingv1.Finalizer},
		},
		Spec: *flags.DeepCopy(),
	}
	cc.Spec.ExcludedCIDRs = ExcludedBefore(made, *flags)
	return cc
}

// MaxExcluded is the API's limit on the number of exclusions.
const MaxExcluded = 256

// ExcludedBefore returns what users excluded from ClusterCIDRs made from flags, as far as it lies in the ranges of the next one. The next
// one allocates as soon as it exists, so a user has no chance to exclude anything from it before. If there are more exclusions than the API
// accepts, the result excludes more addresses than users did, never fewer.
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

// Disabled reports whether this controller, in this process or another one, disabled a ClusterCIDR.
func Disabled(cc *networkingv1.ClusterCIDR) bool {
	_, annotated := cc.Annotations[networkingv1.AnnotationSuperseded]
	return annotated && cc.Spec.Allocation == networkingv1.AllocationDisabled
}

// ChangedByUser reports whether a ClusterCIDR made from flags contains anything that the controller does not write.
func ChangedByUser(cc *networkingv1.ClusterCIDR) bool {
	return cc.Spec.Priority != 0 || len(cc.Spec.ExcludedCIDRs) > 0
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

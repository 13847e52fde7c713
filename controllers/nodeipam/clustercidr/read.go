package clustercidr

import (
	"net/netip"
	"slices"

	networkingv1 "github.com/multicidr/controller-manager/apis/networking/v1"
)

// What the controller reads from objects, for a program that looks at a cluster before the controller runs in it: it must not
// understand them otherwise.

// RangesOf returns the ranges of a ClusterCIDR, what reports whether it can allocate a block with an address of some prefix, and why the
// controller will not serve from it: empty if nothing is wrong with it.
func RangesOf(cc *networkingv1.ClusterCIDR) (ranges []netip.Prefix, gives func(netip.Prefix) bool, problem string) {
	p := Compile(cc)
	return p.Extent(), func(prefix netip.Prefix) bool {
		return p.Gives(prefix) || slices.ContainsFunc(p.uncut, prefix.Overlaps)
	}, p.Problem
}

// SameRanges reports whether two ClusterCIDRs have the same ranges and blocks, for all Nodes. It compares what is immutable; the rest of a ClusterCIDR is for users to change.
func SameRanges(a, b networkingv1.ClusterCIDRSpec) bool {
	bits6 := func(s networkingv1.ClusterCIDRSpec) int32 {
		if s.IPv6PerNodeHostBits != nil {
			return *s.IPv6PerNodeHostBits
		}
		return s.PerNodeHostBits
	}
	return a.IPv4 == b.IPv4 && a.IPv6 == b.IPv6 && a.PerNodeHostBits == b.PerNodeHostBits && bits6(a) == bits6(b) && a.NodeSelector == nil && b.NodeSelector == nil
}

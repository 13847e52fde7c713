package clustercidr

import (
	"net/netip"
	"slices"

	networkingv1 "github.com/multicidr/controller-manager/apis/networking/v1"
)

// How the controller reads objects, exported for a program that checks a cluster before the controller runs in it. That program must not
// read them differently.

// RangesOf returns the ranges of a ClusterCIDR, a function that reports whether it can allocate a block that overlaps a prefix, and why the
// controller will not allocate from it; empty if nothing is wrong.
func RangesOf(cc *networkingv1.ClusterCIDR) (ranges []netip.Prefix, gives func(netip.Prefix) bool, problem string) {
	p := Compile(cc)
	return p.Extent(), func(prefix netip.Prefix) bool {
		return p.Gives(prefix) || slices.ContainsFunc(p.uncut, prefix.Overlaps)
	}, p.Problem
}

// SameRanges reports whether two ClusterCIDRs without selectors have the same ranges and block sizes. It compares only immutable fields;
// users may change the others.
func SameRanges(a, b networkingv1.ClusterCIDRSpec) bool {
	bits6 := func(s networkingv1.ClusterCIDRSpec) int32 {
		if s.IPv6PerNodeHostBits != nil {
			return *s.IPv6PerNodeHostBits
		}
		return s.PerNodeHostBits
	}
	return a.IPv4 == b.IPv4 && a.IPv6 == b.IPv6 && a.PerNodeHostBits == b.PerNodeHostBits && bits6(a) == bits6(b) && a.NodeSelector == nil && b.NodeSelector == nil
}

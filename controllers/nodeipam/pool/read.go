package pool

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	networkingapiv1 "k8s.io/api/networking/v1"
	netutils "k8s.io/utils/net"

	networkingv1 "github.com/multicidr/controller-manager/apis/networking/v1"
)

// Mapped are the IPv4-mapped IPv6 addresses (RFC 4291, section 2.5.5.2). Most programs treat them as IPv4, so the API server refuses them
// as podCIDRs. An older one stores them and shows them as IPv4 addresses.
var Mapped = netip.PrefixFrom(netip.AddrFrom16([16]byte{10: 0xff, 11: 0xff}), 96)

const WhatMapped = "IPv4-mapped addresses (::ffff:0:0/96), of which no Node can have a block"

// ParseCIDR parses a CIDR as the rest of the cluster does: an address with leading zeros, or an IPv4-mapped one, which the API server may
// have stored long ago, means the IPv4 address. The exception is the prefix of all IPv4-mapped addresses: it is not meant as all of IPv4,
// and no other Node could get an address.
func ParseCIDR(s string) (netip.Prefix, error) {
	prefix, err := ReadCIDR(s)
	if addr, bits := prefix.Addr(), prefix.Bits(); err == nil && addr.Is4In6() && bits > Mapped.Bits() {
		prefix = netip.PrefixFrom(addr.Unmap(), bits-Mapped.Bits()).Masked()
	}
	return prefix, err
}

// ReadCIDR parses a CIDR as written. Leading zeros are ignored.
func ReadCIDR(s string) (netip.Prefix, error) {
	prefix, err := netip.ParsePrefix(s) // enough for nearly all CIDRs, and much faster
	if err != nil {
		_, n, err := netutils.ParseCIDRSloppy(s)
		if err != nil {
			return netip.Prefix{}, err
		}
		addr, _ := netip.AddrFromSlice(n.IP)
		bits, size := n.Mask.Size()
		if size == 32 {
			addr = addr.Unmap() // an IPv4 address may come as 16 bytes
		}
		prefix = netip.PrefixFrom(addr, bits)
	}
	return prefix.Masked(), nil
}

// Reading is what a Node says about addresses.
type Reading struct {
	Blocks, Addresses []netip.Prefix // its podCIDRs, and its own addresses
	Unreadable        []string       // podCIDRs that cannot be parsed
}

// Read reads a Node. If that panics, which is a defect, it returns an error: one Node must not stop the control plane.
func Read(node *v1.Node) (r Reading, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("it cannot be read, which is a defect of this controller (panic: %v): report it; it keeps what it held", p)
		}
	}()
	r.Blocks, r.Unreadable = PodCIDRsOf(node)
	r.Addresses = AddressesOf(node)
	return r, nil
}

// PodCIDRsOf returns a Node's podCIDRs, and separately those that cannot be parsed.
func PodCIDRsOf(node *v1.Node) (blocks []netip.Prefix, unreadable []string) {
	cidrs := node.Spec.PodCIDRs
	if len(cidrs) == 0 && node.Spec.PodCIDR != "" {
		cidrs = []string{node.Spec.PodCIDR}
	}
	if len(cidrs) > 0 {
		blocks = make([]netip.Prefix, 0, len(cidrs))
	}
	for _, s := range cidrs {
		block, err := ParseCIDR(s)
		if err != nil {
			unreadable = append(unreadable, s)
			continue
		}
		blocks = append(blocks, block)
	}
	return blocks, unreadable
}

// ServiceRangesOf returns the ranges of a ServiceCIDR that can be parsed, and an error that says which cannot.
func ServiceRangesOf(serviceCIDR *networkingapiv1.ServiceCIDR) (ranges []netip.Prefix, err error) {
	for _, s := range serviceCIDR.Spec.CIDRs {
		r, unreadable := ParseCIDR(s)
		if unreadable != nil {
			err = errors.Join(err, fmt.Errorf("%q: %w", s, unreadable))
			continue
		}
		ranges = append(ranges, r)
	}
	return ranges, err
}

// ShowsPodCIDRs reports whether a Node has podCIDRs, readable or not.
func ShowsPodCIDRs(node *v1.Node) bool { return len(node.Spec.PodCIDRs) > 0 || node.Spec.PodCIDR != "" }

// maxAddresses limits how many of a Node's addresses are read. A kubelet reports a few, and a cloud provider may report all interfaces of
// the machine. But an object has room for 30,000, and the addresses are only used for reports.
const maxAddresses = 64

// AddressesOf returns a Node's own addresses, of the first maxAddresses, as full-length prefixes. It skips host names.
func AddressesOf(node *v1.Node) []netip.Prefix {
	if len(node.Status.Addresses) == 0 {
		return nil
	}
	addresses := make([]netip.Prefix, 0, 2) // usually one per family, besides the host name
	for _, a := range node.Status.Addresses[:min(len(node.Status.Addresses), maxAddresses)] {
		if strings.IndexByte(a.Address, '.') < 0 && strings.IndexByte(a.Address, ':') < 0 {
			continue // not an IP address: avoids the cost of ParseAddr's error
		}
		if addr, err := netip.ParseAddr(a.Address); err == nil {
			addr = addr.Unmap().WithZone("")
			addresses = append(addresses, netip.PrefixFrom(addr, addr.BitLen()))
		}
	}
	return addresses
}

// How the controller reads objects, exported for a program that checks a cluster before the controller runs in it. That program must not
// read them differently.

// RangesOf returns the ranges of a ClusterCIDR, a function that reports whether it can allocate a block that overlaps a prefix, and why the
// controller will not allocate from it; empty if nothing is wrong.
func RangesOf(cc *networkingv1.ClusterCIDR) (ranges []netip.Prefix, gives func(netip.Prefix) bool, problem string) {
	p := Compile(cc, nil)
	return p.Extent, func(prefix netip.Prefix) bool {
		return p.Gives(prefix) || len(p.Ranges) < len(p.Extent) && slices.ContainsFunc(p.Extent, prefix.Overlaps)
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

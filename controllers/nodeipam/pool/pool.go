// Package pool compiles one ClusterCIDR: what it may allocate, and which Nodes it selects. It also reads the other objects that the allocation
// depends on, in the same way for all programs. It makes no calls and reads no clock.
package pool

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	networkingv1 "github.com/multicidr/controller-manager/apis/networking/v1"
	"github.com/multicidr/controller-manager/controllers/ipam"
	"github.com/multicidr/controller-manager/controllers/text"
)

// minHostBits is the smallest block that KEP-2593 allows: 16 addresses. MadeFromFlags is the prefix of the names of ClusterCIDRs that may have
// smaller ones, because the flags of the in-tree allocator accept every size.
const (
	minHostBits   = 4
	MadeFromFlags = "created-from-flags-"
)

// Pool is a compiled ClusterCIDR. It is immutable once it is in a state; a changed object gets a new Pool.
type Pool struct {
	ipam.Pool
	// Extent is Ranges and those that cannot be cut into blocks, or need not be. Nodes may have blocks there from a time when they were.
	Extent []netip.Prefix
	// Problem says why State is Invalid, or why the pool is superseded. For people.
	Problem string
	// Superseded is whether the pool is Disabled because the flags no longer ask for it.
	Superseded bool

	generation int64
	terms      []term // of the nodeSelector, those with the most requirements first
}

// Compile compiles a ClusterCIDR. It always returns a pool: an object that breaks a rule, because it was stored under an older CRD, becomes a
// pool that allocates nothing and says why. Ranges that can be parsed are kept, so that Nodes with blocks in them still belong to it.
//
// earlier is the last pool of this name, or nil. If compiling panics, which is a defect, the pool allocates nothing and keeps the ranges of
// earlier: one ClusterCIDR must not stop the control plane.
func Compile(cc *networkingv1.ClusterCIDR, earlier *Pool) (p *Pool) {
	defer func() {
		if r := recover(); r != nil {
			p = &Pool{Pool: ipam.Pool{ID: string(cc.UID), Name: cc.Name, State: ipam.Invalid}}
			p.Problem = text.Cut(fmt.Sprintf("it cannot be read, which is a defect of this controller (panic: %v): report it", r), text.MaxProblem)
			if earlier != nil && earlier.ID == p.ID {
				p.Ranges, p.Extent = earlier.Ranges, earlier.Extent
			}
		}
	}()
	return compile(cc, earlier)
}

func compile(cc *networkingv1.ClusterCIDR, earlier *Pool) *Pool {
	p := &Pool{Pool: ipam.Pool{ID: string(cc.UID), Name: cc.Name, Priority: cc.Spec.Priority}, generation: cc.Generation}
	var problems []string
	check := func(err error) {
		if err != nil {
			problems = append(problems, err.Error())
		}
	}
	none := cc.Spec.Allocation == networkingv1.AllocationNone
	ipv6HostBits := cc.Spec.PerNodeHostBits
	if cc.Spec.IPv6PerNodeHostBits != nil {
		ipv6HostBits = *cc.Spec.IPv6PerNodeHostBits
	}
	check(p.addRange("ipv4", cc.Spec.IPv4, ipam.IPv4, cc.Spec.PerNodeHostBits, none))
	check(p.addRange("ipv6", cc.Spec.IPv6, ipam.IPv6, ipv6HostBits, none))
	switch {
	case cc.Spec.IPv4 == "" && cc.Spec.IPv6 == "" && !none:
		check(errors.New("neither spec.ipv4 nor spec.ipv6 is set"))
	case cc.Spec.IPv6 == "" && cc.Spec.IPv6PerNodeHostBits != nil:
		check(errors.New("spec.ipv6PerNodeHostBits is set without spec.ipv6"))
	}
	check(p.addSelector(cc.Spec.NodeSelector, earlier))
	p.addExclusions(cc.Spec.ExcludedCIDRs, check)
	check(checkAllocation(cc.Spec.Allocation))

	switch {
	case cc.DeletionTimestamp != nil:
		p.State = ipam.Terminating
	case len(problems) > 0:
		p.State, p.Problem = ipam.Invalid, text.Cut(strings.Join(problems, "; "), text.MaxProblem)
	case none:
		p.State = ipam.None
	case cc.Spec.Allocation == networkingv1.AllocationDisabled:
		p.State = ipam.Disabled
	}
	return p
}

func checkAllocation(mode networkingv1.AllocationMode) error {
	switch mode {
	case "", networkingv1.AllocationEnabled, networkingv1.AllocationDisabled, networkingv1.AllocationNone:
		return nil
	}
	return fmt.Errorf("spec.allocation: %q is none of %s, %s and %s", mode, networkingv1.AllocationEnabled, networkingv1.AllocationDisabled, networkingv1.AllocationNone)
}

// addExclusions adds the exclusions that can be parsed, and passes the errors of the others to check.
func (p *Pool) addExclusions(excludedCIDRs []string, check func(error)) {
	for _, s := range excludedCIDRs {
		excluded, err := ReadCIDR(s)
		if err == nil && excluded.Overlaps(Mapped) {
			err = fmt.Errorf("%s contains %s", s, WhatMapped)
		}
		if err != nil {
			check(fmt.Errorf("spec.excludedCIDRs: %w", err))
			continue
		}
		for _, r := range p.Ranges {
			if excluded.Bits() > r.BlockBits && r.Prefix.Overlaps(excluded) {
				excluded = netip.PrefixFrom(excluded.Addr(), r.BlockBits).Masked() // the whole block
			}
		}
		p.Excluded.Insert(excluded)
	}
}

// addRange adds the range of one family, unless cidr is empty. With allocation None the range is not cut, and needs no block size.
func (p *Pool) addRange(name, cidr string, family ipam.Family, hostBits int32, none bool) error {
	if cidr == "" {
		return nil
	}
	prefix, err := netip.ParsePrefix(cidr)
	if err != nil || ipam.FamilyOf(prefix) != family || prefix.Addr().Is4In6() {
		return fmt.Errorf("spec.%s: %q is not an %v range", name, cidr, family)
	}
	p.Extent = append(p.Extent, prefix.Masked())
	if none {
		return nil
	}
	r, err := p.cut(prefix, int(hostBits))
	if err != nil {
		return fmt.Errorf("spec.%s: %w", name, err)
	}
	p.Ranges = append(p.Ranges, r)
	return nil
}

// cut returns the range of a prefix and a block size, if both are allowed.
func (p *Pool) cut(prefix netip.Prefix, hostBits int) (ipam.Range, error) {
	smallest := minHostBits
	if strings.HasPrefix(p.Name, MadeFromFlags) {
		smallest = 0
	}
	switch {
	case hostBits < smallest:
		return ipam.Range{}, fmt.Errorf("blocks of %d host bits are smaller than %d", hostBits, smallest)
	case prefix.Overlaps(Mapped):
		return ipam.Range{}, fmt.Errorf("%v contains %s", prefix, WhatMapped)
	}
	return ipam.NewRange(prefix, hostBits)
}

// Supersede disables a pool that was made from flags which no longer ask for it.
func (p *Pool) Supersede(why string) {
	p.State, p.Superseded, p.Problem = ipam.Disabled, true, why
}

// Equal reports whether p and o are compiled from the same generation of an object, and in the same state.
func (p *Pool) Equal(o *Pool) bool {
	return p.ID == o.ID && p.generation == o.generation && p.State == o.State && p.Problem == o.Problem
}

// Contains reports whether a block lies inside one of p's ranges.
func (p *Pool) Contains(block netip.Prefix) bool {
	return slices.ContainsFunc(p.Extent, func(r netip.Prefix) bool { return r.Bits() <= block.Bits() && r.Contains(block.Addr()) })
}

// Allocates reports whether p could allocate these blocks together if they were free. Their order does not matter: a Node shows its primary
// family first.
func (p *Pool) Allocates(blocks []netip.Prefix) bool {
	if p.State != ipam.Enabled || len(blocks) != len(p.Ranges) {
		return false
	}
	for _, r := range p.Ranges {
		if !slices.ContainsFunc(blocks, func(block netip.Prefix) bool {
			return block.Bits() == r.BlockBits && r.Prefix.Contains(block.Addr()) && !p.Excluded.Overlaps(block)
		}) {
			return false
		}
	}
	return true
}

// Gives reports whether p could allocate an address inside prefix if nobody held it.
func (p *Pool) Gives(prefix netip.Prefix) bool { return p.Pool.Gives(prefix, &ipam.PrefixSet{}) }

// SharesWith reports whether p could allocate an address of o that o does not exclude, even where o cannot cut blocks.
func (p *Pool) SharesWith(o *Pool) bool {
	return slices.ContainsFunc(o.Extent, func(r netip.Prefix) bool { return p.Pool.Gives(r, &o.Excluded) })
}

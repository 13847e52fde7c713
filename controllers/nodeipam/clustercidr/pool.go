package clustercidr

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	networkingapiv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	netutils "k8s.io/utils/net"

	networkingv1 "github.com/multicidr/controller-manager/apis/networking/v1"
	"github.com/multicidr/controller-manager/controllers/ipam"
	"github.com/multicidr/controller-manager/controllers/text"
)

// MinHostBits is the smallest block that KEP-2593 allows: 16 addresses.
const MinHostBits = 4

// Pool is a compiled ClusterCIDR. It is immutable once it is in the state; a changed object gets a new Pool.
type Pool struct {
	ipam.Pool
	terms      []term         // of the nodeSelector, those with the most requirements first; only used if Selective
	large      bool           // the nodeSelector is too large to be indexed
	Exclusions []netip.Prefix // the exclusions in Excluded, as written
	// uncut are ranges whose block size breaks a rule. Nodes may have blocks in them from a time when it did not.
	uncut []netip.Prefix
	// Cursors are where the search continues according to the status. Only used when the pool is new to the state.
	Cursors map[ipam.Family]netip.Addr
	// Problem says why State is Invalid, why what a Pending pool waits for failed, or why the pool is superseded. For people.
	Problem string
	// Curable is whether an Invalid pool can be corrected, as all that is wrong is in fields that may be changed.
	Curable bool
	// Superseded is whether the pool is Disabled because the flags no longer ask for it.
	Superseded bool
	// Cause is the API server's reason for that failure. Errors with the same cause can name a port or a time, and so differ at every
	// attempt.
	Cause metav1.StatusReason
}

// Compile compiles a ClusterCIDR. It always returns a pool: an object that breaks a rule, because it was stored under an older CRD, becomes
// a pool that allocates nothing and says why. Ranges that can be parsed are kept, so that Nodes with blocks in them still belong to it.
func Compile(cc *networkingv1.ClusterCIDR) *Pool { return CompileWith(cc, nil) }

// CompileWith is Compile with a cache of selectors.
func CompileWith(cc *networkingv1.ClusterCIDR, known SelectorCache) *Pool {
	p := &Pool{Pool: ipam.Pool{ID: string(cc.UID), Name: cc.Name, Priority: cc.Spec.Priority}}
	var problems []string
	check := func(err error) {
		if err != nil {
			problems = append(problems, err.Error())
		}
	}

	ipv6HostBits := cc.Spec.PerNodeHostBits
	if cc.Spec.IPv6PerNodeHostBits != nil {
		ipv6HostBits = *cc.Spec.IPv6PerNodeHostBits
	}
	check(p.addRange("ipv4", cc.Spec.IPv4, ipam.IPv4, cc.Spec.PerNodeHostBits))
	check(p.addRange("ipv6", cc.Spec.IPv6, ipam.IPv6, ipv6HostBits))
	switch {
	case cc.Spec.IPv4 == "" && cc.Spec.IPv6 == "":
		check(errors.New("neither spec.ipv4 nor spec.ipv6 is set"))
	case cc.Spec.IPv6 == "" && cc.Spec.IPv6PerNodeHostBits != nil:
		check(errors.New("spec.ipv6PerNodeHostBits is set without spec.ipv6"))
	}
	check(p.addSelector(cc.Spec.NodeSelector, known))
	p.Curable = len(problems) == 0
	p.addExclusions(cc.Spec.ExcludedCIDRs, check)
	check(checkAllocation(cc.Spec.Allocation))
	p.addCursor(ipam.IPv4, cc.Status.IPv4)
	p.addCursor(ipam.IPv6, cc.Status.IPv6)

	if why, ok := cc.Annotations[AnnotationUndecodable]; ok {
		problems, p.Curable = []string{"it cannot be decoded: " + why}, false // other problems follow from that
	}
	switch {
	case cc.DeletionTimestamp != nil:
		p.State = ipam.Terminating
	case len(problems) > 0:
		p.State, p.Problem = ipam.Invalid, text.Cut(strings.Join(problems, "; "), text.MaxProblem)
	case cc.Spec.Allocation == networkingv1.AllocationDisabled:
		p.State = ipam.Disabled
	case !slices.Contains(cc.Finalizers, networkingv1.Finalizer):
		p.State = ipam.Pending
	}
	return p
}

func checkAllocation(mode networkingv1.AllocationMode) error {
	if slices.Contains([]networkingv1.AllocationMode{"", networkingv1.AllocationEnabled, networkingv1.AllocationDisabled}, mode) {
		return nil
	}
	return fmt.Errorf("spec.allocation: %q is neither %s nor %s", mode, networkingv1.AllocationEnabled, networkingv1.AllocationDisabled)
}

// addExclusions adds the exclusions that can be parsed, and passes the errors of the others to check.
func (p *Pool) addExclusions(excludedCIDRs []string, check func(error)) {
	for _, s := range excludedCIDRs {
		excluded, err := readCIDR(s)
		if err == nil && excluded.Overlaps(Mapped) {
			err = fmt.Errorf("%s contains %s", s, WhatMapped)
		}
		if err != nil {
			check(fmt.Errorf("spec.excludedCIDRs: %w", err))
			continue
		}
		p.Exclusions = append(p.Exclusions, excluded)
	}
	slices.SortFunc(p.Exclusions, netip.Prefix.Compare)
	p.Exclusions = slices.Compact(p.Exclusions)
	for _, excluded := range p.Exclusions {
		p.Excluded.Insert(excluded)
	}
}

// addRange adds the range of one family, unless cidr is empty.
func (p *Pool) addRange(name, cidr string, family ipam.Family, hostBits int32) error {
	if cidr == "" {
		return nil
	}
	prefix, err := netip.ParsePrefix(cidr)
	if err != nil || ipam.FamilyOf(prefix) != family || prefix.Addr().Is4In6() {
		return fmt.Errorf("spec.%s: %q is not an %v range", name, cidr, family)
	}
	r, err := ipam.NewRange(prefix, max(int(hostBits), MinHostBits))
	switch {
	case err == nil && prefix.Overlaps(Mapped) && r.BlockBits > 0: // A block that is all of IPv6 does not lie inside Mapped.
		err = fmt.Errorf("spec.%s: %s contains %s", name, cidr, WhatMapped)
	case hostBits < MinHostBits:
		err = fmt.Errorf("spec.%s: blocks of %d host bits are smaller than %d", name, hostBits, MinHostBits)
	case err != nil:
		err = fmt.Errorf("spec.%s: %w", name, err)
	}
	if err != nil {
		p.uncut = append(p.uncut, prefix.Masked())
		return err
	}
	p.Ranges = append(p.Ranges, r)
	return nil
}

func (p *Pool) addSelector(selector *v1.NodeSelector, known SelectorCache) error {
	if selector == nil {
		return nil
	}
	compiled := known.of(p.Name, selector)
	p.Selective, p.Selector, p.terms, p.large = true, compiled.text, compiled.terms, compiled.large
	return compiled.err
}

// addCursor reads a cursor from the status: an address in the range, or the one after its end. Any other value is ignored, and the search
// starts at the beginning of the range.
func (p *Pool) addCursor(family ipam.Family, status *networkingv1.RangeStatus) {
	if status == nil {
		return
	}
	cursor, err := netip.ParseAddr(status.Cursor)
	if err == nil && slices.ContainsFunc(p.Ranges, func(r ipam.Range) bool {
		return r.Family() == family && (r.Prefix.Contains(cursor) || r.Prefix.Contains(cursor.Prev()))
	}) {
		if p.Cursors == nil {
			p.Cursors = map[ipam.Family]netip.Addr{}
		}
		p.Cursors[family] = cursor
	}
}

// AwaitsFinalizer reports whether p only waits for its finalizer, and adding it has not failed so far.
func (p *Pool) AwaitsFinalizer() bool { return p.State == ipam.Pending && p.Problem == "" }

// With returns a copy of the pool with another problem.
func (p *Pool) With(problem string, cause metav1.StatusReason) *Pool {
	given := *p
	given.Problem, given.Cause = problem, cause
	return &given
}

// Supersede disables a pool that was made from flags which no longer ask for it.
func (p *Pool) Supersede(why string) {
	p.State, p.Superseded, p.Problem = ipam.Disabled, true, why
}

// Matches reports whether the selector of p matches a Node.
func (p *Pool) Matches(node *v1.Node) bool {
	return !p.Selective || slices.ContainsFunc(p.terms, func(t term) bool { return t.matches(node) })
}

// Equal reports whether p and o allocate the same blocks to the same Nodes, and report the same problem.
func (p *Pool) Equal(o *Pool) bool {
	return p.ID == o.ID && p.Name == o.Name && p.Priority == o.Priority && p.State == o.State && p.Problem == o.Problem && p.Curable == o.Curable && p.Superseded == o.Superseded &&
		p.Selective == o.Selective && p.Selector == o.Selector &&
		slices.Equal(p.Ranges, o.Ranges) && slices.Equal(p.uncut, o.uncut) && slices.Equal(p.Exclusions, o.Exclusions)
}

// Contains reports whether a block lies inside one of p's ranges.
func (p *Pool) Contains(block netip.Prefix) bool {
	return slices.ContainsFunc(p.Extent(), func(r netip.Prefix) bool { return r.Bits() <= block.Bits() && r.Contains(block.Addr()) })
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

// LargerThanBlocks reports whether a prefix is larger than one of p's blocks of its family.
func (p *Pool) LargerThanBlocks(prefix netip.Prefix) bool {
	return slices.ContainsFunc(p.Ranges, func(r ipam.Range) bool {
		return r.Family() == ipam.FamilyOf(prefix) && prefix.Bits() < r.BlockBits
	})
}

// SharesWith reports whether p can allocate an address that lies in a range of o and that o does not exclude. It includes the uncut ranges
// of o: despite the wrong block size, the addresses may be intended.
func (p *Pool) SharesWith(o *Pool) bool {
	return p.Shares(&o.Pool) || slices.ContainsFunc(o.uncut, p.Gives)
}

// Extent returns all ranges of p, including uncut ones.
func (p *Pool) Extent() []netip.Prefix {
	all := make([]netip.Prefix, 0, 2)
	for _, r := range p.Ranges {
		all = append(all, r.Prefix)
	}
	return append(all, p.uncut...)
}

// canonical formats a selector with sorted values, requirements and terms, so that selectors that differ only in order give the same text.
func canonical(selector *v1.NodeSelector) string {
	requirements := func(prefix string, rs []v1.NodeSelectorRequirement) []string {
		var texts []string
		for _, r := range rs {
			texts = append(texts, fmt.Sprintf("%s%s %s %q", prefix, r.Key, r.Operator, slices.Sorted(slices.Values(r.Values))))
		}
		return texts
	}
	var terms []string
	for _, t := range selector.NodeSelectorTerms {
		texts := append(requirements("", t.MatchExpressions), requirements("field ", t.MatchFields)...)
		slices.Sort(texts)
		terms = append(terms, strings.Join(texts, ", "))
	}
	slices.Sort(terms)
	return strings.Join(terms, " or ")
}

// Mapped are the IPv4-mapped IPv6 addresses (RFC 4291, section 2.5.5.2). Most programs treat them as IPv4, so the API server refuses them
// as podCIDRs. An older one stores them and shows them as IPv4 addresses.
var Mapped = netip.PrefixFrom(netip.AddrFrom16([16]byte{10: 0xff, 11: 0xff}), 96)

const WhatMapped = "IPv4-mapped addresses (::ffff:0:0/96), of which no Node can have a block"

// ParseCIDR parses a CIDR as the rest of the cluster does: an address with leading zeros, or an IPv4-mapped one, which the API server may
// have stored long ago, means the IPv4 address. The exception is the prefix of all IPv4-mapped addresses: it is not meant as all of IPv4,
// and no other Node could get an address.
func ParseCIDR(s string) (netip.Prefix, error) {
	prefix, err := readCIDR(s)
	if addr, bits := prefix.Addr(), prefix.Bits(); err == nil && addr.Is4In6() && bits > Mapped.Bits() {
		prefix = netip.PrefixFrom(addr.Unmap(), bits-Mapped.Bits()).Masked()
	}
	return prefix, err
}

// readCIDR parses a CIDR as written. Leading zeros are ignored.
func readCIDR(s string) (netip.Prefix, error) {
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

// ServiceRangesOf returns the ranges of a ServiceCIDR, and an error for each that cannot be parsed.
func ServiceRangesOf(serviceCIDR *networkingapiv1.ServiceCIDR) (ranges []netip.Prefix, unreadable []error) {
	for _, s := range serviceCIDR.Spec.CIDRs {
		r, err := ParseCIDR(s)
		if err != nil {
			unreadable = append(unreadable, fmt.Errorf("%q: %w", s, err))
			continue
		}
		ranges = append(ranges, r)
	}
	return ranges, unreadable
}

// ShowsPodCIDRs reports whether a Node has podCIDRs, readable or not.
func ShowsPodCIDRs(node *v1.Node) bool { return len(node.Spec.PodCIDRs) > 0 || node.Spec.PodCIDR != "" }

// MaxAddresses limits how many of a Node's addresses are read. A kubelet reports a few, and a cloud provider may report all interfaces of
// the machine. But an object has room for 30,000, and the addresses are only used for reports.
const MaxAddresses = 64

// AddressesOf returns a Node's own addresses, of the first MaxAddresses, as full-length prefixes. It skips host names.
func AddressesOf(node *v1.Node) []netip.Prefix {
	if len(node.Status.Addresses) == 0 {
		return nil
	}
	addresses := make([]netip.Prefix, 0, 2) // usually one per family, besides the host name
	for _, a := range node.Status.Addresses[:min(len(node.Status.Addresses), MaxAddresses)] {
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

// AnnotationUndecodable says why an object could not be decoded. It exists only in the cache.
const AnnotationUndecodable = networkingv1.GroupName + "/undecodable"

// CauseNotKept is the cause of a pool's problem if adding its finalizer succeeds but the finalizer does not stay.
const CauseNotKept metav1.StatusReason = "FinalizerNotKept"

const (
	FinalizerNotKept = "its finalizer is not kept" // short, because an event on a Node may name many ClusterCIDRs
	WhoDoesNotKeepIt = ": something takes it away after it was added, such as a mutating webhook or policy, or a pipeline that replaces the object. " +
		"Make that keep " + networkingv1.Finalizer + " in metadata.finalizers."
)

package clustercidr

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	netutils "k8s.io/utils/net"

	networkingv1 "github.com/multicidr/controller-manager/apis/networking/v1"
	"github.com/multicidr/controller-manager/controllers/ipam"
	"github.com/multicidr/controller-manager/controllers/nodeipam/text"
)

// MinHostBits is the smallest block that KEP-2593 allows: 16 addresses.
const MinHostBits = 4

// Pool is a ClusterCIDR, compiled. It does not change once it is in the state; a changed object makes a new one.
type Pool struct {
	ipam.Pool
	terms      []term         // of the nodeSelector, the ones with the most requirements first; only read if Selective
	large      bool           // there is so much in the nodeSelector that it is not indexed
	Exclusions []netip.Prefix // what is in Excluded, as it is written
	// uncut are ranges whose size of blocks breaks a rule. Nodes may have blocks in them, of a time in which it did not.
	uncut []netip.Prefix
	// cursors is where the status says that the search goes on. Only read when the pool is new to the state.
	Cursors map[ipam.Family]netip.Addr
	// problem says why State is Invalid, what Pending waits for if that failed, or why it is superseded. For people.
	Problem string
	// superseded is whether it is Disabled because flags do not ask for it any more.
	Superseded bool
	// cause is the API server's reason for that failure. Errors with one cause can name a port or a time, and be others at every try.
	Cause metav1.StatusReason
}

// Compile reads a ClusterCIDR. It always returns a pool: an object that breaks a rule, because it was stored under an
// older CRD, is one that gives nothing and says why. What of its ranges can be read is kept, so that the Nodes that
// hold blocks in them are still known to belong to it.
func Compile(cc *networkingv1.ClusterCIDR) *Pool { return CompileWith(cc, nil) }

// CompileWith is compile where the selector may be known.
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
	p.addExclusions(cc.Spec.ExcludedCIDRs, check)
	p.addCursor(ipam.IPv4, cc.Status.IPv4)
	p.addCursor(ipam.IPv6, cc.Status.IPv6)

	if why, ok := cc.Annotations[AnnotationUndecodable]; ok {
		problems = []string{"it cannot be decoded: " + why} // the rest follows from that
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

// addExclusions adds those that can be read, and hands over what is wrong with the others.
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
	case err == nil && prefix.Overlaps(Mapped) && r.BlockBits > 0: // A block that is all of IPv6 is not inside it.
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

// addCursor reads a cursor from the status: an address of the range, or the one behind it. Anything else is none, and the search starts at the
// range's start.
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

// AwaitsFinalizer reports whether p waits for its finalizer only, which has not failed so far.
func (p *Pool) AwaitsFinalizer() bool { return p.State == ipam.Pending && p.Problem == "" }

// With returns the pool as it is with another problem.
func (p *Pool) With(problem string, cause metav1.StatusReason) *Pool {
	given := *p
	given.Problem, given.Cause = problem, cause
	return &given
}

// Supersede makes the pool one that gives nothing, since it was made from flags that do not ask for it now.
func (p *Pool) Supersede(why string) {
	p.State, p.Superseded, p.Problem = ipam.Disabled, true, why
}

// Matches reports whether the selector of p matches a Node.
func (p *Pool) Matches(node *v1.Node) bool {
	return !p.Selective || slices.ContainsFunc(p.terms, func(t term) bool { return t.matches(node) })
}

// Equal reports whether p and o serve the same Nodes the same way.
func (p *Pool) Equal(o *Pool) bool {
	return p.ID == o.ID && p.Name == o.Name && p.Priority == o.Priority && p.State == o.State && p.Problem == o.Problem && p.Superseded == o.Superseded &&
		p.Selective == o.Selective && p.Selector == o.Selector &&
		slices.Equal(p.Ranges, o.Ranges) && slices.Equal(p.uncut, o.uncut) && slices.Equal(p.Exclusions, o.Exclusions)
}

// Contains reports whether a block lies inside one of p's ranges.
func (p *Pool) Contains(block netip.Prefix) bool {
	return slices.ContainsFunc(p.Extent(), func(r netip.Prefix) bool { return r.Bits() <= block.Bits() && r.Contains(block.Addr()) })
}

// SharesWith reports whether an address that p can allocate lies in a range of o, and o does not exclude it. Ranges that are not cut, because the
// size of their blocks breaks a rule, may be what was meant.
func (p *Pool) SharesWith(o *Pool) bool {
	return p.Shares(&o.Pool) || slices.ContainsFunc(o.uncut, p.Gives)
}

// Extent returns all that p's ranges have, cut into blocks or not.
func (p *Pool) Extent() []netip.Prefix {
	all := make([]netip.Prefix, 0, 2)
	for _, r := range p.Ranges {
		all = append(all, r.Prefix)
	}
	return append(all, p.uncut...)
}

// canonical writes a selector so that two that say the same in another order are the same text: values, requirements
// and terms sorted.
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

// Mapped are the IPv4-mapped addresses of IPv6 (RFC 4291, section 2.5.5.2). What is inside is IPv4 for most programs, so the API server refuses
// it as a podCIDR, and an older one stores it and shows it as the IPv4 address.
var Mapped = netip.PrefixFrom(netip.AddrFrom16([16]byte{10: 0xff, 11: 0xff}), 96)

const WhatMapped = "IPv4-mapped addresses (::ffff:0:0/96), of which no Node can have a block"

// ParseCIDR reads a CIDR as the rest of the cluster does: an address with leading zeros or an IPv4-mapped one, which
// the API server may have stored long ago, means its IPv4 address. Save for all IPv4-mapped addresses at once: nobody means all of IPv4
// by that, and no other Node would get an address any more.
func ParseCIDR(s string) (netip.Prefix, error) {
	prefix, err := readCIDR(s)
	if addr, bits := prefix.Addr(), prefix.Bits(); err == nil && addr.Is4In6() && bits > Mapped.Bits() {
		prefix = netip.PrefixFrom(addr.Unmap(), bits-Mapped.Bits()).Masked()
	}
	return prefix, err
}

// readCIDR reads a CIDR as it is written. Leading zeros mean nothing.
func readCIDR(s string) (netip.Prefix, error) {
	prefix, err := netip.ParsePrefix(s) // what nearly all are, and much faster
	if err != nil {
		_, n, err := netutils.ParseCIDRSloppy(s)
		if err != nil {
			return netip.Prefix{}, err
		}
		addr, _ := netip.AddrFromSlice(n.IP)
		bits, size := n.Mask.Size()
		if size == 32 {
			addr = addr.Unmap() // an IPv4 address can come in 16 bytes
		}
		prefix = netip.PrefixFrom(addr, bits)
	}
	return prefix.Masked(), nil
}

// PodCIDRsOf returns what a Node shows as its Pod ranges, and those of them that cannot be read.
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

// ShowsPodCIDRs reports whether a Node has podCIDRs, readable or not.
func ShowsPodCIDRs(node *v1.Node) bool { return len(node.Spec.PodCIDRs) > 0 || node.Spec.PodCIDR != "" }

// MaxAddresses is how many of a Node's addresses are looked at: the first ones. A kubelet reports a few, a cloud provider may report all of the
// machine's interfaces; but an object has room for 30,000, and they are only for a report.
const MaxAddresses = 64

// AddressesOf returns a Node's own addresses, each as a prefix of full length, among the first maxAddresses that it has. A host name is none.
func AddressesOf(node *v1.Node) []netip.Prefix {
	if len(node.Status.Addresses) == 0 {
		return nil
	}
	addresses := make([]netip.Prefix, 0, 2) // usually one of each family, beside the name
	for _, a := range node.Status.Addresses[:min(len(node.Status.Addresses), MaxAddresses)] {
		if strings.IndexByte(a.Address, '.') < 0 && strings.IndexByte(a.Address, ':') < 0 {
			continue // no address of any family, and ParseAddr would make an error of it
		}
		if addr, err := netip.ParseAddr(a.Address); err == nil {
			addr = addr.Unmap().WithZone("")
			addresses = append(addresses, netip.PrefixFrom(addr, addr.BitLen()))
		}
	}
	return addresses
}

// AnnotationUndecodable says in the cache, and only there, why an object could not be decoded.
const AnnotationUndecodable = networkingv1.GroupName + "/undecodable"

// CauseNotKept is the cause of a pool's problem if tries to add its finalizer succeed and it is not there all the same.
const CauseNotKept metav1.StatusReason = "FinalizerNotKept"

const (
	FinalizerNotKept = "its finalizer is not kept" // short, for an event on a Node may name many ClusterCIDRs
	WhoDoesNotKeepIt = ": something takes it away after it was added, such as a mutating webhook or policy, or a pipeline that replaces the object. " +
		"Make that keep " + networkingv1.Finalizer + " in metadata.finalizers."
)

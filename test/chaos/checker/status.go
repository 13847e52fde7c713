package checker

import (
	"fmt"
	"math"
	"math/big"
	"net/netip"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	networkingv1 "github.com/multicidr/controller-manager/apis/networking/v1"
)

// Statuses returns what would be violations if all statuses were up to date: every number, and every condition with its reason.
func (c *Checker) Statuses() []Violation {
	c.mu.Lock()
	defer c.mu.Unlock()
	recorded := len(c.violations)
	held := c.held()
	for _, p := range c.pools {
		c.checkNumbers(p, held)
		c.checkConditions(p, held)
	}
	return c.takeFrom(recorded)
}

func (c *Checker) untrue(p *pool, format string, args ...any) {
	c.violate(now(), Untrue, fmt.Sprintf("ClusterCIDR %s: %s", p.name, fmt.Sprintf(format, args...)), poolName(p.name))
}

// statusOf returns what p says of one of its ranges; nil if it says nothing.
func (p *pool) statusOf(r Range) *networkingv1.RangeStatus {
	if r.Prefix.Addr().Is4() {
		return p.now().status.IPv4
	}
	return p.now().status.IPv6
}

func (c *Checker) checkNumbers(p *pool, held []netip.Prefix) {
	families := 0
	for _, s := range []*networkingv1.RangeStatus{p.now().status.IPv4, p.now().status.IPv6} {
		if s != nil {
			families++
		}
	}
	if families != len(p.ranges) {
		c.untrue(p, "the status is about %d ranges, and there are %d", families, len(p.ranges))
	}
	for _, r := range p.ranges {
		status := p.statusOf(r)
		if status == nil {
			c.untrue(p, "nothing is said of %v", r.Prefix)
			continue
		}
		blocks := map[netip.Prefix]bool{}
		for _, n := range c.nodes {
			for _, b := range n.blocks {
				if r.isBlock(b) {
					blocks[b] = true
				}
			}
		}
		allocated, free := big.NewInt(int64(len(blocks))), r.free(p.without(held))
		unavailable := new(big.Int).Sub(r.total(), new(big.Int).Add(allocated, free))
		want := networkingv1.RangeStatus{
			CIDR: r.Prefix.String(), BlockPrefixLength: int32(r.BlockBits),
			Total: capped(r.total()), Allocated: capped(allocated), Unavailable: capped(unavailable), Free: capped(free),
		}
		want.Cursor = status.Cursor //nolint:staticcheck // One that an earlier version has stored stays.
		if *status != want {
			c.untrue(p, "the status of the range is %+v, want %+v", *status, want)
		}
	}
}

// capped is how a status writes a number.
func capped(n *big.Int) int64 {
	if !n.IsInt64() {
		return math.MaxInt64
	}
	return n.Int64()
}

func (c *Checker) checkConditions(p *pool, held []netip.Prefix) {
	for kind, want := range map[string]string{
		networkingv1.ConditionReady:       p.ready(held),
		networkingv1.ConditionOverlapping: c.overlapping(p),
		networkingv1.ConditionConflicted:  c.conflicted(p),
	} {
		got := meta.FindStatusCondition(p.now().status.Conditions, kind)
		if got == nil {
			c.untrue(p, "there is no condition %s", kind)
			continue
		}
		status := metav1.ConditionTrue
		if kind == networkingv1.ConditionReady && want != networkingv1.ReasonAvailable || want == networkingv1.ReasonNoOverlap {
			status = metav1.ConditionFalse
		}
		if got.Status != status || got.Reason != want {
			c.untrue(p, "condition %s is %s, %s (%.200s), want %s, %s", kind, got.Status, got.Reason, got.Message, status, want)
		}
		if got.ObservedGeneration != p.now().generation {
			c.untrue(p, "condition %s is of generation %d, and the object of %d", kind, got.ObservedGeneration, p.now().generation)
		}
	}
}

// ready returns the reason of the condition Ready.
func (p *pool) ready(held []netip.Prefix) string {
	v := p.now()
	switch {
	case v.deleting:
		return networkingv1.ReasonTerminating
	case p.invalid != nil:
		return networkingv1.ReasonInvalid
	case v.superseded:
		return networkingv1.ReasonSuperseded
	case !v.enabled:
		return networkingv1.ReasonDisabled
	case freeTuples(p.ranges, p.without(held)).Sign() == 0:
		return networkingv1.ReasonExhausted
	}
	return networkingv1.ReasonAvailable
}

// maxAddresses is how many of a Node's own addresses count, as the operator's guide says.
const maxAddresses = 64

// special are addresses that hosts do not take for a Pod's, as the operator's guide has them: loopback, link-local and multicast.
var special = []netip.Prefix{
	netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("169.254.0.0/16"), netip.MustParsePrefix("224.0.0.0/4"),
	netip.MustParsePrefix("::1/128"), netip.MustParsePrefix("fe80::/10"), netip.MustParsePrefix("ff00::/8"),
}

// overlapping returns the reason of the condition Overlapping. What is excluded overlaps nothing.
func (c *Checker) overlapping(p *pool) string {
	if slices.ContainsFunc(c.serviceRanges(), func(s netip.Prefix) bool { return p.gives(s, nil) }) {
		return networkingv1.ReasonServiceRange
	}
	for _, n := range c.nodes {
		for _, a := range n.Status.Addresses[:min(len(n.Status.Addresses), maxAddresses)] {
			if address, err := netip.ParseAddr(a.Address); err == nil {
				address = address.Unmap().WithZone("")
				if p.gives(netip.PrefixFrom(address, address.BitLen()), nil) {
					return networkingv1.ReasonNodeAddress
				}
			}
		}
	}
	for _, s := range special {
		if p.gives(s, nil) {
			return networkingv1.ReasonSpecialAddresses
		}
	}
	for _, o := range c.pools {
		for _, r := range o.ranges {
			if o != p && p.gives(r.Prefix, o.withheld()) {
				return networkingv1.ReasonClusterCIDR
			}
		}
	}
	return networkingv1.ReasonNoOverlap
}

// gives reports whether there is an address in prefix, and outside of except, that is in a block of p of which nothing is excluded.
func (p *pool) gives(prefix netip.Prefix, except []netip.Prefix) bool {
	return slices.ContainsFunc(p.ranges, func(r Range) bool {
		if !r.Prefix.Overlaps(prefix) {
			return false
		}
		both := r.Prefix
		if prefix.Bits() > both.Bits() {
			both = prefix
		}
		addresses := Range{Prefix: both.Masked(), BlockBits: both.Addr().BitLen()}
		return addresses.free(slices.Concat(p.withheld(), except)).Sign() > 0
	})
}

// withheld returns the blocks of p of which addresses are excluded.
func (p *pool) withheld() []netip.Prefix {
	var blocks []netip.Prefix
	for _, r := range p.ranges {
		for _, e := range p.now().exclusions {
			if e.Overlaps(r.Prefix) {
				blocks = append(blocks, netip.PrefixFrom(e.Addr(), min(e.Bits(), r.BlockBits)).Masked())
			}
		}
	}
	return blocks
}

// conflicted returns the reason of the condition Conflicted: two holders, at least one of them a Node, have the same addresses in p.
func (c *Checker) conflicted(p *pool) string {
	services := c.serviceRanges()
	for _, n := range c.nodes {
		inside := slices.DeleteFunc(slices.Clone(n.blocks), func(b netip.Prefix) bool {
			return !slices.ContainsFunc(p.ranges, func(r Range) bool { return r.Prefix.Overlaps(b) })
		})
		others := slices.Clone(services)
		for _, o := range c.nodes {
			if o != n {
				others = append(others, o.blocks...)
			}
		}
		for _, r := range p.ranges {
			in := slices.DeleteFunc(slices.Clone(others), func(b netip.Prefix) bool { return !r.Prefix.Overlaps(b) })
			if _, _, ok := overlapping(inside, in); ok {
				return networkingv1.ReasonOverlap
			}
		}
	}
	return networkingv1.ReasonNoOverlap
}

// Pending returns the Nodes that have no podCIDRs and are not being deleted.
func (c *Checker) Pending() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	var names []string
	for name, n := range c.nodes {
		if len(n.blocks) == 0 && n.DeletionTimestamp == nil {
			names = append(names, name)
		}
	}
	slices.SortFunc(names, strings.Compare)
	return names
}

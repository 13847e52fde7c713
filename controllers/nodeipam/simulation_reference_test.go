package nodeipam

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	networkingapiv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	networkingv1 "github.com/multicidr/controller-manager/apis/networking/v1"
	"github.com/multicidr/controller-manager/controllers/ipam"
	"github.com/multicidr/controller-manager/controllers/nodeipam/allocator"
)

// A second, slow and obvious implementation of semantics: who holds what, which ClusterCIDR serves a Node with which
// blocks, which Nodes belong to a ClusterCIDR, what its status says. It walks over every block of every range and
// remembers nothing but what it is told, so it shares no idea with the state and the ledger.

// view is what somebody knows of the cluster: one process what it has looked at, the invariants at the end all there is.
type view struct {
	nodes        map[string]*v1.Node
	clusterCIDRs map[string]*networkingv1.ClusterCIDR
	serviceCIDRs map[string]*networkingapiv1.ServiceCIDR
	service      []netip.Prefix                // --service-cluster-ip-range
	flags        *networkingv1.ClusterCIDRSpec // --cluster-cidr
	// reserved is what was chosen for Nodes that do not show it yet.
	reserved map[types.UID]allocator.Reservation
	// reservedFrom is the UID of the ClusterCIDR that it was chosen from.
	reservedFrom map[types.UID]types.UID
	// writes are those of a reservation, by the Node's UID, that may have been carried out or may still be.
	writes map[types.UID][]*nodeWrite
	// cursors is where the search in a range goes on, by the ClusterCIDR's UID.
	cursors map[types.UID]map[ipam.Family]netip.Addr
	// kept is what is kept for Nodes that a list lacks.
	kept func() []ipam.Holding
}

func newView(serviceRanges []netip.Prefix, flags *networkingv1.ClusterCIDRSpec) *view {
	return &view{
		nodes:        map[string]*v1.Node{},
		clusterCIDRs: map[string]*networkingv1.ClusterCIDR{},
		serviceCIDRs: map[string]*networkingapiv1.ServiceCIDR{},
		service:      serviceRanges,
		flags:        flags,
		reserved:     map[types.UID]allocator.Reservation{},
		reservedFrom: map[types.UID]types.UID{},
		writes:       map[types.UID][]*nodeWrite{},
		cursors:      map[types.UID]map[ipam.Family]netip.Addr{},
	}
}

// see enters an object as it is now; nil: it is gone.
func (v *view) see(k kind, name string, o metav1.Object) {
	switch k {
	case kindNode:
		node, _ := o.(*v1.Node)
		if old := v.nodes[name]; old != nil && (node == nil || node.UID != old.UID) {
			delete(v.reserved, old.UID)
			delete(v.writes, old.UID)
		}
		if node == nil {
			delete(v.nodes, name)
			return
		}
		if len(node.Spec.PodCIDRs) > 0 {
			delete(v.reserved, node.UID)
			delete(v.writes, node.UID)
		}
		v.nodes[name] = node
	case kindClusterCIDR:
		cc, _ := o.(*networkingv1.ClusterCIDR)
		if old := v.clusterCIDRs[name]; old != nil && (cc == nil || cc.UID != old.UID) {
			delete(v.cursors, old.UID)
		}
		if cc == nil {
			delete(v.clusterCIDRs, name)
			return
		}
		if v.cursors[cc.UID] == nil {
			v.cursors[cc.UID] = map[ipam.Family]netip.Addr{}
			for _, s := range []*networkingv1.RangeStatus{cc.Status.IPv4, cc.Status.IPv6} {
				if s != nil && s.Cursor != "" {
					cursor := netip.MustParseAddr(s.Cursor)
					v.cursors[cc.UID][ipam.FamilyOf(netip.PrefixFrom(cursor, 0))] = cursor
				}
			}
		}
		v.clusterCIDRs[name] = cc
	case kindServiceCIDR:
		if sc, ok := o.(*networkingapiv1.ServiceCIDR); ok {
			v.serviceCIDRs[name] = sc
		} else {
			delete(v.serviceCIDRs, name)
		}
	}
}

// see lets a process's view learn what its cache has of one object. A Node that the cache has and of which no event was handled is not known
// yet, nor is its end.
func (p *process) see(k kind, name string) {
	c := p.caches[k]
	if c == nil || k == kindNode && (c.objects[name] == nil || c.ahead(c.objects[name])) {
		return
	}
	if k == kindNode && p.controller != nil {
		if uid, ok := p.controller.state.UID(name); ok && uid != c.objects[name].GetUID() {
			return // It is left to its event, which tells whether the one before may be in doubt.
		}
	}
	p.seen.see(k, name, c.objects[name])
}

// seeEvent lets it learn what an event says.
func (p *process) seeEvent(k kind, e simEvent) {
	c := p.caches[k]
	if e.now != nil {
		c.heard = max(c.heard, versionOf(e.now))
		if known := p.seen.nodes[e.name]; k == kindNode && known != nil && e.before != nil && e.before.GetUID() != e.now.GetUID() && known.UID == e.before.GetUID() {
			p.seen.see(k, e.name, nil)
		}
	} else if k == kindNode {
		if !e.listed {
			c.heard = max(c.heard, versionOf(e.before))
		}
		if known := p.seen.nodes[e.name]; known != nil && known.UID == e.before.GetUID() {
			p.seen.see(k, e.name, nil)
		}
	}
	p.see(k, e.name)
}

// blocksOf returns what a Node shows or, if it shows nothing, what is reserved for it.
func (v *view) blocksOf(node *v1.Node) []netip.Prefix {
	if len(node.Spec.PodCIDRs) == 0 {
		return v.reserved[node.UID].Blocks
	}
	return prefixes(node.Spec.PodCIDRs)
}

func prefixes(cidrs []string) (ps []netip.Prefix) {
	for _, s := range cidrs {
		ps = append(ps, netip.MustParsePrefix(s).Masked())
	}
	return ps
}

// holdings are all that anybody holds, in a fixed order.
func (v *view) holdings() []ipam.Holding {
	var all []ipam.Holding
	hold := func(kind ipam.Kind, id string, ps []netip.Prefix) {
		for _, p := range ps {
			all = append(all, ipam.Holding{Owner: ipam.Owner{Kind: kind, ID: id}, Prefix: p})
		}
	}
	for _, node := range v.nodes {
		hold(ipam.Node, string(node.UID), v.blocksOf(node))
	}
	for name, sc := range v.serviceCIDRs {
		hold(ipam.Service, "ServiceCIDR "+name, prefixes(sc.Spec.CIDRs))
	}
	hold(ipam.Service, "--service-cluster-ip-range", v.service)
	if v.kept != nil {
		all = append(all, v.kept()...)
	}
	slices.SortFunc(all, compareHoldings)
	return slices.Compact(all)
}

// unavailableTo are the holdings and what a ClusterCIDR excludes, which limits no other one.
func (v *view) unavailableTo(cc *networkingv1.ClusterCIDR) []ipam.Holding {
	return append(v.holdings(), excludedBy(cc)...)
}

// excludedBy is what a ClusterCIDR excludes, as if somebody held it.
func excludedBy(cc *networkingv1.ClusterCIDR) (all []ipam.Holding) {
	for _, p := range prefixes(cc.Spec.ExcludedCIDRs) {
		all = append(all, ipam.Holding{Owner: ipam.Owner{Kind: ipam.Kept, ID: "exclusion of " + cc.Name}, Prefix: p})
	}
	return all
}

// gives reports whether a block of a ClusterCIDR has an address of a prefix, and none that it excludes.
func gives(cc *networkingv1.ClusterCIDR, prefix netip.Prefix) bool {
	return slices.ContainsFunc(slowRangesOf(cc), func(r slowRange) bool {
		return slices.ContainsFunc(r.free(excludedBy(cc)), prefix.Overlaps)
	})
}

func compareHoldings(a, b ipam.Holding) int {
	return cmp.Or(cmp.Compare(a.Owner.Kind, b.Owner.Kind), strings.Compare(a.Owner.ID, b.Owner.ID), a.Prefix.Addr().Compare(b.Prefix.Addr()), cmp.Compare(a.Prefix.Bits(), b.Prefix.Bits()))
}

// slowRange is one range of a ClusterCIDR and all of its blocks.
type slowRange struct {
	prefix netip.Prefix
	blocks []netip.Prefix
}

func slowRangesOf(cc *networkingv1.ClusterCIDR) (ranges []slowRange) {
	bits6 := cc.Spec.PerNodeHostBits
	if cc.Spec.IPv6PerNodeHostBits != nil {
		bits6 = *cc.Spec.IPv6PerNodeHostBits
	}
	for _, r := range []struct {
		cidr     string
		hostBits int32
	}{{cc.Spec.IPv4, cc.Spec.PerNodeHostBits}, {cc.Spec.IPv6, bits6}} {
		if r.cidr == "" {
			continue
		}
		p := netip.MustParsePrefix(r.cidr).Masked()
		blockBits := p.Addr().BitLen() - int(r.hostBits)
		blocks := []netip.Prefix{}
		for a := p.Addr(); p.Contains(a); {
			blocks = append(blocks, netip.PrefixFrom(a, blockBits))
			for range 1 << r.hostBits {
				a = a.Next()
			}
		}
		ranges = append(ranges, slowRange{p, blocks})
	}
	return ranges
}

// free returns the blocks that overlap nothing held.
func (r slowRange) free(held []ipam.Holding) (free []netip.Prefix) {
	for _, b := range r.blocks {
		if !slices.ContainsFunc(held, func(h ipam.Holding) bool { return h.Prefix.Overlaps(b) }) {
			free = append(free, b)
		}
	}
	return free
}

// selects returns whether a ClusterCIDR's selector matches a Node, and the requirements of its largest term that does.
func selects(cc *networkingv1.ClusterCIDR, node *v1.Node) (specificity int, ok bool) {
	if cc.Spec.NodeSelector == nil {
		return 0, true
	}
	for _, term := range cc.Spec.NodeSelector.NodeSelectorTerms {
		matches := len(term.MatchExpressions)+len(term.MatchFields) > 0
		for _, r := range term.MatchExpressions { // the simulation uses In only
			matches = matches && slices.Contains(r.Values, node.Labels[r.Key])
		}
		for _, r := range term.MatchFields {
			matches = matches && slices.Contains(r.Values, node.Name)
		}
		if matches {
			ok, specificity = true, max(specificity, len(term.MatchExpressions)+len(term.MatchFields))
		}
	}
	return specificity, ok
}

// selectorText orders selectors that differ in nothing else.
func selectorText(cc *networkingv1.ClusterCIDR) string {
	if cc.Spec.NodeSelector == nil {
		return ""
	}
	var terms []string
	for _, term := range cc.Spec.NodeSelector.NodeSelectorTerms {
		var rs []string
		for _, r := range term.MatchExpressions {
			rs = append(rs, fmt.Sprintf("%s %s %q", r.Key, r.Operator, slices.Sorted(slices.Values(r.Values))))
		}
		for _, r := range term.MatchFields {
			rs = append(rs, fmt.Sprintf("field %s %s %q", r.Key, r.Operator, r.Values))
		}
		slices.Sort(rs)
		terms = append(terms, strings.Join(rs, ", "))
	}
	slices.Sort(terms)
	return strings.Join(terms, " or ")
}

// candidatesFor returns the ClusterCIDRs that match a Node in the order of semantics.
func (v *view) candidatesFor(node *v1.Node) (matching []*networkingv1.ClusterCIDR) {
	specificity := map[types.UID]int{}
	for _, cc := range v.clusterCIDRs {
		if n, ok := selects(cc, node); ok {
			matching, specificity[cc.UID] = append(matching, cc), n
		}
	}
	capacity := func(cc *networkingv1.ClusterCIDR) int {
		smallest := 1 << 30
		for _, r := range slowRangesOf(cc) {
			smallest = min(smallest, len(r.blocks))
		}
		return smallest
	}
	hostBits := func(cc *networkingv1.ClusterCIDR) int32 {
		if cc.Spec.IPv4 == "" && cc.Spec.IPv6PerNodeHostBits != nil {
			return *cc.Spec.IPv6PerNodeHostBits
		}
		return cc.Spec.PerNodeHostBits
	}
	slices.SortFunc(matching, func(a, b *networkingv1.ClusterCIDR) int {
		switch {
		case a.Spec.Priority != b.Spec.Priority:
			return cmp.Compare(b.Spec.Priority, a.Spec.Priority)
		case (a.Spec.NodeSelector == nil) != (b.Spec.NodeSelector == nil):
			if a.Spec.NodeSelector != nil {
				return -1
			}
			return 1
		case specificity[a.UID] != specificity[b.UID]:
			return cmp.Compare(specificity[b.UID], specificity[a.UID])
		case capacity(a) != capacity(b):
			return cmp.Compare(capacity(a), capacity(b))
		case hostBits(a) != hostBits(b):
			return cmp.Compare(hostBits(a), hostBits(b))
		case selectorText(a) != selectorText(b):
			return cmp.Compare(selectorText(a), selectorText(b))
		}
		if c := slowRangesOf(a)[0].prefix.Addr().Compare(slowRangesOf(b)[0].prefix.Addr()); c != 0 {
			return c
		}
		return cmp.Compare(a.Name, b.Name)
	})
	return matching
}

// ready returns whether a ClusterCIDR gives blocks at all, and if not the reason in its Ready condition.
func (v *view) ready(cc *networkingv1.ClusterCIDR) (reason string, ok bool) {
	switch {
	case cc.DeletionTimestamp != nil:
		return networkingv1.ReasonTerminating, false
	case v.superseded(cc), isFromFlags(cc) && cc.Annotations[networkingv1.AnnotationSuperseded] != "" && cc.Spec.Allocation == networkingv1.AllocationDisabled:
		return networkingv1.ReasonSuperseded, false
	case cc.Spec.Allocation == networkingv1.AllocationDisabled:
		return networkingv1.ReasonDisabled, false
	case !slices.Contains(cc.Finalizers, networkingv1.Finalizer):
		return networkingv1.ReasonPending, false
	}
	return "", true
}

// isFromFlags: it takes the name and the label.
func isFromFlags(cc *networkingv1.ClusterCIDR) bool {
	return strings.Contains(cc.Name, "created-from-flags") && cc.Labels[networkingv1.LabelCreatedFromFlags] != ""
}

// superseded reports whether a ClusterCIDR was made from flags that say something else now.
func (v *view) superseded(cc *networkingv1.ClusterCIDR) bool {
	return isFromFlags(cc) && (v.flags == nil || cc.Spec.IPv4 != v.flags.IPv4)
}

// nodeWrite is one PATCH of podCIDRs.
type nodeWrite struct {
	uid  types.UID
	over time.Duration // it cannot be carried out from then on
}

// keeps reports whether a Node has to keep a reservation that was never carried out: its ClusterCIDR would serve the Node now, and its
// blocks are free of others.
func (v *view) keeps(node *v1.Node, r allocator.Reservation) bool {
	delete(v.reserved, node.UID)
	defer func() { v.reserved[node.UID] = r }()
	cc := v.clusterCIDRs[r.ClusterCIDR]
	if cc == nil {
		return false
	}
	if slices.ContainsFunc(v.unavailableTo(cc), func(h ipam.Holding) bool { return overlap(r.Blocks, []netip.Prefix{h.Prefix}) }) {
		return false
	}
	for i, s := range slowRangesOf(cc) {
		if i >= len(r.Blocks) || !slices.Contains(s.blocks, r.Blocks[i]) {
			return false
		}
	}
	first, ok := v.choose(node)
	return ok && first.ClusterCIDR == r.ClusterCIDR
}

// choose returns what a Node without blocks has to get; ok is false if there is nothing for it.
func (v *view) choose(node *v1.Node) (_ allocator.Reservation, ok bool) {
next:
	for _, cc := range v.candidatesFor(node) {
		if _, ok := v.ready(cc); !ok {
			continue
		}
		var blocks []netip.Prefix
		unavailable := v.unavailableTo(cc)
		for _, r := range slowRangesOf(cc) {
			free := r.free(unavailable)
			if len(free) == 0 {
				continue next
			}
			// The first one that is, or contains, the cursor or comes after it; else around to the first one.
			block := free[0]
			cursor := v.cursors[cc.UID][ipam.FamilyOf(r.prefix)]
			if r.prefix.Contains(cursor) {
				after := slices.IndexFunc(free, func(b netip.Prefix) bool { return b.Contains(cursor) || cursor.Less(b.Addr()) })
				block = free[max(after, 0)]
			}
			blocks = append(blocks, block)
		}
		return allocator.Reservation{ClusterCIDR: cc.Name, Blocks: blocks}, true
	}
	return allocator.Reservation{}, false
}

// reserve notes a choice, and moves the cursors behind it.
func (v *view) reserve(node *v1.Node, r allocator.Reservation) {
	v.reserved[node.UID] = r
	v.reservedFrom[node.UID] = v.clusterCIDRs[r.ClusterCIDR].UID
	for _, b := range r.Blocks {
		v.cursors[v.clusterCIDRs[r.ClusterCIDR].UID][ipam.FamilyOf(b)] = behind(b)
	}
}

// behind returns the address behind a block.
func behind(block netip.Prefix) netip.Addr {
	a := block.Addr()
	for block.Contains(a) {
		a = a.Next()
	}
	return a
}

func inside(cc *networkingv1.ClusterCIDR, block netip.Prefix) bool {
	return slices.ContainsFunc(slowRangesOf(cc), func(r slowRange) bool {
		return r.prefix.Overlaps(block) && r.prefix.Bits() <= block.Bits()
	})
}

// belongs reports whether a Node belongs to a ClusterCIDR: to the one that it names if all of its blocks lie inside that, else
// to each that contains one of them.
func (v *view) belongs(node *v1.Node, cc *networkingv1.ClusterCIDR) bool {
	blocks := v.blocksOf(node)
	if len(blocks) == 0 {
		return false
	}
	name := node.Annotations[networkingv1.AnnotationClusterCIDR]
	if len(node.Spec.PodCIDRs) == 0 {
		if len(v.writes[node.UID]) == 0 {
			return false // no write can put these blocks into the Node any more
		}
		name = v.reserved[node.UID].ClusterCIDR
	}
	outside := func(cc *networkingv1.ClusterCIDR) bool {
		return slices.ContainsFunc(blocks, func(b netip.Prefix) bool { return !inside(cc, b) })
	}
	if named := v.clusterCIDRs[name]; named != nil && !outside(named) {
		return named.UID == cc.UID
	}
	return slices.ContainsFunc(blocks, func(b netip.Prefix) bool { return inside(cc, b) })
}

// membersOf returns the names of the Nodes that belong to a ClusterCIDR.
func (v *view) membersOf(cc *networkingv1.ClusterCIDR) (names []string) {
	for _, name := range slices.Sorted(maps.Keys(v.nodes)) {
		if v.belongs(v.nodes[name], cc) {
			names = append(names, name)
		}
	}
	return names
}

// statusText writes what a status has to say, save for messages, times and cursors.
func (v *view) statusText(cc *networkingv1.ClusterCIDR) string {
	held := v.holdings()
	var text strings.Builder
	reason, ok := v.ready(cc)
	full := false
	overlaps, conflicted := networkingv1.ReasonNoOverlap, networkingv1.ReasonNoOverlap
	for _, r := range slowRangesOf(cc) {
		allocated := map[netip.Prefix]bool{}
		for i, h := range held {
			if !h.Prefix.Overlaps(r.prefix) {
				continue
			}
			if h.Owner.Kind == ipam.Node && slices.Contains(r.blocks, h.Prefix) {
				allocated[h.Prefix] = true
			}
			if h.Owner.Kind == ipam.Service && gives(cc, h.Prefix) {
				overlaps = networkingv1.ReasonServiceRange
			}
			for _, o := range held[:i] {
				node := o.Owner.Kind == ipam.Node || h.Owner.Kind == ipam.Node
				if o.Owner != h.Owner && node && o.Owner.Kind != ipam.Kept && h.Owner.Kind != ipam.Kept && o.Prefix.Overlaps(h.Prefix) && o.Prefix.Overlaps(r.prefix) {
					conflicted = networkingv1.ReasonOverlap
				}
			}
		}
		free := len(r.free(v.unavailableTo(cc)))
		full = full || free == 0
		fmt.Fprintf(&text, "%v /%d total=%d allocated=%d unavailable=%d free=%d\n", r.prefix, r.blocks[0].Bits(), len(r.blocks), len(allocated), len(r.blocks)-len(allocated)-free, free)
	}
	if overlaps == networkingv1.ReasonNoOverlap {
		overlaps = v.overlapsOf(cc)
	}
	switch {
	case ok && full:
		reason = networkingv1.ReasonExhausted
	case ok:
		reason = networkingv1.ReasonAvailable
	}
	fmt.Fprintf(&text, "Ready=%s Overlapping=%s Conflicted=%s", reason, overlaps, conflicted)
	return text.String()
}

// overlapsOf returns the reason why a range that shares no address with a service range is Overlapping.
func (v *view) overlapsOf(cc *networkingv1.ClusterCIDR) string {
	for _, node := range v.nodes {
		for _, a := range node.Status.Addresses {
			if addr := netip.MustParseAddr(a.Address); gives(cc, netip.PrefixFrom(addr, addr.BitLen())) {
				return networkingv1.ReasonNodeAddress
			}
		}
	}
	for _, other := range v.clusterCIDRs {
		if other == cc {
			continue
		}
		for _, r := range slowRangesOf(other) {
			for _, b := range r.free(excludedBy(other)) {
				if gives(cc, b) {
					return networkingv1.ReasonClusterCIDR
				}
			}
		}
	}
	return networkingv1.ReasonNoOverlap
}

// textOfStatus is what a status says, written as statusText does.
func textOfStatus(status networkingv1.ClusterCIDRStatus) string {
	var text strings.Builder
	for _, r := range []*networkingv1.RangeStatus{status.IPv4, status.IPv6} {
		if r != nil {
			fmt.Fprintf(&text, "%s /%d total=%d allocated=%d unavailable=%d free=%d\n", r.CIDR, r.BlockPrefixLength, r.Total, r.Allocated, r.Unavailable, r.Free)
		}
	}
	reasons := map[string]string{}
	for _, c := range status.Conditions {
		reasons[c.Type] = c.Reason
	}
	fmt.Fprintf(&text, "Ready=%s Overlapping=%s Conflicted=%s", reasons[networkingv1.ConditionReady], reasons[networkingv1.ConditionOverlapping], reasons[networkingv1.ConditionConflicted])
	return text.String()
}

package debugpage

import (
	"net/netip"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/multicidr/controller-manager/controllers/ipam"
	"github.com/multicidr/controller-manager/controllers/nodeipam/allocator"
	"github.com/multicidr/controller-manager/controllers/nodeipam/clustercidr"
	"github.com/multicidr/controller-manager/controllers/text"
)

// The JSON format. docs/operators/debugging.md documents the fields. Operators' scripts read them, so their names and meanings must not
// change.

type ledger struct {
	Controller string    `json:"controller"`
	Time       time.Time `json:"time"`
	// Trouble is what the health check reports; empty if all is well.
	Trouble       string            `json:"trouble,omitempty"`
	ClusterCIDRs  []clusterCIDRView `json:"clusterCIDRs"`
	Nodes         []nodeView        `json:"nodes"`
	ServiceRanges []serviceRange    `json:"serviceRanges"`
	Conflicts     []conflictView    `json:"conflicts"`
	// ConflictsTotal is the number of all conflicts. Conflicts has at most maxConflicts of them.
	ConflictsTotal int `json:"conflictsTotal"`
}

type clusterCIDRView struct {
	Name string `json:"name"`
	UID  string `json:"uid"`
	// State is the reason of the condition Ready; Why is its message.
	State        string         `json:"state"`
	Why          string         `json:"why"`
	Priority     int32          `json:"priority"`
	NodeSelector string         `json:"nodeSelector,omitempty"` // as text
	Ranges       []rangeUsage   `json:"ranges"`
	Excluded     []netip.Prefix `json:"excluded"`
	// Members is the number of Nodes that belong to it.
	Members int `json:"members"`
	// Overlapping is the message of the condition Overlapping while that is True.
	Overlapping string `json:"overlapping,omitempty"`
}

// rangeUsage has the numbers of the status, and Reserved.
type rangeUsage struct {
	Family            string `json:"family"`
	CIDR              string `json:"cidr"`
	BlockPrefixLength int    `json:"blockPrefixLength"`
	Total             int64  `json:"total"`
	Allocated         int64  `json:"allocated"`
	Reserved          int64  `json:"reserved"` // part of Allocated: the Nodes do not show these blocks yet
	Unavailable       int64  `json:"unavailable"`
	Free              int64  `json:"free"`
	Cursor            string `json:"cursor,omitempty"`
}

// States of a Node.
const (
	nodeAssigned = "Assigned" // it shows podCIDRs
	nodeReserved = "Reserved" // blocks are reserved, but the Node does not show them yet
	nodeWaiting  = "Waiting"  // no ClusterCIDR can serve it
	nodeWithout  = "Without"  // it has no blocks and is not pending: being deleted, or not processed yet
)

type nodeView struct {
	Name   string         `json:"name"`
	UID    types.UID      `json:"uid"`
	State  string         `json:"state"`
	Blocks []netip.Prefix `json:"blocks"`
	// ClusterCIDRs are the names of those that the Node belongs to.
	ClusterCIDRs []string       `json:"clusterCIDRs"`
	Addresses    []netip.Prefix `json:"addresses"`
	// Findings are what is wrong with its podCIDRs, message by event reason.
	Findings map[string]string `json:"findings,omitempty"`
	// Why and RefusedBy say why the Node is pending.
	Why       string    `json:"why,omitempty"`
	RefusedBy []refusal `json:"refusedBy,omitempty"`
}

type refusal struct {
	ClusterCIDR string `json:"clusterCIDR"`
	Reason      string `json:"reason"`
}

type serviceRange struct {
	Source string         `json:"source"`
	CIDRs  []netip.Prefix `json:"cidrs"`
}

// conflictView is two owners that hold the same addresses. The second one's prefix lies in the first one's.
type conflictView struct {
	Holders [2]holderView `json:"holders"`
}

type holderView struct {
	Kind string       `json:"kind"` // Node or Service
	Name string       `json:"name"` // the Node's name, or the source of the service range
	CIDR netip.Prefix `json:"cidr"`
}

// ledgerOf returns what the state says about the Nodes of the cache and about any others that it knows: the cache may be ahead or behind.
func ledgerOf(seen Look) ledger {
	b, nodes := seen.State, seen.Nodes
	l := ledger{Controller: seen.Controller, Time: seen.Time, Trouble: seen.Problem, ClusterCIDRs: []clusterCIDRView{}, ServiceRanges: []serviceRange{}, Conflicts: []conflictView{}}
	memberOf := map[types.UID][]string{}
	for _, p := range b.Pools() {
		cc := clusterCIDROf(b, p)
		for uid := range b.Members(p) {
			memberOf[uid] = append(memberOf[uid], p.Name)
			cc.Members++
		}
		l.ClusterCIDRs = append(l.ClusterCIDRs, cc)
	}

	conflicts, total, with := conflictsIn(b)
	l.ConflictsTotal = total
	for _, c := range conflicts {
		l.Conflicts = append(l.Conflicts, conflictView{Holders: [2]holderView{holderOf(b, c.Outer), holderOf(b, c.Inner)}})
	}
	l.ServiceRanges = serviceRangesOf(b)

	byName := map[string]*v1.Node{}
	for name, uid := range b.NodeUIDs() {
		byName[name] = &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, UID: uid}}
	}
	for _, node := range nodes {
		byName[node.Name] = node
	}
	l.Nodes = make([]nodeView, 0, len(byName))
	for _, node := range byName {
		n := nodeOf(b, node)
		n.ClusterCIDRs = append(n.ClusterCIDRs, memberOf[n.UID]...)
		if others, ok := with[n.UID]; ok {
			n.find(allocator.ReasonConflict, "shares addresses with "+others.String())
		}
		l.Nodes = append(l.Nodes, n)
	}
	slices.SortFunc(l.Nodes, func(x, y nodeView) int { return strings.Compare(x.Name, y.Name) })
	return l
}

func clusterCIDROf(b *allocator.State, p *clustercidr.Pool) clusterCIDRView {
	ready := b.Ready(p)
	cc := clusterCIDRView{
		Name: p.Name, UID: p.ID, State: ready.Reason, Why: ready.Message, Priority: p.Priority, NodeSelector: p.Selector,
		Ranges: []rangeUsage{}, Excluded: append([]netip.Prefix{}, p.Exclusions...),
	}
	if overlapping := b.Overlapping(p); overlapping.Status == metav1.ConditionTrue {
		cc.Overlapping = overlapping.Message
	}
	for _, r := range p.Ranges {
		s := b.RangeStatus(p, r)
		cc.Ranges = append(cc.Ranges, rangeUsage{
			Family: r.Family().String(), CIDR: s.CIDR, BlockPrefixLength: int(s.BlockPrefixLength), Cursor: s.Cursor,
			Total: s.Total, Allocated: s.Allocated, Reserved: int64(reservedIn(b, r)), Unavailable: s.Unavailable, Free: s.Free,
		})
	}
	return cc
}

// reservedIn returns how many of r's blocks are held by Nodes that do not show them.
func reservedIn(b *allocator.State, r ipam.Range) (n uint64) {
	for _, h := range b.Holdings(r.Prefix) {
		if h.Prefix.Bits() == r.BlockBits && h.Owner.Kind == ipam.Node && !isShown(b, h.Owner) {
			n++
		}
	}
	return n
}

// isShown reports whether a Node shows the blocks that it holds.
func isShown(b *allocator.State, node ipam.Owner) bool {
	n, ok := b.Node(b.NameOfNode(types.UID(node.ID)))
	return ok && n.State == allocator.Assigned
}

func nodeOf(b *allocator.State, node *v1.Node) nodeView {
	owner := allocator.OwnerOf(node.UID)
	blocks := b.HeldBy(owner)
	n := nodeView{
		Name: node.Name, UID: node.UID, State: nodeWithout, ClusterCIDRs: []string{},
		Blocks: append([]netip.Prefix{}, blocks...), Addresses: []netip.Prefix{},
	}
	n.Addresses = append(n.Addresses, addressesOf(b, node)...)
	_, unreadable := clustercidr.PodCIDRsOf(node)
	pending, waits := b.Pending(node.Name)
	switch {
	case len(blocks) > 0 && !isShown(b, owner):
		n.State = nodeReserved
	case len(blocks) > 0 || len(unreadable) > 0:
		n.State = nodeAssigned
	case waits:
		n.State, n.Why = nodeWaiting, pending.Why
		for _, r := range pending.RefusedBy {
			n.RefusedBy = append(n.RefusedBy, refusal(r))
		}
	}
	if len(unreadable) > 0 {
		n.find(allocator.ReasonUnreadable, "podCIDRs "+text.Cut(strings.Join(unreadable, ", "), text.MaxListed)+" cannot be read")
	}
	if n.State == nodeAssigned && len(blocks) > 0 && b.OutOfRange(blocks) {
		n.find(allocator.ReasonOutsideRanges, "its podCIDRs lie in no ClusterCIDR")
	}
	return n
}

// addressesOf returns a Node's own addresses, as far as they are known.
func addressesOf(b *allocator.State, node *v1.Node) []netip.Prefix {
	if known, ok := b.Node(node.Name); ok && known.UID == node.UID {
		return known.Addresses
	}
	return nil
}

func (n *nodeView) find(reason, message string) {
	if n.Findings == nil {
		n.Findings = map[string]string{}
	}
	n.Findings[reason] = message
}

func serviceRangesOf(b *allocator.State) []serviceRange {
	services := []serviceRange{}
	for _, all := range ipam.Everything {
		for _, h := range b.Holdings(all) {
			known := slices.ContainsFunc(services, func(s serviceRange) bool { return s.Source == h.Owner.ID })
			if h.Owner.Kind == ipam.Service && !known {
				services = append(services, serviceRange{Source: h.Owner.ID, CIDRs: b.HeldBy(h.Owner)})
			}
		}
	}
	slices.SortFunc(services, func(x, y serviceRange) int { return strings.Compare(x.Source, y.Source) })
	return services
}

func holderOf(b *allocator.State, h ipam.Holding) holderView {
	holder := holderView{Kind: h.Owner.Kind.String(), Name: h.Owner.ID, CIDR: h.Prefix}
	if h.Owner.Kind == ipam.Node {
		holder.Name = b.NameOfNode(types.UID(h.Owner.ID))
	}
	return holder
}

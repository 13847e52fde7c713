package inspect

import (
	"cmp"
	"math"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	networkingv1 "github.com/multicidr/controller-manager/apis/networking/v1"
	"github.com/multicidr/controller-manager/controllers/ipam"
	"github.com/multicidr/controller-manager/controllers/nodeipam/allocator"
	"github.com/multicidr/controller-manager/controllers/nodeipam/clustercidr"
)

// Status is the state of a cluster.
type Status struct {
	Nodes        NodeCounts          `json:"nodes"`
	ClusterCIDRs []ClusterCIDRStatus `json:"clusterCIDRs"`
	Pending      []PendingNodes      `json:"pending"`
	Groups       []Group             `json:"groups"`
}

// NodeCounts are numbers of Nodes.
type NodeCounts struct {
	Total     int `json:"total"`
	Allocated int `json:"allocated"` // they show podCIDRs
	// Reserved are those without podCIDRs for which a ClusterCIDR has free blocks: they get them as soon as the controller runs.
	Reserved int `json:"reserved"`
	Pending  int `json:"pending"`  // no ClusterCIDR can serve them
	Deleting int `json:"deleting"` // without podCIDRs, and they get none
	// OutOfRange have podCIDRs in no ClusterCIDR. Conflicting share addresses with another Node or a service range.
	OutOfRange  []string `json:"outOfRange,omitempty"`
	Conflicting []string `json:"conflicting,omitempty"`
}

// ClusterCIDRStatus is the state of a ClusterCIDR.
type ClusterCIDRStatus struct {
	Name     string `json:"name"`
	Priority int32  `json:"priority"`
	// State is the reason of the condition Ready; Message is its message.
	State   string        `json:"state"`
	Message string        `json:"message"`
	Members int           `json:"members"` // Nodes that belong to it
	Ranges  []RangeStatus `json:"ranges"`
	// Overlapping and Conflicted are the messages of these conditions while they are True.
	Overlapping string `json:"overlapping,omitempty"`
	Conflicted  string `json:"conflicted,omitempty"`
}

// RangeStatus counts the blocks of a range. Invariant: Total = Allocated + Reserved + Unavailable + Free, unless one of them is capped.
type RangeStatus struct {
	Family            string `json:"family"`
	CIDR              string `json:"cidr"`
	BlockPrefixLength int32  `json:"blockPrefixLength"`
	Total             int64  `json:"total"`
	Allocated         int64  `json:"allocated"` // Nodes show them
	Reserved          int64  `json:"reserved"`  // for Nodes that do not show them yet
	Unavailable       int64  `json:"unavailable"`
	Free              int64  `json:"free"`
}

// PendingNodes are the Nodes that are pending for the same reasons.
type PendingNodes struct {
	Reason string   `json:"reason"` // in one word
	Why    string   `json:"why"`
	Nodes  []string `json:"nodes"` // the oldest first
}

// Group is the Nodes for which the same ClusterCIDRs are tried in the same order.
type Group struct {
	// ClusterCIDRs are those that can allocate now or when blocks become free.
	ClusterCIDRs []string `json:"clusterCIDRs"`
	Nodes        int      `json:"nodes"`
	Example      string   `json:"example"` // one of the Nodes
	// Room is how many more such Nodes get podCIDRs if no others come; math.MaxUint64 means that number or more.
	Room uint64 `json:"room"`
	// Sharing is whether some of these ClusterCIDRs share addresses, which count once.
	Sharing bool `json:"sharing,omitempty"`
}

// Status returns the state of the cluster.
func (c *Cluster) Status() Status {
	c.settle()
	s := Status{ClusterCIDRs: []ClusterCIDRStatus{}, Groups: c.groups(), Pending: c.pending()}
	reserved := c.reserved()
	for _, cc := range c.ClusterCIDRs {
		s.ClusterCIDRs = append(s.ClusterCIDRs, c.clusterCIDRStatus(cc, reserved))
	}
	slices.SortFunc(s.ClusterCIDRs, func(a, b ClusterCIDRStatus) int { return strings.Compare(a.Name, b.Name) })
	for _, node := range c.Nodes {
		s.Nodes.count(c.state, node)
	}
	slices.Sort(s.Nodes.OutOfRange)
	slices.Sort(s.Nodes.Conflicting)
	return s
}

func (n *NodeCounts) count(b *allocator.State, node *v1.Node) {
	n.Total++
	blocks, _ := clustercidr.PodCIDRsOf(node)
	view, _ := b.Node(node.Name)
	switch {
	case clustercidr.ShowsPodCIDRs(node):
		n.Allocated++
	case node.DeletionTimestamp != nil:
		n.Deleting++
	case len(view.Blocks) > 0:
		n.Reserved++
	default:
		n.Pending++
	}
	if len(blocks) != 0 && b.OutOfRange(blocks) {
		n.OutOfRange = append(n.OutOfRange, node.Name)
	}
	if b.Shares(node.UID) {
		n.Conflicting = append(n.Conflicting, node.Name)
	}
}

// reserved returns the blocks that are held for Nodes that do not show them.
func (c *Cluster) reserved() (blocks ipam.PrefixSet) {
	for _, node := range c.Nodes {
		if view, ok := c.state.Node(node.Name); ok && view.State != allocator.Assigned {
			for _, block := range view.Blocks {
				blocks.Insert(block)
			}
		}
	}
	return blocks
}

func (c *Cluster) clusterCIDRStatus(cc *networkingv1.ClusterCIDR, reserved ipam.PrefixSet) ClusterCIDRStatus {
	p, _ := c.state.Pool(cc.Name)
	ready := c.state.Ready(p)
	s := ClusterCIDRStatus{Name: p.Name, Priority: p.Priority, State: ready.Reason, Message: ready.Message, Ranges: []RangeStatus{}}
	for range c.state.Members(p) {
		s.Members++
	}
	for _, r := range p.Ranges {
		counts := c.state.RangeStatus(p, r)
		var kept int64
		for block := range reserved.Overlapping(r.Prefix) {
			if block.Bits() == r.BlockBits {
				kept++
			}
		}
		s.Ranges = append(s.Ranges, RangeStatus{
			Family: r.Family().String(), CIDR: counts.CIDR, BlockPrefixLength: counts.BlockPrefixLength,
			Total: counts.Total, Allocated: counts.Allocated - kept, Reserved: kept, Unavailable: counts.Unavailable, Free: counts.Free,
		})
	}
	if full, ok := c.state.Status(cc); ok {
		s.note(full.Conditions)
	}
	return s
}

// pending returns the pending Nodes by the reasons, most Nodes first.
func (c *Cluster) pending() []PendingNodes {
	by := map[string]*PendingNodes{}
	for _, node := range c.Nodes {
		p, ok := c.state.Pending(node.Name)
		if !ok {
			continue
		}
		if by[p.Why] == nil {
			by[p.Why] = &PendingNodes{Reason: string(p.Reason), Why: p.Why}
		}
		by[p.Why].Nodes = append(by[p.Why].Nodes, node.Name)
	}
	all := []PendingNodes{}
	for _, p := range by {
		slices.SortFunc(p.Nodes, func(a, b string) int {
			x, y := c.nodes[a], c.nodes[b]
			return cmp.Or(x.CreationTimestamp.Compare(y.CreationTimestamp.Time), strings.Compare(a, b))
		})
		all = append(all, *p)
	}
	slices.SortFunc(all, func(a, b PendingNodes) int {
		return cmp.Or(cmp.Compare(len(b.Nodes), len(a.Nodes)), strings.Compare(a.Why, b.Why))
	})
	return all
}

// groups returns the groups of Nodes with equal candidates, most Nodes first.
func (c *Cluster) groups() []Group {
	all := []Group{}
	index := map[string]int{}
	var candidates [][]*clustercidr.Pool
	for _, node := range c.Nodes {
		pools, key := c.enabled(node)
		i, known := index[key]
		if !known {
			i = len(all)
			index[key] = i
			g := Group{ClusterCIDRs: []string{}, Example: node.Name}
			for _, p := range pools {
				g.ClusterCIDRs = append(g.ClusterCIDRs, p.Name)
			}
			all, candidates = append(all, g), append(candidates, pools)
		}
		all[i].Nodes++
		all[i].Example = min(all[i].Example, node.Name)
	}
	for i := range all {
		all[i].Room = c.room(candidates[i])
		all[i].Sharing = sharing(candidates[i])
	}
	slices.SortFunc(all, func(a, b Group) int {
		return cmp.Or(cmp.Compare(b.Nodes, a.Nodes), strings.Compare(a.Example, b.Example))
	})
	return all
}

// enabled returns the candidates of a Node that can allocate, and a text that is the same for Nodes with the same ones.
func (c *Cluster) enabled(node *v1.Node) (pools []*clustercidr.Pool, key string) {
	for p := range c.state.Candidates(node) {
		if p.State == ipam.Enabled {
			pools = append(pools, p)
			key += p.Name + " "
		}
	}
	return pools, key
}

func sharing(pools []*clustercidr.Pool) bool {
	for i, p := range pools {
		if slices.ContainsFunc(pools[i+1:], p.SharesWith) {
			return true
		}
	}
	return false
}

// Capped reports whether a number of blocks means that number or more.
func Capped(n uint64) bool { return n >= math.MaxInt64 }

// Published returns what ClusterCIDRs say about themselves, for users who may not read Nodes. Nothing is computed, and there are no groups.
func Published(objects Objects) Status {
	s := Status{ClusterCIDRs: []ClusterCIDRStatus{}, Pending: []PendingNodes{}, Groups: []Group{}}
	for _, cc := range objects.ClusterCIDRs {
		row := ClusterCIDRStatus{Name: cc.Name, Priority: cc.Spec.Priority, State: "Unknown", Message: "The controller has written no status.", Ranges: []RangeStatus{}}
		if ready := meta.FindStatusCondition(cc.Status.Conditions, networkingv1.ConditionReady); ready != nil {
			row.State, row.Message = ready.Reason, ready.Message
		}
		for family, r := range map[ipam.Family]*networkingv1.RangeStatus{ipam.IPv4: cc.Status.IPv4, ipam.IPv6: cc.Status.IPv6} {
			if r != nil {
				row.Ranges = append(row.Ranges, RangeStatus{
					Family: family.String(), CIDR: r.CIDR, BlockPrefixLength: r.BlockPrefixLength,
					Total: r.Total, Allocated: r.Allocated, Unavailable: r.Unavailable, Free: r.Free,
				})
			}
		}
		slices.SortFunc(row.Ranges, func(a, b RangeStatus) int { return strings.Compare(a.Family, b.Family) })
		row.note(cc.Status.Conditions)
		s.ClusterCIDRs = append(s.ClusterCIDRs, row)
	}
	slices.SortFunc(s.ClusterCIDRs, func(a, b ClusterCIDRStatus) int { return strings.Compare(a.Name, b.Name) })
	return s
}

// note fills in the conditions that are True.
func (s *ClusterCIDRStatus) note(conditions []metav1.Condition) {
	for _, condition := range conditions {
		switch {
		case condition.Status != metav1.ConditionTrue:
		case condition.Type == networkingv1.ConditionOverlapping:
			s.Overlapping = condition.Message
		case condition.Type == networkingv1.ConditionConflicted:
			s.Conflicted = condition.Message
		}
	}
}

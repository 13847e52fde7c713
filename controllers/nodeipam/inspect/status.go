package inspect

import (
	"cmp"
	"slices"
	"strings"

	networkingv1 "github.com/multicidr/controller-manager/apis/networking/v1"
	"github.com/multicidr/controller-manager/controllers/nodeipam/allocator"
	"github.com/multicidr/controller-manager/controllers/nodeipam/pool"
)

// Status is the state of a cluster.
type Status struct {
	Nodes        NodeCounts          `json:"nodes"`
	ClusterCIDRs []ClusterCIDRStatus `json:"clusterCIDRs"`
	Pending      []PendingNodes      `json:"pending"`
}

// NodeCounts are numbers of Nodes by their state. Invariant: Total = Allocated + Reserved + Pending + Deleting.
type NodeCounts struct {
	Total     int `json:"total"`
	Allocated int `json:"allocated"`
	Reserved  int `json:"reserved"`
	Pending   int `json:"pending"`
	Deleting  int `json:"deleting"`
	None      int `json:"none"` // need no podCIDRs
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
	Reason  string   `json:"reason"` // in one word
	Message string   `json:"message"`
	Nodes   []string `json:"nodes"` // the oldest first
}

// Status returns the state of the cluster.
func (c *Cluster) Status() Status { return c.StatusOf(c.Nodes()) }

// StatusOf is Status for a caller that needs Nodes, too.
func (c *Cluster) StatusOf(nodes []NodeStatus) Status {
	s := Status{ClusterCIDRs: []ClusterCIDRStatus{}, Pending: c.pendingByReason(nodes)}
	for i := range nodes {
		s.Nodes.count(&nodes[i])
	}
	for _, p := range c.state.Pools() {
		s.ClusterCIDRs = append(s.ClusterCIDRs, c.clusterCIDRStatus(p))
	}
	return s
}

func (n *NodeCounts) count(node *NodeStatus) {
	n.Total++
	switch node.State {
	case Allocated:
		n.Allocated++
	case Reserved:
		n.Reserved++
	case Pending:
		n.Pending++
	case Deleting:
		n.Deleting++
	case None:
		n.None++
	}
	if node.has(allocator.ReasonOutsideRanges) {
		n.OutOfRange = append(n.OutOfRange, node.Node)
	}
	if node.has(allocator.ReasonConflict) {
		n.Conflicting = append(n.Conflicting, node.Node)
	}
}

// clusterCIDRStatus returns the state of one ClusterCIDR.
func (c *Cluster) clusterCIDRStatus(p *pool.Pool) ClusterCIDRStatus {
	ready := c.state.Ready(p)
	s := ClusterCIDRStatus{
		Name: p.Name, Priority: p.Priority, State: ready.Reason, Message: ready.Message, Members: c.state.Users(p), Ranges: []RangeStatus{},
		Overlapping: whileTrue(c.state.Overlapping(p)), Conflicted: whileTrue(c.state.Conflicted(p)),
	}
	for _, r := range p.Ranges {
		counts := c.state.RangeStatus(p, r)
		var reserved int64
		for h := range c.state.Holdings(r.Prefix) {
			if h.Prefix.Bits() == r.BlockBits && !c.shows(h.Owner) {
				reserved++
			}
		}
		s.Ranges = append(s.Ranges, RangeStatus{
			Family: r.Family().String(), CIDR: counts.CIDR, BlockPrefixLength: counts.BlockPrefixLength,
			Total: counts.Total, Allocated: counts.Allocated - reserved, Reserved: reserved, Unavailable: counts.Unavailable, Free: counts.Free,
		})
	}
	return s
}

// Serves reports whether a state of a ClusterCIDR is one in which it allocates, or would if it had free blocks.
func Serves(state string) bool {
	return state == networkingv1.ReasonAvailable || state == networkingv1.ReasonExhausted
}

// pendingByReason returns the pending Nodes by what is said of them, most Nodes first.
func (c *Cluster) pendingByReason(nodes []NodeStatus) []PendingNodes {
	by := map[string]*PendingNodes{}
	for _, node := range nodes {
		if node.State != Pending {
			continue
		}
		if by[node.Message] == nil {
			by[node.Message] = &PendingNodes{Reason: node.Reason, Message: node.Message}
		}
		by[node.Message].Nodes = append(by[node.Message].Nodes, node.Node)
	}
	all := []PendingNodes{}
	for _, p := range by {
		slices.SortFunc(p.Nodes, func(a, b string) int { return compareAge(c.byName[a], c.byName[b]) })
		all = append(all, *p)
	}
	slices.SortFunc(all, func(a, b PendingNodes) int {
		return cmp.Or(cmp.Compare(len(b.Nodes), len(a.Nodes)), strings.Compare(a.Message, b.Message))
	})
	return all
}

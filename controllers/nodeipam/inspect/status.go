package inspect

import (
	"cmp"
	"slices"
	"strings"

	networkingv1 "github.com/multicidr/controller-manager/apis/networking/v1"
	"github.com/multicidr/controller-manager/controllers/ipam"
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
	var reserved ipam.PrefixSet
	for i := range nodes {
		node := &nodes[i]
		s.Nodes.count(node)
		if node.State == Reserved {
			for _, block := range node.PodCIDRs {
				reserved.Insert(block)
			}
		}
	}
	for _, p := range c.pools() {
		s.ClusterCIDRs = append(s.ClusterCIDRs, c.clusterCIDRStatus(p, &reserved))
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
	if node.has(outOfRange) {
		n.OutOfRange = append(n.OutOfRange, node.Node)
	}
	if node.has(conflict) {
		n.Conflicting = append(n.Conflicting, node.Node)
	}
}

// clusterCIDRStatus returns the state of one ClusterCIDR. reserved are the blocks that are held for Nodes that do not show them.
func (c *Cluster) clusterCIDRStatus(p *pool.Pool, reserved *ipam.PrefixSet) ClusterCIDRStatus {
	s := ClusterCIDRStatus{Name: p.Name, Priority: p.Priority, Ranges: []RangeStatus{}, Overlapping: c.overlapping(p), Conflicted: c.conflicted(p)}
	for range c.members(p) {
		s.Members++
	}
	s.State, s.Message = c.ready(p)
	for _, r := range p.Ranges {
		counts := c.usage(p, r)
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

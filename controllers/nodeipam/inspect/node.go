package inspect

import (
	"maps"
	"net/netip"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/multicidr/controller-manager/controllers/nodeipam/allocator"
	"github.com/multicidr/controller-manager/controllers/nodeipam/pool"
)

// NodeState is what a Node has, in one word.
type NodeState string

const (
	// Allocated: the Node shows podCIDRs.
	Allocated NodeState = "Allocated"
	// Reserved: the Node shows none. Blocks are reserved for it, and the controller writes them.
	Reserved NodeState = "Reserved"
	// Pending: no ClusterCIDR can serve the Node now.
	Pending NodeState = "Pending"
	// Deleting: the Node shows none and is being deleted, so it gets none.
	Deleting NodeState = "Deleting"
	// None: a ClusterCIDR with allocation None selects the Node, so it needs no podCIDRs.
	None NodeState = "None"
)

// NodeStatus is what one Node has.
type NodeStatus struct {
	Node  string    `json:"node"`
	UID   types.UID `json:"uid,omitempty"`
	State NodeState `json:"state"`
	// PodCIDRs are those that the Node shows, or that are reserved for it: IPv4 first, whichever family the controller writes first.
	PodCIDRs []netip.Prefix `json:"podCIDRs,omitempty"`
	// ClusterCIDRs are the names of those that the podCIDRs belong to.
	ClusterCIDRs []string `json:"clusterCIDRs,omitempty"`
	// UnansweredUntil is the time until which the API server may carry out a write of the reservation that it has not answered.
	UnansweredUntil time.Time `json:"unansweredUntil,omitzero"`
	// Reason and Message say why the Node is pending or gets nothing: in one word, and in sentences that say what to do.
	Reason  string `json:"reason,omitempty"`
	Message string `json:"message,omitempty"`
	// Findings are what is wrong with its podCIDRs.
	Findings []Finding `json:"findings,omitempty"`
}

// Finding is what is wrong with podCIDRs, with the reason of the event about it.
type Finding struct {
	Reason  string `json:"reason"`
	Message string `json:"message"`
}

// has reports whether there is a finding with this reason.
func (s *NodeStatus) has(reason string) bool {
	return slices.ContainsFunc(s.Findings, func(f Finding) bool { return f.Reason == reason })
}

// Nodes returns what all Nodes have, sorted by name.
func (c *Cluster) Nodes() []NodeStatus {
	all := make([]NodeStatus, 0, len(c.byName))
	for _, name := range slices.Sorted(maps.Keys(c.byName)) {
		all = append(all, c.node(c.byName[name]))
	}
	return all
}

// node returns what a Node has.
func (c *Cluster) node(node *v1.Node) NodeStatus {
	c.settle()
	s := NodeStatus{Node: node.Name, UID: node.UID}
	found := c.state.Findings(node.Name)
	for _, reason := range slices.Sorted(maps.Keys(found)) {
		s.Findings = append(s.Findings, Finding{reason, found[reason]})
	}
	if pool.ShowsPodCIDRs(node) {
		s.State, s.ClusterCIDRs = Allocated, c.state.BelongsTo(node.Name)
		s.PodCIDRs, _ = pool.PodCIDRsOf(node)
		return s
	}
	held, _ := c.state.Node(node.Name)
	if len(held.Blocks) > 0 {
		s.State, s.PodCIDRs, s.ClusterCIDRs, s.UnansweredUntil = Reserved, held.Blocks, []string{held.ClusterCIDR}, held.UnansweredUntil
		return s
	}
	reason, message := c.state.Why(node.Name)
	switch {
	case node.DeletionTimestamp != nil:
		s.State, s.Message = Deleting, "The Node is being deleted, so it gets no podCIDRs."
	case reason == allocator.NoneNeeded:
		s.State, s.Message = None, message
	case reason == "":
		s.State, s.Reason, s.Message = Pending, "NotSeen", "The controller is about to look at this Node."
	default:
		s.State, s.Reason, s.Message = Pending, string(reason), message
	}
	return s
}

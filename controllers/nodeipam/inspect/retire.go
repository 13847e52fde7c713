package inspect

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"

	networkingv1 "github.com/multicidr/controller-manager/apis/networking/v1"
	"github.com/multicidr/controller-manager/controllers/ipam"
	"github.com/multicidr/controller-manager/controllers/nodeipam/clustercidr"
)

// Retirement says which Nodes use a ClusterCIDR, and in what order to replace them.
type Retirement struct {
	ClusterCIDR string `json:"clusterCIDR"`
	// State is the reason of the condition Ready. Allocates is whether new Nodes can still get blocks of it.
	State     string `json:"state"`
	Allocates bool   `json:"allocates"`
	// Nodes belong to it. Those whose replacements get podCIDRs come first, the oldest first.
	Nodes []RetiredNode `json:"nodes"`
}

// RetiredNode is a Node to replace.
type RetiredNode struct {
	Node     string         `json:"node"`
	PodCIDRs []netip.Prefix `json:"podCIDRs"`
	// From is the ClusterCIDR from which a Node with the same labels gets podCIDRs, once the one to retire allocates none; empty if none can.
	From string `json:"from,omitempty"`
	// Why is why that Node would be pending.
	Why string `json:"why,omitempty"`
}

// Retire says what retiring a ClusterCIDR takes.
func (objects Objects) Retire(name string) (Retirement, error) {
	i := slices.IndexFunc(objects.ClusterCIDRs, func(cc *networkingv1.ClusterCIDR) bool { return cc.Name == name })
	if i < 0 {
		return Retirement{}, fmt.Errorf("there is no ClusterCIDR %s: kubectl get clustercidrs.networking.x-k8s.io lists their names", name)
	}
	disabled := objects.ClusterCIDRs[i].DeepCopy()
	disabled.Spec.Allocation = networkingv1.AllocationDisabled
	after := objects
	after.ClusterCIDRs = slices.Clone(objects.ClusterCIDRs)
	after.ClusterCIDRs[i] = disabled

	today, then := New(objects), New(after)
	p, _ := today.state.Pool(name)
	r := Retirement{ClusterCIDR: name, State: today.state.Ready(p).Reason, Allocates: p.State == ipam.Enabled, Nodes: []RetiredNode{}}
	var pending []RetiredNode
	for n, node := range today.members(p) {
		blocks, _ := clustercidr.PodCIDRsOf(node)
		replacement := fmt.Sprintf("(replacement %d)", n+1)
		then.create(replacement, LabelsLike(node))
		outcome := then.outcome(replacement)
		row := RetiredNode{Node: node.Name, PodCIDRs: blocks, From: outcome.ClusterCIDR, Why: outcome.Why}
		if row.From == "" {
			pending = append(pending, row)
		} else {
			r.Nodes = append(r.Nodes, row)
		}
	}
	r.Nodes = append(r.Nodes, pending...)
	return r, nil
}

// members returns the Nodes that belong to p, the oldest first.
func (c *Cluster) members(p *clustercidr.Pool) (nodes []*v1.Node) {
	for uid := range c.state.Members(p) {
		if node, ok := c.nodes[c.state.NameOfNode(uid)]; ok {
			nodes = append(nodes, node)
		}
	}
	slices.SortFunc(nodes, func(a, b *v1.Node) int {
		if order := a.CreationTimestamp.Compare(b.CreationTimestamp.Time); order != 0 {
			return order
		}
		return strings.Compare(a.Name, b.Name)
	})
	return nodes
}

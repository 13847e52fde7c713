package inspect

import (
	"cmp"
	"net/netip"
	"time"

	v1 "k8s.io/api/core/v1"
	networkingapiv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	networkingv1 "github.com/multicidr/controller-manager/apis/networking/v1"
	"github.com/multicidr/controller-manager/controllers/ipam"
	"github.com/multicidr/controller-manager/controllers/nodeipam/allocator"
	"github.com/multicidr/controller-manager/controllers/nodeipam/fromflags"
	"github.com/multicidr/controller-manager/controllers/nodeipam/pool"
)

// Objects are the objects of a cluster that decide which Node gets which podCIDRs. They are not modified.
type Objects struct {
	ClusterCIDRs []*networkingv1.ClusterCIDR
	ServiceCIDRs []*networkingapiv1.ServiceCIDR
	Nodes        []*v1.Node
	// ServiceRanges are those of --service-cluster-ip-range, which the controller knows besides ServiceCIDRs. No object has them.
	ServiceRanges []netip.Prefix
}

// Cluster is an allocator's state, and the Nodes that it is about. Not safe for concurrent use.
type Cluster struct {
	state   *allocator.State
	nodes   []*v1.Node
	byName  map[string]*v1.Node
	settled bool // pending Nodes have got what they get
}

// New fills a state as the controller does at its start.
func New(objects Objects) *Cluster {
	c := Of(allocator.New(), objects.Nodes)
	c.settled = false
	for _, cc := range objects.ClusterCIDRs {
		c.state.SetPool(compile(cc))
	}
	c.state.SetService(fromflags.ServiceRanges, objects.ServiceRanges)
	for _, serviceCIDR := range objects.ServiceCIDRs {
		ranges, _ := pool.ServiceRangesOf(serviceCIDR)
		c.state.SetService("ServiceCIDR "+serviceCIDR.Name, ranges)
	}
	for _, node := range objects.Nodes {
		c.state.Observe(node, time.Time{})
	}
	c.state.Start()
	return c
}

// Of is about a controller's state, which it does not change. nodes are those that the controller sees.
func Of(state *allocator.State, nodes []*v1.Node) *Cluster {
	c := &Cluster{state: state, nodes: nodes, byName: make(map[string]*v1.Node, len(nodes)), settled: true}
	for _, node := range nodes {
		c.byName[node.Name] = node
	}
	return c
}

// settle gives the pending Nodes that a ClusterCIDR can serve the reservations that the controller would make for them now.
func (c *Cluster) settle() {
	if !c.settled {
		c.state.Walk()
		c.settled = true
	}
}

// superseded is what is known of the flags that a superseded ClusterCIDR was made from.
const superseded = "it was made from flags, and the controller has others now"

// compile is pool.Compile as the controller that maintains the ClusterCIDR sees it.
func compile(cc *networkingv1.ClusterCIDR) *pool.Pool {
	p := pool.Compile(cc, nil)
	if p.State == ipam.Disabled && fromflags.Made(cc) && fromflags.Disabled(cc) {
		p.Supersede(superseded)
	}
	return p
}

// compareAge orders Nodes as the controller serves them: the oldest first.
func compareAge(a, b *v1.Node) int {
	return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name))
}

// fewestFree returns the free blocks of the family of p that has the fewest.
func (c *Cluster) fewestFree(p *pool.Pool) (fewest uint64) {
	for i, r := range p.Ranges {
		if free := c.state.Free(p, r); i == 0 || free < fewest {
			fewest = free
		}
	}
	return fewest
}

// whileTrue is the message of a condition; empty while it is not True.
func whileTrue(condition metav1.Condition) string {
	if condition.Status != metav1.ConditionTrue {
		return ""
	}
	return condition.Message
}

// shows reports whether a holder shows that it holds something. A Node for which blocks are reserved does not.
func (c *Cluster) shows(holder ipam.Owner) bool {
	node, ok := c.byName[holder.ID]
	return holder.Kind == ipam.Service || ok && pool.ShowsPodCIDRs(node)
}

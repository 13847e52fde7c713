package inspect

import (
	"cmp"
	"net/netip"
	"slices"

	v1 "k8s.io/api/core/v1"
	networkingapiv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"

	networkingv1 "github.com/multicidr/controller-manager/apis/networking/v1"
	"github.com/multicidr/controller-manager/controllers/ipam"
	"github.com/multicidr/controller-manager/controllers/nodeipam/allocator"
	"github.com/multicidr/controller-manager/controllers/nodeipam/clustercidr"
	"github.com/multicidr/controller-manager/controllers/nodeipam/contents"
	"github.com/multicidr/controller-manager/controllers/nodeipam/fromflags"
	"github.com/multicidr/controller-manager/controllers/nodeipam/pending"
)

// Objects are the objects of a cluster that decide which Node gets which podCIDRs. They are not modified.
type Objects struct {
	ClusterCIDRs []*networkingv1.ClusterCIDR
	ServiceCIDRs []*networkingapiv1.ServiceCIDR
	Nodes        []*v1.Node
	// ServiceRanges are those of --service-cluster-ip-range, which the controller knows besides ServiceCIDRs. No object has them.
	ServiceRanges []netip.Prefix
}

// Cluster is an allocator's state of a cluster's objects. Not safe for concurrent use.
type Cluster struct {
	Objects
	state *allocator.State
	nodes map[string]*v1.Node // by name
	// before are the free blocks of each ClusterCIDR, of the family with the fewest, before pending Nodes got reservations.
	before  map[string]uint64
	settled bool
	primary ipam.Family
}

// New fills a state as the controller does at its start.
func New(objects Objects) *Cluster {
	c := &Cluster{Objects: objects, state: allocator.New(), nodes: make(map[string]*v1.Node, len(objects.Nodes)), before: map[string]uint64{}, primary: primaryFamily(objects)}
	all := contents.Contents{Nodes: objects.Nodes, Services: map[string][]netip.Prefix{fromflags.ServiceRanges: objects.ServiceRanges}}
	for _, cc := range objects.ClusterCIDRs {
		all.Pools = append(all.Pools, compile(cc))
	}
	for _, serviceCIDR := range objects.ServiceCIDRs {
		all.Services[contents.ServiceSource(serviceCIDR.Name)], _ = clustercidr.ServiceRangesOf(serviceCIDR)
	}
	for _, node := range objects.Nodes {
		c.nodes[node.Name] = node
	}
	all.Fill(c.state, inTurn)
	return c
}

func inTurn(n int, f func(i int)) {
	for i := range n {
		f(i)
	}
}

// superseded is what is known of the flags that a superseded ClusterCIDR was made from.
const superseded = "it was made from flags, and the controller has others now"

// compile is clustercidr.Compile as the controller that maintains the ClusterCIDR sees it. A ClusterCIDR without the controller's finalizer
// gets it in a moment and can then allocate, unless the controller has reported that it does not.
func compile(cc *networkingv1.ClusterCIDR) *clustercidr.Pool {
	p := clustercidr.Compile(cc)
	switch {
	case p.State == ipam.Disabled && fromflags.Made(cc) && fromflags.Disabled(cc):
		p.Supersede(superseded)
	case p.State == ipam.Pending:
		ready := meta.FindStatusCondition(cc.Status.Conditions, networkingv1.ConditionReady)
		if ready != nil && ready.Reason == networkingv1.ReasonPending && ready.Message != "" { // The controller says why.
			return p.With(ready.Message, "")
		}
		p.State = ipam.Enabled
	}
	return p
}

// primaryFamily is the family that the controller writes first. It follows from the controller's flags, which no object has: the youngest Node
// with both families shows it, or else the service ranges, which usually have the same order.
func primaryFamily(objects Objects) ipam.Family {
	var youngest *v1.Node
	for _, node := range objects.Nodes {
		blocks, _ := clustercidr.PodCIDRsOf(node)
		both := len(blocks) > 1 && ipam.FamilyOf(blocks[0]) != ipam.FamilyOf(blocks[1])
		if both && (youngest == nil || older(youngest, node)) {
			youngest = node
		}
	}
	if youngest != nil {
		blocks, _ := clustercidr.PodCIDRsOf(youngest)
		return ipam.FamilyOf(blocks[0])
	}
	for _, serviceCIDR := range objects.ServiceCIDRs {
		if ranges, _ := clustercidr.ServiceRangesOf(serviceCIDR); serviceCIDR.Name == defaultServiceCIDR && len(ranges) > 0 {
			return ipam.FamilyOf(ranges[0])
		}
	}
	if len(objects.ServiceRanges) > 0 {
		return ipam.FamilyOf(objects.ServiceRanges[0])
	}
	return ipam.IPv4
}

// defaultServiceCIDR is the ServiceCIDR that the API server makes from its own --service-cluster-ip-range.
const defaultServiceCIDR = "kubernetes"

// older reports whether a Node comes before another one when both are pending.
func older(a, b *v1.Node) bool {
	return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name)) < 0
}

// settle gives the pending Nodes that a ClusterCIDR can serve the reservations that the controller would make for them now.
func (c *Cluster) settle() {
	if c.settled {
		return
	}
	for _, p := range c.state.Pools() {
		c.before[p.Name] = c.fewestFree(p)
	}
	c.state.AllocatePending()
	c.settled = true
}

// fewestFree returns the free blocks of the family of p that has the fewest.
func (c *Cluster) fewestFree(p *clustercidr.Pool) uint64 {
	if len(p.Ranges) == 0 {
		return 0
	}
	free := c.free(p, p.Ranges[0])
	for _, r := range p.Ranges[1:] {
		free = min(free, c.free(p, r))
	}
	return free
}

// free returns how many blocks of one of p's ranges are free. The ledger keeps that count.
func (c *Cluster) free(p *clustercidr.Pool, r ipam.Range) uint64 {
	return c.state.Exhausted().Ledger.Usage(&p.Pool, r).Free
}

// refusal says why a pool that matches a Node cannot serve it now; empty if it can.
func (c *Cluster) refusal(p *clustercidr.Pool) string {
	why := pending.Explain(p, c.state.Exhausted())
	if p.State == ipam.Enabled && len(why.Full) == 0 {
		return ""
	}
	return why.String()
}

// podCIDRs orders blocks as the controller writes them.
func (c *Cluster) podCIDRs(blocks []netip.Prefix) []netip.Prefix {
	ordered := slices.Clone(blocks)
	slices.SortStableFunc(ordered, func(a, b netip.Prefix) int {
		return cmp.Compare(c.rank(a), c.rank(b))
	})
	return ordered
}

func (c *Cluster) rank(block netip.Prefix) int {
	if ipam.FamilyOf(block) == c.primary {
		return 0
	}
	return 1
}

// belongsTo returns the names of the ClusterCIDRs that a Node belongs to.
func (c *Cluster) belongsTo(uid types.UID) (names []string) {
	for _, p := range c.state.Pools() {
		if c.state.NameOfNode(uid) != "" && c.state.BelongsTo(uid, p) {
			names = append(names, p.Name)
		}
	}
	return names
}

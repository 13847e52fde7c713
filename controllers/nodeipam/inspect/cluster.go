package inspect

import (
	"cmp"
	"iter"
	"maps"
	"net/netip"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	networkingapiv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

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
	byUID   map[types.UID]*v1.Node
	settled bool // pending Nodes have got what they get
	primary ipam.Family
}

// New fills a state as the controller does at its start.
func New(objects Objects) *Cluster {
	c := Of(allocator.New(), objects.Nodes)
	c.settled, c.primary = false, primaryFamily(objects)
	for _, cc := range objects.ClusterCIDRs {
		c.state.SetPool(compile(cc))
	}
	c.state.SetService(fromflags.ServiceRanges, objects.ServiceRanges)
	for _, serviceCIDR := range objects.ServiceCIDRs {
		ranges, _ := pool.ServiceRangesOf(serviceCIDR)
		c.state.SetService(serviceSource+serviceCIDR.Name, ranges)
	}
	for _, node := range objects.Nodes {
		c.state.Observe(node)
	}
	c.state.Start()
	return c
}

// Of is about a controller's state, which it does not change. nodes are those that the controller sees.
func Of(state *allocator.State, nodes []*v1.Node) *Cluster {
	c := &Cluster{state: state, nodes: nodes, byName: make(map[string]*v1.Node, len(nodes)), byUID: make(map[types.UID]*v1.Node, len(nodes)), settled: true}
	for _, node := range nodes {
		c.byName[node.Name], c.byUID[node.UID] = node, node
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

// add adds a Node that is younger than all others, and decides about it.
func (c *Cluster) add(node *v1.Node) {
	c.settle()
	c.byName[node.Name], c.byUID[node.UID] = node, node
	c.state.Observe(node)
	c.state.Next(node.Name, time.Time{})
}

// serviceSource begins the source of the service ranges in a ServiceCIDR; its name follows.
const serviceSource = "ServiceCIDR "

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

// defaultServiceCIDR is the ServiceCIDR that the API server makes from its own --service-cluster-ip-range.
const defaultServiceCIDR = "kubernetes"

// primaryFamily is the family that the controller writes first. It follows from the controller's flags, which no object has: the youngest Node
// with both families shows it, or else the service ranges, which usually have the same order.
func primaryFamily(objects Objects) ipam.Family {
	var youngest *v1.Node
	for _, node := range objects.Nodes {
		blocks, _ := pool.PodCIDRsOf(node)
		both := len(blocks) > 1 && ipam.FamilyOf(blocks[0]) != ipam.FamilyOf(blocks[1])
		if both && (youngest == nil || compareAge(youngest, node) < 0) {
			youngest = node
		}
	}
	if youngest != nil {
		blocks, _ := pool.PodCIDRsOf(youngest)
		return ipam.FamilyOf(blocks[0])
	}
	for _, serviceCIDR := range objects.ServiceCIDRs {
		if ranges, _ := pool.ServiceRangesOf(serviceCIDR); serviceCIDR.Name == defaultServiceCIDR && len(ranges) > 0 {
			return ipam.FamilyOf(ranges[0])
		}
	}
	if len(objects.ServiceRanges) > 0 {
		return ipam.FamilyOf(objects.ServiceRanges[0])
	}
	return ipam.IPv4
}

// compareAge orders Nodes as the controller serves them: the oldest first.
func compareAge(a, b *v1.Node) int {
	return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name))
}

func (c *Cluster) pools() []*pool.Pool { return c.state.Pools() } // by name

func (c *Cluster) pool(name string) (*pool.Pool, bool) { return c.state.Pool(name) }

// candidates yields the pools that select a Node, in the order in which they are tried.
func (c *Cluster) candidates(node *v1.Node) iter.Seq[*pool.Pool] {
	return c.state.Candidates(node)
}

// refusal says why a pool that selects a Node cannot serve it now; empty if it can.
func (c *Cluster) refusal(p *pool.Pool) string { return c.state.Refusal(p) }

// free returns how many blocks of a range, or of a part of one, are free.
func (c *Cluster) free(p *pool.Pool, r ipam.Range) uint64 { return c.state.Free(p, r) }

// fewestFree returns the free blocks of the family of p that has the fewest.
func (c *Cluster) fewestFree(p *pool.Pool) (fewest uint64) {
	for i, r := range p.Ranges {
		if free := c.free(p, r); i == 0 || free < fewest {
			fewest = free
		}
	}
	return fewest
}

// ready is the reason and the message of the condition Ready.
func (c *Cluster) ready(p *pool.Pool) (reason, message string) {
	ready := c.state.Ready(p)
	return ready.Reason, ready.Message
}

// overlapping and conflicted are the messages of these conditions; empty while they are not True.
func (c *Cluster) overlapping(p *pool.Pool) string { return whileTrue(c.state.Overlapping(p)) }

func (c *Cluster) conflicted(p *pool.Pool) string { return whileTrue(c.state.Conflicted(p)) }

func whileTrue(condition metav1.Condition) string {
	if condition.Status != metav1.ConditionTrue {
		return ""
	}
	return condition.Message
}

// usage counts the blocks of a range. Blocks that are reserved count as allocated.
func (c *Cluster) usage(p *pool.Pool, r ipam.Range) *networkingv1.RangeStatus {
	return c.state.RangeStatus(p, r)
}

// members yields the Nodes that belong to p, in address order.
func (c *Cluster) members(p *pool.Pool) iter.Seq[*v1.Node] {
	return func(yield func(*v1.Node) bool) {
		for uid := range c.state.Members(p) {
			if node, ok := c.byUID[uid]; ok && !yield(node) {
				return
			}
		}
	}
}

// belongsTo returns the names of the ClusterCIDRs that a Node belongs to.
func (c *Cluster) belongsTo(node *v1.Node) (names []string) {
	if held, ok := c.state.Node(node.Name); !ok || held.UID != node.UID {
		return nil
	}
	for _, p := range c.pools() {
		if c.state.BelongsTo(node.UID, p) {
			names = append(names, p.Name)
		}
	}
	return names
}

// holding is a prefix and who holds it: a Node, or a service range by its source.
type holding struct {
	netip.Prefix
	node    *v1.Node
	service string
}

func (h *holding) same(o *holding) bool { return h.node == o.node && h.service == o.service }

// reserved reports whether the Node does not show this block.
func (h *holding) reserved() bool { return h.node != nil && !pool.ShowsPodCIDRs(h.node) }

// holdings returns what overlaps a prefix, in address order; a prefix comes before those that it contains.
func (c *Cluster) holdings(prefix netip.Prefix) (all []holding) {
	for h := range c.state.Holdings(prefix) {
		node := c.byUID[types.UID(h.Owner.ID)]
		switch {
		case h.Owner.Kind == ipam.Service:
			all = append(all, holding{Prefix: h.Prefix, service: h.Owner.ID})
		case node != nil:
			all = append(all, holding{Prefix: h.Prefix, node: node})
		}
	}
	return all
}

// reservation returns the blocks that are reserved for a Node that does not show podCIDRs, in the order in which the controller writes them,
// and the name of the ClusterCIDR. A write of them may still be carried out until the time.
func (c *Cluster) reservation(node *v1.Node) (blocks []netip.Prefix, from string, unansweredUntil time.Time) {
	held, ok := c.state.Node(node.Name)
	if !ok || held.UID != node.UID {
		return nil, "", time.Time{}
	}
	blocks = slices.Clone(held.Blocks)
	slices.SortStableFunc(blocks, func(a, b netip.Prefix) int { return cmp.Compare(c.rank(a), c.rank(b)) })
	return blocks, held.ClusterCIDR, held.UnansweredUntil
}

func (c *Cluster) rank(block netip.Prefix) int {
	if ipam.FamilyOf(block) == c.primary {
		return 0
	}
	return 1
}

// pending says why a Node is pending: in one word, and in sentences that say what to do. Both are empty if the state has not decided.
func (c *Cluster) pending(node *v1.Node) (reason, message string) {
	if p, ok := c.state.Pending(node.Name); ok && p.UID == node.UID {
		return string(p.Reason), p.Message
	}
	return "", ""
}

// findings returns what is wrong with the podCIDRs that a Node shows, sorted by the reasons of the events about it.
func (c *Cluster) findings(node *v1.Node) (all []Finding) {
	found := c.state.Findings(node.Name)
	for _, reason := range slices.Sorted(maps.Keys(found)) {
		all = append(all, Finding{reason, found[reason]})
	}
	return all
}

// Reasons of findings that are counted.
const (
	conflict   = allocator.ReasonConflict
	outOfRange = allocator.ReasonOutsideRanges
)

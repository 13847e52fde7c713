package inspect

import (
	"fmt"
	"maps"
	"math"
	"net/netip"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	networkingv1 "github.com/multicidr/controller-manager/apis/networking/v1"
	"github.com/multicidr/controller-manager/controllers/ipam"
	"github.com/multicidr/controller-manager/controllers/nodeipam/clustercidr"
)

// NodeState is what a Node has, in one word.
type NodeState string

const (
	// Allocated: the Node shows podCIDRs.
	Allocated NodeState = "Allocated"
	// Reserved: the Node shows none, and the controller allocates the given ones as soon as it runs.
	Reserved NodeState = "Reserved"
	// Pending: no ClusterCIDR can serve the Node.
	Pending NodeState = "Pending"
	// Deleting: the Node shows none and is being deleted, so it gets none.
	Deleting NodeState = "Deleting"
	// Unreadable: no podCIDR of the Node can be parsed.
	Unreadable NodeState = "Unreadable"
)

// Explanation says what a Node has or would get now, and why.
type Explanation struct {
	Node string `json:"node"`
	// New is whether there is no such Node: the explanation is about one that would be created now.
	New      bool              `json:"new,omitempty"`
	Labels   map[string]string `json:"labels,omitempty"`
	State    NodeState         `json:"state"`
	PodCIDRs []netip.Prefix    `json:"podCIDRs,omitempty"`
	// ClusterCIDRs are the names of those that the podCIDRs belong to. Named is whether the Node's annotation names it.
	ClusterCIDRs []string `json:"clusterCIDRs,omitempty"`
	Named        bool     `json:"named,omitempty"`
	// Writer is the leader that wrote the podCIDRs, by its annotation.
	Writer string `json:"writer,omitempty"`
	// Why says why the Node is pending, and what to do.
	Why string `json:"why,omitempty"`
	// Findings are what is wrong with its podCIDRs.
	Findings []Finding `json:"findings,omitempty"`
	// Older is the number of older Nodes without podCIDRs, which come first.
	Older int `json:"older,omitempty"`
	// Candidates are the ClusterCIDRs that select the Node, in the order in which they are tried.
	Candidates []Candidate `json:"candidates"`
	// Others are the ClusterCIDRs that do not select it.
	Others []Other `json:"others"`
}

// Finding is what is wrong with podCIDRs, with the reason of the event about it.
type Finding struct {
	Reason  string `json:"reason"`
	Message string `json:"message"`
}

// Outcome is what a candidate is for a Node.
type Outcome string

const (
	Chosen     Outcome = "Chosen"     // the Node has its podCIDRs from it, or would get them from it
	Refused    Outcome = "Refused"    // it cannot serve the Node
	NotReached Outcome = "NotReached" // a ClusterCIDR that can serve the Node comes first
	Free       Outcome = "Free"       // it has a free block; the Node needs none
)

// Candidate is a ClusterCIDR that selects a Node.
type Candidate struct {
	ClusterCIDR string `json:"clusterCIDR"`
	Priority    int32  `json:"priority"`
	// Requirements is the number of requirements in the term of the nodeSelector that matches.
	Requirements int            `json:"requirements"`
	Ranges       []netip.Prefix `json:"ranges"`
	Blocks       []int          `json:"blockPrefixLengths"`
	// Free is the number of free blocks, of the family that has the fewest.
	Free uint64 `json:"free"`
	// After is the rule by which the candidate comes after the one before it, and what differs.
	After   *Difference `json:"after,omitempty"`
	Outcome Outcome     `json:"outcome"`
	Reason  string      `json:"reason"`
}

// Difference is what orders two candidates.
type Difference struct {
	Rule string `json:"rule"`
	Text string `json:"text"`
}

// Other is a ClusterCIDR that does not select a Node.
type Other struct {
	ClusterCIDR string `json:"clusterCIDR"`
	Reason      string `json:"reason"`
}

// Explain says what the Node of this name has or would get now; ok is false if there is no such Node.
func (c *Cluster) Explain(name string) (_ Explanation, ok bool) {
	node, ok := c.nodes[name]
	if !ok {
		return Explanation{}, false
	}
	return c.explain(node), true
}

// NewNode is the name of a Node that does not exist and has none. No nodeSelector can require it.
const NewNode = "(new Node)"

// ExplainNew says what a Node with these labels would get if it were created now, after all others. Afterwards the Node is part of the cluster.
func (c *Cluster) ExplainNew(name string, labels map[string]string) Explanation {
	node := c.create(name, labels)
	e := c.explain(node)
	e.New = true
	return e
}

// create adds a Node that is younger than all others.
func (c *Cluster) create(name string, labels map[string]string) *v1.Node {
	node := &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID("new " + name), Labels: labels, CreationTimestamp: metav1.Unix(math.MaxInt32, 0)}}
	c.settle()
	c.nodes[name] = node
	c.state.Observe(node, nil, nil)
	c.state.AllocatePending()
	return node
}

func (c *Cluster) explain(node *v1.Node) Explanation {
	c.settle()
	e := Explanation{Node: node.Name, Labels: node.Labels, Candidates: []Candidate{}, Others: []Other{}}
	c.explainState(node, &e)
	findings := c.state.Findings(node)
	for _, reason := range slices.Sorted(maps.Keys(findings)) {
		e.Findings = append(e.Findings, Finding{reason, findings[reason]})
	}
	selects := map[string]bool{}
	var last *clustercidr.Pool
	for p := range c.state.Candidates(node) {
		selects[p.Name] = true
		e.Candidates = append(e.Candidates, c.candidate(node, p, last, &e))
		last = p
	}
	for _, p := range c.state.Pools() {
		if !selects[p.Name] {
			e.Others = append(e.Others, Other{p.Name, p.Mismatch(node)})
		}
	}
	return e
}

// explainState fills in what the Node has.
func (c *Cluster) explainState(node *v1.Node, e *Explanation) {
	blocks, _ := clustercidr.PodCIDRsOf(node)
	held, _ := c.state.Node(node.Name)
	switch {
	case len(blocks) > 0:
		e.State, e.PodCIDRs, e.ClusterCIDRs = Allocated, blocks, c.belongsTo(node.UID)
		e.Named = slices.Equal(e.ClusterCIDRs, []string{node.Annotations[networkingv1.AnnotationClusterCIDR]})
		e.Writer = node.Annotations[networkingv1.AnnotationLeaseHolder]
	case clustercidr.ShowsPodCIDRs(node):
		e.State = Unreadable
	case node.DeletionTimestamp != nil:
		e.State, e.Why = Deleting, "The Node is being deleted, so it gets no podCIDRs."
	case len(held.Blocks) > 0:
		e.State, e.PodCIDRs, e.ClusterCIDRs = Reserved, c.podCIDRs(held.Blocks), []string{held.ClusterCIDR}
	default:
		e.State = Pending
		if p, ok := c.state.Pending(node.Name); ok {
			e.Why = p.Why
		}
	}
	if e.State != Reserved && e.State != Pending {
		return
	}
	for _, other := range c.Nodes {
		if !clustercidr.ShowsPodCIDRs(other) && other.DeletionTimestamp == nil && older(other, node) {
			e.Older++
		}
	}
}

// candidate describes p, which comes after last; last may be nil.
func (c *Cluster) candidate(node *v1.Node, p, last *clustercidr.Pool, e *Explanation) Candidate {
	found := Candidate{ClusterCIDR: p.Name, Priority: p.Priority, Requirements: p.For(node).Specificity, Ranges: p.Extent(), Free: c.before[p.Name]}
	for _, r := range p.Ranges {
		found.Blocks = append(found.Blocks, r.BlockBits)
	}
	if last != nil {
		found.After = difference(last.For(node), p.For(node))
	}
	chosen := slices.Contains(e.ClusterCIDRs, p.Name)
	refusal := c.refusal(p)
	before := slices.ContainsFunc(e.Candidates, func(o Candidate) bool { return o.Outcome == Chosen })
	switch {
	case chosen && e.State == Allocated:
		found.Outcome, found.Reason = Chosen, "the Node's podCIDRs are from it"
	case chosen:
		found.Outcome, found.Reason = Chosen, "it is the first that can serve the Node"
	case refusal != "":
		found.Outcome, found.Reason = Refused, strings.TrimPrefix(refusal, p.Name+" ")
		if p.State == ipam.Enabled && found.Free > 0 {
			found.Reason += "; older pending Nodes get its last blocks"
		}
	case before && e.State == Reserved:
		found.Outcome, found.Reason = NotReached, e.ClusterCIDRs[0]+" comes first"
	default:
		found.Outcome, found.Reason = Free, "it has free blocks"
	}
	return found
}

// difference says why b comes after a.
func difference(a, b ipam.Candidate) *Difference {
	rule := ipam.Deciding(a, b)
	d := &Difference{Rule: rule.String()}
	switch rule {
	case ipam.ByPriority:
		d.Text = fmt.Sprintf("lower priority: %d after %d", b.Priority, a.Priority)
	case ipam.BySelective:
		d.Text = "it has no nodeSelector"
	case ipam.BySpecificity:
		d.Text = fmt.Sprintf("fewer requirements: %d after %d", b.Specificity, a.Specificity)
	case ipam.ByCapacity:
		d.Text = fmt.Sprintf("more blocks: %s after %s", blocks(b.Pool), blocks(a.Pool))
		if len(b.Ranges) == 0 {
			d.Text = "it has no usable range"
		}
	case ipam.ByHostBits:
		d.Text = fmt.Sprintf("larger blocks: /%d after /%d", b.Ranges[0].BlockBits, a.Ranges[0].BlockBits)
	case ipam.BySelector:
		d.Text = "the text of its nodeSelector comes later"
	case ipam.ByAddress:
		d.Text = "higher address"
	default:
		d.Text = "its name comes later"
	}
	return d
}

// blocks formats the number of all blocks of the family of p that has the fewest.
func blocks(p *ipam.Pool) string {
	if len(p.Ranges) == 0 {
		return "no range"
	}
	bits := math.MaxInt
	for _, r := range p.Ranges {
		bits = min(bits, r.BlockBits-r.Prefix.Bits())
	}
	if bits > 30 {
		return fmt.Sprintf("2^%d", bits)
	}
	return fmt.Sprint(1 << bits)
}

// Count formats a number of blocks. From 2^63 on, numbers are capped.
func Count(n uint64) string {
	if Capped(n) {
		return "2^63 or more"
	}
	return fmt.Sprint(n)
}

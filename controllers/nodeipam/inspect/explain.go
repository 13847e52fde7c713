package inspect

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	networkingv1 "github.com/multicidr/controller-manager/apis/networking/v1"
	"github.com/multicidr/controller-manager/controllers/ipam"
	"github.com/multicidr/controller-manager/controllers/nodeipam/pool"
)

// Explanation says what a Node has or would get now, and why.
type Explanation struct {
	NodeStatus
	// New is whether there is no such Node: the explanation is about one that would be created now.
	New    bool              `json:"new,omitempty"`
	Labels map[string]string `json:"labels,omitempty"`
	// Named is whether the Node's annotation names the ClusterCIDR that the podCIDRs belong to.
	Named bool `json:"named,omitempty"`
	// Writer is the leader that wrote the podCIDRs, by the Node's annotation.
	Writer string `json:"writer,omitempty"`
	// Older is the number of older Nodes without podCIDRs, which come first.
	Older int `json:"older,omitempty"`
	// Candidates are the ClusterCIDRs that select the Node, in the order in which they are tried.
	Candidates []Candidate `json:"candidates"`
	// Others are the ClusterCIDRs that do not select it.
	Others []Other `json:"others"`
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
	Requirements int `json:"requirements"`
	// Free is the number of free blocks, of the family that has the fewest. Blocks that are reserved for pending Nodes are not free.
	Free uint64 `json:"free"`
	// After is why the candidate comes after the one before it.
	After   string  `json:"after,omitempty"`
	Outcome Outcome `json:"outcome"`
	Reason  string  `json:"reason"`
}

// Other is a ClusterCIDR that does not select a Node.
type Other struct {
	ClusterCIDR string `json:"clusterCIDR"`
	Reason      string `json:"reason"`
}

// Explain says what the Node of this name has or would get now; ok is false if there is no such Node.
func (c *Cluster) Explain(name string) (_ Explanation, ok bool) {
	node, ok := c.byName[name]
	if !ok {
		return Explanation{}, false
	}
	return c.explain(node), true
}

// NewNode is the name of a Node that does not exist and has none. No nodeSelector can require it.
const NewNode = "(new Node)"

// ExplainNew says what a Node with these labels would get if it were created now, after all others. Afterwards the Node is part of the cluster.
func (c *Cluster) ExplainNew(name string, labels map[string]string) Explanation {
	e := c.explain(c.create(name, labels))
	e.New, e.UID = true, ""
	return e
}

// create adds a Node that is younger than all others, and decides about it.
func (c *Cluster) create(name string, labels map[string]string) *v1.Node {
	node := &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID("new " + name), Labels: labels, CreationTimestamp: metav1.Unix(math.MaxInt32, 0)}}
	c.settle()
	c.byName[name] = node
	c.state.Observe(node, time.Time{})
	c.state.Next(name, time.Time{})
	return node
}

func (c *Cluster) explain(node *v1.Node) Explanation {
	e := Explanation{NodeStatus: c.node(node), Labels: node.Labels, Candidates: []Candidate{}, Others: []Other{}}
	if e.State == Allocated {
		e.Named = slices.Equal(e.ClusterCIDRs, []string{node.Annotations[networkingv1.AnnotationClusterCIDR]})
		e.Writer = node.Annotations[networkingv1.AnnotationLeaseHolder]
	}
	if e.State == Reserved || e.State == Pending {
		for _, other := range c.nodes {
			if !pool.ShowsPodCIDRs(other) && other.DeletionTimestamp == nil && compareAge(other, node) < 0 {
				e.Older++
			}
		}
	}
	selects := map[string]bool{}
	var last ipam.Candidate
	for p, candidate := range c.state.Candidates(node) {
		selects[p.Name] = true
		e.Candidates = append(e.Candidates, c.candidate(p, candidate, last, &e))
		last = candidate
	}
	for _, p := range c.state.Pools() {
		if !selects[p.Name] {
			e.Others = append(e.Others, Other{p.Name, p.Mismatch(node)})
		}
	}
	return e
}

// candidate describes p, which comes after last; that is zero for the first one.
func (c *Cluster) candidate(p *pool.Pool, is, last ipam.Candidate, e *Explanation) Candidate {
	found := Candidate{ClusterCIDR: p.Name, Priority: p.Priority, Requirements: is.Specificity, Free: c.fewestFree(p)}
	if last.Pool != nil {
		found.After = difference(last, is)
	}
	chosen := slices.Contains(e.ClusterCIDRs, p.Name)
	refusal := c.state.Refusal(p)
	before := slices.ContainsFunc(e.Candidates, func(o Candidate) bool { return o.Outcome == Chosen })
	switch {
	case chosen && e.State == Allocated:
		found.Outcome, found.Reason = Chosen, "the Node's podCIDRs are in it"
	case chosen:
		found.Outcome, found.Reason = Chosen, "it is the first that can serve the Node"
	case refusal != "":
		found.Outcome, found.Reason = Refused, strings.TrimPrefix(refusal, p.Name+" ")
	case before && e.State == Reserved:
		found.Outcome, found.Reason = NotReached, e.ClusterCIDRs[0]+" comes first"
	default:
		found.Outcome, found.Reason = Free, "it has free blocks"
	}
	return found
}

// difference says why b comes after a.
func difference(a, b ipam.Candidate) string {
	switch _, by := ipam.Order(a, b); by {
	case ipam.ByPriority:
		return fmt.Sprintf("lower priority: %d, the one above has %d", b.Priority, a.Priority)
	case ipam.BySelective:
		return "it has no nodeSelector"
	case ipam.BySpecificity:
		return fmt.Sprintf("fewer requirements: %d, the one above has %d", b.Specificity, a.Specificity)
	case ipam.ByCapacity:
		if len(b.Ranges) == 0 {
			return "it has no usable range"
		}
		return fmt.Sprintf("more blocks: %s, the one above has %s", blocks(b.Pool), blocks(a.Pool))
	case ipam.ByHostBits:
		return fmt.Sprintf("larger blocks: /%d, the one above has /%d", b.Ranges[0].BlockBits, a.Ranges[0].BlockBits)
	case ipam.BySelector:
		return "the text of its nodeSelector comes later"
	case ipam.ByAddress:
		return "higher address"
	default:
		return "its name comes later"
	}
}

// blocks formats the number of all blocks of the family of p that has the fewest.
func blocks(p *ipam.Pool) string {
	fewest := uint64(math.MaxUint64)
	for _, r := range p.Ranges {
		fewest = min(fewest, r.Blocks())
	}
	return Count(fewest)
}

// Count formats a number of blocks. From 2^63 on, numbers are capped.
func Count(n uint64) string {
	if n >= math.MaxInt64 {
		return "2^63 or more"
	}
	return fmt.Sprint(n)
}

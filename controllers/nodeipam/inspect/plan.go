package inspect

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	networkingv1 "github.com/multicidr/controller-manager/apis/networking/v1"
	"github.com/multicidr/controller-manager/controllers/ipam"
	"github.com/multicidr/controller-manager/controllers/nodeipam/clustercidr"
)

// Changes are what a plan does to a cluster.
type Changes struct {
	Apply  []*networkingv1.ClusterCIDR // created, or changed if one of the name exists
	Delete []string                    // names of ClusterCIDRs
	// NewNodes is how many Nodes with Labels are created afterwards, one after the other. Like is the Node that the labels are from.
	NewNodes int
	Like     string
	Labels   map[string]string
}

// Action is what happens to an object.
type Action string

const (
	Create    Action = "Create"
	Change    Action = "Change"
	Delete    Action = "Delete"
	Unchanged Action = "Unchanged"
)

// Plan is what changes would do.
type Plan struct {
	// Actions are the ClusterCIDRs that are created, changed and deleted.
	Actions []PlannedAction `json:"actions"`
	// ClusterCIDRs are all whose counts or state differ.
	ClusterCIDRs []PlannedClusterCIDR `json:"clusterCIDRs"`
	// Nodes are those that get other podCIDRs than today, or get some or none where today they do not.
	Nodes []PlannedNode `json:"nodes"`
	// Groups say what the next Node of each group gets, where that differs.
	Groups []PlannedGroup `json:"groups"`
	// NewNodes are the Nodes that are created afterwards, in that order.
	NewNodes []PlannedNode `json:"newNodes,omitempty"`
	// Full are the ClusterCIDRs that fill up meanwhile.
	Full []FillsUp `json:"full,omitempty"`
	// Pending is the number of pending Nodes today and with the plan, without NewNodes.
	Pending [2]int `json:"pending"`
}

// PlannedAction is what happens to one ClusterCIDR.
type PlannedAction struct {
	Action      Action `json:"action"`
	ClusterCIDR string `json:"clusterCIDR"`
	// Members is the number of Nodes that belong to it. One that is deleted stays until they are gone.
	Members int `json:"members,omitempty"`
	// Overlapping is with what else it shares addresses, if that is so only with the plan.
	Overlapping string `json:"overlapping,omitempty"`
	// Problem is why it will not allocate.
	Problem string `json:"problem,omitempty"`
}

// PlannedClusterCIDR compares a ClusterCIDR today and with the plan. An empty state means that there is none.
type PlannedClusterCIDR struct {
	Name  string    `json:"name"`
	State [2]string `json:"state"`
	Free  [2]uint64 `json:"free"` // of the family that has the fewest
}

// PlannedNode is what one Node has or gets.
type PlannedNode struct {
	Node        string         `json:"node"`
	Before      []netip.Prefix `json:"before,omitempty"`
	PodCIDRs    []netip.Prefix `json:"podCIDRs,omitempty"`
	ClusterCIDR string         `json:"clusterCIDR,omitempty"`
	// Why is why it is pending with the plan.
	Why string `json:"why,omitempty"`
}

// PlannedGroup is what the next Node like an example gets, today and with the plan.
type PlannedGroup struct {
	Example string    `json:"example"`
	Nodes   int       `json:"nodes"`
	From    [2]string `json:"from"` // the name of the ClusterCIDR; empty: it would be pending
	Room    [2]uint64 `json:"room"` // how many more such Nodes get podCIDRs
}

// FillsUp says that the last block of a ClusterCIDR is allocated to a new Node.
type FillsUp struct {
	ClusterCIDR string `json:"clusterCIDR"`
	After       int    `json:"after"` // so many new Nodes
}

// Plan applies changes to a copy of a cluster's objects, all at once, and compares what the controller then does with what it does today.
func (objects Objects) Plan(changes Changes) (Plan, error) {
	after, actions, err := objects.with(changes)
	if err != nil {
		return Plan{}, err
	}
	today, then := New(objects), New(after)
	today.settle()
	then.settle()
	plan := Plan{Actions: actions, ClusterCIDRs: compareClusterCIDRs(today, then), Nodes: compareNodes(today, then), Groups: compareGroups(today, then)}
	for i := range plan.Actions {
		then.judge(&plan.Actions[i], today)
	}
	for i, c := range []*Cluster{today, then} {
		for _, p := range c.pending() {
			plan.Pending[i] += len(p.Nodes)
		}
	}
	plan.NewNodes, plan.Full = then.grow(changes)
	return plan, nil
}

// with returns the objects after changes, and the actions.
func (objects Objects) with(changes Changes) (after Objects, actions []PlannedAction, err error) {
	after, actions = objects, []PlannedAction{}
	after.ClusterCIDRs = slices.Clone(objects.ClusterCIDRs)
	for _, cc := range changes.Apply {
		actions = append(actions, after.apply(cc))
	}
	for _, name := range changes.Delete {
		i := slices.IndexFunc(after.ClusterCIDRs, func(cc *networkingv1.ClusterCIDR) bool { return cc.Name == name })
		if i < 0 {
			return after, nil, fmt.Errorf("there is no ClusterCIDR %s to delete: kubectl get clustercidrs.networking.x-k8s.io lists their names", name)
		}
		deleted := after.ClusterCIDRs[i].DeepCopy()
		deleted.DeletionTimestamp = &metav1.Time{}
		after.ClusterCIDRs[i] = deleted
		actions = append(actions, PlannedAction{Action: Delete, ClusterCIDR: name})
	}
	return after, actions, nil
}

// apply adds a ClusterCIDR, or changes the one of its name.
func (objects *Objects) apply(cc *networkingv1.ClusterCIDR) PlannedAction {
	i := slices.IndexFunc(objects.ClusterCIDRs, func(o *networkingv1.ClusterCIDR) bool { return o.Name == cc.Name })
	if i < 0 {
		created := cc.DeepCopy()
		created.UID = types.UID("new " + cc.Name)
		objects.ClusterCIDRs = append(objects.ClusterCIDRs, created)
		return PlannedAction{Action: Create, ClusterCIDR: cc.Name}
	}
	old := objects.ClusterCIDRs[i]
	if equality.Semantic.DeepEqual(normal(old.Spec), normal(cc.Spec)) {
		return PlannedAction{Action: Unchanged, ClusterCIDR: cc.Name}
	}
	changed := old.DeepCopy()
	changed.Spec = *cc.Spec.DeepCopy()
	objects.ClusterCIDRs[i] = changed
	return PlannedAction{Action: Change, ClusterCIDR: cc.Name}
}

// normal replaces an explicit default by none.
func normal(spec networkingv1.ClusterCIDRSpec) networkingv1.ClusterCIDRSpec {
	if spec.Allocation == networkingv1.AllocationEnabled {
		spec.Allocation = ""
	}
	return spec
}

// judge fills in what an action means for its ClusterCIDR.
func (c *Cluster) judge(action *PlannedAction, today *Cluster) {
	p, ok := c.state.Pool(action.ClusterCIDR)
	if !ok {
		return
	}
	for range c.state.Members(p) {
		action.Members++
	}
	if p.State == ipam.Invalid {
		action.Problem = p.Problem
	}
	overlapping := c.state.Overlapping(p)
	if overlapping.Status != metav1.ConditionTrue || action.Action == Delete {
		return
	}
	if old, ok := today.state.Pool(action.ClusterCIDR); !ok || today.state.Overlapping(old).Message != overlapping.Message {
		action.Overlapping = overlapping.Message
	}
}

// compareClusterCIDRs returns the ClusterCIDRs that differ, sorted by name.
func compareClusterCIDRs(today, then *Cluster) []PlannedClusterCIDR {
	by := map[string]PlannedClusterCIDR{}
	for i, c := range []*Cluster{today, then} {
		for _, p := range c.state.Pools() {
			row := by[p.Name]
			row.Name, row.State[i], row.Free[i] = p.Name, c.state.Ready(p).Reason, c.fewestFree(p)
			by[p.Name] = row
		}
	}
	rows := []PlannedClusterCIDR{}
	for _, row := range by {
		if row.State[0] != row.State[1] || row.Free[0] != row.Free[1] {
			rows = append(rows, row)
		}
	}
	slices.SortFunc(rows, func(a, b PlannedClusterCIDR) int { return strings.Compare(a.Name, b.Name) })
	return rows
}

// compareNodes returns the Nodes without podCIDRs for which the plan makes a difference, the oldest first.
func compareNodes(today, then *Cluster) []PlannedNode {
	rows := []PlannedNode{}
	nodes := slices.Clone(then.Nodes)
	slices.SortFunc(nodes, func(a, b *v1.Node) int {
		return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), strings.Compare(a.Name, b.Name))
	})
	for _, node := range nodes {
		if clustercidr.ShowsPodCIDRs(node) {
			continue
		}
		before, row := today.outcome(node.Name), then.outcome(node.Name)
		if row.ClusterCIDR != before.ClusterCIDR || !slices.Equal(row.PodCIDRs, before.PodCIDRs) {
			row.Before = before.PodCIDRs
			rows = append(rows, row)
		}
	}
	return rows
}

// outcome is what a Node without podCIDRs gets.
func (c *Cluster) outcome(name string) PlannedNode {
	row := PlannedNode{Node: name}
	if view, ok := c.state.Node(name); ok && len(view.Blocks) > 0 {
		row.PodCIDRs, row.ClusterCIDR = c.podCIDRs(view.Blocks), view.ClusterCIDR
	} else if p, ok := c.state.Pending(name); ok {
		row.Why = p.Why
	}
	return row
}

// compareGroups returns the groups of Nodes with equal candidates, today and with the plan, for which the plan makes a difference.
func compareGroups(today, then *Cluster) []PlannedGroup {
	groups := []PlannedGroup{}
	index := map[string]int{}
	for _, node := range then.Nodes {
		old, was := today.enabled(node)
		now, is := then.enabled(node)
		key := was + "\n" + is
		i, known := index[key]
		if !known {
			i = len(groups)
			index[key] = i
			groups = append(groups, PlannedGroup{
				Example: node.Name, From: [2]string{today.first(old), then.first(now)}, Room: [2]uint64{today.room(old), then.room(now)},
			})
		}
		groups[i].Nodes++
		groups[i].Example = min(groups[i].Example, node.Name)
	}
	groups = slices.DeleteFunc(groups, func(g PlannedGroup) bool { return g.From[0] == g.From[1] && g.Room[0] == g.Room[1] })
	slices.SortFunc(groups, func(a, b PlannedGroup) int {
		return cmp.Or(cmp.Compare(b.Nodes, a.Nodes), strings.Compare(a.Example, b.Example))
	})
	return groups
}

// first returns the name of the first candidate that can serve a Node now; empty if none can.
func (c *Cluster) first(candidates []*clustercidr.Pool) string {
	for _, p := range candidates {
		if c.refusal(p) == "" {
			return p.Name
		}
	}
	return ""
}

// grow creates the new Nodes of a plan, one after the other.
func (c *Cluster) grow(changes Changes) (nodes []PlannedNode, full []FillsUp) {
	for i := range changes.NewNodes {
		name := fmt.Sprintf("(new Node %d)", i+1)
		c.create(name, changes.Labels)
		row := c.outcome(name)
		nodes = append(nodes, row)
		for _, p := range c.fullBesides(full, row.PodCIDRs) {
			full = append(full, FillsUp{p, i + 1})
		}
	}
	return nodes, full
}

// fullBesides returns the names of the ClusterCIDRs that a Node's new blocks have filled up, besides those that are known to be full.
func (c *Cluster) fullBesides(known []FillsUp, blocks []netip.Prefix) (names []string) {
	for _, p := range c.state.Pools() {
		overlaps := slices.ContainsFunc(p.Extent(), func(r netip.Prefix) bool { return slices.ContainsFunc(blocks, r.Overlaps) })
		if !overlaps || p.State != ipam.Enabled || slices.ContainsFunc(known, func(f FillsUp) bool { return f.ClusterCIDR == p.Name }) {
			continue
		}
		if c.refusal(p) != "" {
			names = append(names, p.Name)
		}
	}
	return names
}

// LabelsLike returns the labels of new Nodes that are like another one: those of that Node, without the name of its host, which each Node has
// for itself.
func LabelsLike(node *v1.Node) map[string]string {
	labels := maps.Clone(node.Labels)
	delete(labels, v1.LabelHostname)
	return labels
}

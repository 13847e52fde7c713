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
	"github.com/multicidr/controller-manager/controllers/nodeipam/pool"
)

// Changes are what a plan does to a cluster.
type Changes struct {
	Apply   []*networkingv1.ClusterCIDR // created, or changed if one of the name exists
	Disable []string                    // names of ClusterCIDRs
	Delete  []string                    // names of ClusterCIDRs
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
	Disable   Action = "Disable"
	Delete    Action = "Delete"
	Unchanged Action = "Unchanged"
)

// Plan is what changes would do.
type Plan struct {
	// Actions are the ClusterCIDRs that are created, changed, disabled and deleted.
	Actions []PlannedAction `json:"actions"`
	// ClusterCIDRs are all whose counts or state differ.
	ClusterCIDRs []PlannedClusterCIDR `json:"clusterCIDRs"`
	// Nodes are those that get other podCIDRs than today, or get some or none where today they do not.
	Nodes []PlannedNode `json:"nodes"`
	// Groups say which ClusterCIDR serves the next Node like those that there are, where that differs.
	Groups []PlannedGroup `json:"groups"`
	// NewNodes are the Nodes that are created afterwards, in that order.
	NewNodes []PlannedNode `json:"newNodes,omitempty"`
	// Replacements are the Nodes that belong to ClusterCIDRs that are disabled or deleted, in the order in which to replace them, and what a
	// new Node with the same labels gets.
	Replacements []PlannedNode `json:"replacements,omitempty"`
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
	// Message says why it is pending with the plan.
	Message string `json:"message,omitempty"`
}

// PlannedGroup is the Nodes like which the next one gets podCIDRs from the same ClusterCIDRs, today and with the plan.
type PlannedGroup struct {
	Example string    `json:"example"`
	Nodes   int       `json:"nodes"`
	From    [2]string `json:"from"` // the name of the ClusterCIDR; empty: it would be pending
	// OnlyFamily is the one family that the next Node would get with the plan, although Nodes of the group have both.
	OnlyFamily string `json:"onlyFamily,omitempty"`
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
	plan := Plan{Actions: actions, ClusterCIDRs: compareClusterCIDRs(today, then), Groups: compareGroups(today, then)}
	plan.Nodes, plan.Pending = compareNodes(today, then)
	for i := range plan.Actions {
		then.judge(&plan.Actions[i], today)
	}
	for i := range changes.NewNodes {
		plan.NewNodes = append(plan.NewNodes, then.outcome(then.create(fmt.Sprintf("(new Node %d)", i+1), changes.Labels)))
	}
	for _, name := range slices.Concat(changes.Disable, changes.Delete) {
		plan.Replacements = append(plan.Replacements, then.replace(name)...)
	}
	slices.SortStableFunc(plan.Replacements, func(a, b PlannedNode) int { return cmp.Compare(len(a.Message), 0) - cmp.Compare(len(b.Message), 0) })
	return plan, nil
}

// with returns the objects after changes, and the actions.
func (objects Objects) with(changes Changes) (after Objects, actions []PlannedAction, err error) {
	after, actions = objects, []PlannedAction{}
	after.ClusterCIDRs = slices.Clone(objects.ClusterCIDRs)
	for _, cc := range changes.Apply {
		actions = append(actions, after.apply(cc))
	}
	edit := func(action Action, names []string, change func(*networkingv1.ClusterCIDR)) error {
		for _, name := range names {
			i := slices.IndexFunc(after.ClusterCIDRs, func(cc *networkingv1.ClusterCIDR) bool { return cc.Name == name })
			if i < 0 {
				return fmt.Errorf("there is no ClusterCIDR %s to %s: kubectl get clustercidrs.networking.x-k8s.io lists their names", name, strings.ToLower(string(action)))
			}
			changed := after.ClusterCIDRs[i].DeepCopy()
			change(changed)
			after.ClusterCIDRs[i] = changed
			actions = append(actions, PlannedAction{Action: action, ClusterCIDR: name})
		}
		return nil
	}
	err = cmp.Or(
		edit(Disable, changes.Disable, func(cc *networkingv1.ClusterCIDR) { cc.Spec.Allocation = networkingv1.AllocationDisabled }),
		edit(Delete, changes.Delete, func(cc *networkingv1.ClusterCIDR) { cc.DeletionTimestamp = &metav1.Time{} }),
	)
	return after, actions, err
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
	before, after := old.Spec, cc.Spec
	before.Allocation, after.Allocation = cmp.Or(before.Allocation, networkingv1.AllocationEnabled), cmp.Or(after.Allocation, networkingv1.AllocationEnabled)
	if equality.Semantic.DeepEqual(before, after) {
		return PlannedAction{Action: Unchanged, ClusterCIDR: cc.Name}
	}
	changed := old.DeepCopy()
	changed.Spec = *cc.Spec.DeepCopy()
	objects.ClusterCIDRs[i] = changed
	return PlannedAction{Action: Change, ClusterCIDR: cc.Name}
}

// judge fills in what an action means for its ClusterCIDR.
func (c *Cluster) judge(action *PlannedAction, today *Cluster) {
	p, ok := c.state.Pool(action.ClusterCIDR)
	if !ok {
		return
	}
	action.Members = c.state.Users(p)
	if p.State == ipam.Invalid {
		action.Problem = p.Problem
	}
	overlapping := whileTrue(c.state.Overlapping(p))
	if old, ok := today.state.Pool(p.Name); action.Action != Delete && (!ok || whileTrue(today.state.Overlapping(old)) != overlapping) {
		action.Overlapping = overlapping
	}
}

// compareClusterCIDRs returns the ClusterCIDRs that differ, sorted by name.
func compareClusterCIDRs(today, then *Cluster) []PlannedClusterCIDR {
	by := map[string]PlannedClusterCIDR{}
	for i, c := range []*Cluster{today, then} {
		for _, p := range c.state.Pools() {
			row := by[p.Name]
			row.Name, row.Free[i] = p.Name, c.fewestFree(p)
			row.State[i] = c.state.Ready(p).Reason
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

// compareNodes returns the Nodes without podCIDRs for which the plan makes a difference, the oldest first, and how many are pending.
func compareNodes(today, then *Cluster) (rows []PlannedNode, pending [2]int) {
	rows = []PlannedNode{}
	for _, node := range slices.SortedFunc(slices.Values(then.nodes), compareAge) {
		if pool.ShowsPodCIDRs(node) {
			continue
		}
		before, row := today.outcome(node), then.outcome(node)
		pending[0] += btoi(before.Message != "")
		pending[1] += btoi(row.Message != "")
		if row.ClusterCIDR != before.ClusterCIDR || !slices.Equal(row.PodCIDRs, before.PodCIDRs) {
			row.Before = before.PodCIDRs
			rows = append(rows, row)
		}
	}
	return rows, pending
}

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}

// outcome is what a Node without podCIDRs gets.
func (c *Cluster) outcome(node *v1.Node) PlannedNode {
	s := c.node(node)
	row := PlannedNode{Node: s.Node, PodCIDRs: s.PodCIDRs, ClusterCIDR: strings.Join(s.ClusterCIDRs, "")}
	if s.State == Pending {
		row.Message = s.Message
	}
	return row
}

// compareGroups returns for which Nodes the next one like them is served by another ClusterCIDR than today, most Nodes first.
func compareGroups(today, then *Cluster) []PlannedGroup {
	by := map[[2]string]*PlannedGroup{}
	firstToday, firstThen := today.first(), then.first()
	for _, node := range then.nodes {
		from := [2]string{firstToday(node), firstThen(node)}
		g := by[from]
		switch {
		case from[0] == from[1]:
			continue
		case g == nil:
			g = &PlannedGroup{Example: node.Name, From: from}
			by[from] = g
		}
		g.Nodes++
		g.Example = min(g.Example, node.Name)
		if blocks, _ := pool.PodCIDRsOf(node); len(blocks) > 1 {
			g.OnlyFamily = then.onlyFamily(from[1])
		}
	}
	groups := []PlannedGroup{}
	for _, g := range by {
		groups = append(groups, *g)
	}
	slices.SortFunc(groups, func(a, b PlannedGroup) int {
		return cmp.Or(cmp.Compare(b.Nodes, a.Nodes), strings.Compare(a.Example, b.Example))
	})
	return groups
}

// onlyFamily is the family of a ClusterCIDR that has one; empty if it has both, or there is none of the name.
func (c *Cluster) onlyFamily(name string) string {
	if p, ok := c.state.Pool(name); ok && len(p.Ranges) == 1 {
		return p.Ranges[0].Family().String()
	}
	return ""
}

// first returns a function that returns the name of the first candidate of a Node that can serve one now; empty if none can.
func (c *Cluster) first() func(*v1.Node) string {
	serves := map[string]bool{}
	for _, p := range c.state.Pools() {
		serves[p.Name] = c.state.Refusal(p) == ""
	}
	return func(node *v1.Node) string {
		for p := range c.state.Candidates(node) {
			if serves[p.Name] {
				return p.Name
			}
		}
		return ""
	}
}

// replace returns the Nodes that belong to a ClusterCIDR, the oldest first, and creates one like each of them.
func (c *Cluster) replace(name string) (all []PlannedNode) {
	p, _ := c.state.Pool(name)
	var members []*v1.Node
	for member := range c.state.Members(p) {
		members = append(members, c.byName[member])
	}
	slices.SortFunc(members, compareAge)
	for _, node := range members {
		row := c.outcome(c.create(fmt.Sprintf("(replacement of %s)", node.Name), LabelsLike(node)))
		row.Node = node.Name
		row.Before, _ = pool.PodCIDRsOf(node)
		all = append(all, row)
	}
	return all
}

// LabelsLike returns the labels of new Nodes that are like another one: those of that Node, without the name of its host, which each Node has
// for itself.
func LabelsLike(node *v1.Node) map[string]string {
	labels := maps.Clone(node.Labels)
	delete(labels, v1.LabelHostname)
	return labels
}

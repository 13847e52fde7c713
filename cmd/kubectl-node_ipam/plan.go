package main

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"k8s.io/apimachinery/pkg/labels"

	networkingv1 "github.com/multicidr/controller-manager/apis/networking/v1"
	"github.com/multicidr/controller-manager/cmd/internal/files"
	"github.com/multicidr/controller-manager/cmd/kubectl-node_ipam/internal/cluster"
	"github.com/multicidr/controller-manager/cmd/kubectl-node_ipam/internal/show"
	"github.com/multicidr/controller-manager/controllers/nodeipam/inspect"
	"github.com/multicidr/controller-manager/controllers/text"
)

// planFlags are the flags of plan.
type planFlags struct {
	files, disable, delete []string
	nodes                  int
	like, labels           string
}

// plan is the answer of plan.
type plan struct {
	inspect.Plan
	// Refusals are why the API server would not store ClusterCIDRs. Then nothing of the rest is computed.
	Refusals []files.Refusal `json:"refusals,omitempty"`
}

func (p *program) planCommand() *cobra.Command {
	var f planFlags
	c := &cobra.Command{
		Use:   "plan [-f FILE]... [--disable CLUSTERCIDR]... [--delete CLUSTERCIDR]... [--nodes N --like NODE]",
		Short: "Show what a change of ClusterCIDRs, or more Nodes, would do",
		Long: "Applies files with ClusterCIDRs, --disable and --delete to a copy of the cluster's state, and compares what the controller then does with what it does now. Nothing is changed in the cluster. " +
			"All changes are as if made at once. With --nodes, that many Nodes are then created one after the other, with the labels of --like or --labels: which podCIDRs they get, and which of them are pending. " +
			"For a ClusterCIDR that is disabled or deleted, it shows the Nodes that belong to it, in the order in which to replace them, and from where a Node with the same labels gets its podCIDRs.",
		Example: "  # What happens if I apply this file?\n  kubectl node-ipam plan -f edge-2.yaml\n\n" +
			"  # Does the cluster have room for 50 more Nodes like worker-7?\n  kubectl node-ipam plan --nodes 50 --like worker-7\n\n" +
			"  # I want to retire this range: which Nodes use it, and which do I replace first?\n  kubectl node-ipam plan --disable edge\n\n" +
			"  # And with the file, and without another ClusterCIDR?\n  kubectl node-ipam plan -f edge-2.yaml --delete edge --nodes 50 --labels example.com/pool=edge",
		Args: exactly(0, "flags only"),
		RunE: func(c *cobra.Command, _ []string) error { return p.plan(c, f) },
	}
	c.Flags().StringSliceVarP(&f.files, "filename", "f", nil, "files or directories with ClusterCIDRs that are created, or changed if they exist. Other objects in them are ignored")
	c.Flags().StringSliceVar(&f.disable, "disable", nil, "names of ClusterCIDRs whose spec.allocation is set to Disabled")
	c.Flags().StringSliceVar(&f.delete, "delete", nil, "names of ClusterCIDRs that are deleted")
	c.Flags().IntVar(&f.nodes, "nodes", 0, "how many Nodes are created afterwards: without labels, unless --like or --labels names some")
	c.Flags().StringVar(&f.like, "like", "", "the Node whose labels they have, but for the name of the host")
	c.Flags().StringVar(&f.labels, "labels", "", "the labels that they have: a=b,c=d")
	for flag, kind := range map[string]string{"like": cluster.Nodes, "disable": cluster.ClusterCIDRs, "delete": cluster.ClusterCIDRs} {
		_ = c.RegisterFlagCompletionFunc(flag, p.complete(kind)) // The flags exist.
	}
	p.addOutput(c, show.Table, show.Wide, show.JSON, show.YAML, show.Name)
	return c
}

// maxNewNodes limits --nodes, since each is shown.
const maxNewNodes = 100_000

func (f planFlags) check() error {
	switch {
	case len(f.files)+len(f.disable)+len(f.delete) == 0 && f.nodes == 0:
		return usage("there is nothing to plan: name a file with -f, a ClusterCIDR with --disable or --delete, or a number of Nodes with --nodes")
	case f.nodes < 0 || f.nodes > maxNewNodes:
		return usage("--nodes=%d: it is from 1 to %d", f.nodes, maxNewNodes)
	case f.like != "" && f.labels != "":
		return usage("--like and --labels exclude each other")
	case f.nodes == 0 && (f.like != "" || f.labels != ""):
		return usage("--like and --labels are about new Nodes: say how many with --nodes")
	}
	return nil
}

func (p *program) plan(c *cobra.Command, f planFlags) error {
	if err := f.check(); err != nil {
		return err
	}
	planned, fruitless, err := files.Read(f.files)
	if err != nil {
		return err
	}
	for _, what := range fruitless {
		return fmt.Errorf("%s: name files that have ClusterCIDRs", what)
	}
	_, objects, err := p.read(c.Context())
	if err != nil {
		return err
	}
	if err := files.Apply(planned, objects.ClusterCIDRs); err != nil {
		return err
	}
	changes, err := f.changes(objects, planned)
	if err != nil {
		return err
	}
	var answer plan
	if answer.Refusals, err = files.Refusals(c.Context(), planned, objects.ClusterCIDRs); err != nil {
		return err
	}
	if len(answer.Refusals) == 0 {
		if answer.Plan, err = objects.Plan(changes); err != nil { // It is that there is no such ClusterCIDR.
			return exit{exitMissing, err}
		}
	}
	if err := p.write(answer, answer.names(), func(w *show.Writer) { writePlan(w, answer, f) }); err != nil {
		return err
	}
	return answer.code()
}

// changes returns what to do.
func (f planFlags) changes(objects cluster.Objects, planned []networkingv1.ClusterCIDR) (inspect.Changes, error) {
	changes := inspect.Changes{NewNodes: f.nodes, Disable: clusterCIDRNames(f.disable), Delete: clusterCIDRNames(f.delete)}
	for i := range planned {
		changes.Apply = append(changes.Apply, &planned[i])
	}
	if f.labels != "" {
		given, err := labels.ConvertSelectorToLabelsMap(f.labels)
		if err != nil {
			return changes, usage("--labels=%s: %w: write key=value, with commas between several", f.labels, err)
		}
		changes.Labels = given
	}
	if f.like == "" {
		return changes, nil
	}
	for _, node := range objects.Nodes {
		if node.Name == strings.TrimPrefix(f.like, "node/") {
			changes.Labels = inspect.LabelsLike(node)
			return changes, nil
		}
	}
	return changes, noSuch("Node", f.like, "kubectl get nodes")
}

// clusterCIDRNames returns the names of the values of a flag, each once.
func clusterCIDRNames(values []string) (names []string) {
	for _, value := range values {
		if name := strings.TrimPrefix(value, clusterCIDRName); !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names
}

// names are the Nodes that the plan makes a difference for, and those to replace.
func (a plan) names() (names []string) {
	for _, n := range a.Nodes {
		names = append(names, "node/"+n.Node)
	}
	for _, n := range a.Replacements {
		names = append(names, "node/"+n.Node)
	}
	return names
}

// code is the exit code: whether objects would be refused, or Nodes would be pending that are not now.
func (a plan) code() error {
	isPending := func(n inspect.PlannedNode) bool { return len(n.PodCIDRs) == 0 }
	switch {
	case len(a.Refusals) > 0:
		return exit{code: exitRefused}
	case slices.ContainsFunc(a.Nodes, isPending), slices.ContainsFunc(a.NewNodes, isPending),
		slices.ContainsFunc(a.Replacements, isPending):
		return exit{code: exitAct}
	default:
		return nil
	}
}

func writePlan(w *show.Writer, a plan, f planFlags) {
	if len(a.Refusals) > 0 {
		w.Printf("The API server would refuse this:")
		for _, r := range a.Refusals {
			w.Printf("  ClusterCIDR %s: %s", r.ClusterCIDR, w.In(show.Red, r.Message))
		}
		return
	}
	for _, action := range a.Actions {
		writeAction(w, action)
	}
	w.Printf("Pending Nodes: %d now, %d with the plan.", a.Pending[0], a.Pending[1])
	if len(a.ClusterCIDRs)+len(a.Nodes)+len(a.Groups)+len(a.Replacements) == 0 && len(a.Actions) > 0 {
		w.Printf("The plan makes no difference for any Node.")
	}
	writeCompared(w, a)
	writeChanged(w, a.Nodes)
	if f.nodes > 0 {
		writeNew(w, a, f)
	}
	writeReplacements(w, a.Replacements)
}

func writeAction(w *show.Writer, action inspect.PlannedAction) {
	color := map[inspect.Action]show.Color{inspect.Create: show.Green, inspect.Change: show.Yellow, inspect.Disable: show.Yellow, inspect.Delete: show.Red}[action.Action]
	line := fmt.Sprintf("%s ClusterCIDR %s", w.In(color, string(action.Action)), action.ClusterCIDR)
	belong := text.Counted(action.Members, "Node that belongs to it is gone", "Nodes that belong to it are gone")
	switch {
	case action.Action == inspect.Disable && action.Members > 0:
		line += fmt.Sprintf(": it allocates nothing more. Delete it when the %s", belong)
	case action.Action == inspect.Disable:
		line += ": it allocates nothing more. No Node belongs to it, so it can be deleted"
	case action.Action == inspect.Delete && action.Members > 0:
		line += fmt.Sprintf(": it is terminating until %s, and allocates nothing meanwhile", belong)
	case action.Action == inspect.Delete:
		line += ": no Node belongs to it, so it is removed at once"
	}
	w.Printf("%s", line)
	if action.Problem != "" {
		w.Printf("  %s: %s", w.In(show.Red, "It allocates nothing"), action.Problem)
	}
	if action.Overlapping != "" {
		w.Printf("  %s: %s", w.In(show.Yellow, "Overlapping"), action.Overlapping)
	}
}

// writeCompared writes what differs for ClusterCIDRs and groups of Nodes.
func writeCompared(w *show.Writer, a plan) {
	if len(a.ClusterCIDRs) > 0 {
		rows := show.NewRows("CLUSTERCIDR", "STATE NOW", "STATE PLANNED", "FREE NOW", "FREE PLANNED")
		for _, cc := range a.ClusterCIDRs {
			free := [2]string{inspect.Count(cc.Free[0]), inspect.Count(cc.Free[1])}
			for i, state := range cc.State {
				if state == "" {
					free[i] = ""
				}
			}
			rows.Add(cc.Name, cc.State[0], cc.State[1], free[0], free[1])
		}
		w.Printf("")
		w.Rows(rows)
	}
	if len(a.Groups) > 0 {
		rows := show.NewRows("NODES", "FOR EXAMPLE", "NEXT ONE'S PODCIDRS FROM, NOW", "PLANNED")
		for _, g := range a.Groups {
			rows.Add(g.Nodes, g.Example, source(g.From[0]), source(g.From[1]))
		}
		w.Printf("")
		w.Rows(rows)
	}
	for _, g := range a.Groups {
		if g.OnlyFamily != "" {
			w.Printf("%s: Nodes like %s have podCIDRs of both families, and new ones would get %s only. To keep both, plan a ClusterCIDR with both.",
				w.In(show.Yellow, "Warning"), g.Example, g.OnlyFamily)
		}
	}
}

// source is the ClusterCIDR from which a Node gets podCIDRs.
func source(name string) show.Colored {
	if name == "" {
		return show.Colored{Value: "none: pending", Color: show.Red}
	}
	return show.Colored{Value: name}
}

func writeReplacements(w *show.Writer, all []inspect.PlannedNode) {
	if len(all) == 0 {
		return
	}
	w.Printf("")
	w.Printf("Replace these Nodes in this order, and keep labels and taints that were set by hand. For each Node: %s.", text.Replace)
	writePlanned(w, all, show.NewRows("#", "NODE", "PODCIDRS", "ITS REPLACEMENT GETS PODCIDRS FROM"), func(i int, n inspect.PlannedNode) []any {
		return []any{i + 1, n.Node, prefixes(n.Before), source(n.ClusterCIDR)}
	})
}

func writeChanged(w *show.Writer, all []inspect.PlannedNode) {
	if len(all) == 0 {
		return
	}
	w.Printf("")
	writePlanned(w, all, show.NewRows("NODES THAT GET SOMETHING ELSE", "NOW", "PLANNED", "FROM"), func(_ int, n inspect.PlannedNode) []any {
		then := show.Colored{Value: prefixes(n.PodCIDRs)}
		if len(n.PodCIDRs) == 0 {
			then = show.Colored{Value: "pending", Color: show.Red}
		}
		return []any{n.Node, cmp.Or(prefixes(n.Before), "pending"), then, n.ClusterCIDR}
	})
}

// maxPlanned is how many Nodes a table names; -o wide and JSON have all.
const maxPlanned = 20

// writePlanned writes a table of Nodes, and why some are pending, each reason once.
func writePlanned(w *show.Writer, all []inspect.PlannedNode, rows *show.Rows, row func(i int, n inspect.PlannedNode) []any) {
	shown := all
	if !w.Wide {
		shown = all[:min(len(all), maxPlanned)]
	}
	for i, n := range shown {
		rows.Add(row(i, n)...)
	}
	w.Rows(rows)
	if more := len(all) - len(shown); more > 0 {
		w.Printf("%s", w.In(show.Gray, fmt.Sprintf("and %d more: -o wide has all", more)))
	}
	for _, reason := range reasons(all) {
		w.Printf("Pending: %s", reason)
	}
}

// reasons are why Nodes are pending, each once.
func reasons(nodes []inspect.PlannedNode) (all []string) {
	for _, n := range nodes {
		if n.Message != "" && !slices.Contains(all, n.Message) {
			all = append(all, n.Message)
		}
	}
	return all
}

// writeNew writes what new Nodes get: runs of Nodes from the same ClusterCIDR.
func writeNew(w *show.Writer, a plan, f planFlags) {
	w.Printf("")
	if f.like == "" && f.labels == "" {
		w.Printf("The new Nodes have no labels: name some with --like or --labels.")
	}
	rows := show.NewRows("NEW NODES", "PODCIDRS", "FROM")
	var pending []inspect.PlannedNode
	for first := 0; first < len(a.NewNodes); {
		last := first
		if !w.Wide {
			for last+1 < len(a.NewNodes) && a.NewNodes[last+1].ClusterCIDR == a.NewNodes[first].ClusterCIDR {
				last++
			}
		}
		rows.Add(numbers(first, last), blocksOf(a.NewNodes[first:last+1]), source(a.NewNodes[first].ClusterCIDR))
		if a.NewNodes[first].ClusterCIDR == "" {
			pending = append(pending, a.NewNodes[first:last+1]...)
		}
		first = last + 1
	}
	w.Rows(rows)
	if len(pending) == 0 {
		w.Printf("%s", w.In(show.Green, fmt.Sprintf("All %d new Nodes get podCIDRs.", len(a.NewNodes))))
		return
	}
	w.Printf("%s %s", w.In(show.Red, fmt.Sprintf("%d of %d new Nodes are pending.", len(pending), len(a.NewNodes))), strings.Join(reasons(pending), " "))
}

func numbers(first, last int) string {
	if first == last {
		return fmt.Sprint(first + 1)
	}
	return fmt.Sprintf("%d-%d", first+1, last+1)
}

// blocksOf names the blocks of the first Node and of the last one.
func blocksOf(nodes []inspect.PlannedNode) string {
	first, last := nodes[0].PodCIDRs, nodes[len(nodes)-1].PodCIDRs
	if len(nodes) == 1 || len(first) == 0 {
		return prefixes(first)
	}
	return prefixes(first) + " ... " + prefixes(last)
}

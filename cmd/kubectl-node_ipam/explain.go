package main

import (
	"cmp"
	"fmt"
	"net/netip"
	"strings"

	"github.com/spf13/cobra"

	"k8s.io/apimachinery/pkg/labels"

	"github.com/multicidr/controller-manager/cmd/kubectl-node_ipam/internal/cluster"
	"github.com/multicidr/controller-manager/cmd/kubectl-node_ipam/internal/show"
	"github.com/multicidr/controller-manager/controllers/nodeipam/inspect"
	"github.com/multicidr/controller-manager/controllers/text"
)

// clusterCIDRName is the prefix of a ClusterCIDR's name in -o name. kubectl takes such names as arguments.
const clusterCIDRName = "clustercidr.networking.x-k8s.io/"

func (p *program) explainCommand() *cobra.Command {
	var set string
	c := &cobra.Command{
		Use:   "explain NODE | --labels a=b,c=d",
		Short: "Explain what podCIDRs a Node has or would get, and why",
		Long: "Shows which ClusterCIDRs are tried for a Node, in which order and why, and what the Node has from which of them or would get now. FREE counts the free blocks of the family that has fewer.\n" +
			"With --labels the Node does not exist: it is one with these labels that is created now, after all others.",
		Example: "  # Why has this Node no podCIDRs?\n  kubectl node-ipam explain worker-7\n\n" +
			"  # What would a new Node get?\n  kubectl node-ipam explain --labels example.com/pool=edge,topology.kubernetes.io/zone=a",
		Args: func(c *cobra.Command, args []string) error {
			if len(args) > 1 || len(args) == 0 && !c.Flags().Changed("labels") {
				return usage("name one Node, or the labels of a new one with --labels: %s --help shows examples", c.CommandPath())
			}
			return nil
		},
		ValidArgsFunction: p.complete(cluster.Nodes),
		RunE: func(c *cobra.Command, args []string) error {
			name := strings.TrimPrefix(strings.Join(args, ""), "node/")
			if !c.Flags().Changed("labels") {
				return p.explain(c, func(all *inspect.Cluster) (inspect.Explanation, error) {
					e, ok := all.Explain(name)
					if !ok {
						return e, noSuch("Node", name, "kubectl get nodes")
					}
					return e, nil
				})
			}
			given, err := labels.ConvertSelectorToLabelsMap(set)
			if err != nil {
				return usage("--labels=%s: %w: write key=value, with commas between several", set, err)
			}
			return p.explain(c, func(all *inspect.Cluster) (inspect.Explanation, error) {
				if _, exists := all.Explain(name); exists && name != "" {
					return inspect.Explanation{}, usage("the Node %s exists: leave out --labels, or the name", name)
				}
				return all.ExplainNew(cmp.Or(name, inspect.NewNode), given), nil
			})
		},
	}
	c.Flags().StringVar(&set, "labels", "", "labels of a Node that does not exist: a=b,c=d; empty for one without labels")
	p.addOutput(c, show.Table, show.Wide, show.JSON, show.YAML, show.Name)
	return c
}

func (p *program) explain(c *cobra.Command, ask func(*inspect.Cluster) (inspect.Explanation, error)) error {
	_, objects, err := p.read(c.Context())
	if err != nil {
		return err
	}
	e, err := ask(inspect.New(objects.Objects))
	if err != nil {
		return err
	}
	var from []string
	for _, name := range e.ClusterCIDRs {
		from = append(from, clusterCIDRName+name)
	}
	if err := p.write(e, from, func(w *show.Writer) { writeExplanation(w, e) }); err != nil {
		return err
	}
	if e.State == inspect.Pending || len(e.Findings) > 0 {
		return exit{code: exitAct}
	}
	return nil
}

func writeExplanation(w *show.Writer, e inspect.Explanation) {
	w.Printf("%s", headline(w, e))
	for _, f := range e.Findings {
		w.Printf("%s: %s", w.In(show.Red, f.Reason), f.Message)
	}
	if e.Older > 0 {
		w.Printf("%s", text.Counted(e.Older, "older Node has no podCIDRs yet. It comes first.", "older Nodes have no podCIDRs yet. They come first."))
	}
	if len(e.Candidates) > 0 {
		w.Printf("")
		w.Printf("ClusterCIDRs that select the Node, in the order in which they are tried:")
		w.Rows(candidateRows(e))
	}
	if len(e.Others) > 0 {
		w.Printf("")
		w.Printf("ClusterCIDRs that do not select it:")
		rows := show.NewRows("NAME", "REASON")
		for _, o := range e.Others {
			rows.Add(o.ClusterCIDR, o.Reason)
		}
		w.Rows(rows)
	}
}

// headline says in one or two sentences what the Node has.
func headline(w *show.Writer, e inspect.Explanation) string {
	node := "Node " + e.Node
	if e.New && e.Node == inspect.NewNode {
		node = "A new Node"
		if len(e.Labels) > 0 {
			node += " with " + labels.Set(e.Labels).String()
		}
	}
	blocks := w.In(show.Green, strings.ReplaceAll(prefixes(e.PodCIDRs), ",", ", "))
	switch e.State {
	case inspect.Allocated:
		if len(e.PodCIDRs) == 0 {
			return node + " has podCIDRs that cannot be read."
		}
		return fmt.Sprintf("%s has %s%s.", node, blocks, origin(e))
	case inspect.Reserved:
		if e.New {
			return fmt.Sprintf("%s would get %s from ClusterCIDR %s.", node, blocks, e.ClusterCIDRs[0])
		}
		return fmt.Sprintf("%s is %s: it gets %s from ClusterCIDR %s. If it does not within two minutes, see that the controller runs: kubectl node-ipam status.", node, w.In(show.Yellow, "reserved"), blocks, e.ClusterCIDRs[0])
	case inspect.Deleting:
		return fmt.Sprintf("%s has no podCIDRs. %s", node, e.Message)
	default:
		be := "is"
		if e.New {
			be = "would be"
		}
		return fmt.Sprintf("%s %s %s. %s", node, be, w.In(show.Red, "pending"), e.Message)
	}
}

// origin says where a Node's podCIDRs are from.
func origin(e inspect.Explanation) string {
	var from string
	switch {
	case len(e.ClusterCIDRs) == 0:
		return ""
	case e.Named:
		from = " from ClusterCIDR " + e.ClusterCIDRs[0]
	case len(e.ClusterCIDRs) == 1:
		from = fmt.Sprintf(" in ClusterCIDR %s, of unknown origin: the Node does not name it, so another allocator wrote them, or the Node was created with them", e.ClusterCIDRs[0])
	default:
		from = fmt.Sprintf(" in the ClusterCIDRs %s, of unknown origin: the Node names none of them, so another allocator wrote them, or the Node was created with them", strings.Join(e.ClusterCIDRs, ", "))
	}
	if e.Writer != "" {
		from += ", written by " + e.Writer
	}
	return from
}

func candidateRows(e inspect.Explanation) *show.Rows {
	rows := show.NewRows("#", "NAME", "+PRIORITY", "+REQUIREMENTS", "FREE", "RESULT", "REASON", "TRIED LATER BECAUSE")
	for i, c := range e.Candidates {
		color := map[inspect.Outcome]show.Color{inspect.Chosen: show.Green, inspect.Refused: show.Red}[c.Outcome]
		rows.Add(i+1, c.ClusterCIDR, c.Priority, c.Requirements, inspect.Count(c.Free),
			show.Colored{Value: c.Outcome, Color: color}, c.Reason, c.After)
	}
	return rows
}

func prefixes(all []netip.Prefix) string {
	texts := make([]string, len(all))
	for i, p := range all {
		texts[i] = p.String()
	}
	return strings.Join(texts, ",")
}

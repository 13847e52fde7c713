package main

import (
	"bufio"
	"cmp"
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/multicidr/controller-manager/cmd/kubectl-node_ipam/internal/cluster"
	"github.com/multicidr/controller-manager/cmd/kubectl-node_ipam/internal/show"
	"github.com/multicidr/controller-manager/controllers/nodeipam/inspect"
	"github.com/multicidr/controller-manager/controllers/text"
)

// retireFlags are the flags of retire.
type retireFlags struct {
	disable, yes, watch bool
	interval            time.Duration
}

func (p *program) retireCommand() *cobra.Command {
	var f retireFlags
	c := &cobra.Command{
		Use:   "retire CLUSTERCIDR",
		Short: "Show which Nodes use a ClusterCIDR, and in what order to replace them",
		Long: "Shows the Nodes that belong to a ClusterCIDR, and where a Node with the same labels gets its podCIDRs when this ClusterCIDR allocates none any more. Those that would be pending come last. " +
			"With --disable it sets spec.allocation: Disabled, after it has asked: Nodes keep what they have. With --watch it shows how many Nodes are left, until there is none.",
		Example: "  # Who still uses it?\n  kubectl node-ipam retire edge\n\n  # Let it allocate nothing more, and follow how Nodes are replaced\n  kubectl node-ipam retire edge --disable --watch",
		Args:    exactly(1, "the name of one ClusterCIDR"), ValidArgsFunction: p.complete(cluster.ClusterCIDRs),
		RunE: func(c *cobra.Command, args []string) error {
			if f.interval <= 0 { // It would read the cluster again and again without a pause.
				return usage("--interval=%v: it is more than 0, for example 10s", f.interval)
			}
			return p.retire(c.Context(), strings.TrimPrefix(args[0], clusterCIDRName), f)
		},
	}
	c.Flags().BoolVar(&f.disable, "disable", false, "set spec.allocation: Disabled, after asking")
	c.Flags().BoolVar(&f.yes, "yes", false, "with --disable: do not ask")
	c.Flags().BoolVarP(&f.watch, "watch", "w", false, "show the number of Nodes whenever it changes, until no Node belongs to it")
	c.Flags().DurationVar(&f.interval, "interval", 10*time.Second, "with --watch: how often to look")
	p.addOutput(c, show.Table, show.JSON, show.YAML, show.Name)
	return c
}

func (p *program) retire(ctx context.Context, name string, f retireFlags) error {
	r, objects, err := p.read(ctx, cluster.Nodes, cluster.ClusterCIDRs)
	if err != nil {
		return err
	}
	answer, err := objects.Retire(name)
	if err != nil {
		return err
	}
	var names []string
	for _, n := range answer.Nodes {
		names = append(names, "node/"+n.Node)
	}
	if err := p.write(answer, names, func(w *show.Writer) { writeRetirement(w, answer) }); err != nil {
		return err
	}
	if f.disable && answer.Allocates {
		if err := p.disable(ctx, r, name, f.yes); err != nil {
			return err
		}
	}
	if f.watch {
		return p.follow(ctx, name, len(answer.Nodes), f.interval)
	}
	return nil
}

func writeRetirement(w *show.Writer, r inspect.Retirement) {
	state := "it allocates nothing: " + r.State
	if r.Allocates {
		state = "new Nodes can still get blocks of it: kubectl node-ipam retire " + r.ClusterCIDR + " --disable stops that"
	}
	w.Printf("%s to ClusterCIDR %s; %s.", text.Counted(len(r.Nodes), "Node belongs", "Nodes belong"), r.ClusterCIDR, state)
	if len(r.Nodes) == 0 {
		w.Printf("Delete it when you no longer need it: kubectl delete clustercidrs.networking.x-k8s.io %s", r.ClusterCIDR)
		return
	}
	w.Printf("")
	w.Printf("Replace them in this order: drain the Node, delete it, and reboot its machine, which registers it again.")
	rows := show.NewRows("#", "NODE", "PODCIDRS", "ITS REPLACEMENT GETS PODCIDRS FROM")
	var why []inspect.PlannedNode
	for i, n := range r.Nodes {
		from := show.Colored{Value: cmp.Or(n.From, "none: pending")}
		if n.From == "" {
			from.Color = show.Red
			why = append(why, inspect.PlannedNode{Why: n.Why})
		}
		rows.Add(i+1, n.Node, prefixes(n.PodCIDRs), from)
	}
	w.Rows(rows)
	for _, reason := range reasons(why) {
		w.Printf("Pending: %s", reason)
	}
}

// disable sets spec.allocation: Disabled after asking.
func (p *program) disable(ctx context.Context, r *cluster.Reader, name string, yes bool) error {
	if !yes {
		fmt.Fprintf(p.ErrOut, "Set spec.allocation: Disabled of ClusterCIDR %s? New Nodes get nothing from it then. [y/N] ", name)
		line, _ := bufio.NewReader(p.In).ReadString('\n') // Without an answer it is no.
		if answer := strings.ToLower(strings.TrimSpace(line)); answer != "y" && answer != "yes" {
			return exit{exitAct, fmt.Errorf("nothing was changed. With --yes this does not ask")}
		}
	}
	if err := r.Disable(ctx, name); err != nil {
		return err
	}
	fmt.Fprintf(p.ErrOut, "ClusterCIDR %s is disabled. To undo that: kubectl patch clustercidrs.networking.x-k8s.io %s --type=merge -p '{\"spec\":{\"allocation\":\"Enabled\"}}'\n", name, name)
	return nil
}

// follow shows how many Nodes belong to a ClusterCIDR whenever that changes, until none does.
func (p *program) follow(ctx context.Context, name string, left int, interval time.Duration) error {
	for left > 0 {
		select {
		case <-ctx.Done():
			return exit{code: exitAct}
		case <-time.After(interval):
		}
		_, objects, err := p.read(ctx, cluster.Nodes, cluster.ClusterCIDRs)
		if err != nil {
			return err
		}
		answer, err := objects.Retire(name)
		if err != nil { // It is gone: that is the end of every retirement.
			fmt.Fprintf(p.Out, "%s ClusterCIDR %s is gone\n", p.now().Format(time.TimeOnly), name)
			return nil
		}
		if len(answer.Nodes) != left {
			left = len(answer.Nodes)
			fmt.Fprintf(p.Out, "%s %s to ClusterCIDR %s\n", p.now().Format(time.TimeOnly), text.Counted(left, "Node belongs", "Nodes belong"), name)
		}
	}
	return nil
}

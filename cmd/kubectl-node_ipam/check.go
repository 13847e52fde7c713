package main

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	"github.com/multicidr/controller-manager/cmd/internal/preflight"
	"github.com/multicidr/controller-manager/cmd/kubectl-node_ipam/internal/show"
)

// checkTimeout bounds check, which reads many kinds of objects.
const checkTimeout = time.Minute

func (p *program) checkCommand() *cobra.Command {
	var o preflight.Options
	c := &cobra.Command{
		Use:   "check [-f FILE]... [--form FORM] [--before STEP]",
		Short: "Check whether the cluster is ready for the controller, and for more than one range",
		Long: "Checks versions, permissions, ranges, podCIDRs, other allocators, kube-proxy and network plugins. Each finding says what to do.\n\n" +
			"Exit codes: 0 if all is well, 1 if there are warnings, 2 if there is a problem, 3 if something cannot be read, and 64 if the command line is wrong.",
		Example: "  # Is this cluster ready?\n  kubectl node-ipam check\n\n" +
			"  # Also with the ClusterCIDRs that I am going to apply, and with the controller in its own program?\n  kubectl node-ipam check -f second.yaml --form node-ipam-controller\n\n" +
			"  # What is to be done before its chart is installed?\n  kubectl node-ipam check --before chart",
		Args: exactly(0, "flags only"),
		RunE: func(c *cobra.Command, _ []string) error { return p.check(c, &o) },
	}
	o.Add(c.Flags())
	_ = c.RegisterFlagCompletionFunc("before", cobra.FixedCompletions(preflight.Steps, cobra.ShellCompDirectiveNoFileComp)) // The flag exists.
	p.addOutput(c, show.Table, show.JSON, show.YAML)
	return c
}

func (p *program) check(c *cobra.Command, o *preflight.Options) error {
	if err := o.Check(); err != nil {
		return usage("%w", err)
	}
	config, err := p.config.ToRESTConfig()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(c.Context(), checkTimeout)
	defer cancel()
	found, err := o.Run(ctx, config)
	if err != nil {
		return err
	}
	err = p.write(found, nil, func(w *show.Writer) {
		for _, f := range found {
			color := []show.Color{show.Green, show.Yellow, show.Red}[f.Level]
			w.Printf("%s%s %s: %s", w.In(color, f.Level.String()), show.Padding(f.Level.String(), 8), f.About, f.Text)
		}
	})
	if worst := preflight.Worst(found); err == nil && worst > preflight.OK {
		return exit{code: int(worst)}
	}
	return err
}

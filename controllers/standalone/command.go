package standalone

import (
	"os"

	"github.com/spf13/cobra"

	"k8s.io/apiserver/pkg/server"
	cliflag "k8s.io/component-base/cli/flag"
	"k8s.io/component-base/cli/globalflag"
	"k8s.io/component-base/logs"
	logsapi "k8s.io/component-base/logs/api/v1"
	"k8s.io/component-base/term"
	"k8s.io/component-base/version"
	"k8s.io/component-base/version/verflag"
	"k8s.io/klog/v2"
)

// component is the name of the program, and of its Lease unless the user says otherwise.
const component = "node-ipam-controller"

// NewCommand is the program.
func NewCommand() *cobra.Command {
	opts := newOptions()
	cmd := &cobra.Command{
		Use: component,
		Long: `Gives every Node its Pod ranges, node.spec.podCIDRs, from ClusterCIDR objects, beside a kube-controller-manager
that does not (--allocate-node-cidrs=false).

A flag wins over the environment variable that stands in [$] behind it. An empty variable is as good as none.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			verflag.PrintAndExitIfRequested()
			if err := logsapi.ValidateAndApply(opts.logs, nil); err != nil {
				return err
			}
			warnings, err := opts.complete(cmd.Flags(), os.Getenv)
			cliflag.PrintFlags(cmd.Flags())
			if err != nil {
				return err
			}
			for _, warning := range warnings {
				klog.Warning(warning)
			}
			klog.InfoS("Starting", "program", component, "version", version.Get())
			return run(server.SetupSignalContext(), opts)
		},
	}
	sections := opts.sections()
	global := sections.FlagSet("global")
	verflag.AddFlags(global)
	globalflag.AddGlobalFlags(global, cmd.Name(), logs.SkipLoggingConfigurationFlags())
	for _, section := range sections.FlagSets {
		cmd.Flags().AddFlagSet(section)
	}
	columns, _, _ := term.TerminalSize(cmd.OutOrStdout())
	cliflag.SetUsageAndHelpFunc(cmd, sections, columns)
	return cmd
}

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
	"k8s.io/klog/v2"

	"github.com/multicidr/controller-manager/controllers/build"
)

// NewCommand returns the command of node-ipam-controller.
func NewCommand() *cobra.Command { return newCommand(newNodeIPAM()) }

func newCommand(p program) *cobra.Command {
	opts := newOptions(p)
	cmd := &cobra.Command{
		Use:  p.name(),
		Long: p.describe(),
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			build.PrintAndExitIfRequested(cmd.Flags())
			if err := logsapi.ValidateAndApply(opts.logs, nil); err != nil {
				return err
			}
			err := opts.complete(cmd.Flags(), os.Getenv)
			cliflag.PrintFlags(cmd.Flags())
			if err != nil {
				return err
			}
			klog.InfoS("Starting", "program", p.name(), "version", version.Get(), "build", build.Get())
			return run(server.SetupSignalContext(), opts)
		},
	}
	sections := opts.sections()
	global := sections.FlagSet("global")
	build.AddFlags(global)
	globalflag.AddGlobalFlags(global, cmd.Name(), logs.SkipLoggingConfigurationFlags())
	for _, section := range sections.FlagSets {
		cmd.Flags().AddFlagSet(section)
	}
	columns, _, _ := term.TerminalSize(cmd.OutOrStdout())
	cliflag.SetUsageAndHelpFunc(cmd, sections, columns)
	return cmd
}

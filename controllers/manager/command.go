package manager

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/apiserver/pkg/server"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	cliflag "k8s.io/component-base/cli/flag"
	"k8s.io/component-base/cli/globalflag"
	basecompatibility "k8s.io/component-base/compatibility"
	"k8s.io/component-base/featuregate"
	"k8s.io/component-base/logs"
	logsapi "k8s.io/component-base/logs/api/v1"
	"k8s.io/component-base/term"
	"k8s.io/component-base/version/verflag"
	cmfeatures "k8s.io/controller-manager/pkg/features"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/cmd/kube-controller-manager/app"
	"k8s.io/kubernetes/cmd/kube-controller-manager/app/config"
	"k8s.io/kubernetes/cmd/kube-controller-manager/app/options"
)

// NewCommand is upstream's kube-controller-manager command with controllers added to it. It panics if the descriptors
// contradict each other or upstream: that is a mistake in the program, not in its use.
func NewCommand(added ...Descriptor) *cobra.Command {
	roster, err := newRoster(added)
	if err != nil {
		panic(err)
	}
	opts, err := options.NewKubeControllerManagerOptions()
	if err != nil {
		panic(err)
	}

	// What does not depend on the controllers is taken from upstream's command: the texts, the check for arguments, and the setting
	// of feature gates before RunE, which acts on the process-wide registry that opts uses too.
	upstream := app.NewControllerManagerCommand()
	cmd := &cobra.Command{
		Use:               upstream.Use,
		Long:              upstream.Long,
		Args:              upstream.Args,
		PersistentPreRunE: upstream.PersistentPreRunE,
		RunE: func(cmd *cobra.Command, _ []string) error {
			verflag.PrintAndExitIfRequested()

			// Logging comes first, so that the flags are shown in the chosen format.
			if err := logsapi.ValidateAndApply(opts.Logs, utilfeature.DefaultFeatureGate); err != nil {
				return err
			}
			cliflag.PrintFlags(cmd.Flags())

			// The event broadcaster lives as long as this context and has to outlive a signal: the last events are
			// those of the shutdown. So the signal gets a context of its own, below.
			c, err := newConfig(context.Background(), opts, roster)
			if err != nil {
				return err
			}

			featureGate := opts.ComponentGlobalsRegistry.FeatureGateFor(basecompatibility.DefaultKubeComponent)
			featureGate.(featuregate.MutableFeatureGate).AddMetrics()
			opts.ComponentGlobalsRegistry.AddMetrics()

			ctx := context.Background()
			if utilfeature.DefaultFeatureGate.Enabled(cmfeatures.ControllerManagerReleaseLeaderElectionLockOnExit) {
				ctx = server.SetupSignalContext()
			}
			return run(ctx, c.Complete(), roster)
		},
	}

	sections := opts.Flags(roster.names, roster.disabled, roster.aliases)
	opts.ParsedFlags = &sections
	for _, d := range added {
		if d.Flags != nil {
			d.Flags.AddFlags(sections.FlagSet(d.Name))
		}
	}
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

// newConfig checks all options and turns them into a configuration. Everything that is wrong is told at once and before
// anything is written or asked for.
func newConfig(ctx context.Context, opts *options.KubeControllerManagerOptions, roster roster) (*config.Config, error) {
	errs := []error{opts.Validate(roster.names, roster.disabled, roster.aliases)}
	for _, d := range roster.added {
		if d.Flags != nil {
			errs = append(errs, d.Flags.Validate()...)
		}
	}
	replacements, err := roster.replacements(opts.Generic.Controllers)
	errs = append(errs, err)
	if err := utilerrors.Flatten(utilerrors.NewAggregate(errs)); err != nil {
		return nil, err
	}

	c, err := opts.Config(ctx, roster.names, roster.disabled, roster.aliases)
	if err != nil {
		return nil, err
	}
	// Said in the configuration and not kept aside, it holds for everything that asks whether a controller is on, and
	// /configz shows it.
	for _, r := range replacements {
		klog.FromContext(ctx).Info("Leaving out a controller that another one replaces", "controller", r.replaced, "replacedBy", r.by)
		c.ComponentConfig.Generic.Controllers = append(c.ComponentConfig.Generic.Controllers, fmt.Sprintf("-%s", r.replaced))
	}
	return c, nil
}

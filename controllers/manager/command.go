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

// NewCommand returns upstream's kube-controller-manager command with controllers added to it. It panics if the descriptors contradict each
// other or upstream, because that is a bug in the program and not a user error.
func NewCommand(added ...Descriptor) *cobra.Command {
	roster, err := newRoster(added)
	if err != nil {
		panic(err)
	}
	opts, err := options.NewKubeControllerManagerOptions()
	if err != nil {
		panic(err)
	}

	// Upstream's command provides everything that does not depend on the controllers: the texts, the check of arguments, and the code that
	// sets feature gates before RunE. That code acts on the process-wide registry, which opts uses too.
	upstream := app.NewControllerManagerCommand()
	cmd := &cobra.Command{
		Use:               upstream.Use,
		Long:              upstream.Long,
		Args:              upstream.Args,
		PersistentPreRunE: upstream.PersistentPreRunE,
		RunE: func(cmd *cobra.Command, _ []string) error {
			verflag.PrintAndExitIfRequested()

			// Logging comes first, so that the flags are printed in the format that the user chose.
			if err := logsapi.ValidateAndApply(opts.Logs, utilfeature.DefaultFeatureGate); err != nil {
				return err
			}
			cliflag.PrintFlags(cmd.Flags())

			// The event broadcaster lives as long as this context. It has to outlive a signal, because the shutdown creates the last
			// events. So the signal gets its own context below.
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

// newConfig validates all options and turns them into a configuration. It returns all problems in one error, before the process sends or
// writes anything.
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
	// Set here, it is visible in /configz and to all code that checks whether a controller is enabled.
	for _, r := range replacements {
		klog.FromContext(ctx).Info("Leaving out a controller that another one replaces", "controller", r.replaced, "replacedBy", r.by)
		c.ComponentConfig.Generic.Controllers = append(c.ComponentConfig.Generic.Controllers, fmt.Sprintf("-%s", r.replaced))
	}
	return c, nil
}

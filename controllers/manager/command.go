package manager

import (
	"context"

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
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/cmd/kube-controller-manager/app"
	"k8s.io/kubernetes/cmd/kube-controller-manager/app/config"
	"k8s.io/kubernetes/cmd/kube-controller-manager/app/options"

	"github.com/multicidr/controller-manager/controllers/build"
)

// NewCommand returns upstream's kube-controller-manager command with controllers added to it.
func NewCommand(added ...Descriptor) *cobra.Command {
	roster := newRoster(added)
	opts, err := options.NewKubeControllerManagerOptions()
	if err != nil {
		panic(err)
	}

	// Upstream's command provides everything that does not depend on the controllers: the texts, the check of arguments, and the code that
	// sets feature gates before RunE. That code acts on the process-wide registry, which opts uses too.
	upstream := app.NewControllerManagerCommand()
	file := &configFile{}
	cmd := &cobra.Command{
		Use:  upstream.Use,
		Long: upstream.Long,
		Args: upstream.Args,
		// The file comes first, because it may set feature gates.
		PersistentPreRunE: func(cmd *cobra.Command, args []string) error {
			if err := file.set(cmd.Flags()); err != nil {
				return err
			}
			return upstream.PersistentPreRunE(cmd, args)
		},
		RunE: func(cmd *cobra.Command, _ []string) error {
			build.PrintAndExitIfRequested(cmd.Flags())

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
			if releaseOnExit() {
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
	file.AddFlags(sections.FlagSet("generic"))
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

// newConfig turns options into a configuration. Invalid options end the process before it sends or writes anything.
func newConfig(ctx context.Context, opts *options.KubeControllerManagerOptions, roster roster) (*config.Config, error) {
	errs := []error{opts.Validate(roster.names, roster.disabled, roster.aliases)}
	for _, d := range roster.added {
		if d.Flags != nil {
			errs = append(errs, d.Flags.Validate()...)
		}
	}
	if err := utilerrors.Flatten(utilerrors.NewAggregate(errs)); err != nil {
		return nil, err
	}
	c, err := opts.Config(ctx, roster.names, roster.disabled, roster.aliases) // It has canonical names of controllers.
	if err != nil {
		return nil, err
	}
	replacing, err := roster.replacing(c.ComponentConfig.Generic.Controllers)
	if err != nil {
		return nil, err
	}
	// Set here, it is visible in /configz and to all code that checks whether a controller is enabled.
	for _, d := range replacing {
		klog.FromContext(ctx).Info("Leaving out a controller that another one replaces", "controller", d.Replaces, "replacedBy", d.Name)
		c.ComponentConfig.Generic.Controllers = append(c.ComponentConfig.Generic.Controllers, "-"+d.Replaces)
	}
	return c, nil
}

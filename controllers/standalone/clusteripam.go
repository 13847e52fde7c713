package standalone

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"k8s.io/client-go/rest"
	cliflag "k8s.io/component-base/cli/flag"
	genericcontrollermanager "k8s.io/controller-manager/app"

	"github.com/multicidr/controller-manager/controllers/clusteripam"
	"github.com/multicidr/controller-manager/controllers/lease"
)

// NewClusterIPAMCommand returns the command of cluster-ipam-controller.
func NewClusterIPAMCommand() *cobra.Command { return newCommand(newClusterIPAM()) }

// clusterIPAM is the program cluster-ipam-controller.
type clusterIPAM struct {
	enabled []string // --controllers
	options *clusteripam.Options
}

func newClusterIPAM() *clusterIPAM {
	return &clusterIPAM{enabled: []string{"*"}, options: clusteripam.NewOptions()}
}

func (*clusterIPAM) name() string { return "cluster-ipam-controller" }

// lease names what the process works on: several processes may work on different namespaces.
func (c *clusterIPAM) lease() string { return c.options.LeaseName(c.name()) }

func (*clusterIPAM) describe() string {
	return `Gives the machines of whole clusters their addresses: the controllers of Cluster IPAM for a management cluster,
beside a kube-controller-manager that does not run them.`
}

func (*clusterIPAM) variables() []variable { return nil }

func (c *clusterIPAM) addFlags(sections *cliflag.NamedFlagSets) {
	fs := sections.FlagSet("cluster ipam")
	fs.StringSliceVar(&c.enabled, "controllers", c.enabled, fmt.Sprintf(
		"The controllers that run. '*' means all, 'foo' means the controller foo, '-foo' means all but foo. All controllers: %s", strings.Join(clusteripam.Names(), ", ")))
	c.options.AddFlags(fs)
	c.options.AddProviderFlags(fs)
}

func (c *clusterIPAM) validate() []error {
	var errs []error
	for _, name := range c.enabled {
		if name != "*" && !slices.Contains(clusteripam.Names(), strings.TrimPrefix(name, "-")) {
			errs = append(errs, fmt.Errorf("--controllers: there is no controller %q, only %s", name, strings.Join(clusteripam.Names(), ", ")))
		}
	}
	if len(errs) == 0 && len(c.controllers()) == 0 {
		errs = append(errs, errors.New("--controllers leaves nothing to run: name at least one controller"))
	}
	return append(errs, c.options.Validate()...)
}

func (c *clusterIPAM) controllers() []string {
	return slices.DeleteFunc(clusteripam.Names(), func(name string) bool {
		return !genericcontrollermanager.IsControllerEnabled(name, nil, c.enabled)
	})
}

// run runs every controller by itself: one that waits for something does not stop the others. One that ends by itself ends the process.
func (c *clusterIPAM) run(ctx context.Context, config *rest.Config, fence *lease.Fence, built func(string, any)) error {
	group, ctx := errgroup.WithContext(ctx)
	for _, name := range c.controllers() {
		controller, err := c.options.Build(name, config, fence)
		if err != nil {
			return fmt.Errorf("build %s: %w", name, err)
		}
		built(name, controller)
		group.Go(func() error {
			controller.Run(ctx)
			if ctx.Err() == nil {
				return fmt.Errorf("the controller %s has ended by itself", name)
			}
			return nil
		})
	}
	return group.Wait()
}

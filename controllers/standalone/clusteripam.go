package standalone

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	cliflag "k8s.io/component-base/cli/flag"

	"github.com/multicidr/controller-manager/controllers/clusteripam"
	"github.com/multicidr/controller-manager/controllers/configfile"
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

func (*clusterIPAM) describe() string {
	return `Gives the machines of whole clusters their addresses: the controllers of Cluster IPAM for a management cluster,
beside a kube-controller-manager that does not run them.`
}

func (*clusterIPAM) variables() []variable { return nil }

func (*clusterIPAM) idle() string { return "not working yet" }

func (c *clusterIPAM) addFlags(sections *cliflag.NamedFlagSets) {
	fs := sections.FlagSet("cluster ipam")
	fs.StringSliceVar(&c.enabled, "controllers", c.enabled, fmt.Sprintf(
		"The controllers that run. '*' means all, 'foo' means the controller foo, '-foo' means all but foo. All controllers: %s", strings.Join(clusteripam.Names(), ", ")))
	c.options.AddFlags(fs)
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

// setFromFile has one form, since KubeControllerManagerConfiguration has nothing of these controllers.
func (*clusterIPAM) setFromFile(file *configfile.File, fs *pflag.FlagSet) (unknown []string, err error) {
	if err := file.Read(); err != nil {
		return nil, err
	}
	values, err := file.Flat(fs)
	if err != nil {
		return nil, err
	}
	return file.Set(fs, values)
}

func (c *clusterIPAM) controllers() (names []string) {
	for _, name := range clusteripam.Names() {
		switch {
		case slices.Contains(c.enabled, "-"+name):
		case slices.Contains(c.enabled, name), slices.Contains(c.enabled, "*"):
			names = append(names, name)
		}
	}
	return names
}

// run runs every controller by itself: one that panics, or waits for something, does not stop the others.
func (c *clusterIPAM) run(ctx context.Context, p *process, fence *lease.Fence) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var wg sync.WaitGroup
	for _, of := range p.health.controllers {
		wg.Go(func() {
			err := p.runAgain(ctx, of, func(bool) (controller, error) {
				built, err := c.options.Build(of.name, p.config, fence)
				if err != nil {
					return nil, err
				}
				return built, nil
			})
			if err != nil {
				cancel(fmt.Errorf("build %s: %w", of.name, err))
			}
		})
	}
	wg.Wait()
	if err := context.Cause(ctx); err != nil && !errors.Is(err, context.Canceled) {
		return err
	}
	return nil
}

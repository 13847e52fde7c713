package standalone

import (
	"context"

	"k8s.io/client-go/rest"
	cliflag "k8s.io/component-base/cli/flag"

	"github.com/multicidr/controller-manager/controllers/lease"
)

// program is what makes one program of this package differ from another.
type program interface {
	// name is the name of the program, and describe is its help text.
	name() string
	describe() string
	// lease is the name of the Lease if no flag says another one.
	lease() string
	// variables are the environment variables that stand for flags. If two variables of one flag are set, the first one wins.
	variables() []variable
	// addFlags adds the flags of the controllers, and validate returns what is wrong with their values.
	addFlags(sections *cliflag.NamedFlagSets)
	validate() []error
	// controllers are the names of the controllers that run.
	controllers() []string
	// run runs the controllers until ctx is done, and passes each to built before, which shows it. An error ends the process.
	run(ctx context.Context, config *rest.Config, fence *lease.Fence, built func(name string, controller any)) error
}

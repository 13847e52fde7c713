package standalone

import (
	"context"
	"net/http"

	"github.com/spf13/pflag"

	cliflag "k8s.io/component-base/cli/flag"
	"k8s.io/controller-manager/pkg/healthz"

	"github.com/multicidr/controller-manager/controllers/configfile"
	"github.com/multicidr/controller-manager/controllers/lease"
	"github.com/multicidr/controller-manager/controllers/restart"
)

// program is what makes one program of this package differ from another.
type program interface {
	// name is the name of the program, and the default name of its Lease. describe is its help text.
	name() string
	describe() string
	// variables are the environment variables that stand for flags, in the order in which they are read. If two variables of one flag are
	// set, the first one wins.
	variables() []variable
	// addFlags adds the flags of the controllers, and validate returns what is wrong with their values.
	addFlags(sections *cliflag.NamedFlagSets)
	validate() []error
	// setFromFile sets flags from a file. unknown are flags in it that the program does not have, and may be there.
	setFromFile(file *configfile.File, fs *pflag.FlagSet) (unknown []string, err error)
	// controllers are the names of the controllers that run, and idle says that one of them does not work yet.
	controllers() []string
	idle() string
	// run runs the controllers until ctx is done. An error ends the process.
	run(ctx context.Context, p *process, fence *lease.Fence) error
}

// controller is what a program runs.
type controller interface {
	restart.Controller
	HealthChecker() healthz.UnnamedHealthChecker
	DebuggingHandler() http.Handler
}

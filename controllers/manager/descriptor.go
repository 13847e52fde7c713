package manager

import (
	"context"

	"github.com/spf13/pflag"

	"k8s.io/kubernetes/cmd/kube-controller-manager/app"

	"github.com/multicidr/controller-manager/controllers/lease"
)

// Descriptor is a controller that runs beside upstream's own. "*" in --controllers does not enable it: users have to ask for it.
//
// A controller may also implement controller.HealthCheckable and controller.Debuggable of k8s.io/controller-manager. They are served at
// /healthz/<Name> and /debug/controllers/<Name>, like those of upstream's own controllers. The health check must answer at once, because
// probes wait for it.
type Descriptor struct {
	// Name is the controller's name: in --controllers, in leader migration, and of its flag section, its health check and, with
	// --use-service-account-credentials, its service account.
	Name string
	// Alias is another name of the controller in --controllers; empty if there is none.
	Alias string
	// Replaces names the upstream controller that must not run in the same process as this one; empty if there is none. It is left out if only
	// "*" enabled it. If --controllers names both, that is an error.
	Replaces string
	// Flags are the controller's own flags; nil means none. They are validated even if the controller is disabled, as upstream's flags are.
	Flags Flags
	// Prepare is called once, before any other controller requests a shared informer, if the controller is enabled: the first request for
	// an informer decides how it is created. The controller requests all of its shared informers here: they start with the others. nil means
	// nothing to prepare.
	Prepare func(c app.ControllerContext)
	// New builds the controller. It is called after the leader lease was acquired, while the other controllers are already running, so it
	// can neither delay nor stop them. After an error it is called again, until it succeeds. So the steps that can fail come first, and those
	// that must happen only once come last.
	//
	// The controller's Run returns when its context is done, and everything that it started has ended. If it returns before that, or panics,
	// the process ends.
	New func(ctx context.Context, c Context) (app.Controller, error)
}

// Flags are command line flags and the validation of their values.
type Flags interface {
	AddFlags(fs *pflag.FlagSet)
	Validate() []error
}

// Context is the argument of a constructor: upstream's context, and what only this package knows.
type Context struct {
	app.ControllerContext
	// Fence refuses writes while another process may hold the lease that the controller runs under. A write that must not come from a
	// former leader must enter it, and its client's configuration must be wrapped in lease.Transport.
	Fence *lease.Fence
	// NodesAsOf is what nodeipam.ReadNodes returned after the lease was acquired and before the informers started, unless another lease of
	// this process had already started them. It is empty if the API server did not answer.
	NodesAsOf string
}

package manager

import (
	"context"

	"github.com/spf13/pflag"

	"k8s.io/kubernetes/cmd/kube-controller-manager/app"

	"github.com/multicidr/controller-manager/controllers/lease"
)

// Descriptor is a controller that runs beside upstream's own.
//
// A controller may also implement controller.HealthCheckable and controller.Debuggable of k8s.io/controller-manager; they are
// served where upstream serves those of its own controllers, at /healthz/<Name> and /debug/controllers/<Name>. Its health
// check has to answer at once: probes wait for it.
type Descriptor struct {
	// Name is used in --controllers, as the name of the flag section, the health check, the service account under
	// --use-service-account-credentials, and in leader migration.
	Name string
	// Aliases are further names that --controllers understands.
	Aliases []string
	// DisabledByDefault: "*" in --controllers does not turn it on.
	DisabledByDefault bool
	// Replaces names upstream controllers that must not run in the same process while this one does. They are left out if
	// only "*" turned them on; naming both is an error. A controller that replaces others has to be DisabledByDefault:
	// replacing is something a user asks for.
	Replaces []string
	// ReadsNodes: the controller wants Context.NodesAsOf.
	ReadsNodes bool
	// Flags are the controller's own; nil means none. They are checked whether the controller is enabled or not, as
	// upstream's are.
	Flags Flags
	// Prepare is called once, before any shared informer starts, if the controller is enabled: some of what an informer is to do can only
	// be set until then. nil means nothing. Informers it takes from the context are started then, too.
	Prepare func(c app.ControllerContext)
	// New makes the controller. It is called after the leader lease was won, while the other controllers are running already, so
	// it can neither delay nor stop them. After an error or a panic it is called again, until it succeeds: what may fail comes
	// first in it, and what must happen once, last. Informers it takes from the context are started after it returns.
	//
	// It is called again, too, when the controller has ended by itself: when its Run has returned, or panicked, before its context was
	// done. Run has to end all that it and New started before it returns, event handlers of shared informers included. A method
	// Err() error of the controller says why it has ended.
	New func(ctx context.Context, c Context) (app.Controller, error)
}

// Flags are command line flags and the check of their values.
type Flags interface {
	AddFlags(fs *pflag.FlagSet)
	Validate() []error
}

// Context is what a constructor gets: upstream's context, and room for what only this package knows.
type Context struct {
	app.ControllerContext
	// Fence is closed to writes while the lease that the controller runs under may be somebody else's. A write that must not come
	// from a deposed leader enters it, with a client whose configuration is wrapped in lease.Transport.
	Fence *lease.Fence
	// NodesAsOf is what nodeipam.ReadNodes returned after the lease was won and, unless another lease of this process had done so,
	// before the informers started. Empty if the descriptor did not ask for it, or the API server did not answer; and for a controller
	// that is built because the last one has ended by itself.
	NodesAsOf string
}

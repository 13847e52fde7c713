package shell

import (
	"context"
	"net/http"

	"k8s.io/client-go/rest"
	"k8s.io/controller-manager/pkg/healthz"

	"github.com/multicidr/controller-manager/controllers/writes"
)

// Config is the input of New. Name, Client, Lines and Logic are required.
type Config struct {
	// Name is the controller's name: in --controllers, and as its ServiceAccount, field manager and event source.
	Name string
	// Client is the configuration of the clients. It has been wrapped in lease.Transport.
	Client *rest.Config
	// Fence is the fence of the leader Lease; nil means one that is always open.
	Fence writes.Fence
	// Lines are the kinds of keys that the Logic queues.
	Lines []Line
	// Logic builds a Logic for one term.
	Logic func(Parts) Logic
	// Yield says that the controller must not run now, and why; empty means that it may. nil means that nothing stops it.
	Yield Yield
}

// Line is a kind of keys and how many workers work on them.
type Line struct {
	Kind    *Kind
	Workers int
}

// Yield says why a controller must leave its objects to another program. labels are those of the CustomResourceDefinitions of the kinds that
// the Logic reads.
type Yield func(labels map[*Kind]map[string]string) (why string)

// Controller runs a Logic. See the package comment.
type Controller struct {
	cfg Config
}

// New returns a controller. It does no I/O.
func New(cfg Config) (*Controller, error) { return &Controller{cfg: cfg}, nil }

// Name implements the manager's interface for controllers.
func (c *Controller) Name() string { return c.cfg.Name }

// Run runs until ctx is done or something panics.
func (c *Controller) Run(ctx context.Context) { <-ctx.Done() }

// Err is why Run has returned, or is about to return, before its context is done; nil if nothing has panicked.
func (c *Controller) Err() error { return nil }

// HealthChecker reports an error that says what to do, as long as the controller cannot do all of its work.
func (c *Controller) HealthChecker() healthz.UnnamedHealthChecker { return nil }

// DebuggingHandler serves the debug page.
func (c *Controller) DebuggingHandler() http.Handler { return nil }

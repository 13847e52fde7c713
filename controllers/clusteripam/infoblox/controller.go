package infoblox

import (
	"context"
	"time"

	"k8s.io/client-go/rest"

	"github.com/multicidr/controller-manager/controllers/clusteripam/contract"
	"github.com/multicidr/controller-manager/controllers/clusteripam/infoblox/wapi"
	"github.com/multicidr/controller-manager/controllers/clusteripam/runner"
	"github.com/multicidr/controller-manager/controllers/writes"
)

// Name is the controller's name: in --controllers, and as its ServiceAccount, field manager and event source.
const Name = "infoblox-ip-pool-controller"

// Config is the input of New. Client is required.
type Config struct {
	// Client is the configuration of the clients. It has been wrapped in lease.Transport.
	Client *rest.Config
	// Fence is the fence of the leader Lease; nil means one that is always open. Writes to Infoblox pass it, too.
	Fence writes.Fence
	// SecretNamespace has the Secrets with the credentials of InfobloxInstances. If it is empty, no Secrets are read, and the InfobloxInstances say so.
	SecretNamespace string
	// Namespace restricts the claims and pools to one namespace; empty means all.
	Namespace string
	// WatchFilter is the value of the label cluster.x-k8s.io/watch-filter of the claims that are worked on. Empty: all are.
	WatchFilter string
	// Workers is how many IPAddressClaims are worked on at once; 4 if it is zero.
	Workers int
	// Yield says that the controller must not run now, and why; nil means that nothing stops it.
	Yield runner.Yield
}

// New returns a controller. It does no I/O.
func New(cfg Config) (*runner.Controller, error) {
	if cfg.Workers == 0 {
		cfg.Workers = 4
	}
	reads := append(contract.Reads(cfg.Namespace), runner.Reads{Kind: runner.InfobloxInstances}, runner.Reads{Kind: runner.InfobloxIPPools, Namespace: cfg.Namespace})
	if cfg.SecretNamespace != "" {
		reads = append(reads, runner.Reads{Kind: runner.Secrets, Namespace: cfg.SecretNamespace})
	}
	return runner.New(runner.Config{
		Name:    Name,
		Client:  cfg.Client,
		Fence:   cfg.Fence,
		Reads:   reads,
		Workers: map[*runner.Kind]int{runner.InfobloxInstances: 2, runner.InfobloxIPPools: 2, runner.IPAddressClaims: cfg.Workers},
		New:     func(t *runner.Term) runner.Logic { return newLogic(t, cfg, wapi.New) },
		Yield:   cfg.Yield,
	})
}

// client is a client of an Infoblox whose writes pass the fence: a former leader must not release an address that its successor has allocated.
type client struct {
	*wapi.Client
	fence writes.Fence
}

func (c client) CreateHost(ctx context.Context, r wapi.Record, next ...wapi.Next) error {
	return c.enter(ctx, func(ctx context.Context) error { return c.Client.CreateHost(ctx, r, next...) })
}

func (c client) UpdateHost(ctx context.Context, r wapi.Record, next ...wapi.Next) error {
	return c.enter(ctx, func(ctx context.Context) error { return c.Client.UpdateHost(ctx, r, next...) })
}

func (c client) DeleteHost(ctx context.Context, ref string) error {
	return c.enter(ctx, func(ctx context.Context) error { return c.Client.DeleteHost(ctx, ref) })
}

// enter sends a write. A shutdown does not interrupt it: its outcome would not be known.
func (c client) enter(ctx context.Context, write func(context.Context) error) error {
	ctx = context.WithoutCancel(ctx)
	if c.fence == nil {
		return write(ctx)
	}
	ctx, leave, err := c.fence.Enter(ctx, writes.Timeout)
	if err != nil {
		return err
	}
	if err = write(ctx); wapi.Answered(err) {
		leave()
	}
	return err
}

// settled is how long after a write without an answer Infoblox cannot carry it out any more.
const settled = 15 * time.Second

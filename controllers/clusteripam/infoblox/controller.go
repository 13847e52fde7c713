package infoblox

import (
	"context"
	"net/netip"
	"time"

	"k8s.io/client-go/rest"

	"github.com/multicidr/controller-manager/controllers/clusteripam/infoblox/host"
	"github.com/multicidr/controller-manager/controllers/clusteripam/infoblox/wapi"
	"github.com/multicidr/controller-manager/controllers/clusteripam/shell"
	"github.com/multicidr/controller-manager/controllers/writes"
)

// Name is the controller's name: in --controllers, and as its ServiceAccount, field manager and event source.
const Name = "infoblox-ip-pool-controller"

// Config is the input of New. Client and SecretNamespace are required.
type Config struct {
	// Client is the configuration of the clients. It has been wrapped in lease.Transport.
	Client *rest.Config
	// Fence is the fence of the leader Lease; nil means one that is always open. Writes to Infoblox pass it, too.
	Fence writes.Fence
	// SecretNamespace has the Secrets with the credentials of InfobloxInstances.
	SecretNamespace string
	// Workers is how many IPAddressClaims are worked on at once; 4 if it is zero.
	Workers int
	// Yield says that the controller must not run now, and why; nil means that nothing stops it.
	Yield shell.Yield
}

// New returns a controller. It does no I/O.
func New(cfg Config) (*shell.Controller, error) {
	if cfg.Workers == 0 {
		cfg.Workers = 4
	}
	connect := func(c wapi.Config) (WAPI, error) {
		client, err := wapi.New(c)
		if err != nil {
			return nil, err
		}
		return fenced{client, cfg.Fence}, nil
	}
	// Without a lease nothing says until when a write is carried out.
	unanswered := func() time.Duration { return 2 * writes.Timeout }
	if cfg.Fence != nil {
		unanswered = func() time.Duration { return max(cfg.Fence.Unanswered(), 2*writes.Timeout) }
	}
	return shell.New(shell.Config{
		Name:   Name,
		Client: cfg.Client,
		Fence:  cfg.Fence,
		Lines:  []shell.Line{{Kind: shell.InfobloxInstances, Workers: 2}, {Kind: shell.InfobloxIPPools, Workers: 2}, {Kind: shell.IPAddressClaims, Workers: cfg.Workers}},
		Logic:  func(p shell.Parts) shell.Logic { return newLogic(p, cfg.SecretNamespace, connect, unanswered) },
		Yield:  cfg.Yield,
	})
}

// WAPI is what the controller asks of an Infoblox. wapi.Client implements it.
type WAPI interface {
	NetworkView(ctx context.Context, name string) (bool, error)
	DNSView(ctx context.Context, name string) (bool, error)
	Network(ctx context.Context, network netip.Prefix, view string) (bool, error)
	Hosts(ctx context.Context, name, networkView string) ([]host.Record, error)
	CreateHost(ctx context.Context, r host.Record) (ref string, err error)
	UpdateHost(ctx context.Context, r host.Record) error
	DeleteHost(ctx context.Context, ref string) error
	Close()
}

// fenced is a WAPI whose writes pass the fence: a former leader must not release an address that its successor has allocated.
type fenced struct {
	WAPI
	fence writes.Fence
}

func (f fenced) CreateHost(ctx context.Context, r host.Record) (ref string, err error) {
	err = f.enter(ctx, func(ctx context.Context) (err error) {
		ref, err = f.WAPI.CreateHost(ctx, r)
		return err
	})
	return ref, err
}

func (f fenced) UpdateHost(ctx context.Context, r host.Record) error {
	return f.enter(ctx, func(ctx context.Context) error { return f.WAPI.UpdateHost(ctx, r) })
}

func (f fenced) DeleteHost(ctx context.Context, ref string) error {
	return f.enter(ctx, func(ctx context.Context) error { return f.WAPI.DeleteHost(ctx, ref) })
}

func (f fenced) enter(ctx context.Context, write func(context.Context) error) error {
	if f.fence == nil {
		return write(ctx)
	}
	ctx, leave, err := f.fence.Enter(ctx, writes.Timeout)
	if err != nil {
		return err
	}
	if err = write(ctx); wapi.Answered(err) {
		leave()
	}
	return err
}

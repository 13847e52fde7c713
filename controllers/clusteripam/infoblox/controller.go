package infoblox

import (
	"cmp"
	"context"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/multicidr/controller-manager/apis/clusterapi/v1alpha1"
	"github.com/multicidr/controller-manager/apis/clusterapi/v1beta2"
	"github.com/multicidr/controller-manager/controllers/clusteripam/contract"
	"github.com/multicidr/controller-manager/controllers/clusteripam/infoblox/wapi"
	"github.com/multicidr/controller-manager/controllers/clusteripam/runner"
	"github.com/multicidr/controller-manager/controllers/lease"
	"github.com/multicidr/controller-manager/controllers/writes"
)

// Name is the controller's name: in --controllers, and as its ServiceAccount, field manager and event source.
const Name = "infoblox-ip-pool-controller"

// Config is the input of New. Of the runner's Config it needs the Client; Name, Reads, Workers and New are set by New.
type Config struct {
	runner.Config
	// SecretNamespace has the Secrets with the credentials of InfobloxInstances. If it is empty, no Secrets are read, and the InfobloxInstances say so.
	SecretNamespace string
	// Namespace restricts the claims and pools to one namespace; empty means all.
	Namespace string
	// WatchFilter is the value of the label cluster.x-k8s.io/watch-filter of the claims that are worked on. Empty: all are.
	WatchFilter string
	// Workers is how many IPAddressClaims are worked on concurrently.
	Workers int
}

// New returns a controller. It does no I/O.
func New(cfg Config) (*runner.Controller, error) {
	r := cfg.Config
	r.Name = Name
	r.Reads = append(contract.Reads(cfg.Namespace), runner.Reads{Kind: runner.InfobloxInstances}, runner.Reads{Kind: runner.InfobloxIPPools, Namespace: cfg.Namespace})
	if cfg.SecretNamespace != "" {
		r.Reads = append(r.Reads, runner.Reads{Kind: runner.Secrets, Namespace: cfg.SecretNamespace})
	}
	r.Workers = map[*runner.Kind]int{runner.InfobloxInstances: 2, runner.InfobloxIPPools: 2, runner.IPAddressClaims: cfg.Workers}
	r.New = func(t *runner.Term) runner.Logic { return newLogic(t, cfg, wapi.New) }
	return runner.New(r)
}

// logic implements runner.Logic and contract.Provider.
type logic struct {
	term     *runner.Term
	contract *contract.Contract
	connect  func(wapi.Config) (*wapi.Client, error)
	// fence is passed by writes to Infoblox, too: a former leader must not release an address that its successor has allocated.
	fence           writes.Fence
	secretNamespace string

	instances runner.Lister[*v1alpha1.InfobloxInstance]
	pools     runner.Lister[*v1alpha1.InfobloxIPPool]
	secrets   runner.Lister[*corev1.Secret]

	mu      sync.Mutex // guards what follows
	servers map[string]*server
	full    map[types.NamespacedName]full // pools
	mayHave map[types.UID]bool            // claims for which Infoblox may have an address that they do not say
	records map[recordName]*record        // without their InfobloxInstances: two of these can be one Infoblox
}

func newLogic(t *runner.Term, cfg Config, connect func(wapi.Config) (*wapi.Client, error)) *logic {
	l := &logic{
		term: t, connect: connect, fence: cmp.Or[writes.Fence](cfg.Fence, &lease.Fence{}), secretNamespace: cfg.SecretNamespace,
		servers: map[string]*server{}, full: map[types.NamespacedName]full{}, mayHave: map[types.UID]bool{}, records: map[recordName]*record{},
	}
	l.instances = runner.Read(t, runner.InfobloxInstances, l.instanceChanged)
	l.pools = runner.Read(t, runner.InfobloxIPPools, l.poolChanged)
	if cfg.SecretNamespace != "" {
		l.secrets = runner.Read(t, runner.Secrets, l.secretChanged)
	}
	l.contract = contract.New(contract.Config{
		Term: t, Provider: l, PoolVersion: runner.InfobloxIPPools.Versions[0], WatchFilter: cfg.WatchFilter,
		Carries: []string{AnnotationPlace, AnnotationName, AnnotationAddress},
	})
	l.contract.Claims.Index(byAddress, func(claim *v1beta2.IPAddressClaim) []string { return valueOf(claim.Spec.PoolRef, said(claim)) })
	l.contract.Addresses.Index(byAddress, func(address *v1beta2.IPAddress) []string { return valueOf(address.Spec.PoolRef, has(nil, address)) })
	return l
}

// Reconcile implements runner.Logic.
func (l *logic) Reconcile(ctx context.Context, key runner.Key) error {
	name := types.NamespacedName{Namespace: key.Namespace, Name: key.Name}
	switch key.Kind {
	case runner.InfobloxInstances:
		return l.syncInstance(ctx, key.Name)
	case runner.InfobloxIPPools:
		return l.syncPool(ctx, name)
	default:
		return l.contract.Reconcile(ctx, name)
	}
}

// Show implements runner.Logic. Why pools and claims wait is in their conditions.
func (l *logic) Show() any {
	instances := map[string]verdict{}
	l.mu.Lock()
	defer l.mu.Unlock()
	for name, s := range l.servers {
		instances[name] = s.verdict
	}
	return map[string]any{"instances": instances}
}

// Figures implements runner.Logic.
func (l *logic) Figures() (f runner.Figures) {
	f.Waiting, f.Bound = l.contract.Figures()
	for _, text := range l.contract.Addresses.Values(byAddress) {
		places, holders := map[place]bool{}, l.holders(text)
		for _, at := range holders {
			places[at] = true
		}
		if len(places) < len(holders) {
			f.Conflicts++
		}
	}
	return f
}

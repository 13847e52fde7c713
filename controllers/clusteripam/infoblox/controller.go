package infoblox

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

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
	// Workers is how many IPAddressClaims are worked on at once; 4 if it is zero.
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
	r.Workers = map[*runner.Kind]int{runner.InfobloxInstances: 2, runner.InfobloxIPPools: 2, runner.IPAddressClaims: cmp.Or(cfg.Workers, 4)}
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
	began           time.Time

	instances runner.Lister[*v1alpha1.InfobloxInstance]
	pools     runner.Lister[*v1alpha1.InfobloxIPPool]
	secrets   runner.Lister[*corev1.Secret]

	mu      sync.Mutex // guards what follows
	servers map[string]*server
	checked map[types.NamespacedName]*checked
	records map[recordName]*record // without their InfobloxInstances: two of these can be one Infoblox
	fresh   map[types.UID]bool     // claims whose record this process has chosen
}

func newLogic(t *runner.Term, cfg Config, connect func(wapi.Config) (*wapi.Client, error)) *logic {
	l := &logic{
		term: t, connect: connect, fence: cmp.Or[writes.Fence](cfg.Fence, &lease.Fence{}), secretNamespace: cfg.SecretNamespace, began: time.Now(),
		servers: map[string]*server{}, checked: map[types.NamespacedName]*checked{}, records: map[recordName]*record{}, fresh: map[types.UID]bool{},
	}
	l.instances = runner.Read(t, runner.InfobloxInstances, l.instanceChanged)
	l.pools = runner.Read(t, runner.InfobloxIPPools, l.poolChanged)
	if cfg.SecretNamespace != "" {
		l.secrets = runner.Read(t, runner.Secrets, l.secretChanged)
	}
	l.contract = contract.New(contract.Config{
		Term: t, Provider: l, PoolVersion: runner.InfobloxIPPools.Versions[0], WatchFilter: cfg.WatchFilter, Says: l.says, Unmarked: unmarked,
		Carries:    []string{AnnotationPlace, AnnotationName, AnnotationAddress},
		ClaimShown: l.claimShown, ClaimGone: l.claimGone, AddressShown: l.addressShown,
	})
	l.contract.Claims.Index(func(claim *v1beta2.IPAddressClaim) string { return textOf(claim.Spec.PoolRef, said(claim)) })
	l.contract.Addresses.Index(func(address *v1beta2.IPAddress) string { return textOf(address.Spec.PoolRef, has(nil, address)) })
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
	case runner.IPAddressClaims:
		return l.contract.Reconcile(ctx, name)
	}
	return fmt.Errorf("%v: nobody works on that: %w", key, errors.ErrUnsupported)
}

// shown is what the debug page shows.
type shown struct {
	Instances, Pools map[string]verdict
	Waiting          map[string]string `json:",omitempty"` // reasons by claim
	Addresses        int
}

// Show implements runner.Logic.
func (l *logic) Show() any {
	s := shown{Instances: map[string]verdict{}, Pools: map[string]verdict{}, Waiting: map[string]string{}}
	for _, claim := range l.contract.Claims.List() {
		if ready := contract.Find(claim.Status.Conditions, v1beta2.ConditionReady); ofInfoblox(claim.Spec.PoolRef) && claim.Status.AddressRef.Name == "" && ready != nil {
			s.Waiting[contract.NameOf(claim).String()] = ready.Reason
		}
	}
	for _, address := range l.contract.Addresses.List() {
		if ofInfoblox(address.Spec.PoolRef) {
			s.Addresses++
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for name, i := range l.servers {
		s.Instances[name] = i.verdict
	}
	for name, p := range l.checked {
		s.Pools[name.String()] = p.verdict
	}
	return s
}

// Figures implements runner.Logic.
func (l *logic) Figures() (f runner.Figures) {
	f.Waiting, f.Bound = l.contract.Figures()
	for _, text := range l.contract.Addresses.Values() {
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

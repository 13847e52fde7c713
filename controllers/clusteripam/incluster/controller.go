package incluster

import (
	"cmp"
	"context"
	"fmt"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/multicidr/controller-manager/apis/clusterapi/v1alpha2"
	"github.com/multicidr/controller-manager/apis/clusterapi/v1beta2"
	"github.com/multicidr/controller-manager/controllers/clusteripam/contract"
	"github.com/multicidr/controller-manager/controllers/clusteripam/runner"
	"github.com/multicidr/controller-manager/controllers/writes"
)

// Name is the controller's name.
const Name = "in-cluster-ip-pool-controller"

// Config is the input of New. Of the runner's Config it needs the Client; Name, Reads, Workers and New are set by New.
type Config struct {
	runner.Config
	// Workers is how many IPAddressClaims are worked on concurrently.
	Workers int
	// Namespace restricts the controller to one namespace: it leaves Global pools alone. Empty: all namespaces.
	Namespace string
	// WatchFilter is the value of the label cluster.x-k8s.io/watch-filter of the claims that are worked on. Empty: all are.
	WatchFilter string
}

// New returns the controller. It does no I/O.
func New(cfg Config) (*runner.Controller, error) { return runner.New(configOf(cfg)) }

func configOf(cfg Config) runner.Config {
	r := cfg.Config
	r.Name, r.Reads, r.Workers = Name, contract.Reads(cfg.Namespace), map[*runner.Kind]int{runner.IPAddressClaims: cfg.Workers}
	for _, k := range kinds {
		if r.Workers[k.kind] = 2; !k.global || cfg.Namespace == "" { // Claims name, and so queue, pools that are not read.
			r.Reads = append(r.Reads, runner.Reads{Kind: k.kind, Namespace: cfg.Namespace, Optional: k.kind != runner.InClusterIPPools})
		}
	}
	r.New = func(t *runner.Term) runner.Logic { return newLogic(t, cfg.Namespace, cfg.WatchFilter) }
	return r
}

type logic struct {
	*contract.Contract
	term *runner.Term
	// namespaced: Global pools are left alone.
	namespaced bool

	mu        sync.Mutex // guards what follows
	allocator *allocator
}

func newLogic(t *runner.Term, namespace, watchFilter string) *logic {
	l := &logic{term: t, namespaced: namespace != ""}
	l.allocator = &allocator{pools: map[runner.Key]*pool{}, touch: t.Queue.Add,
		wants: func(c *claim) bool { return l.Wants(c.object, c.pool.object) }}
	readPools(l, runner.InClusterIPPools, func(o *v1alpha2.InClusterIPPool) *object {
		return ofAddresses(v1alpha2.KindInClusterIPPool, o.ObjectMeta, &o.Spec, o.Status)
	})
	readPools(l, runner.InClusterPrefixPools, func(o *v1alpha2.InClusterPrefixPool) *object {
		return ofPrefixes(v1alpha2.KindInClusterPrefixPool, o.ObjectMeta, &o.Spec, o.Status)
	})
	if !l.namespaced {
		readPools(l, runner.GlobalInClusterIPPools, func(o *v1alpha2.GlobalInClusterIPPool) *object {
			return ofAddresses(v1alpha2.KindGlobalInClusterIPPool, o.ObjectMeta, &o.Spec, o.Status)
		})
		readPools(l, runner.GlobalInClusterPrefixPools, func(o *v1alpha2.GlobalInClusterPrefixPool) *object {
			return ofPrefixes(v1alpha2.KindGlobalInClusterPrefixPool, o.ObjectMeta, &o.Spec, o.Status)
		})
	}
	l.Contract = contract.New(contract.Config{
		Term: t, Provider: l, PoolVersion: runner.InClusterIPPools.Versions[0], WatchFilter: watchFilter, Carries: []string{AnnotationAddress},
	})
	return l
}

// Says implements contract.Provider.
func (l *logic) Says(address *v1beta2.IPAddress) map[string]string {
	if block := blockOf(address); block.IsValid() {
		return map[string]string{AnnotationAddress: textOf(block)}
	}
	return nil
}

// ClaimShown implements contract.Provider.
func (l *logic) ClaimShown(_, now *v1beta2.IPAddressClaim) {
	l.change(func(a *allocator) { a.setClaim(now) })
}

// ClaimGone implements contract.Provider.
func (l *logic) ClaimGone(last *v1beta2.IPAddressClaim) {
	l.change(func(a *allocator) { a.claimGone(last) })
}

// AddressShown implements contract.Provider.
func (l *logic) AddressShown(before, now *v1beta2.IPAddress) {
	l.change(func(a *allocator) {
		if now == nil {
			a.addressGone(before)
		} else {
			a.setAddress(now)
		}
	})
}

// readPools has the pools of a kind read.
func readPools[T any, P runner.Pointer[T]](l *logic, kind *runner.Kind, view func(P) *object) {
	runner.Read(l.term, kind, func(before, now P) {
		var o *object
		if now != nil {
			o = view(now)
		}
		l.change(func(a *allocator) { a.setPool(runner.KeyOf(kind, cmp.Or(now, before)), o) })
	})
}

// change looks at the allocator, or changes it.
func (l *logic) change(how func(*allocator)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	how(l.allocator)
}

// Reconcile implements runner.Logic.
func (l *logic) Reconcile(ctx context.Context, key runner.Key) error {
	if key.Kind == runner.IPAddressClaims {
		return l.Contract.Reconcile(ctx, types.NamespacedName{Namespace: key.Namespace, Name: key.Name})
	}
	return l.syncPool(ctx, key)
}

// Pool implements contract.Provider.
func (l *logic) Pool(claim *v1beta2.IPAddressClaim) (pool metav1.Object, ours bool) {
	key, ours := poolOf(claim.Spec.PoolRef, claim.Namespace)
	if !ours || l.namespaced && key.Namespace == "" {
		return nil, false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if p := l.allocator.pools[key]; p != nil && p.object != nil {
		pool = p.object
	}
	return pool, true
}

// Allocate implements contract.Provider: it reserves a block, and gives it to a claim that says it.
func (l *logic) Allocate(_ context.Context, claim *v1beta2.IPAddressClaim, pool metav1.Object) (given contract.Allocation, err error) {
	l.change(func(a *allocator) {
		c := a.claim(claim)
		if c == nil { // It is gone.
			err = writes.Pending{}
			return
		}
		block, by := a.want(c)
		if err = c.unable(block, by); err != nil {
			return
		}
		given.Annotations = map[string]string{AnnotationAddress: textOf(block)}
		o := c.pool.object
		switch {
		case blockSaid(claim) != block:
			return
		case pool == nil || o.UID != pool.GetUID(): // It was created again just now, and queues the claim.
			err = writes.Pending{}
			return
		}
		given.Address, given.Prefix, given.Gateway = block.Addr(), o.spec.addresses.Prefix, o.spec.gateway
		if o.kind.prefixes {
			given.Prefix = block.Bits()
		}
	})
	return given, err
}

// Confirm implements contract.Provider: no other IPAddress of the pool has an address of this one.
func (l *logic) Confirm(_ context.Context, claim *v1beta2.IPAddressClaim, address *v1beta2.IPAddress) (err error) {
	l.change(func(a *allocator) {
		key, _ := poolOf(address.Spec.PoolRef, address.Namespace)
		p, block := a.pools[key], blockOf(address)
		if p == nil || !block.IsValid() || claim.DeletionTimestamp != nil {
			return
		}
		if others := p.others(block, contract.NameOf(address)); len(others) > 0 {
			err = contract.Waits{Reason: v1beta2.ReasonAllocationFailed,
				Message: fmt.Sprintf("The address %s belongs to several IPAddresses: this claim's, and %s. Delete the claims of all but one.", textOf(block), namesOf(others))}
		}
	})
	return err
}

// MayRelease implements contract.Provider: an address stays for the grace period of its pool.
func (l *logic) MayRelease(claim *v1beta2.IPAddressClaim) error {
	until := claim.DeletionTimestamp.Time
	l.change(func(a *allocator) {
		if c := a.claim(claim); c != nil && c.block.IsValid() {
			until = until.Add(c.pool.grace())
		}
	})
	rest := time.Until(until)
	if rest <= 0 {
		return nil
	}
	return contract.Waits{Reason: contract.ReasonDeleting, Again: rest,
		Message: fmt.Sprintf("The claim is being deleted, and keeps its address until %s (spec.addressReuseGracePeriodSeconds of the pool).", until.UTC().Format(time.RFC3339))}
}

// Release implements contract.Provider. The block is free when the claim is gone.
func (l *logic) Release(context.Context, *v1beta2.IPAddressClaim) error { return nil }

package contract

import (
	"cmp"
	"maps"
	"slices"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/multicidr/controller-manager/apis/clusterapi/v1beta2"
	"github.com/multicidr/controller-manager/controllers/clusteripam/runner"
)

// Reads are what a Contract reads, restricted to a namespace unless that is empty.
func Reads(namespace string) []runner.Reads {
	return []runner.Reads{
		{Kind: runner.IPAddressClaims, Namespace: namespace},
		{Kind: runner.IPAddresses, Namespace: namespace},
		{Kind: runner.Clusters, Namespace: namespace, Optional: true},
	}
}

// Contract works on the IPAddressClaims of one provider, for one term. Use New to make one. Its methods are safe for concurrent use.
type Contract struct {
	Config
	Claims    runner.Lister[*v1beta2.IPAddressClaim]
	Addresses runner.Lister[*v1beta2.IPAddress]
	clusters  runner.Lister[*Cluster]

	mu sync.Mutex // guards what follows
	// creating is until when a create of an IPAddress without an answer can be carried out, by UID of the claim. It counts also if the watch shows an
	// IPAddress, since a restore may have made that one. Zero: the create has an answer, and the watch may not show the IPAddress yet.
	creating map[types.UID]time.Time
	moved    map[types.UID]bool                                 // UIDs of claims whose IPAddress clusterctl has deleted
	gone     map[types.NamespacedName][]*v1beta2.IPAddressClaim // claims that are gone, and whose IPAddress may exist or may be created
}

// New returns the Contract of a term. It makes no requests.
func New(cfg Config) *Contract {
	c := &Contract{Config: cfg, creating: map[types.UID]time.Time{}, moved: map[types.UID]bool{}, gone: map[types.NamespacedName][]*v1beta2.IPAddressClaim{}}
	c.Claims = runner.Read(cfg.Term, runner.IPAddressClaims, c.claimChanged)
	c.Claims.Index(byToken, tokensOf)
	c.Addresses = runner.Read(cfg.Term, runner.IPAddresses, c.addressChanged)
	c.clusters = runner.Read(cfg.Term, runner.Clusters, c.clusterChanged)
	return c
}

// ClaimsOf returns the names of the claims of a pool, and of its IPAddresses. The namespace is empty for a pool without one.
func (c *Contract) ClaimsOf(kind, namespace, name string) []types.NamespacedName {
	all := map[types.NamespacedName]bool{}
	note := func(o metav1.Object, ref v1beta2.IPPoolReference) {
		if ref == (v1beta2.IPPoolReference{APIGroup: v1beta2.GroupName, Kind: kind, Name: name}) && (namespace == "" || namespace == o.GetNamespace()) {
			all[NameOf(o)] = true
		}
	}
	for _, claim := range c.Claims.List() {
		note(claim, claim.Spec.PoolRef)
	}
	for _, address := range c.Addresses.List() {
		note(address, address.Spec.PoolRef)
	}
	return slices.Collect(maps.Keys(all))
}

// QueuePool queues the claims that ClaimsOf names.
func (c *Contract) QueuePool(kind, namespace, name string) {
	for _, claim := range c.ClaimsOf(kind, namespace, name) {
		c.Queue(claim)
	}
}

// Queue queues a claim.
func (c *Contract) Queue(claim types.NamespacedName) {
	c.Term.Queue.Add(runner.Key{Kind: runner.IPAddressClaims, Namespace: claim.Namespace, Name: claim.Name})
}

func (c *Contract) claimChanged(before, now *v1beta2.IPAddressClaim) {
	if now == nil {
		c.mu.Lock()
		delete(c.moved, before.UID)
		c.gone[NameOf(before)] = append(c.gone[NameOf(before)], before)
		c.mu.Unlock()
	} else {
		if _, ours := c.Provider.Pool(now); ours {
			c.Term.Waits(now, now.Status.AddressRef.Name == "")
		}
		c.Provider.ClaimShown(before, now)
	}
	c.Queue(NameOf(cmp.Or(now, before)))
}

func (c *Contract) addressChanged(before, now *v1beta2.IPAddress) {
	last := cmp.Or(now, before)
	claim, claimed := c.Claims.Get(last.Namespace, last.Name)
	c.mu.Lock()
	switch owner := madeFor(last); {
	case now != nil && c.creating[owner].IsZero(): // A create with an answer is over.
		delete(c.creating, owner)
	case now == nil && claimed && GoingAway(before):
		c.moved[claim.UID] = true
	}
	if now != nil && claimed && !GoingAway(now) { // It is back.
		delete(c.moved, claim.UID)
	}
	c.mu.Unlock()
	c.Provider.AddressShown(before, now)
	c.Queue(NameOf(last))
}

// madeFor returns the UID of the claim that owns an IPAddress.
func madeFor(address *v1beta2.IPAddress) types.UID {
	for _, o := range address.OwnerReferences {
		if o.Kind == v1beta2.KindIPAddressClaim && o.Name == address.Name {
			return o.UID
		}
	}
	return ""
}

func (c *Contract) clusterChanged(before, now *Cluster) {
	if before != nil && now != nil && before.Paused() == now.Paused() {
		return
	}
	cluster := NameOf(cmp.Or(now, before))
	for _, claim := range c.Claims.List() {
		if claim.Namespace == cluster.Namespace && clusterOf(claim) == cluster.Name {
			c.Queue(NameOf(claim))
		}
	}
}

// withoutCluster reports whether a claim names a Cluster that does not exist, or not yet.
func (c *Contract) withoutCluster(claim *v1beta2.IPAddressClaim) bool {
	name := clusterOf(claim)
	if _, served := c.Term.Served(runner.Clusters); !served || name == "" {
		return false
	}
	_, exists := c.clusters.Get(claim.Namespace, name)
	return !exists
}

// chosen reports whether the claim is one of those that this process works on.
func (c *Contract) chosen(claim *v1beta2.IPAddressClaim) bool {
	return c.WatchFilter == "" || claim.Labels[LabelWatchFilter] == c.WatchFilter
}

// paused reports whether the pool, which may be nil, or the Cluster of a claim is paused.
func (c *Contract) paused(claim *v1beta2.IPAddressClaim, pool metav1.Object) bool {
	cluster, ok := c.clusters.Get(claim.Namespace, clusterOf(claim))
	return pool != nil && Paused(pool) || ok && cluster.Paused()
}

// works reports whether this process works on a claim: it is one of its own, and nothing about it is paused. pool may be nil.
func (c *Contract) works(claim *v1beta2.IPAddressClaim, pool metav1.Object) bool {
	return c.chosen(claim) && !Paused(claim) && !c.paused(claim, pool)
}

// Wants reports whether a claim has no IPAddress, and nothing about it forbids to give it an address. It is cheap, and may be called by handlers.
func (c *Contract) Wants(claim *v1beta2.IPAddressClaim, pool metav1.Object) bool {
	_, found := c.Addresses.Get(claim.Namespace, claim.Name)
	return !found && claim.DeletionTimestamp == nil && c.works(claim, pool) && !GoingAway(claim) && !GoingAway(pool) && !c.withoutCluster(claim)
}

// Figures returns how many claims of the provider wait, by the reason in their condition, and how many have an address.
func (c *Contract) Figures() (waiting map[string]int, bound int) {
	waiting = map[string]int{}
	for _, claim := range c.Claims.List() {
		pool, ours := c.Provider.Pool(claim)
		switch ready := Find(claim.Status.Conditions, v1beta2.ConditionReady); {
		case !ours || claim.DeletionTimestamp != nil:
		case claim.Status.AddressRef.Name != "":
			bound++
		case !c.works(claim, pool):
			waiting["Paused"]++
		case ready != nil:
			waiting[ready.Reason]++
		}
	}
	return waiting, bound
}

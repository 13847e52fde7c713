package contract

import (
	"cmp"
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

	mu         sync.Mutex // guards what follows
	ofPool     index[poolOf]
	ofCluster  index[types.NamespacedName]
	tokens     map[types.UID]map[types.UID]bearer // by token, and by UID of the claim
	since      map[types.UID]time.Time            // when a claim without an address was first seen
	creates    map[types.UID]create               // by UID of the claim
	created    map[types.UID]bool                 // UIDs of IPAddresses that this process created
	moved      map[types.UID]bool                 // UIDs of claims whose IPAddress clusterctl has deleted
	departures map[types.NamespacedName][]departure
}

// create is a create of an IPAddress whose result the watch does not show yet.
type create struct {
	stored types.UID // of the IPAddress, if the answer said so
	until  time.Time // until when it can be carried out; zero if it was answered
}

// departure is a claim that is gone, and whose IPAddress may exist or may be created.
type departure struct {
	claim *v1beta2.IPAddressClaim
	// release: what it has is given back, because the claim was deleted before its finalizer counted.
	release bool
}

// New returns the Contract of a term. It makes no requests.
func New(cfg Config) *Contract {
	c := &Contract{
		Config: cfg, ofPool: index[poolOf]{}, ofCluster: index[types.NamespacedName]{}, tokens: map[types.UID]map[types.UID]bearer{}, since: map[types.UID]time.Time{},
		creates: map[types.UID]create{}, created: map[types.UID]bool{}, moved: map[types.UID]bool{}, departures: map[types.NamespacedName][]departure{},
	}
	c.Claims = runner.Read(cfg.Term, runner.IPAddressClaims, c.claimChanged)
	c.Addresses = runner.Read(cfg.Term, runner.IPAddresses, c.addressChanged)
	c.clusters = runner.Read(cfg.Term, runner.Clusters, c.clusterChanged)
	return c
}

// poolOf is a pool as a claim or an IPAddress names it. The namespace is theirs, or empty for those in all namespaces.
type poolOf struct {
	v1beta2.IPPoolReference
	namespace string
}

// index has the names of claims by what they refer to. An IPAddress counts as the claim of its name, so a name is counted.
type index[K comparable] map[K]map[types.NamespacedName]int

func (i index[K]) add(k K, name types.NamespacedName, n int) {
	if i[k] == nil {
		i[k] = map[types.NamespacedName]int{}
	}
	if i[k][name] += n; i[k][name] == 0 {
		delete(i[k], name)
	}
	if len(i[k]) == 0 {
		delete(i, k)
	}
}

// QueuePool queues every claim, and the claim of every IPAddress, that names a pool. The namespace is empty for a pool without one.
func (c *Contract) QueuePool(kind, namespace, name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.queue(c.ofPool[poolOf{v1beta2.IPPoolReference{APIGroup: v1beta2.GroupName, Kind: kind, Name: name}, namespace}])
}

// ClaimsOf returns the names of the claims of a pool, and of its IPAddresses. The namespace is empty for a pool without one.
func (c *Contract) ClaimsOf(kind, namespace, name string) (all []types.NamespacedName) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for of := range c.ofPool[poolOf{v1beta2.IPPoolReference{APIGroup: v1beta2.GroupName, Kind: kind, Name: name}, namespace}] {
		all = append(all, of)
	}
	return all
}

func (c *Contract) queue(claims map[types.NamespacedName]int) {
	for name := range claims {
		c.Queue(name)
	}
}

// Queue queues a claim.
func (c *Contract) Queue(claim types.NamespacedName) {
	c.Term.Queue.Add(runner.Key{Kind: runner.IPAddressClaims, Namespace: claim.Namespace, Name: claim.Name})
}

func (c *Contract) refer(ref v1beta2.IPPoolReference, name types.NamespacedName, n int) {
	c.ofPool.add(poolOf{ref, name.Namespace}, name, n)
	c.ofPool.add(poolOf{ref, ""}, name, n)
}

// enter adds a claim to the indexes, or takes it out.
func (c *Contract) enter(claim *v1beta2.IPAddressClaim, n int) {
	name := NameOf(claim)
	c.refer(claim.Spec.PoolRef, name, n)
	if cluster := clusterOf(claim); cluster != "" {
		c.ofCluster.add(types.NamespacedName{Namespace: name.Namespace, Name: cluster}, name, n)
	}
	for token, b := range bears(claim) {
		switch {
		case n > 0 && c.tokens[token] == nil:
			c.tokens[token] = map[types.UID]bearer{claim.UID: b}
		case n > 0:
			c.tokens[token][claim.UID] = b
		case len(c.tokens[token]) == 1:
			delete(c.tokens, token)
		default:
			delete(c.tokens[token], claim.UID)
		}
	}
}

func (c *Contract) claimChanged(before, now *v1beta2.IPAddressClaim) {
	over := false
	_, ours := c.Provider.Pool(cmp.Or(now, before))
	c.mu.Lock()
	if before != nil {
		c.enter(before, -1)
	}
	if now != nil {
		c.enter(now, 1)
		if _, seen := c.since[now.UID]; !seen && now.Status.AddressRef.Name == "" {
			c.since[now.UID] = time.Now()
		}
	} else {
		over = c.gone(before, ours)
	}
	c.mu.Unlock()
	switch {
	case now != nil && c.ClaimShown != nil:
		c.ClaimShown(before, now)
	case over:
		c.over(before)
	}
	c.Queue(NameOf(cmp.Or(now, before)))
}

// gone notes that a claim is gone. It reports whether it has left nothing. A claim that the watch showed as deleted with our finalizer, and without having been
// marked as deleted, was deleted before the finalizer counted: the API server looks once, and then deletes later versions, too.
func (c *Contract) gone(claim *v1beta2.IPAddressClaim, ours bool) (over bool) {
	delete(c.since, claim.UID)
	delete(c.moved, claim.UID)
	early := ours && c.chosen(claim) && claim.DeletionTimestamp == nil && has(claim, v1beta2.FinalizerReleaseAddress) && !GoingAway(claim)
	if _, creating := c.creates[claim.UID]; !creating && !early {
		return true
	}
	c.departures[NameOf(claim)] = append(c.departures[NameOf(claim)], departure{claim, early})
	return false
}

// over tells the provider that nothing more comes from a claim.
func (c *Contract) over(claim *v1beta2.IPAddressClaim) {
	if c.ClaimGone != nil {
		c.ClaimGone(claim)
	}
}

func (c *Contract) addressChanged(before, now *v1beta2.IPAddress) {
	c.mu.Lock()
	if before != nil {
		c.refer(before.Spec.PoolRef, NameOf(before), -1)
	}
	if now != nil {
		c.refer(now.Spec.PoolRef, NameOf(now), 1)
		if uid := madeFor(now); c.creates[uid].stored == now.UID {
			delete(c.creates, uid)
		}
	} else {
		if delete(c.created, before.UID); GoingAway(before) {
			c.moved[madeFor(before)] = true
		}
	}
	c.mu.Unlock()
	if c.AddressShown != nil {
		c.AddressShown(before, now)
	}
	c.Queue(NameOf(cmp.Or(now, before)))
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
	c.mu.Lock()
	defer c.mu.Unlock()
	c.queue(c.ofCluster[NameOf(cmp.Or(now, before))])
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

// heldUp reports whether the pool or the Cluster of a claim is paused. pool may be nil.
func (c *Contract) heldUp(claim *v1beta2.IPAddressClaim, pool metav1.Object) bool {
	cluster, ok := c.clusters.Get(claim.Namespace, clusterOf(claim))
	return pool != nil && Paused(pool) || ok && cluster.Paused()
}

// works reports whether this process works on a claim: it is one of its own, and nothing about it is paused. pool may be nil.
func (c *Contract) works(claim *v1beta2.IPAddressClaim, pool metav1.Object) bool {
	return c.chosen(claim) && !Paused(claim) && !c.heldUp(claim, pool)
}

// rests reports whether a claim is to be left as it is: this process does not work on it, or another cluster has it by now.
func (c *Contract) rests(claim *v1beta2.IPAddressClaim, pool metav1.Object) bool {
	return !c.works(claim, pool) || GoingAway(claim) || GoingAway(pool)
}

// Wants reports whether a claim has no IPAddress, and nothing about it forbids to give it an address. It is cheap, and may be called by handlers.
func (c *Contract) Wants(claim *v1beta2.IPAddressClaim, pool metav1.Object) bool {
	_, found := c.Addresses.Get(claim.Namespace, claim.Name)
	return !found && claim.DeletionTimestamp == nil && !c.rests(claim, pool) && !c.withoutCluster(claim)
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
		case c.rests(claim, pool):
			waiting["Paused"]++
		case ready != nil:
			waiting[ready.Reason]++
		}
	}
	return waiting, bound
}

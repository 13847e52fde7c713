package book

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"

	"github.com/multicidr/controller-manager/apis/clusterapi/v1alpha2"
	"github.com/multicidr/controller-manager/apis/clusterapi/v1beta2"
	"github.com/multicidr/controller-manager/controllers/clusteripam/addresses"
)

// Key names an object. Claims, IPAddresses and InClusterIPPools have a namespace, GlobalInClusterIPPools have none.
type Key struct{ Kind, Namespace, Name string }

func (k Key) String() string {
	if k.Namespace == "" {
		return k.Kind + " " + k.Name
	}
	return k.Kind + " " + k.Namespace + "/" + k.Name
}

// Compare orders keys by kind, namespace and name.
func Compare(a, b Key) int {
	return cmp.Or(strings.Compare(a.Kind, b.Kind), strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Name, b.Name))
}

// ClaimKey returns the key of a claim.
func ClaimKey(namespace, name string) Key { return Key{v1beta2.KindIPAddressClaim, namespace, name} }

// Pool is what both kinds of pools have in common.
type Pool struct {
	Kind string
	metav1.ObjectMeta
	Spec   v1alpha2.InClusterIPPoolSpec
	Status v1alpha2.InClusterIPPoolStatus
	// Unreadable is why some fields could not be read; empty if all were. Nothing is allocated from such a pool.
	Unreadable string
}

func (p *Pool) key() Key { return Key{p.Kind, p.Namespace, p.Name} }

// Book is the state. Use [New] to make one. Objects that it is given must not be modified afterwards. Not safe for concurrent use.
type Book struct {
	claims    map[Key]*claim
	ghosts    map[Key][]*claim // claims that are gone, and whose IPAddress may still be created
	addresses map[Key]*address // by the key of the claim of the same name
	pools     map[Key]*pool
	clusters  map[Key]*cluster
	// clustersServed is whether the API server knows Clusters. Without them, no claim waits for one.
	clustersServed bool
	// order has all pools, by key.
	order []*pool
	// started is whether all objects that exist are known. Nothing is reserved before.
	started bool

	// over are IPAddresses that a read has proved gone before the cache showed them, and when. The cache may be late, and show them yet. It
	// may even say first that they are gone, because its store has what answers showed.
	over map[types.UID]time.Time

	// What has happened since the last call of Changes:
	touched map[Key]bool
	// freed are pools in which waiting claims may be served now.
	freed map[*pool]bool
}

// address is an IPAddress object.
type address struct {
	object *v1beta2.IPAddress
	place
	// holds are the places that it has had, without those that cannot be read: the one that it had first, and those to which it was edited. A
	// machine may use each.
	holds []place
	// deleted is whether this process has deleted it.
	deleted bool
}

// place is an address of a pool.
type place struct {
	pool *pool      // nil if it is a pool of another kind
	addr netip.Addr // invalid if it cannot be read
}

// first is the place that was allocated.
func (a *address) first() place {
	if len(a.holds) > 0 {
		return a.holds[0]
	}
	return a.place
}

// edited reports whether somebody has changed the pool or the address of an IPAddress.
func (a *address) edited() bool { return a.place != a.first() }

// cluster is a Cluster of Cluster API, if it exists, and the claims that name it.
type cluster struct {
	key            Key
	exists, paused bool
	claims         map[*claim]bool
}

// pool is a pool object, if it exists, and everything that refers to it.
type pool struct {
	key    Key
	object *Pool
	usage  addresses.Usage
	// invalid is why nothing is allocated from it; compiled is nil then.
	compiled *addresses.Pool
	invalid  string
	holdings map[netip.Addr]*holding
	// conflicts are the addresses that several IPAddresses have.
	conflicts map[netip.Addr]bool
	claims    map[*claim]bool
	waiting   queue
	// overlaps are other pools that have addresses of this one: the first by key, atMost of them, because there may be very many.
	overlaps []overlap
	// strays are IPAddresses without a claim, unreadable those whose address cannot be read, and edited those that have it no more.
	strays, unreadable, edited map[*address]bool

	statusAt time.Time // when its status was last sent
	// said are the conditions that were last stored. A CRD that is not ours drops them.
	said []metav1.Condition
}

// overlap is a pool, and the first address that it has in common with another one.
type overlap struct {
	pool *pool
	at   netip.Addr
}

// holding is who has one address.
type holding struct {
	claims    []*claim
	addresses []*address
}

func New() *Book {
	return &Book{
		claims: map[Key]*claim{}, ghosts: map[Key][]*claim{}, addresses: map[Key]*address{}, pools: map[Key]*pool{}, clusters: map[Key]*cluster{},
		touched: map[Key]bool{}, freed: map[*pool]bool{}, over: map[types.UID]time.Time{},
	}
}

// Start reserves addresses for the claims that need one, oldest first. Call it when the book knows all objects.
func (b *Book) Start() {
	b.started = true
	for _, c := range slices.SortedFunc(maps.Values(b.claims), byAge) {
		b.settle(c)
	}
	for _, a := range b.addresses {
		b.touch(claimOf(a.object))
	}
	for key := range b.pools {
		b.touch(key)
	}
	b.serve()
}

// Changes returns the claims and pools to ask about because of what has happened since the last call.
func (b *Book) Changes() []Key {
	keys := slices.SortedFunc(maps.Keys(b.touched), Compare)
	clear(b.touched)
	return keys
}

func (b *Book) touch(k Key) { b.touched[k] = true }

// newer reports whether the object with the resource version now replaces the one with before: answers to requests and events of a cache
// arrive in any order.
func newer(now, before string) bool {
	order, err := resourceversion.CompareResourceVersion(now, before)
	return err != nil || order >= 0
}

// SetPool notes a pool as it is stored.
func (b *Book) SetPool(o *Pool) {
	p := b.pool(o.key())
	before, mattered := p.object, p.matters()
	if before != nil && before.UID == o.UID && !newer(o.ResourceVersion, before.ResourceVersion) {
		return
	}
	p.object = o
	if before != nil && before.UID != o.UID {
		p.said, p.statusAt = nil, time.Time{}
	}
	same := before != nil && before.UID == o.UID && before.Unreadable == o.Unreadable && equality.Semantic.DeepEqual(before.Spec, o.Spec)
	if !same {
		b.compile(p)
	}
	if b.touch(p.key); !same || p.matters() != mattered { // otherwise only its status has changed
		b.poolChanged(p)
	}
}

// matters is what a claim has to know of its pool, besides the spec.
func (p *pool) matters() [3]bool {
	return [...]bool{p.eligible(), p.isPaused(), p.object != nil && p.object.DeletionTimestamp != nil}
}

// PoolGone notes that a pool does not exist any more.
func (b *Book) PoolGone(key Key, uid types.UID) {
	p, ok := b.pools[key]
	if !ok || p.object == nil || p.object.UID != uid {
		return
	}
	p.object, p.said = nil, nil
	b.compile(p)
	b.poolChanged(p)
	b.tidy(p)
}

func (b *Book) pool(key Key) *pool {
	p, ok := b.pools[key]
	if !ok {
		p = &pool{key: key, holdings: map[netip.Addr]*holding{}, conflicts: map[netip.Addr]bool{}, claims: map[*claim]bool{},
			strays: map[*address]bool{}, unreadable: map[*address]bool{}, edited: map[*address]bool{}}
		b.pools[key] = p
		i, _ := b.find(key)
		b.order = slices.Insert(b.order, i, p)
	}
	return p
}

// find returns the index of a pool in the order of all.
func (b *Book) find(key Key) (i int, ok bool) {
	return slices.BinarySearchFunc(b.order, key, func(p *pool, key Key) int { return Compare(p.key, key) })
}

// tidy forgets a pool to which nothing refers.
func (b *Book) tidy(p *pool) {
	if p.object == nil && len(p.claims) == 0 && len(p.holdings) == 0 && len(p.unreadable) == 0 {
		delete(b.pools, p.key)
		delete(b.freed, p)
		if i, ok := b.find(p.key); ok {
			b.order = slices.Delete(b.order, i, i+1)
		}
	}
}

// compile reads the spec of a pool.
func (b *Book) compile(p *pool) {
	p.compiled, p.invalid = nil, ""
	if p.object != nil {
		s := p.object.Spec
		compiled, err := addresses.Compile(addresses.Spec{
			Addresses: s.Addresses, Excluded: s.ExcludedAddresses, Gateway: s.Gateway, Prefix: s.Prefix, AllocateReserved: s.AllocateReservedIPAddresses,
		})
		switch {
		case p.object.Unreadable != "":
			p.invalid = "some fields cannot be read: " + p.object.Unreadable
		case err != nil:
			p.invalid = err.Error()
		case s.AddressReuseGracePeriodSeconds != nil && *s.AddressReuseGracePeriodSeconds < 0:
			p.invalid = "spec.addressReuseGracePeriodSeconds is negative. Write 0 or more"
		default:
			p.compiled = compiled
		}
	}
	p.usage.SetPool(p.compiled)
	b.overlap(p)
}

// overlap finds the pools that have addresses of p. Networks of different machines may have equal addresses, so this is only reported.
func (b *Book) overlap(p *pool) {
	p.overlaps = b.overlapping(p)
	for _, o := range b.order {
		if o == p {
			continue
		}
		i, listed := slices.BinarySearchFunc(o.overlaps, p.key, func(l overlap, key Key) int { return Compare(l.pool.key, key) })
		at, shared := o.shares(p)
		switch {
		case listed && !shared:
			o.overlaps = b.overlapping(o)
			b.touch(o.key)
		case listed && o.overlaps[i].at != at:
			o.overlaps[i].at = at
			b.touch(o.key)
		case listed:
		case shared && i < atMost:
			o.overlaps = slices.Insert(o.overlaps, i, overlap{p, at})
			o.overlaps = o.overlaps[:min(len(o.overlaps), atMost)]
			b.touch(o.key)
		}
	}
}

// overlapping returns the first pools that have addresses of p.
func (b *Book) overlapping(p *pool) (all []overlap) {
	if p.compiled == nil {
		return nil
	}
	for _, o := range b.order {
		if at, shared := p.shares(o); shared && o != p {
			if all = append(all, overlap{o, at}); len(all) == atMost {
				break
			}
		}
	}
	return all
}

// shares returns the first address that two pools have in common, if the same machines can use both.
func (p *pool) shares(o *pool) (at netip.Addr, ok bool) {
	if p.compiled == nil || o.compiled == nil || p.key.Namespace != o.key.Namespace && p.key.Namespace != "" && o.key.Namespace != "" {
		return netip.Addr{}, false
	}
	return p.compiled.Shared(o.compiled)
}

// poolChanged looks at all claims of a pool again.
func (b *Book) poolChanged(p *pool) {
	b.touch(p.key)
	if !b.started {
		return
	}
	for _, c := range slices.SortedFunc(maps.Keys(p.claims), byAge) {
		b.settle(c)
	}
	for _, h := range p.holdings {
		for _, a := range h.addresses { // the last one may decide when the IPAddress is released
			b.touch(claimOf(a.object))
		}
		for _, c := range h.claims { // one may refer to another pool by now
			b.touch(c.key)
		}
	}
	b.serve()
}

// eligible reports whether new addresses may be allocated from p. Without its finalizer it could vanish at any time.
func (p *pool) eligible() bool {
	return p.object != nil && p.object.DeletionTimestamp == nil && !paused(p.object) && p.compiled != nil &&
		slices.Contains(p.object.Finalizers, v1beta2.FinalizerProtectPool)
}

func (p *pool) isPaused() bool { return p.object != nil && paused(p.object) }

// grace is how long an address of p stays in use after the deletion of its claim.
func (p *pool) grace() time.Duration {
	if p == nil || p.object == nil || p.object.DeletionTimestamp != nil || p.object.Spec.AddressReuseGracePeriodSeconds == nil {
		return 0
	}
	return time.Duration(*p.object.Spec.AddressReuseGracePeriodSeconds) * time.Second
}

func paused(o metav1.Object) bool {
	_, ok := o.GetAnnotations()[v1beta2.AnnotationPaused]
	return ok
}

// SetAddress notes an IPAddress as it is stored.
func (b *Book) SetAddress(o *v1beta2.IPAddress) {
	key := claimOf(o)
	a, ok := b.addresses[key]
	switch {
	case !b.over[o.UID].IsZero():
		return
	case ok && a.object.UID != o.UID:
		b.AddressGone(o.Namespace, o.Name, a.object.UID)
	case ok && !newer(o.ResourceVersion, a.object.ResourceVersion):
		return
	}
	if a = b.addresses[key]; a == nil {
		a = &address{}
		b.addresses[key] = a
	}
	b.holdAddress(a, o)
	b.stray(a)
	b.addressChanged(key)
}

// AddressGone notes that an IPAddress does not exist any more.
func (b *Book) AddressGone(namespace, name string, uid types.UID) {
	key := ClaimKey(namespace, name)
	a, ok := b.addresses[key]
	if !ok || a.object.UID != uid {
		return
	}
	delete(b.addresses, key)
	b.dropAddress(a)
	b.addressChanged(key)
}

// addressChanged looks at the claim of an IPAddress again.
func (b *Book) addressChanged(key Key) {
	b.touch(key)
	if c, ok := b.claims[key]; ok {
		b.settle(c)
	}
	b.serve()
}

// stray notes whether an IPAddress has no claim although it is protected like one of a claim. It may be in use, so it stays until somebody
// deletes it: the garbage collector does not while it has another owner, its pool.
func (b *Book) stray(a *address) {
	if a.pool == nil {
		return
	}
	c := b.claims[claimOf(a.object)]
	without := c == nil || !c.broken && !c.owns(a.object)
	b.list(a.pool, a.pool.strays, a, without && a.object.DeletionTimestamp == nil && slices.Contains(a.object.Finalizers, v1beta2.FinalizerProtectAddress))
}

// list notes whether an IPAddress is in one of the lists that the status of p names.
func (b *Book) list(p *pool, list map[*address]bool, a *address, is bool) {
	if list[a] != is {
		b.touch(p.key)
	}
	if list[a] = is; !is {
		delete(list, a)
	}
}

// holdAddress notes an IPAddress as it is stored: it holds its address. Its spec cannot be changed, but not everybody checks that. If it was
// changed all the same, the IPAddress holds what it had before, too: its machine may have that configured.
func (b *Book) holdAddress(a *address, o *v1beta2.IPAddress) {
	before := a.place
	a.object, a.place = o, place{}
	if key, ours := poolOf(o.Spec.PoolRef, o.Namespace); ours {
		a.place = place{b.pool(key), addrOf(o)}
	}
	if a.pool != nil {
		b.list(a.pool, a.pool.unreadable, a, !a.addr.IsValid())
	}
	if at, ok := b.answeredAt(o); ok && len(a.holds) == 0 && at != a.place { // Edited before the cache showed it.
		a.holds = append(a.holds, at)
		b.holdPlace(a, at, true)
	}
	if a.addr.IsValid() && !slices.Contains(a.holds, a.place) {
		a.holds = append(a.holds, a.place)
		b.holdPlace(a, a.place, true)
	}
	if first := a.first(); first.pool != nil {
		b.list(first.pool, first.pool.edited, a, a.edited())
	}
	if p := before.pool; p != nil && p != a.pool {
		delete(p.strays, a)
		delete(p.unreadable, a)
		b.touch(p.key)
		b.tidy(p)
	}
}

// answeredAt returns what an IPAddress said when this process first heard of it, in an answer.
func (b *Book) answeredAt(o *v1beta2.IPAddress) (_ place, ok bool) {
	key := claimOf(o)
	heard := func(c *claim) bool { return c.answered == o.UID && c.answeredAt.addr.IsValid() }
	if c := b.claims[key]; c != nil && heard(c) {
		return b.at(c.answeredAt), true
	}
	if i := slices.IndexFunc(b.ghosts[key], heard); i >= 0 {
		return b.at(b.ghosts[key][i].answeredAt), true
	}
	return place{}, false
}

func (b *Book) at(s said) place { return place{b.pool(s.pool), s.addr} }

// dropAddress ends all that an IPAddress holds.
func (b *Book) dropAddress(a *address) {
	for _, p := range []*pool{a.pool, a.first().pool} {
		if p != nil {
			delete(p.strays, a)
			delete(p.unreadable, a)
			delete(p.edited, a)
			b.touch(p.key)
		}
	}
	for _, at := range a.holds {
		b.holdPlace(a, at, false)
	}
	if a.pool != nil {
		b.tidy(a.pool)
	}
}

// holdPlace makes an IPAddress a holder of an address, or ends that.
func (b *Book) holdPlace(a *address, at place, holds bool) {
	p := at.pool
	b.touch(p.key)
	h := p.holding(at.addr)
	if holds {
		h.addresses = append(h.addresses, a)
		p.usage.Use(at.addr)
	} else {
		h.addresses = slices.DeleteFunc(h.addresses, func(o *address) bool { return o == a })
		p.usage.Free(at.addr)
	}
	if p.conflicts[at.addr] = len(h.addresses) > 1; !p.conflicts[at.addr] {
		delete(p.conflicts, at.addr)
	}
	for _, c := range slices.Clone(h.claims) { // the address may not be the claim's alone any more
		b.settle(c)
	}
	b.dropped(p, at.addr, h)
}

func (p *pool) holding(at netip.Addr) *holding {
	h, ok := p.holdings[at]
	if !ok {
		h = &holding{}
		p.holdings[at] = h
	}
	return h
}

// dropped frees an address that nobody holds any more.
func (b *Book) dropped(p *pool, at netip.Addr, h *holding) {
	if len(h.claims)+len(h.addresses) == 0 && p.holdings[at] == h {
		delete(p.holdings, at)
		b.freed[p] = true
		b.tidy(p)
	}
}

// SetClustersServed notes whether the API server knows Clusters of Cluster API.
func (b *Book) SetClustersServed(served bool) {
	if b.clustersServed == served {
		return
	}
	b.clustersServed = served
	for _, key := range slices.SortedFunc(maps.Keys(b.clusters), Compare) {
		b.clusterChanged(b.clusters[key])
	}
}

// SetCluster notes a Cluster, and whether it is paused.
func (b *Book) SetCluster(namespace, name string, paused bool) {
	cl := b.cluster(clusterKey(namespace, name))
	if cl.exists && cl.paused == paused {
		return
	}
	cl.exists, cl.paused = true, paused
	b.clusterChanged(cl)
}

// ClusterGone notes that a Cluster does not exist any more.
func (b *Book) ClusterGone(namespace, name string) {
	key := clusterKey(namespace, name)
	cl, ok := b.clusters[key]
	if !ok {
		return
	}
	cl.exists, cl.paused = false, false
	b.clusterChanged(cl)
	b.tidyCluster(cl)
}

// tidyCluster forgets a Cluster to which nothing refers.
func (b *Book) tidyCluster(cl *cluster) {
	if !cl.exists && len(cl.claims) == 0 {
		delete(b.clusters, cl.key)
	}
}

func clusterKey(namespace, name string) Key { return Key{"Cluster", namespace, name} }

func (b *Book) cluster(key Key) *cluster {
	cl, ok := b.clusters[key]
	if !ok {
		cl = &cluster{key: key, claims: map[*claim]bool{}}
		b.clusters[key] = cl
	}
	return cl
}

func (b *Book) clusterChanged(cl *cluster) {
	for _, c := range slices.SortedFunc(maps.Keys(cl.claims), byAge) {
		b.settle(c)
	}
	b.serve()
}

// poolOf returns the pool to which a reference refers. ok is false if the pool is not of this controller's kinds.
func poolOf(ref v1beta2.IPPoolReference, namespace string) (_ Key, ok bool) {
	switch {
	case ref.APIGroup != v1alpha2.GroupName:
		return Key{}, false
	case ref.Kind == v1alpha2.KindInClusterIPPool:
		return Key{ref.Kind, namespace, ref.Name}, true
	case ref.Kind == v1alpha2.KindGlobalInClusterIPPool:
		return Key{ref.Kind, "", ref.Name}, true
	}
	return Key{}, false
}

// claimOf returns the key of the claim of an IPAddress' name.
func claimOf(o *v1beta2.IPAddress) Key { return ClaimKey(o.Namespace, o.Name) }

// addrOf returns the address of an IPAddress; invalid if it has none. Other programs write IPAddresses, too, and a CRD that is not ours stores
// what they write: an IPv4 address as IPv6, with a prefix length, or with blanks.
func addrOf(o *v1beta2.IPAddress) netip.Addr {
	text, _, _ := strings.Cut(strings.TrimSpace(o.Spec.Address), "/")
	at, err := netip.ParseAddr(text)
	if err != nil {
		return netip.Addr{}
	}
	return at.Unmap().WithZone("")
}

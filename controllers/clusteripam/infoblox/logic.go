package infoblox

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/multicidr/controller-manager/apis/clusterapi/v1alpha1"
	"github.com/multicidr/controller-manager/apis/clusterapi/v1beta2"
	"github.com/multicidr/controller-manager/controllers/clusteripam/infoblox/host"
	"github.com/multicidr/controller-manager/controllers/clusteripam/infoblox/wapi"
	"github.com/multicidr/controller-manager/controllers/clusteripam/shell"
)

const (
	// checkEvery is how often an Infoblox is asked whether everything is still there, and checkFailed how often if it is not.
	checkEvery  = time.Minute
	checkFailed = 10 * time.Second
	// settled is how long after a write without an answer Infoblox cannot carry it out any more.
	settled = 15 * time.Second
	// fullFor is how long a pool that was full is not asked again, unless an address of its server is released.
	fullFor = 30 * time.Second
	// lostServerAfter is how long the release of a host record waits for an InfobloxInstance that is gone.
	lostServerAfter = 10 * time.Minute
	// missedEvery is how often it is noted that an InfobloxInstance is still gone. If that was last noted missedAnew ago, the wait for it begins anew.
	missedEvery, missedAnew = time.Minute, 3 * time.Minute
)

// annotationPlace on an IPAddressClaim and its IPAddress is where the host record is: the InfobloxInstance and the network view. Whatever
// becomes of the pool, the address can be released.
const annotationPlace = "networking.x-k8s.io/infoblox-record"

// place is where a host record is.
type place struct{ instance, networkView string }

func (p place) String() string { return p.instance + "/" + p.networkView }

func placeOf(object metav1.Object) (p place, ok bool) {
	p.instance, p.networkView, ok = strings.Cut(object.GetAnnotations()[annotationPlace], "/")
	return p, ok
}

// annotationName on both is the name of the host record. The annotation of the user can be edited at any time.
const annotationName = "networking.x-k8s.io/infoblox-record-name"

// annotationMissing on an IPAddressClaim, or on an IPAddress without one, is since when its release has missed the InfobloxInstance, and when it did last:
// two times with a slash between them.
const annotationMissing = "networking.x-k8s.io/infoblox-instance-missing-since"

// recordName is a name for a host record at a place.
type recordName struct {
	place
	name string
}

// recordOf returns which host record an IPAddressClaim or an IPAddress has.
func recordOf(object metav1.Object) (r recordName, ok bool) {
	r.place, ok = placeOf(object)
	r.name = cmp.Or(object.GetAnnotations()[annotationName], object.GetAnnotations()[v1alpha1.AnnotationHostname])
	return r, ok
}

// recordState is what is going on with the host records of one name.
type recordState struct {
	busy bool // a claim works on them
	// unsettled is until when a write without an answer can still be carried out, and changing until when one that is not a create can.
	unsettled, changing time.Time
}

// logic implements shell.Logic.
type logic struct {
	shell.Parts
	stores
	connect func(wapi.Config) (WAPI, error)
	// unanswered is for how long the API server may still carry out a write that was not answered.
	unanswered func() time.Duration

	began time.Time // when Fill was called
	// unsure is until when an IPAddress can be created that the last process sent. Which address it has, only a host record tells, which somebody may have
	// deleted in Infoblox.
	unsure time.Time

	// The state, guarded by Lock.
	servers  map[string]*server
	changes  int                               // of all servers: an InfobloxInstance that is created again does not repeat the numbers of the last one
	verdicts map[types.NamespacedName]*verdict // of pools
	names    map[types.UID]types.NamespacedName
	// claimsOf and addressesOf are the claims and the IPAddresses of each pool.
	claimsOf, addressesOf map[types.NamespacedName]map[types.NamespacedName]bool
	// strays are the IPAddresses of each pool that were without a claim when something was last heard of them or of a claim of their name.
	strays map[types.NamespacedName]map[types.NamespacedName]bool

	holders  map[netip.Addr]map[types.NamespacedName]place
	told     map[netip.Addr]map[types.NamespacedName]place // claims that were told an address: they hold it without an IPAddress, too
	chosen   map[types.UID]holding                         // addresses that are being written into IPAddresses
	hosts    map[string]string                             // the last address of each InfobloxInstance that was deleted
	records  map[recordName]*recordState                   // by recordKey
	prepared map[types.UID]recordName                      // what was last written into claims, even if the answer was lost
	leaving  map[types.UID]bool                            // claims that give up their host records for others
	creating map[types.UID]time.Time                       // until when a create of an IPAddress can be carried out; there may be one that the cache does not show
	telling  map[types.UID]time.Time                       // until when a write without an answer that tells a claim of its IPAddress can be carried out
	first    map[types.UID]netip.Addr                      // addresses of IPAddresses when this process saw them first
	removed  map[types.UID]bool                            // claims and IPAddresses that are gone soon: this process has removed their host records
	full     map[types.NamespacedName]time.Time            // until when pools are not asked that were full when they were asked last
	waiting  map[types.UID]string                          // reasons
}

type holding struct {
	address netip.Addr
	place   place
}

func newLogic(p shell.Parts, secretNamespace string, connect func(wapi.Config) (WAPI, error), unanswered func() time.Duration) *logic {
	return &logic{
		Parts:      p,
		stores:     newStores(secretNamespace),
		connect:    connect,
		unanswered: unanswered,

		servers:     map[string]*server{},
		verdicts:    map[types.NamespacedName]*verdict{},
		names:       map[types.UID]types.NamespacedName{},
		claimsOf:    map[types.NamespacedName]map[types.NamespacedName]bool{},
		addressesOf: map[types.NamespacedName]map[types.NamespacedName]bool{},
		strays:      map[types.NamespacedName]map[types.NamespacedName]bool{},
		holders:     map[netip.Addr]map[types.NamespacedName]place{},
		told:        map[netip.Addr]map[types.NamespacedName]place{},
		chosen:      map[types.UID]holding{},
		hosts:       map[string]string{},
		records:     map[recordName]*recordState{},
		prepared:    map[types.UID]recordName{},
		leaving:     map[types.UID]bool{},
		creating:    map[types.UID]time.Time{},
		telling:     map[types.UID]time.Time{},
		first:       map[types.UID]netip.Addr{},
		removed:     map[types.UID]bool{},
		full:        map[types.NamespacedName]time.Time{},
		waiting:     map[types.UID]string{},
	}
}

// Reads implements shell.Logic.
func (l *logic) Reads() []shell.Source {
	return []shell.Source{l.instances, l.pools, l.claims, l.addresses, l.clusters, l.secrets}
}

// ofInfoblox reports whether a reference is to an InfobloxIPPool.
func ofInfoblox(r v1beta2.IPPoolReference) bool {
	return r.APIGroup == shell.GroupIPAM && r.Kind == v1alpha1.KindInfobloxIPPool
}

func nameOf(object metav1.Object) types.NamespacedName {
	return types.NamespacedName{Namespace: object.GetNamespace(), Name: object.GetName()}
}

func poolOf(namespace string, r v1beta2.IPPoolReference) types.NamespacedName {
	return types.NamespacedName{Namespace: namespace, Name: r.Name}
}

// Fill implements shell.Logic.
func (l *logic) Fill() {
	l.began = l.Now()
	for _, a := range l.addresses.List() {
		l.heardOfAddress(nil, a)
		if name, ok := recordOf(a); ok && isLeaving(a) && ofInfoblox(a.Spec.PoolRef) { // It may have no claim of its own.
			l.recordState(name).unsettle(false, l.Now())
		}
	}
	for _, c := range l.claims.List() {
		l.heardOfClaim(nil, c)
		l.doubt(c)
	}
	for _, a := range l.addresses.List() { // now that all claims are known
		l.noteStray(a)
	}
	for _, i := range l.instances.List() {
		l.Queue.Add(shell.KeyOf(shell.InfobloxInstances, i))
	}
	for _, p := range l.pools.List() {
		l.Queue.Add(shell.KeyOf(shell.InfobloxIPPools, p))
	}
}

// doubt notes that an earlier leader may have sent a write for a claim, also a create of its IPAddress, or one that tells the claim of it.
func (l *logic) doubt(c *v1beta2.IPAddressClaim) {
	name, ok := recordOf(c)
	if !ok {
		return
	}
	a, has := l.addresses.Get(c.Namespace, c.Name)
	if !has || !served(c) {
		l.creating[c.UID] = l.began.Add(l.unanswered())
	}
	if _, ok := l.creating[c.UID]; ok && (!has || a.Annotations[annotationClaim] != string(c.UID)) { // One that goes may be in the way of the claim's.
		l.unsure = l.creating[c.UID]
	}
	if !has || c.DeletionTimestamp != nil || l.hasAnother(c, a) {
		l.recordState(name).unsettle(false, l.Now())
	}
}

// Heard implements shell.Logic.
func (l *logic) Heard(c shell.Change) {
	switch c.Kind {
	case shell.InfobloxInstances:
		before, _ := c.Before.(*v1alpha1.InfobloxInstance)
		now, _ := c.Now.(*v1alpha1.InfobloxInstance)
		l.heardOfInstance(before, now)
		l.Queue.Add(shell.KeyOf(c.Kind, c.Object()))
	case shell.InfobloxIPPools:
		l.Queue.Add(shell.KeyOf(c.Kind, c.Object()))
		if c.Before != nil && c.Now != nil && paused(c.Before) != paused(c.Now) {
			l.queueAllOf(nameOf(c.Now))
		}
	case shell.Secrets:
		l.heardOfSecret(c.Object())
	case shell.Clusters:
		l.heardOfCluster(c.Object())
	case shell.IPAddressClaims:
		before, _ := c.Before.(*v1beta2.IPAddressClaim)
		now, _ := c.Now.(*v1beta2.IPAddressClaim)
		l.heardOfClaim(before, now)
	case shell.IPAddresses:
		before, _ := c.Before.(*v1beta2.IPAddress)
		now, _ := c.Now.(*v1beta2.IPAddress)
		l.heardOfAddress(before, now)
	}
}

// heardOfInstance notes at which host an InfobloxInstance was that is deleted. That is not known any more if another one of this host gets another host: it may be
// the same Infoblox there.
func (l *logic) heardOfInstance(before, now *v1alpha1.InfobloxInstance) {
	switch {
	case before == nil:
	case now == nil:
		l.hosts[before.Name] = addressOf(before)
	case addressOf(now) != addressOf(before):
		maps.DeleteFunc(l.hosts, func(_, host string) bool { return host == addressOf(before) })
	}
}

func (l *logic) heardOfSecret(secret metav1.Object) {
	for _, i := range l.instances.List() {
		if i.Spec.CredentialsSecretRef.Name == secret.GetName() {
			l.Queue.Add(shell.KeyOf(shell.InfobloxInstances, i))
		}
	}
}

func (l *logic) heardOfCluster(cluster metav1.Object) {
	for _, claim := range l.claims.List() {
		if claim.Namespace == cluster.GetNamespace() && clusterOf(claim) == cluster.GetName() && concerns(claim) {
			l.Queue.Add(shell.KeyOf(shell.IPAddressClaims, claim))
		}
	}
}

func (l *logic) heardOfClaim(before, now *v1beta2.IPAddressClaim) {
	if before != nil && (now == nil || now.UID != before.UID) {
		l.forgetClaim(before.UID) // Whatever kind of pool it names by now.
	}
	if before != nil && ofInfoblox(before.Spec.PoolRef) && (now == nil || now.Spec.PoolRef != before.Spec.PoolRef) { // Not every API server refuses to change it.
		l.refers(before, false)
	}
	l.wasTold(before, false)
	l.wasTold(now, true)
	if now != nil {
		l.shows(now, before == nil)
	}
	claim := cmp.Or(now, before) // of one name
	if a, ok := l.addresses.Get(claim.Namespace, claim.Name); ok {
		l.noteStray(a)
	}
}

// shows notes what a claim is now.
func (l *logic) shows(claim *v1beta2.IPAddressClaim, isNew bool) {
	switch {
	case ofInfoblox(claim.Spec.PoolRef):
		l.names[claim.UID] = nameOf(claim)
		if l.refers(claim, true); isNew {
			l.queuePoolOf(claim)
		}
	case concerns(claim):
		l.Queue.Add(shell.KeyOf(shell.IPAddressClaims, claim))
	}
}

// wasTold notes that a claim was told an address, or no longer.
func (l *logic) wasTold(claim *v1beta2.IPAddressClaim, was bool) {
	if claim == nil {
		return
	}
	had := toldTo(claim).Address
	switch {
	case !had.IsValid():
	case was:
		if l.told[had] == nil {
			l.told[had] = map[types.NamespacedName]place{}
		}
		l.told[had][nameOf(claim)], _ = placeOf(claim)
	default:
		if delete(l.told[had], nameOf(claim)); len(l.told[had]) == 0 {
			delete(l.told, had)
		}
	}
}

func (l *logic) forgetClaim(uid types.UID) {
	delete(l.names, uid)
	delete(l.chosen, uid)
	delete(l.prepared, uid)
	delete(l.leaving, uid)
	delete(l.creating, uid)
	delete(l.telling, uid)
	delete(l.waiting, uid)
	delete(l.removed, uid)
}

// refers notes that a claim refers to its pool, or no longer.
func (l *logic) refers(claim *v1beta2.IPAddressClaim, does bool) {
	note(l.claimsOf, poolOf(claim.Namespace, claim.Spec.PoolRef), nameOf(claim), does)
	if !does {
		l.queuePoolOf(claim)
	}
	l.Queue.Add(shell.KeyOf(shell.IPAddressClaims, claim))
}

// queuePoolOf looks at the pool of a claim: it may be in use no more, or an IPAddress of it without a claim.
func (l *logic) queuePoolOf(claim *v1beta2.IPAddressClaim) {
	pool := poolOf(claim.Namespace, claim.Spec.PoolRef)
	l.Queue.Add(shell.Key{Kind: shell.InfobloxIPPools, Namespace: pool.Namespace, Name: pool.Name})
}

// note notes that a pool has a claim or an IPAddress of a name, or no longer has it.
func note(of map[types.NamespacedName]map[types.NamespacedName]bool, pool, name types.NamespacedName, has bool) {
	switch {
	case has && of[pool] == nil:
		of[pool] = map[types.NamespacedName]bool{name: true}
	case has:
		of[pool][name] = true
	default:
		if delete(of[pool], name); len(of[pool]) == 0 {
			delete(of, pool)
		}
	}
}

func (l *logic) heardOfAddress(before, now *v1beta2.IPAddress) {
	if before != nil && ofInfoblox(before.Spec.PoolRef) {
		l.holds(before, false)
	}
	l.forgetAddress(before, now)
	if now != nil && ofInfoblox(now.Spec.PoolRef) {
		l.holds(now, true)
		l.noteStray(now)
		l.arrived(now)
	}
	for _, a := range []*v1beta2.IPAddress{before, now} {
		if a == nil {
			continue
		}
		// It has the name of its claim, or stands in the way of one.
		if claim, ok := l.claims.Get(a.Namespace, a.Name); ofInfoblox(a.Spec.PoolRef) || ok && ofInfoblox(claim.Spec.PoolRef) {
			l.Queue.Add(shell.KeyOf(shell.IPAddressClaims, a))
		}
		for name := range l.holders[l.firstOf(a)] { // It may be a copy of this one, and wait for it.
			l.Queue.Add(shell.Key{Kind: shell.IPAddressClaims, Namespace: name.Namespace, Name: name.Name})
		}
	}
}

// arrived forgets what was noted about a claim until the cache shows its IPAddress. One of an earlier claim of its name may go, and an earlier create without an answer
// can still be carried out.
func (l *logic) arrived(address *v1beta2.IPAddress) {
	claim, ok := l.claims.Get(address.Namespace, address.Name)
	if !ok || address.Annotations[annotationClaim] != string(claim.UID) && !served(claim) || l.creating[claim.UID].After(l.Now()) {
		return
	}
	delete(l.chosen, claim.UID)
	delete(l.creating, claim.UID)
}

// forgetAddress forgets an IPAddress that is gone.
func (l *logic) forgetAddress(before, now *v1beta2.IPAddress) {
	if before != nil && (now == nil || now.UID != before.UID) {
		delete(l.first, before.UID)
		delete(l.removed, before.UID)
	}
}

// holds notes that an IPAddress has its address and is of its pool, or no longer.
func (l *logic) holds(a *v1beta2.IPAddress, has bool) {
	pool := poolOf(a.Namespace, a.Spec.PoolRef)
	if note(l.addressesOf, pool, nameOf(a), has); !has {
		note(l.strays, pool, nameOf(a), false)
	}
	l.Queue.Add(shell.Key{Kind: shell.InfobloxIPPools, Namespace: pool.Namespace, Name: pool.Name})
	says := hostAddress(a)
	if has && says.IsValid() && !l.first[a.UID].IsValid() {
		l.first[a.UID] = says
	}
	for _, address := range []netip.Addr{says, l.first[a.UID]} { // If it was edited, its machine may have what it was before.
		switch {
		case !address.IsValid():
		case !has:
			if delete(l.holders[address], nameOf(a)); len(l.holders[address]) == 0 {
				delete(l.holders, address)
			}
		default:
			if l.holders[address] == nil {
				l.holders[address] = map[types.NamespacedName]place{}
			}
			at, _ := placeOf(a) // Of an IPAddress that another program has written nobody knows where its record is: it can be anywhere.
			l.holders[address][nameOf(a)] = at
		}
	}
}

// Known implements host.World.
func (l *logic) Known(claim types.UID) *host.Known {
	name, ok := l.names[claim]
	if !ok {
		return nil
	}
	known := &host.Known{Namespace: name.Namespace, Leaves: l.leaving[claim]}
	if c, ok := l.claims.Get(name.Namespace, name.Name); ok {
		known.Leaves = known.Leaves || c.DeletionTimestamp != nil
		switch a, ok := l.addresses.Get(name.Namespace, name.Name); {
		case !ok || !l.owns(c, a):
			known.Told = toldTo(c).Address
		case l.hasAnother(c, a): // It has no IPAddress with an address of its record.
			known.Leaves = true
		default:
			known.Address = l.firstOf(a)
		}
	}
	return known
}

// hasAnother reports whether a claim still has another host record than its IPAddress: it gives it up before it is told (leaveOther).
func (l *logic) hasAnother(claim *v1beta2.IPAddressClaim, address *v1beta2.IPAddress) bool {
	had, has := recordOf(claim)
	return has && !served(claim) && address.Annotations[annotationClaim] != string(claim.UID) && !l.sameRecord(had, l.hostRecordOf(address))
}

// at is the World as seen from one place: the same address in two network views is two addresses.
type at struct {
	*logic
	place place
}

// HeldByAnother implements host.World. Two addresses of one pool are the same address even if the pool has moved to another place in between: an
// Infoblox or a network view can get another name.
func (w at) HeldByAnother(claim types.UID, address netip.Addr) bool {
	own := w.names[claim]
	for _, holders := range []map[types.NamespacedName]place{w.holders[address], w.told[address]} {
		for name, where := range holders {
			if name != own && (w.mayBe(where) || w.samePool(name, own)) {
				return true
			}
		}
	}
	for other, h := range w.chosen {
		if other != claim && h.address == address && (w.mayBe(h.place) || w.samePool(w.names[other], own)) {
			return true
		}
	}
	return false
}

// HeldFor implements host.World.
func (l *logic) HeldFor(claim types.UID, address netip.Addr) (namespaces []string) {
	for name := range l.holders[address] {
		if a, ok := l.addresses.Get(name.Namespace, name.Name); ok && a.Annotations[annotationClaim] == string(claim) {
			namespaces = append(namespaces, name.Namespace)
		}
	}
	for name := range l.told[address] {
		if c, ok := l.claims.Get(name.Namespace, name.Name); ok && c.Annotations[annotationClaim] == string(claim) {
			namespaces = append(namespaces, name.Namespace)
		}
	}
	return namespaces
}

// mayBe reports whether a place where somebody has an address may be this one. Of one whose InfobloxInstance does not exist, and did not since this process
// started, nobody knows in which Infoblox it is: it may have been this one under another name.
func (w at) mayBe(where place) bool {
	if where == (place{}) || w.samePlace(where, w.place) {
		return true
	}
	_, exists := w.instances.Get("", where.instance)
	was, known := w.hosts[where.instance]
	return !exists && where.networkView == w.place.networkView && (!known || was == w.canonical(w.place).instance)
}

// samePool reports whether two claims, or their IPAddresses, are of one pool.
func (l *logic) samePool(a, b types.NamespacedName) bool {
	pool := l.poolUsedBy(a)
	return pool.Name != "" && pool == l.poolUsedBy(b)
}

func (l *logic) poolUsedBy(name types.NamespacedName) (pool types.NamespacedName) {
	if a, ok := l.addresses.Get(name.Namespace, name.Name); ok && ofInfoblox(a.Spec.PoolRef) {
		return poolOf(a.Namespace, a.Spec.PoolRef)
	}
	if c, ok := l.claims.Get(name.Namespace, name.Name); ok && ofInfoblox(c.Spec.PoolRef) {
		return poolOf(c.Namespace, c.Spec.PoolRef)
	}
	return pool
}

// samePlace reports whether two places are in one Infoblox, and the same there.
func (l *logic) samePlace(a, b place) bool {
	return l.canonical(a) == l.canonical(b)
}

// canonical returns a place with the address of the Infoblox instead of the name of its InfobloxInstance: two of them can name one Infoblox.
func (l *logic) canonical(p place) place {
	if i, ok := l.instances.Get("", p.instance); ok {
		p.instance = addressOf(i)
	}
	return p
}

func addressOf(i *v1alpha1.InfobloxInstance) string { return wapi.Address(i.Spec.Host, i.Spec.Port) }

// recordKey returns under which key the state of host records is kept: the same in every Infoblox. Two InfobloxInstances can be one Infoblox, and one can be
// deleted, or get another host, while a write is on its way. Who writes a host record writes all of its addresses.
func recordKey(name recordName) recordName {
	return recordName{place{networkView: name.networkView}, name.name}
}

// recordState returns what is going on with the host records of a name. The caller holds the lock.
func (l *logic) recordState(name recordName) *recordState {
	key := recordKey(name)
	if l.records[key] == nil {
		l.records[key] = &recordState{}
	}
	return l.records[key]
}

// unsettle notes a write without an answer.
func (r *recordState) unsettle(create bool, now time.Time) {
	if r.unsettled = now.Add(settled); !create {
		r.changing = r.unsettled
	}
}

// Sync implements shell.Logic.
func (l *logic) Sync(ctx context.Context, key shell.Key) error {
	switch key.Kind {
	case shell.InfobloxInstances:
		return l.syncInstance(ctx, key)
	case shell.InfobloxIPPools:
		return l.syncPool(ctx, key)
	case shell.IPAddressClaims:
		return l.syncClaim(ctx, key)
	}
	return fmt.Errorf("%v: nobody works on that: %w", key, errors.ErrUnsupported)
}

// shown is what the debug page shows.
type shown struct {
	Instances map[string]shownVerdict
	Pools     map[string]shownVerdict
	Waiting   map[string]string `json:",omitempty"` // reasons by claim
	Addresses int
	Unsettled []string `json:",omitempty"` // host records with a write whose outcome is not known
}

// shownVerdict has no message: it can name a Secret.
type shownVerdict struct {
	Ready   bool
	Reason  string
	Checked time.Time
}

// Show implements shell.Logic.
func (l *logic) Show() any {
	s := shown{Instances: map[string]shownVerdict{}, Pools: map[string]shownVerdict{}, Waiting: map[string]string{}, Addresses: len(l.holders)}
	for name, i := range l.servers {
		s.Instances[name] = shownVerdict{i.ready, i.reason, i.checked}
	}
	for name, p := range l.verdicts {
		s.Pools[name.String()] = shownVerdict{p.ready, p.reason, p.checked}
	}
	for uid, reason := range l.waiting {
		s.Waiting[l.names[uid].String()] = reason
	}
	for name, r := range l.records {
		if l.Now().Before(r.unsettled) {
			s.Unsettled = append(s.Unsettled, name.networkView+" "+name.name)
		}
	}
	slices.Sort(s.Unsettled)
	return s
}

// Figures implements shell.Logic.
func (l *logic) Figures() shell.Figures {
	f := shell.Figures{Waiting: map[string]int{}}
	for _, reason := range l.waiting {
		f.Waiting[reason]++
	}
	for _, names := range l.holders {
		if f.Bound += len(names); l.conflict(names) {
			f.Conflicts++
		}
	}
	return f
}

// conflict reports whether two IPAddresses with equal addresses have the same address.
func (l *logic) conflict(holders map[types.NamespacedName]place) bool {
	for a, where := range holders {
		for b, other := range holders {
			if a != b && (l.samePlace(where, other) || l.samePool(a, b)) {
				return true
			}
		}
	}
	return false
}

package known

import (
	"cmp"
	"maps"
	"net/netip"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/multicidr/controller-manager/apis/clusterapi/v1alpha1"
	"github.com/multicidr/controller-manager/apis/clusterapi/v1beta2"
	"github.com/multicidr/controller-manager/controllers/clusteripam/shell"
)

// HeardOfInstance notes at which host an InfobloxInstance was that is deleted. That is not known any more if another one of this host gets another host: it may be
// the same Infoblox there.
func (w *World) HeardOfInstance(before, now *v1alpha1.InfobloxInstance) {
	switch {
	case before == nil:
	case now == nil:
		w.hosts[before.Name] = AddressOf(before)
	case AddressOf(now) != AddressOf(before):
		maps.DeleteFunc(w.hosts, func(_, host string) bool { return host == AddressOf(before) })
	}
}

func (w *World) HeardOfSecret(secret metav1.Object) {
	for _, i := range w.Instances.List() {
		if i.Spec.CredentialsSecretRef.Name == secret.GetName() {
			w.queue.Add(shell.KeyOf(shell.InfobloxInstances, i))
		}
	}
}

func (w *World) HeardOfCluster(cluster metav1.Object) {
	for _, claim := range w.Claims.List() {
		if claim.Namespace == cluster.GetNamespace() && ClusterOf(claim) == cluster.GetName() && Concerns(claim) {
			w.queue.Add(shell.KeyOf(shell.IPAddressClaims, claim))
		}
	}
}

func (w *World) HeardOfClaim(before, now *v1beta2.IPAddressClaim) {
	if before != nil && (now == nil || now.UID != before.UID) {
		w.forgetClaim(before.UID) // Whatever kind of pool it names by now.
	}
	if before != nil && OfInfoblox(before.Spec.PoolRef) && (now == nil || now.Spec.PoolRef != before.Spec.PoolRef) { // Not every API server refuses to change it.
		w.refers(before, false)
	}
	w.wasTold(before, false)
	w.wasTold(now, true)
	if now != nil {
		w.shows(now, before == nil)
	}
	claim := cmp.Or(now, before) // of one name
	if a, ok := w.Addresses.Get(claim.Namespace, claim.Name); ok {
		w.NoteStray(a)
	}
}

// shows notes what a claim is now. Of one that names another provider's pool for a while, its host record is still known.
func (w *World) shows(claim *v1beta2.IPAddressClaim, isNew bool) {
	_, prepared := RecordOf(claim)
	if prepared || OfInfoblox(claim.Spec.PoolRef) {
		w.Names[claim.UID] = NameOf(claim)
	}
	switch {
	case OfInfoblox(claim.Spec.PoolRef):
		if w.refers(claim, true); isNew {
			w.queuePoolOf(claim)
		}
	case Concerns(claim):
		w.queue.Add(shell.KeyOf(shell.IPAddressClaims, claim))
	}
}

// wasTold notes that a claim was told an address, or no longer, or that it says an address that it was not told here.
func (w *World) wasTold(claim *v1beta2.IPAddressClaim, was bool) {
	if claim == nil {
		return
	}
	noted := w.told
	if !WasServed(claim) {
		noted = w.expects
	}
	had, err := netip.ParseAddr(claim.Annotations[AnnotationAddress])
	switch {
	case err != nil:
	case was:
		if noted[had] == nil {
			noted[had] = map[types.NamespacedName]Place{}
		}
		noted[had][NameOf(claim)], _ = PlaceOf(claim)
	default:
		if delete(noted[had], NameOf(claim)); len(noted[had]) == 0 {
			delete(noted, had)
		}
	}
}

func (w *World) forgetClaim(uid types.UID) {
	delete(w.Names, uid)
	delete(w.Chosen, uid)
	delete(w.Prepared, uid)
	delete(w.Leaving, uid)
	delete(w.Creating, uid)
	delete(w.Telling, uid)
	delete(w.Waiting, uid)
	delete(w.Removed, uid)
}

// refers notes that a claim refers to its pool, or no longer.
func (w *World) refers(claim *v1beta2.IPAddressClaim, does bool) {
	note(w.ClaimsOf, PoolOf(claim.Namespace, claim.Spec.PoolRef), NameOf(claim), does)
	if !does {
		w.queuePoolOf(claim)
	}
	w.queue.Add(shell.KeyOf(shell.IPAddressClaims, claim))
}

// queuePoolOf looks at the pool of a claim: it may be in use no more, or an IPAddress of it without a claim.
func (w *World) queuePoolOf(claim *v1beta2.IPAddressClaim) {
	pool := PoolOf(claim.Namespace, claim.Spec.PoolRef)
	w.queue.Add(shell.Key{Kind: shell.InfobloxIPPools, Namespace: pool.Namespace, Name: pool.Name})
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

func (w *World) HeardOfAddress(before, now *v1beta2.IPAddress) {
	if before != nil && OfInfoblox(before.Spec.PoolRef) {
		w.holds(before, false)
	}
	w.forgetAddress(before, now)
	if now != nil && OfInfoblox(now.Spec.PoolRef) {
		w.holds(now, true)
		w.NoteStray(now)
		w.arrived(now)
	}
	for _, a := range []*v1beta2.IPAddress{before, now} {
		if a == nil {
			continue
		}
		// It has the name of its claim, or stands in the way of one.
		if claim, ok := w.Claims.Get(a.Namespace, a.Name); OfInfoblox(a.Spec.PoolRef) || ok && OfInfoblox(claim.Spec.PoolRef) {
			w.queue.Add(shell.KeyOf(shell.IPAddressClaims, a))
		}
		for name := range w.Holders[w.FirstOf(a)] { // It may be a copy of this one, and wait for it.
			w.queue.Add(shell.Key{Kind: shell.IPAddressClaims, Namespace: name.Namespace, Name: name.Name})
		}
	}
}

// arrived forgets what was noted about a claim until the cache shows its IPAddress. One of an earlier claim of its name may go, and an earlier create without an answer
// can still be carried out.
func (w *World) arrived(address *v1beta2.IPAddress) {
	claim, ok := w.Claims.Get(address.Namespace, address.Name)
	if !ok || address.Annotations[AnnotationClaim] != string(claim.UID) && !WasServed(claim) || w.Creating[claim.UID].After(w.now()) {
		return
	}
	delete(w.Chosen, claim.UID)
	delete(w.Creating, claim.UID)
}

// forgetAddress forgets an IPAddress that is gone.
func (w *World) forgetAddress(before, now *v1beta2.IPAddress) {
	if before != nil && (now == nil || now.UID != before.UID) {
		delete(w.First, before.UID)
		delete(w.Removed, before.UID)
	}
}

// holds notes that an IPAddress has its address and is of its pool, or no longer.
func (w *World) holds(a *v1beta2.IPAddress, has bool) {
	pool := PoolOf(a.Namespace, a.Spec.PoolRef)
	if note(w.AddressesOf, pool, NameOf(a), has); !has {
		note(w.strays, pool, NameOf(a), false)
	}
	w.queue.Add(shell.Key{Kind: shell.InfobloxIPPools, Namespace: pool.Namespace, Name: pool.Name})
	says := HostAddress(a)
	if has && says.IsValid() && !w.First[a.UID].IsValid() {
		w.First[a.UID] = says
	}
	for _, address := range []netip.Addr{says, w.First[a.UID]} { // If it was edited, its machine may have what it was before.
		switch {
		case !address.IsValid():
		case !has:
			if delete(w.Holders[address], NameOf(a)); len(w.Holders[address]) == 0 {
				delete(w.Holders, address)
			}
		default:
			if w.Holders[address] == nil {
				w.Holders[address] = map[types.NamespacedName]Place{}
			}
			at, _ := PlaceOf(a) // Of an IPAddress that another program has written nobody knows where its record is: it can be anywhere.
			w.Holders[address][NameOf(a)] = at
		}
	}
}

// QueueAllOf queues the claims of a pool, and its IPAddresses, which may have none.
func (w *World) QueueAllOf(pool types.NamespacedName) {
	for _, names := range []map[types.NamespacedName]bool{w.ClaimsOf[pool], w.AddressesOf[pool]} {
		for name := range names {
			w.queue.Add(shell.Key{Kind: shell.IPAddressClaims, Namespace: name.Namespace, Name: name.Name})
		}
	}
}

package known

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/multicidr/controller-manager/apis/clusterapi/v1beta2"
	"github.com/multicidr/controller-manager/controllers/clusteripam/infoblox/host"
	"github.com/multicidr/controller-manager/controllers/clusteripam/shell"
	"github.com/multicidr/controller-manager/controllers/text"
)

// Owns reports whether the IPAddress of a claim's name is the claim's: it was made for this claim, the claim was told so, or it is of the claim's pool,
// perhaps from before both were put back with other UIDs. One that somebody else gives up, or that is a copy of another claim's, is only if the claim has
// been told that it has it: its host record may be gone already.
func (w *World) Owns(claim *v1beta2.IPAddressClaim, address *v1beta2.IPAddress) bool {
	by := address.Annotations[AnnotationReleasedBy]
	switch {
	case !OfInfoblox(address.Spec.PoolRef):
		return false
	case address.Annotations[AnnotationClaim] == string(claim.UID), w.hasIt(claim, address):
		return true
	case !WasServed(claim) && (by != "" && by != string(claim.UID) || w.Copied(address)):
		return false
	}
	return address.Spec.PoolRef.Name == claim.Spec.PoolRef.Name && address.Spec.ClaimRef.Name == claim.Name
}

// hasIt reports whether a claim was told that it has an IPAddress of its name, whatever pool it names by now: the IPAddress was made for the same claim as what the
// claim was told or, if another program has made it, has that address.
func (w *World) hasIt(claim *v1beta2.IPAddressClaim, address *v1beta2.IPAddress) bool {
	had := ToldTo(claim)
	return had.Address.IsValid() && string(had.Was) == address.Annotations[AnnotationClaim] && (!had.Unmarked || had.Address == w.FirstOf(address))
}

// Copied reports whether the host record of an IPAddress is that of another one: somebody has copied that one, or a whole namespace.
func (w *World) Copied(address *v1beta2.IPAddress) bool { return len(w.Originals(address)) > 0 }

// Originals returns the names of what an IPAddress may be a copy of, in order: the claim that it was made for, if that is there. Otherwise all have got other UIDs
// since, or another program has created the IPAddress, and any other one may be the original that has the same address in the same host record.
func (w *World) Originals(address *v1beta2.IPAddress) (all []types.NamespacedName) {
	switch name, ok := w.Names[types.UID(address.Annotations[AnnotationClaim])]; {
	case ok && name == NameOf(address):
		return nil
	case ok:
		return []types.NamespacedName{name}
	}
	return w.sharing(NameOf(address), w.FirstOf(address), address.Annotations[AnnotationClaim], w.hostRecordOf(address))
}

// IsCopied is Copied for a claim whose IPAddress is gone: nobody knows whether it or what stays is the original, because it was moved, or another program had created its
// IPAddress.
func (w *World) IsCopied(claim *v1beta2.IPAddressClaim) bool {
	had := ToldTo(claim)
	if _, known := w.Names[had.Was]; known {
		return false
	}
	record, _ := RecordOf(claim)
	return len(w.sharing(NameOf(claim), had.Address, string(had.Was), record)) > 0
}

// sharing returns the names of others, in order, with an address in a host record that was made for one claim. What this process has written is shown before it is noted: the
// new IPAddress of a claim, or that the claim was told.
func (w *World) sharing(own types.NamespacedName, address netip.Addr, madeFor string, record RecordName) (all []types.NamespacedName) {
	for _, names := range []map[types.NamespacedName]Place{w.Holders[address], w.told[address], w.expects[address]} {
		for name := range names {
			if name != own && (w.showsRecord(name, madeFor, record) || w.remembersRecord(name, madeFor, record)) {
				all = append(all, name)
			}
		}
	}
	slices.SortFunc(all, func(a, b types.NamespacedName) int { return cmp.Compare(a.String(), b.String()) })
	return slices.Compact(all)
}

// showsRecord reports whether the IPAddress of a name has a host record that was made for a claim, and is not about to give it up.
func (w *World) showsRecord(name types.NamespacedName, madeFor string, record RecordName) bool {
	a, ok := w.Addresses.Get(name.Namespace, name.Name)
	return ok && a.Annotations[AnnotationClaim] == madeFor && w.keepsRecord(a) && w.SameRecord(record, w.hostRecordOf(a))
}

// remembersRecord reports whether the claim of a name was told that it has such a record, and somebody has taken its IPAddress away. Another one may stand in its way. A
// claim whose release has begun does not count.
func (w *World) remembersRecord(name types.NamespacedName, madeFor string, record RecordName) bool {
	claim, ok := w.Claims.Get(name.Namespace, name.Name)
	if !ok || !WasServed(claim) || !stays(claim) {
		return false
	}
	if a, shown := w.Addresses.Get(name.Namespace, name.Name); shown && OfInfoblox(a.Spec.PoolRef) && w.hasIt(claim, a) { // One with another host record does not count: the claim has both.
		return false
	}
	return w.saysRecord(claim, madeFor, record)
}

// saysRecord reports whether a claim says that it has a host record that was made for a claim.
func (w *World) saysRecord(claim *v1beta2.IPAddressClaim, madeFor string, record RecordName) bool {
	had, _ := RecordOf(claim)
	return claim.Annotations[AnnotationClaim] == madeFor && w.SameRecord(record, had)
}

// Expecting returns the claims that may get an IPAddress with an address in a host record, beside what has it and is called own: they say that they had it, and were moved to
// this cluster, or put back, before their IPAddresses. Whatever record they say by now: without their IPAddresses they may have begun to get others.
func (w *World) Expecting(own types.NamespacedName, had host.Released) (all []*v1beta2.IPAddressClaim) {
	if _, known := w.Names[had.Was]; known {
		return nil
	}
	for name := range w.expects[had.Address] {
		claim, ok := w.Claims.Get(name.Namespace, name.Name)
		_, shown := w.Addresses.Get(name.Namespace, name.Name)
		if ok && !shown && name != own && stays(claim) && claim.Annotations[AnnotationClaim] == string(had.Was) {
			all = append(all, claim)
		}
	}
	return all
}

// IsServed reports whether there is a claim of this name that has had an address.
func (w *World) IsServed(name types.NamespacedName) bool {
	claim, ok := w.Claims.Get(name.Namespace, name.Name)
	return ok && WasServed(claim)
}

// keepsRecord reports whether an IPAddress is not about to give up its host record, and does so, or its claim, before it is gone. One without its finalizer and without a claim
// would leave the record behind: nobody sees that it is deleted.
func (w *World) keepsRecord(address *v1beta2.IPAddress) bool {
	claim, claimed := w.Claims.Get(address.Namespace, address.Name)
	switch {
	case address.Annotations[AnnotationReleasedBy] != "":
		return false
	case !slices.Contains(address.Finalizers, v1beta2.FinalizerProtectAddress):
		return claimed && (w.hasIt(claim, address) || w.says(claim, address))
	}
	return address.DeletionTimestamp == nil || claimed
}

// says reports whether a claim that stays says that it has what an IPAddress has: it was moved with it, and is to be told.
func (w *World) says(claim *v1beta2.IPAddressClaim, address *v1beta2.IPAddress) bool {
	had, err := netip.ParseAddr(claim.Annotations[AnnotationAddress])
	return err == nil && had == w.FirstOf(address) && claim.Annotations[AnnotationClaim] == address.Annotations[AnnotationClaim] && stays(claim)
}

// SameRecord reports whether two names are those of one host record.
func (w *World) SameRecord(a, b RecordName) bool {
	return a.Name == b.Name && a.Place != (Place{}) && w.SamePlace(a.Place, b.Place)
}

// hostRecordOf returns which host record an IPAddress has. If another program has created it, its pool says where.
func (w *World) hostRecordOf(address *v1beta2.IPAddress) RecordName {
	r, ok := RecordOf(address)
	if !ok {
		r.Place = w.PlaceOfPool(address)
	}
	r.Name = cmp.Or(r.Name, address.Name)
	return r
}

// PlaceOfPool returns where the pool of an IPAddress has its host records; nowhere if the pool is gone.
func (w *World) PlaceOfPool(address *v1beta2.IPAddress) (p Place) {
	if pool, ok := w.Pools.Get(address.Namespace, address.Spec.PoolRef.Name); ok {
		p.Instance = pool.Spec.InstanceRef.Name
		p.NetworkView = cmp.Or(pool.Spec.NetworkView, w.defaultView(p.Instance), "default")
	}
	return p
}

// IsPaused reports whether an IPAddress is to be left alone.
func (w *World) IsPaused(address *v1beta2.IPAddress) bool {
	pool, ok := w.Pools.Get(address.Namespace, address.Spec.PoolRef.Name)
	return Paused(address) || ok && Paused(pool)
}

// FirstOf returns the address of an IPAddress, as this process saw it first: its spec cannot be changed, but not everybody checks that, and its
// machine has what was allocated. It is not valid if there is none.
func (w *World) FirstOf(address *v1beta2.IPAddress) netip.Addr {
	if address != nil && w.First[address.UID].IsValid() {
		return w.First[address.UID]
	}
	return HostAddress(address)
}

// StraysOf names the IPAddresses of a pool that have no claim.
func (w *World) StraysOf(pool types.NamespacedName) string {
	var all []string
	for name := range w.strays[pool] {
		if a, ok := w.Addresses.Get(name.Namespace, name.Name); ok && w.isStray(a) {
			all = append(all, name.Name)
		}
	}
	if len(all) == 0 {
		return ""
	}
	slices.Sort(all)
	return fmt.Sprintf("IPAddresses without an IPAddressClaim: %d (%s). They keep their addresses: delete those that no machine uses.",
		len(all), text.Cut(strings.Join(all, ", "), text.MaxListed))
}

// NoteStray notes whether an IPAddress has no claim. Of one that is not noted for its pool yet, HeardOfAddress does that: nothing would end it here if the watch never
// shows it for this pool.
func (w *World) NoteStray(a *v1beta2.IPAddress) {
	if pool := PoolOf(a.Namespace, a.Spec.PoolRef); OfInfoblox(a.Spec.PoolRef) && w.AddressesOf[pool][NameOf(a)] {
		note(w.strays, pool, NameOf(a), w.isStray(a))
	}
}

// isStray reports whether an IPAddress has no claim although it is protected like that of one. It may be in use, so it stays until somebody deletes it: the
// garbage collector does not while it has another owner, the pool.
func (w *World) isStray(a *v1beta2.IPAddress) bool {
	if IsLeaving(a) || !slices.Contains(a.Finalizers, v1beta2.FinalizerProtectAddress) {
		return false
	}
	c, ok := w.Claims.Get(a.Namespace, a.Name)
	return !ok || w.Claims.Broken(c) == nil && !w.Owns(c, a)
}

// Shown reports whether the cache shows exactly this object, a claim or an IPAddress.
func (w *World) Shown(kind *shell.Kind, object metav1.Object) bool {
	if kind == shell.IPAddresses {
		a, ok := w.Addresses.Get(object.GetNamespace(), object.GetName())
		return ok && a.UID == object.GetUID()
	}
	claim, ok := w.Claims.Get(object.GetNamespace(), object.GetName())
	return ok && claim.UID == object.GetUID()
}

package known

import (
	"net/netip"

	"k8s.io/apimachinery/pkg/types"

	"github.com/multicidr/controller-manager/apis/clusterapi/v1beta2"
	"github.com/multicidr/controller-manager/controllers/clusteripam/infoblox/host"
)

// Known implements host.World.
func (w *World) Known(claim types.UID) *host.Known {
	name, ok := w.Names[claim]
	if !ok {
		return nil
	}
	known := &host.Known{Namespace: name.Namespace, Leaves: w.Leaving[claim]}
	if c, ok := w.Claims.Get(name.Namespace, name.Name); ok {
		known.Leaves = known.Leaves || c.DeletionTimestamp != nil
		switch a, ok := w.Addresses.Get(name.Namespace, name.Name); {
		case !ok || !w.Owns(c, a):
			known.Told = ToldTo(c).Address
		case w.HasAnother(c, a): // It has no IPAddress with an address of its record.
			known.Leaves = true
		default:
			known.Address = w.FirstOf(a)
		}
	}
	return known
}

// HasAnother reports whether a claim still has another host record than its IPAddress: it gives it up before it is told (leaveOther).
func (w *World) HasAnother(claim *v1beta2.IPAddressClaim, address *v1beta2.IPAddress) bool {
	had, has := RecordOf(claim)
	return has && !WasServed(claim) && address.Annotations[AnnotationClaim] != string(claim.UID) && !w.SameRecord(had, w.hostRecordOf(address))
}

// At is the World as seen from one place: the same address in two network views is two addresses.
type At struct {
	*World
	Place Place
}

// HeldByAnother implements host.World. Two addresses of one pool are the same address even if the pool has moved to another place in between: an
// Infoblox or a network view can get another name.
func (w At) HeldByAnother(claim types.UID, address netip.Addr) bool {
	own := w.Names[claim]
	for _, holders := range []map[types.NamespacedName]Place{w.Holders[address], w.told[address]} {
		for name, where := range holders {
			if name != own && (w.mayBe(where) || w.samePool(name, own)) {
				return true
			}
		}
	}
	for other, h := range w.Chosen {
		if other != claim && h.Address == address && (w.mayBe(h.Place) || w.samePool(w.Names[other], own)) {
			return true
		}
	}
	return false
}

// Expected implements host.World.
func (w *World) Expected(claim types.UID, address netip.Addr) bool {
	for name := range w.expects[address] {
		if c, ok := w.Claims.Get(name.Namespace, name.Name); ok && c.Annotations[AnnotationClaim] == string(claim) {
			return true
		}
	}
	return false
}

// HeldFor implements host.World.
func (w *World) HeldFor(claim types.UID, address netip.Addr) (namespaces []string) {
	for name := range w.Holders[address] {
		if a, ok := w.Addresses.Get(name.Namespace, name.Name); ok && a.Annotations[AnnotationClaim] == string(claim) {
			namespaces = append(namespaces, name.Namespace)
		}
	}
	for name := range w.told[address] {
		if c, ok := w.Claims.Get(name.Namespace, name.Name); ok && c.Annotations[AnnotationClaim] == string(claim) {
			namespaces = append(namespaces, name.Namespace)
		}
	}
	return namespaces
}

// mayBe reports whether a place where somebody has an address may be this one. Of one whose InfobloxInstance does not exist, and did not since this process
// started, nobody knows in which Infoblox it is: it may have been this one under another name.
func (w At) mayBe(where Place) bool {
	if where == (Place{}) || w.SamePlace(where, w.Place) {
		return true
	}
	_, exists := w.Instances.Get("", where.Instance)
	was, known := w.hosts[where.Instance]
	return !exists && where.NetworkView == w.Place.NetworkView && (!known || was == w.Canonical(w.Place).Instance)
}

// samePool reports whether two claims, or their IPAddresses, are of one pool.
func (w *World) samePool(a, b types.NamespacedName) bool {
	pool := w.poolUsedBy(a)
	return pool.Name != "" && pool == w.poolUsedBy(b)
}

func (w *World) poolUsedBy(name types.NamespacedName) (pool types.NamespacedName) {
	if a, ok := w.Addresses.Get(name.Namespace, name.Name); ok && OfInfoblox(a.Spec.PoolRef) {
		return PoolOf(a.Namespace, a.Spec.PoolRef)
	}
	if c, ok := w.Claims.Get(name.Namespace, name.Name); ok && OfInfoblox(c.Spec.PoolRef) {
		return PoolOf(c.Namespace, c.Spec.PoolRef)
	}
	return pool
}

// SamePlace reports whether two places are in one Infoblox, and the same there.
func (w *World) SamePlace(a, b Place) bool {
	return w.Canonical(a) == w.Canonical(b)
}

// Canonical returns a place with the address of the Infoblox instead of the name of its InfobloxInstance: two of them can name one Infoblox.
func (w *World) Canonical(p Place) Place {
	if i, ok := w.Instances.Get("", p.Instance); ok {
		p.Instance = AddressOf(i)
	}
	return p
}

// Conflict reports whether two IPAddresses with equal addresses have the same address.
func (w *World) Conflict(holders map[types.NamespacedName]Place) bool {
	for a, where := range holders {
		for b, other := range holders {
			if a != b && (w.SamePlace(where, other) || w.samePool(a, b)) {
				return true
			}
		}
	}
	return false
}

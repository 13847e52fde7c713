package infoblox

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/types"

	"github.com/multicidr/controller-manager/apis/clusterapi/v1alpha1"
	"github.com/multicidr/controller-manager/apis/clusterapi/v1beta2"
	"github.com/multicidr/controller-manager/controllers/clusteripam/contract"
	"github.com/multicidr/controller-manager/controllers/clusteripam/infoblox/wapi"
	"github.com/multicidr/controller-manager/controllers/text"
)

// said returns the address that a claim says; not valid if it says none.
func said(claim *v1beta2.IPAddressClaim) (a netip.Addr) {
	if !contract.IsCopy(claim) {
		a, _ = netip.ParseAddr(claim.Annotations[AnnotationAddress])
	}
	return a
}

// has returns the address of a claim's IPAddress, which may be nil, or the one that the claim says; not valid if there is none.
func has(claim *v1beta2.IPAddressClaim, address *v1beta2.IPAddress) (a netip.Addr) {
	if address != nil {
		a, _ = netip.ParseAddr(address.Spec.Address)
		return a
	}
	return said(claim)
}

// noteHolder notes that the claim or the IPAddress of a name may hold an address.
func (l *logic) noteHolder(a netip.Addr, name types.NamespacedName) {
	if !a.IsValid() {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.holders[a] == nil {
		l.holders[a] = map[types.NamespacedName]bool{}
	}
	l.holders[a][name] = true
}

// holdersOf returns the claims and IPAddresses that hold an address, and in which host record. It forgets those that do so no more. The caller holds the lock.
func (l *logic) holdersOf(a netip.Addr) map[types.NamespacedName]recordName {
	all := map[types.NamespacedName]recordName{}
	for name := range l.holders[a] {
		if in, holds := l.holds(name, a); holds {
			in.place = l.infobloxOf(in.place)
			all[name] = in
		} else if delete(l.holders[a], name); len(l.holders[a]) == 0 {
			delete(l.holders, a)
		}
	}
	return all
}

// holds reports whether the IPAddress or the claim of a name holds an address, and in which host record. Of one that another program has allocated, its pool says where
// that is; without a pool it can be anywhere.
func (l *logic) holds(name types.NamespacedName, a netip.Addr) (in recordName, holds bool) {
	claim, claimed := l.contract.Claims.Get(name.Namespace, name.Name)
	address, ok := l.contract.Addresses.Get(name.Namespace, name.Name)
	switch {
	case ok && ofInfoblox(address.Spec.PoolRef) && has(nil, address) == a:
		in, ok = recordOf(address)
		if claimed && !ok {
			in, ok = recordOf(claim)
		}
		if pool, exists := l.pools.Get(name.Namespace, address.Spec.PoolRef.Name); exists && !ok {
			in.place = l.placeOf(pool)
		}
		return in, true
	case claimed && ofInfoblox(claim.Spec.PoolRef) && said(claim) == a:
		in, _ = recordOf(claim)
		return in, true
	}
	return in, false
}

// placeOf returns where the host records of a pool are.
func (l *logic) placeOf(pool *v1alpha1.InfobloxIPPool) place {
	p := place{pool.Spec.InstanceRef.Name, pool.Spec.NetworkView}
	if i, ok := l.instances.Get("", p.instance); ok {
		p.networkView = cmp.Or(p.networkView, i.Spec.DefaultNetworkView)
	}
	p.networkView = cmp.Or(p.networkView, "default")
	return p
}

// infobloxOf returns a place with the address of the Infoblox instead of the name of its InfobloxInstance: two of them can name one Infoblox.
func (l *logic) infobloxOf(p place) place {
	if i, ok := l.instances.Get("", p.instance); ok {
		p.instance = wapi.Address(i.Spec.Host, i.Spec.Port)
	}
	return p
}

// neighbourhood implements others for the claim of a name, and its host record.
type neighbourhood struct {
	*logic
	own    types.NamespacedName
	record recordName
}

func (n neighbourhood) claim(token types.UID) (namespace string, address netip.Addr, known bool) {
	claim, of := n.contract.Bearer(token)
	if claim == nil {
		return "", address, false
	}
	return claim.Namespace, has(claim, of), true
}

func (n neighbourhood) held(a netip.Addr) bool {
	at := n.infobloxOf(n.record.place)
	return n.anyOther(a, func(in recordName) bool { return in.place == (place{}) || in.place == at })
}

func (n neighbourhood) here(a netip.Addr) bool {
	own := recordName{n.infobloxOf(n.record.place), n.record.name}
	return n.anyOther(a, func(in recordName) bool { return in == own })
}

// heldIn returns the addresses of a network that others hold.
func (n neighbourhood) heldIn(network netip.Prefix) (all []netip.Addr) {
	n.mu.Lock()
	candidates := slices.Collect(maps.Keys(n.holders))
	n.mu.Unlock()
	return slices.DeleteFunc(candidates, func(a netip.Addr) bool { return !network.Contains(a) || !n.held(a) })
}

func (n neighbourhood) anyOther(a netip.Addr, holds func(in recordName) bool) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	for name, in := range n.holdersOf(a) {
		if name != n.own && holds(in) {
			return true
		}
	}
	return false
}

// strays names the IPAddresses of a pool that have no claim; empty if there are none.
func (l *logic) strays(pool *v1alpha1.InfobloxIPPool) string {
	var all []string
	for _, name := range l.contract.ClaimsOf(v1alpha1.KindInfobloxIPPool, pool.Namespace, pool.Name) {
		_, claimed := l.contract.Claims.Get(name.Namespace, name.Name)
		if address, ok := l.contract.Addresses.Get(name.Namespace, name.Name); ok && !claimed && address.DeletionTimestamp == nil {
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

package infoblox

import (
	"maps"
	"net/netip"
	"slices"

	"k8s.io/apimachinery/pkg/types"

	"github.com/multicidr/controller-manager/apis/clusterapi/v1alpha1"
	"github.com/multicidr/controller-manager/apis/clusterapi/v1beta2"
	"github.com/multicidr/controller-manager/controllers/clusteripam/contract"
	"github.com/multicidr/controller-manager/controllers/clusteripam/infoblox/wapi"
	"github.com/multicidr/controller-manager/controllers/clusteripam/runner"
)

func ofInfoblox(r v1beta2.IPPoolReference) bool {
	return r.APIGroup == runner.GroupIPAM && r.Kind == v1alpha1.KindInfobloxIPPool
}

// said returns the address that a claim says; not valid if it says none.
func said(claim *v1beta2.IPAddressClaim) netip.Addr {
	a, _ := netip.ParseAddr(contract.Own(claim)[AnnotationAddress])
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

// byAddress is the index of claims and IPAddresses of InfobloxIPPools by the address that they say.
const byAddress = "address"

// valueOf returns the value of that index; none if there is none.
func valueOf(pool v1beta2.IPPoolReference, a netip.Addr) []string {
	if !ofInfoblox(pool) || !a.IsValid() {
		return nil
	}
	return []string{a.String()}
}

// holders returns the names of the claims and IPAddresses that say an address, and where their host record is. What does not say that can be anywhere: it has no place.
func (l *logic) holders(address string) map[types.NamespacedName]place {
	all := map[types.NamespacedName]place{}
	for _, claim := range l.contract.Claims.By(byAddress, address) {
		at, _ := recordOf(claim)
		all[contract.NameOf(claim)] = l.infobloxOf(at.place)
	}
	for _, o := range l.contract.Addresses.By(byAddress, address) {
		at, ok := recordOf(o)
		if claim, claimed := l.contract.Claims.Get(o.Namespace, o.Name); claimed && !ok { // Another program has allocated it.
			at, _ = recordOf(claim)
		}
		all[contract.NameOf(o)] = l.infobloxOf(at.place)
	}
	return all
}

// infobloxOf returns a place with the address of the Infoblox instead of the name of its InfobloxInstance: two of them can name one Infoblox.
func (l *logic) infobloxOf(p place) place {
	if i, ok := l.instances.Get("", p.instance); ok {
		if address, err := wapi.Address(i.Spec.Host, i.Spec.Port); err == nil {
			p.instance = address
		}
	}
	return p
}

// neighbourhood implements others for the claim of a name, whose host record is at a place.
type neighbourhood struct {
	*logic
	of types.NamespacedName
	at place
}

func (n neighbourhood) claim(token types.UID) (namespace string, address netip.Addr, known bool) {
	claim, of := n.contract.Bearer(token)
	if claim == nil {
		return "", address, false
	}
	return claim.Namespace, has(claim, of), true
}

func (n neighbourhood) held(a netip.Addr) bool {
	for name, at := range n.holders(a.String()) {
		if name != n.of && (at == place{} || at == n.infobloxOf(n.at)) {
			return true
		}
	}
	return false
}

// heldIn returns the addresses of a network that others hold.
func (n neighbourhood) heldIn(network netip.Prefix) []netip.Addr {
	all := map[netip.Addr]bool{}
	for _, text := range slices.Concat(n.contract.Claims.Values(byAddress), n.contract.Addresses.Values(byAddress)) {
		if a, err := netip.ParseAddr(text); err == nil && network.Contains(a) && n.held(a) {
			all[a] = true
		}
	}
	return slices.Collect(maps.Keys(all))
}

package infoblox

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/types"

	"github.com/multicidr/controller-manager/apis/clusterapi/v1alpha1"
	"github.com/multicidr/controller-manager/apis/clusterapi/v1beta2"
	"github.com/multicidr/controller-manager/controllers/clusteripam/infoblox/host"
	"github.com/multicidr/controller-manager/controllers/clusteripam/infoblox/known"
	"github.com/multicidr/controller-manager/controllers/clusteripam/shell"
)

// Every sixth history is one in which the subnets of pools change.

// changing has to happen in a thousand histories. That an event names a record that keeps addresses happens in one of 2,000.
var changing = []string{"the subnets of a pool change", "an address is of a subnet that its pool has no more", "a host record has addresses of two subnets"}

const (
	firstSubnet  = `{"cidr": "10.0.0.0/29", "gateway": "10.0.0.1"}`
	secondSubnet = `{"cidr": "10.1.0.0/29", "gateway": "10.1.0.1"}`
)

var second = netip.MustParsePrefix("10.1.0.0/29")

// change lets the subnets of pools change, for which Infoblox has one more network.
func (w *world) change() {
	w.changes = true
	w.grid.Networks["default"] = append(w.grid.Networks["default"], second)
}

// moveSubnets makes a move of such a history.
func (w *world) moveSubnets() {
	switch n := w.chance.IntN(10); {
	case n < 7:
		w.changeSubnets()
	case n < 9:
		w.createThirdClaim()
	default:
		w.goWell()
	}
}

// changeSubnets gives a pool other subnets, more often while a claim of it has a host record and no IPAddress.
func (w *world) changeSubnets() {
	w.note("the subnets of a pool change")
	namespace, subnets := []string{"a", "b"}[w.chance.IntN(2)], []string{firstSubnet, secondSubnet, firstSubnet + "," + secondSubnet, secondSubnet + "," + firstSubnet}[w.chance.IntN(4)]
	for _, c := range all[v1beta2.IPAddressClaim](w, shell.IPAddressClaims) {
		if w.objects[shell.IPAddresses][known.NameOf(c)] == nil && c.Spec.PoolRef.Name == "v4" && slices.ContainsFunc(w.hosts(), func(r host.Record) bool { return r.Of(c.UID) }) {
			namespace = c.Namespace
		}
	}
	if w.giveSubnets(namespace, subnets); w.chance.IntN(3) == 0 {
		w.leader.end()
		w.elect()
	}
}

func (w *world) giveSubnets(namespace, subnets string) {
	w.trace = append(w.trace, "        "+namespace+"/v4 "+subnets)
	_ = w.patch(shell.InfobloxIPPools, types.NamespacedName{Namespace: namespace, Name: "v4"}, shell.Patch{Body: fmt.Appendf(nil, `{"metadata": {}, "spec": {"subnets": [%s]}}`, subnets)}, nil)
}

// judgeSubnets notes which host records are ours, or were.
func (w *world) judgeSubnets() {
	were := w.ours
	w.ours = map[string]bool{}
	for _, r := range w.hosts() {
		if w.ours[r.Name] = were[r.Name] || len(r.Claims()) > 0; slices.ContainsFunc(r.Addresses(), inSecond) && slices.ContainsFunc(r.Addresses(), func(a netip.Addr) bool { return a.Is4() && !inSecond(a) }) {
			w.covered["a host record has addresses of two subnets"]++
		}
	}
	for _, a := range all[v1beta2.IPAddress](w, shell.IPAddresses) {
		pool := &v1alpha1.InfobloxIPPool{}
		decode(w.objects[shell.InfobloxIPPools][types.NamespacedName{Namespace: a.Namespace, Name: a.Spec.PoolRef.Name}], pool)
		has := netip.MustParseAddr(w.allocated(a))
		if pool.Name != "" && !slices.ContainsFunc(pool.Spec.Subnets, func(s v1alpha1.Subnet) bool { return netip.MustParsePrefix(s.CIDR).Contains(has) }) {
			w.covered["an address is of a subnet that its pool has no more"]++
		}
	}
}

func inSecond(a netip.Addr) bool { return second.Contains(a) }

// judgeKept checks, at rest, that somebody says which host records of ours keep addresses that are of no claim.
func (w *world) judgeKept() {
	for _, r := range w.hosts() {
		switch {
		case !w.ours[r.Name] || len(r.Claims()) > 0 || strings.HasPrefix(r.Name, "renamed-"):
		case w.said("The host record " + r.Name + " in the network view default keeps the addresses"):
			w.covered["an event names a record that keeps addresses"]++
		default:
			w.violate("nothing leaks: nobody says that the host record %s keeps %v", r.Name, r.Addresses())
		}
	}
}

// settleSubnets gives the pools both subnets.
func (w *world) settleSubnets() {
	for _, namespace := range []string{"a", "b"} {
		w.giveSubnets(namespace, firstSubnet+","+secondSubnet)
	}
}

// networks returns the networks of pools at rest.
func (w *world) networks() map[string][]netip.Prefix {
	n := map[string][]netip.Prefix{"v4": {netip.MustParsePrefix("10.0.0.0/29")}, "v6": {netip.MustParsePrefix("fd00::/125")}}
	if w.changes {
		n["v4"] = append(n["v4"], second)
	}
	return n
}

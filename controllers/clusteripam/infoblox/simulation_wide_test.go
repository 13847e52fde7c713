package infoblox

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/multicidr/controller-manager/apis/clusterapi/v1alpha1"
	"github.com/multicidr/controller-manager/apis/clusterapi/v1beta2"
	"github.com/multicidr/controller-manager/controllers/clusteripam/infoblox/host"
	"github.com/multicidr/controller-manager/controllers/clusteripam/infoblox/known"
	"github.com/multicidr/controller-manager/controllers/clusteripam/infoblox/wapi"
	"github.com/multicidr/controller-manager/controllers/clusteripam/infoblox/wapitest"
	"github.com/multicidr/controller-manager/controllers/clusteripam/shell"
)

// Every sixth history is a wide one: there is a second Infoblox with the same network, and more happens.

// widely has to happen in 400 histories, wide ones or not.
var widely = []string{
	"another Infoblox gives the same address", "another Infoblox gives addresses that cannot be used", "somebody pauses", "the Infoblox is written in another way", "credentials are refused",
	"somebody adds an address to a record of ours", "the InfobloxInstance stays away", "somebody forces a claim away", "an event names a record that was left",
}

// ways to write where the first Infoblox is.
var ways = []string{"h", "H", "h.", "h:443"}

// widen adds the other Infoblox, and claims of it.
func (w *world) widen() {
	w.wide, w.twin = true, wapitest.NewGrid("10.0.0.0/29")
	instance := instanceOf("k")
	instance.Spec.Host = "far"
	w.put(shell.InfobloxInstances, instance)
	for _, namespace := range []string{"a", "b"} {
		w.put(shell.InfobloxIPPools, poolOfName(namespace, "far"))
	}
}

// gridOf is the Infoblox at a host.
func (w *world) gridOf(c wapi.Config) *wapitest.Grid {
	switch wapi.Address(c.Host, c.Port) {
	case "h:443", "alias:443":
		return w.grid
	case "far:443":
		return w.twin
	}
	return w.other
}

// widely makes a move of a wide history.
func (w *world) moveWidely() {
	switch n := w.chance.IntN(100); {
	case n < 25:
		w.createFarClaim()
	case n < 45:
		w.pauseSomething()
	case n < 60:
		name, as := []string{"i", "j"}[w.chance.IntN(2)], ways[w.chance.IntN(len(ways))]
		w.note("the Infoblox is written in another way")
		_ = w.patch(shell.InfobloxInstances, types.NamespacedName{Name: name}, shell.Patch{Body: fmt.Appendf(nil, `{"metadata": {}, "spec": {"host": %q}}`, as)}, nil)
	case n < 75:
		w.refuse(!w.refuses)
	case n < 85:
		w.addToRecord()
	case n < 90:
		w.stayAway()
	case n < 95:
		w.stripSome()
	default:
		w.takeAway()
	}
}

// stripSome removes a claim by force. What is left of it is known only if it has an IPAddress.
func (w *world) stripSome() {
	claims := all[v1beta2.IPAddressClaim](w, shell.IPAddressClaims)
	if len(claims) == 0 {
		return
	}
	c := claims[w.chance.IntN(len(claims))]
	w.note("somebody forces a claim away")
	w.trace = append(w.trace, "        "+known.NameOf(c).String())
	w.lost[c.UID] = w.lost[c.UID] || w.objects[shell.IPAddresses][known.NameOf(c)] == nil
	_ = w.patch(shell.IPAddressClaims, known.NameOf(c), shell.Patch{Body: []byte(noFinalizers)}, nil)
	_ = w.delete(shell.IPAddressClaims, known.NameOf(c), "")
}

// tidy deletes IPAddresses that have lost their claims, as the condition of their pool asks.
func (w *world) tidy() {
	for _, a := range all[v1beta2.IPAddress](w, shell.IPAddresses) {
		if w.objects[shell.IPAddressClaims][known.NameOf(a)] == nil {
			_ = w.delete(shell.IPAddresses, known.NameOf(a), "")
		}
	}
}

// begin begins a wide history with claims that have addresses.
func (w *world) begin() {
	for range 4 {
		w.createClaim()
	}
	w.goWell()
}

func (w *world) goWell() {
	for range 100 {
		w.step(w.leader, true)
	}
}

func (w *world) createFarClaim() {
	c := &v1beta2.IPAddressClaim{ObjectMeta: metav1.ObjectMeta{Namespace: []string{"a", "b"}[w.chance.IntN(2)], Name: fmt.Sprintf("f%d", w.chance.IntN(3))},
		Spec: v1beta2.IPAddressClaimSpec{PoolRef: v1beta2.IPPoolReference{APIGroup: shell.GroupIPAM, Kind: v1alpha1.KindInfobloxIPPool, Name: "far"}}}
	if w.create(shell.IPAddressClaims, c, nil) == nil {
		w.note("user creates " + known.NameOf(c).String())
	}
}

// pauseSomething pauses a claim, a pool or an IPAddress, or ends that.
func (w *world) pauseSomething() {
	kind := []*shell.Kind{shell.IPAddressClaims, shell.InfobloxIPPools, shell.IPAddresses}[w.chance.IntN(3)]
	names := w.names(kind)
	if len(names) == 0 {
		return
	}
	w.note("somebody pauses")
	w.pause(kind, names[w.chance.IntN(len(names))], w.chance.IntN(2) == 0)
}

func (w *world) pause(kind *shell.Kind, name types.NamespacedName, paused bool) {
	value := "null"
	if paused {
		value = `""`
	}
	w.trace = append(w.trace, fmt.Sprintf("        %v %v paused: %t", kind, name, paused))
	_ = w.patch(kind, name, shell.Patch{Body: fmt.Appendf(nil, `{"metadata": {"annotations": {%q: %s}}}`, v1beta2.AnnotationPaused, value)}, nil)
}

// names returns the names of all objects of a kind, in order: a history has to be the same whenever it is made.
func (w *world) names(kind *shell.Kind) []types.NamespacedName {
	return slices.SortedFunc(maps.Keys(w.objects[kind]), func(a, b types.NamespacedName) int { return strings.Compare(a.String(), b.String()) })
}

// refuse makes all Infoblox refuse the credentials, or take new ones.
func (w *world) refuse(refuses bool) {
	if w.refuses = refuses; refuses {
		w.note("credentials are refused")
		return
	}
	w.note("credentials are renewed")
	secret := &corev1.Secret{Data: map[string][]byte{"password": fmt.Appendf(nil, "%d", w.version)}}
	_ = w.patch(shell.Secrets, types.NamespacedName{Namespace: "kube-system", Name: "s"}, shell.Patch{Body: shell.Encode(map[string]any{"metadata": map[string]any{}, "data": secret.Data})}, nil)
}

var errRefused = &wapi.Error{Status: http.StatusUnauthorized, Text: "Authorization Required"}

// addToRecord adds an address to a host record of ours.
func (w *world) addToRecord() {
	for _, h := range w.hosts() {
		if len(h.Claims()) == 0 || len(h.IPv4) == 0 || w.chance.IntN(2) == 0 {
			continue
		}
		w.note("somebody adds an address to a record of ours")
		w.writes++
		w.grid.Do(http.MethodPut, h.Ref, nil, shell.Encode(map[string]any{"ipv4addrs": h.WithNext(netip.MustParsePrefix("10.0.0.0/29"), "default").IPv4}))
		return
	}
}

// stayAway deletes the InfobloxInstance for so long that nobody waits for it any more. Others know of it no more than that it is missing if the leader changes.
func (w *world) stayAway() {
	_ = w.delete(shell.InfobloxInstances, types.NamespacedName{Name: "i"}, "")
	w.note("the InfobloxInstance stays away")
	w.goWell()
	if w.chance.IntN(2) == 0 {
		w.leader.end()
		w.elect()
		w.createFarClaim()
	}
	w.deleteClaim()
	for range 25 {
		w.pass(30)
		for range 20 {
			w.step(w.leader, true)
		}
		if w.judge(); w.violation != "" {
			return
		}
	}
	w.bringBackInstance()
	w.away = slices.DeleteFunc(w.away, func(o metav1.Object) bool { return o.GetNamespace() == "" })
}

// narrow ends everything that a wide history has begun.
func (w *world) narrow() {
	if w.refuses {
		w.refuse(false)
	}
	for _, kind := range []*shell.Kind{shell.IPAddressClaims, shell.InfobloxIPPools, shell.IPAddresses} {
		for _, name := range w.names(kind) {
			w.pause(kind, name, false)
		}
	}
	w.collectGarbage()
	w.tidy()
}

// twins are the host records of the second Infoblox.
func (w *world) twins() (found []host.Record) {
	if w.twin == nil {
		return nil
	}
	_, answer := w.twin.Do(http.MethodGet, "record:host", url.Values{"_return_fields": {"name,network_view,comment,ipv4addrs,ipv6addrs,configure_for_dns"}}, nil)
	if err := json.Unmarshal(shell.Encode(answer), &found); err != nil {
		panic(err)
	}
	return found
}

// inFar is where an IPAddress has its address.
func inFar(a *v1beta2.IPAddress) string {
	if p, _ := known.PlaceOf(a); p.Instance == "k" {
		return "far "
	}
	return ""
}

// left reports whether an event says that a host record of a claim may stay. It has the name that the record had.
func (w *world) left(name string, uid types.UID) bool {
	if w.renamed[uid] {
		name = ""
	}
	if w.lost[uid] {
		w.covered["a record is left of a claim that was forced away"]++
		return true
	}
	if w.said("There is no InfobloxInstance i. If Infoblox still has the host record " + name) {
		w.covered["an event names a record that was left"]++
		return true
	}
	return false
}

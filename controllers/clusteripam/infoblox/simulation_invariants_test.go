package infoblox

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"

	"github.com/multicidr/controller-manager/apis/clusterapi/v1alpha1"
	"github.com/multicidr/controller-manager/apis/clusterapi/v1beta2"
	"github.com/multicidr/controller-manager/controllers/clusteripam/infoblox/host"
	"github.com/multicidr/controller-manager/controllers/clusteripam/infoblox/known"
	"github.com/multicidr/controller-manager/controllers/clusteripam/shell"
)

// judge checks what holds at every moment, from what the API server and Infoblox have.
func (w *world) judge() {
	if w.judged == w.writes {
		return
	}
	w.judged = w.writes
	addresses := all[v1beta2.IPAddress](w, shell.IPAddresses)
	holders := map[string]string{}
	for _, a := range addresses {
		if !known.OfInfoblox(a.Spec.PoolRef) {
			continue
		}
		has := w.allocated(a)
		if w.edited[a.UID] != "" && w.spoilt[a.Annotations[known.AnnotationClaim]] {
			continue // Neither Infoblox nor the process knows any more what it was.
		}
		if inFar(a) != "" && holders[has] != "" {
			w.covered["another Infoblox gives the same address"]++
		}
		if w.moved && a.Annotations[known.AnnotationReleasedBy] != "" {
			continue // Its machine and its host record are gone. As long as the cache shows two hosts of one Infoblox, another claim can get the address before it is gone, too.
		}
		if other := holders[inFar(a)+has]; other != "" && (!w.byHand[has] || !w.moved) && !w.isCopy(a, other) {
			w.violate("no address in two IPAddresses: %s is in %s and %s", has, other, known.NameOf(a))
		}
		holders[inFar(a)+has] = known.NameOf(a).String()
		if has == a.Spec.Gateway {
			w.violate("no machine gets the address of the gateway: %s", known.NameOf(a))
		}
	}
	records := append(w.hosts(), w.twins()...)
	of := map[types.UID]string{}
	if slices.ContainsFunc(w.twins(), func(r host.Record) bool { return len(r.IPv4) > 2 }) {
		w.covered["another Infoblox gives addresses that cannot be used"]++
	}
	for _, r := range records {
		for _, uid := range r.Claims() {
			if other := of[uid]; other != "" && !w.renamed[uid] && !w.left(other, uid) && !w.left(r.Name, uid) {
				w.violate("one record per claim: %s and %s are of %s", other, r.Name, uid)
			}
			of[uid] = r.Name
		}
		if len(r.Claims()) > 1 {
			w.covered["host record shared"]++
		}
		if strings.HasSuffix(r.Name, "000") && strings.HasPrefix(r.Name, "c") || strings.Contains(r.Name, ".0000") {
			w.covered["name of another namespace avoided"]++
		}
		if strings.HasPrefix(r.Comment, "Kubernetes") && len(r.IPv4) > 1 {
			w.covered["the gateway avoided"]++
		}
	}
	if w.around {
		w.judgeMoving()
		w.judgeCopies()
	}
	if w.changes {
		w.judgeSubnets()
	}
	// Nothing is released while its claim lives, or others say that its machine may.
	for _, c := range all[v1beta2.IPAddressClaim](w, shell.IPAddressClaims) {
		if c.DeletionTimestamp != nil && !machineRuns(c) || w.spoiltFor(c) {
			continue
		}
		has := w.told[c.UID]
		a := &v1beta2.IPAddress{}
		if decode(w.objects[shell.IPAddresses][known.NameOf(c)], a); a.UID != "" && known.OfInfoblox(a.Spec.PoolRef) {
			if was := types.UID(a.Annotations[known.AnnotationClaim]); was != c.UID && was != w.was[c.UID] {
				continue
			}
			if has != "" && w.allocated(a) != has {
				w.violate("a claim keeps its address: %s had %s and has %s", known.NameOf(c), has, w.allocated(a))
			}
			if has = w.allocated(a); c.Status.AddressRef.Name != "" {
				w.told[c.UID] = has
			}
		} else if slices.ContainsFunc(addresses, func(a *v1beta2.IPAddress) bool { return w.edited[a.UID] != "" && a.Spec.Address == has }) {
			w.spoilt[string(c.UID)] = true // It was forced away, and somebody has edited another one so that it has this address.
		}
		if has == "" {
			continue
		}
		if !slices.ContainsFunc(records, func(r host.Record) bool {
			return (r.Of(c.UID) || r.Of(w.was[c.UID])) && slices.Contains(r.Addresses(), netip.MustParseAddr(has))
		}) {
			w.violate("an address is reserved in Infoblox as long as its claim lives: %s %s", known.NameOf(c), has)
		}
	}
}

// spoiltFor reports whether somebody has deleted the host record that a claim has. That names an earlier UID of the claim if it was forced away and created
// again, or moved.
func (w *world) spoiltFor(c *v1beta2.IPAddressClaim) bool {
	return slices.ContainsFunc([]string{string(c.UID), c.Annotations[known.AnnotationClaim], string(w.was[c.UID])}, func(uid string) bool { return uid != "" && w.spoilt[uid] })
}

// judgeRest checks what holds when nothing happens any more.
func (w *world) judgeRest() {
	w.judgeMemory()
	if w.changes {
		w.judgeKept()
	}
	living := map[types.UID]bool{}
	free := w.free()
	for _, c := range all[v1beta2.IPAddressClaim](w, shell.IPAddressClaims) {
		living[c.UID], living[known.ToldTo(c).Was] = true, true
		ready := meta.FindStatusCondition(c.Status.Conditions, v1beta2.ConditionReady)
		object := w.objects[shell.IPAddresses][known.NameOf(c)]
		switch {
		case c.DeletionTimestamp != nil && (machineRuns(c) || w.unclear(c)):
		case c.DeletionTimestamp != nil:
			w.violate("who can go is gone: %s", known.NameOf(c))
		case object == nil && ready == nil:
			w.violate("who waits knows why: %s", known.NameOf(c))
		case object == nil && w.spoiltFor(c) && known.WasServed(c) && strings.HasPrefix(ready.Message, "The claim has had the address "+c.Annotations[known.AnnotationAddress]):
			w.covered["a claim does not get another address"]++
		case object == nil && free[c.Spec.PoolRef.Name] && (ready.Reason != v1beta2.ReasonAllocationFailed || !w.nameInUse(c)):
			w.violate("who can be served is served: %s: %s", known.NameOf(c), ready.Message)
		case object != nil && ready != nil && w.unreserved(object) && strings.HasPrefix(ready.Message, "Infoblox has no host record "):
			w.covered["a claim has an IPAddress without a record"]++
		case object != nil && ready != nil && (w.wide || w.around) && strings.HasPrefix(ready.Message, "The IPAddress "+c.Name+" exists, and is of the InfobloxIPPool "):
			// It is of a claim that was forced away, or that was put back and deleted before it was clear which of two IPAddresses is the copy.
		case object != nil && (ready == nil || ready.Status != "True" || c.Status.AddressRef.Name != c.Name):
			w.violate("who is served is told: %s", known.NameOf(c))
		}
	}
	for _, a := range all[v1beta2.IPAddress](w, shell.IPAddresses) { // It can have the record of an earlier claim of its name.
		living[types.UID(a.Annotations[known.AnnotationClaim])] = true
	}
	for _, r := range append(w.hosts(), w.twins()...) {
		for _, uid := range r.Claims() {
			switch {
			case living[uid]:
			case w.left(r.Name, uid):
			case w.renamed[uid] && w.said("the UID "+string(uid)+" in its comment"):
				w.covered["an event names a record that was renamed"]++
			case w.unclearOf[uid] && w.said("the UID "+string(uid)+" in its comment"):
				w.covered["an event names a record whose IPAddress was edited"]++
			case w.renamed[uid] && w.forced[uid]: // Nothing says any more that it has an address.
			default:
				w.violate("nothing leaks: the host record %s is of %s, which is gone", r.Name, uid)
			}
		}
	}
	for _, a := range all[v1beta2.IPAddress](w, shell.IPAddresses) {
		if w.objects[shell.IPAddressClaims][known.NameOf(a)] == nil {
			w.violate("nothing leaks: the IPAddress %s has no claim", known.NameOf(a))
		}
	}
}

// judgeMemory checks that the leader remembers nothing of what is gone.
func (w *world) judgeMemory() {
	there := map[types.UID]bool{}
	for _, kind := range []*shell.Kind{shell.IPAddressClaims, shell.IPAddresses} {
		for _, object := range w.objects[kind] {
			there[types.UID(metadataOf(object)["uid"].(string))] = true
		}
	}
	l := w.leader.logic
	for what, uids := range map[string][]types.UID{
		"names": slices.Collect(maps.Keys(l.Names)), "chosen": slices.Collect(maps.Keys(l.Chosen)), "prepared": slices.Collect(maps.Keys(l.Prepared)),
		"leaving": slices.Collect(maps.Keys(l.Leaving)), "creating": slices.Collect(maps.Keys(l.Creating)), "telling": slices.Collect(maps.Keys(l.Telling)),
		"first": slices.Collect(maps.Keys(l.First)), "removed": slices.Collect(maps.Keys(l.Removed)), "waiting": slices.Collect(maps.Keys(l.Waiting)),
	} {
		for _, uid := range uids {
			if !there[uid] {
				w.violate("nothing is remembered of what is gone: %s of %s", what, uid)
			}
		}
	}
}

// allocated returns the address that an IPAddress had at first.
func (w *world) allocated(a *v1beta2.IPAddress) string {
	return cmp.Or(w.edited[a.UID], a.Spec.Address)
}

// nameInUse reports whether there is a host record of the name that a claim wishes, or had when it was served, or one of the claim and others, in which nobody knows
// which address is whose.
func (w *world) nameInUse(c *v1beta2.IPAddressClaim) bool {
	return slices.ContainsFunc(append(w.hosts(), w.twins()...), func(r host.Record) bool {
		return r.Name == c.Annotations[v1alpha1.AnnotationHostname] || known.WasServed(c) && r.Name == c.Annotations[known.AnnotationName] || r.Of(c.UID) && len(r.Claims()) > 1
	})
}

// unclear reports whether another claim in the host record of a claim waits for people: they have to remove addresses from it, or to put back what they have
// taken from that claim, because nobody knows which is whose. The claim says so.
func (w *world) unclear(c *v1beta2.IPAddressClaim) bool {
	said := meta.FindStatusCondition(c.Status.Conditions, v1beta2.ConditionReady)
	return said != nil && strings.Contains(said.Message, "nobody knows which address of the record is whose") && slices.ContainsFunc(all[v1beta2.IPAddressClaim](w, shell.IPAddressClaims), func(other *v1beta2.IPAddressClaim) bool {
		ready := meta.FindStatusCondition(other.Status.Conditions, v1beta2.ConditionReady)
		return ready != nil && (w.around && ready.Reason == v1beta2.ReasonPoolExhausted || strings.Contains(ready.Message, "has several addresses that no IPAddress has") || strings.Contains(ready.Message, "Put that back, or create another claim")) &&
			slices.ContainsFunc(w.hosts(), func(r host.Record) bool { return r.Of(c.UID) && r.Of(other.UID) })
	})
}

// free tells which pools have a free address.
func (w *world) free() map[string]bool {
	used := map[netip.Addr]bool{netip.MustParseAddr("10.0.0.1"): true, netip.MustParseAddr("10.1.0.1"): true}
	for _, r := range w.hosts() {
		for _, a := range r.Addresses() {
			used[a] = true
		}
	}
	for _, a := range all[v1beta2.IPAddress](w, shell.IPAddresses) {
		used[netip.MustParseAddr(a.Spec.Address)] = true
	}
	for _, c := range all[v1beta2.IPAddressClaim](w, shell.IPAddressClaims) {
		used[known.ToldTo(c).Address] = true
	}
	free := map[string]bool{"far": w.freeFar()}
	for pool, networks := range w.networks() {
		for _, network := range networks {
			for a := network.Addr().Next(); network.Contains(a); a = a.Next() {
				free[pool] = free[pool] || !used[a] && (a.Is6() || network.Contains(a.Next()))
			}
		}
	}
	return free
}

// freeFar tells whether the second Infoblox has a free address.
func (w *world) freeFar() bool {
	used := map[string]bool{"10.0.0.1": true}
	for _, r := range w.twins() {
		for _, a := range r.Addresses() {
			used[a.String()] = true
		}
	}
	for _, a := range all[v1beta2.IPAddress](w, shell.IPAddresses) {
		if inFar(a) != "" {
			used[a.Spec.Address], used[w.allocated(a)] = true, true
		}
	}
	return len(used) < 6 && w.twin != nil
}

// unreserved reports whether somebody has deleted or renamed the host record of an IPAddress.
func (w *world) unreserved(object map[string]any) bool {
	a := &v1beta2.IPAddress{}
	decode(object, a)
	return w.spoilt[a.Annotations[known.AnnotationClaim]]
}

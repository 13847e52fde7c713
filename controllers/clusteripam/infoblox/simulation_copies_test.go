package infoblox

import (
	"k8s.io/apimachinery/pkg/types"

	"github.com/multicidr/controller-manager/apis/clusterapi/v1alpha1"
	"github.com/multicidr/controller-manager/apis/clusterapi/v1beta2"
	"github.com/multicidr/controller-manager/controllers/clusteripam/infoblox/known"
	"github.com/multicidr/controller-manager/controllers/clusteripam/shell"
)

// In every second moving history IPAddresses are copied, mostly those that were moved: nobody knows then which one is the original. The copy has the name "copy", and so
// may a claim have.

// copying has to happen in 400 histories.
var copying = []string{
	"an IPAddress is copied", "an IPAddress of a moved claim is copied", "a copy is deleted", "a claim has the name of a copy", "a claim goes while there is a copy of its IPAddress",
	"a claim is put back while a process leads", "a claim has the address of a copy", "an IPAddress of another program takes the name of one", "a claim is copied",
	"an IPAddress is copied without its finalizer", "a claim is moved while it is paused", "a moved claim keeps its address",
}

// copyAround makes a move about copies. It reports whether it has.
func (w *world) copyAround() bool {
	namespace := []string{"a", "b"}[w.chance.IntN(2)]
	name := types.NamespacedName{Namespace: namespace, Name: "copy"}
	switch n := w.chance.IntN(100); {
	case n < 35:
		w.copyAddress(name)
	case n < 50:
		if w.delete(shell.IPAddresses, name, "") == nil {
			w.note("a copy is deleted")
		}
	case n < 60:
		w.claimCopy(name)
	case n < 65:
		_ = w.delete(shell.IPAddressClaims, name, "")
	case n < 75:
		w.releaseCopied()
	case n < 80:
		w.takeName()
	case n < 87:
		w.copyClaim(name)
	case n < 91:
		w.pause(shell.IPAddressClaims, name, false)
	case w.moving:
	case n < 94:
		w.copyOutlives(name)
	case n < 96:
		w.moveSome()
		w.takeName()
	default:
		return false
	}
	return true
}

// copyAddress copies an IPAddress, if one was moved, that.
func (w *world) copyAddress(name types.NamespacedName) {
	var of, moved []*v1beta2.IPAddress
	for _, a := range all[v1beta2.IPAddress](w, shell.IPAddresses) {
		if a.Name == name.Name || a.DeletionTimestamp != nil || a.Annotations[known.AnnotationClaim] == "" || w.edited[a.UID] != "" || !known.OfInfoblox(a.Spec.PoolRef) {
			continue
		}
		of = append(of, a)
		if c := w.objects[shell.IPAddressClaims][known.NameOf(a)]; c == nil || metadataOf(c)["uid"] != a.Annotations[known.AnnotationClaim] {
			moved = append(moved, a)
		}
	}
	if len(moved) > 0 {
		of = moved
	}
	if len(of) == 0 {
		return
	}
	a := of[w.chance.IntN(len(of))]
	from := known.NameOf(a)
	a.Namespace, a.Name, a.UID, a.OwnerReferences = name.Namespace, name.Name, "", nil
	if w.chance.IntN(2) == 0 { // A claim of its name may have it.
		a.Spec.ClaimRef.Name = name.Name
	}
	c := &v1beta2.IPAddressClaim{}
	if decode(w.objects[shell.IPAddressClaims][name], c); known.WasServed(c) {
		return
	}
	if w.chance.IntN(6) == 0 && c.Name == "" {
		a.Finalizers = nil
	}
	if w.create(shell.IPAddresses, a, a) != nil {
		return
	}
	w.copies[a.UID] = true
	if w.note("an IPAddress is copied"); a.Finalizers == nil {
		w.note("an IPAddress is copied without its finalizer")
	}
	w.trace = append(w.trace, "        "+from.String()+" to "+name.String())
	if len(moved) > 0 {
		w.note("an IPAddress of a moved claim is copied")
	}
}

// claimCopy creates a claim of the name of a copy, of its pool or of another one.
func (w *world) claimCopy(name types.NamespacedName) {
	c := &v1beta2.IPAddressClaim{Spec: v1beta2.IPAddressClaimSpec{PoolRef: v1beta2.IPPoolReference{APIGroup: shell.GroupIPAM, Kind: v1alpha1.KindInfobloxIPPool, Name: []string{"v4", "v6"}[w.chance.IntN(2)]}}}
	c.Namespace, c.Name = name.Namespace, name.Name
	a := &v1beta2.IPAddress{}
	if w.isBare(name) {
		return
	}
	if decode(w.objects[shell.IPAddresses][name], a); a.Name != "" && w.chance.IntN(4) > 0 {
		c.Spec.PoolRef = a.Spec.PoolRef
	}
	if w.create(shell.IPAddressClaims, c, c) == nil && a.Name != "" {
		w.note("a claim has the name of a copy")
	}
}

// isBare reports whether there is a copy without its finalizer. A claim of its name may be too late to see it: then nobody gives up the host record.
func (w *world) isBare(name types.NamespacedName) bool {
	a := &v1beta2.IPAddress{}
	decode(w.objects[shell.IPAddresses][name], a)
	return a.Name != "" && len(a.Finalizers) == 0
}

// copyClaim copies a claim with all that it says, as kubectl does. In some cases, the copy is paused until somebody ends that.
func (w *world) copyClaim(name types.NamespacedName) {
	var of []*v1beta2.IPAddressClaim
	for _, c := range all[v1beta2.IPAddressClaim](w, shell.IPAddressClaims) {
		if c.Annotations[known.AnnotationAddress] != "" && c.DeletionTimestamp == nil && known.OfInfoblox(c.Spec.PoolRef) && c.Name != name.Name && w.objects[shell.InfobloxIPPools][types.NamespacedName{Namespace: name.Namespace, Name: c.Spec.PoolRef.Name}] != nil {
			of = append(of, c)
		}
	}
	if len(of) == 0 || w.isBare(name) {
		return
	}
	c := of[w.chance.IntN(len(of))]
	from := known.NameOf(c)
	c.Namespace, c.Name, c.UID, c.Status = name.Namespace, name.Name, "", v1beta2.IPAddressClaimStatus{}
	c.Finalizers = []string{v1beta2.FinalizerReleaseAddress}
	if delete(c.Annotations, v1beta2.AnnotationPaused); w.chance.IntN(3) == 0 {
		c.Annotations[v1beta2.AnnotationPaused] = ""
	}
	if w.create(shell.IPAddressClaims, c, c) == nil {
		w.note("a claim is copied")
		w.trace = append(w.trace, "        "+from.String()+" to "+name.String())
	}
}

// moveSome moves a claim, and lets it be told of its IPAddress.
func (w *world) moveSome() {
	w.putBackSome()
	w.goOnWell()
}

func (w *world) goOnWell() {
	for range 3 {
		w.goWell()
		w.pass(10)
		w.judge()
	}
}

// copyOutlives moves a claim, copies its IPAddress, deletes the claim, and creates one of the name of the copy.
func (w *world) copyOutlives(name types.NamespacedName) {
	_ = w.delete(shell.IPAddressClaims, name, "")
	_ = w.delete(shell.IPAddresses, name, "")
	w.moveSome()
	w.copyAddress(name)
	a := &v1beta2.IPAddress{}
	decode(w.objects[shell.IPAddresses][name], a)
	for _, c := range all[v1beta2.IPAddressClaim](w, shell.IPAddressClaims) {
		if a.UID != "" && c.Name != name.Name && w.was[c.UID] == types.UID(a.Annotations[known.AnnotationClaim]) {
			_ = w.delete(shell.IPAddressClaims, known.NameOf(c), "")
		}
	}
	w.goOnWell()
	w.claimCopy(name)
	w.goOnWell()
}

// comesLate lets time pass between a claim that is moved, which is paused meanwhile, and its IPAddress.
func (w *world) comesLate() {
	w.leader.hearAll()
	for n := w.chance.IntN(60); n > 0 && w.violation == ""; n-- {
		switch w.chance.IntN(20) {
		case 0:
			w.moving = true // Only one at a time.
			w.copyAround()
			w.moving = false
		case 1:
			w.pass(w.oneOf(1, 3, 10, 40))
		default:
			w.step(w.leader, false)
		}
		w.judge()
	}
}

// keepsAddress notes that a moved claim has the address that it had before, unless a claim of the name of a copy has been told so: then that one is the original.
func (w *world) keepsAddress(c *v1beta2.IPAddressClaim, a *v1beta2.IPAddress) {
	for _, other := range all[v1beta2.IPAddressClaim](w, shell.IPAddressClaims) {
		if other.Name != c.Name && other.Annotations[known.AnnotationClaim] == a.Annotations[known.AnnotationClaim] && known.WasServed(other) {
			return
		}
	}
	w.covered["a moved claim keeps its address"]++
	w.told[uidOf(w, c)] = a.Spec.Address
}

// releaseCopied deletes a claim whose IPAddress has a copy, and in half of the cases the copy, too.
func (w *world) releaseCopied() {
	for _, a := range all[v1beta2.IPAddress](w, shell.IPAddresses) {
		for _, b := range all[v1beta2.IPAddress](w, shell.IPAddresses) {
			if c := w.objects[shell.IPAddressClaims][known.NameOf(a)]; c == nil || a.UID == b.UID || !w.copies[b.UID] || a.Annotations[known.AnnotationClaim] != b.Annotations[known.AnnotationClaim] || w.chance.IntN(2) == 0 {
				continue
			}
			w.note("a claim goes while there is a copy of its IPAddress")
			_ = w.delete(shell.IPAddressClaims, known.NameOf(a), "")
			if w.chance.IntN(2) == 0 {
				_ = w.delete(shell.IPAddresses, known.NameOf(b), "")
			}
			return
		}
	}
}

// takeName forces the IPAddress of a moved claim away, and another program's takes its name for a while.
func (w *world) takeName() {
	for _, a := range all[v1beta2.IPAddress](w, shell.IPAddresses) {
		if !known.OfInfoblox(a.Spec.PoolRef) {
			_ = w.delete(shell.IPAddresses, known.NameOf(a), "")
			return
		}
	}
	for _, c := range all[v1beta2.IPAddressClaim](w, shell.IPAddressClaims) {
		a := &v1beta2.IPAddress{}
		decode(w.objects[shell.IPAddresses][known.NameOf(c)], a)
		if a.UID == "" || w.copies[a.UID] || w.was[c.UID] == "" || !known.WasServed(c) || c.DeletionTimestamp != nil || w.edited[a.UID] != "" || w.spoiltFor(c) {
			continue
		}
		w.note("an IPAddress of another program takes the name of one")
		w.forced[types.UID(a.Annotations[known.AnnotationClaim])] = true
		_ = w.patch(shell.IPAddresses, known.NameOf(a), shell.Patch{Body: []byte(noFinalizers)}, nil)
		_ = w.delete(shell.IPAddresses, known.NameOf(a), "")
		w.put(shell.IPAddresses, w.inTheWay(known.NameOf(c)))
		return
	}
}

// inTheWay returns an IPAddress of another program's pool.
func (*world) inTheWay(name types.NamespacedName) *v1beta2.IPAddress {
	a := &v1beta2.IPAddress{Spec: v1beta2.IPAddressSpec{Address: "192.168.0.1", PoolRef: v1beta2.IPPoolReference{APIGroup: shell.GroupIPAM, Kind: "InClusterIPPool", Name: "v4"}}}
	a.Namespace, a.Name = name.Namespace, name.Name
	return a
}

// isCopy reports whether of an IPAddress and another one, with that name, one is a copy.
func (w *world) isCopy(a *v1beta2.IPAddress, of string) bool {
	for _, b := range all[v1beta2.IPAddress](w, shell.IPAddresses) {
		if known.NameOf(b).String() == of && (w.copies[a.UID] || w.copies[b.UID]) && a.Annotations[known.AnnotationClaim] == b.Annotations[known.AnnotationClaim] {
			return true
		}
	}
	return false
}

// judgeCopies notes what happens to copies.
func (w *world) judgeCopies() {
	for uid := range w.copies {
		for _, a := range all[v1beta2.IPAddress](w, shell.IPAddresses) {
			c := &v1beta2.IPAddressClaim{}
			if decode(w.objects[shell.IPAddressClaims][known.NameOf(a)], c); a.UID == uid && known.WasServed(c) && c.Annotations[known.AnnotationClaim] == a.Annotations[known.AnnotationClaim] {
				w.was[c.UID] = types.UID(a.Annotations[known.AnnotationClaim])
				w.covered["a claim has the address of a copy"]++
			}
		}
	}
}

// endCopies deletes the copies and, in half of the histories, the claims of their name.
func (w *world) endCopies() {
	for _, a := range all[v1beta2.IPAddress](w, shell.IPAddresses) {
		if !known.OfInfoblox(a.Spec.PoolRef) {
			_ = w.delete(shell.IPAddresses, known.NameOf(a), "")
		}
	}
	kinds := []*shell.Kind{shell.IPAddresses, shell.IPAddressClaims}
	for _, kind := range kinds[:1+w.chance.IntN(2)] {
		for _, namespace := range []string{"a", "b"} {
			_ = w.delete(kind, types.NamespacedName{Namespace: namespace, Name: "copy"}, "")
		}
	}
}

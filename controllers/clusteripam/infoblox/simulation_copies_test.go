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
	"a claim is put back while a process leads",
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
	if w.create(shell.IPAddresses, a, a) != nil {
		return
	}
	w.copies[a.UID] = true
	w.note("an IPAddress is copied")
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
	if decode(w.objects[shell.IPAddresses][name], a); a.Name != "" && w.chance.IntN(4) > 0 {
		c.Spec.PoolRef = a.Spec.PoolRef
	}
	if w.create(shell.IPAddressClaims, c, c) == nil && a.Name != "" {
		w.note("a claim has the name of a copy")
	}
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
	for name, object := range w.objects[shell.IPAddresses] {
		if kind, _ := object["spec"].(map[string]any)["poolRef"].(map[string]any)["kind"].(string); kind == "InClusterIPPool" {
			_ = w.delete(shell.IPAddresses, name, "")
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

// endCopies deletes the copies, and the claims of their name.
func (w *world) endCopies() {
	for name, object := range w.objects[shell.IPAddresses] {
		if object["spec"].(map[string]any)["poolRef"].(map[string]any)["kind"] == "InClusterIPPool" {
			_ = w.delete(shell.IPAddresses, name, "")
		}
	}
	for _, kind := range []*shell.Kind{shell.IPAddresses, shell.IPAddressClaims} {
		for _, namespace := range []string{"a", "b"} {
			_ = w.delete(kind, types.NamespacedName{Namespace: namespace, Name: "copy"}, "")
		}
	}
}

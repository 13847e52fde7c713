package infoblox

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/multicidr/controller-manager/apis/clusterapi/v1alpha1"
	"github.com/multicidr/controller-manager/apis/clusterapi/v1beta2"
	"github.com/multicidr/controller-manager/controllers/clusteripam/infoblox/known"
	"github.com/multicidr/controller-manager/controllers/clusteripam/shell"
)

// Every sixth history is a moving one: claims are moved, and name another provider for a while, and the Infoblox gets another host.

// moving has to happen in a thousand histories.
var moving = []string{
	"a claim is put back with its IPAddress", "a claim is put back that shares its host record", "a claim joins the record of a moved one", "a claim names another provider",
	"the Infoblox gets another host", "a watch misses events", "the API server refuses an IPAddress", "two claims of one pool share a host record",
}

// moveAround makes a move of a moving history.
func (w *world) moveAround() {
	if w.copies != nil && w.copyAround() {
		return
	}
	switch n := w.chance.IntN(100); {
	case n < 30:
		w.putBackSome()
	case n < 45:
		w.createThirdClaim()
	case n < 60:
		w.nameAnotherProvider()
	case n < 75:
		w.goWell()
	case n < 90:
		w.note("a watch misses events")
		w.leader.relist()
	default:
		w.note("the Infoblox gets another host")
		w.moveInstances([]string{"h", "alias"}[w.chance.IntN(2)])
	}
}

// putBackSome gives a claim and its IPAddress other UIDs, as a move to another cluster does, or a backup that is put back. The documentation wants that nobody leads meanwhile.
func (w *world) putBackSome() {
	var of []*v1beta2.IPAddressClaim
	for _, c := range all[v1beta2.IPAddressClaim](w, shell.IPAddressClaims) {
		a := &v1beta2.IPAddress{}
		if decode(w.objects[shell.IPAddresses][known.NameOf(c)], a); a.UID != "" && c.DeletionTimestamp == nil && a.DeletionTimestamp == nil && known.WasServed(c) && !w.spoiltFor(c) &&
			w.edited[a.UID] == "" && a.Annotations[known.AnnotationReleasedBy] == "" && !w.unclearOf[types.UID(a.Annotations[known.AnnotationClaim])] && known.OfInfoblox(c.Spec.PoolRef) && known.OfInfoblox(a.Spec.PoolRef) {
			of = append(of, c)
		}
	}
	if len(of) == 0 {
		return
	}
	c, a := of[w.chance.IntN(len(of))], &v1beta2.IPAddress{}
	decode(w.objects[shell.IPAddresses][known.NameOf(c)], a)
	w.leader.end()
	w.leader = nil
	for w.chance.IntN(2) == 0 && len(w.late) > 0 {
		w.executeLate()
	}
	w.pass(int(leaseLasts.Seconds())) // The API server carries out no write of the former leader any more.
	for _, kind := range []*shell.Kind{shell.IPAddressClaims, shell.IPAddresses} {
		_ = w.patch(kind, known.NameOf(c), shell.Patch{Body: []byte(noFinalizers)}, nil)
		_ = w.delete(kind, known.NameOf(c), "")
	}
	was := types.UID(a.Annotations[known.AnnotationClaim])
	if c.Status, c.UID, a.UID, a.OwnerReferences = (v1beta2.IPAddressClaimStatus{}), "", "", nil; w.objects[shell.IPAddressClaims][known.NameOf(c)] != nil {
		panic("it is still there")
	}
	if w.copies != nil && w.chance.IntN(2) == 0 { // As in a cluster to which they are moved.
		w.elect()
		w.note("a claim is put back while a process leads")
	}
	paused := w.leader != nil && c.Name != "copy" && w.chance.IntN(2) == 0 && c.Annotations[v1beta2.AnnotationPaused] == ""
	if paused {
		c.Annotations[v1beta2.AnnotationPaused] = ""
	}
	if w.put(shell.IPAddressClaims, c); w.leader != nil { // A move takes longer than a watch. Of what no object says, nobody can know.
		w.leader.hearAll()
	}
	w.was[uidOf(w, c)] = was
	if paused {
		w.comesLate()
	}
	if w.create(shell.IPAddresses, a, nil) != nil {
		panic("it is there")
	}
	if paused {
		w.note("a claim is moved while it is paused")
		w.keepsAddress(c, a)
		w.pause(shell.IPAddressClaims, known.NameOf(c), false)
	}
	w.note("a claim is put back with its IPAddress")
	w.trace = append(w.trace, "        "+known.NameOf(c).String())
	for _, r := range w.hosts() {
		if r.Of(was) && len(r.Claims()) > 1 {
			w.note("a claim is put back that shares its host record")
		}
	}
	if w.leader == nil {
		w.elect()
	}
}

// relist shows a process what there is, as after a watch that has missed events: an object may have been deleted and created again meanwhile.
func (p *process) relist() {
	shown := maps.Clone(p.shown)
	for _, o := range p.logic.Addresses.List() { // One that this process has created, and that the watch has not shown, can go in between, too.
		shown[o.UID] = change{kind: shell.IPAddresses, object: toMap(o)}
	}
	for _, uid := range slices.Sorted(maps.Keys(shown)) {
		c := shown[uid]
		object := blank(c.kind)
		decode(c.object, object)
		if there := p.objects[c.kind][known.NameOf(object)]; there == nil || metadataOf(there)["uid"] != string(uid) {
			p.show(change{kind: c.kind, object: c.object, gone: true})
		}
	}
	for _, source := range p.logic.Reads() {
		kind := source.Reads().Kind
		for _, name := range p.names(kind) {
			p.show(change{kind: kind, object: p.objects[kind][name]})
		}
	}
	p.heard, p.unheard = len(p.log), nil
}

func uidOf(w *world, object metav1.Object) types.UID {
	uid, _ := metadataOf(w.objects[shell.IPAddressClaims][known.NameOf(object)])["uid"].(string)
	return types.UID(uid)
}

// isNewHere reports whether a claim was put back and was not told since that it has its IPAddress.
func (w *world) isNewHere(name types.NamespacedName) bool {
	c := &v1beta2.IPAddressClaim{}
	decode(w.objects[shell.IPAddressClaims][name], c)
	return w.was[c.UID] != "" && !known.WasServed(c)
}

// createThirdClaim creates a claim that shares a host record with one of the same pool.
func (w *world) createThirdClaim() {
	namespace := []string{"a", "b"}[w.chance.IntN(2)]
	c := &v1beta2.IPAddressClaim{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "c4", Annotations: map[string]string{v1alpha1.AnnotationHostname: "h-" + namespace}},
		Spec: v1beta2.IPAddressClaimSpec{PoolRef: v1beta2.IPPoolReference{APIGroup: shell.GroupIPAM, Kind: v1alpha1.KindInfobloxIPPool, Name: "v4"}}}
	if w.create(shell.IPAddressClaims, c, nil) == nil {
		w.note("user creates " + known.NameOf(c).String())
	}
}

// nameAnotherProvider lets a claim name another provider's pool, or its own again.
func (w *world) nameAnotherProvider() {
	claims := all[v1beta2.IPAddressClaim](w, shell.IPAddressClaims)
	if len(claims) == 0 {
		return
	}
	w.note("a claim names another provider")
	w.nameProvider(claims[w.chance.IntN(len(claims))], []string{v1alpha1.KindInfobloxIPPool, "InClusterIPPool"}[w.chance.IntN(2)])
}

func (w *world) nameProvider(c *v1beta2.IPAddressClaim, kind string) {
	w.trace = append(w.trace, "        "+known.NameOf(c).String()+" "+kind)
	_ = w.patch(shell.IPAddressClaims, known.NameOf(c), shell.Patch{Body: fmt.Appendf(nil, `{"metadata": {}, "spec": {"poolRef": {"kind": %q}}}`, kind)}, nil)
}

// settleDown ends everything that a moving history has begun.
func (w *world) settleDown() {
	for _, c := range all[v1beta2.IPAddressClaim](w, shell.IPAddressClaims) {
		w.nameProvider(c, v1alpha1.KindInfobloxIPPool)
	}
}

// judgeMoving notes what happens in moving histories.
func (w *world) judgeMoving() {
	moved := map[types.UID]bool{}
	for _, was := range w.was {
		moved[was] = true
	}
	for _, r := range w.hosts() {
		claims := r.Claims()
		for n, uid := range claims {
			if n > 0 && w.was[uid] == "" && moved[claims[0]] && cmp.Compare(uid, claims[0]) > 0 {
				w.covered["a claim joins the record of a moved one"]++
			}
		}
		if len(claims) > 1 && len(r.IPv4) > 1 {
			w.covered["two claims of one pool share a host record"]++
		}
	}
}

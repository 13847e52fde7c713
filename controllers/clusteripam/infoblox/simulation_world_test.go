package infoblox

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/multicidr/controller-manager/apis/clusterapi/v1alpha1"
	"github.com/multicidr/controller-manager/apis/clusterapi/v1beta2"
	"github.com/multicidr/controller-manager/controllers/clusteripam/infoblox/host"
	"github.com/multicidr/controller-manager/controllers/clusteripam/infoblox/known"
	"github.com/multicidr/controller-manager/controllers/clusteripam/infoblox/wapi"
	"github.com/multicidr/controller-manager/controllers/clusteripam/infoblox/wapitest"
	"github.com/multicidr/controller-manager/controllers/clusteripam/shell"
	"github.com/multicidr/controller-manager/controllers/lease"
	"github.com/multicidr/controller-manager/controllers/writes"
)

var start = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

const (
	leaseLasts = 15 * time.Second
	writeLasts = 5 * time.Second
)

// world is the API server, Infoblox, and the processes.
type world struct {
	chance    *rand.Rand
	now       time.Time
	covered   map[string]int
	trace     []string
	violation string

	objects map[*shell.Kind]map[types.NamespacedName]map[string]any
	version int
	log     []change
	skews   bool   // watches are late, each for itself
	drops   string // the annotation that an admission policy takes away
	writes  int    // that changed something, in Infoblox as well
	judged  int    // of them

	grid   *wapitest.Grid
	down   bool
	away   []metav1.Object      // pools and the InfobloxInstance that somebody has deleted
	pair   bool                 // only two claims, which share a host record, come and go
	byHand map[string]bool      // addresses whose records somebody has deleted
	spoilt map[string]bool      // claims, by UID, whose records somebody has deleted
	told   map[types.UID]string // addresses of claims whose status has said that they have one
	other  *wapitest.Grid       // what another Infoblox has: nothing
	twin   *wapitest.Grid       // an Infoblox with the same network, in wide histories
	wide   bool
	shows  bool // the Stores of processes show what answers say
	// lost are claims that were forced away before they had an IPAddress.
	lost map[types.UID]bool
	// refuses: all Infoblox refuse the credentials.
	refuses bool
	moved   bool // the InfobloxInstances were that other Infoblox for a while
	// edited are the addresses that were allocated, of IPAddresses whose spec somebody has edited. renamed are claims whose host record got another
	// name, and forced those whose IPAddress was forced away.
	edited          map[types.UID]string
	renamed, forced map[types.UID]bool
	// unclearOf are claims whose IPAddress was edited: it does not say any more which address in their host record is their own.
	unclearOf map[types.UID]bool
	// around: claims are moved. was is for which claim the host record of one was made that has got another UID since.
	around bool
	was    map[types.UID]types.UID
	copies map[types.UID]bool // IPAddresses that are copies; nil if nobody makes any
	moving bool               // a claim is being moved, and its IPAddress has not come
	// changes: the subnets of pools change. ours are names of host records that claims have, or had.
	changes bool
	ours    map[string]bool

	leader *process
	old    []*process
	late   []lateWrite
}

type change struct {
	kind   *shell.Kind
	object map[string]any
	gone   bool
}

// lateWrite is a write that may still be carried out, until it is too late.
type lateWrite struct {
	do    func() error
	until time.Time
	what  string
}

func newWorld(chance *rand.Rand) *world {
	w := &world{chance: chance, now: start, covered: map[string]int{}, objects: map[*shell.Kind]map[types.NamespacedName]map[string]any{}, byHand: map[string]bool{}, spoilt: map[string]bool{}, told: map[types.UID]string{}, pair: chance.IntN(3) == 0,
		lost: map[types.UID]bool{}, edited: map[types.UID]string{}, renamed: map[types.UID]bool{}, forced: map[types.UID]bool{}, unclearOf: map[types.UID]bool{}, was: map[types.UID]types.UID{}}
	w.grid, w.other = wapitest.NewGrid("10.0.0.0/29", "fd00::/125"), wapitest.NewGrid()
	w.other.NetworkViews = nil
	w.put(shell.Secrets, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "s"}, Data: map[string][]byte{"username": []byte("u"), "password": []byte("p")}})
	w.put(shell.InfobloxInstances, instanceOf("i"))
	w.put(shell.InfobloxInstances, instanceOf("j"))
	for _, namespace := range []string{"a", "b"} {
		for _, name := range []string{"v4", "v6"} {
			w.put(shell.InfobloxIPPools, poolOfName(namespace, name))
		}
	}
	return w
}

// instanceOf returns one of the InfobloxInstances, which are of the same Infoblox.
func instanceOf(name string) *v1alpha1.InfobloxInstance {
	return &v1alpha1.InfobloxInstance{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1alpha1.InfobloxInstanceSpec{Host: "h", WAPIVersion: "2.12", CredentialsSecretRef: v1alpha1.SecretReference{Name: "s"}}}
}

func poolOfName(namespace, name string) *v1alpha1.InfobloxIPPool {
	subnet := map[string]v1alpha1.Subnet{"v4": {CIDR: "10.0.0.0/29", Gateway: "10.0.0.1"}, "v6": {CIDR: "fd00::/125"}, "far": {CIDR: "10.0.0.0/29", Gateway: "10.0.0.1"}}[name]
	instance := map[string]string{"far": "k"}[name]
	return &v1alpha1.InfobloxIPPool{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec: v1alpha1.InfobloxIPPoolSpec{InstanceRef: v1alpha1.InstanceReference{Name: cmp.Or(instance, "i")}, Subnets: []v1alpha1.Subnet{subnet}}}
}

func (w *world) end() {
	for _, p := range append(w.old, w.leader) {
		if p != nil {
			p.end()
		}
	}
}

// The API server.

func (w *world) put(kind *shell.Kind, object metav1.Object) {
	if err := w.create(kind, object, nil); err != nil {
		panic(err)
	}
}

func toMap(object any) (m map[string]any) {
	if err := json.Unmarshal(shell.Encode(object), &m); err != nil {
		panic(err)
	}
	return m
}

func metadataOf(object map[string]any) map[string]any { return object["metadata"].(map[string]any) }

func (w *world) store(kind *shell.Kind, name types.NamespacedName, object map[string]any, gone bool) {
	w.version++
	w.writes++
	metadataOf(object)["resourceVersion"] = strconv.Itoa(w.version)
	if w.objects[kind] == nil {
		w.objects[kind] = map[types.NamespacedName]map[string]any{}
	}
	if w.objects[kind][name] = object; gone {
		delete(w.objects[kind], name)
	}
	w.log = append(w.log, change{kind, object, gone})
}

func (w *world) create(kind *shell.Kind, object, stored metav1.Object) error {
	name := known.NameOf(object)
	if w.objects[kind][name] != nil {
		return apierrors.NewAlreadyExists(schema.GroupResource{Resource: kind.Resource}, name.Name)
	}
	m := toMap(object)
	metadataOf(m)["uid"] = fmt.Sprintf("00000000-0000-0000-0000-%012d", w.version)
	metadataOf(m)["creationTimestamp"] = w.now.Format(time.RFC3339)
	metadataOf(m)["generation"] = 1.0
	w.store(kind, name, m, false)
	decode(m, stored)
	return nil
}

func decode(m map[string]any, object metav1.Object) {
	if object == nil {
		return
	}
	if err := json.Unmarshal(shell.Encode(m), object); err != nil {
		panic(err)
	}
}

func merge(into, patch map[string]any) map[string]any {
	into = maps.Clone(into)
	for field, value := range patch {
		switch value := value.(type) {
		case nil:
			delete(into, field)
		case map[string]any:
			below, _ := into[field].(map[string]any)
			if below == nil {
				below = map[string]any{}
			}
			into[field] = merge(below, value)
		default:
			into[field] = value
		}
	}
	return into
}

func (w *world) patch(kind *shell.Kind, name types.NamespacedName, patch shell.Patch, stored metav1.Object) error {
	resource := schema.GroupResource{Resource: kind.Resource}
	before := w.objects[kind][name]
	if before == nil {
		return apierrors.NewNotFound(resource, name.Name)
	}
	var body map[string]any
	if err := json.Unmarshal(patch.Body, &body); err != nil {
		panic(err)
	}
	for _, field := range []string{"uid", "resourceVersion"} {
		if given, ok := metadataOf(body)[field]; ok && given != metadataOf(before)[field] {
			return apierrors.NewConflict(resource, name.Name, errors.New(field))
		}
	}
	after := merge(before, body)
	if annotations, ok := metadataOf(after)["annotations"].(map[string]any); ok {
		delete(annotations, w.drops)
	}
	finalizers, _ := metadataOf(after)["finalizers"].([]any)
	had, _ := metadataOf(before)["finalizers"].([]any)
	leaves := metadataOf(after)["deletionTimestamp"] != nil
	if leaves && len(finalizers) > len(had) {
		return apierrors.NewInvalid(schema.GroupKind{Kind: kind.Name}, name.Name, nil)
	}
	if string(shell.Encode(before["spec"])) != string(shell.Encode(after["spec"])) {
		metadataOf(after)["generation"] = metadataOf(after)["generation"].(float64) + 1
	}
	if string(shell.Encode(before)) != string(shell.Encode(after)) {
		w.store(kind, name, after, leaves && len(finalizers) == 0)
	}
	decode(after, stored)
	return nil
}

func (w *world) delete(kind *shell.Kind, name types.NamespacedName, uid types.UID) error {
	before := w.objects[kind][name]
	if before == nil {
		return apierrors.NewNotFound(schema.GroupResource{Resource: kind.Resource}, name.Name)
	}
	if uid != "" && metadataOf(before)["uid"] != string(uid) {
		return apierrors.NewConflict(schema.GroupResource{Resource: kind.Resource}, name.Name, errors.New("uid"))
	}
	after := merge(before, map[string]any{"metadata": map[string]any{"deletionTimestamp": w.now.Format(time.RFC3339)}})
	finalizers, _ := metadataOf(after)["finalizers"].([]any)
	if metadataOf(before)["deletionTimestamp"] == nil {
		w.store(kind, name, after, len(finalizers) == 0)
	}
	return nil
}

// collectGarbage does what the garbage collector does: an IPAddress goes when all its owners are gone; otherwise it loses those that are.
func (w *world) collectGarbage() {
	for _, a := range all[v1beta2.IPAddress](w, shell.IPAddresses) {
		var rest []any
		for _, r := range a.OwnerReferences {
			kind := shell.IPAddressClaims
			if r.Kind == v1alpha1.KindInfobloxIPPool {
				kind = shell.InfobloxIPPools
			}
			owner := w.objects[kind][types.NamespacedName{Namespace: a.Namespace, Name: r.Name}]
			if owner != nil && metadataOf(owner)["uid"] == string(r.UID) {
				rest = append(rest, toMap(r))
			}
		}
		switch {
		case len(rest) == len(a.OwnerReferences):
		case len(rest) == 0:
			_ = w.delete(shell.IPAddresses, known.NameOf(a), a.UID)
		default:
			body := shell.Encode(map[string]any{"metadata": map[string]any{"ownerReferences": rest}})
			_ = w.patch(shell.IPAddresses, known.NameOf(a), shell.Patch{Body: body}, nil)
		}
	}
}

func all[T any](w *world, kind *shell.Kind) (all []*T) {
	for _, name := range w.names(kind) {
		object := new(T)
		if err := json.Unmarshal(shell.Encode(w.objects[kind][name]), object); err != nil {
			panic(err)
		}
		all = append(all, object)
	}
	return all
}

// Users.

func (w *world) createClaim() {
	namespace, n := []string{"a", "b"}[w.chance.IntN(2)], w.chance.IntN(4)
	if w.pair {
		namespace, n = "a", 2+w.chance.IntN(2)
	}
	c := &v1beta2.IPAddressClaim{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: fmt.Sprintf("c%d", n)},
		Spec: v1beta2.IPAddressClaimSpec{PoolRef: v1beta2.IPPoolReference{APIGroup: shell.GroupIPAM, Kind: v1alpha1.KindInfobloxIPPool, Name: "v4"}}}
	if w.chance.IntN(6) == 0 {
		c.Finalizers = []string{finalizerOfOthers}
	}
	if n >= 2 { // These two share a host record.
		c.Annotations = map[string]string{v1alpha1.AnnotationHostname: "h-" + namespace}
		c.Spec.PoolRef.Name = []string{"v4", "v6"}[n-2]
	}
	if w.create(shell.IPAddressClaims, c, nil) == nil {
		w.note("user creates " + known.NameOf(c).String())
	}
}

// deleteClaim deletes a claim, more often one that has no address yet.
func (w *world) deleteClaim() {
	claims := all[v1beta2.IPAddressClaim](w, shell.IPAddressClaims)
	if waiting := slices.DeleteFunc(slices.Clone(claims), func(c *v1beta2.IPAddressClaim) bool { return w.objects[shell.IPAddresses][known.NameOf(c)] != nil }); len(waiting) > 0 && w.chance.IntN(2) == 0 {
		claims = waiting
	}
	if len(claims) > 0 {
		c := claims[w.chance.IntN(len(claims))]
		w.note("user deletes " + known.NameOf(c).String())
		_ = w.delete(shell.IPAddressClaims, known.NameOf(c), "")
	}
}

// finalizerOfOthers keeps a claim that is deleted until the machine has ended.
const finalizerOfOthers = "example.com/machine"

func machineRuns(c *v1beta2.IPAddressClaim) bool {
	return slices.Contains(c.Finalizers, finalizerOfOthers)
}

// endMachine lets the machine of a claim that is deleted end.
func (w *world) endMachine() {
	for _, c := range all[v1beta2.IPAddressClaim](w, shell.IPAddressClaims) {
		if c.DeletionTimestamp != nil && machineRuns(c) {
			w.note("a machine ends after its claim is deleted")
			finalizers, _ := known.Without(c.Finalizers, finalizerOfOthers)
			_ = w.patch(shell.IPAddressClaims, known.NameOf(c), shell.Patch{Body: shell.Encode(map[string]any{"metadata": map[string]any{"finalizers": finalizers}})}, nil)
			return
		}
	}
}

// takeAway deletes the InfobloxInstance, or a pool although claims use it. bringBack creates all of these again.
func (w *world) takeAway() {
	if w.chance.IntN(3) == 0 {
		if w.delete(shell.InfobloxInstances, types.NamespacedName{Name: "i"}, "") == nil {
			w.note("somebody deletes the InfobloxInstance")
			w.away = append(w.away, instanceOf("i"))
		}
		return
	}
	pool := poolOfName([]string{"a", "b"}[w.chance.IntN(2)], []string{"v4", "v6"}[w.chance.IntN(2)])
	_ = w.patch(shell.InfobloxIPPools, known.NameOf(pool), shell.Patch{Body: []byte(`{"metadata": {"finalizers": null}}`)}, nil)
	if w.delete(shell.InfobloxIPPools, known.NameOf(pool), "") == nil {
		w.note("somebody forces a pool away")
		w.away = append(w.away, pool)
	}
}

// rename lets a pool name the Infoblox by its other InfobloxInstance.
func (w *world) rename() {
	name := known.NameOf(poolOfName([]string{"a", "b"}[w.chance.IntN(2)], []string{"v4", "v6"}[w.chance.IntN(2)]))
	patch := fmt.Appendf(nil, `{"metadata": {}, "spec": {"instance": {"name": %q}}}`, []string{"i", "j"}[w.chance.IntN(2)])
	if before := w.writes; w.patch(shell.InfobloxIPPools, name, shell.Patch{Body: patch}, nil) == nil && w.writes != before {
		w.note("a pool names another InfobloxInstance")
	}
}

// edit changes the name that a user wishes for the host record of a claim, more often of one that has no IPAddress.
func (w *world) edit() {
	claims := all[v1beta2.IPAddressClaim](w, shell.IPAddressClaims)
	if waiting := slices.DeleteFunc(slices.Clone(claims), func(c *v1beta2.IPAddressClaim) bool { return w.objects[shell.IPAddresses][known.NameOf(c)] != nil }); len(waiting) > 0 {
		claims = waiting
	}
	if len(claims) > 0 {
		w.wish(known.NameOf(claims[w.chance.IntN(len(claims))]))
	}
}

func (w *world) wish(claim types.NamespacedName) {
	name := []string{"h-" + claim.Namespace, "g-" + claim.Namespace, "c0"}[w.chance.IntN(3)]
	w.note("user edits the hostname")
	w.wishes(claim, name)
}

// wishes edits which host record a claim wishes.
func (w *world) wishes(claim types.NamespacedName, record string) {
	_ = w.patch(shell.IPAddressClaims, claim, shell.Patch{Body: fmt.Appendf(nil, `{"metadata": {"annotations": {%q: %q}}}`, v1alpha1.AnnotationHostname, record)}, nil)
}

// forceAway deletes an IPAddress although its claim is there. The user may wish another name for the next one.
func (w *world) forceAway() {
	if addresses := all[v1beta2.IPAddress](w, shell.IPAddresses); len(addresses) > 0 {
		a := addresses[w.chance.IntN(len(addresses))]
		if w.copies[a.UID] || !known.OfInfoblox(a.Spec.PoolRef) {
			return
		}
		name := known.NameOf(a)
		w.note("somebody forces an IPAddress away")
		if c := (&v1beta2.IPAddressClaim{}); w.objects[shell.IPAddressClaims][name] != nil {
			if decode(w.objects[shell.IPAddressClaims][name], c); !known.WasServed(c) {
				delete(w.told, c.UID)
			}
		}
		w.forced[types.UID(a.Annotations[known.AnnotationClaim])] = true
		if claim := w.objects[shell.IPAddressClaims][name]; claim == nil || metadataOf(claim)["uid"] != a.Annotations[known.AnnotationClaim] {
			w.lost[types.UID(a.Annotations[known.AnnotationClaim])] = true // The claim was forced away before.
		}
		_ = w.patch(shell.IPAddresses, name, shell.Patch{Body: []byte(`{"metadata": {"finalizers": null}}`)}, nil)
		_ = w.delete(shell.IPAddresses, name, "")
		if w.chance.IntN(2) == 0 {
			w.wish(name)
		}
	}
}

// editSpecs edits the spec of a claim that has an IPAddress, or of the IPAddress, as an API server without Cluster API's webhooks and our CRDs lets
// users do.
func (w *world) editSpecs() {
	addresses := all[v1beta2.IPAddress](w, shell.IPAddresses)
	if len(addresses) == 0 {
		return
	}
	a := addresses[w.chance.IntN(len(addresses))]
	if w.copies[a.UID] || !known.OfInfoblox(a.Spec.PoolRef) {
		return
	}
	if w.chance.IntN(2) == 0 {
		if w.isNewHere(known.NameOf(a)) {
			return // Nothing but the pool says that the IPAddress is the claim's.
		}
		w.note("user edits the spec of a claim")
		w.spoilt[a.Annotations[known.AnnotationClaim]] = true
		_ = w.patch(shell.IPAddressClaims, known.NameOf(a), shell.Patch{Body: fmt.Appendf(nil, `{"metadata": {}, "spec": {"poolRef": {"name": %q}}}`, []string{"v4", "v6"}[w.chance.IntN(2)])}, nil)
		return
	}
	w.note("user edits the spec of an IPAddress")
	w.unclearOf[types.UID(a.Annotations[known.AnnotationClaim])] = true
	if w.edited[a.UID] == "" {
		w.edited[a.UID] = a.Spec.Address
	}
	_ = w.patch(shell.IPAddresses, known.NameOf(a), shell.Patch{Body: fmt.Appendf(nil, `{"metadata": {}, "spec": {"address": "10.0.0.%d"}}`, 2+w.chance.IntN(5))}, nil)
}

// move makes the InfobloxInstances another Infoblox, or the one that they were.
func (w *world) moveInstances(host string) {
	w.moved = true
	for _, name := range []string{"i", "j"} {
		_ = w.patch(shell.InfobloxInstances, types.NamespacedName{Name: name}, shell.Patch{Body: fmt.Appendf(nil, `{"metadata": {}, "spec": {"host": %q}}`, host)}, nil)
	}
}

func (w *world) bringBack() {
	for _, object := range w.away {
		if object.GetNamespace() == "" {
			w.bringBackInstance()
			continue
		}
		w.put(shell.InfobloxIPPools, object)
	}
	w.away = nil
}

// bringBackInstance creates the first InfobloxInstance again, if it is not there. It has the host that the other one has by now: they are one Infoblox, and
// the documentation wants that.
func (w *world) bringBackInstance() {
	other, name := w.objects[shell.InfobloxInstances][types.NamespacedName{Name: "j"}], types.NamespacedName{Name: "i"}
	if w.objects[shell.InfobloxInstances][name] != nil {
		return
	}
	j, i := &v1alpha1.InfobloxInstance{}, instanceOf(name.Name)
	decode(other, j)
	i.Spec.Host = j.Spec.Host
	w.put(shell.InfobloxInstances, i)
}

// somebodyElse uses the same Infoblox.
func (w *world) somebodyElse() {
	switch w.chance.IntN(7) {
	case 6:
		w.renameRecord()
	case 0, 1:
		name := []string{"c0", "c1", "other"}[w.chance.IntN(3)]
		w.note("somebody makes a record")
		w.writes++
		w.grid.Do(http.MethodPost, "record:host", nil, shell.Encode(host.Record{Name: name, NetworkView: "default"}.WithNext(netip.MustParsePrefix("10.0.0.0/29"), "default")))
	case 2, 3:
		for _, h := range w.hosts() {
			if len(h.Claims()) == 0 {
				w.note("somebody deletes the own record " + h.Name)
				w.writes++
				w.grid.Do(http.MethodDelete, h.Ref, nil, nil)
				return
			}
		}
	case 4:
		w.down = !w.down
		w.note("Infoblox is down")
	case 5:
		for _, h := range w.hosts() {
			if len(h.Claims()) > 0 && w.chance.IntN(2) == 0 {
				w.note("somebody deletes a record of ours")
				w.writes++
				w.grid.Do(http.MethodDelete, h.Ref, nil, nil)
				for _, a := range h.Addresses() {
					w.byHand[a.String()] = true
				}
				for _, uid := range h.Claims() {
					w.spoilt[string(uid)] = true
				}
				return
			}
		}
	}
}

// renameRecord gives a host record another name, of which all claims have their IPAddresses.
func (w *world) renameRecord() {
	addresses := all[v1beta2.IPAddress](w, shell.IPAddresses)
	for _, h := range w.hosts() {
		without := slices.ContainsFunc(h.Claims(), func(uid types.UID) bool {
			return !slices.ContainsFunc(addresses, func(a *v1beta2.IPAddress) bool { return a.Annotations[known.AnnotationClaim] == string(uid) })
		})
		if len(h.Claims()) == 0 || without || w.chance.IntN(2) == 0 {
			continue
		}
		w.note("somebody renames a record of ours")
		w.writes++
		w.grid.Do(http.MethodPut, h.Ref, nil, fmt.Appendf(nil, `{"name": "renamed-%d"}`, w.writes))
		for _, uid := range h.Claims() {
			w.renamed[uid], w.spoilt[string(uid)] = true, true
		}
		return
	}
}

// hosts returns the host records that there are.
func (w *world) hosts() (found []host.Record) {
	_, answer := w.grid.Do(http.MethodGet, "record:host", url.Values{"_return_fields": {"name,network_view,comment,ipv4addrs,ipv6addrs,configure_for_dns"}}, nil)
	if err := json.Unmarshal(shell.Encode(answer), &found); err != nil {
		panic(err)
	}
	return found
}

// Processes.

// elect starts a process that is the leader.
func (w *world) elect() {
	for _, a := range all[v1beta2.IPAddress](w, shell.IPAddresses) {
		if w.edited[a.UID] != "" { // It does not know what the address was.
			w.spoilt[a.Annotations[known.AnnotationClaim]] = true
		}
	}
	w.leader = newProcess(w)
}

// depose cuts the leader off. After its lease has run out, another one is elected.
func (w *world) depose() {
	if len(w.old) > 1 {
		w.old[0].end()
		w.old = w.old[1:]
	}
	w.old = append(w.old, w.leader)
	w.leader.cut = true
	w.leader = nil
	w.pass(int(leaseLasts / time.Second))
	w.note("another leader")
	w.elect()
}

// pass lets time pass.
func (w *world) pass(seconds int) {
	w.now = w.now.Add(time.Duration(seconds) * time.Second)
	if w.leader != nil {
		w.leader.lease = w.now.Add(leaseLasts)
	}
	w.collectGarbage()
	w.late = slices.DeleteFunc(w.late, func(l lateWrite) bool { return !w.now.Before(l.until) })
}

func (w *world) executeLate() {
	if len(w.late) == 0 {
		return
	}
	i := w.chance.IntN(len(w.late))
	l := w.late[i]
	w.late = slices.Delete(w.late, i, i+1)
	before := w.writes
	if w.note("late: " + l.what); l.do() == nil && (w.writes != before || strings.Contains(l.what, "Infoblox")) {
		w.note(l.what + ": late and carried out")
	}
}

type process struct {
	*world
	logic   *logic
	feed    *shell.Feed
	unheard []change
	shown   map[types.UID]change // what the watches have shown last of what is not gone
	heard   int                  // how much of the log it has heard of or has in unheard
	lags    *shell.Kind          // the watch of this kind is late
	queue   map[shell.Key]bool
	timers  []timer
	runs    map[shell.Key]bool
	calls   []*call
	parked  chan struct{}
	lease   time.Time
	cut     bool // it does not renew its lease any more
	dead    bool
	failed  map[shell.Key]int
}

type timer struct {
	key shell.Key
	at  time.Time
}

type call struct {
	what, kind string
	write      bool
	do         func() error
	lost       error // if the answer is lost
	answer     chan error
	sent       time.Time
}

func newProcess(w *world) *process {
	p := &process{world: w, shown: map[types.UID]change{}, queue: map[shell.Key]bool{}, runs: map[shell.Key]bool{}, parked: make(chan struct{}), lease: w.now.Add(leaseLasts), failed: map[shell.Key]int{}}
	lock := &shell.Lock{}
	p.logic = newLogic(shell.Parts{
		API:    p,
		Lock:   lock,
		Now:    func() time.Time { return w.now },
		Queue:  p,
		Served: func(k *shell.Kind) (string, bool) { return k.Group + "/" + k.Versions[0], k != shell.Clusters },
		Tell:   func(e shell.Event) { w.trace = append(w.trace, "        event "+e.Reason+": "+e.Message) },
		Took:   func(time.Duration) {},
	}, "kube-system", func(c wapi.Config) (WAPI, error) {
		return simulatedWAPI{p, w.gridOf(c)}, nil
	}, func() time.Duration { return writeLasts })
	p.feed = &shell.Feed{Lock: lock, Logic: p.logic}
	for kind, objects := range w.objects {
		for _, object := range objects {
			p.show(change{kind: kind, object: object})
		}
	}
	p.heard = len(w.log)
	p.feed.Fill()
	return p
}

// end ends a process. What it has sent to Infoblox may still be carried out.
func (p *process) end() {
	p.dead = true
	for _, c := range p.calls {
		if until := c.sent.Add(settled); c.write && c.kind == "write to Infoblox" && p.now.Before(until) && p.chance.IntN(2) == 0 {
			p.late = append(p.late, lateWrite{c.do, until, c.kind})
		}
	}
	for len(p.calls) > 0 {
		p.resume(0, errors.New("the process has ended"))
	}
}

// Add implements shell.Queue.
func (p *process) Add(key shell.Key) { p.queue[key] = true }

// AddAfter implements shell.Queue.
func (p *process) AddAfter(key shell.Key, after time.Duration) {
	p.timers = append(p.timers, timer{key, p.now.Add(after)})
}

// ready returns a key to work on.
func (p *process) ready(chance *rand.Rand) (shell.Key, bool) {
	p.timers = slices.DeleteFunc(p.timers, func(t timer) bool {
		due := !p.now.Before(t.at)
		if due {
			p.queue[t.key] = true
		}
		return due
	})
	var keys []shell.Key
	for key := range p.queue {
		if !p.runs[key] {
			keys = append(keys, key)
		}
	}
	if len(keys) == 0 {
		return shell.Key{}, false
	}
	slices.SortFunc(keys, func(a, b shell.Key) int { return strings.Compare(a.String(), b.String()) })
	return keys[chance.IntN(len(keys))], true
}

// behind reports whether there are changes that the process has not heard of.
func (p *process) behind() bool {
	p.unheard, p.heard = append(p.unheard, p.log[p.heard:]...), len(p.log)
	return len(p.unheard) > 0
}

// hear shows the process the next change. The watches of two kinds do not wait for each other.
func (p *process) hear() {
	if !p.behind() {
		return
	}
	i := max(0, slices.IndexFunc(p.unheard, func(c change) bool { return c.kind != p.lags }))
	if i > 0 {
		p.covered["a watch is later than another one"]++
	}
	c := p.unheard[i]
	p.unheard = slices.Delete(p.unheard, i, i+1)
	p.show(c)
}

// lag lets the watch of one kind be later than the others for a while. It reports whether there is nothing else to hear of.
func (p *process) lag() bool {
	if p.chance.IntN(30) == 0 {
		p.lags = []*shell.Kind{nil, nil, shell.IPAddressClaims, shell.IPAddresses, shell.IPAddressClaims, shell.IPAddresses, shell.InfobloxIPPools, shell.InfobloxInstances}[p.chance.IntN(8)]
	}
	return p.lags != nil && !slices.ContainsFunc(p.unheard, func(c change) bool { return c.kind != p.lags })
}

func (p *process) hearAll() {
	for p.behind() {
		p.hear()
	}
}

func (p *process) show(c change) {
	for _, source := range p.logic.Reads() {
		if source.Reads().Kind != c.kind {
			continue
		}
		object := blank(c.kind)
		if decode(c.object, object); c.gone {
			delete(p.shown, object.GetUID())
			p.feed.Gone(source, object)
		} else {
			p.shown[object.GetUID()] = c
			p.feed.Shows(source, object)
		}
	}
}

func blank(kind *shell.Kind) metav1.Object {
	switch kind {
	case shell.IPAddressClaims:
		return &v1beta2.IPAddressClaim{}
	case shell.IPAddresses:
		return &v1beta2.IPAddress{}
	case shell.InfobloxInstances:
		return &v1alpha1.InfobloxInstance{}
	case shell.InfobloxIPPools:
		return &v1alpha1.InfobloxIPPool{}
	}
	return &corev1.Secret{}
}

// begin begins to work on a key.
func (p *process) begin(key shell.Key) {
	delete(p.queue, key)
	p.runs[key] = true
	go func() {
		err := p.logic.Sync(context.Background(), key)
		delete(p.runs, key)
		var later writes.Later
		switch {
		case errors.As(err, &later):
			p.AddAfter(key, max(time.Duration(later), time.Second))
		case err != nil:
			p.failed[key]++
			p.AddAfter(key, time.Second<<min(p.failed[key], 5))
		default:
			delete(p.failed, key)
		}
		if err != nil && !p.dead {
			p.trace = append(p.trace, fmt.Sprintf("        %v: %v", key, err))
		}
		p.parked <- struct{}{}
	}()
	<-p.parked
}

// ask sends a request, and returns with its answer.
func (p *process) ask(c *call) error {
	if p.dead {
		return errors.New("the process has ended")
	}
	if c.write && p.now.Add(2*writeLasts).After(p.lease) {
		p.note("a deposed leader wants to write")
		return lease.ErrClosed
	}
	c.answer, c.sent = make(chan error), p.now
	p.calls = append(p.calls, c)
	p.parked <- struct{}{}
	return <-c.answer
}

// resume answers a request, and waits until the process waits again.
func (p *process) resume(i int, err error) {
	c := p.calls[i]
	p.calls = slices.Delete(p.calls, i, i+1)
	c.answer <- err
	<-p.parked
}

// answer carries out a request, or not, and answers it, or not.
func (p *process) answer(i int, well bool) {
	c := p.calls[i]
	infoblox := strings.Contains(c.kind, "Infoblox")
	switch {
	case infoblox && p.down && !well:
		p.resume(i, c.lost)
		return
	case infoblox && p.refuses:
		p.resume(i, errRefused)
		return
	}
	n := 10
	if c.write && !well {
		n = p.chance.IntN(10)
	}
	until := c.sent.Add(writeLasts)
	if infoblox { // It knows nothing of our deadlines.
		until = c.sent.Add(settled)
	}
	switch {
	case c.write && !p.now.Before(until):
		n = 0
	case c.write && p.now.After(c.sent.Add(writeLasts)):
		n = 1 // Its sender has given up.
	}
	p.trace = append(p.trace, fmt.Sprintf("        %s %s (%d)", c.kind, c.what, n))
	if n > 3 && p.around && strings.HasPrefix(c.what, "create IPAddress") && p.chance.IntN(4) == 0 {
		p.note("the API server refuses an IPAddress")
		p.resume(i, apierrors.NewInvalid(schema.GroupKind{Kind: v1beta2.KindIPAddress}, c.what, nil))
		return
	}
	switch n {
	case 0:
		p.note(c.kind + ": lost before")
		p.resume(i, c.lost)
	case 1:
		p.note(c.kind + ": lost after")
		_ = c.do()
		p.resume(i, c.lost)
	case 2:
		p.late = append(p.late, lateWrite{c.do, until, c.kind})
		p.resume(i, c.lost)
	case 3:
		if !infoblox {
			p.resume(i, c.do())
			return
		}
		p.note(c.kind + ": error")
		p.resume(i, &wapi.Error{Request: c.what, Status: http.StatusInternalServerError, Code: "Server.Ibap", Text: "simulated"})
	default:
		p.resume(i, c.do())
	}
}

var errLost = errors.New("no answer")

// Get implements shell.API.
func (p *process) Get(_ context.Context, kind *shell.Kind, of types.NamespacedName, object metav1.Object) error {
	return p.ask(&call{what: "get " + kind.Name, kind: "read", lost: errLost, do: func() error {
		m := p.objects[kind][of]
		if m == nil {
			return apierrors.NewNotFound(schema.GroupResource{Resource: kind.Resource}, of.Name)
		}
		decode(m, object)
		return nil
	}})
}

// Create implements shell.API.
func (p *process) Create(_ context.Context, kind *shell.Kind, object, stored metav1.Object) error {
	stored = cmpOr(stored, blank(kind))
	err := p.ask(&call{what: "create " + kind.Name + " " + known.NameOf(object).String(), kind: "write", write: true, lost: errLost, do: func() error {
		err := p.create(kind, object, stored)
		if err == nil {
			p.note("IPAddress created")
		}
		return err
	}})
	p.wrote(kind, stored, err)
	return err
}

// Patch implements shell.API.
func (p *process) Patch(_ context.Context, kind *shell.Kind, of types.NamespacedName, patch shell.Patch, stored metav1.Object) error {
	stored = cmpOr(stored, blank(kind))
	err := p.ask(&call{what: "patch " + kind.Name + " " + of.String() + " " + string(patch.Body), kind: "write", write: true, lost: errLost, do: func() error {
		err := p.patch(kind, of, patch, stored)
		if kind == shell.IPAddressClaims && err == nil && p.objects[kind][of] == nil {
			p.note("claim released")
		}
		return err
	}})
	p.wrote(kind, stored, err)
	return err
}

// wrote shows what an answer says, as a controller does that runs; in half of the histories, because the Store need not do so.
func (p *process) wrote(kind *shell.Kind, stored metav1.Object, err error) {
	if err != nil || p.dead || !p.shows {
		return
	}
	for _, source := range p.logic.Reads() {
		if source.Reads().Kind == kind {
			p.feed.Wrote(source, stored)
		}
	}
}

func cmpOr(a, b metav1.Object) metav1.Object {
	if a != nil {
		return a
	}
	return b
}

// Delete implements shell.API.
func (p *process) Delete(_ context.Context, kind *shell.Kind, of types.NamespacedName, uid types.UID, _ string) error {
	return p.ask(&call{what: "delete " + kind.Name + " " + of.String(), kind: "write", write: true, lost: errLost, do: func() error { return p.delete(kind, of, uid) }})
}

// simulatedWAPI is a WAPI without a network.
type simulatedWAPI struct {
	*process
	grid *wapitest.Grid
}

func (s simulatedWAPI) request(method, path string, query url.Values, body, answer any) error {
	var text []byte
	if body != nil {
		text = shell.Encode(body)
	}
	what := method + " " + path + " " + query.Encode() + string(text)
	kind, write := "read of Infoblox", method != http.MethodGet
	if write {
		kind = "write to Infoblox"
	}
	return s.ask(&call{what: what, kind: kind, write: write, lost: &wapi.Error{Request: method, Err: errLost}, do: func() error {
		status, got := s.grid.Do(method, path, query, text)
		if status >= 300 {
			e := &wapi.Error{Request: method, Status: status}
			m := toMap(got)
			e.Code, e.Text = m["code"].(string), m["text"].(string)
			if wapi.IsFull(e) {
				s.note("the pool is full")
			}
			return e
		}
		if write {
			s.writes++
		}
		if answer != nil {
			return json.Unmarshal(shell.Encode(got), answer)
		}
		return nil
	}})
}

func (s simulatedWAPI) exists(kind string, query url.Values) (bool, error) {
	var found []any
	err := s.request(http.MethodGet, kind, query, nil, &found)
	return len(found) > 0, err
}

func (s simulatedWAPI) NetworkView(_ context.Context, name string) (bool, error) {
	return s.exists("networkview", url.Values{"name": {name}})
}

func (s simulatedWAPI) DNSView(_ context.Context, name string) (bool, error) {
	return s.exists("view", url.Values{"name": {name}})
}

func (s simulatedWAPI) Network(_ context.Context, network netip.Prefix, view string) (bool, error) {
	kind := "network"
	if network.Addr().Is6() {
		kind = "ipv6network"
	}
	return s.exists(kind, url.Values{"network": {network.String()}, "network_view": {view}})
}

func (s simulatedWAPI) Hosts(_ context.Context, name, networkView string) (found []host.Record, err error) {
	query := url.Values{"name": {name}, "_return_fields": {"name,network_view,comment,ipv4addrs,ipv6addrs,configure_for_dns"}}
	if networkView != "" {
		query.Set("network_view", networkView)
	}
	err = s.request(http.MethodGet, "record:host", query, nil, &found)
	return found, err
}

func (s simulatedWAPI) CreateHost(_ context.Context, r host.Record) (ref string, err error) {
	err = s.request(http.MethodPost, "record:host", nil, r, &ref)
	return ref, err
}

func (s simulatedWAPI) UpdateHost(_ context.Context, r host.Record) error {
	body := map[string]any{"comment": r.Comment, "ipv4addrs": append([]host.Addr4{}, r.IPv4...), "ipv6addrs": append([]host.Addr6{}, r.IPv6...)}
	return s.request(http.MethodPut, r.Ref, nil, body, nil)
}

func (s simulatedWAPI) DeleteHost(_ context.Context, ref string) error {
	return s.request(http.MethodDelete, ref, nil, nil, nil)
}

func (s simulatedWAPI) Close() {}

package incluster

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/multicidr/controller-manager/apis/clusterapi/v1alpha2"
	"github.com/multicidr/controller-manager/apis/clusterapi/v1beta2"
	"github.com/multicidr/controller-manager/controllers/clusteripam/contract"
	"github.com/multicidr/controller-manager/controllers/clusteripam/runner"
	"github.com/multicidr/controller-manager/test/contracttest"
	"github.com/multicidr/controller-manager/test/seeds"
)

// TestSimulation: users, crashes, lost and late answers, moves and restores. No address belongs to two IPAddresses of a pool, no claim is told a second address, and in
// the end every claim has an address or a reason.
func TestSimulation(t *testing.T) {
	seeds.Each(t, 150, func(t *testing.T, seed uint64) {
		synctest.Test(t, func(t *testing.T) { simulate(t, seed) })
	})
}

// idAnnotation says which claim it is, wherever it is moved.
const idAnnotation = "test/id"

// kindsRead are in the order in which clusterctl moves them.
var kindsRead = []*runner.Kind{runner.Clusters, runner.InClusterIPPools, runner.GlobalInClusterIPPools, runner.InClusterPrefixPools, runner.GlobalInClusterPrefixPools,
	runner.IPAddressClaims, runner.IPAddresses}

func typeOf(kind *runner.Kind) metav1.Object {
	return map[*runner.Kind]metav1.Object{
		runner.Clusters: &contract.Cluster{}, runner.IPAddressClaims: &v1beta2.IPAddressClaim{}, runner.IPAddresses: &v1beta2.IPAddress{},
		runner.InClusterIPPools: &v1alpha2.InClusterIPPool{}, runner.GlobalInClusterIPPools: &v1alpha2.GlobalInClusterIPPool{},
		runner.InClusterPrefixPools: &v1alpha2.InClusterPrefixPool{}, runner.GlobalInClusterPrefixPools: &v1alpha2.GlobalInClusterPrefixPool{},
	}[kind]
}

// world is a management cluster at a time, and its users.
type world struct {
	*testing.T
	mu      sync.Mutex
	dice    *rand.Rand
	quiet   bool // no faults any more
	seed    uint64
	start   time.Time
	log     []string
	server  *contracttest.Server // the one that the users use
	process map[*contracttest.Server]*contracttest.Process
	judge   *judge
	cluster bool // claims name a Cluster
	next    int
	// excused are claims that were deleted before their finalizer counted: after a crash nobody knows of that.
	excused map[string]bool
	dropped map[string]bool
}

func (w *world) roll(n int) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.dice.IntN(n)
}

func (w *world) say(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.log = append(w.log, fmt.Sprintf("%8.3f ", time.Since(w.start).Seconds())+fmt.Sprintf(format, args...))
}

// unanswered is for how long a write without an answer may be carried out.
const unanswered = 15 * time.Second

func (w *world) options() contracttest.Options {
	return contracttest.Options{
		Workers: 3, Unanswered: unanswered,
		Lag: func() time.Duration {
			if w.roll(20) == 0 {
				return time.Duration(w.roll(3000)) * time.Millisecond
			}
			return time.Duration(w.roll(20)) * time.Millisecond
		},
		Fault: func(verb string, kind *runner.Kind, name string) (f contracttest.Fault) {
			f.Before, f.After = time.Duration(w.roll(5))*time.Millisecond, time.Duration(w.roll(5))*time.Millisecond
			w.mu.Lock()
			quiet := w.quiet
			w.mu.Unlock()
			if quiet {
				return f
			}
			switch w.roll(25) {
			case 0:
				f.Unanswered, f.Lost, f.After = true, true, 5*time.Second
			case 1:
				f.Unanswered, f.Before, f.After = true, time.Duration(w.roll(14_000))*time.Millisecond, 5*time.Second
			case 2:
				f.Unanswered, f.After = true, time.Duration(w.roll(2000))*time.Millisecond
			case 3:
				f.Refused = apierrors.NewForbidden(schema.GroupResource{Group: kind.Group, Resource: kind.Resource}, name, fmt.Errorf("quota"))
			}
			if f != (contracttest.Fault{Before: f.Before, After: f.After}) {
				w.say("fault: %s %v %s: %+v", verb, kind, name, f)
			}
			return f
		},
	}
}

func (w *world) run(s *contracttest.Server) {
	w.process[s] = contracttest.Start(w.Context(), s, kindsRead, typeOf, func(t *runner.Term) runner.Logic { return newLogic(t, "", "") }, w.options())
}

func (w *world) crash(s *contracttest.Server) {
	w.process[s].Crash()
	for id := range w.dropped {
		w.excused[id] = true
	}
	time.Sleep(unanswered)
}

func simulate(t *testing.T, seed uint64) {
	w := &world{T: t, dice: rand.New(rand.NewPCG(seed, 0)), seed: seed, start: time.Now(), process: map[*contracttest.Server]*contracttest.Process{},
		excused: map[string]bool{}, dropped: map[string]bool{}}
	w.judge = &judge{world: w, holds: map[string]map[string]held{}, told: map[string]string{}, live: map[string]map[string]string{}}
	w.cluster = w.roll(2) == 0
	w.server = w.newServer("a")
	w.create(runner.Clusters, "n", "k", map[string]any{})
	w.create(runner.InClusterIPPools, "n", "p", map[string]any{"addresses": []any{"10.0.0.10-10.0.0.19"}, "prefix": 24, "gateway": "10.0.0.1"})
	w.create(runner.InClusterPrefixPools, "n", "x", map[string]any{"prefixes": []any{"fd00::/61"}, "allocationPrefixLength": 64})
	w.create(runner.GlobalInClusterIPPools, "", "g", map[string]any{"addresses": []any{"10.1.0.0/29"}, "prefix": 29})
	w.run(w.server)
	for range 30 + w.roll(50) {
		time.Sleep(time.Duration(w.roll(1500)) * time.Millisecond)
		w.act()
	}
	w.end()
	seeds.Report(t, seed, append(w.log, w.server.Dump(kindsRead...)))
	for _, p := range w.process {
		p.Crash()
	}
	time.Sleep(time.Minute) // for requests that are on their way
}

func (w *world) newServer(name string) *contracttest.Server {
	s := contracttest.NewServer(name)
	s.Stored = func(kind *runner.Kind, before, now *unstructured.Unstructured) {
		w.judge.stored(name, kind, before, now)
	}
	return s
}

func (w *world) create(kind *runner.Kind, namespace, name string, spec map[string]any) {
	_, err := w.server.Create(kind, map[string]any{"metadata": map[string]any{"namespace": namespace, "name": name}, "spec": spec})
	if err != nil {
		w.Fatal(err)
	}
}

// act is what users and the machines do next.
func (w *world) act() {
	names := w.names()
	some := func() types.NamespacedName {
		if len(names) == 0 {
			return types.NamespacedName{}
		}
		return names[w.roll(len(names))]
	}
	paused := map[string]any{"metadata": map[string]any{"annotations": map[string]any{v1beta2.AnnotationPaused: []any{"", nil}[w.roll(2)]}}}
	switch n := w.roll(40); {
	case n < 14:
		w.claim()
	case n < 21:
		of := some()
		w.say("delete %v", of)
		_ = w.server.Delete(runner.IPAddressClaims, of, "")
	case n < 24:
		of := some()
		w.say("force the IPAddress %v away", of)
		_ = w.server.Delete(runner.IPAddresses, of, "")
		w.server.Strip(runner.IPAddresses, of)
	case n < 25:
		of := some()
		w.say("pause %v: %v", of, paused)
		_, _ = w.server.Edit(runner.IPAddressClaims, of, false, paused)
	case n < 26:
		w.say("pause p: %v", paused)
		_, _ = w.server.Edit(runner.InClusterIPPools, types.NamespacedName{Namespace: "n", Name: "p"}, false, paused)
	case n < 27:
		w.say("pause the Cluster: %v", paused)
		_, _ = w.server.Edit(runner.Clusters, types.NamespacedName{Namespace: "n", Name: "k"}, false, paused)
	case n < 30:
		w.editPool()
	case n < 32:
		w.drop()
	case n < 35:
		w.say("crash")
		w.crash(w.server)
		w.say("start")
		w.run(w.server)
	case n < 36:
		w.move()
	case n < 37:
		w.restore()
	}
}

func (w *world) names() (all []types.NamespacedName) {
	for _, o := range w.server.List(runner.IPAddressClaims) {
		all = append(all, contract.NameOf(o))
	}
	return all
}

func (w *world) claim() {
	w.next++
	ref := [][2]string{{v1alpha2.KindInClusterIPPool, "p"}, {v1alpha2.KindInClusterIPPool, "p"}, {v1alpha2.KindInClusterPrefixPool, "x"}, {v1alpha2.KindGlobalInClusterIPPool, "g"}}[w.roll(4)]
	name := fmt.Sprintf("c%d", w.roll(20))
	spec := map[string]any{"poolRef": map[string]any{"apiGroup": v1beta2.GroupName, "kind": ref[0], "name": ref[1]}}
	if w.cluster {
		spec["clusterName"] = "k"
	}
	metadata := map[string]any{"namespace": "n", "name": name, "annotations": map[string]any{idAnnotation: fmt.Sprint(w.next)}}
	if w.roll(10) == 0 {
		metadata["finalizers"] = []any{"example.com/machine"}
	}
	_, err := w.server.Create(runner.IPAddressClaims, map[string]any{"metadata": metadata, "spec": spec})
	w.say("claim %s (%d) of %v: %v", name, w.next, ref, err)
}

func (w *world) editPool() {
	last := 12 + w.roll(12)
	grace := []int{0, 0, 5, 20}[w.roll(4)]
	w.say("edit p: up to %d, grace %d", last, grace)
	_, _ = w.server.Edit(runner.InClusterIPPools, types.NamespacedName{Namespace: "n", Name: "p"}, false, map[string]any{
		"spec": map[string]any{"addresses": []any{fmt.Sprintf("10.0.0.%d-10.0.0.%d", 10+w.roll(3), last)}, "addressReuseGracePeriodSeconds": grace}})
}

// drop creates a claim that is deleted while its finalizer is on the way.
func (w *world) drop() {
	w.claim()
	time.Sleep(time.Duration(w.roll(40)) * time.Millisecond)
	for _, o := range w.server.List(runner.IPAddressClaims) {
		id := o.GetAnnotations()[idAnnotation]
		if id == fmt.Sprint(w.next) && o.GetDeletionTimestamp() == nil && len(o.GetFinalizers()) < 2 {
			w.say("delete %s before its finalizer counts", o.GetName())
			w.mu.Lock()
			w.dropped[id] = true
			w.mu.Unlock()
			w.server.Drop(runner.IPAddressClaims, contract.NameOf(o))
		}
	}
}

// move moves everything to a new cluster, in which a process runs. Claims that wait stay behind, and get nothing. The process of the source may start again.
func (w *world) move() {
	w.unpause()
	if !w.cluster { // Nothing tells the controller that a move begins, so it is done when all is quiet.
		w.faults(false)
		defer w.faults(true)
		time.Sleep(2 * time.Minute)
	}
	from, to := w.server, w.newServer(fmt.Sprint("b", len(w.log)))
	w.run(to)
	w.say("move from here")
	steps, crashed := 0, false
	contracttest.Move(from, to, kindsRead, moves, func() {
		if steps++; steps == 1 {
			time.Sleep(time.Minute) // until nothing is on its way
		}
		time.Sleep(time.Duration(w.roll(300)) * time.Millisecond)
		if !crashed && !slices.ContainsFunc(from.List(runner.IPAddresses), belongs) && w.roll(8) == 0 {
			crashed = true
			time.Sleep(time.Minute) // until the pools say that they were moved
			w.say("crash in the source")
			w.crash(from)
			w.run(from)
		}
	})
	w.judge.leave(from)
	w.say("moved")
	w.crash(from)
	delete(w.process, from)
	w.server = to
	time.Sleep(time.Duration(w.roll(5000)) * time.Millisecond)
	w.confirm()
}

// moves reports whether clusterctl moves an object.
func moves(kind *runner.Kind, o *unstructured.Unstructured) bool {
	_, labelled := o.GetLabels()[contract.LabelMove]
	return kind != runner.IPAddressClaims || labelled
}

// belongs reports whether an object is not of the Global pool, from which the source goes on allocating.
func belongs(o *unstructured.Unstructured) bool {
	pool, _, _ := unstructured.NestedString(o.Object, "spec", "poolRef", "name")
	return pool != "g"
}

func (w *world) faults(on bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.quiet = !on
}

// confirm says that the Global pool may be used here.
func (w *world) confirm() {
	g := types.NamespacedName{Name: "g"}
	o := w.server.Get(runner.GlobalInClusterIPPools, "", "g")
	if said := o.GetAnnotations()[AnnotationPoolUID]; said == string(o.GetUID()) || said == "" {
		w.Errorf("the Global pool says that it has the UID %q, without a confirmation", said)
	}
	if c := contract.Find(contracttest.To[v1alpha2.GlobalInClusterIPPool](o).Status.Conditions, "Ready"); c != nil && c.Reason != reasonCopied && c.Reason != reasonInvalid {
		w.Errorf("the copied pool says %+v", c)
	}
	_, _ = w.server.Edit(runner.GlobalInClusterIPPools, g, false, map[string]any{"metadata": map[string]any{"annotations": map[string]any{AnnotationPoolUID: nil}}})
}

// restore brings claims and IPAddresses back from a backup, with the controller stopped. The IPAddresses may come after it was started again.
func (w *world) restore() {
	w.unpause()
	w.crash(w.server)
	claims, all := w.server.List(runner.IPAddressClaims), w.server.List(runner.IPAddresses)
	for _, kind := range []*runner.Kind{runner.IPAddresses, runner.IPAddressClaims} {
		for _, o := range w.server.List(kind) {
			w.server.Drop(kind, contract.NameOf(o))
		}
	}
	w.say("restore")
	became := map[types.UID]types.UID{}
	for _, o := range claims {
		contracttest.Restore(w.server, runner.IPAddressClaims, o, became)
	}
	late := func(o *unstructured.Unstructured) bool {
		c := w.server.Get(runner.IPAddressClaims, o.GetNamespace(), o.GetName())
		return c != nil && c.GetAnnotations()[AnnotationAddress] != ""
	}
	for _, o := range all {
		if !late(o) { // Nothing but the IPAddress says that its address is in use.
			contracttest.Restore(w.server, runner.IPAddresses, o, became)
		}
	}
	w.run(w.server)
	time.Sleep(time.Duration(w.roll(3)*w.roll(2000)) * time.Millisecond)
	for _, o := range all {
		if late(o) {
			contracttest.Restore(w.server, runner.IPAddresses, o, became)
		}
	}
	w.say("restored")
}

func (w *world) unpause() {
	unpaused := map[string]any{"metadata": map[string]any{"annotations": map[string]any{v1beta2.AnnotationPaused: nil}}}
	for _, kind := range []*runner.Kind{runner.IPAddressClaims, runner.InClusterIPPools, runner.Clusters} {
		for _, o := range w.server.List(kind) {
			_, _ = w.server.Edit(kind, contract.NameOf(o), false, unpaused)
		}
	}
}

// end lets everything come to rest, and looks whether every claim has an address or a reason. Then it deletes all claims.
func (w *world) end() {
	w.unpause()
	w.faults(false)
	time.Sleep(3 * time.Minute)
	w.say("rest")
	s := w.server
	for _, c := range contracttest.All[v1beta2.IPAddressClaim](s, runner.IPAddressClaims) {
		address, exists := contracttest.Read[v1beta2.IPAddress](s, runner.IPAddresses, c.Namespace, c.Name)
		ready := contract.Find(c.Status.Conditions, v1beta2.ConditionReady)
		switch {
		case c.DeletionTimestamp != nil && len(contract.KeptBy(c)) > 0:
		case c.DeletionTimestamp != nil:
			w.Errorf("%s is deleted, and stays: %+v", c.Name, ready)
		case ready == nil:
			w.Errorf("%s has no condition", c.Name)
		case ready.Status == metav1.ConditionTrue && (!exists || !strings.Contains(ready.Message, address.Spec.Address) || c.Status.AddressRef.Name != c.Name):
			w.Errorf("%s says %+v, and its IPAddress is %+v", c.Name, ready, address)
		case ready.Status == metav1.ConditionTrue:
			w.marked(c, address)
		case exists && len(w.excused) > 0 && !contract.Owns(c, address): // One without a claim has the name.
		case ready.Reason != v1beta2.ReasonPoolExhausted:
			w.Errorf("%s says %+v", c.Name, ready)
		}
	}
	w.full()
	for _, c := range w.names() {
		_ = s.Delete(runner.IPAddressClaims, c, "")
		_, _ = s.Edit(runner.IPAddressClaims, c, false, map[string]any{"metadata": map[string]any{"finalizers": ours(s, c)}})
	}
	time.Sleep(3 * time.Minute)
	for _, c := range w.names() {
		w.Errorf("the claim %s was deleted, and is there", c)
	}
	for _, a := range contracttest.All[v1beta2.IPAddress](s, runner.IPAddresses) {
		if len(w.excused) == 0 {
			w.Errorf("the IPAddress %s has no claim", a.Name)
		}
		_ = s.Delete(runner.IPAddresses, contract.NameOf(a), "")
	}
	time.Sleep(time.Minute)
	if all := s.List(runner.IPAddresses); len(all) > 0 {
		w.Errorf("a deleted IPAddress without a claim stays: %s", all[0].GetName())
	}
	_ = s.Delete(runner.InClusterIPPools, types.NamespacedName{Namespace: "n", Name: "p"}, "")
	time.Sleep(time.Minute)
	if o := s.Get(runner.InClusterIPPools, "n", "p"); o != nil {
		w.Errorf("the pool was deleted, and is there: %v", o)
	}
}

// ours returns the finalizers of a claim without those of others.
func ours(s *contracttest.Server, c types.NamespacedName) any {
	if o := s.Get(runner.IPAddressClaims, c.Namespace, c.Name); o != nil && slices.Contains(o.GetFinalizers(), v1beta2.FinalizerReleaseAddress) {
		return []any{v1beta2.FinalizerReleaseAddress}
	}
	return nil
}

// marked looks whether a claim that has an address carries what moves with it, and its IPAddress, too.
func (w *world) marked(c *v1beta2.IPAddressClaim, a *v1beta2.IPAddress) {
	for _, o := range []metav1.Object{c, a} {
		if _, ok := contract.Owner(o); !ok || o.GetAnnotations()[AnnotationAddress] != textOf(blockOf(a)) {
			w.Errorf("%T %s with the address %s carries %v", o, o.GetName(), a.Spec.Address, o.GetAnnotations())
		}
	}
	if _, ok := c.Labels[contract.LabelMove]; !ok || !slices.Contains(c.Finalizers, v1beta2.FinalizerReleaseAddress) {
		w.Errorf("%s has the labels %v and the finalizers %v", c.Name, c.Labels, c.Finalizers)
	}
	if len(a.OwnerReferences) != 2 || a.OwnerReferences[0].UID != c.UID && a.OwnerReferences[1].UID != c.UID {
		w.Errorf("%s has the owners %+v", c.Name, a.OwnerReferences)
	}
}

// full looks whether no claim waits for a pool that has a free address, and whether the pool says so.
func (w *world) full() {
	waiting, kept := map[string]string{}, map[string]int{}
	for _, c := range contracttest.All[v1beta2.IPAddressClaim](w.server, runner.IPAddressClaims) {
		if ready := contract.Find(c.Status.Conditions, v1beta2.ConditionReady); ready != nil && ready.Reason == v1beta2.ReasonPoolExhausted && c.DeletionTimestamp == nil {
			waiting[c.Spec.PoolRef.Name] = c.Name
		}
		// It keeps its address even without its IPAddress, or has one reserved while an IPAddress without a claim has its name.
		if c.Annotations[AnnotationAddress] != "" || c.Status.AddressRef.Name == "" && len(w.excused) > 0 {
			kept[c.Spec.PoolRef.Name]++
		}
	}
	used := map[string]int{}
	for _, a := range contracttest.All[v1beta2.IPAddress](w.server, runner.IPAddresses) {
		used[a.Spec.PoolRef.Name]++
	}
	status := map[string]v1alpha2.InClusterIPPoolStatus{}
	for _, p := range contracttest.All[v1alpha2.InClusterIPPool](w.server, runner.InClusterIPPools) {
		status[p.Name] = p.Status
	}
	for _, p := range contracttest.All[v1alpha2.GlobalInClusterIPPool](w.server, runner.GlobalInClusterIPPools) {
		status[p.Name] = p.Status
	}
	for _, p := range contracttest.All[v1alpha2.InClusterPrefixPool](w.server, runner.InClusterPrefixPools) {
		status[p.Name] = p.Status
	}
	for _, kind := range kindsRead {
		for _, o := range w.server.List(kind) {
			conditions, _, _ := unstructured.NestedSlice(o.Object, "status", "conditions")
			for _, c := range conditions {
				if at, _, _ := unstructured.NestedInt64(c.(map[string]any), "observedGeneration"); at != o.GetGeneration() {
					w.Errorf("%s %s says %v of generation %d", kind.Name, o.GetName(), c, o.GetGeneration())
				}
			}
		}
	}
	for name, s := range status {
		if s.IPAddresses == nil || s.IPAddresses.Used < used[name] || s.IPAddresses.Used > used[name]+kept[name] || waiting[name] != "" && s.IPAddresses.Free > 0 {
			w.Errorf("the pool %s says %+v; used are %d, and %q waits", name, s.IPAddresses, used[name], waiting[name])
		}
	}
}

// judge looks at everything that is stored.
type judge struct {
	*world
	mu sync.Mutex
	// holds are the blocks of IPAddresses by server and pool, and by name.
	holds map[string]map[string]held
	// told are the addresses that claims were told, by id, and live the ids of the claims of a server by name.
	told map[string]string
	live map[string]map[string]string
}

type held struct {
	pool  string
	block netip.Prefix
}

func (j *judge) stored(server string, kind *runner.Kind, before, now *unstructured.Unstructured) {
	j.mu.Lock()
	defer j.mu.Unlock()
	switch kind {
	case runner.IPAddresses:
		j.address(server, before, now)
	case runner.IPAddressClaims:
		j.claimStored(server, before, now)
	}
}

func (j *judge) address(server string, before, now *unstructured.Unstructured) {
	if j.holds[server] == nil {
		j.holds[server] = map[string]held{}
	}
	switch {
	case now == nil:
		delete(j.holds[server], before.GetName())
		j.say("%s: IPAddress %s is gone", server, before.GetName())
		return
	case before != nil:
		return
	}
	a := contracttest.To[v1beta2.IPAddress](now)
	h := held{a.Spec.PoolRef.Name, netip.PrefixFrom(netip.MustParseAddr(a.Spec.Address), 32)}
	if a.Spec.PoolRef.Kind == v1alpha2.KindInClusterPrefixPool {
		h.block = netip.PrefixFrom(netip.MustParseAddr(a.Spec.Address), int(*a.Spec.Prefix))
	}
	j.say("%s: IPAddress %s of %s has %v", server, a.Name, h.pool, h.block)
	for name, other := range j.holds[server] {
		if other.pool == h.pool && other.block.Overlaps(h.block) {
			j.Errorf("seed %d: %s: %s and %s have %v", j.seed, server, name, a.Name, h.block)
		}
	}
	j.holds[server][a.Name] = h
}

func (j *judge) claimStored(server string, before, now *unstructured.Unstructured) {
	if j.live[server] == nil {
		j.live[server] = map[string]string{}
	}
	if now == nil {
		delete(j.live[server], before.GetName())
		j.say("%s: claim %s is gone", server, before.GetName())
		return
	}
	c := contracttest.To[v1beta2.IPAddressClaim](now)
	id := c.Annotations[idAnnotation]
	j.live[server][c.Name] = id
	ready := contract.Find(c.Status.Conditions, v1beta2.ConditionReady)
	if id == "" || ready == nil || ready.Status != metav1.ConditionTrue {
		return
	}
	h, exists := j.holds[server][c.Name]
	address := strings.TrimSuffix(ready.Message[strings.LastIndex(ready.Message, " ")+1:], ".")
	if before != nil {
		if was := contract.Find(contracttest.To[v1beta2.IPAddressClaim](before).Status.Conditions, v1beta2.ConditionReady); was != nil && was.Status == ready.Status && was.Message == ready.Message {
			return
		}
	}
	j.say("%s: claim %s (%s) is told %s", server, c.Name, id, address)
	if exists && textOf(h.block) != address {
		j.Errorf("seed %d: %s: %s is told %s, and has %v", j.seed, server, c.Name, address, h.block)
	}
	if j.told[id] != "" && j.told[id] != address {
		j.Errorf("seed %d: %s: %s (%s) was told %s, and now %s", j.seed, server, c.Name, id, j.told[id], address)
	}
	j.told[id] = address
	for name, other := range j.live[server] {
		if name != c.Name && j.told[other] == address {
			j.Errorf("seed %d: %s: %s and %s were told %s", j.seed, server, c.Name, name, address)
		}
	}
}

// leave looks whether a move has left nothing but what belongs to the Global pool.
func (j *judge) leave(s *contracttest.Server) {
	for _, kind := range []*runner.Kind{runner.IPAddressClaims, runner.IPAddresses, runner.InClusterIPPools} {
		for _, o := range s.List(kind) {
			if len(j.excused) == 0 && len(j.dropped) == 0 && moves(kind, o) && belongs(o) {
				j.Errorf("seed %d: the move has left the %v %s", j.seed, kind, o.GetName())
			}
		}
	}
}

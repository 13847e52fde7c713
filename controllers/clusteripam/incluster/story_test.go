package incluster

import (
	"fmt"
	"maps"
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
	"sigs.k8s.io/yaml"

	"github.com/multicidr/controller-manager/apis/clusterapi/v1alpha2"
	"github.com/multicidr/controller-manager/apis/clusterapi/v1beta2"
	"github.com/multicidr/controller-manager/controllers/clusteripam/contract"
	"github.com/multicidr/controller-manager/controllers/clusteripam/runner"
	"github.com/multicidr/controller-manager/test/contracttest"
)

// story is a server and a controller, without faults.
type story struct {
	*testing.T
	*contracttest.Server
	process *contracttest.Process
	filter  string
	fault   func(verb string, kind *runner.Kind, name string) contracttest.Fault
	mu      sync.Mutex
	events  []string
	lag     time.Duration // of the watch
}

// tell runs a story.
func tell(t *testing.T, how func(s *story)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := &story{T: t, Server: contracttest.NewServer("s")}
		s.run()
		how(s)
		s.process.Crash()
	})
}

func (s *story) run() {
	s.process = contracttest.Start(s.Context(), s.Server, kindsRead, typeOf, func(t *runner.Term) runner.Logic { return newLogic(t, "", s.filter) },
		contracttest.Options{Workers: 2, Unanswered: unanswered, Fault: s.fault, Lag: func() time.Duration {
			s.mu.Lock()
			defer s.mu.Unlock()
			return s.lag
		}, Event: func(about metav1.Object, kind *runner.Kind, reason, message string) {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.events = append(s.events, fmt.Sprintf("%v %s %s: %s", kind, about.GetName(), reason, message))
		}})
	s.rest()
}

// slow sets how long the watch takes to show the next changes.
func (s *story) slow(lag time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lag = lag
}

// rest waits until nothing is left to do.
func (s *story) rest() { time.Sleep(3 * time.Second) }

func (s *story) put(kind *runner.Kind, text string) *unstructured.Unstructured {
	s.Helper()
	var o map[string]any
	if err := yaml.Unmarshal([]byte(text), &o); err != nil {
		s.Fatal(err)
	}
	if kind != runner.GlobalInClusterIPPools {
		if metadata := o["metadata"].(map[string]any); metadata["namespace"] == nil {
			metadata["namespace"] = "n"
		}
	}
	created, err := s.Create(kind, o)
	if err != nil {
		s.Fatal(err)
	}
	s.rest()
	return created
}

func (s *story) pool(name, spec string) {
	s.Helper()
	s.put(runner.InClusterIPPools, fmt.Sprintf("{metadata: {name: %s}, spec: %s}", name, spec))
}

// claim creates a claim of a pool, with more metadata.
func (s *story) claim(name, pool string, more ...string) *unstructured.Unstructured {
	s.Helper()
	kind := v1alpha2.KindInClusterIPPool
	if of, name, ok := strings.Cut(pool, "/"); ok {
		kind, pool = of, name
	}
	return s.put(runner.IPAddressClaims, fmt.Sprintf("{metadata: {name: %s%s}, spec: {poolRef: {apiGroup: ipam.cluster.x-k8s.io, kind: %s, name: %s}}}", name, strings.Join(more, ""), kind, pool))
}

// address creates an IPAddress of the pool p, as another program does.
func (s *story) address(name, address string, more ...string) *unstructured.Unstructured {
	s.Helper()
	return s.put(runner.IPAddresses, fmt.Sprintf("{metadata: {name: %s%s}, spec: {claimRef: {name: %s}, poolRef: {apiGroup: ipam.cluster.x-k8s.io, kind: InClusterIPPool, name: p}, address: '%s', prefix: 24}}",
		name, strings.Join(more, ""), name, address))
}

func of(name string) types.NamespacedName { return types.NamespacedName{Namespace: "n", Name: name} }

func (s *story) delete(kind *runner.Kind, name string) {
	s.Helper()
	if err := s.Delete(kind, of(name), ""); err != nil {
		s.Fatal(err)
	}
	s.rest()
}

func (s *story) edit(kind *runner.Kind, of types.NamespacedName, text string) {
	s.Helper()
	var changes map[string]any
	err := yaml.Unmarshal([]byte(text), &changes)
	if err == nil {
		_, err = s.Edit(kind, of, false, changes)
	}
	if err != nil {
		s.Fatal(err)
	}
	s.rest()
}

// has looks whether the IPAddresses are those, as "name=address".
func (s *story) has(want ...string) {
	s.Helper()
	all := map[string]string{}
	for _, a := range contracttest.All[v1beta2.IPAddress](s.Server, runner.IPAddresses) {
		all[a.Name] = a.Spec.Address
	}
	var got []string
	for _, name := range slices.Sorted(maps.Keys(all)) {
		got = append(got, name+"="+all[name])
	}
	if !slices.Equal(got, want) {
		s.Errorf("the IPAddresses are %v, want %v", got, want)
	}
}

// says looks whether the condition Ready of a claim has this reason and message.
func (s *story) says(claim, reason, message string) {
	s.Helper()
	c, ok := contracttest.Read[v1beta2.IPAddressClaim](s.Server, runner.IPAddressClaims, "n", claim)
	if !ok {
		s.Fatalf("there is no claim %s", claim)
	}
	ready := contract.Find(c.Status.Conditions, v1beta2.ConditionReady)
	if ready == nil || ready.Reason != reason || !strings.Contains(ready.Message, message) || (ready.Status == metav1.ConditionTrue) != (reason == contract.ReasonReady) || ready.ObservedGeneration != c.Generation {
		s.Errorf("%s says %+v, want %s %q", claim, ready, reason, message)
	}
}

// poolSays looks whether a condition of the pool p has this reason and message.
func (s *story) poolSays(condition, reason, message string) {
	s.Helper()
	p, _ := contracttest.Read[v1alpha2.InClusterIPPool](s.Server, runner.InClusterIPPools, "n", "p")
	if c := contract.Find(p.Status.Conditions, condition); c == nil || c.Reason != reason || !strings.Contains(c.Message, message) || c.ObservedGeneration != p.Generation {
		s.Errorf("p says %+v, want %s %q", c, reason, message)
	}
}

// heard looks whether there was an event.
func (s *story) heard(text string) {
	s.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if !slices.ContainsFunc(s.events, func(e string) bool { return strings.Contains(e, text) }) {
		s.Errorf("the events are %q, want one with %q", s.events, text)
	}
}

// A claim that is restored before its IPAddress keeps the address, also while others take the ones around it.
func TestAClaimIsRestoredBeforeItsIPAddress(t *testing.T) {
	tell(t, func(s *story) {
		s.pool("p", "{addresses: [10.0.0.10-10.0.0.20], prefix: 24}")
		s.claim("m1", "p", `, annotations: {networking.x-k8s.io/infoblox-owner: n/m1/before, networking.x-k8s.io/address: 10.0.0.12}`)
		for _, name := range []string{"a", "b", "c"} {
			s.claim(name, "p")
		}
		s.has("a=10.0.0.10", "b=10.0.0.11", "c=10.0.0.13", "m1=10.0.0.12")
		a, _ := contracttest.Read[v1beta2.IPAddress](s.Server, runner.IPAddresses, "n", "m1")
		if a.Annotations[contract.AnnotationOwner] != "n/m1/before" {
			s.Errorf("the IPAddress carries %v", a.Annotations)
		}
	})
}

// A claim is deleted before the watch shows the IPAddress that a backup has brought back. Both go.
func TestDeletedBeforeTheWatchShowsItsIPAddress(t *testing.T) {
	tell(t, func(s *story) {
		s.claim("a", "p", `, annotations: {networking.x-k8s.io/infoblox-owner: n/a/before, networking.x-k8s.io/address: 10.0.0.12}`)
		s.slow(20 * time.Second)
		s.address("a", "10.0.0.12", ", finalizers: [ipam.cluster.x-k8s.io/ProtectAddress]")
		s.slow(0)
		s.delete(runner.IPAddressClaims, "a")
		time.Sleep(20 * time.Second)
		s.has()
		if o := s.Get(runner.IPAddressClaims, "n", "a"); o != nil {
			t.Errorf("the claim is there: %v", o)
		}
	})
}

// Its IPAddress exists, and says the address that another one has by now. The claim is not told before somebody has decided.
func TestToldOnlyWhatIsReserved(t *testing.T) {
	tell(t, func(s *story) {
		s.pool("p", "{addresses: [10.0.0.10-10.0.0.20], prefix: 24}")
		s.claim("a", "p")
		s.address("old", "10.0.0.10")
		s.claim("old", "p")
		s.says("old", v1beta2.ReasonAllocationFailed, "belongs to several IPAddresses: this claim's, and n/a")
		s.poolSays(v1alpha2.ConditionConflicted, "AddressConflict", "10.0.0.10 belongs to n/a; n/old")
		s.heard("InClusterIPPool p AddressConflict: Addresses that belong to several IPAddresses: 1. 10.0.0.10 belongs to n/a; n/old.")
		s.says("a", "Ready", "10.0.0.10")
		s.delete(runner.IPAddressClaims, "a")
		s.says("old", "Ready", "10.0.0.10")
		s.claim("b", "p")
		s.has("b=10.0.0.11", "old=10.0.0.10")

		// A claim says an address that is another's.
		s.claim("c", "p", `, annotations: {networking.x-k8s.io/infoblox-owner: n/c/x, networking.x-k8s.io/address: 10.0.0.11}`)
		s.says("c", v1beta2.ReasonAllocationFailed, "the IPAddress n/b has that")
		s.edit(runner.IPAddressClaims, of("c"), "metadata: {annotations: {networking.x-k8s.io/address: null}}")
		s.says("c", "Ready", "10.0.0.12")
		s.address("x", "10.0.0.15")
		s.claim("d", "p", `, annotations: {networking.x-k8s.io/infoblox-owner: n/d/x, networking.x-k8s.io/address: 10.0.0.15}`)
		s.says("d", v1beta2.ReasonAllocationFailed, "the IPAddress n/x has that")
		s.delete(runner.IPAddresses, "x")
		s.says("d", "Ready", "10.0.0.15")
	})
}

// The API server deletes a claim although its finalizer came in between.
func TestDeletedBeforeTheFinalizerCounted(t *testing.T) {
	tell(t, func(s *story) {
		s.pool("p", "{addresses: [10.0.0.10-10.0.0.13], prefix: 24, addressReuseGracePeriodSeconds: 5}")
		for i := range 50 {
			name := fmt.Sprint("x", i)
			if _, err := s.Create(runner.IPAddressClaims, map[string]any{"metadata": map[string]any{"namespace": "n", "name": name},
				"spec": map[string]any{"poolRef": map[string]any{"apiGroup": "ipam.cluster.x-k8s.io", "kind": "InClusterIPPool", "name": "p"}}}); err != nil {
				s.Fatal(err)
			}
			for range i % 5 {
				synctest.Wait()
			}
			s.Drop(runner.IPAddressClaims, of(name))
		}
		s.rest()
		s.has()
		for _, name := range []string{"k1", "k2", "k3", "k4"} {
			s.claim(name, "p")
		}
		s.has("k1=10.0.0.10", "k2=10.0.0.11", "k3=10.0.0.12", "k4=10.0.0.13")

		// Not if it was moved.
		s.edit(runner.IPAddressClaims, of("k1"), "metadata: {annotations: {clusterctl.cluster.x-k8s.io/delete-for-move: ''}}")
		s.Drop(runner.IPAddressClaims, of("k1"))
		s.rest()
		s.has("k1=10.0.0.10", "k2=10.0.0.11", "k3=10.0.0.12", "k4=10.0.0.13")
	})
}

// clusterctl moves a pool after its claims and IPAddresses, and leaves the claims that have none behind: they get nothing of what machines go on using, also after a
// restart, until somebody says that nothing was moved.
func TestMovedAway(t *testing.T) {
	for _, kinds := range [][]*runner.Kind{{runner.IPAddresses, runner.IPAddressClaims}, {runner.IPAddressClaims}} {
		tell(t, func(s *story) {
			s.pool("p", "{addresses: [10.0.0.10-10.0.0.10], prefix: 24}")
			s.claim("a", "p")
			s.claim("b", "p")
			s.says("b", v1beta2.ReasonPoolExhausted, "")
			for _, name := range []string{"a", "b"} {
				if _, moves := s.Get(runner.IPAddressClaims, "n", name).GetLabels()[contract.LabelMove]; moves != (name == "a") {
					t.Errorf("clusterctl moves %s: %t", name, moves)
				}
			}
			for _, kind := range kinds {
				s.edit(kind, of("a"), "metadata: {annotations: {clusterctl.cluster.x-k8s.io/delete-for-move: ''}}")
				s.Drop(kind, of("a"))
			}
			s.process.Crash()
			s.Drop(runner.IPAddresses, of("a"))
			s.run()
			s.has()
			s.poolSays("Ready", "PoolWasMoved", "If nothing was moved, remove the annotation networking.x-k8s.io/pool-moved of the pool.")
			s.says("b", v1beta2.ReasonPoolNotReady, "If nothing was moved, remove the annotation networking.x-k8s.io/pool-moved of the pool.")
			s.edit(runner.InClusterIPPools, of("p"), "metadata: {annotations: {networking.x-k8s.io/pool-moved: null}}")
			s.has("b=10.0.0.10")
		})
	}
}

// An IPAddress that clusterctl has deleted does not come back, whatever becomes of its pool.
func TestWhatWasMovedDoesNotComeBack(t *testing.T) {
	tell(t, func(s *story) {
		s.put(runner.GlobalInClusterIPPools, "{metadata: {name: g}, spec: {addresses: [10.0.0.10-10.0.0.11], prefix: 24}}")
		s.claim("a", "GlobalInClusterIPPool/g")
		s.edit(runner.IPAddresses, of("a"), "metadata: {annotations: {clusterctl.cluster.x-k8s.io/delete-for-move: ''}}")
		s.Drop(runner.IPAddresses, of("a"))
		s.claim("b", "GlobalInClusterIPPool/g")
		s.has("b=10.0.0.11")
		s.says("a", contract.ReasonMoved, "If the move was given up,")
		time.Sleep(2 * time.Hour)
		s.has("b=10.0.0.11")
	})
}

// A process that starts in the middle of a move sees its mark. The pool of another cluster, or one that is created later, was not moved.
func TestStartedWhileAPoolMoves(t *testing.T) {
	tell(t, func(s *story) {
		s.pool("p", "{addresses: [10.0.0.10-10.0.0.11], prefix: 24}")
		s.claim("a", "p")
		s.process.Crash()
		s.Annotate(runner.IPAddresses, of("a"), map[string]string{contract.AnnotationDeleteForMove: ""})
		s.run()
		s.Drop(runner.IPAddresses, of("a"))
		s.Drop(runner.IPAddressClaims, of("a"))
		s.claim("b", "p")
		s.has()
		p := s.Get(runner.InClusterIPPools, "n", "p")
		s.Drop(runner.InClusterIPPools, of("p"))
		s.rest()
		s.says("b", v1beta2.ReasonPoolNotReady, "does not exist")
		if p.GetAnnotations()[AnnotationPoolMoved] == "" {
			t.Error("the pool does not say that it was moved")
		}
		contracttest.Restore(s.Server, runner.InClusterIPPools, p, map[types.UID]types.UID{})
		s.rest()
		s.has("b=10.0.0.10")
	})
}

// A pool that was created again in the middle of an allocation: the IPAddress would name the one that is gone as its owner, and would go with it.
func TestAPoolIsCreatedAgain(t *testing.T) {
	tell(t, func(s *story) {
		s.pool("p", "{addresses: [10.0.0.10], prefix: 24}")
		s.claim("a", "p")
		claim, _ := contracttest.Read[v1beta2.IPAddressClaim](s.Server, runner.IPAddressClaims, "n", "a")
		for uid, ok := range map[types.UID]bool{s.Get(runner.InClusterIPPools, "n", "p").GetUID(): true, "before": false} {
			if given, err := s.process.Logic.(*logic).Allocate(t.Context(), claim, &metav1.ObjectMeta{UID: uid}); (err == nil) != ok {
				t.Errorf("from the pool %s it gets %+v, %v", uid, given, err)
			}
		}
	})
}

// A pool without its finalizer can go at any time, and gives nothing.
func TestAPoolWithoutItsFinalizer(t *testing.T) {
	tell(t, func(s *story) {
		s.process.Crash()
		s.fault = func(verb string, kind *runner.Kind, name string) (f contracttest.Fault) {
			if verb == "patch" && kind == runner.InClusterIPPools {
				f.Refused = apierrors.NewForbidden(schema.GroupResource{}, name, nil)
			}
			return f
		}
		s.run()
		s.pool("p", "{addresses: [10.0.0.10], prefix: 24}")
		s.claim("a", "p")
		s.has()
		s.process.Crash()
		s.fault = nil
		s.run()
		s.has("a=10.0.0.10")
	})
}

// An address stays in use for a while after its claim was deleted. A full pool says for how long.
func TestAGracePeriod(t *testing.T) {
	tell(t, func(s *story) {
		s.pool("p", "{addresses: [10.0.0.10-10.0.0.12], prefix: 24, addressReuseGracePeriodSeconds: 60}")
		for _, name := range []string{"a", "b", "c", "d", "e"} {
			s.claim(name, "p")
		}
		s.says("d", v1beta2.ReasonPoolExhausted, "InClusterIPPool n/p is full: all 3 addresses are in use. "+
			"Those of deleted IPAddressClaims stay in use for 1m0s (spec.addressReuseGracePeriodSeconds). Add addresses to the pool, or delete IPAddressClaims.")
		s.delete(runner.IPAddressClaims, "b")
		until := time.Now().Add(57 * time.Second).UTC().Format(time.RFC3339)
		s.says("b", contract.ReasonDeleting, "keeps its address until "+until)
		s.delete(runner.IPAddressClaims, "c")
		time.Sleep(time.Minute)
		s.has("a=10.0.0.10", "d=10.0.0.11", "e=10.0.0.12")

		s.delete(runner.IPAddressClaims, "a")
		s.delete(runner.InClusterIPPools, "p") // nothing is allocated from it any more
		s.has("d=10.0.0.11", "e=10.0.0.12")
	})
}

// What somebody has copied by hand is something else.
func TestCopiesByHand(t *testing.T) {
	tell(t, func(s *story) {
		s.pool("p", "{addresses: [10.0.0.10-10.0.0.20], prefix: 24}")
		s.claim("a", "p")
		a := s.Get(runner.IPAddressClaims, "n", "a")
		a.SetName("b")
		contracttest.Restore(s.Server, runner.IPAddressClaims, a, map[types.UID]types.UID{})
		s.rest()
		s.has("a=10.0.0.10", "b=10.0.0.11")
		s.says("b", "Ready", "10.0.0.11")

		s.address("c", "10.0.0.10", ", finalizers: [ipam.cluster.x-k8s.io/ProtectAddress]")
		s.poolSays("Ready", "AddressesAvailable", "IPAddresses without an IPAddressClaim: 1 (n/c).")
		s.poolSays(v1alpha2.ConditionConflicted, "AddressConflict", "10.0.0.10 belongs to n/a; n/c")
		s.delete(runner.IPAddressClaims, "a")
		s.claim("d", "p")
		s.has("b=10.0.0.11", "c=10.0.0.10", "d=10.0.0.12")
		s.delete(runner.IPAddresses, "c")
		s.has("b=10.0.0.11", "d=10.0.0.12")
		s.poolSays(v1alpha2.ConditionConflicted, "NoConflicts", "")
	})
}

// A claim gets a prefix.
func TestPrefixes(t *testing.T) {
	tell(t, func(s *story) {
		s.put(runner.InClusterPrefixPools, "{metadata: {name: x}, spec: {prefixes: ['fd00::/62'], allocationPrefixLength: 64, gateway: 'fe80::1', excludedPrefixes: ['fd00:0:0:1::9']}}")
		s.put(runner.IPAddresses, "{metadata: {name: wide}, spec: {claimRef: {name: wide}, poolRef: {apiGroup: ipam.cluster.x-k8s.io, kind: InClusterPrefixPool, name: x}, address: 'fd00:0:0:2:5::', prefix: 80}}")
		for _, name := range []string{"a", "b", "c"} {
			s.claim(name, "InClusterPrefixPool/x")
		}
		s.has("a=fd00::", "b=fd00:0:0:3::", "wide=fd00:0:0:2:5::")
		s.says("b", "Ready", "The prefix is fd00:0:0:3::/64.")
		s.says("c", v1beta2.ReasonPoolExhausted, "InClusterPrefixPool n/x is full: all 3 prefixes are in use. Add prefixes to the pool")
		a, _ := contracttest.Read[v1beta2.IPAddress](s.Server, runner.IPAddresses, "n", "b")
		if a.Spec.Gateway != "fe80::1" || *a.Spec.Prefix != 64 || a.Annotations[AnnotationAddress] != "fd00:0:0:3::/64" {
			s.Errorf("the IPAddress is %+v with %v", a.Spec, a.Annotations)
		}
		x, _ := contracttest.Read[v1alpha2.InClusterPrefixPool](s.Server, runner.InClusterPrefixPools, "n", "x")
		if want := (v1alpha2.PoolUsage{Total: 3, Used: 3, OutOfRange: 1}); *x.Status.IPAddresses != want {
			s.Errorf("the pool says %+v, want %+v", *x.Status.IPAddresses, want)
		}
		s.delete(runner.IPAddressClaims, "a")
		s.says("c", "Ready", "fd00::/64")
	})
}

// A Global pool in two clusters would give an address twice.
func TestAGlobalPoolWasCopied(t *testing.T) {
	tell(t, func(s *story) {
		g := s.put(runner.GlobalInClusterIPPools, "{metadata: {name: g, annotations: {networking.x-k8s.io/pool-uid: other}}, spec: {addresses: [10.0.0.10-10.0.0.11], prefix: 24}}")
		s.claim("a", "GlobalInClusterIPPool/g")
		s.has()
		s.says("a", v1beta2.ReasonPoolNotReady, "GlobalInClusterIPPool g was copied from another cluster")
		s.edit(runner.GlobalInClusterIPPools, types.NamespacedName{Name: "g"}, "metadata: {annotations: {networking.x-k8s.io/pool-uid: null}}")
		s.has("a=10.0.0.10")
		if said := s.Get(runner.GlobalInClusterIPPools, "", "g").GetAnnotations()[AnnotationPoolUID]; said != string(g.GetUID()) {
			s.Errorf("the pool carries the UID %s, want %s", said, g.GetUID())
		}
	})
}

// Somebody else keeps a claim that is deleted: its machine may still run.
func TestOthersKeepAClaim(t *testing.T) {
	tell(t, func(s *story) {
		s.pool("p", "{addresses: [10.0.0.10], prefix: 24}")
		s.claim("a", "p", ", finalizers: [example.com/machine, foregroundDeletion]")
		s.delete(runner.IPAddressClaims, "a")
		s.claim("b", "p")
		s.has("a=10.0.0.10")
		s.says("a", contract.ReasonDeleting, "until others have removed their finalizers: example.com/machine.")
		s.edit(runner.IPAddressClaims, of("a"), "metadata: {finalizers: [foregroundDeletion, ipam.cluster.x-k8s.io/ReleaseAddress]}")
		s.edit(runner.IPAddressClaims, of("a"), "metadata: {finalizers: null}") // the garbage collector, after the IPAddress
		s.has("b=10.0.0.10")
	})
}

// An IPAddress that is forced away comes back with the same address.
func TestAnIPAddressIsForcedAway(t *testing.T) {
	tell(t, func(s *story) {
		s.pool("p", "{addresses: [10.0.0.10-10.0.0.20], prefix: 24}")
		s.claim("a", "p")
		s.claim("b", "p")
		s.delete(runner.IPAddressClaims, "a")
		for _, crashed := range []bool{false, true} {
			if crashed {
				s.process.Crash()
			}
			_ = s.Delete(runner.IPAddresses, of("b"), "")
			s.Strip(runner.IPAddresses, of("b"))
			if crashed {
				s.run()
			}
			s.rest()
			s.has("b=10.0.0.11")
			s.says("b", "Ready", "10.0.0.11")
		}
	})
}

// A create of an IPAddress is on its way when its claim goes by force, somebody takes its annotation away, or a restore makes the IPAddress and the claim is deleted.
// Nobody gets its address before that is over, and of a claim that is deleted nothing is left.
func TestAnIPAddressArrivesLate(t *testing.T) {
	for what, tc := range map[string]struct {
		meanwhile func(s *story)
		want      []string
	}{
		"the claim goes": {func(s *story) {
			s.edit(runner.IPAddressClaims, of("a"), "metadata: {finalizers: null}")
			s.delete(runner.IPAddressClaims, "a")
		}, []string{"a=10.0.0.11", "b=10.0.0.10"}},
		"its annotation goes": {func(s *story) {
			s.edit(runner.IPAddressClaims, of("a"), "metadata: {annotations: {networking.x-k8s.io/address: null}}")
		}, []string{"a=10.0.0.11", "b=10.0.0.10"}},
		"a restore is faster": {func(s *story) {
			s.address("a", "10.0.0.11", fmt.Sprintf(", ownerReferences: [{apiVersion: ipam.cluster.x-k8s.io/v1beta2, kind: IPAddressClaim, name: a, uid: %s}]",
				s.Get(runner.IPAddressClaims, "n", "a").GetUID()))
			s.delete(runner.IPAddressClaims, "a")
		}, []string{"b=10.0.0.10"}},
	} {
		t.Run(what, func(t *testing.T) {
			tell(t, func(s *story) {
				s.process.Crash()
				s.fault = func(verb string, kind *runner.Kind, name string) (f contracttest.Fault) {
					if verb == "create" && name == "a" {
						f.Unanswered, f.Before, f.After = true, 14*time.Second, time.Second
					}
					return f
				}
				s.run()
				s.pool("p", "{addresses: [10.0.0.10-10.0.0.11], prefix: 24}")
				s.claim("z", "p")
				s.claim("a", "p")
				s.delete(runner.IPAddressClaims, "z")
				tc.meanwhile(s)
				s.claim("b", "p")
				time.Sleep(time.Minute)
				s.has(tc.want...)
			})
		})
	}
}

// A claim was created again under its name after a backup, and another one has got the address that the former one had. A restore brings that one's IPAddress while the
// controllers are stopped. The claim has been told, but of another IPAddress of the name.
func TestAFormerIPAddressIsRestored(t *testing.T) {
	tell(t, func(s *story) {
		s.pool("p", "{addresses: [10.0.0.10-10.0.0.12], prefix: 24}")
		s.claim("x", "p")
		former := s.Get(runner.IPAddresses, "n", "x").GetAnnotations()[contract.AnnotationOwner]
		s.delete(runner.IPAddressClaims, "x")
		s.claim("k", "p")
		s.claim("x", "p")
		s.has("k=10.0.0.10", "x=10.0.0.11")
		s.process.Crash()
		s.Drop(runner.IPAddresses, of("x"))
		s.address("x", "10.0.0.10", fmt.Sprintf(", finalizers: [ipam.cluster.x-k8s.io/ProtectAddress], annotations: {networking.x-k8s.io/infoblox-owner: '%s', networking.x-k8s.io/address: 10.0.0.10}", former))
		s.run()
		s.says("x", v1beta2.ReasonAllocationFailed, "belongs to several IPAddresses")
		s.says("k", "Ready", "10.0.0.10")
	})
}

// Somebody creates an IPAddress with the address that a claim has just been given, before the claim's own is created. The claim says that address, so it keeps it, and
// waits until somebody has decided: to give it another one could leave two claims that say the same.
func TestAnIPAddressComesBetween(t *testing.T) {
	tell(t, func(s *story) {
		s.pool("p", "{addresses: [10.0.0.10-10.0.0.11], prefix: 24}")
		s.process.Crash()
		s.fault = func(verb string, _ *runner.Kind, name string) (f contracttest.Fault) {
			if verb == "patch" && name == "a" {
				f.After = 5 * time.Second
			}
			return f
		}
		s.run()
		s.claim("a", "p") // It says 10.0.0.10 now, and no answer has come.
		s.address("b", "10.0.0.10")
		time.Sleep(time.Minute)
		s.says("a", v1beta2.ReasonAllocationFailed, "Without the annotation this claim gets another address.")
		s.edit(runner.IPAddressClaims, of("a"), "metadata: {annotations: {networking.x-k8s.io/address: null}}")
		time.Sleep(time.Minute)
		s.has("a=10.0.0.11", "b=10.0.0.10")
	})
}

// Where all answers come, and the watch is faster, an address costs three writes, and nothing is read from etcd.
func TestWhatAnAddressCosts(t *testing.T) {
	tell(t, func(s *story) {
		s.pool("p", "{addresses: [10.0.0.10-10.0.0.20], prefix: 24}")
		s.process.Crash()
		var sent []string
		s.fault = func(verb string, kind *runner.Kind, _ string) (f contracttest.Fault) {
			if s.mu.Lock(); kind != runner.InClusterIPPools {
				sent = append(sent, verb+" "+kind.Name)
			}
			s.mu.Unlock()
			f.After = time.Millisecond
			return f
		}
		s.run()
		s.claim("a", "p")
		s.says("a", "Ready", "10.0.0.10")
		s.process.Crash()
		if want := []string{"patch IPAddressClaim", "create IPAddress", "patch status IPAddressClaim"}; !slices.Equal(sent, want) {
			t.Errorf("the requests are %q, want %q", sent, want)
		}
		s.fault = nil
		s.run()
	})
}

// What an IPAddress of another pool says that has the name of a claim.
func TestAnIPAddressIsInTheWay(t *testing.T) {
	tell(t, func(s *story) {
		s.pool("p", "{addresses: [10.0.0.10-10.0.0.20], prefix: 24}")
		s.pool("q", "{addresses: [10.0.1.10-10.0.1.20], prefix: 24}")
		s.address("a", "10.0.0.15", ", finalizers: [ipam.cluster.x-k8s.io/ProtectAddress]")
		s.claim("a", "q")
		s.says("a", v1beta2.ReasonAllocationFailed, "has an address of InClusterIPPool p for the claim a. Delete the IPAddress if no machine uses it.")
		s.poolSays("Ready", "AddressesAvailable", "IPAddresses without an IPAddressClaim: 1 (n/a).")
		s.delete(runner.IPAddresses, "a")
		s.has("a=10.0.1.10")
	})
}

// Paused, and a Cluster that is not there yet.
func TestPaused(t *testing.T) {
	tell(t, func(s *story) {
		s.pool("p", "{addresses: [10.0.0.10-10.0.0.20], prefix: 24}")
		s.claim("a", "p", ", labels: {cluster.x-k8s.io/cluster-name: k}")
		s.says("a", v1beta2.ReasonAllocationFailed, "Cluster n/k does not exist. Create it, or correct spec.clusterName.")
		s.put(runner.Clusters, "{metadata: {name: k}, spec: {paused: true}}")
		s.claim("b", "p", ", annotations: {cluster.x-k8s.io/paused: ''}")
		s.has()
		s.edit(runner.Clusters, of("k"), "spec: {paused: null}")
		s.has("a=10.0.0.10")
		s.edit(runner.IPAddressClaims, of("b"), "metadata: {annotations: {cluster.x-k8s.io/paused: null}}")
		s.has("a=10.0.0.10", "b=10.0.0.11")
		s.edit(runner.InClusterIPPools, of("p"), "metadata: {annotations: {cluster.x-k8s.io/paused: ''}}")
		s.delete(runner.IPAddressClaims, "a")
		s.claim("c", "p")
		s.has("a=10.0.0.10", "b=10.0.0.11")
		s.edit(runner.InClusterIPPools, of("p"), "metadata: {annotations: {cluster.x-k8s.io/paused: null}}")
		s.has("b=10.0.0.11", "c=10.0.0.12")
		s.delete(runner.Clusters, "k")
		s.delete(runner.IPAddressClaims, "b")
		s.has("c=10.0.0.12")
	})
}

// A filter chooses the claims that are worked on, and not what holds an address.
func TestAWatchFilter(t *testing.T) {
	tell(t, func(s *story) {
		s.process.Crash()
		s.filter = "mine"
		s.run()
		s.pool("p", "{addresses: [10.0.0.10-10.0.0.20], prefix: 24}")
		s.claim("other", "p", `, annotations: {networking.x-k8s.io/infoblox-owner: n/other/x, networking.x-k8s.io/address: 10.0.0.10}`)
		s.claim("a", "p", ", labels: {cluster.x-k8s.io/watch-filter: mine}")
		s.has("a=10.0.0.11")
	})
}

// What an earlier version has written gets what moves with it.
func TestAnUpgrade(t *testing.T) {
	tell(t, func(s *story) {
		s.pool("p", "{addresses: [10.0.0.10-10.0.0.20], prefix: 24}")
		s.address("a", "10.0.0.15", ", finalizers: [ipam.cluster.x-k8s.io/ProtectAddress]")
		o := s.claim("a", "p", ", finalizers: [ipam.cluster.x-k8s.io/ReleaseAddress]")
		for _, kind := range []*runner.Kind{runner.IPAddressClaims, runner.IPAddresses} {
			got := s.Get(kind, "n", "a").GetAnnotations()
			if want := map[string]string{contract.AnnotationOwner: "n/a/" + string(o.GetUID()), AnnotationAddress: "10.0.0.15"}; !maps.Equal(got, want) {
				s.Errorf("%v carries %v, want %v", kind, got, want)
			}
		}
	})
}

// What a pool says.
func TestPoolTexts(t *testing.T) {
	tell(t, func(s *story) {
		s.pool("p", "{addresses: [10.0.0.10-10.0.0.11], prefix: 24}")
		s.poolSays("Ready", "AddressesAvailable", "The pool has free addresses.")
		s.put(runner.InClusterIPPools, "{metadata: {name: q, namespace: m}, spec: {addresses: [10.0.0.11-10.0.0.12], prefix: 24}}")
		s.poolSays("Ready", "AddressesAvailable", "Addresses of this pool are in other pools, too: InClusterIPPool m/q (10.0.0.11).")
		s.edit(runner.InClusterIPPools, types.NamespacedName{Namespace: "m", Name: "q"}, "spec: {addresses: [10.0.0.12]}")
		s.poolSays("Ready", "AddressesAvailable", "The pool has free addresses.")
		s.claim("a", "p")
		s.claim("b", "p")
		s.poolSays("Ready", "PoolExhausted", "The pool is full: all 2 addresses are in use. Add addresses to the pool")
		s.edit(runner.InClusterIPPools, of("p"), "metadata: {ownerReferences: [{apiVersion: k0rdent.mirantis.com/v1beta1, kind: ClusterIPAMClaim, name: c, uid: u}]}\nspec: {prefix: 25}")
		s.poolSays("Ready", "PoolExhausted", "Add addresses to spec.nodeNetwork of the ClusterIPAMClaim c, or delete")
		s.claim("c", "p")
		s.says("c", v1beta2.ReasonPoolExhausted, "spec.nodeNetwork of the ClusterIPAMClaim c")
		s.edit(runner.InClusterIPPools, of("p"), "spec: {addresses: [nonsense]}")
		s.poolSays("Ready", "Invalid", `"nonsense" is not an address`)
		s.says("c", v1beta2.ReasonPoolNotReady, `is not valid: spec.addresses: "nonsense" is not an address`)
		s.edit(runner.InClusterIPPools, of("p"), "spec: {addresses: [10.0.0.4/31], prefix: 31}")
		s.poolSays("Ready", "NoAddresses", "The pool is valid, but no address can be allocated")
		s.says("c", v1beta2.ReasonPoolNotReady, "no address can be allocated")
		s.delete(runner.InClusterIPPools, "p")
		s.poolSays("Ready", "Terminating", "is being deleted, and goes with its last IPAddress: delete its IPAddressClaims.")
		s.says("c", v1beta2.ReasonPoolNotReady, "InClusterIPPool n/p is being deleted, and goes with its last IPAddress: delete its IPAddressClaims. Name another pool in spec.poolRef of new ones.")
		s.delete(runner.IPAddressClaims, "a")
		s.delete(runner.IPAddressClaims, "b")
		if o := s.Get(runner.InClusterIPPools, "n", "p"); o != nil {
			s.Errorf("the pool is there: %v", o)
		}
		s.says("c", v1beta2.ReasonPoolNotReady, "InClusterIPPool n/p does not exist. Create it, or correct spec.poolRef.")
	})
}

// How other programs write addresses.
func TestAddressesOfOthers(t *testing.T) {
	for text, held := range map[string]bool{"10.0.0.10": true, "::ffff:10.0.0.10": true, "10.0.0.10/24": true, " 10.0.0.10 ": true, "010.0.0.10": false, "nonsense": false} {
		tell(t, func(s *story) {
			s.pool("p", "{addresses: [10.0.0.10-10.0.0.11], prefix: 24}")
			s.address("x", text)
			s.claim("a", "p")
			s.says("a", "Ready", map[bool]string{false: "10.0.0.10", true: "10.0.0.11"}[held])
		})
	}
}

package claims

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/multicidr/controller-manager/apis/clusterapi/v1alpha1"
	"github.com/multicidr/controller-manager/apis/clusterapi/v1alpha2"
	"github.com/multicidr/controller-manager/apis/k0rdent/v1beta1"
	"github.com/multicidr/controller-manager/controllers/clusteripam/runner"
)

// world is an API with one claim c, a provider of addresses, and the Logic.
type world struct {
	*api
	logic *logic
	claim runner.Key
}

func newWorld(t *testing.T, spec string) *world {
	w := &world{api: newAPI(t), claim: runner.Key{Kind: runner.ClusterIPAMClaims, Namespace: "t", Name: "c"}}
	w.logic = w.begin()
	claim := claimOf(t, spec)
	claim.UID = ""
	w.put(runner.ClusterIPAMClaims, claim)
	return w
}

func (w *world) of(kind *runner.Kind) runner.Key {
	return runner.Key{Kind: kind, Namespace: "t", Name: "c"}
}

// edit merges changes into an object, as users and other programs do.
func (w *world) edit(kind *runner.Kind, changes map[string]any) {
	w.store(w.of(kind), merged(w.objects[w.of(kind)], changes).(map[string]any))
}

// settle runs the controller and the provider until nothing is left to do. It returns the writes of the controller.
func (w *world) settle() (wrote []string) {
	w.t.Helper()
	w.wrote, w.said = nil, nil
	for range 3 {
		w.run(w.logic)
		if pool, ok := w.read(w.of(runner.InClusterIPPools)).(*v1alpha2.InClusterIPPool); ok && pool.Status.IPAddresses == nil {
			w.edit(runner.InClusterIPPools, map[string]any{"status": map[string]any{"ipAddresses": map[string]any{"total": 9, "free": 9}}})
		}
		if pool, ok := w.read(w.of(runner.InfobloxIPPools)).(*v1alpha1.InfobloxIPPool); ok && len(pool.Status.Conditions) == 0 {
			w.edit(runner.InfobloxIPPools, map[string]any{"status": map[string]any{"conditions": []any{map[string]any{"type": "Ready", "status": "True"}}}})
		}
	}
	return w.wrote
}

func (w *world) status() v1beta1.ClusterIPAMClaimStatus {
	return w.read(w.claim).(*v1beta1.ClusterIPAMClaim).Status
}

// conditions returns the types and reasons of the claim's conditions.
func (w *world) conditions() string {
	var all []string
	for _, c := range w.status().Conditions {
		all = append(all, c.Type+" "+c.Reason)
	}
	slices.Sort(all)
	return strings.Join(all, "; ")
}

const inCluster = `{"provider": "in-cluster", "cluster": "d", "nodeNetwork": {"cidr": "10.0.0.0/24", "gateway": "10.0.0.1"}}`

// TestLife is one claim from its creation on. After every step, as after a restart, there is nothing left to write.
func TestLife(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, inCluster)
		step := func(name, conditions string, bound bool, want ...string) {
			t.Helper()
			wrote := w.settle()
			slices.Sort(wrote)
			if diff := cmp.Diff(want, slices.Compact(wrote)); len(want) > 0 && diff != "" {
				t.Errorf("%s: writes (-want +got):\n%s", name, diff)
			}
			if s := w.status(); s.Bound != bound || w.conditions() != conditions {
				t.Errorf("%s: bound %v with %q, want %v with %q", name, s.Bound, w.conditions(), bound, conditions)
			}
			w.logic, w.wrote = w.begin(), nil
			if w.run(w.logic); len(w.wrote) > 0 {
				t.Errorf("%s: written without a reason: %q", name, w.wrote)
			}
		}
		time.Sleep(time.Second)
		step("a claim", "", true, "create ClusterIPAM", "create InClusterIPPool", "patch ClusterIPAMClaim", "status ClusterIPAM", "status ClusterIPAMClaim")
		if !slices.Equal(w.took, []time.Duration{time.Second}) {
			t.Errorf("it took %v", w.took)
		}
		if ipam := w.read(w.of(runner.ClusterIPAMs)).(*v1beta1.ClusterIPAM); Cluster(w.read(w.claim).(*v1beta1.ClusterIPAMClaim), ipam) != "d" {
			t.Errorf("the ClusterDeployment is not recorded: %v", ipam.Annotations)
		}
		w.edit(runner.ClusterIPAMClaims, map[string]any{"spec": map[string]any{"cluster": "e"}})
		step("another ClusterDeployment", "Warning ClusterChanged", true, "status ClusterIPAMClaim")
		w.edit(runner.ClusterIPAMClaims, map[string]any{"spec": map[string]any{"cluster": "d", "nodeNetwork": map[string]any{"cidr": "10.0.0.0/23", "gateway": "10.0.0.1"}}})
		step("an edit", "", true, "patch InClusterIPPool", "status ClusterIPAMClaim")
		w.edit(runner.ClusterIPAMClaims, map[string]any{"spec": map[string]any{"nodeNetwork": map[string]any{"cidr": "10.0.0.0/33"}}})
		step("an invalid one", "InvalidClaimCondition InvalidClaim", true, "status ClusterIPAMClaim")
		w.edit(runner.ClusterIPAMClaims, map[string]any{"spec": map[string]any{"nodeNetwork": map[string]any{"cidr": "10.0.0.0/24", "gateway": "10.0.0.1"}}})
		step("corrected", "", true)
		w.edit(runner.InClusterIPPools, map[string]any{"metadata": map[string]any{"deletionTimestamp": "2026-01-01T00:00:00Z"}})
		step("the pool is being deleted", "IPAMProviderConditionError PoolDeleting", false, "status ClusterIPAM", "status ClusterIPAMClaim")
		w.remove(w.of(runner.InClusterIPPools))
		step("the pool is deleted", "", true, "create InClusterIPPool", "status ClusterIPAM", "status ClusterIPAMClaim")
		w.remove(w.of(runner.ClusterIPAMs))
		step("the ClusterIPAM is deleted", "", true, "create ClusterIPAM", "status ClusterIPAM", "status ClusterIPAMClaim")

		w.edit(runner.InClusterIPPools, map[string]any{"status": map[string]any{"ipAddresses": map[string]any{"used": 2}}})
		w.edit(runner.ClusterIPAMClaims, map[string]any{"spec": map[string]any{"provider": v1beta1.ProviderInfoblox}})
		step("another provider", "IPAMProviderConditionError InstanceUnknown", false)
		w.put(runner.InfobloxInstances, &v1alpha1.InfobloxInstance{ObjectMeta: metav1.ObjectMeta{Name: "i"}})
		step("with an InfobloxInstance", "Warning OldPoolInUse", true)
		w.edit(runner.InClusterIPPools, map[string]any{"status": map[string]any{"ipAddresses": map[string]any{"used": 0}}})
		step("no machine uses the earlier pool", "", true, "delete InClusterIPPool", "status ClusterIPAMClaim")

		w.edit(runner.ClusterIPAMClaims, map[string]any{"metadata": map[string]any{"annotations": map[string]any{"clusterctl.cluster.x-k8s.io/delete-for-move": ""}}})
		w.remove(w.of(runner.ClusterIPAMs))
		if wrote := w.settle(); len(wrote) > 0 {
			t.Errorf("for a claim that is being moved away: %q", wrote)
		}
		w.remove(w.claim)
		if wrote := w.settle(); len(wrote) > 0 {
			t.Errorf("for a claim that is gone: %q", wrote)
		}
	})
}

// TestMovedAway: clusterctl deletes the pool and the ClusterIPAM before their claim, which makes neither again.
func TestMovedAway(t *testing.T) {
	for _, kind := range []*runner.Kind{runner.InClusterIPPools, runner.ClusterIPAMs} {
		w := newWorld(t, inCluster)
		w.settle()
		w.edit(kind, map[string]any{"metadata": map[string]any{"annotations": map[string]any{"clusterctl.cluster.x-k8s.io/delete-for-move": ""}}})
		w.edit(runner.ClusterIPAMClaims, map[string]any{"spec": map[string]any{"nodeNetwork": map[string]any{"cidr": "10.0.0.0/23"}}})
		if wrote := w.settle(); len(wrote) > 0 {
			t.Errorf("while the %v is moved: %q", kind, wrote)
		}
		w.edit(kind, map[string]any{"metadata": map[string]any{"annotations": map[string]any{"clusterctl.cluster.x-k8s.io/delete-for-move": nil}}})
		if wrote := w.settle(); !slices.Contains(wrote, "patch InClusterIPPool") {
			t.Errorf("after the mark of the %v was taken back: %q", kind, wrote)
		}
		w.edit(kind, map[string]any{"metadata": map[string]any{"annotations": map[string]any{"clusterctl.cluster.x-k8s.io/delete-for-move": ""}}})
		w.remove(w.of(kind))
		if wrote := w.settle(); len(wrote) > 0 {
			t.Errorf("after the %v was moved: %q", kind, wrote)
		}
	}
}

// TestRefused: a write that the API server refuses keeps the later ones back, and the claim says why. One that meets another version is only tried again.
func TestRefused(t *testing.T) {
	pools := schema.GroupResource{Resource: "inclusterippools"}
	for name, tc := range map[string]struct {
		err  error
		want string
	}{
		"a webhook":       {apierrors.NewForbidden(pools, "c", errors.New("admission webhook says no")), "IPAMProviderConditionError Refused"},
		"another version": {apierrors.NewConflict(pools, "c", errors.New("changed")), ""},
		"no answer":       {errors.New("connection reset"), ""},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, inCluster)
			w.refuse = func(verb string, key runner.Key) error {
				if verb == "create" && key.Kind == runner.InClusterIPPools {
					return tc.err
				}
				return nil
			}
			w.settle()
			if got := w.conditions(); got != tc.want {
				t.Errorf("conditions %q, want %q", got, tc.want)
			}
			w.refuse = nil
			w.Add(w.claim)
			if w.settle(); !w.status().Bound || w.conditions() != "" {
				t.Errorf("not bound afterwards: %v", w.status())
			}
		})
	}
}

// TestNotKept: a change that is confirmed and not stored is an error, which is reported and tried again: no event brings the claim back.
func TestNotKept(t *testing.T) {
	w := newWorld(t, inCluster)
	w.settle()
	w.edit(runner.ClusterIPAMClaims, map[string]any{"spec": map[string]any{"nodeNetwork": map[string]any{"cidr": "10.0.0.0/23"}}})
	w.drop = runner.InClusterIPPools
	if err := w.logic.Reconcile(t.Context(), w.claim); !errors.Is(err, runner.ErrNotKept) {
		t.Errorf("the error is %v", err)
	}
	w.drop = nil
	if wrote := w.settle(); !slices.Contains(wrote, "patch InClusterIPPool") {
		t.Errorf("afterwards: %q", wrote)
	}
}

// TestStatusOfAnother: a condition that another program writes while the controller writes its own is not lost.
func TestStatusOfAnother(t *testing.T) {
	w := newWorld(t, inCluster)
	w.refuse = func(verb string, key runner.Key) error {
		if verb == "status" && key.Kind == runner.ClusterIPAMClaims {
			w.refuse = nil
			w.edit(key.Kind, map[string]any{"status": map[string]any{"conditions": []any{map[string]any{"type": "Theirs", "status": "True", "reason": "R", "message": "m"}}}})
		}
		return nil
	}
	if w.settle(); w.conditions() != "Theirs R" || !w.status().Bound {
		t.Errorf("got %v", w.status())
	}
}

// TestWarnings: what is odd about a claim shares a condition, and has an event each.
func TestWarnings(t *testing.T) {
	w := newWorld(t, `{"provider": "in-cluster", "nodeNetwork": {"ipAddresses": ["10.0.0.5"], "gateway": "10.0.0.1"}, "clusterNetwork": {"cidr": "10.1.0.0/16"}}`)
	w.settle()
	if got := w.conditions(); got != "Warning PrefixMissing,InputIgnored" {
		t.Errorf("got %q", got)
	}
	slices.Sort(w.said)
	if want := []string{reasonBound, reasonInputIgnored, reasonPrefixMissing}; !slices.Equal(w.said, want) {
		t.Errorf("events %q, want %q", w.said, want)
	}
}

// TestFigures is what metrics show.
func TestFigures(t *testing.T) {
	w := newWorld(t, inCluster)
	w.put(runner.ClusterIPAMClaims, &v1beta1.ClusterIPAMClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "t", Name: "wrong"}})
	w.settle()
	want := runner.Figures{Waiting: map[string]int{reasonInvalidClaim: 1}, Bound: 1, IPAMs: []runner.IPAMFigures{{Namespace: "t", Name: "c", Bound: true}}}
	if diff := cmp.Diff(want, w.logic.Figures()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestNotInstalled: without the kind of its pool a claim waits, and says what is missing.
func TestNotInstalled(t *testing.T) {
	w := newWorld(t, inCluster)
	w.absent[runner.InClusterIPPools] = true
	if w.settle(); w.conditions() != "IPAMProviderConditionError NotInstalled" {
		t.Errorf("got %q", w.conditions())
	}
	delete(w.absent, runner.InClusterIPPools)
	w.logic = w.begin()
	if w.settle(); !w.status().Bound || w.conditions() != "" {
		t.Errorf("not bound when the kind is there: %v", w.status())
	}
}

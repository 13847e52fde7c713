package claims

import (
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/multicidr/controller-manager/apis/clusterapi/v1alpha1"
	"github.com/multicidr/controller-manager/apis/clusterapi/v1alpha2"
	"github.com/multicidr/controller-manager/apis/k0rdent/v1beta1"
	"github.com/multicidr/controller-manager/controllers/clusteripam/contract"
	"github.com/multicidr/controller-manager/controllers/clusteripam/runner"
	"github.com/multicidr/controller-manager/test/contracttest"
)

// story is a server with a claim c, a provider of addresses, and the controller.
type story struct {
	*testing.T
	*contracttest.Server
	process *contracttest.Process
	absent  *runner.Kind // is not served

	mu     sync.Mutex
	wrote  []string // "create InClusterIPPool"
	said   []string // reasons of events
	took   []time.Duration
	refuse func(write string) error // an error refuses a write
}

// c is the name of the claim, and of all that belongs to it.
var c = types.NamespacedName{Namespace: "t", Name: "c"}

// play runs a story.
func play(t *testing.T, spec string, how func(s *story)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := &story{T: t, Server: contracttest.NewServer("s"), refuse: func(string) error { return nil }}
		s.begin()
		s.put(runner.ClusterIPAMClaims, claimOf(t, spec))
		how(s)
		s.process.Crash()
	})
}

// begin starts the controller.
func (s *story) begin() {
	objects := map[*runner.Kind]metav1.Object{
		runner.ClusterIPAMClaims: &v1beta1.ClusterIPAMClaim{}, runner.ClusterIPAMs: &v1beta1.ClusterIPAM{},
		runner.InClusterIPPools: &v1alpha2.InClusterIPPool{}, runner.InfobloxIPPools: &v1alpha1.InfobloxIPPool{}, runner.InfobloxInstances: &v1alpha1.InfobloxInstance{},
	}
	var kinds []*runner.Kind
	for kind := range objects {
		kinds = append(kinds, kind)
	}
	typeOf := func(kind *runner.Kind) metav1.Object {
		return objects[kind].(runtime.Object).DeepCopyObject().(metav1.Object)
	}
	s.process = contracttest.Start(s.Context(), s.Server, kinds, typeOf, func(t *runner.Term) runner.Logic {
		served, absent := t.Served, s.absent
		t.Served = func(kind *runner.Kind) (string, bool) {
			version, _ := served(kind)
			return version, kind != absent
		}
		t.Took = func(d time.Duration) { s.took = append(s.took, d) }
		return newLogic(t, "")
	}, contracttest.Options{
		Fault: func(verb string, kind *runner.Kind, _ string) contracttest.Fault {
			if err := s.refuse(verb + " " + kind.Name); err != nil {
				return contracttest.Fault{Refused: err}
			}
			s.mu.Lock()
			defer s.mu.Unlock()
			s.wrote = append(s.wrote, verb+" "+kind.Name)
			return contracttest.Fault{}
		},
		Event: func(_ metav1.Object, _ *runner.Kind, reason, _ string) {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.said = append(s.said, reason)
		},
	})
}

// put creates an object.
func (s *story) put(kind *runner.Kind, object any) {
	s.Helper()
	if _, err := s.Create(kind, object); err != nil {
		s.Fatal(err)
	}
}

// edit merges changes into an object of c, as users and other programs do.
func (s *story) edit(kind *runner.Kind, changes map[string]any) {
	s.Helper()
	if _, err := s.Edit(kind, c, changes["status"] != nil, changes); err != nil {
		s.Fatal(err)
	}
}

// editClaim changes the spec of the claim.
func (s *story) editClaim(spec map[string]any) {
	s.Helper()
	s.edit(runner.ClusterIPAMClaims, map[string]any{"spec": spec})
}

// mark sets the annotation that clusterctl begins a deletion with, and lets the controller see it: watches of two kinds show their changes in any order.
func (s *story) mark(kind *runner.Kind) {
	s.Helper()
	s.edit(kind, map[string]any{"metadata": map[string]any{"annotations": map[string]any{contract.AnnotationDeleteForMove: ""}}})
	time.Sleep(time.Second)
}

// settle lets the controller and the provider work until nothing is left to do. It returns the writes of the controller since the last time.
func (s *story) settle() []string {
	s.Helper()
	for range 3 {
		time.Sleep(time.Minute)
		if pool, ok := contracttest.Read[v1alpha2.InClusterIPPool](s.Server, runner.InClusterIPPools, c.Namespace, c.Name); ok && pool.Status.IPAddresses == nil {
			s.edit(runner.InClusterIPPools, map[string]any{"status": map[string]any{"ipAddresses": map[string]any{"total": 9, "free": 9}}})
		}
		if pool, ok := contracttest.Read[v1alpha1.InfobloxIPPool](s.Server, runner.InfobloxIPPools, c.Namespace, c.Name); ok && len(pool.Status.Conditions) == 0 {
			s.edit(runner.InfobloxIPPools, map[string]any{"status": map[string]any{"conditions": []any{map[string]any{"type": "Ready", "status": "True"}}}})
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	wrote := s.wrote
	s.wrote = nil
	slices.Sort(wrote)
	return slices.Compact(wrote)
}

// is compares the claim's bound, and the types and reasons of its conditions.
func (s *story) is(when string, bound bool, conditions string) {
	s.Helper()
	claim, _ := contracttest.Read[v1beta1.ClusterIPAMClaim](s.Server, runner.ClusterIPAMClaims, c.Namespace, c.Name)
	var all []string
	for _, c := range claim.Status.Conditions {
		all = append(all, c.Type+" "+c.Reason)
	}
	slices.Sort(all)
	if got := strings.Join(all, "; "); claim.Status.Bound != bound || got != conditions {
		s.Errorf("%s: bound %v with %q, want %v with %q", when, claim.Status.Bound, got, bound, conditions)
	}
}

const inCluster = `{"provider": "in-cluster", "cluster": "d", "nodeNetwork": {"cidr": "10.0.0.0/24", "gateway": "10.0.0.1"}}`

// TestLife is one claim from its creation on. After every step, as after a restart, there is nothing left to write.
func TestLife(t *testing.T) {
	play(t, inCluster, func(s *story) {
		step := func(name, conditions string, bound bool, want ...string) {
			s.Helper()
			if diff := cmp.Diff(want, s.settle()); len(want) > 0 && diff != "" {
				s.Errorf("%s: writes (-want +got):\n%s", name, diff)
			}
			s.is(name, bound, conditions)
			s.process.Crash()
			s.begin()
			if wrote := s.settle(); len(wrote) > 0 {
				s.Errorf("%s: written without a reason: %q", name, wrote)
			}
		}
		step("a claim", "", true, "create ClusterIPAM", "create InClusterIPPool", "patch ClusterIPAMClaim", "patch status ClusterIPAM", "patch status ClusterIPAMClaim")
		if !slices.Equal(s.took, []time.Duration{time.Minute}) {
			s.Errorf("it took %v", s.took)
		}
		s.editClaim(map[string]any{"cluster": "e"})
		step("another ClusterDeployment", "Warning ClusterChanged", true, "patch status ClusterIPAMClaim")
		s.editClaim(map[string]any{"cluster": "d", "nodeNetwork": map[string]any{"cidr": "10.0.0.0/23", "gateway": "10.0.0.1"}})
		step("an edit", "", true, "patch InClusterIPPool", "patch status ClusterIPAMClaim")
		s.editClaim(map[string]any{"nodeNetwork": map[string]any{"cidr": "10.0.0.0/33"}})
		step("an invalid one", "InvalidClaimCondition InvalidClaim", true, "patch status ClusterIPAMClaim")
		s.editClaim(map[string]any{"nodeNetwork": map[string]any{"cidr": "10.0.0.0/24", "gateway": "10.0.0.1"}})
		step("corrected", "", true)
		s.edit(runner.InClusterIPPools, map[string]any{"metadata": map[string]any{"finalizers": []string{"x"}}})
		_ = s.Delete(runner.InClusterIPPools, c, "")
		step("the pool is being deleted", "IPAMProviderConditionError PoolDeleting", false, "patch status ClusterIPAM", "patch status ClusterIPAMClaim")
		s.Strip(runner.InClusterIPPools, c)
		step("the pool is deleted", "", true, "create InClusterIPPool", "patch status ClusterIPAM", "patch status ClusterIPAMClaim")
		_ = s.Delete(runner.ClusterIPAMs, c, "")
		step("the ClusterIPAM is deleted", "", true, "create ClusterIPAM", "patch status ClusterIPAM", "patch status ClusterIPAMClaim")

		s.edit(runner.InClusterIPPools, map[string]any{"status": map[string]any{"ipAddresses": map[string]any{"used": 2}}})
		s.editClaim(map[string]any{"provider": v1beta1.ProviderInfoblox})
		step("another provider", "IPAMProviderConditionError InstanceUnknown", false)
		s.put(runner.InfobloxInstances, &v1alpha1.InfobloxInstance{ObjectMeta: metav1.ObjectMeta{Name: "i"}})
		step("with an InfobloxInstance", "Warning OldPoolInUse", true)
		s.edit(runner.InClusterIPPools, map[string]any{"status": map[string]any{"ipAddresses": map[string]any{"used": 0}}})
		step("no machine uses the earlier pool", "", true, "delete InClusterIPPool", "patch status ClusterIPAMClaim")

		s.mark(runner.ClusterIPAMClaims)
		_ = s.Delete(runner.ClusterIPAMs, c, "")
		if wrote := s.settle(); len(wrote) > 0 {
			s.Errorf("for a claim that is being moved away: %q", wrote)
		}
		_ = s.Delete(runner.ClusterIPAMClaims, c, "")
		if wrote := s.settle(); len(wrote) > 0 {
			s.Errorf("for a claim that is gone: %q", wrote)
		}
	})
}

// TestMovedAway: clusterctl deletes the pool and the ClusterIPAM before their claim, which makes neither again.
func TestMovedAway(t *testing.T) {
	for _, kind := range []*runner.Kind{runner.InClusterIPPools, runner.ClusterIPAMs} {
		play(t, inCluster, func(s *story) {
			s.settle()
			s.mark(kind)
			s.editClaim(map[string]any{"nodeNetwork": map[string]any{"cidr": "10.0.0.0/23"}})
			if wrote := s.settle(); len(wrote) > 0 {
				s.Errorf("while the %v is moved: %q", kind, wrote)
			}
			s.Annotate(kind, c, nil)
			if wrote := s.settle(); !slices.Contains(wrote, "patch InClusterIPPool") {
				s.Errorf("after the mark of the %v was taken back: %q", kind, wrote)
			}
			s.mark(kind)
			_ = s.Delete(kind, c, "")
			if wrote := s.settle(); len(wrote) > 0 {
				s.Errorf("after the %v was moved: %q", kind, wrote)
			}
		})
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
			play(t, inCluster, func(s *story) {
				s.refuse = func(write string) error {
					if write == "create InClusterIPPool" {
						return tc.err
					}
					return nil
				}
				s.settle()
				s.is("refused", false, tc.want)
				s.refuse = func(string) error { return nil }
				s.settle()
				s.is("afterwards", true, "")
			})
		})
	}
}

// TestStatusOfAnother: a condition that another program writes while the controller writes its own is not lost.
func TestStatusOfAnother(t *testing.T) {
	play(t, inCluster, func(s *story) {
		once := sync.OnceFunc(func() {
			s.edit(runner.ClusterIPAMClaims, map[string]any{"status": map[string]any{"conditions": []any{map[string]any{"type": "Theirs", "status": "True", "reason": "R", "message": "m"}}}})
		})
		s.refuse = func(write string) error {
			if write == "patch status ClusterIPAMClaim" {
				once()
			}
			return nil
		}
		s.settle()
		s.is("with both", true, "Theirs R")
	})
}

// TestWarnings: what is odd about a claim shares a condition, and has an event each.
func TestWarnings(t *testing.T) {
	play(t, `{"provider": "in-cluster", "nodeNetwork": {"ipAddresses": ["10.0.0.5"], "gateway": "10.0.0.1"}, "clusterNetwork": {"cidr": "10.1.0.0/16"}}`, func(s *story) {
		s.settle()
		s.is("in the end", true, "Warning PrefixMissing,InputIgnored")
		slices.Sort(s.said)
		if want := []string{reasonBound, reasonInputIgnored, reasonPrefixMissing}; !slices.Equal(s.said, want) {
			s.Errorf("events %q, want %q", s.said, want)
		}
	})
}

// TestFigures is what metrics show.
func TestFigures(t *testing.T) {
	play(t, inCluster, func(s *story) {
		s.put(runner.ClusterIPAMClaims, &v1beta1.ClusterIPAMClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "t", Name: "wrong"}})
		s.settle()
		want := runner.Figures{Waiting: map[string]int{reasonInvalidClaim: 1}, Bound: 1, IPAMs: []runner.IPAMFigures{{Namespace: "t", Name: "c", Bound: true}}}
		if diff := cmp.Diff(want, s.process.Logic.Figures()); diff != "" {
			s.Errorf("(-want +got):\n%s", diff)
		}
	})
}

// TestNotInstalled: without the kind of its pool a claim waits, and says what is missing.
func TestNotInstalled(t *testing.T) {
	play(t, inCluster, func(s *story) {
		s.process.Crash()
		s.absent = runner.InClusterIPPools
		s.begin()
		s.settle()
		s.is("without the kind", false, "IPAMProviderConditionError NotInstalled")
		s.process.Crash()
		s.absent = nil
		s.begin()
		s.settle()
		s.is("with it", true, "")
	})
}

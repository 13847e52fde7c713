package infoblox

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/multicidr/controller-manager/apis/clusterapi/v1alpha1"
	"github.com/multicidr/controller-manager/apis/clusterapi/v1beta2"
	"github.com/multicidr/controller-manager/controllers/clusteripam/shell"
)

// Stories take the world of the simulation, in which everything goes well, and do one thing after the other. What they are about is too rare for
// chance.

func newStory(t *testing.T) *world {
	w := newWorld(rand.New(rand.NewPCG(1, 1)))
	t.Cleanup(w.end)
	w.elect()
	w.goOn(10 * time.Second)
	return w
}

// goOn lets time pass, and the controller do what it does in that time.
func (w *world) goOn(long time.Duration) {
	for end := w.now.Add(long); w.now.Before(end); w.now = w.now.Add(time.Second) {
		w.leader.lease = w.now.Add(leaseLasts)
		for w.step(w.leader, true) {
		}
	}
}

func (w *world) claim(name, pool string) {
	w.put(shell.IPAddressClaims, &v1beta2.IPAddressClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: name},
		Spec: v1beta2.IPAddressClaimSpec{PoolRef: v1beta2.IPPoolReference{APIGroup: shell.GroupIPAM, Kind: v1alpha1.KindInfobloxIPPool, Name: pool}}})
}

// show returns the address of a claim, what its condition says, and its host records; "gone" if there is no such claim.
func (w *world) show(name string) string {
	of := types.NamespacedName{Namespace: "a", Name: name}
	if w.objects[shell.IPAddressClaims][of] == nil {
		return "gone"
	}
	c, a := &v1beta2.IPAddressClaim{}, &v1beta2.IPAddress{}
	decode(w.objects[shell.IPAddressClaims][of], c)
	if object := w.objects[shell.IPAddresses][of]; object != nil {
		decode(object, a)
	}
	reason := ""
	if ready := meta.FindStatusCondition(c.Status.Conditions, v1beta2.ConditionReady); ready != nil {
		reason = ready.Reason
	}
	return fmt.Sprint(a.Spec.Address, " ", reason)
}

func (w *world) want(t *testing.T, claim, want string, records ...string) {
	t.Helper()
	if got := w.show(claim); got != want {
		t.Errorf("%s: %s, want %s", claim, got, want)
	}
	var got []string
	for _, h := range w.hosts() {
		got = append(got, fmt.Sprint(h.Name, " ", h.Addresses()))
	}
	if fmt.Sprint(got) != fmt.Sprint(records) {
		t.Errorf("records %q, want %q", got, records)
	}
}

const noFinalizers = `{"metadata": {"finalizers": null}}`

// An earlier claim of the name was in another pool, and somebody has taken its finalizer away. Its IPAddress is not the new claim's.
func TestIPAddressOfAnEarlierClaim(t *testing.T) {
	w := newStory(t)
	name := types.NamespacedName{Namespace: "a", Name: "x"}
	w.claim("x", "v4")
	w.goOn(time.Minute)
	_ = w.patch(shell.IPAddressClaims, name, shell.Patch{Body: []byte(noFinalizers)}, nil)
	_ = w.delete(shell.IPAddressClaims, name, "")
	w.claim("x", "v6")
	w.goOn(time.Minute)
	w.want(t, "x", "10.0.0.2 AllocationFailed", "x [10.0.0.2]")
	_ = w.delete(shell.IPAddresses, name, "") // as the condition says
	w.goOn(time.Minute)
	w.want(t, "x", "fd00::1 Ready", "x [fd00::1]")
}

// An IPAddress of another kind of pool has the name of a claim. Its own allocator releases it.
func TestIPAddressOfAnotherAllocator(t *testing.T) {
	w := newStory(t)
	name := types.NamespacedName{Namespace: "a", Name: "x"}
	w.put(shell.IPAddresses, &v1beta2.IPAddress{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "x", Finalizers: []string{v1beta2.FinalizerProtectAddress}},
		Spec: v1beta2.IPAddressSpec{Address: "10.0.0.3", PoolRef: v1beta2.IPPoolReference{APIGroup: shell.GroupIPAM, Kind: "InClusterIPPool", Name: "v4"}, ClaimRef: v1beta2.IPAddressClaimReference{Name: "x"}}})
	w.claim("x", "v4")
	w.goOn(time.Minute)
	w.want(t, "x", "10.0.0.3 AllocationFailed")
	_ = w.delete(shell.IPAddresses, name, "")
	_ = w.delete(shell.IPAddressClaims, name, "")
	w.goOn(time.Minute)
	if w.objects[shell.IPAddresses][name] == nil {
		t.Error("the IPAddress is gone")
	}
}

package infoblox

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/multicidr/controller-manager/apis/clusterapi/v1alpha1"
	"github.com/multicidr/controller-manager/apis/clusterapi/v1beta2"
	"github.com/multicidr/controller-manager/controllers/clusteripam/infoblox/host"
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

// said reports whether an event or an error had this text.
func (w *world) said(text string) bool {
	return slices.ContainsFunc(w.trace, func(line string) bool { return strings.Contains(line, text) })
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

func (w *world) want(t *testing.T, claim, want string) {
	t.Helper()
	if got := w.show(claim); got != want {
		t.Errorf("%s: %s, want %s", claim, got, want)
	}
}

func (w *world) wantRecords(t *testing.T, want ...string) {
	t.Helper()
	var got []string
	for _, h := range w.hosts() {
		got = append(got, fmt.Sprint(h.Name, " ", h.Addresses()))
	}
	if slices.Sort(got); !slices.Equal(got, want) {
		t.Errorf("records %q, want %q", got, want)
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
	w.want(t, "x", "10.0.0.2 AllocationFailed")
	w.wantRecords(t, "x [10.0.0.2]")
	_ = w.delete(shell.IPAddresses, name, "") // as the condition says
	w.goOn(time.Minute)
	w.want(t, "x", "fd00::1 Ready")
	w.wantRecords(t, "x [fd00::1]")
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

// An earlier claim of the name has left an IPAddress, and the claim is another allocator's. Deleted, the IPAddress goes with its host record.
func TestIPAddressInTheWayOfAnotherAllocator(t *testing.T) {
	w := newStory(t)
	name := types.NamespacedName{Namespace: "a", Name: "x"}
	w.claim("x", "v4")
	w.goOn(time.Minute)
	_ = w.patch(shell.IPAddressClaims, name, shell.Patch{Body: []byte(noFinalizers)}, nil)
	_ = w.delete(shell.IPAddressClaims, name, "")
	w.put(shell.IPAddressClaims, &v1beta2.IPAddressClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "x"},
		Spec: v1beta2.IPAddressClaimSpec{PoolRef: v1beta2.IPPoolReference{APIGroup: shell.GroupIPAM, Kind: "InClusterIPPool", Name: "p"}}})
	w.goOn(time.Minute)
	w.wantRecords(t, "x [10.0.0.2]")
	_ = w.delete(shell.IPAddresses, name, "")
	w.goOn(time.Minute)
	w.wantRecords(t)
	if w.objects[shell.IPAddresses][name] != nil || w.objects[shell.IPAddressClaims][name] == nil {
		t.Errorf("IPAddress: %v, claim: %v", w.objects[shell.IPAddresses][name], w.objects[shell.IPAddressClaims][name])
	}
}

// A claim has lost its finalizer while no leader was there. Its pool names the IPAddress that is left, and stays with its host record until somebody
// deletes the IPAddress.
func TestIPAddressWithoutClaim(t *testing.T) {
	w := newStory(t)
	x, v4 := types.NamespacedName{Namespace: "a", Name: "x"}, types.NamespacedName{Namespace: "a", Name: "v4"}
	ready := func() string {
		t.Helper()
		pool := &v1alpha1.InfobloxIPPool{}
		if w.objects[shell.InfobloxIPPools][v4] == nil {
			return "gone"
		}
		decode(w.objects[shell.InfobloxIPPools][v4], pool)
		return meta.FindStatusCondition(pool.Status.Conditions, v1alpha1.ConditionReady).Message
	}
	w.claim("x", "v4")
	w.claim("y", "v4")
	w.goOn(time.Minute)
	fine := ready()
	if strings.Contains(fine, "IPAddressClaim") {
		t.Errorf("the pool says %q although no claim is gone", fine)
	}
	w.leader.end()
	_ = w.patch(shell.IPAddressClaims, x, shell.Patch{Body: []byte(noFinalizers)}, nil)
	_ = w.delete(shell.IPAddressClaims, x, "")
	w.collectGarbage()
	w.elect()
	w.goOn(time.Minute)
	if want := fine + " IPAddresses without an IPAddressClaim: 1 (x). They keep their addresses: delete those that no machine uses."; ready() != want {
		t.Errorf("the pool says %q, want %q", ready(), want)
	}
	if !w.said("event " + reasonWithoutClaim) {
		t.Error("there is no event")
	}
	_ = w.delete(shell.IPAddressClaims, types.NamespacedName{Namespace: "a", Name: "y"}, "")
	_ = w.delete(shell.InfobloxIPPools, v4, "")
	for range 2 {
		w.goOn(time.Minute)
		w.collectGarbage()
	}
	w.wantRecords(t, "x [10.0.0.2]")
	if ready() == "gone" {
		t.Error("the pool is gone before its last IPAddress")
	}
	_ = w.delete(shell.IPAddresses, x, "")
	w.goOn(time.Minute)
	w.wantRecords(t)
	if ready() != "gone" {
		t.Error("the pool stays after its last IPAddress")
	}
}

// A network view gets another name. The records of the claims are found there.
func TestRenamedNetworkView(t *testing.T) {
	w := newStory(t)
	w.claim("x", "v4")
	w.claim("y", "v4")
	w.goOn(time.Minute)
	w.want(t, "x", "10.0.0.2 Ready")
	w.wantRecords(t, "x [10.0.0.2]", "y [10.0.0.3]")
	w.grid.RenameView("default", "corp")
	_ = w.delete(shell.IPAddressClaims, types.NamespacedName{Namespace: "a", Name: "x"}, "")
	w.goOn(time.Minute)
	w.want(t, "x", "gone")
	w.wantRecords(t, "y [10.0.0.3]")
}

// A pool gets another InfobloxInstance, and the former one is deleted. Claims that wait without an address go on without their records after a
// while, and say until then why they wait; a claim that has had an address keeps it.
func TestReplacedInstance(t *testing.T) {
	w := newStory(t)
	for _, name := range []string{"1", "2", "3", "4", "5", "waits"} {
		w.claim(name, "v4")
		w.goOn(10 * time.Second)
	}
	w.goOn(time.Minute)
	w.want(t, "waits", " PoolExhausted")
	_ = w.delete(shell.InfobloxInstances, types.NamespacedName{Name: "i"}, "")
	_ = w.patch(shell.InfobloxIPPools, types.NamespacedName{Namespace: "a", Name: "v4"}, shell.Patch{Body: []byte(`{"metadata": {}, "spec": {"instance": {"name": "j"}}}`)}, nil)
	_ = w.patch(shell.IPAddresses, types.NamespacedName{Namespace: "a", Name: "5"}, shell.Patch{Body: []byte(noFinalizers)}, nil)
	_ = w.delete(shell.IPAddresses, types.NamespacedName{Namespace: "a", Name: "5"}, "")
	w.goOn(lostServerAfter - time.Minute)
	w.want(t, "waits", " AllocationFailed")
	w.goOn(2 * time.Minute)
	w.want(t, "waits", " PoolExhausted")
	w.want(t, "5", " AllocationFailed")
	if !w.said("If Infoblox still has the host record waits in the network view default, delete it there.") {
		t.Error("no event says which record is left")
	}
	w.put(shell.InfobloxInstances, instanceOf("i"))
	w.goOn(time.Minute)
	w.want(t, "5", "10.0.0.6 Ready")
}

// The InfobloxInstance of a claim that is deleted is gone, comes back without its Secret, and is gone again. The wait for it ends ten minutes after
// that, also if the leader changes, and the claim goes without its host record.
func TestLostInstance(t *testing.T) {
	w := newStory(t)
	i, secret := types.NamespacedName{Name: "i"}, types.NamespacedName{Namespace: "kube-system", Name: "s"}
	w.claim("x", "v4")
	w.goOn(time.Minute)
	_ = w.delete(shell.InfobloxInstances, i, "")
	_ = w.delete(shell.Secrets, secret, "")
	w.goOn(time.Minute)
	_ = w.delete(shell.IPAddressClaims, types.NamespacedName{Namespace: "a", Name: "x"}, "")
	w.goOn(lostServerAfter - time.Minute)
	w.put(shell.InfobloxInstances, instanceOf("i"))
	w.goOn(time.Minute)
	_ = w.delete(shell.InfobloxInstances, i, "")
	w.goOn(lostServerAfter / 2)
	w.leader.end()
	w.elect()
	w.goOn(lostServerAfter/2 - time.Minute)
	w.want(t, "x", "10.0.0.2 Ready")
	w.goOn(2 * time.Minute)
	w.want(t, "x", "gone")
	w.wantRecords(t, "x [10.0.0.2]")
}

// The claim that waits for its InfobloxInstance is paused when that comes back. An hour later it is gone for a moment: the wait begins anew.
func TestInstanceComesBackUnseen(t *testing.T) {
	w := newStory(t)
	i, x := types.NamespacedName{Name: "i"}, types.NamespacedName{Namespace: "a", Name: "x"}
	pause := func(value string) {
		_ = w.patch(shell.IPAddressClaims, x, shell.Patch{Body: fmt.Appendf(nil, `{"metadata": {"annotations": {%q: %s}}}`, v1beta2.AnnotationPaused, value)}, nil)
	}
	w.claim("x", "v4")
	w.goOn(time.Minute)
	_ = w.delete(shell.InfobloxInstances, i, "")
	_ = w.delete(shell.IPAddressClaims, x, "")
	w.goOn(5 * time.Minute)
	pause(`""`)
	w.put(shell.InfobloxInstances, instanceOf("i"))
	w.goOn(time.Hour)
	_ = w.delete(shell.InfobloxInstances, i, "")
	pause("null")
	w.goOn(time.Minute)
	w.want(t, "x", "10.0.0.2 Ready")
	w.put(shell.InfobloxInstances, instanceOf("i"))
	w.goOn(time.Minute)
	w.want(t, "x", "gone")
	w.wantRecords(t)
}

// A policy takes away the annotation that says since when the InfobloxInstance is gone. The wait would never end, and that is said.
func TestMissingIsTakenBack(t *testing.T) {
	w := newStory(t)
	w.claim("x", "v4")
	w.goOn(time.Minute)
	w.drops = annotationMissing
	_ = w.delete(shell.InfobloxInstances, types.NamespacedName{Name: "i"}, "")
	_ = w.delete(shell.IPAddressClaims, types.NamespacedName{Namespace: "a", Name: "x"}, "")
	w.goOn(time.Minute)
	if !w.said(shell.ErrTakenBack.Error()) {
		t.Error("nobody says that the annotation is taken away")
	}
	w.drops = ""
	w.goOn(lostServerAfter + time.Minute)
	w.want(t, "x", "gone")
}

// A host record of somebody else is in the way. Deleted, as the condition says, it is not for long.
func TestTakenRecordGoes(t *testing.T) {
	w := newStory(t)
	w.claim("taken", "v4")
	w.wish(types.NamespacedName{Namespace: "a", Name: "taken"})
	name := metadataOf(w.objects[shell.IPAddressClaims][types.NamespacedName{Namespace: "a", Name: "taken"}])["annotations"].(map[string]any)[v1alpha1.AnnotationHostname].(string)
	w.grid.Do(http.MethodPost, "record:host", nil, shell.Encode(host.Record{Name: name, NetworkView: "default"}.WithNext(netip.MustParsePrefix("10.0.0.0/29"), "default")))
	w.goOn(time.Minute)
	w.want(t, "taken", " AllocationFailed")
	w.grid.Do(http.MethodDelete, w.hosts()[0].Ref, nil, nil)
	w.goOn(2 * time.Minute)
	w.want(t, "taken", "10.0.0.2 Ready")
}

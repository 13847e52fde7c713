package infoblox

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
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
	"github.com/multicidr/controller-manager/controllers/writes"
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

// newStoryOfX is a story in which claim x has an address of pool v4.
func newStoryOfX(t *testing.T) *world {
	w := newStory(t)
	w.claim("x", "v4")
	w.goOn(time.Minute)
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

// release deletes a claim, and waits until it and its IPAddress are gone.
func (w *world) release(t *testing.T, name string) {
	t.Helper()
	_ = w.delete(shell.IPAddressClaims, inA(name), "")
	w.goOn(time.Minute)
	w.want(t, name, "gone")
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

// inA is a name in the namespace of the stories.
func inA(name string) types.NamespacedName { return types.NamespacedName{Namespace: "a", Name: name} }

// address makes an IPAddress as another program does: it is of a pool, protected, and nothing says where its host record is.
func (w *world) address(name, pool, at string) {
	w.put(shell.IPAddresses, &v1beta2.IPAddress{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: name, Finalizers: []string{v1beta2.FinalizerProtectAddress}},
		Spec: v1beta2.IPAddressSpec{Address: at, PoolRef: v1beta2.IPPoolReference{APIGroup: shell.GroupIPAM, Kind: v1alpha1.KindInfobloxIPPool, Name: pool}, ClaimRef: v1beta2.IPAddressClaimReference{Name: name}}})
}

// record makes a host record as another program does.
func (w *world) record(name, at string) {
	w.grid.Do(http.MethodPost, "record:host", nil, shell.Encode(host.Record{Name: name, NetworkView: "default", IPv4: []host.Addr4{{Address: at}}}))
}

// stray leaves the IPAddress of claim x without it: the claim is removed by force while no process leads. before happens before the next one does.
func (w *world) stray(before func()) {
	w.leader.end()
	w.strip("x")
	before()
	w.elect()
	w.goOn(time.Minute)
}

// strip removes a claim by force.
func (w *world) strip(claim string) {
	_ = w.patch(shell.IPAddressClaims, inA(claim), shell.Patch{Body: []byte(noFinalizers)}, nil)
	_ = w.delete(shell.IPAddressClaims, inA(claim), "")
}

// stripAddress removes an IPAddress by force.
func (w *world) stripAddress(name string) {
	_ = w.patch(shell.IPAddresses, inA(name), shell.Patch{Body: []byte(noFinalizers)}, nil)
	_ = w.delete(shell.IPAddresses, inA(name), "")
}

// editSpec edits the spec of an object, as an API server without Cluster API's webhooks and our CRDs lets users do.
func (w *world) editSpec(kind *shell.Kind, name, spec string) {
	_ = w.patch(kind, inA(name), shell.Patch{Body: []byte(`{"metadata": {}, "spec": ` + spec + `}`)}, nil)
}

const noFinalizers = `{"metadata": {"finalizers": null}}`

// An earlier claim of the name was in another pool, and somebody has taken its finalizer away. Its IPAddress is not the new claim's.
func TestIPAddressOfAnEarlierClaim(t *testing.T) {
	w := newStoryOfX(t)
	name := inA("x")
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
	name := inA("x")
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
	w := newStoryOfX(t)
	name := inA("x")
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
	x, v4 := inA("x"), inA("v4")
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
	w.stray(w.collectGarbage)
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

// Another network view gets the former name of one. The records of the claims are found all the same.
func TestSwappedNetworkViews(t *testing.T) {
	w := newStoryOfX(t)
	w.grid.RenameView("default", "corp")
	w.grid.NetworkViews = append(w.grid.NetworkViews, "default")
	w.grid.Networks["default"] = w.grid.Networks["corp"]
	w.release(t, "x")
	w.wantRecords(t)
}

// Somebody gives a host record another name. The claim goes, and an event says how to find the record.
func TestRenamedRecord(t *testing.T) {
	w := newStory(t)
	w.claim("x", "v4")
	w.claim("y", "v4")
	w.goOn(time.Minute)
	x := metadataOf(w.objects[shell.IPAddressClaims][inA("x")])["uid"].(string)
	for _, h := range w.hosts() {
		if h.Name == "x" {
			w.grid.Do(http.MethodPut, h.Ref, nil, []byte(`{"name": "web-1"}`))
		}
	}
	_ = w.delete(shell.IPAddressClaims, inA("x"), "")
	_ = w.delete(shell.IPAddressClaims, inA("y"), "")
	w.goOn(time.Minute)
	w.want(t, "x", "gone")
	if !w.said("has no host record x of this object. If Infoblox has one of another name, with the address 10.0.0.2 and the UID " + x + " in its comment, delete it there.") {
		t.Error("no event says which record is left")
	}
	if w.said("has no host record y") {
		t.Error("an event says that the record is left that was deleted")
	}
}

// Somebody gives a host record another name before the cache shows the IPAddress, so the claim creates another record. The claim goes with that one only, and an
// event says how to find the first one.
func TestRenamedRecordAndAnother(t *testing.T) {
	w := newStoryOfX(t)
	x := metadataOf(w.objects[shell.IPAddressClaims][inA("x")])["uid"].(string)
	w.grid.Do(http.MethodPut, w.hosts()[0].Ref, nil, []byte(`{"name": "web-1"}`))
	w.grid.Do(http.MethodPost, "record:host", nil, shell.Encode(host.Record{Name: "x", NetworkView: "default", Comment: host.Mark([]types.UID{types.UID(x)}, "a/x"), IPv4: []host.Addr4{{Address: "10.0.0.6"}}}))
	w.wantRecords(t, "web-1 [10.0.0.2]", "x [10.0.0.6]")
	_ = w.delete(shell.IPAddressClaims, inA("x"), "")
	w.goOn(time.Minute)
	w.want(t, "x", "gone")
	w.wantRecords(t, "web-1 [10.0.0.2]")
	if !w.said("If Infoblox has one of another name, with the address 10.0.0.2 and the UID " + x + " in its comment, delete it there.") {
		t.Error("no event says which record is left")
	}
}

// For a while the InfobloxInstance is another Infoblox, which has no record of the claim, nor its network view. The claim waits.
func TestAnotherInfobloxAnswers(t *testing.T) {
	w := newStoryOfX(t)
	whole := *w.grid
	*w.grid = *wapitest.NewGrid()
	w.grid.NetworkViews = nil
	w.goOn(2 * time.Minute)
	_ = w.delete(shell.IPAddressClaims, inA("x"), "")
	w.goOn(time.Minute)
	w.want(t, "x", "10.0.0.2 Ready")
	if !w.said("the InfobloxInstance i is not ready. See its condition Ready.") {
		t.Error("nobody says why it waits")
	}
	*w.grid = whole
	w.goOn(time.Minute)
	w.want(t, "x", "gone")
	w.wantRecords(t)
}

// A process that has just begun has not checked the InfobloxInstance yet. That is no failure of the release.
func TestReleaseRightAfterAStart(t *testing.T) {
	w := newStoryOfX(t)
	w.leader.end()
	_ = w.delete(shell.IPAddressClaims, inA("x"), "")
	w.elect()
	w.leader.hearAll()
	w.leader.begin(shell.KeyOf(shell.IPAddressClaims, &v1beta2.IPAddressClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "x"}}))
	w.goOn(time.Minute)
	w.want(t, "x", "gone")
	if w.said("event " + reasonReleaseFailed) {
		t.Error("an event says that the release has failed")
	}
}

// An IPAddress of another program has lost its claim, or is in the way of one. Its host record goes with it; without its pool, an event names it.
func TestIPAddressOfAnotherProgramWithoutClaim(t *testing.T) {
	for name, tc := range map[string]struct {
		before  func(*world)
		records []string
		event   string
	}{
		"no claim":           {func(*world) {}, []string{"y [10.0.0.6]"}, ""},
		"in the way":         {func(w *world) { w.claim("x", "v6") }, []string{"x [fd00::1]", "y [10.0.0.6]"}, ""},
		"the pool is gone":   {func(w *world) { w.takePool("v4") }, []string{"x [10.0.0.5]", "y [10.0.0.6]"}, "If there is one with the address 10.0.0.5 in Infoblox, delete it there."},
		"the pool is paused": {func(w *world) { w.pausePool("v4", true) }, []string{"x [10.0.0.5]", "y [10.0.0.6]"}, ""},
		"the record is gone": {func(w *world) { w.grid.Do(http.MethodDelete, w.hosts()[0].Ref, nil, nil) }, []string{"y [10.0.0.6]"}, "has no host record x of this object"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newStory(t)
			w.record("x", "10.0.0.5")
			w.record("y", "10.0.0.6")
			w.address("x", "v4", "10.0.0.5")
			w.goOn(time.Minute)
			tc.before(w)
			w.goOn(time.Minute)
			_ = w.delete(shell.IPAddresses, inA("x"), "")
			w.goOn(2 * time.Minute)
			w.wantRecords(t, tc.records...)
			if !w.said(tc.event) || tc.event == "" && w.said("event "+reasonRecordLeft) {
				t.Errorf("want the event %q", tc.event)
			}
		})
	}
}

func (w *world) takePool(name string) {
	_ = w.patch(shell.InfobloxIPPools, inA(name), shell.Patch{Body: []byte(noFinalizers)}, nil)
	_ = w.delete(shell.InfobloxIPPools, inA(name), "")
}

func (w *world) pausePool(name string, paused bool) {
	value := map[bool]string{true: `""`, false: "null"}[paused]
	_ = w.patch(shell.InfobloxIPPools, inA(name), shell.Patch{Body: fmt.Appendf(nil, `{"metadata": {"annotations": {%q: %s}}}`, v1beta2.AnnotationPaused, value)}, nil)
}

// An IPAddress in the way of a claim is deleted while its pool is paused. It goes as soon as the pool is not paused any more, or is gone.
func TestIPAddressOfAPausedPool(t *testing.T) {
	for name, end := range map[string]func(*world){
		"not paused any more": func(w *world) { w.pausePool("v4", false) },
		"gone":                func(w *world) { w.takePool("v4") },
	} {
		t.Run(name, func(t *testing.T) {
			w := newStoryOfX(t)
			w.stray(func() { w.claim("x", "v6") })
			w.pausePool("v4", true)
			_ = w.delete(shell.IPAddresses, inA("x"), "")
			w.goOn(time.Minute)
			w.want(t, "x", "10.0.0.2 AllocationFailed")
			if !w.said("is being deleted, and goes when it and its InfobloxIPPool v4 are not paused any more") {
				t.Error("nobody says what the claim waits for")
			}
			end(w)
			w.goOn(time.Minute)
			w.want(t, "x", "fd00::1 Ready")
			w.wantRecords(t, "x [fd00::1]")
		})
	}
}

// An IPAddress in the way cannot be released, because its InfobloxInstance is gone. The claim, of another pool and Infoblox, says so, and goes when it
// is deleted.
func TestIPAddressInTheWayThatStays(t *testing.T) {
	w := newStoryOfX(t)
	w.stray(func() {
		w.editSpec(shell.InfobloxIPPools, "v6", `{"instance": {"name": "j"}}`)
		w.claim("x", "v6")
		_ = w.patch(shell.IPAddressClaims, inA("x"), shell.Patch{Body: fmt.Appendf(nil, `{"metadata": {"finalizers": [%q]}}`, v1beta2.FinalizerReleaseAddress)}, nil)
	})
	_ = w.delete(shell.InfobloxInstances, types.NamespacedName{Name: "i"}, "")
	_ = w.delete(shell.IPAddresses, inA("x"), "")
	w.goOn(time.Minute)
	c := &v1beta2.IPAddressClaim{}
	decode(w.objects[shell.IPAddressClaims][inA("x")], c)
	if ready := meta.FindStatusCondition(c.Status.Conditions, v1beta2.ConditionReady); ready == nil || !strings.Contains(ready.Message, "is being deleted") {
		t.Errorf("the condition is %+v", ready)
	}
	w.release(t, "x")
	w.goOn(lostServerAfter)
	if w.objects[shell.IPAddresses][inA("x")] != nil {
		t.Error("the IPAddress stays")
	}
}

// An IPAddress without a claim is deleted, and so is its host record, of which the answer is lost. A new claim of the name must not be told that it has
// that address: Infoblox may give it to others.
func TestClaimWhileAnIPAddressIsReleased(t *testing.T) {
	w := newStoryOfX(t)
	w.strayWithLostDelete(t)
	w.claim("x", "v4")
	w.goOn(5 * time.Minute)
	w.want(t, "x", "10.0.0.2 Ready")
	w.wantRecords(t, "x [10.0.0.2]")
}

// The same, and the claim was told before that the IPAddress is its own, of which the cache knows nothing.
func TestClaimThatHasTheIPAddressThatIsReleased(t *testing.T) {
	w := newStoryOfX(t)
	w.stray(func() { w.claim("x", "v4") })
	w.want(t, "x", "10.0.0.2 Ready")
	told := &v1beta2.IPAddressClaim{}
	decode(w.objects[shell.IPAddressClaims][inA("x")], told)
	untold, l := told.DeepCopy(), w.leader.logic
	untold.Status = v1beta2.IPAddressClaimStatus{}
	address := &v1beta2.IPAddress{}
	decode(w.objects[shell.IPAddresses][inA("x")], address)
	address.DeletionTimestamp = &metav1.Time{Time: w.now}
	address.Annotations[known.AnnotationReleasedBy] = string(address.UID)
	if l.Owns(untold, address) || !l.Owns(told, address) {
		t.Errorf("before it is told, the claim owns the IPAddress: %t; after that: %t", l.Owns(untold, address), l.Owns(told, address))
	}
	result := make(chan error, 1)
	go func() {
		err := l.releaseLeftover(t.Context(), situation{claim: untold, foreign: address})
		w.leader.parked <- struct{}{}
		result <- err
	}()
	<-w.leader.parked
	w.leader.answer(0, true)
	if len(w.leader.calls) > 0 {
		t.Fatalf("it goes on with %s", w.leader.calls[0].what)
	}
	if err := <-result; !errors.Is(err, writes.Later(time.Second)) {
		t.Errorf("want a pause, got %v", err)
	}
	w.wantRecords(t, "x [10.0.0.2]")
}

// strayWithLostDelete leaves the IPAddress x without its claim, deletes it, and loses the answer to the DELETE of its host record.
func (w *world) strayWithLostDelete(t *testing.T) {
	t.Helper()
	w.stray(func() {})
	_ = w.delete(shell.IPAddresses, inA("x"), "")
	i := w.until(t, "DELETE")
	c := w.leader.calls[i]
	if err := c.do(); err != nil {
		t.Fatal(err)
	}
	w.leader.resume(i, c.lost)
}

// until goes on until a request is on its way, and returns which call that is.
func (w *world) until(t *testing.T, request string) int {
	t.Helper()
	for {
		if i := slices.IndexFunc(w.leader.calls, func(c *call) bool { return strings.Contains(c.what, request) }); i >= 0 {
			return i
		}
		if !w.step(w.leader, true) {
			t.Fatalf("nobody sends %s", request)
		}
	}
}

// A claim is deleted, and its IPAddress cannot be changed, or the process ends. Somebody takes the claim's finalizer away. Whether the host record is gone
// or not, the next claim of the name has one.
func TestClaimIsStrippedWhileItIsReleased(t *testing.T) {
	for name, tc := range map[string]struct {
		refused string
		ends    bool
	}{
		"before the record is gone":                  {known.AnnotationReleasedBy, false},
		"before the record is gone, another process": {known.AnnotationReleasedBy, true},
		"after that":                                    {`"finalizers"`, false},
		"after that, another process":                   {`"finalizers"`, true},
		"before the IPAddress is gone":                  {"delete IPAddress", false},
		"before the IPAddress is gone, another process": {"delete IPAddress", true},
	} {
		t.Run(name, func(t *testing.T) {
			w := newStoryOfX(t)
			_ = w.delete(shell.IPAddressClaims, inA("x"), "")
			w.leader.resume(w.until(t, tc.refused), errors.New("failed calling webhook"))
			if tc.ends {
				w.leader.end()
			}
			w.strip("x")
			w.claim("x", "v4")
			if tc.ends {
				w.elect()
			}
			w.goOn(time.Minute)
			w.want(t, "x", "10.0.0.2 Ready")
			w.wantRecords(t, "x [10.0.0.2]")
			if !tc.ends && w.said("has no host record x") {
				t.Error("an event says that the record is left that was deleted")
			}
		})
	}
}

// An IPAddress has lost its claim, and its host record is gone, too, so Infoblox gives the address to others. The next claim of the name is not told that it
// has it, whatever becomes of the IPAddress, and gets an address of its own as soon as the IPAddress is gone.
func TestIPAddressWithoutARecord(t *testing.T) {
	remove := func(w *world) { _ = w.delete(shell.IPAddresses, inA("x"), "") }
	for name, tc := range map[string]struct {
		before, after func(*world)
		waits         string
	}{
		"deleted, and cannot be changed": {func(w *world) {
			remove(w)
			w.leader.resume(w.until(t, `"finalizers"`), errors.New("failed calling webhook"))
		}, nil, ""},
		"deleted while the pool is paused": {func(w *world) {
			w.pausePool("v4", true)
			remove(w)
		}, func(w *world) { w.pausePool("v4", false) }, "10.0.0.2 "},
		"deleted while Infoblox cannot be asked": {func(w *world) {
			w.moveInstances("elsewhere")
			w.goOn(2 * time.Minute)
			remove(w)
		}, func(w *world) { w.moveInstances("h") }, "10.0.0.2 AllocationFailed"},
		"not deleted": {func(*world) {}, remove, "10.0.0.2 AllocationFailed"},
	} {
		for made, unmark := range map[string]bool{"ours": false, "another program's": true} {
			t.Run(name+", "+made, func(t *testing.T) {
				w := newStoryOfX(t)
				if unmark {
					w.unmark()
				}
				w.strip("x")
				w.goOn(time.Minute)
				w.grid.Do(http.MethodDelete, w.hosts()[0].Ref, nil, nil)
				w.record("other", "10.0.0.2")
				tc.before(w)
				w.claim("x", "v4")
				if tc.waits != "" {
					w.goOn(5 * time.Minute)
					w.want(t, "x", tc.waits)
					tc.after(w)
				}
				w.goOn(2 * time.Minute)
				w.want(t, "x", "10.0.0.3 Ready")
				w.wantRecords(t, "other [10.0.0.2]", "x [10.0.0.3]")
			})
		}
	}
}

// An IPAddress without a claim is deleted, and the DELETE of its host record is on its way when the next leader begins, which knows a claim of the name. It does
// not tell the claim that it has the record, which is about to go.
func TestClaimMeetsALateDelete(t *testing.T) {
	w := newStoryOfX(t)
	w.stray(func() {})
	_ = w.delete(shell.IPAddresses, inA("x"), "")
	late := w.leader.calls[w.until(t, "DELETE")]
	w.leader.calls, w.leader.dead = nil, true
	_ = w.patch(shell.IPAddresses, inA("x"), shell.Patch{Body: fmt.Appendf(nil, `{"metadata": {"annotations": {%q: null}}}`, known.AnnotationReleasedBy)}, nil)
	w.claim("x", "v4")
	w.elect()
	w.goOn(settled / 3)
	_ = late.do()
	w.goOn(time.Minute)
	w.want(t, "x", "10.0.0.2 Ready")
	w.wantRecords(t, "x [10.0.0.2]")
}

// That a release has begun is not in the cache yet. Nothing is removed before it is: claims of the name go by the cache.
func TestReleaseWaitsForTheCache(t *testing.T) {
	w := newStoryOfX(t)
	_ = w.delete(shell.IPAddressClaims, inA("x"), "")
	w.leader.answer(w.until(t, known.AnnotationReleasedBy), true)
	if len(w.leader.calls) > 0 {
		t.Errorf("it goes on with %s", w.leader.calls[0].what)
	}
	w.goOn(time.Minute)
	w.want(t, "x", "gone")
}

// An admission policy takes back that a release has begun. Nothing is removed, and that is said.
func TestReleaseIsTakenBack(t *testing.T) {
	w := newStoryOfX(t)
	w.drops = known.AnnotationReleasedBy
	_ = w.delete(shell.IPAddressClaims, inA("x"), "")
	w.goOn(time.Minute)
	w.wantRecords(t, "x [10.0.0.2]")
	if !w.said(shell.ErrTakenBack.Error()) {
		t.Error("nobody says that the annotation is taken away")
	}
	w.drops = ""
	w.goOn(time.Minute)
	w.want(t, "x", "gone")
	w.wantRecords(t)
}

// copied returns an object as a backup has it: without UID and status.
func copied[T metav1.Object](w *world, kind *shell.Kind, into T) T {
	decode(w.objects[kind][inA("x")], into)
	into.SetUID("")
	if c, ok := metav1.Object(into).(*v1beta2.IPAddressClaim); ok {
		c.Status = v1beta2.IPAddressClaimStatus{}
	}
	return into
}

// A claim and its IPAddress are put back while its machine runs. The owners of the IPAddress have other UIDs by now, so garbage collection deletes it. The
// claim keeps its address.
func TestClaimIsPutBack(t *testing.T) {
	w := newStory(t)
	w.claim("y", "v4")
	w.goOn(time.Minute)
	w.claim("x", "v4")
	w.goOn(time.Minute)
	w.release(t, "y")
	w.putBack(1)
	w.goOn(time.Minute)
	w.want(t, "x", "10.0.0.3 Ready")
	w.wantRecords(t, "x [10.0.0.3]")
}

// An IPAddress is copied, alone or with its claim and their namespace. When the copy is deleted, by a user or because its owners are not there, the original
// keeps its host record, and the copied claim gets an address of its own.
func TestIPAddressIsCopied(t *testing.T) {
	for name, tc := range map[string]struct {
		namespace string
		collected bool // before the controller sees the copies
		before    func(*world)
	}{
		"alone":                           {namespace: "a"},
		"with its namespace":              {namespace: "b", collected: true},
		"with its namespace, and late":    {namespace: "b"},
		"of a moved one":                  {namespace: "a", before: (*world).relocate},
		"of a moved one, namespace":       {namespace: "b", collected: true, before: (*world).relocate},
		"of a moved one, namespace, late": {namespace: "b", before: (*world).relocate},
		"of another program's":            {namespace: "a", before: (*world).unmark},
		"of another program's, namespace": {namespace: "b", collected: true, before: (*world).unmark},
		"of another program's, and late":  {namespace: "b", before: (*world).unmark},
	} {
		t.Run(name, func(t *testing.T) {
			w := newStoryOfX(t)
			if tc.before != nil {
				tc.before(w)
				w.want(t, "x", "10.0.0.2 Ready")
			}
			claim, address := copied(w, shell.IPAddressClaims, &v1beta2.IPAddressClaim{}), copied(w, shell.IPAddresses, &v1beta2.IPAddress{})
			claim.Namespace, address.Namespace = tc.namespace, tc.namespace
			if tc.namespace == "a" {
				address.Name, address.OwnerReferences = "copy", nil
			}
			w.put(shell.IPAddresses, address)
			if tc.collected {
				w.collectGarbage()
			}
			want := []string{"x [10.0.0.2]"}
			if tc.namespace == "b" {
				w.put(shell.IPAddressClaims, claim)
				want = append(want, fmt.Sprintf("x.%s [10.0.0.3]", metadataOf(w.objects[shell.IPAddressClaims][known.NameOf(claim)])["uid"]))
			}
			w.goOn(time.Minute)
			w.collectGarbage()
			_ = w.delete(shell.IPAddresses, known.NameOf(address), "")
			w.goOn(2 * time.Minute)
			w.want(t, "x", "10.0.0.2 Ready")
			w.wantRecords(t, want...)
			if w.objects[shell.IPAddresses][types.NamespacedName{Namespace: "a", Name: "copy"}] != nil {
				t.Error("the copy stays")
			}
		})
	}
}

// A claim is copied with its IPAddress, which nobody deletes, and then the original is released, which frees the address. The copied claim has another one.
func TestCopyOutlivesItsOriginal(t *testing.T) {
	pause := func(w *world, value string) {
		_ = w.patch(shell.InfobloxIPPools, types.NamespacedName{Namespace: "b", Name: "v4"}, shell.Patch{Body: fmt.Appendf(nil, `{"metadata": {"annotations": {%q: %s}}}`, v1beta2.AnnotationPaused, value)}, nil)
	}
	for name, tc := range map[string]struct {
		before func(*world)
		paused bool // the pool of the copy, until the original is gone
	}{
		"as it was made": {}, "moved": {before: (*world).relocate}, "of another program": {before: (*world).unmark},
		"as it was made, paused": {paused: true},
	} {
		t.Run(name, func(t *testing.T) {
			w := newStoryOfX(t)
			if tc.before != nil {
				tc.before(w)
			}
			claim, address := copied(w, shell.IPAddressClaims, &v1beta2.IPAddressClaim{}), copied(w, shell.IPAddresses, &v1beta2.IPAddress{})
			claim.Namespace, address.Namespace, address.OwnerReferences = "b", "b", nil
			if tc.paused {
				pause(w, `""`)
			}
			w.put(shell.IPAddresses, address)
			w.put(shell.IPAddressClaims, claim)
			w.goOn(time.Minute)
			w.release(t, "x")
			w.goOn(time.Minute)
			w.leader.end()
			w.elect()
			w.goOn(time.Minute)
			want := fmt.Sprintf("x.%s [10.0.0.3]", metadataOf(w.objects[shell.IPAddressClaims][known.NameOf(claim)])["uid"])
			if tc.paused { // Nobody has seen that it was a copy. It is deleted as the condition of its claim asks.
				w.wantRecords(t)
				pause(w, "null")
				w.goOn(time.Minute)
				if !w.said("Infoblox has no host record x with the address 10.0.0.2, which the IPAddress x says. Delete the IPAddress if no machine uses it.") {
					t.Error("nobody says what the claim waits for")
				}
				_ = w.delete(shell.IPAddresses, known.NameOf(address), "")
				w.goOn(time.Minute)
				want = "x [10.0.0.2]"
			}
			w.wantRecords(t, want)
		})
	}
}

// relocate gives claim x and its IPAddress other UIDs, as a move to another cluster does.
func (w *world) relocate() { w.putBack(0) }

// putBack does the same as a backup does: the IPAddress still names so many of its former owners, which are not there any more.
func (w *world) putBack(owners int) {
	w.leader.end()
	claim, address := copied(w, shell.IPAddressClaims, &v1beta2.IPAddressClaim{}), copied(w, shell.IPAddresses, &v1beta2.IPAddress{})
	address.OwnerReferences = address.OwnerReferences[:owners]
	w.strip("x")
	w.stripAddress("x")
	w.put(shell.IPAddressClaims, claim)
	w.put(shell.IPAddresses, address)
	w.collectGarbage()
	w.elect()
	w.goOn(time.Minute)
}

// unmark makes the IPAddress x and its host record those of another program.
func (w *world) unmark() {
	w.leader.end()
	w.strip("x")
	w.stripAddress("x")
	w.grid.Do(http.MethodDelete, w.hosts()[0].Ref, nil, nil)
	w.record("x", "10.0.0.2")
	w.address("x", "v4", "10.0.0.2")
	w.elect()
	w.claim("x", "v4")
	w.goOn(time.Minute)
}

// The claim of an IPAddress was forced away, or moved, so nobody knows which of it and its copy is the original. The last one gives up the host record, or both
// do if they go together.
func TestLastIPAddressOfARecord(t *testing.T) {
	for name, first := range map[string]string{"the copy first": "copy", "the original first": "x", "together": ""} {
		t.Run(name, func(t *testing.T) {
			w := newStoryOfX(t)
			address := copied(w, shell.IPAddresses, &v1beta2.IPAddress{})
			address.Name, address.OwnerReferences = "copy", nil
			if first == "x" {
				w.putBack(0)
			} else {
				w.strip("x")
			}
			w.put(shell.IPAddresses, address)
			w.goOn(time.Minute)
			if first == "x" {
				w.release(t, "x")
			}
			if first != "" {
				_ = w.delete(shell.IPAddresses, inA(first), "")
				w.goOn(time.Minute)
				w.wantRecords(t, "x [10.0.0.2]")
			}
			_ = w.delete(shell.IPAddresses, inA("x"), "")
			_ = w.delete(shell.IPAddresses, inA("copy"), "")
			w.leader.hearAll()
			for _, address := range w.leader.logic.Addresses.List() { // Both may be worked on at the same time.
				if w.leader.logic.Copied(address) {
					t.Errorf("%s leaves the host record to another one, which goes, too", address.Name)
				}
			}
			w.goOn(time.Minute)
			w.wantRecords(t)
		})
	}
}

// A moved claim is deleted while there is a copy of its IPAddress. Its own IPAddress goes, and then its release begins again. The host record is the copy's by
// then, and goes with it.
func TestReleaseBeginsAgainWhileACopyStays(t *testing.T) {
	w := newStoryOfX(t)
	i := w.releaseBesideACopy(t)
	w.leader.resume(i, errLost)
	w.goOn(time.Minute)
	w.want(t, "x", "gone")
	w.wantRecords(t, "x [10.0.0.2]")
	_ = w.delete(shell.IPAddresses, inA("copy"), "")
	w.goOn(time.Minute)
	w.wantRecords(t)
}

// The copy is deleted while the last write about the claim is on its way. Neither leaves the host record to the other one.
func TestCopyGoesWhileItsClaimGoes(t *testing.T) {
	w := newStoryOfX(t)
	i := w.releaseBesideACopy(t)
	last := w.leader.calls[i]
	w.leader.calls = slices.Delete(w.leader.calls, i, i+1)
	_ = w.delete(shell.IPAddresses, inA("copy"), "")
	w.goOn(time.Minute)
	w.leader.calls = append(w.leader.calls, last)
	w.leader.resume(len(w.leader.calls)-1, last.do())
	w.goOn(time.Minute)
	w.want(t, "x", "gone")
	w.wantRecords(t)
}

// releaseBesideACopy moves claim x, copies its IPAddress, and deletes the claim. It returns the write that lets the claim go.
func (w *world) releaseBesideACopy(t *testing.T) int {
	t.Helper()
	address := copied(w, shell.IPAddresses, &v1beta2.IPAddress{})
	address.Name, address.OwnerReferences = "copy", nil
	w.putBack(0)
	w.put(shell.IPAddresses, address)
	w.goOn(time.Minute)
	_ = w.delete(shell.IPAddressClaims, inA("x"), "")
	w.until(t, "delete IPAddress")
	return w.until(t, `patch IPAddressClaim a/x {"metadata":{"finalizers":[]`)
}

// A copy stands in the way of another claim, and a user deletes it, as the condition of that claim asks, while the original goes, too. Neither leaves the host record to the other one.
func TestCopyInTheWayGoesWithItsOriginal(t *testing.T) {
	w := newStoryOfX(t)
	address := copied(w, shell.IPAddresses, &v1beta2.IPAddress{})
	address.Name, address.OwnerReferences = "copy", nil
	w.relocate()
	w.put(shell.IPAddresses, address)
	w.claim("copy", "v6")
	w.goOn(time.Minute)
	w.want(t, "copy", "10.0.0.2 AllocationFailed")
	_ = w.delete(shell.IPAddresses, inA("copy"), "")
	late := w.hold("patch IPAddress a/copy")
	w.release(t, "x")
	w.leader.calls = append(w.leader.calls, late)
	w.leader.resume(len(w.leader.calls)-1, late.do())
	w.goOn(time.Minute)
	w.want(t, "copy", "fd00::1 Ready")
	w.wantRecords(t, "copy [fd00::1]")
}

// The DELETE of a moved claim's host record is not answered when a copy of its IPAddress and of the claim come. The copied claim is not Ready as long as the DELETE
// can be carried out, whoever leads by then.
func TestLateDeleteAfterACopyCame(t *testing.T) {
	for name, ends := range map[string]bool{"the same leader": false, "another leader": true} {
		t.Run(name, func(t *testing.T) {
			w := newStoryOfX(t)
			w.relocate()
			claim, address := copied(w, shell.IPAddressClaims, &v1beta2.IPAddressClaim{}), copied(w, shell.IPAddresses, &v1beta2.IPAddress{})
			claim.Namespace, address.Namespace, address.OwnerReferences = "b", "b", nil
			_ = w.delete(shell.IPAddressClaims, inA("x"), "")
			i := w.until(t, "DELETE record:host")
			late := w.leader.calls[i]
			w.put(shell.IPAddresses, address)
			w.put(shell.IPAddressClaims, claim)
			w.leader.resume(i, late.lost)
			w.goOn(settled / 3)
			if ends {
				w.leader.end()
				w.elect()
			}
			w.goOn(settled / 3)
			_ = late.do()
			w.goOn(time.Minute)
			w.want(t, "x", "gone")
			w.wantRecords(t)
			if decode(w.objects[shell.IPAddressClaims][known.NameOf(claim)], claim); known.WasServed(claim) {
				t.Error("the copied claim has the address, whose host record is deleted")
			}
		})
	}
}

// A process ends while its DELETE of a host record is on the way. Somebody forces the claim and its IPAddress away, and puts both back. The claim is not Ready as long as the
// DELETE can be carried out.
func TestClaimIsPutBackBeforeALateDelete(t *testing.T) {
	w := newStoryOfX(t)
	claim, address := copied(w, shell.IPAddressClaims, &v1beta2.IPAddressClaim{}), copied(w, shell.IPAddresses, &v1beta2.IPAddress{})
	address.OwnerReferences = nil
	_ = w.delete(shell.IPAddressClaims, inA("x"), "")
	late := w.hold("DELETE record:host")
	w.leader.end()
	w.strip("x")
	w.stripAddress("x")
	w.put(shell.IPAddressClaims, claim)
	w.put(shell.IPAddresses, address)
	w.elect()
	w.goOn(settled - time.Second)
	_ = late.do()
	w.goOn(time.Minute)
	w.wantRecords(t)
	w.want(t, "x", "10.0.0.2 AllocationFailed")
}

// Another program's IPAddress takes the name of a moved claim whose own one was forced away. The machine of the claim may run, so a copy that goes leaves its host record.
func TestCopyGoesWhileAnotherIPAddressIsInTheWay(t *testing.T) {
	w := newStoryOfX(t)
	w.relocate()
	address := copied(w, shell.IPAddresses, &v1beta2.IPAddress{})
	address.Name, address.OwnerReferences = "copy", nil
	w.put(shell.IPAddresses, address)
	w.goOn(time.Minute)
	w.stripAddress("x")
	w.put(shell.IPAddresses, &v1beta2.IPAddress{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "x"},
		Spec: v1beta2.IPAddressSpec{Address: "192.168.0.1", PoolRef: v1beta2.IPPoolReference{APIGroup: shell.GroupIPAM, Kind: "InClusterIPPool", Name: "v4"}}})
	w.goOn(time.Minute)
	_ = w.delete(shell.IPAddresses, inA("copy"), "")
	w.goOn(time.Minute)
	w.wantRecords(t, "x [10.0.0.2]")
	_ = w.delete(shell.IPAddresses, inA("x"), "")
	w.goOn(time.Minute)
	w.want(t, "x", "10.0.0.2 Ready")
}

// A claim that has no IPAddress yet gives up its host record because its user wishes another one, and nobody answers the DELETE. Then the user wishes the first one again. The
// claim gets its IPAddress only when the DELETE cannot take the record away any more.
func TestLateDeleteOfARecordThatIsWishedAgain(t *testing.T) {
	for name, restarts := range map[string]bool{"one process": false, "another process": true} {
		t.Run(name, func(t *testing.T) {
			w := newStory(t)
			w.inRecord("x", "v4", "h")
			w.leader.resume(w.until(t, "create IPAddress"), apierrors.NewInvalid(schema.GroupKind{Kind: v1beta2.KindIPAddress}, "x", nil))
			w.wishes(inA("x"), "g")
			i := w.until(t, "DELETE record:host")
			late := w.leader.calls[i]
			w.leader.resume(i, &wapi.Error{Request: http.MethodDelete, Err: errLost})
			w.wishes(inA("x"), "h")
			if restarts {
				w.leader.calls, w.leader.dead = nil, true
				w.elect()
			}
			w.goOn(settled / 3)
			_ = late.do()
			w.goOn(time.Minute)
			w.want(t, "x", "10.0.0.2 Ready")
			w.wantRecords(t, "h [10.0.0.2]")
		})
	}
}

// The user of a claim without an IPAddress wishes another name, and then the first one again while the former record is being given up. The claim has a new one, which
// somebody renames. When the claim goes, an event names that one.
func TestRecordThatIsWishedAgainIsRenamed(t *testing.T) {
	w := newStory(t)
	w.inRecord("x", "v4", "h")
	w.leader.resume(w.until(t, "create IPAddress"), apierrors.NewInvalid(schema.GroupKind{Kind: v1beta2.KindIPAddress}, "x", nil))
	w.wishes(inA("x"), "g")
	i := w.until(t, "DELETE record:host")
	err := w.leader.calls[i].do()
	w.wishes(inA("x"), "h")
	w.leader.hearAll()
	w.leader.resume(i, err)
	w.goOn(time.Minute)
	w.want(t, "x", "10.0.0.2 Ready")
	w.grid.Do(http.MethodPut, w.hosts()[0].Ref, nil, []byte(`{"name": "web-1"}`))
	w.release(t, "x")
	if !w.said("has no host record h of this object") {
		t.Error("no event says that the record is not found")
	}
}

// The leader ends while it deletes the host record of an IPAddress without a claim. The next one deletes it, too, and then waits until the first DELETE is
// over: a record of the name that is created meanwhile would have the same reference.
func TestLateDeleteOfAnIPAddressWithoutClaim(t *testing.T) {
	w := newStoryOfX(t)
	w.stray(func() {})
	_ = w.delete(shell.IPAddresses, inA("x"), "")
	w.lateDelete(t, "10.0.0.3")
}

// The same, and another program has created the IPAddress.
func TestLateDeleteOfAnIPAddressOfAnotherProgram(t *testing.T) {
	w := newStory(t)
	w.record("x", "10.0.0.2")
	w.address("x", "v4", "10.0.0.2")
	w.goOn(time.Minute)
	_ = w.delete(shell.IPAddresses, inA("x"), "")
	w.lateDelete(t, "10.0.0.2")
}

// The same for a claim that is deleted before it has an IPAddress.
func TestLateDeleteOfAClaimWithoutIPAddress(t *testing.T) {
	w := newStory(t)
	w.claim("x", "v4")
	w.leader.resume(w.until(t, "create IPAddress"), apierrors.NewInvalid(schema.GroupKind{Kind: "IPAddress"}, "x", nil))
	_ = w.delete(shell.IPAddressClaims, inA("x"), "")
	w.lateDelete(t, "10.0.0.2")
}

// lateDelete ends the leader while its DELETE of the host record x is on the way. Before it arrives, a claim wishes a record of that name,
// and gets an address that it keeps.
func (w *world) lateDelete(t *testing.T, address string) {
	t.Helper()
	late := w.leader.calls[w.until(t, "DELETE")]
	w.leader.calls, w.leader.dead = nil, true
	w.elect()
	w.goOn(settled / 3)
	w.inRecord("y", "v4", "x")
	w.goOn(settled / 3)
	_ = late.do()
	w.goOn(time.Minute)
	w.want(t, "y", address+" Ready")
	w.wantRecords(t, "x ["+address+"]")
}

// The leader ends while its create of an IPAddress is on the way, and the claim needs its host record no more. Until that create has arrived, nobody else gets
// the address.
func TestLateIPAddressOfAnEarlierLeader(t *testing.T) {
	for name, then := range map[string]func(*world){
		"the claim wishes another name": func(w *world) { w.wishes(inA("x"), "other") },
		"the claim is deleted":          func(w *world) { _ = w.delete(shell.IPAddressClaims, inA("x"), "") },
	} {
		t.Run(name, func(t *testing.T) {
			w := newStory(t)
			w.claim("x", "v4")
			late := w.leader.calls[w.until(t, "create IPAddress")]
			w.leader.calls, w.leader.dead = nil, true
			then(w)
			w.elect()
			w.goOn(writeLasts / 3)
			w.claim("y", "v4")
			w.goOn(writeLasts / 3)
			_ = late.do()
			if w.judge(); w.violation != "" {
				t.Error(w.violation)
			}
			w.goOn(time.Minute)
			w.want(t, "y", "10.0.0.3 Ready")
		})
	}
}

// A create of an IPAddress is not answered, and then another one is edited so that it says the same address. The claim keeps the address, which the IPAddress says
// when it comes.
func TestLateIPAddressOfAnEditedAddress(t *testing.T) {
	w := newStory(t)
	w.claim("y", "v4")
	w.goOn(time.Minute)
	w.claim("x", "v4")
	i := w.until(t, "create IPAddress")
	late := w.leader.calls[i]
	w.leader.resume(i, errLost)
	w.editSpec(shell.IPAddresses, "y", `{"address": "10.0.0.3"}`)
	w.goOn(time.Second)
	_ = late.do()
	w.goOn(time.Minute)
	w.want(t, "x", "10.0.0.3 Ready")
	w.wantRecords(t, "x [10.0.0.3]", "y [10.0.0.2]")
}

// An IPAddress is edited so that it says the address of another claim, which gets its IPAddress at this moment. The cache shows the edit first. The claim keeps its address,
// whenever the cache shows the IPAddress.
func TestIPAddressIsShownAfterAnEdit(t *testing.T) {
	for name, shown := range map[string]bool{"after the claim is looked at": false, "while the claim is looked at": true} {
		t.Run(name, func(t *testing.T) {
			w := newStory(t)
			w.claim("y", "v4")
			w.goOn(time.Minute)
			w.claim("x", "v4")
			i := w.until(t, "create IPAddress")
			w.leader.hearAll()
			w.editSpec(shell.IPAddresses, "y", `{"address": "10.0.0.3"}`)
			w.leader.answer(i, true)
			for len(w.leader.calls) > 0 {
				w.leader.answer(0, true)
			}
			w.leader.hear() // of the edit
			w.leader.begin(shell.Key{Kind: shell.IPAddressClaims, Namespace: "a", Name: "x"})
			w.until(t, "GET record:host")
			if shown {
				w.leader.hearAll()
			}
			for len(w.leader.calls) > 0 {
				w.leader.answer(0, true)
			}
			w.goOn(time.Minute)
			w.want(t, "x", "10.0.0.3 Ready")
			w.wantRecords(t, "x [10.0.0.3]", "y [10.0.0.2]")
		})
	}
}

// The same, and before its IPAddress the cache shows an earlier one of its name, and that it is gone.
func TestIPAddressIsShownAfterAnEarlierOneAndAnEdit(t *testing.T) {
	w := newStory(t)
	w.claim("y", "v4")
	w.goOn(time.Minute)
	w.claim("x", "v4")
	i := w.until(t, "create IPAddress")
	w.leader.hearAll()
	w.anotherAddressComes()
	w.stripAddress("x")
	w.editSpec(shell.IPAddresses, "y", `{"address": "10.0.0.3"}`)
	before := len(w.log)
	w.leader.answer(i, true)
	for len(w.leader.calls) > 0 {
		w.leader.answer(0, true)
	}
	w.leader.behind()
	for range len(w.leader.unheard) - (len(w.log) - before) {
		w.leader.hear()
	}
	w.leader.begin(shell.Key{Kind: shell.IPAddressClaims, Namespace: "a", Name: "x"})
	w.until(t, "GET record:host")
	for len(w.leader.calls) > 0 {
		w.leader.answer(0, true)
	}
	w.goOn(time.Minute)
	w.want(t, "x", "10.0.0.3 Ready")
	w.wantRecords(t, "x [10.0.0.3]", "y [10.0.0.2]", "z [10.0.0.5]")
}

// A create of an IPAddress is not answered, and somebody deletes the host record. Nobody else gets its address before the IPAddress comes, also if the claim tries again.
func TestLateIPAddressOfADeletedRecord(t *testing.T) {
	w := newStory(t)
	w.claim("x", "v6")
	i := w.until(t, "create IPAddress")
	late := w.leader.calls[i]
	w.leader.resume(i, errLost)
	w.grid.Do(http.MethodDelete, w.hosts()[0].Ref, nil, nil)
	w.claim("y", "v6")
	w.until(t, `"name":"y"`)
	for len(w.hosts()) == 0 {
		w.step(w.leader, true)
	}
	looks := w.hold("name=y")
	w.now = w.now.Add(2 * time.Second)
	again := w.hold("create IPAddress a/x")
	w.leader.calls = append(w.leader.calls, looks)
	for w.step(w.leader, true) {
	}
	_ = late.do()
	if again != nil {
		w.leader.calls = append(w.leader.calls, again)
	}
	w.goOn(time.Minute)
	w.want(t, "x", "fd00::1 Ready")
	w.want(t, "y", "fd00::2 Ready")
}

// The same, and the process ends. The next one does not know the address that the IPAddress says.
func TestLateIPAddressOfADeletedRecordAfterARestart(t *testing.T) {
	w := newStory(t)
	w.claim("x", "v6")
	late := w.leader.calls[w.until(t, "create IPAddress")]
	w.leader.calls, w.leader.dead = nil, true
	w.grid.Do(http.MethodDelete, w.hosts()[0].Ref, nil, nil)
	w.claim("y", "v6")
	w.elect()
	w.goOn(writeLasts - time.Second)
	_ = late.do()
	w.goOn(time.Minute)
	w.want(t, "x", "fd00::1 Ready")
	w.want(t, "y", "fd00::2 Ready")
}

// The same, and while the next one starts an IPAddress of another program stands in the way of the late one.
func TestLateIPAddressBehindAnotherAfterARestart(t *testing.T) {
	w := newStory(t)
	w.claim("x", "v6")
	late := w.leader.calls[w.until(t, "create IPAddress")]
	w.leader.calls, w.leader.dead = nil, true
	w.grid.Do(http.MethodDelete, w.hosts()[0].Ref, nil, nil)
	w.claim("y", "v6")
	w.put(shell.IPAddresses, &v1beta2.IPAddress{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "x"},
		Spec: v1beta2.IPAddressSpec{Address: "192.168.0.1", PoolRef: v1beta2.IPPoolReference{APIGroup: shell.GroupIPAM, Kind: "InClusterIPPool", Name: "v4"}}})
	w.elect()
	w.goOn(writeLasts - time.Second)
	_ = w.delete(shell.IPAddresses, inA("x"), "")
	_ = late.do()
	w.goOn(time.Minute)
	w.want(t, "x", "fd00::1 Ready")
	w.want(t, "y", "fd00::3 Ready") // Claim x has got a second host record meanwhile.
}

// An IPAddress is not created, somebody deletes the host record, and Infoblox gives its address, the last one of the pool, to the next claim. That gets it when no create can
// come any more, although the first claim waits for an address.
func TestAddressOfADeletedRecordGetsFree(t *testing.T) {
	for name, err := range map[string]error{
		"no answer": errLost,
		"refused":   apierrors.NewInvalid(schema.GroupKind{Kind: v1beta2.KindIPAddress}, "x", nil),
	} {
		t.Run(name, func(t *testing.T) {
			w := newStory(t)
			for n := 2; n <= 5; n++ {
				w.record(fmt.Sprint("other", n), fmt.Sprint("10.0.0.", n))
			}
			w.claim("x", "v4")
			w.leader.resume(w.until(t, "create IPAddress"), err)
			w.deleteRecord("x")
			w.claim("y", "v4")
			w.leader.hearAll()
			w.leader.begin(shell.Key{Kind: shell.IPAddressClaims, Namespace: "a", Name: "y"})
			for len(w.leader.calls) > 0 {
				w.leader.answer(0, true)
			}
			w.goOn(2 * time.Minute)
			w.want(t, "x", " PoolExhausted")
			w.want(t, "y", "10.0.0.6 Ready")
		})
	}
}

// hold goes on until a request is on its way, which nobody carries out or answers then. It returns nil if nobody sends it.
func (w *world) hold(request string) *call {
	for {
		if i := slices.IndexFunc(w.leader.calls, func(c *call) bool { return strings.Contains(c.what, request) }); i >= 0 {
			c := w.leader.calls[i]
			w.leader.calls = slices.Delete(w.leader.calls, i, i+1)
			return c
		}
		if !w.step(w.leader, true) {
			return nil
		}
	}
}

// A process ends while what tells a claim of its IPAddress is on its way. Somebody takes the IPAddress away, and the pool names another Infoblox. The host record stays,
// because the claim may yet be told so.
func TestLateTellingOfAnEarlierLeader(t *testing.T) {
	w := newStory(t)
	w.far()
	w.claim("x", "v4")
	late := w.leader.calls[w.until(t, "addressRef")]
	w.leader.calls, w.leader.dead = nil, true
	w.elect()
	w.stripAddress("x")
	w.editSpec(shell.InfobloxIPPools, "v4", `{"instance": {"name": "k"}}`)
	w.goOn(writeLasts / 2)
	if err := late.do(); err != nil {
		t.Fatal(err)
	}
	w.goOn(time.Minute)
	w.wantRecords(t, "x [10.0.0.2]")
	w.editSpec(shell.InfobloxIPPools, "v4", `{"instance": {"name": "i"}}`)
	w.goOn(2 * time.Minute)
	w.want(t, "x", "10.0.0.2 Ready")
}

// anotherAddressComes gives claim x an IPAddress of an earlier claim of its name, with the host record z.
func (w *world) anotherAddressComes() {
	w.anotherComes("x", "10.0.0.5", "z", "5f0b1c8e-0000-4000-8000-000000000001")
}

func (w *world) anotherComes(claim, address, record string, earlier types.UID) {
	w.grid.Do(http.MethodPost, "record:host", nil, shell.Encode(host.Record{Name: record, NetworkView: "default", IPv4: []host.Addr4{{Address: address}},
		Comment: host.Mark([]types.UID{earlier}, "a/"+claim)}))
	w.address(claim, "v4", address)
	_ = w.patch(shell.IPAddresses, inA(claim), shell.Patch{Body: fmt.Appendf(nil, `{"metadata": {"annotations": {%q: %q, %q: "i/default", %q: %q}}}`, known.AnnotationClaim, earlier, known.AnnotationPlace, known.AnnotationName, record)}, nil)
}

// A claim has a host record when its IPAddress comes, which has another one: of an earlier claim of its name, in a watch that is late. It gives up its own, and
// keeps that of the IPAddress, whatever becomes of it.
func TestIPAddressOfAnotherRecordComes(t *testing.T) {
	for name, then := range map[string]func(*world){
		"and stays":      func(*world) {},
		"is forced away": func(w *world) { w.stripAddress("x") },
		"is forced away, another process": func(w *world) {
			w.leader.end()
			w.stripAddress("x")
			w.elect()
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newStory(t)
			w.claim("x", "v4")
			w.until(t, "create IPAddress")
			w.anotherAddressComes()
			w.goOn(time.Minute)
			w.want(t, "x", "10.0.0.5 Ready")
			w.wantRecords(t, "z [10.0.0.5]")
			then(w)
			w.goOn(2 * time.Minute)
			w.want(t, "x", "10.0.0.5 Ready")
			w.release(t, "x")
			w.wantRecords(t)
		})
	}
}

// The same, and the claim is deleted before it has given up its own host record. Both go, also if the InfobloxInstance of its own stays away.
func TestIPAddressOfAnotherRecordComesTooLate(t *testing.T) {
	for name, tc := range map[string]struct {
		instance string
		wait     time.Duration
	}{"one Infoblox": {"i", time.Minute}, "an InfobloxInstance stays away": {"k", lostServerAfter + time.Minute}} {
		t.Run(name, func(t *testing.T) {
			w := newStory(t)
			w.far()
			w.editSpec(shell.InfobloxIPPools, "v4", fmt.Sprintf(`{"instance": {"name": %q}}`, tc.instance))
			w.claim("x", "v4")
			i := w.until(t, "create IPAddress")
			w.anotherAddressComes()
			w.leader.resume(i, errLost)
			_ = w.delete(shell.IPAddressClaims, inA("x"), "")
			if tc.instance == "k" {
				_ = w.delete(shell.InfobloxInstances, types.NamespacedName{Name: "k"}, "")
			}
			w.goOn(tc.wait)
			w.want(t, "x", "gone")
			w.wantRecords(t)
			if tc.instance == "k" && !w.said("If Infoblox still has the host record x in the network view default, delete it there.") {
				t.Error("nobody names the host record that stays")
			}
		})
	}
}

// The same, and the InfobloxInstance of the claim's own host record is not ready. The claim says why it waits.
func TestIPAddressOfAnotherRecordComesWhileOneIsNotReady(t *testing.T) {
	w := newStory(t)
	w.far()
	w.editSpec(shell.InfobloxIPPools, "v4", `{"instance": {"name": "k"}}`)
	w.claim("x", "v4")
	w.until(t, "create IPAddress")
	w.credentials("k", "missing")
	w.anotherAddressComes()
	w.goOn(2 * time.Minute)
	w.want(t, "x", "10.0.0.5 AllocationFailed")
	if !w.said("The claim had the host record x before, and the InfobloxInstance k cannot give it up.") {
		t.Error("the claim does not say why it waits")
	}
	w.credentials("k", "s")
	w.goOn(2 * time.Minute)
	w.want(t, "x", "10.0.0.5 Ready")
	if len(w.other.Hosts()) > 0 {
		t.Errorf("the claim keeps %v", w.other.Hosts())
	}
}

// credentials lets an InfobloxInstance name a Secret.
func (w *world) credentials(instance, secret string) {
	_ = w.patch(shell.InfobloxInstances, types.NamespacedName{Name: instance}, shell.Patch{Body: fmt.Appendf(nil, `{"metadata": {}, "spec": {"credentialsSecretRef": {"name": %q}}}`, secret)}, nil)
}

// The same, and a create of an IPAddress with the claim's own host record is on its way when it gives that up. Somebody takes the IPAddress away, so that the other one
// can come.
func TestIPAddressOfAnotherRecordComesFirst(t *testing.T) {
	w := newStory(t)
	w.goOn(time.Minute) // At its start a process waits for what the one before may have sent.
	w.claim("x", "v4")
	late := w.lateAfterAnother(t)
	w.goOn(2 * time.Second)
	w.claim("y", "v4")
	w.goOn(time.Second)
	w.comesAfterAll(t, late)
}

// The same, and another claim wishes the host record that the claim gives up. It waits until that is done, and does not get the address with the record.
func TestRecordIsJoinedThatIsGivenUp(t *testing.T) {
	for name, restarts := range map[string]bool{"one process": false, "another process": true} {
		t.Run(name, func(t *testing.T) {
			w := newStory(t)
			w.inRecord("x", "v4", "h")
			late := w.lateAfterAnother(t)
			if restarts {
				w.leader.end()
				w.elect()
			}
			w.inRecord("y", "v4", "h")
			w.goOn(3 * time.Second)
			w.comesAfterAll(t, late)
		})
	}
}

// lateAfterAnother loses the answer to the create of the IPAddress of claim x, which gets another one first.
func (w *world) lateAfterAnother(t *testing.T) (late *call) {
	t.Helper()
	i := w.until(t, "create IPAddress")
	late = w.leader.calls[i]
	w.leader.resume(i, errLost)
	w.anotherAddressComes()
	return late
}

// comesAfterAll takes the IPAddress of claim x away, so that the late one can come. It has the address that x got, and y another one.
func (w *world) comesAfterAll(t *testing.T, late *call) {
	t.Helper()
	w.stripAddress("x")
	_ = late.do()
	w.goOn(time.Minute)
	if w.judge(); w.violation != "" {
		t.Error(w.violation)
	}
	w.want(t, "x", "10.0.0.2 Ready")
	w.want(t, "y", "10.0.0.3 Ready")
}

// The same, and somebody deletes the claim's own host record meanwhile, so that Infoblox gives its address to the next claim. That does not get it as long as the create can
// be carried out.
func TestIPAddressOfAnotherRecordComesAndOneIsDeleted(t *testing.T) {
	w := newStory(t)
	w.claim("x", "v6")
	late := w.lateAfterAnother(t)
	w.goOn(time.Second)
	w.deleteRecord("x")
	w.claim("y", "v6")
	w.goOn(time.Second)
	w.stripAddress("x")
	_ = late.do()
	w.goOn(time.Minute)
	w.want(t, "x", "fd00::1 Ready")
	w.want(t, "y", "fd00::2 Ready")
}

// deleteRecord deletes a host record by hand.
func (w *world) deleteRecord(name string) {
	for _, h := range w.hosts() {
		if h.Name == name {
			w.grid.Do(http.MethodDelete, h.Ref, nil, nil)
		}
	}
}

// The same, and the claim was told of its own IPAddress, which nothing has answered, and the watch of claims does not show yet. Its own host record stays as long as the
// claim is there: its machine may use the address.
func TestIPAddressOfAnotherRecordComesAfterTheClaimWasTold(t *testing.T) {
	w := newStory(t)
	w.claim("x", "v4")
	told := w.leader.calls[w.until(t, "addressRef")]
	w.claim("y", "v4")
	w.leader.hearAll()
	if err := told.do(); err != nil {
		t.Fatal(err)
	}
	w.stripAddress("x")
	w.anotherAddressComes()
	w.leader.resume(slices.Index(w.leader.calls, told), errLost)
	w.leader.behind()
	late := w.leader.unheard
	w.leader.unheard = nil
	for _, c := range late {
		if c.kind == shell.IPAddresses {
			w.leader.show(c)
		}
	}
	late = slices.DeleteFunc(late, func(c change) bool { return c.kind == shell.IPAddresses })
	for range 2 * writeLasts / time.Second {
		for _, name := range []string{"x", "y"} {
			if key := (shell.Key{Kind: shell.IPAddressClaims, Namespace: "a", Name: name}); !w.leader.runs[key] {
				w.leader.begin(key)
			}
			for len(w.leader.calls) > 0 {
				w.leader.answer(0, true)
			}
		}
		w.now = w.now.Add(time.Second)
		w.leader.lease = w.now.Add(leaseLasts)
	}
	w.leader.behind()
	w.leader.unheard = append(late, w.leader.unheard...)
	w.goOn(time.Minute)
	w.want(t, "x", "10.0.0.5 Ready")
	w.want(t, "y", "10.0.0.3 Ready")
	w.wantRecords(t, "x [10.0.0.2]", "y [10.0.0.3]", "z [10.0.0.5]")
	w.release(t, "x")
	w.wantRecords(t, "y [10.0.0.3]")
}

// The same, and it is gone before the claim's own is created, which the watch does not show yet. The claim does not give up its own host record, also if it is deleted.
func TestIPAddressOfAnotherRecordIsShownLate(t *testing.T) {
	for name, deleted := range map[string]bool{"and the claim stays": false, "and the claim is deleted": true} {
		t.Run(name, func(t *testing.T) {
			w := newStory(t)
			w.claim("x", "v4")
			i := w.until(t, "create IPAddress")
			w.leader.hearAll()
			w.anotherAddressComes()
			shown := len(w.log)
			w.stripAddress("x")
			w.leader.answer(i, true)
			w.leader.resume(w.until(t, known.AnnotationAddress), errLost)
			w.leader.behind()
			for range len(w.leader.unheard) - (len(w.log) - shown) {
				w.leader.hear()
			}
			if deleted {
				_ = w.delete(shell.IPAddressClaims, inA("x"), "")
				w.leader.show(w.log[len(w.log)-1])
			}
			w.pass(int(writeLasts / time.Second))
			w.leader.begin(shell.Key{Kind: shell.IPAddressClaims, Namespace: "a", Name: "x"})
			for len(w.leader.calls) > 0 {
				w.leader.answer(0, true)
			}
			w.wantRecords(t, "x [10.0.0.2]", "z [10.0.0.5]")
			w.goOn(time.Minute)
			if deleted {
				w.want(t, "x", "gone")
				w.wantRecords(t, "z [10.0.0.5]")
				return
			}
			w.want(t, "x", "10.0.0.2 Ready")
			w.wantRecords(t, "x [10.0.0.2]", "z [10.0.0.5]")
		})
	}
}

// The same, and the leader ends while it gives up the claim's own host record. The IPAddress is taken away, and the claim gets none with its own record as long as the DELETE
// can be carried out.
func TestLateDeleteAfterAnotherRecordCame(t *testing.T) {
	w := newStory(t)
	w.goOn(settled)
	w.claim("x", "v4")
	w.until(t, "create IPAddress")
	w.anotherAddressComes()
	late := w.leader.calls[w.until(t, "DELETE record:host")]
	w.leader.calls, w.leader.dead = nil, true
	w.elect()
	w.stripAddress("x")
	w.goOn(settled / 2)
	_ = late.do()
	w.goOn(time.Minute)
	w.want(t, "x", "10.0.0.2 Ready")
	w.wantRecords(t, "x [10.0.0.2]", "z [10.0.0.5]")
}

// The same for two claims that share their own host record. They do not wait for each other.
func TestIPAddressesOfOtherRecordsCome(t *testing.T) {
	w := newStory(t)
	w.inRecord("x", "v4", "h")
	x := w.hold(known.AnnotationAddress)
	w.leader.hearAll()
	w.inRecord("y", "v4", "h")
	y := w.hold("create IPAddress a/y")
	w.wantRecords(t, "h [10.0.0.2 10.0.0.3]")
	w.stripAddress("x")
	w.anotherAddressComes()
	w.anotherComes("y", "10.0.0.6", "k", "5f0b1c8e-0000-4000-8000-000000000002")
	w.leader.hearAll()
	for _, c := range []*call{x, y} {
		w.leader.calls = append(w.leader.calls, c)
		w.leader.resume(len(w.leader.calls)-1, errLost)
	}
	w.goOn(2 * time.Minute)
	w.want(t, "x", "10.0.0.5 Ready")
	w.want(t, "y", "10.0.0.6 Ready")
	w.wantRecords(t, "k [10.0.0.6]", "z [10.0.0.5]")
}

// The subnet of a pool is replaced while a claim has a host record and no IPAddress. What stays of the record is named when the claim goes.
func TestSubnetIsReplaced(t *testing.T) {
	w := newStory(t)
	w.grid.Networks["default"] = append(w.grid.Networks["default"], netip.MustParsePrefix("10.1.0.0/29"))
	w.claim("x", "v4")
	for len(w.hosts()) == 0 {
		w.step(w.leader, true)
	}
	w.leader.calls, w.leader.dead = nil, true
	w.editSpec(shell.InfobloxIPPools, "v4", `{"subnets": [{"cidr": "10.1.0.0/29", "gateway": "10.1.0.1"}]}`)
	w.now = w.now.Add(time.Minute)
	w.elect()
	w.goOn(2 * time.Minute)
	w.want(t, "x", "10.1.0.2 Ready")
	_ = w.delete(shell.IPAddressClaims, inA("x"), "")
	w.goOn(2 * time.Minute)
	w.want(t, "x", "gone")
	if len(w.hosts()) > 0 && !w.said("The host record x in the network view default keeps the addresses "+fmt.Sprint(w.hosts()[0].Addresses())) {
		t.Errorf("nobody says that %v is left", w.hosts())
	}
}

// The claim of a pool is edited to another pool. It keeps its address and releases it, and the first pool goes after that.
func TestClaimIsEdited(t *testing.T) {
	w := newStoryOfX(t)
	w.editSpec(shell.IPAddressClaims, "x", `{"poolRef": {"name": "v6"}}`)
	w.goOn(time.Minute)
	w.want(t, "x", "10.0.0.2 Ready")
	if !w.said("event SpecEdited: The address is of the InfobloxIPPool v4, and stays so: set spec.poolRef back") {
		t.Error("no event says what to do")
	}
	_ = w.delete(shell.InfobloxIPPools, inA("v4"), "")
	w.goOn(time.Minute)
	if w.objects[shell.InfobloxIPPools][inA("v4")] == nil {
		t.Error("the pool is gone before its IPAddress")
	}
	w.release(t, "x")
	w.wantRecords(t)
	if w.objects[shell.InfobloxIPPools][inA("v4")] != nil {
		t.Error("the pool never goes")
	}
}

// A claim that was moved, and has been told its address here, is edited to another pool. It keeps its address, and takes its IPAddress along when it goes.
func TestMovedClaimIsEdited(t *testing.T) {
	for name, before := range map[string]func(*world){"moved": (*world).relocate, "of another program": (*world).unmark} {
		t.Run(name, func(t *testing.T) {
			w := newStoryOfX(t)
			before(w)
			w.want(t, "x", "10.0.0.2 Ready")
			w.editSpec(shell.IPAddressClaims, "x", `{"poolRef": {"name": "v6"}}`)
			w.goOn(time.Minute)
			w.want(t, "x", "10.0.0.2 Ready")
			if !w.said("event SpecEdited: The address is of the InfobloxIPPool v4, and stays so: set spec.poolRef back") {
				t.Error("no event says what to do")
			}
			w.release(t, "x")
			w.wantRecords(t)
			if w.objects[shell.IPAddresses][inA("x")] != nil {
				t.Error("the IPAddress stays")
			}
		})
	}
}

// A claim names another provider's pool by now. It keeps its address, and nothing is written about it, until it is deleted: nobody else gives up its host record.
// It does not matter whether the controller has seen it otherwise.
func TestClaimThatNamesAnotherProvider(t *testing.T) {
	for name, restarts := range map[string]bool{"the same leader": false, "a new leader": true} {
		t.Run(name, func(t *testing.T) {
			w := newStoryOfX(t)
			w.editSpec(shell.IPAddressClaims, "x", `{"poolRef": {"kind": "ExamplePool", "name": "p"}}`)
			if restarts {
				w.end()
				w.elect()
			}
			w.goOn(time.Minute)
			w.wantRecords(t, "x [10.0.0.2]")
			pause := func(how string) {
				_ = w.patch(shell.InfobloxIPPools, inA("v4"), shell.Patch{Body: fmt.Appendf(nil, `{"metadata": {"annotations": {%q: %s}}}`, v1beta2.AnnotationPaused, how)}, nil)
			}
			pause(`"true"`)
			w.goOn(time.Second)
			_ = w.delete(shell.IPAddressClaims, inA("x"), "")
			w.goOn(time.Minute)
			w.wantRecords(t, "x [10.0.0.2]")
			pause("null")
			w.goOn(time.Minute)
			w.want(t, "x", "gone")
			w.wantRecords(t)
		})
	}
}

// The claim of a pool is edited to another kind of pool, and removed by force. Nothing of it is remembered.
func TestClaimOfAnotherKindIsForgotten(t *testing.T) {
	w := newStoryOfX(t)
	w.editSpec(shell.IPAddressClaims, "x", `{"poolRef": {"kind": "InClusterIPPool", "name": "p"}}`)
	w.goOn(time.Minute)
	w.strip("x")
	w.goOn(time.Minute)
	if l := w.leader.logic; len(l.Names)+len(l.Prepared) > 0 {
		t.Errorf("it still knows %v and %v", l.Names, l.Prepared)
	}
}

// inRecord makes a claim that wishes a host record of this name.
func (w *world) inRecord(name, pool, record string) {
	w.claim(name, pool)
	w.wishes(inA(name), record)
}

// share lets the claims x and y share a host record.
func (w *world) share(t *testing.T) {
	t.Helper()
	for name, pool := range map[string]string{"x": "v4", "y": "v6"} {
		w.inRecord(name, pool, "h")
		w.goOn(time.Minute)
	}
	w.wantRecords(t, "h [10.0.0.2 fd00::1]")
}

// The IPAddress of a claim is edited, and shares its host record with another one. Its machine has what was allocated, so that stays in Infoblox when the
// other claim goes, and nobody else gets it.
func TestIPAddressIsEdited(t *testing.T) {
	w := newStory(t)
	w.share(t)
	w.editSpec(shell.IPAddresses, "x", `{"address": "10.0.0.6"}`)
	w.goOn(time.Minute)
	if !w.said(`event SpecEdited: The address is 10.0.0.2. The IPAddress was edited, and says "10.0.0.6": set its spec back`) {
		t.Error("no event says what to do")
	}
	l := w.leader.logic
	for _, address := range []string{"10.0.0.2", "10.0.0.6"} {
		if !(known.At{World: l.World, Place: known.Place{Instance: "i", NetworkView: "default"}}).HeldByAnother("another", netip.MustParseAddr(address)) {
			t.Errorf("another claim may get %s", address)
		}
	}
	w.stripAddress("y")
	w.leader.hearAll()
	_ = w.delete(shell.IPAddressClaims, inA("y"), "")
	w.goOn(time.Minute)
	w.want(t, "y", "gone")
	w.wantRecords(t, "h [10.0.0.2]")
	w.release(t, "x")
	w.wantRecords(t)
	if len(l.Holders)+len(l.First)+len(l.Removed) > 0 {
		t.Errorf("it still knows %v, %v and %v", l.Holders, l.First, l.Removed)
	}
}

// The IPAddress of a claim was edited before the controller started, so that it says what another one has that shares its host record. Nobody knows which
// of the two was edited, so the release of the other one takes no address away: the machine of the first may have each.
func TestIPAddressIsEditedUnseen(t *testing.T) {
	w := newStory(t)
	w.share(t)
	w.leader.end()
	w.editSpec(shell.IPAddresses, "y", `{"address": "10.0.0.2"}`)
	w.elect()
	w.goOn(time.Minute)
	w.release(t, "x")
	w.wantRecords(t, "h [10.0.0.2 fd00::1]")
	if !w.said("HostRecordLeft: The host record h in the network view default keeps the addresses [10.0.0.2 fd00::1]: the IPAddress of another claim in it says 10.0.0.2, too") {
		t.Error("no event says what is left")
	}
	w.release(t, "y")
	w.wantRecords(t, "h [fd00::1]")
	if !w.said("keeps the addresses [fd00::1], which are not those of an IPAddress") {
		t.Error("no event says what is left in the end")
	}
}

// Two claims of one pool share a host record, and both IPAddresses are forced away while no process leads. One claim is deleted: it gives up its own address. If
// somebody has taken away what the claims say about theirs, nobody knows which address is whose: that claim waits, and says why.
func TestUnclearRecordIsNotReleased(t *testing.T) {
	for _, said := range []bool{true, false} {
		w := newStory(t)
		for _, name := range []string{"x", "y"} {
			w.inRecord(name, "v4", "h")
			w.goOn(time.Minute)
		}
		w.leader.end()
		for _, name := range []string{"x", "y"} {
			w.stripAddress(name)
			if !said {
				_ = w.patch(shell.IPAddressClaims, inA(name), shell.Patch{Body: fmt.Appendf(nil, `{"metadata": {"annotations": {%q: null}}}`, known.AnnotationAddress)}, nil)
			}
		}
		_ = w.delete(shell.IPAddressClaims, inA("x"), "")
		w.elect()
		w.goOn(time.Minute)
		if said {
			w.wantRecords(t, "h [10.0.0.3]")
			w.want(t, "y", "10.0.0.3 Ready")
			continue
		}
		w.wantRecords(t, "h [10.0.0.2 10.0.0.3]")
		if !w.said("event AllocationFailed: The host record h cannot be given up yet: another IPAddressClaim shares it") {
			t.Error("no event says why the claim waits")
		}
	}
}

// A claim is forced away while the controller runs. Its pool names the IPAddress.
func TestClaimIsForcedAway(t *testing.T) {
	w := newStoryOfX(t)
	w.strip("x")
	w.goOn(time.Minute)
	if !w.said("event " + reasonWithoutClaim + ": IPAddresses without an IPAddressClaim: 1 (x).") {
		t.Error("there is no event")
	}
}

// A claim is forced away while a request about it is on its way, and its IPAddress, too. Nothing is remembered of them.
func TestNothingIsRememberedOfWhoIsForcedAway(t *testing.T) {
	for name, tc := range map[string]struct {
		request string
		lost    bool
		before  func(w *world)
	}{
		"while its second name is prepared":             {request: "GET record:host", before: func(w *world) { w.record("x", "10.0.0.5") }},
		"while its IPAddress is created":                {request: "create IPAddress"},
		"while its IPAddress is created, and no answer": {request: "create IPAddress", lost: true},
		"while it is told, and no answer":               {request: "addressRef", lost: true},
		"while its host record is deleted": {request: "DELETE record:host", before: func(w *world) {
			w.claim("x", "v4")
			w.goOn(time.Minute)
			_ = w.delete(shell.IPAddressClaims, inA("x"), "")
		}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newStory(t)
			if tc.before != nil {
				tc.before(w)
			}
			if w.objects[shell.IPAddressClaims][inA("x")] == nil {
				w.claim("x", "v4")
			}
			i := w.until(t, tc.request)
			if tc.request == "create IPAddress" {
				_ = w.leader.calls[i].do()
			}
			w.strip("x")
			w.stripAddress("x")
			w.leader.hearAll()
			if tc.lost {
				w.leader.resume(i, errLost)
			} else {
				w.leader.resume(i, nil)
			}
			w.goOn(time.Minute)
			if w.judgeMemory(); w.violation != "" {
				t.Error(w.violation)
			}
		})
	}
}

// Somebody renames the host record of a claim that is deleted, and takes the claim's finalizer away while the controller looks for the record. An event says what is
// left in Infoblox.
func TestClaimIsForcedAwayWhileItsRecordIsSought(t *testing.T) {
	w := newStoryOfX(t)
	w.grid.Do(http.MethodPut, w.hosts()[0].Ref, nil, []byte(`{"name": "web-1"}`))
	_ = w.delete(shell.IPAddressClaims, inA("x"), "")
	i := w.until(t, "GET record:host")
	for ; strings.Contains(w.leader.calls[i].what, "network_view=default"); i = w.until(t, "GET record:host") {
		w.leader.answer(i, true)
	}
	w.strip("x") // It is sought in all network views by now.
	w.leader.hearAll()
	w.leader.answer(i, true)
	w.goOn(time.Minute)
	if len(w.objects[shell.IPAddresses]) > 0 || !w.said("event HostRecordLeft: The InfobloxInstance i has no host record x of this object. If Infoblox has one of another name, with the address 10.0.0.2") {
		t.Error("no event says what is left")
	}
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
	w.stripAddress("5")
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

// The clock of an earlier leader was wrong: the wait for the InfobloxInstance has begun in the future.
func TestInstanceMissingInTheFuture(t *testing.T) {
	w := newStoryOfX(t)
	_ = w.delete(shell.InfobloxInstances, types.NamespacedName{Name: "i"}, "")
	_ = w.delete(shell.IPAddressClaims, inA("x"), "")
	future := w.now.Add(24 * time.Hour).Format(time.RFC3339)
	_ = w.patch(shell.IPAddressClaims, inA("x"), shell.Patch{Body: fmt.Appendf(nil, `{"metadata": {"annotations": {%q: "%s/%s"}}}`, annotationMissing, future, future)}, nil)
	w.goOn(lostServerAfter - time.Minute)
	w.want(t, "x", "10.0.0.2 Ready")
	w.goOn(2 * time.Minute)
	w.want(t, "x", "gone")
}

// A policy takes away the annotation that says since when the InfobloxInstance is gone. The wait would never end, and that is said.
func TestMissingIsTakenBack(t *testing.T) {
	w := newStoryOfX(t)
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

// The IPAddress of a claim that has been told of it is taken away by force, while its machine runs. The claim gets the same address, whatever was copied
// and whatever the claim was before. If it cannot, it says so and gets no other one.
func TestIPAddressIsForcedAway(t *testing.T) {
	for name, tc := range map[string]struct {
		before        func(*world)
		while         func(*world) // it is away
		copy, claimed bool         // somebody copies the IPAddress meanwhile, perhaps with its claim
		says          string       // if the claim does not get its address
	}{
		"as it was made":                               {},
		"moved":                                        {before: (*world).relocate},
		"of another program":                           {before: (*world).unmark},
		"a copy":                                       {copy: true},
		"moved, and a copy":                            {before: (*world).relocate, copy: true},
		"of another program, and a copy":               {before: (*world).unmark, copy: true},
		"a copied claim":                               {copy: true, claimed: true},
		"moved, and a copied claim":                    {before: (*world).relocate, copy: true, claimed: true},
		"of another program, and a copied claim":       {before: (*world).unmark, copy: true, claimed: true},
		"its host record is gone":                      {while: func(w *world) { w.grid.Do(http.MethodDelete, w.hosts()[0].Ref, nil, nil) }, says: "The claim has had the address 10.0.0.2, and somebody has deleted its IPAddress."},
		"its host record is gone, and there is a copy": {while: func(w *world) { w.grid.Do(http.MethodDelete, w.hosts()[0].Ref, nil, nil) }, copy: true, says: "The claim has had the address 10.0.0.2, and somebody has deleted its IPAddress."},
		"its subnet is gone": {while: func(w *world) {
			w.grid.Networks["default"] = append(w.grid.Networks["default"], netip.MustParsePrefix("10.9.0.0/29"))
			w.editSpec(shell.InfobloxIPPools, "v4", `{"subnets": [{"cidr": "10.9.0.0/29"}]}`)
		}, says: "or the InfobloxIPPool v4 has no subnet for it."},
	} {
		t.Run(name, func(t *testing.T) {
			w := newStoryOfX(t)
			if tc.before != nil {
				tc.before(w)
			}
			w.want(t, "x", "10.0.0.2 Ready")
			address, claim := copied(w, shell.IPAddresses, &v1beta2.IPAddress{}), copied(w, shell.IPAddressClaims, &v1beta2.IPAddressClaim{})
			address.Namespace, claim.Namespace, address.OwnerReferences = "b", "b", nil
			w.leader.end()
			if tc.copy {
				w.put(shell.IPAddresses, address)
			}
			if tc.claimed {
				w.put(shell.IPAddressClaims, claim)
			}
			w.stripAddress("x")
			if tc.while != nil {
				tc.while(w)
			}
			for range 2 {
				w.elect()
				w.goOn(2 * time.Minute)
				w.leader.end()
			}
			w.elect()
			w.claim("next", "v4")
			w.goOn(time.Minute)
			if next := w.show("next"); strings.HasPrefix(next, "10.0.0.2 ") || !strings.HasSuffix(next, " Ready") {
				t.Errorf("the next claim has %s", next)
			}
			if tc.says != "" {
				w.want(t, "x", " AllocationFailed")
				if !w.said(tc.says) {
					t.Errorf("nobody says %q", tc.says)
				}
				return
			}
			w.want(t, "x", "10.0.0.2 Ready")
			_ = w.delete(shell.IPAddresses, known.NameOf(address), "")
			w.goOn(time.Minute)
			w.release(t, "x")
			w.release(t, "next")
			for _, h := range w.hosts() {
				if slices.Contains(h.Addresses(), netip.MustParseAddr("10.0.0.2")) {
					t.Errorf("the host record stays: %v", h)
				}
			}
		})
	}
}

// A claim whose IPAddress was taken away by force is deleted before it gets it again. Its host record goes with it, also if the claim was moved.
func TestClaimWithoutItsIPAddressIsReleased(t *testing.T) {
	for name, before := range map[string]func(*world){"as it was made": func(*world) {}, "moved": (*world).relocate, "of another program": (*world).unmark} {
		t.Run(name, func(t *testing.T) {
			w := newStoryOfX(t)
			before(w)
			w.leader.end()
			w.stripAddress("x")
			_ = w.delete(shell.IPAddressClaims, inA("x"), "")
			w.elect()
			w.goOn(time.Minute)
			w.want(t, "x", "gone")
			w.wantRecords(t)
		})
	}
}

// Two claims with IPAddresses of one host record are new at once, for example after their namespaces were restored. Nobody knows which is the copy. Both say
// so, and when a user has deleted one IPAddress the other claim goes on at once.
func TestTwoCopiesAtOnce(t *testing.T) {
	w := newStoryOfX(t)
	w.leader.end()
	claim, address := copied(w, shell.IPAddressClaims, &v1beta2.IPAddressClaim{}), copied(w, shell.IPAddresses, &v1beta2.IPAddress{})
	address.OwnerReferences = nil
	w.strip("x")
	w.stripAddress("x")
	for _, namespace := range []string{"a", "b"} {
		claim.Namespace, address.Namespace = namespace, namespace
		w.put(shell.IPAddressClaims, claim)
		w.put(shell.IPAddresses, address)
	}
	w.elect()
	w.goOn(time.Minute)
	w.want(t, "x", "10.0.0.2 AllocationFailed")
	for _, says := range []string{"The IPAddresses a/x and b/x have the same host record", "The IPAddresses b/x and a/x have the same host record"} {
		if !w.said(says) {
			t.Errorf("nobody says %q", says)
		}
	}
	_ = w.delete(shell.IPAddresses, known.NameOf(address), "") // that of b, as the conditions say
	w.goOn(10 * time.Second)
	w.want(t, "x", "10.0.0.2 Ready")
	w.goOn(time.Minute)
	w.wantRecords(t, "x [10.0.0.2]", fmt.Sprintf("x.%s [10.0.0.3]", metadataOf(w.objects[shell.IPAddressClaims][known.NameOf(claim)])["uid"]))
}

// A claim that was moved is deleted together with a copy of its IPAddress, in whatever order the controller hears of that. One of the two gives up the host record.
func TestCopyGoesWithItsMovedOriginal(t *testing.T) {
	for seed := range uint64(100) {
		w := newWorld(rand.New(rand.NewPCG(seed, 1)))
		w.elect()
		w.goOn(10 * time.Second)
		w.claim("x", "v4")
		w.goOn(time.Minute)
		w.relocate()
		address := copied(w, shell.IPAddresses, &v1beta2.IPAddress{})
		address.Name, address.OwnerReferences = "copy", nil
		w.put(shell.IPAddresses, address)
		w.goOn(time.Minute)
		_ = w.delete(shell.IPAddressClaims, inA("x"), "")
		_ = w.delete(shell.IPAddresses, inA("copy"), "")
		w.goOn(2 * time.Minute)
		w.want(t, "x", "gone")
		w.wantRecords(t)
		if w.end(); t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
}

// far makes another Infoblox with the same network, its InfobloxInstance k and a pool of it.
func (w *world) far() {
	w.other = wapitest.NewGrid("10.0.0.0/29")
	instance, pool := instanceOf("k"), poolOfName("a", "v4")
	instance.Spec.Host = "elsewhere"
	pool.Name, pool.Spec.InstanceRef.Name = "far", "k"
	w.put(shell.InfobloxInstances, instance)
	w.put(shell.InfobloxIPPools, pool)
}

// Two Infoblox have networks with the same addresses. The InfobloxInstance of one of them is deleted, while its claims have all of these addresses. The controller
// has seen that it was another one, so a claim of the other one has its address at once. After a restart the controller does not know that, and Infoblox gives a
// claim one address after the other that cannot be used. When the InfobloxInstance is there again, the claim gets one of them, and keeps no other.
func TestAnotherInfobloxWithTheSameNetwork(t *testing.T) {
	for name, restarts := range map[string]bool{"seen": false, "not seen": true} {
		t.Run(name, func(t *testing.T) {
			w := newStory(t)
			w.far()
			for _, claim := range []string{"v", "w", "x", "y", "z"} {
				w.claim(claim, "v4")
			}
			w.goOn(time.Minute)
			_ = w.delete(shell.InfobloxInstances, types.NamespacedName{Name: "i"}, "")
			w.goOn(time.Second)
			if restarts {
				w.leader.end()
				w.elect()
			}
			w.claim("f", "far")
			w.goOn(time.Minute)
			if restarts {
				w.want(t, "f", " PoolExhausted")
				w.put(shell.InfobloxInstances, instanceOf("i"))
				w.goOn(2 * time.Minute)
			}
			w.want(t, "f", "10.0.0.2 Ready")
			if all := w.other.Hosts(); len(all) != 1 || len(all[0].Addresses) != 1 {
				t.Errorf("host records of the other Infoblox: %v", all)
			}
			for n, claim := range []string{"v", "w", "x", "y", "z"} {
				if !strings.HasSuffix(w.show(claim), " Ready") {
					t.Errorf("claim %d: %s", n, w.show(claim))
				}
			}
		})
	}
}

// A claim is forced away while Infoblox is asked which address it has. After its IPAddress is gone, too, others get the address: nothing is kept for the claim.
func TestClaimIsForcedAwayWhileItGetsAnAddress(t *testing.T) {
	w := newStory(t)
	w.claim("x", "v4")
	for _, request := range []string{"POST", "GET record:host"} {
		i := w.until(t, request)
		err := w.leader.calls[i].do()
		if request == "GET record:host" {
			w.strip("x")
			w.leader.hearAll()
		}
		w.leader.resume(i, err)
	}
	w.goOn(time.Minute)
	_ = w.delete(shell.IPAddresses, inA("x"), "")
	w.goOn(time.Minute)
	w.wantRecords(t)
	w.claim("y", "v4")
	w.goOn(time.Minute)
	w.want(t, "y", "10.0.0.2 Ready")
}

// A claim is moved to another cluster, or put back, before it has an IPAddress. Its record has the UID that it had, so nobody knows whose it is. An event says so.
func TestClaimIsMovedBeforeItHasAnAddress(t *testing.T) {
	w := newStory(t)
	w.claim("x", "v4")
	i := w.until(t, "POST")
	w.leader.resume(i, w.leader.calls[i].do())
	w.leader.end()
	claim := copied(w, shell.IPAddressClaims, &v1beta2.IPAddressClaim{})
	uid := metadataOf(w.objects[shell.IPAddressClaims][inA("x")])["uid"].(string)
	w.strip("x")
	w.put(shell.IPAddressClaims, claim)
	w.elect()
	w.goOn(time.Minute)
	w.want(t, "x", "10.0.0.2 Ready")
	if !w.said("event " + reasonRecordLeft + ": Infoblox has a host record x with the UID " + uid) {
		t.Error("no event names the record")
	}
}

// A claim does not take a host record of its name for one that it had, if a claim that is there has it, or somebody else.
func TestRecordOfAnotherClaimOfTheName(t *testing.T) {
	w := newStoryOfX(t)
	w.record("y", "10.0.0.6")
	for _, namespace := range []string{"a", "b"} {
		for _, name := range []string{"x", "y"} {
			_ = w.create(shell.IPAddressClaims, &v1beta2.IPAddressClaim{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
				Spec: v1beta2.IPAddressClaimSpec{PoolRef: v1beta2.IPPoolReference{APIGroup: shell.GroupIPAM, Kind: v1alpha1.KindInfobloxIPPool, Name: "v4"}}}, nil)
		}
	}
	w.goOn(time.Minute)
	for _, a := range all[v1beta2.IPAddressClaim](w, shell.IPAddressClaims) {
		if !known.WasServed(a) {
			t.Errorf("%s is not served", known.NameOf(a))
		}
	}
	if w.said("event " + reasonRecordLeft) {
		t.Error("an event says that a record is left")
	}
}

// Infoblox does not answer a create, and the second one makes the record. Another process leads, and the claim is deleted. Infoblox carries out the first create only
// then. Nothing stays there.
func TestLateCreateAfterAnotherOneAndAnotherLeader(t *testing.T) {
	w := newStory(t)
	w.record("gateway", "10.0.0.1")
	w.claim("x", "v4")
	i := w.until(t, "POST")
	late := w.leader.calls[i]
	w.leader.resume(i, late.lost)
	w.goOn(5 * time.Second)
	w.want(t, "x", "10.0.0.2 Ready")
	w.leader.end()
	w.elect()
	_ = w.delete(shell.IPAddressClaims, inA("x"), "")
	w.goOn(4 * time.Second)
	_ = late.do()
	w.goOn(time.Minute)
	w.want(t, "x", "gone")
	w.wantRecords(t, "gateway [10.0.0.1]")
}

// The API server refuses the IPAddress of a claim. The claim says so, and gets the same address when the API server accepts it.
func TestIPAddressIsRefused(t *testing.T) {
	w := newStory(t)
	w.claim("x", "v4")
	w.leader.resume(w.until(t, "create IPAddress"), apierrors.NewInvalid(schema.GroupKind{Kind: "IPAddress"}, "x", nil))
	w.goOn(time.Minute)
	if !w.said("event AllocationFailed: The API server refuses the IPAddress: ") {
		t.Error("no event says why")
	}
	w.want(t, "x", "10.0.0.2 Ready")
	w.wantRecords(t, "x [10.0.0.2]")
}

// Two claims share a host record. One is forced away, and its IPAddress keeps its address. The other one, which has no IPAddress yet, is deleted, or gets its
// address: the record keeps that of the IPAddress.
func TestIPAddressWithoutClaimKeepsItsPart(t *testing.T) {
	for name, deleted := range map[string]bool{"the other one is deleted": true, "the other one goes on": false} {
		t.Run(name, func(t *testing.T) {
			w := newStory(t)
			w.record("gateway", "10.0.0.1")
			w.inRecord("x", "v4", "h")
			w.goOn(time.Minute)
			w.inRecord("y", "v4", "h")
			i := w.until(t, "PUT")
			err := w.leader.calls[i].do()
			w.strip("x")
			if deleted {
				_ = w.delete(shell.IPAddressClaims, inA("y"), "")
			}
			w.leader.hearAll()
			w.leader.resume(i, err)
			w.goOn(time.Minute)
			if deleted {
				w.want(t, "y", "gone")
				w.wantRecords(t, "gateway [10.0.0.1]", "h [10.0.0.2]")
				return
			}
			w.want(t, "y", "10.0.0.3 Ready")
			w.wantRecords(t, "gateway [10.0.0.1]", "h [10.0.0.2 10.0.0.3]")
		})
	}
}

// Infoblox does not answer when a claim joins a host record, and carries that out when another process leads. The claim has one address there.
func TestLateJoinOfAnEarlierLeader(t *testing.T) {
	w := newStory(t)
	w.record("gateway", "10.0.0.1")
	for name, pool := range map[string]string{"x": "v4", "y": "v6"} {
		w.inRecord(name, pool, "h")
	}
	late := w.leader.calls[w.until(t, "PUT")]
	w.leader.end()
	w.elect()
	w.goOn(5 * time.Second)
	_ = late.do()
	w.goOn(time.Minute)
	w.want(t, "x", "10.0.0.2 Ready")
	w.want(t, "y", "fd00::1 Ready")
	w.wantRecords(t, "gateway [10.0.0.1]", "h [10.0.0.2 fd00::1]")
}

// Infoblox does not answer when a claim joins a host record. Within seconds the InfobloxInstance names the same Infoblox by another host, and then Infoblox carries the
// write out. It takes nothing away that the claim was told.
func TestHostIsEditedAfterALostWrite(t *testing.T) {
	for name, edit := range map[string]func(*world){
		"edited": func(w *world) { w.moveInstances("alias") },
		"created again": func(w *world) {
			_ = w.delete(shell.InfobloxInstances, types.NamespacedName{Name: "i"}, "")
			w.leader.hearAll()
			instance := instanceOf("i")
			instance.Spec.Host = "alias"
			w.put(shell.InfobloxInstances, instance)
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newStory(t)
			w.inRecord("x", "v4", "h")
			w.goOn(time.Minute)
			w.inRecord("y", "v6", "h")
			i := w.until(t, "PUT")
			late := w.leader.calls[i]
			w.leader.resume(i, late.lost)
			edit(w)
			w.goOn(10 * time.Second)
			_ = late.do()
			w.goOn(time.Minute)
			w.want(t, "x", "10.0.0.2 Ready")
			w.want(t, "y", "fd00::1 Ready")
			w.wantRecords(t, "h [10.0.0.2 fd00::1]")
		})
	}
}

// Two claims share a host record, and one of them is put back with its IPAddress, so that it has another UID. Each takes its own address along when it goes.
func TestOneOfTwoClaimsIsPutBack(t *testing.T) {
	w := newStory(t)
	w.share(t)
	w.relocate()
	w.want(t, "x", "10.0.0.2 Ready")
	w.release(t, "x")
	w.wantRecords(t, "h [fd00::1]")
	w.release(t, "y")
	w.wantRecords(t)
}

// A claim was moved with its IPAddress, so that its host record has the UID that it had. Another claim of its machine joins the record all the same.
func TestClaimJoinsTheRecordOfAMovedOne(t *testing.T) {
	w := newStory(t)
	w.inRecord("x", "v4", "h")
	w.goOn(time.Minute)
	w.relocate()
	w.inRecord("y", "v6", "h")
	w.goOn(time.Minute)
	w.want(t, "x", "10.0.0.2 Ready")
	w.want(t, "y", "fd00::1 Ready")
	w.wantRecords(t, "h [10.0.0.2 fd00::1]")
	w.release(t, "x")
	w.wantRecords(t, "h [fd00::1]")
}

// A claim with an address names another provider's pool, and then the former one again. Its host record keeps the address, also if somebody deletes its IPAddress by
// force and another process leads meanwhile, and the claim that shares the record goes without having had an IPAddress. Nobody else gets the address.
func TestClaimNamesAnotherProviderForAWhile(t *testing.T) {
	for _, restarts := range []bool{false, true} {
		for _, forced := range []bool{false, true} {
			t.Run(fmt.Sprintf("restarts: %t, forced: %t", restarts, forced), func(t *testing.T) {
				w := newStory(t)
				w.record("gateway", "10.0.0.1")
				w.inRecord("x", "v4", "h")
				w.goOn(time.Minute)
				w.editSpec(shell.IPAddressClaims, "x", `{"poolRef": {"kind": "InClusterIPPool", "name": "p"}}`)
				w.inRecord("y", "v6", "h")
				i := w.until(t, "PUT")
				err := w.leader.calls[i].do()
				if forced {
					w.stripAddress("x")
				}
				_ = w.delete(shell.IPAddressClaims, inA("y"), "")
				if restarts {
					w.leader.end()
					w.elect()
				} else {
					w.leader.hearAll()
					w.leader.resume(i, err)
				}
				w.goOn(time.Minute)
				w.want(t, "y", "gone")
				w.wantRecords(t, "gateway [10.0.0.1]", "h [10.0.0.2]")
				w.grid.Do(http.MethodDelete, w.hosts()[1].Ref, nil, nil) // by hand, so that Infoblox gives the address again
				w.claim("z", "v4")
				w.goOn(time.Minute)
				w.want(t, "z", "10.0.0.3 Ready")
				w.editSpec(shell.IPAddressClaims, "x", `{"poolRef": {"kind": "InfobloxIPPool", "name": "v4"}}`)
				w.goOn(time.Minute)
				if forced {
					w.want(t, "x", " AllocationFailed")
				} else {
					w.want(t, "x", "10.0.0.2 Ready")
				}
			})
		}
	}
}

// The InfobloxInstance becomes another Infoblox, with the same network and none of the host records. The addresses that claims have are not given again, and when a
// claim goes, an event names its record, which is in the former Infoblox.
func TestInstanceBecomesAnotherInfoblox(t *testing.T) {
	w := newStoryOfX(t)
	w.other = wapitest.NewGrid("10.0.0.0/29")
	w.moveInstances("elsewhere")
	w.goOn(time.Minute)
	w.claim("y", "v4")
	w.goOn(time.Minute)
	w.want(t, "x", "10.0.0.2 Ready")
	w.want(t, "y", "10.0.0.3 Ready")
	w.release(t, "x")
	w.wantRecords(t, "x [10.0.0.2]")
	if !w.said("event " + reasonRecordLeft + ": The InfobloxInstance i has no host record x of this object.") {
		t.Error("no event names the record")
	}
	w.claim("z", "v4")
	w.goOn(time.Minute)
	w.want(t, "z", "10.0.0.2 Ready") // in the other Infoblox
}

// Two claims of a full pool share a host record, which has nothing but the gateway. One of them waits for the other one, and both for the pool. They say so once.
func TestTwoClaimsOfAFullPoolShareARecord(t *testing.T) {
	w := newStory(t)
	for _, name := range []string{"1", "2", "3", "4", "5"} {
		w.claim(name, "v4")
		w.goOn(10 * time.Second)
	}
	w.inRecord("x", "v4", "h")
	w.goOn(time.Minute)
	w.inRecord("y", "v4", "h")
	w.goOn(2 * time.Minute)
	w.wantRecords(t, "1 [10.0.0.2]", "2 [10.0.0.3]", "3 [10.0.0.4]", "4 [10.0.0.5]", "5 [10.0.0.6]", "h [10.0.0.1]")
	before := w.version
	w.goOn(10 * time.Minute)
	if w.version != before {
		t.Errorf("the controller has written %d times although nothing has changed", w.version-before)
	}
	for _, name := range []string{"1", "2"} {
		w.release(t, name)
	}
	w.goOn(2 * time.Minute)
	w.want(t, "x", "10.0.0.2 Ready")
	w.want(t, "y", "10.0.0.3 Ready")
}

// Somebody pauses the one that asks the pool, and deletes another record in Infoblox. The other one says soon that it waits for the first one only.
func TestClaimWaitsForAnotherOneOnly(t *testing.T) {
	w := newStory(t)
	for n := 2; n <= 6; n++ {
		w.record(fmt.Sprint("other", n), fmt.Sprint("10.0.0.", n))
	}
	w.inRecord("x", "v4", "h")
	w.goOn(time.Minute)
	w.inRecord("y", "v4", "h")
	w.goOn(2 * time.Minute)
	w.want(t, "y", " PoolExhausted")
	w.pause(shell.IPAddressClaims, inA("x"), true)
	for _, h := range w.hosts() {
		if h.Name == "other2" {
			w.grid.Do(http.MethodDelete, h.Ref, nil, nil)
		}
	}
	w.goOn(2 * time.Minute)
	w.want(t, "y", " AllocationFailed")
	w.pause(shell.IPAddressClaims, inA("x"), false)
	w.goOn(2 * time.Minute)
	w.want(t, "x", "10.0.0.2 Ready")
	w.want(t, "y", " PoolExhausted")
}

// A claim has had an address that its pool has no subnet for any more, and the pool is full, which another claim finds every now and then. The first one says one thing.
func TestFullPoolOfAClaimThatHadAnAddress(t *testing.T) {
	w := newStory(t)
	w.claim("x", "v6")
	for _, name := range []string{"1", "2", "3", "4", "5", "waits"} {
		w.claim(name, "v4")
		w.goOn(10 * time.Second)
	}
	w.want(t, "waits", " PoolExhausted")
	w.editSpec(shell.IPAddressClaims, "x", `{"poolRef": {"name": "v4"}}`)
	w.stripAddress("x")
	w.goOn(2 * time.Minute)
	w.want(t, "x", " AllocationFailed")
	before := w.writes
	if w.goOn(5 * time.Minute); w.writes != before {
		t.Errorf("%d writes although nothing happens", w.writes-before)
	}
}

package infoblox

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/multicidr/controller-manager/apis/clusterapi/v1beta2"
	"github.com/multicidr/controller-manager/controllers/clusteripam/infoblox/wapi"
	"github.com/multicidr/controller-manager/controllers/clusteripam/shell"
)

// A claim is moved to a cluster that has a copy of its IPAddress, and the copy is deleted before the IPAddress comes. The host record waits for it: while the claim is
// paused, as in a move, and for a moment in any case. Until then the claim, if it is not paused, may get another address.
func TestCopyGoesWhileItsOriginalIsMoved(t *testing.T) {
	for name, tc := range map[string]struct {
		paused, comes bool
		want          string
	}{
		"paused, and the IPAddress comes": {paused: true, comes: true, want: "10.0.0.2 Ready"},
		"paused, and it does not":         {paused: true, want: "10.0.0.3 Ready"},
		"at once":                         {want: "10.0.0.3 Ready"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newStoryOfX(t)
			w.leader.end()
			claim, address := copied(w, shell.IPAddressClaims, &v1beta2.IPAddressClaim{}), copied(w, shell.IPAddresses, &v1beta2.IPAddress{})
			w.strip("x")
			w.stripAddress("x")
			address.OwnerReferences, address.Name = nil, "copy"
			w.put(shell.IPAddresses, address)
			w.elect()
			w.goOn(time.Minute)
			w.put(shell.IPAddressClaims, claim)
			w.pause(shell.IPAddressClaims, inA("x"), tc.paused)
			w.leader.hearAll()
			_ = w.delete(shell.IPAddresses, inA("copy"), "")
			if w.goOn(3 * movedWithin); tc.paused {
				w.wantRecords(t, "x [10.0.0.2]")
			}
			if tc.comes {
				address.Name = "x"
				w.put(shell.IPAddresses, address)
			}
			w.pause(shell.IPAddressClaims, inA("x"), false)
			w.goOn(2 * time.Minute)
			w.want(t, "x", tc.want)
			if tc.comes {
				w.wantRecords(t, "x [10.0.0.2]")
			} else {
				w.wantRecords(t, fmt.Sprintf("x.%s [10.0.0.3]", uidOf(w, claim)))
			}
			if w.objects[shell.IPAddresses][inA("copy")] != nil {
				t.Error("the copy stays")
			}
		})
	}
}

// Somebody forces the IPAddress of a moved claim away, and deletes a copy of it. The claim gets its IPAddress again, and keeps its host record, in whatever order the
// controller hears of all that.
func TestCopyGoesWhileItsOriginalComesBack(t *testing.T) {
	for seed := range uint64(100) {
		w := newWorld(rand.New(rand.NewPCG(seed, 1)))
		w.shows = true
		w.elect()
		w.goOn(10 * time.Second)
		w.claim("x", "v4")
		w.goOn(time.Minute)
		w.relocate()
		address := copied(w, shell.IPAddresses, &v1beta2.IPAddress{})
		address.Name, address.OwnerReferences = "copy", nil
		w.put(shell.IPAddresses, address)
		w.goOn(time.Minute)
		w.stripAddress("x")
		_ = w.delete(shell.IPAddresses, inA("copy"), "")
		w.goOn(2 * time.Minute)
		w.want(t, "x", "10.0.0.2 Ready")
		w.wantRecords(t, "x [10.0.0.2]")
		if w.end(); t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
}

// An IPAddress is copied before its claim is told of it, and a claim has the name of the copy. Nobody knows which one is the copy until then. When the first claim is told, the
// other one gets an address of its own.
func TestCopyComesBeforeTheClaimIsTold(t *testing.T) {
	w := newStory(t)
	w.claim("x", "v4")
	w.leader.resume(w.until(t, "addressRef"), errLost)
	address := copied(w, shell.IPAddresses, &v1beta2.IPAddress{})
	address.Name, address.OwnerReferences, address.Spec.ClaimRef.Name = "copy", nil, "copy"
	w.put(shell.IPAddresses, address)
	w.claim("copy", "v4")
	w.leader.hearAll()
	w.leader.begin(shell.Key{Kind: shell.IPAddressClaims, Namespace: "a", Name: "copy"})
	for len(w.leader.calls) > 0 {
		w.leader.answer(0, true)
	}
	w.want(t, "copy", "10.0.0.2 AllocationFailed")
	w.goOn(2 * time.Minute)
	w.want(t, "x", "10.0.0.2 Ready")
	w.want(t, "copy", "10.0.0.3 Ready")
}

// A moved claim is deleted while another one says the same address, and is paused: one of the two was moved, and the other one copied. The host record waits for that one, and
// an event says so. When it is deleted, too, the record goes.
func TestReleaseWaitsForAPausedClaim(t *testing.T) {
	w := newStoryOfX(t)
	w.relocate()
	claim := copied(w, shell.IPAddressClaims, &v1beta2.IPAddressClaim{})
	claim.Name = "y"
	claim.Annotations[v1beta2.AnnotationPaused] = ""
	w.put(shell.IPAddressClaims, claim)
	w.goOn(time.Minute)
	_ = w.delete(shell.IPAddressClaims, inA("x"), "")
	w.goOn(10 * time.Minute)
	w.want(t, "x", "10.0.0.2 Ready")
	if !w.said("event " + reasonReleaseFailed + ": The host record x in the network view default is not given up yet: the IPAddressClaim a/y says that it has the address 10.0.0.2, too") {
		t.Error("nobody says what the claim waits for")
	}
	_ = w.delete(shell.IPAddressClaims, inA("y"), "")
	w.goOn(time.Minute)
	w.want(t, "x", "gone")
	w.wantRecords(t)
}

// A claim is moved to a cluster where its IPAddress is copied before it comes, and another claim has the name of the copy. That one is not told that it has the address of the
// moved claim's machine: nobody knows which one is the copy until a user has said so.
func TestCopyComesBeforeAMovedIPAddress(t *testing.T) {
	w := newStoryOfX(t)
	w.leader.end()
	claim, address := copied(w, shell.IPAddressClaims, &v1beta2.IPAddressClaim{}), copied(w, shell.IPAddresses, &v1beta2.IPAddress{})
	w.strip("x")
	w.stripAddress("x")
	w.elect()
	w.put(shell.IPAddressClaims, claim)
	w.pause(shell.IPAddressClaims, inA("x"), true) // as in a move
	w.leader.hearAll()
	address.Name, address.OwnerReferences, address.Spec.ClaimRef.Name = "copy", nil, "copy"
	w.put(shell.IPAddresses, address)
	w.claim("copy", "v4")
	w.goOn(3 * movedWithin)
	w.want(t, "copy", "10.0.0.2 AllocationFailed")
	if !w.said("The claim has the IPAddress copy, and the IPAddressClaim a/x says that it has the address 10.0.0.2, too.") {
		t.Error("nobody says what the claim waits for")
	}
	address.Name, address.Spec.ClaimRef.Name = "x", "x"
	w.put(shell.IPAddresses, address)
	w.pause(shell.IPAddressClaims, inA("x"), false)
	w.goOn(2 * time.Minute)
	w.want(t, "x", "10.0.0.2 AllocationFailed")
	w.want(t, "copy", "10.0.0.2 AllocationFailed")
	_ = w.delete(shell.IPAddresses, inA("copy"), "") // as the conditions say
	w.goOn(2 * time.Minute)
	w.want(t, "x", "10.0.0.2 Ready")
	w.want(t, "copy", "10.0.0.3 Ready")
}

// The IPAddress of a moved claim was forced away, and one with another host record has taken its name. The former record stays as long as the claim does, because its machine
// may use that address: a claim of the name of a copy does not get it. If the copy has no claim, it has the record after the claim.
func TestCopyOfWhatAClaimHadBefore(t *testing.T) {
	for name, claimed := range map[string]bool{"with a claim": true, "alone": false} {
		t.Run(name, func(t *testing.T) {
			w := newStoryOfX(t)
			w.relocate()
			address := copied(w, shell.IPAddresses, &v1beta2.IPAddress{})
			address.Name, address.OwnerReferences, address.Spec.ClaimRef.Name = "copy", nil, "copy"
			w.leader.end()
			w.stripAddress("x")
			w.anotherAddressComes()
			w.elect()
			w.goOn(time.Minute)
			w.want(t, "x", "10.0.0.5 Ready")
			w.put(shell.IPAddresses, address)
			if claimed {
				w.claim("copy", "v4")
				w.goOn(time.Minute)
				w.want(t, "copy", "10.0.0.3 Ready")
				w.release(t, "x")
				w.wantRecords(t, "copy [10.0.0.3]")
				return
			}
			w.goOn(time.Minute)
			w.release(t, "x")
			w.wantRecords(t, "x [10.0.0.2]")
			_ = w.delete(shell.IPAddresses, inA("copy"), "")
			w.goOn(time.Minute)
			w.wantRecords(t)
		})
	}
}

// The same, and a claim was told that it has the copy while the first one was not there. The record stays when that one goes.
func TestClaimWithACopyOfWhatAnotherHadBefore(t *testing.T) {
	w := newStoryOfX(t)
	w.relocate()
	claim := &v1beta2.IPAddressClaim{}
	decode(w.objects[shell.IPAddressClaims][inA("x")], claim)
	address := copied(w, shell.IPAddresses, &v1beta2.IPAddress{})
	w.leader.end()
	w.strip("x")
	w.stripAddress("x")
	address.Name, address.OwnerReferences, address.Spec.ClaimRef.Name = "copy", nil, "copy"
	w.put(shell.IPAddresses, address)
	w.claim("copy", "v4")
	w.elect()
	w.goOn(time.Minute)
	w.want(t, "copy", "10.0.0.2 Ready")
	claim.UID = ""
	w.leader.end()
	w.put(shell.IPAddressClaims, claim) // with its status, as some backups do
	w.anotherAddressComes()
	w.elect()
	w.goOn(time.Minute)
	w.want(t, "x", "10.0.0.5 Ready")
	w.release(t, "x")
	w.want(t, "copy", "10.0.0.2 Ready")
	w.wantRecords(t, "x [10.0.0.2]")
	w.release(t, "copy")
	w.wantRecords(t)
}

// A copy of a moved IPAddress has no finalizer and no claim, so nobody sees it go. The host record goes with the original, and as long as the copy is there nobody else gets its
// address.
func TestCopyWithoutFinalizer(t *testing.T) {
	w := newStoryOfX(t)
	address := copied(w, shell.IPAddresses, &v1beta2.IPAddress{})
	address.Name, address.OwnerReferences, address.Finalizers = "copy", nil, nil
	w.relocate()
	w.put(shell.IPAddresses, address)
	w.goOn(time.Minute)
	w.release(t, "x")
	w.wantRecords(t)
	w.claim("y", "v4")
	w.goOn(time.Minute)
	w.want(t, "y", "10.0.0.3 Ready")
	w.release(t, "y")
	_ = w.delete(shell.IPAddresses, inA("copy"), "")
	w.goOn(time.Minute)
	w.wantRecords(t)
}

// A claim is moved to a cluster while a copy of its IPAddress goes, which Infoblox has refused once. The watch of IPAddresses is late, so the claim, not paused any more, begins to get
// another host record. The one that it had stays all the same.
func TestCopyGoesWhileAMovedIPAddressIsShownLate(t *testing.T) {
	w := newStoryOfX(t)
	w.leader.end()
	claim, address := copied(w, shell.IPAddressClaims, &v1beta2.IPAddressClaim{}), copied(w, shell.IPAddresses, &v1beta2.IPAddress{})
	w.strip("x")
	w.stripAddress("x")
	address.OwnerReferences, address.Name = nil, "copy"
	w.put(shell.IPAddresses, address)
	w.elect()
	w.goOn(time.Minute)
	_ = w.delete(shell.IPAddresses, inA("copy"), "")
	w.leader.resume(w.until(t, "DELETE record:host"), &wapi.Error{Request: http.MethodDelete, Status: http.StatusInternalServerError, Code: "Server.Ibap", Text: "simulated"})
	w.put(shell.IPAddressClaims, claim)
	address.Name = "x"
	w.put(shell.IPAddresses, address)
	w.leader.lags = shell.IPAddresses
	for _, name := range []string{"x", "copy", "x", "copy"} {
		for w.leader.behind() && slices.ContainsFunc(w.leader.unheard, func(c change) bool { return c.kind != shell.IPAddresses }) {
			w.leader.hear()
		}
		if key := (shell.Key{Kind: shell.IPAddressClaims, Namespace: "a", Name: name}); !w.leader.runs[key] {
			w.leader.begin(key)
		}
		for len(w.leader.calls) > 0 {
			w.leader.answer(0, true)
		}
		w.pass(1)
	}
	w.leader.lags = nil
	w.goOn(2 * time.Minute)
	w.want(t, "x", "10.0.0.2 Ready")
	w.wantRecords(t, "x [10.0.0.2]")
	if w.objects[shell.IPAddresses][inA("copy")] != nil {
		t.Error("the copy stays")
	}
}

// A claim is moved, and its IPAddress has not come, when another claim in its host record goes that has none. Nobody but the record says whose address is whose, and the moved
// claim: its address stays.
func TestClaimGoesFromTheRecordOfAMovedOne(t *testing.T) {
	w := newStory(t)
	w.inRecord("x", "v4", "h")
	w.goOn(time.Minute)
	w.inRecord("y", "v6", "h")
	w.leader.resume(w.until(t, "create IPAddress a/y"), apierrors.NewInvalid(schema.GroupKind{Kind: v1beta2.KindIPAddress}, "y", nil))
	w.wantRecords(t, "h [10.0.0.2 fd00::1]")
	w.leader.end()
	claim, address := copied(w, shell.IPAddressClaims, &v1beta2.IPAddressClaim{}), copied(w, shell.IPAddresses, &v1beta2.IPAddress{})
	w.strip("x")
	w.stripAddress("x")
	w.put(shell.IPAddressClaims, claim)
	w.pause(shell.IPAddressClaims, inA("x"), true) // as in a move
	_ = w.delete(shell.IPAddressClaims, inA("y"), "")
	w.elect()
	w.goOn(time.Minute)
	w.want(t, "y", "gone")
	w.wantRecords(t, "h [10.0.0.2]")
	address.OwnerReferences = nil
	w.put(shell.IPAddresses, address)
	w.pause(shell.IPAddressClaims, inA("x"), false)
	w.goOn(2 * time.Minute)
	w.want(t, "x", "10.0.0.2 Ready")
	w.release(t, "x")
	w.wantRecords(t)
}

// A claim is moved to a namespace that has a copy of its IPAddress, and the watch of IPAddresses is late. The claim does not get a second address in its former host record, which
// would stay there when a later copy gives up the record.
func TestMovedClaimDoesNotJoinItsFormerRecord(t *testing.T) {
	w := newStory(t)
	w.inRecord("x", "v4", "h")
	w.goOn(time.Minute)
	w.leader.end()
	claim, address := copied(w, shell.IPAddressClaims, &v1beta2.IPAddressClaim{}), copied(w, shell.IPAddresses, &v1beta2.IPAddress{})
	w.strip("x")
	w.stripAddress("x")
	address.OwnerReferences, address.Name = nil, "copy"
	w.put(shell.IPAddresses, address)
	w.elect()
	w.goOn(time.Minute)
	w.put(shell.IPAddressClaims, claim)
	address.Name = "x"
	w.put(shell.IPAddresses, address)
	for w.leader.behind() && w.leader.unheard[0].kind != shell.IPAddresses {
		w.leader.hear()
	}
	w.leader.begin(shell.Key{Kind: shell.IPAddressClaims, Namespace: "a", Name: "x"})
	for len(w.leader.calls) > 0 {
		w.leader.answer(0, true)
	}
	w.goOn(time.Minute)
	_ = w.delete(shell.IPAddresses, inA("copy"), "")
	w.goOn(2 * time.Minute)
	w.want(t, "x", "10.0.0.2 Ready")
	w.wantRecords(t, "h [10.0.0.2]")
	address.Name = "copy"
	w.put(shell.IPAddresses, address)
	w.goOn(time.Minute)
	w.release(t, "x")
	w.wantRecords(t, "h [10.0.0.2]")
	_ = w.delete(shell.IPAddresses, inA("copy"), "")
	w.goOn(time.Minute)
	w.wantRecords(t)
}

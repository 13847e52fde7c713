package infoblox

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/multicidr/controller-manager/apis/clusterapi/v1alpha1"
	"github.com/multicidr/controller-manager/apis/clusterapi/v1beta2"
	"github.com/multicidr/controller-manager/controllers/clusteripam/contract"
	"github.com/multicidr/controller-manager/controllers/clusteripam/runner"
	"github.com/multicidr/controller-manager/controllers/lease"
	"github.com/multicidr/controller-manager/test/contracttest"
	"github.com/multicidr/controller-manager/test/seeds"
	"github.com/multicidr/controller-manager/test/wapitest"
)

// tell tells a story in the world of the simulation, where nothing goes wrong. before happens before the controller runs.
func tell(t *testing.T, before, story func(w *world)) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 1)
		if before != nil {
			before(w)
		}
		w.start(0)
		time.Sleep(time.Minute)
		story(w)
		w.stop(0)
		if w.violation != "" {
			t.Error(w.violation)
		}
		if t.Failed() {
			t.Log(strings.Join(w.trace, "\n"))
		}
	})
}

// records returns the host records as "name address ...: comment".
func (w *world) records() (all []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, h := range w.grid.Hosts() {
		if h.Name != "c3" {
			all = append(all, fmt.Sprintf("%s %s: %s", h.Name, strings.Trim(fmt.Sprint(h.Addresses), "[]"), h.Comment))
		}
	}
	return all
}

func (w *world) wantRecords(want ...string) {
	w.t.Helper()
	if got := w.records(); !slices.Equal(got, want) {
		w.t.Errorf("Infoblox has %q, want %q", got, want)
	}
}

func (w *world) claim(name string) *v1beta2.IPAddressClaim {
	w.t.Helper()
	claim, ok := contracttest.Read[v1beta2.IPAddressClaim](w.servers[0], runner.IPAddressClaims, namespace, name)
	if !ok {
		w.t.Fatalf("the claim %s is gone", name)
	}
	return claim
}

func (w *world) wantGone(claim string) {
	w.t.Helper()
	if w.servers[0].Get(runner.IPAddressClaims, namespace, claim) != nil {
		w.t.Errorf("the claim %s is still there", claim)
	}
}

// wantReady wants a condition of a claim that has a reason, and a message with a text.
func (w *world) wantReady(claim, reason, text string) {
	w.t.Helper()
	if ready := contract.Find(w.claim(claim).Status.Conditions, v1beta2.ConditionReady); ready == nil || ready.Reason != reason || !strings.Contains(ready.Message, text) {
		w.t.Errorf("the claim %s says %+v, want %s %q", claim, ready, reason, text)
	}
}

// wapiDo lets somebody do something in Infoblox.
func (w *world) wapiDo(method, path, body string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if status, answer := w.grid.Do(method, path, nil, []byte(body)); status > 299 {
		w.t.Fatal(answer)
	}
}

// become replaces what Infoblox has. It returns how often it was asked before.
func (w *world) become(grid *wapitest.Grid) (asked int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.grid = grid
	return w.asked
}

// putServed stores a claim and its IPAddress as another controller has left them. of is the UID of its claim.
func (w *world) putServed(name, address string, claimNotes, addressNotes map[string]string) (uid types.UID) {
	pool := v1beta2.IPPoolReference{APIGroup: runner.GroupIPAM, Kind: v1alpha1.KindInfobloxIPPool, Name: "v4"}
	put(w.servers[0], runner.IPAddressClaims, &v1beta2.IPAddressClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Annotations: claimNotes, Finalizers: []string{v1beta2.FinalizerReleaseAddress}},
		Spec:       v1beta2.IPAddressClaimSpec{PoolRef: pool},
	})
	w.putAddress("v4", name, address, addressNotes)
	if _, err := w.servers[0].Edit(runner.IPAddressClaims, in(name), true, map[string]any{"status": map[string]any{"addressRef": map[string]any{"name": name}}}); err != nil {
		w.t.Fatal(err)
	}
	return w.claim(name).UID
}

// putAddress stores an IPAddress of a pool.
func (w *world) putAddress(pool, name, address string, notes map[string]string) {
	put(w.servers[0], runner.IPAddresses, &v1beta2.IPAddress{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Annotations: notes, Finalizers: []string{v1beta2.FinalizerProtectAddress}},
		Spec: v1beta2.IPAddressSpec{
			ClaimRef: v1beta2.IPAddressClaimReference{Name: name}, Address: address, Prefix: new(int32(24)),
			PoolRef: v1beta2.IPPoolReference{APIGroup: runner.GroupIPAM, Kind: v1alpha1.KindInfobloxIPPool, Name: pool},
		},
	})
}

// hostOf is a host record as another controller has made it.
func hostOf(name, comment string, addresses ...string) string {
	var all []string
	for _, a := range addresses {
		all = append(all, fmt.Sprintf(`{"ipv4addr": %q}`, a))
	}
	return fmt.Sprintf(`{"name": %q, "comment": %q, "ipv4addrs": [%s]}`, name, comment, strings.Join(all, ", "))
}

// A record of telekom's provider has no token. It gets one before it is released, whether the claim is deleted before the switch or later. Other addresses in it stay.
func TestSwitchFromTheOriginal(t *testing.T) {
	t.Run("while one that shares the record is paused", func(t *testing.T) {
		hostname := map[string]string{v1alpha1.AnnotationHostname: "m.example.com"}
		tell(t, func(w *world) {
			w.wapiDo("POST", "record:host", hostOf("m.example.com", "", "10.0.1.7", "10.0.1.8"))
			w.using["x"], w.using["y"] = addr("10.0.1.7"), addr("10.0.1.8")
			w.putServed("x", "10.0.1.7", hostname, nil)
			w.putServed("y", "10.0.1.8", map[string]string{v1alpha1.AnnotationHostname: "m.example.com", v1beta2.AnnotationPaused: ""}, nil)
		}, func(w *world) {
			w.createClaim("new", "v4", hostname)
			time.Sleep(5 * time.Minute)
			w.wantReady("new", v1beta2.ReasonAllocationFailed, "has no address yet or is not adopted yet, for example while it is paused")
			unpause := map[string]any{"metadata": map[string]any{"annotations": map[string]any{v1beta2.AnnotationPaused: nil}}}
			if _, err := w.servers[0].Edit(runner.IPAddressClaims, types.NamespacedName{Namespace: namespace, Name: "y"}, false, unpause); err != nil {
				t.Fatal(err)
			}
			time.Sleep(5 * time.Minute)
			w.wantReady("new", "Ready", "10.0.1.2")
		})
	})
	for name, deleted := range map[string]bool{"later": false, "before": true} {
		t.Run(name, func(t *testing.T) {
			var uid types.UID
			tell(t, func(w *world) {
				w.wapiDo("POST", "record:host", hostOf("m.example.com", "", "10.0.1.7", "10.0.1.8"))
				w.using["x"] = addr("10.0.1.7")
				uid = w.putServed("x", "10.0.1.7", map[string]string{v1alpha1.AnnotationHostname: "m.example.com"}, nil)
				w.putServed("y", "10.0.1.8", map[string]string{v1alpha1.AnnotationHostname: "m.example.com"}, nil)
				if deleted {
					w.deleteClaim("x")
				}
			}, func(w *world) {
				y := w.claim("y").UID
				if !deleted {
					if got := w.records(); len(got) != 1 || !strings.Contains(got[0], string(uid)) || !strings.Contains(got[0], string(y)) {
						t.Errorf("the record has no tokens: %q", got)
					}
					w.wantReady("x", "Ready", "10.0.1.7")
					w.deleteClaim("x")
					time.Sleep(time.Minute)
				}
				if got := w.records(); len(got) != 1 || !strings.HasPrefix(got[0], fmt.Sprintf("m.example.com 10.0.1.8: Kubernetes IPAddressClaim %s", y)) { // Either may be adopted first.
					t.Errorf("Infoblox has %q", got)
				}
				w.deleteClaim("y")
				time.Sleep(time.Minute)
				w.wantRecords()
			})
		})
	}
}

// What is somebody else's is not adopted: the claim says what to do, and keeps the IPAddress.
func TestSwitchNotAdopted(t *testing.T) {
	const other = "Kubernetes IPAddressClaim eeeeeeee-0000-4000-8000-000000000000 (b/x)"
	tell(t, func(w *world) {
		w.wapiDo("POST", "record:host", hostOf("m.example.com", other, "10.0.1.7"))
		w.putServed("x", "10.0.1.7", map[string]string{v1alpha1.AnnotationHostname: "m.example.com"}, nil)
	}, func(w *world) {
		w.wantReady("x", v1beta2.ReasonAllocationFailed, "no host record m.example.com with the address 10.0.1.7")
		w.wantReady("x", v1beta2.ReasonAllocationFailed, "Delete the claim if no machine uses the address.")
		w.deleteClaim("x")
		time.Sleep(time.Minute)
		w.wantGone("x")
		w.wantRecords("m.example.com 10.0.1.7: " + other)
		if !strings.Contains(strings.Join(w.trace, "\n"), reasonRecordLeft) {
			t.Error("no event says what stays in Infoblox")
		}
	})
}

// A record of telekom's provider that two claims share gets both tokens, also if answers are lost or late and the controller is restarted meanwhile.
func TestSwitchInterrupted(t *testing.T) {
	seeds.Each(t, 30, func(t *testing.T, seed uint64) {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t, seed)
			w.wapiDo("POST", "record:host", hostOf("m.example.com", "", "10.0.1.7", "10.0.1.8"))
			for name, a := range map[string]string{"x": "10.0.1.7", "y": "10.0.1.8"} {
				w.using[name] = addr(a)
				w.putServed(name, a, map[string]string{v1alpha1.AnnotationHostname: "m.example.com"}, nil)
			}
			w.faults.Store(50)
			w.start(0)
			time.Sleep(w.upTo(30 * time.Second))
			w.stop(0)
			time.Sleep(lateWrite)
			w.faults.Store(0)
			w.start(0)
			time.Sleep(2 * time.Minute)
			w.deleteClaim("x")
			w.deleteClaim("y")
			time.Sleep(5 * time.Minute)
			w.wantRecords()
			w.stop(0)
			w.report(t, seed)
		})
	})
}

// restored returns the annotations of a claim that comes from a backup. Its token is the UID that it had.
func restored(name, uid, record, address string) map[string]string {
	notes := map[string]string{contract.AnnotationOwner: namespace + "/" + name + "/" + uid, AnnotationPlace: "i/default", AnnotationName: record, AnnotationAddress: address}
	if address == "" {
		delete(notes, AnnotationAddress)
	}
	return notes
}

// A backup was made when claim k had an address and c had none yet. Afterwards k was deleted, and c got that address: its record stays as it is until somebody deletes k.
func TestOlderBackup(t *testing.T) {
	const was = "eeeeeeee-0000-4000-8000-00000000000"
	for name, record := range map[string]string{"another record": "k.example.com", "the same record": "c.example.com"} {
		t.Run(name, func(t *testing.T) {
			const held = "c.example.com 10.0.1.2: Kubernetes IPAddressClaim " + was + "1"
			tell(t, func(w *world) {
				w.using["c"] = addr("10.0.1.2")
				w.wapiDo("POST", "record:host", hostOf("c.example.com", "Kubernetes IPAddressClaim "+was+"1", "10.0.1.2"))
				w.createClaim("k", "v4", restored("k", was+"0", record, "10.0.1.2"))
				w.putAddress("v4", "k", "10.0.1.2", restored("k", was+"0", record, "10.0.1.2"))
				w.createClaim("c", "v4", restored("c", was+"1", "c.example.com", ""))
			}, func(w *world) {
				w.wantRecords(held)
				w.wantReady("c", v1beta2.ReasonAllocationFailed, "Nobody knows which address of the host record c.example.com in Infoblox is this claim's: [10.0.1.2].")
				w.wantReady("k", v1beta2.ReasonAllocationFailed, "Delete the claim if no machine uses the address.")
				w.deleteClaim("k")
				time.Sleep(2 * time.Minute)
				w.wantGone("k")
				w.wantRecords(held)
				w.wantReady("c", "Ready", "10.0.1.2")
			})
		})
	}
}

// The same with c put back first: c has its address again when k comes and says it, too. Both are deleted at once, and nothing is left in Infoblox.
func TestOlderBackupIsDeleted(t *testing.T) {
	const was = "eeeeeeee-0000-4000-8000-00000000000"
	tell(t, func(w *world) {
		w.wapiDo("POST", "record:host", hostOf("c.example.com", "Kubernetes IPAddressClaim "+was+"1", "10.0.1.2"))
		w.createClaim("c", "v4", restored("c", was+"1", "c.example.com", ""))
	}, func(w *world) {
		w.wantReady("c", "Ready", "10.0.1.2")
		w.createClaim("k", "v4", restored("k", was+"0", "k.example.com", "10.0.1.2"))
		time.Sleep(time.Minute)
		w.wantReady("k", v1beta2.ReasonAllocationFailed, "or another claim has the address")
		w.wantReady("c", "Ready", "10.0.1.2")
		w.deleteClaim("c")
		w.deleteClaim("k")
		time.Sleep(time.Minute)
		w.wantGone("c")
		w.wantGone("k")
		w.wantRecords()
	})
}

// Somebody else has a host record of the claim's name, so the claim has one with its token, and a backup is of the time before. The record goes with the claim, and
// stays for an IPAddress that says it.
func TestABackupIsOlderThanTheSecondName(t *testing.T) {
	for what, served := range map[string]bool{"the claim is deleted": false, "the backup of the IPAddress is younger": true} {
		t.Run(what, func(t *testing.T) {
			const was = "eeeeeeee-0000-4000-8000-000000000000"
			const own = "c3." + was + " 10.0.0.2: Kubernetes IPAddressClaim " + was
			tell(t, func(w *world) {
				w.wapiDo("POST", "record:host", `{"configure_for_dns": false, `+hostOf("c3."+was, "Kubernetes IPAddressClaim "+was, "10.0.0.2")[1:])
				w.createClaim("c3", "small", restored("c3", was, "c3", ""))
				_, err := w.servers[0].Edit(runner.IPAddressClaims, in("c3"), false, map[string]any{"metadata": map[string]any{"finalizers": []any{v1beta2.FinalizerReleaseAddress}}})
				if err != nil {
					t.Fatal(err)
				}
				if served {
					w.putAddress("small", "c3", "10.0.0.2", restored("c3", was, "c3."+was, "10.0.0.2"))
				} else {
					w.deleteClaim("c3")
				}
			}, func(w *world) {
				if served {
					w.wantReady("c3", "Ready", "10.0.0.2")
					w.wantRecords(own)
					w.deleteClaim("c3")
					time.Sleep(time.Minute)
				}
				w.wantGone("c3")
				w.wantRecords()
			})
		})
	}
}

// Infoblox gives addresses that restored claims hold, whose records are gone: after the first one it may choose none of them. If it does all the same, the claim says so.
func TestManyHeld(t *testing.T) {
	for name, ignores := range map[string]bool{"excluded": false, "Infoblox ignores that": true} {
		t.Run(name, func(t *testing.T) {
			tell(t, func(w *world) {
				w.ignoresExclude = ignores
				for i := range 25 {
					k := fmt.Sprint("k", i)
					w.createClaim(k, "v4", restored(k, fmt.Sprintf("eeeeeeee-0000-4000-8000-0000000000%02d", i), k+".example.com", fmt.Sprintf("10.0.1.%d", 2+i)))
				}
			}, func(w *world) {
				w.createClaim("x", "v4", nil)
				time.Sleep(time.Hour)
				most := 1
				if ignores {
					w.wantReady("x", v1beta2.ReasonAllocationFailed, "or another claim or IPAddress has it, too")
					most = 3 * maxSteps
				} else {
					w.wantReady("x", "Ready", "10.0.1.27")
				}
				if n := strings.Count(strings.Join(w.trace, "\n"), "next_available_ip"); n > most {
					t.Errorf("%d writes exclude addresses, want at most %d", n, most)
				}
			})
		})
	}
}

// Claims of a full pool do not all ask Infoblox again and again. One of them gets the address of a claim that goes, at once, and soon one that gets free in Infoblox.
func TestFull(t *testing.T) {
	tell(t, func(w *world) { w.grid.Reserved[addr("10.0.0.14")] = true }, func(w *world) {
		for i := range 50 {
			w.createClaim(fmt.Sprint("f", i), "small", nil)
		}
		time.Sleep(time.Minute)
		before := w.become(w.grid)
		time.Sleep(10*time.Minute + 20*time.Second)                // Not when the pool is checked.
		if asked := w.become(w.grid) - before; asked > 11*(10+6) { // The checks, and one claim of each worker.
			t.Errorf("%d requests in ten minutes", asked)
		}
		told := w.covered["told"]
		for _, claim := range contracttest.All[v1beta2.IPAddressClaim](w.servers[0], runner.IPAddressClaims) {
			if claim.Status.AddressRef.Name != "" {
				w.deleteClaim(claim.Name)
				break
			}
		}
		if time.Sleep(5 * time.Second); told != 11 || w.covered["told"] != 12 {
			t.Errorf("%d claims were told, and then %d", told, w.covered["told"])
		}
		w.mu.Lock()
		delete(w.grid.Reserved, addr("10.0.0.14"))
		w.mu.Unlock()
		if time.Sleep(2 * time.Minute); w.covered["told"] != 13 {
			t.Errorf("in the end %d claims were told", w.covered["told"])
		}
	})
}

// Infoblox has given its last address to a claim that is edited before it says so, and tells others that the pool is full. The claim gets its address all the same.
func TestFullForOthers(t *testing.T) {
	tell(t, func(w *world) { w.grid.Reserved[addr("10.0.0.1")] = true }, func(w *world) {
		for i := range 11 {
			w.createClaim(fmt.Sprint("f", i), "small", nil)
		}
		time.Sleep(time.Minute)
		w.slow = 300 * time.Millisecond
		w.createClaim("a", "small", nil)
		time.Sleep(150 * time.Millisecond)
		for i := range 20 {
			w.createClaim(fmt.Sprint("b", i), "small", nil)
		}
		time.Sleep(100 * time.Millisecond) // Infoblox has not answered to a yet.
		if _, err := w.servers[0].Edit(runner.IPAddressClaims, in("a"), false, map[string]any{"metadata": map[string]any{"labels": map[string]any{"x": "y"}}}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(5 * time.Second)
		w.wantReady("a", "Ready", "10.0.0.14")
		w.wantReady("b19", v1beta2.ReasonPoolExhausted, "")
	})
}

// The pool is widened while Infoblox says that it is full: the claim that asked gets an address of the new subnet at once.
func TestWidenedWhileItIsFull(t *testing.T) {
	tell(t, func(w *world) {
		w.slow = 300 * time.Millisecond
		w.grid.Networks["default"] = append(w.grid.Networks["default"], netip.MustParsePrefix("10.0.9.0/28"))
	}, func(w *world) {
		for i := range 12 {
			w.createClaim(fmt.Sprint("f", i), "small", nil)
		}
		time.Sleep(15 * time.Second)
		w.createClaim("late", "small", nil)
		time.Sleep(200 * time.Millisecond) // It is asking.
		subnets := []any{map[string]any{"cidr": "10.0.0.0/28", "gateway": "10.0.0.1"}, map[string]any{"cidr": "10.0.9.0/28", "gateway": "10.0.9.1"}}
		if _, err := w.servers[0].Edit(runner.InfobloxIPPools, in("small"), false, map[string]any{"spec": map[string]any{"subnets": subnets}}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(5 * time.Second)
		w.wantReady("late", "Ready", "10.0.9.")
	})
}

// Anybody who may create claims can write any token: one that is no UID would break the comments of others.
func TestNoToken(t *testing.T) {
	tell(t, nil, func(w *world) {
		w.createClaim("x", "v4", map[string]string{contract.AnnotationOwner: namespace + "/x/a b,c"})
		time.Sleep(10 * time.Second)
		w.wantRecords(fmt.Sprintf("x.example.com 10.0.1.2: Kubernetes IPAddressClaim %s (a/x)", w.claim("x").UID))
	})
}

// Nobody but the leader writes to Infoblox.
func TestFence(t *testing.T) {
	tell(t, func(w *world) {
		fence := &lease.Fence{}
		fence.Close()
		w.fence = fence
	}, func(w *world) {
		w.createClaim("x", "v4", nil)
		time.Sleep(time.Hour)
		w.wantRecords()
	})
}

// Claims of the version before are read as they are, also one that was moved: its token is the UID that its IPAddress notes.
func TestVersionBefore(t *testing.T) {
	const moved = "eeeeeeee-0000-4000-8000-000000000000"
	notes := map[string]string{AnnotationPlace: "i/default", AnnotationName: "m.example.com", v1alpha1.AnnotationHostname: "m.example.com", contract.AnnotationClaimUID: moved}
	tell(t, func(w *world) {
		w.wapiDo("POST", "record:host", hostOf("m.example.com", "Kubernetes IPAddressClaim "+moved+" (a/x)", "10.0.1.7"))
		w.putServed("x", "10.0.1.7", map[string]string{AnnotationPlace: "i/default", AnnotationName: "m.example.com", AnnotationAddress: "10.0.1.7", contract.AnnotationClaimUID: moved}, notes)
	}, func(w *world) {
		w.wantReady("x", "Ready", "10.0.1.7")
		if got, _ := contract.Owner(w.claim("x")); got != moved {
			t.Errorf("the token is %s", got)
		}
		w.deleteClaim("x")
		time.Sleep(time.Minute)
		w.wantRecords()
	})
}

// A host name outside of the zone is said before Infoblox is asked, and can be corrected. A short name gets the zone.
func TestHostname(t *testing.T) {
	tell(t, nil, func(w *world) {
		w.createClaim("x", "v4", map[string]string{v1alpha1.AnnotationHostname: "node1.example.org"})
		time.Sleep(10 * time.Second)
		w.wantReady("x", v1beta2.ReasonAllocationFailed, "The host name node1.example.org is not in the zone example.com")
		w.wantRecords()
		w.servers[0].Annotate(runner.IPAddressClaims, in("x"), map[string]string{v1alpha1.AnnotationHostname: "node1"})
		time.Sleep(10 * time.Second)
		w.wantRecords(fmt.Sprintf("node1.example.com 10.0.1.2: Kubernetes IPAddressClaim %s (a/x)", w.claim("x").UID))
	})
}

// An InfobloxInstance is deleted before its claims: they wait and say what to do.
func TestInstanceGone(t *testing.T) {
	tell(t, nil, func(w *world) {
		w.createClaim("x", "small", nil)
		time.Sleep(10 * time.Second)
		instance, _ := contracttest.Read[v1alpha1.InfobloxInstance](w.servers[0], runner.InfobloxInstances, "", "i")
		w.servers[0].Drop(runner.InfobloxInstances, types.NamespacedName{Name: "i"})
		w.deleteClaim("x")
		time.Sleep(time.Hour)
		w.wantReady("x", reasonReleaseFailed, "the InfobloxInstance i, which does not exist or is not ready. Create it again, or see its condition Ready. Or remove the finalizer "+v1beta2.FinalizerReleaseAddress)
		instance.ResourceVersion = ""
		put(w.servers[0], runner.InfobloxInstances, instance)
		time.Sleep(2 * time.Minute)
		w.wantRecords()
		w.wantGone("x")
	})
}

// The pool of a claim names another InfobloxInstance: a chosen record stays. Another name of the same Infoblox is none.
func TestOtherInstance(t *testing.T) {
	for host, served := range map[string]bool{"Infoblox.": true, "elsewhere": false} {
		tell(t, func(w *world) {
			other, _ := contracttest.Read[v1alpha1.InfobloxInstance](w.servers[0], runner.InfobloxInstances, "", "i")
			other.ObjectMeta = metav1.ObjectMeta{Name: "j"}
			other.Spec.Host = host
			put(w.servers[0], runner.InfobloxInstances, other)
		}, func(w *world) {
			w.become(wapitest.NewGrid())
			w.createClaim("x", "small", map[string]string{AnnotationPlace: "i/default", AnnotationName: "x"})
			time.Sleep(2 * time.Minute)
			w.wantReady("x", v1beta2.ReasonPoolNotReady, "Infoblox has no network 10.0.0.0/28")
			w.become(wapitest.NewGrid("10.0.0.0/28"))
			if _, err := w.servers[0].Edit(runner.InfobloxIPPools, in("small"), false, map[string]any{"metadata": map[string]any{"generation": int64(2)}, "spec": map[string]any{"instance": map[string]any{"name": "j"}}}); err != nil {
				t.Fatal(err)
			}
			time.Sleep(2 * time.Minute)
			if served {
				w.wantReady("x", "Ready", "10.0.0.2")
			} else {
				w.wantReady("x", v1beta2.ReasonAllocationFailed, "The host record x of the claim is in the InfobloxInstance i and the network view default, and the InfobloxIPPool small names others.")
			}
		})
	}
}

// What is missing in Infoblox is found when it is missing and when it comes, and Infoblox is asked at most once a minute. IPAddresses without a claim are named.
func TestChecks(t *testing.T) {
	for name, tc := range map[string]struct {
		break_ func(g *wapitest.Grid)
		pool   string
		want   string
	}{
		"everything is there":                 {func(*wapitest.Grid) {}, "v4", "Ready"},
		"no DNS view, which nobody needs":     {func(g *wapitest.Grid) { g.DNSViews = nil }, "small", "Ready"},
		"no DNS view for the zone":            {func(g *wapitest.Grid) { g.DNSViews = nil }, "v4", v1alpha1.ReasonDNSViewNotFound},
		"no network":                          {func(g *wapitest.Grid) { g.Networks["default"] = nil }, "v4", v1alpha1.ReasonNetworkNotFound},
		"no network view, and a pool uses it": {func(g *wapitest.Grid) { g.NetworkViews = nil }, "v4", v1alpha1.ReasonNetworkViewNotFound},
	} {
		t.Run(name, func(t *testing.T) {
			tell(t, func(w *world) { tc.break_(w.grid) }, func(w *world) {
				says := func() *metav1.Condition {
					pool, _ := contracttest.Read[v1alpha1.InfobloxIPPool](w.servers[0], runner.InfobloxIPPools, namespace, tc.pool)
					return contract.Find(pool.Status.Conditions, "Ready")
				}
				if got := says(); got == nil || got.Reason != tc.want {
					t.Errorf("the pool says %+v, want %s", got, tc.want)
				}
				instance, _ := contracttest.Read[v1alpha1.InfobloxInstance](w.servers[0], runner.InfobloxInstances, "", "i")
				if got := contract.Find(instance.Status.Conditions, "Ready"); got == nil || got.Reason != v1alpha1.ReasonConfigurationValid {
					t.Errorf("the instance says %+v", got)
				}
				asked := w.become(wapitest.NewGrid("10.0.0.0/28", "10.0.1.0/24", "fd00::/120"))
				put(w.servers[0], runner.IPAddresses, &v1beta2.IPAddress{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "stray", Finalizers: []string{v1beta2.FinalizerProtectAddress}}, Spec: v1beta2.IPAddressSpec{
					PoolRef: v1beta2.IPPoolReference{APIGroup: runner.GroupIPAM, Kind: v1alpha1.KindInfobloxIPPool, Name: tc.pool}, Address: "10.0.1.99"}})
				time.Sleep(10 * time.Minute)
				if got := says(); got == nil || got.Reason != v1alpha1.ReasonReady || !strings.Contains(got.Message, "IPAddresses without an IPAddressClaim: 1 (a/stray)") {
					t.Errorf("later the pool says %+v", got)
				}
				w.mu.Lock()
				defer w.mu.Unlock()
				if most := 11 * 10; w.asked-asked > most { // An instance and three pools take ten requests.
					t.Errorf("%d requests in ten minutes, want at most %d", w.asked-asked, most)
				}
			})
		})
	}
}

// What is between here and an Infoblox that is away fails in another way each time. That is in conditions, whose changes queue their objects. Infoblox is not asked more
// often for that.
func TestAway(t *testing.T) {
	tell(t, nil, func(w *world) {
		w.createClaim("x", "small", nil)
		time.Sleep(10 * time.Second)
		w.away.Store(true)
		w.createClaim("y", "small", nil)
		w.deleteClaim("x")
		before := w.failed.Load()
		time.Sleep(10 * time.Minute)
		if asked := w.failed.Load() - before; asked > 10*6*(1+2) { // An instance, and two claims.
			t.Errorf("%d requests in ten minutes", asked)
		}
		w.wantReady("x", reasonReleaseFailed, "which does not exist or is not ready")
		w.away.Store(false)
		time.Sleep(time.Minute)
		w.wantReady("y", "Ready", "10.0.0.")
		w.wantGone("x")
	})
}

// owners is an API server that has owners of claims.
type owners struct {
	runner.API
	of    map[string][]metav1.OwnerReference
	asked []string
}

func (o *owners) Get(_ context.Context, kind *runner.Kind, of types.NamespacedName, into metav1.Object) error {
	o.asked = append(o.asked, kind.Resource+"."+kind.Group+"/"+kind.Versions[0])
	found, ok := o.of[kind.Name+" "+of.Name]
	switch {
	case of.Name == "secret":
		return apierrors.NewForbidden(schema.GroupResource{Resource: kind.Resource}, of.Name, nil)
	case !ok:
		return apierrors.NewNotFound(schema.GroupResource{Resource: kind.Resource}, of.Name)
	}
	into.SetUID("u")
	into.SetOwnerReferences(found)
	return nil
}

// The host name is that of the Machine, however far it is.
func TestMachine(t *testing.T) {
	ref := func(version, kind, name string) metav1.OwnerReference {
		return metav1.OwnerReference{APIVersion: version, Kind: kind, Name: name, UID: "u", Controller: new(true)}
	}
	const infra = "infrastructure.cluster.x-k8s.io/v1beta1"
	machine := ref("cluster.x-k8s.io/v1beta2", "Machine", "m")
	for name, tc := range map[string]struct {
		owner metav1.OwnerReference
		of    map[string][]metav1.OwnerReference
		want  string
		fails string
	}{
		"its owner":           {owner: machine, want: "m"},
		"Metal3":              {owner: ref(infra, "Metal3Data", "d"), of: map[string][]metav1.OwnerReference{"Metal3Data d": {ref(infra, "Metal3DataTemplate", "t"), ref(infra, "Metal3Machine", "mm")}, "Metal3Machine mm": {machine}}, want: "m"},
		"no Machine":          {owner: ref("v1", "ConfigMap", "c"), of: map[string][]metav1.OwnerReference{"ConfigMap c": nil}, want: "c"},
		"an owner is gone":    {owner: ref(infra, "VSphereVM", "v"), want: "v"},
		"not another Machine": {owner: ref("machines.example.com/v1", "Machine", "other"), want: "other"},
		"a circle":            {owner: ref(infra, "A", "a"), of: map[string][]metav1.OwnerReference{"A a": {ref(infra, "A", "a")}}, want: "a"},
		"beside a secret":     {owner: ref(infra, "Metal3Data", "d"), of: map[string][]metav1.OwnerReference{"Metal3Data d": {ref(infra, "Metal3DataTemplate", "secret"), ref(infra, "Metal3Machine", "mm")}, "Metal3Machine mm": {machine}}, want: "m"},
		"it may not be read":  {owner: ref(infra, "Metal3Data", "secret"), want: "secret", fails: "Give it get on metal3datas of the group infrastructure.cluster.x-k8s.io"},
	} {
		api := &owners{of: tc.of}
		l := &logic{term: &runner.Term{API: api}}
		got, err := l.machineOf(t.Context(), &v1beta2.IPAddressClaim{ObjectMeta: metav1.ObjectMeta{OwnerReferences: []metav1.OwnerReference{tc.owner}}})
		if got != tc.want || tc.fails == "" && err != nil || tc.fails != "" && (err == nil || !strings.Contains(err.Error(), tc.fails)) {
			t.Errorf("%s: %q, %v, asked for %v", name, got, err, api.asked)
		}
	}
}

// The user in the Secret may not read host records. All claims that share a name say so at once.
func TestHostRecordsMayNotBeRead(t *testing.T) {
	tell(t, nil, func(w *world) {
		w.denied.Store(true)
		names := []string{"a", "b", "c", "d"}
		for _, name := range names {
			w.createClaim(name, "v4", map[string]string{v1alpha1.AnnotationHostname: "m"})
		}
		time.Sleep(5 * time.Second)
		for _, name := range names {
			w.wantReady(name, v1beta2.ReasonAllocationFailed, "no permission")
		}
		w.denied.Store(false)
		time.Sleep(time.Minute)
		for _, name := range names {
			w.wantReady(name, "Ready", "")
		}
	})
}

// A claim was created again under its name and has a host record, but no IPAddress yet, when the controllers are stopped. A restore brings the IPAddress of the former
// claim of that name. The claim is deleted: its own record is given up, and an event tells of the address.
func TestAFormerIPAddressIsRestored(t *testing.T) {
	const was, is = "eeeeeeee-0000-4000-8000-000000000001", "eeeeeeee-0000-4000-8000-000000000002"
	tell(t, func(w *world) {
		w.wapiDo("POST", "record:host", hostOf("m2.example.com", "Kubernetes IPAddressClaim "+is+" (a/x)", "10.0.1.3"))
		w.createClaim("x", "v4", restored("x", is, "m2.example.com", ""))
		w.putAddress("v4", "x", "10.0.1.2", restored("x", was, "m1.example.com", "10.0.1.2"))
	}, func(w *world) {
		w.deleteClaim("x")
		time.Sleep(5 * time.Minute)
		w.wantGone("x")
		w.wantRecords("m2.example.com 10.0.1.3: ") // and its comment names no claim
	})
}

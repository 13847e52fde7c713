package known

import (
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/multicidr/controller-manager/apis/clusterapi/v1beta2"
	"github.com/multicidr/controller-manager/controllers/clusteripam/shell"
	"github.com/multicidr/controller-manager/controllers/internal/race"
)

var (
	seedsFlag = flag.Uint64("histories.seeds", race.Part(uint64(3000)), "how many histories TestHistories makes")
	firstFlag = flag.Uint64("histories.first", 0, "seed of the first history")
)

// event is what the watch of a kind shows.
type event struct {
	object metav1.Object
	gone   bool
}

// history is an API server with claims and IPAddresses of a few names, of which anybody changes anything, and a World that hears of it late. Of some writes the Stores
// have the answers before.
type history struct {
	*heard
	r       *rand.Rand
	feed    *shell.Feed
	stored  [2]map[string]metav1.Object // claims and IPAddresses
	shown   [2]map[types.UID]metav1.Object
	watches [2][]event
	version int
}

func newHistory(seed uint64) *history {
	h := &history{heard: newHeard(), r: rand.New(rand.NewPCG(seed, 1))}
	h.feed = &shell.Feed{Lock: &shell.Lock{}, Logic: h.heard}
	h.feed.Fill()
	for kind := range h.stored {
		h.stored[kind], h.shown[kind] = map[string]metav1.Object{}, map[types.UID]metav1.Object{}
	}
	return h
}

func oneOf[T any](r *rand.Rand, of ...T) T { return of[r.IntN(len(of))] }

// rolled returns an object with anything in it.
func (h *history) rolled(kind int, name string, uid types.UID) metav1.Object {
	h.version++
	meta := metav1.ObjectMeta{Namespace: "n", Name: name, UID: uid, ResourceVersion: strconv.Itoa(h.version), Finalizers: oneOf(h.r, nil, []string{v1beta2.FinalizerProtectAddress}), Annotations: map[string]string{}}
	for key, value := range map[string]string{
		AnnotationClaim: oneOf(h.r, "", "was", "1"), AnnotationPlace: oneOf(h.r, "", "i/default", "j/default"), AnnotationName: oneOf(h.r, "", "h"),
		AnnotationReleasedBy: oneOf(h.r, "", "", "", "1"), AnnotationAddress: oneOf(h.r, "", "10.0.0.2", "10.0.0.3"),
	} {
		if value != "" {
			meta.Annotations[key] = value
		}
	}
	pool := v1beta2.IPPoolReference{APIGroup: shell.GroupIPAM, Kind: oneOf(h.r, "InfobloxIPPool", "InfobloxIPPool", "InClusterIPPool"), Name: oneOf(h.r, "p", "q")}
	if kind == 0 {
		c := &v1beta2.IPAddressClaim{ObjectMeta: meta, Spec: v1beta2.IPAddressClaimSpec{PoolRef: pool}}
		c.Status.AddressRef.Name = oneOf(h.r, "", name)
		return c
	}
	return &v1beta2.IPAddress{ObjectMeta: meta, Spec: v1beta2.IPAddressSpec{PoolRef: pool, ClaimRef: v1beta2.IPAddressClaimReference{Name: name}, Address: oneOf(h.r, "10.0.0.2", "10.0.0.3", "fd00::1", "what")}}
}

func (h *history) changes(own bool) {
	kind, name := h.r.IntN(2), oneOf(h.r, "a", "b", "c")
	is := h.stored[kind][name]
	if is != nil && h.r.IntN(4) == 0 {
		delete(h.stored[kind], name)
		h.version++
		h.watches[kind] = append(h.watches[kind], event{is, true})
		return
	}
	uid := types.UID(fmt.Sprint(h.version))
	if is != nil {
		uid = is.GetUID()
	}
	o := h.rolled(kind, name, uid)
	h.stored[kind][name] = o
	h.watches[kind] = append(h.watches[kind], event{object: o})
	if own {
		h.wrote(o)
	}
}

func (h *history) show(kind int, e event) {
	switch o := e.object.(type) {
	case *v1beta2.IPAddressClaim:
		if e.gone {
			h.feed.Gone(h.Claims, o)
		} else {
			h.feed.Shows(h.Claims, o)
		}
	case *v1beta2.IPAddress:
		if e.gone {
			h.feed.Gone(h.Addresses, o)
		} else {
			h.feed.Shows(h.Addresses, o)
		}
	}
	if h.shown[kind][e.object.GetUID()] = e.object; e.gone {
		delete(h.shown[kind], e.object.GetUID())
	}
}

func (h *history) deliver(kind int) {
	if len(h.watches[kind]) > 0 {
		e := h.watches[kind][0]
		h.watches[kind] = h.watches[kind][1:]
		h.show(kind, e)
	}
}

// relist: a watch has missed events.
func (h *history) relist(kind int) {
	h.watches[kind] = nil
	gone := maps.Clone(h.shown[kind])
	if kind == 0 {
		for _, c := range h.Claims.List() {
			gone[c.UID] = c
		}
	} else {
		for _, a := range h.Addresses.List() {
			gone[a.UID] = a
		}
	}
	for _, o := range h.stored[kind] {
		delete(gone, o.GetUID())
	}
	for _, uid := range slices.Sorted(maps.Keys(gone)) {
		h.show(kind, event{gone[uid], true})
	}
	for _, name := range slices.Sorted(maps.Keys(h.stored[kind])) {
		h.show(kind, event{object: h.stored[kind][name]})
	}
}

// check compares what is noted with what a World notes that starts now.
func (h *history) check(t *testing.T) {
	var claims, all []metav1.Object
	uids := map[types.UID]bool{}
	for kind := range h.stored {
		for _, o := range h.stored[kind] {
			if uids[o.GetUID()] = true; kind == 0 {
				claims = append(claims, o)
			}
			all = append(all, o)
		}
	}
	fresh := newHeard(claims...)
	maps.Copy(fresh.First, h.First)
	feed := &shell.Feed{Lock: &shell.Lock{}, Logic: fresh}
	feed.Fill()
	for _, o := range all {
		fresh.shows(feed, o)
	}
	for what, diff := range map[string]string{
		"Holders": cmp.Diff(fresh.Holders, h.Holders), "told": cmp.Diff(fresh.told, h.told), "expects": cmp.Diff(fresh.expects, h.expects),
		"ClaimsOf": cmp.Diff(fresh.ClaimsOf, h.ClaimsOf), "AddressesOf": cmp.Diff(fresh.AddressesOf, h.AddressesOf),
	} {
		if diff != "" {
			t.Errorf("%s (-of a World that starts now, +of this one):\n%s", what, diff)
		}
	}
	for pool, names := range h.strays { // Who is without a claim depends on others, too, and is looked at again whenever somebody asks.
		for name := range names {
			if !h.AddressesOf[pool][name] {
				t.Errorf("%v is noted as an IPAddress without a claim of the pool %v, and is not of that pool", name, pool)
			}
		}
	}
	for uid, name := range fresh.Names {
		if h.Names[uid] != name {
			t.Errorf("of the claim %s it knows %v, want %v", uid, h.Names[uid], name)
		}
	}
	for uid := range h.Names {
		if !uids[uid] {
			t.Errorf("the claim %s is not forgotten", uid)
		}
	}
	for uid := range h.First {
		if !uids[uid] {
			t.Errorf("the IPAddress %s is not forgotten", uid)
		}
	}
}

// TestHistories: whoever changes or deletes what, and whatever this process has written and a watch misses, in the end a World notes the same as one that starts now.
func TestHistories(t *testing.T) {
	for seed := *firstFlag; seed < *firstFlag+*seedsFlag; seed++ {
		h := newHistory(seed)
		for range 60 {
			switch h.r.IntN(10) {
			case 0, 1, 2:
				h.changes(false)
			case 3, 4:
				h.changes(true)
			case 5:
				h.relist(h.r.IntN(2))
			default:
				h.deliver(h.r.IntN(2))
			}
		}
		for kind := range h.watches {
			for len(h.watches[kind]) > 0 {
				h.deliver(kind)
			}
		}
		if h.check(t); t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
}

package infoblox

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/multicidr/controller-manager/apis/clusterapi/v1alpha1"
	"github.com/multicidr/controller-manager/apis/clusterapi/v1beta2"
	"github.com/multicidr/controller-manager/controllers/clusteripam/infoblox/host"
	"github.com/multicidr/controller-manager/controllers/clusteripam/infoblox/known"
	"github.com/multicidr/controller-manager/controllers/clusteripam/shell"
	"github.com/multicidr/controller-manager/controllers/writes"
)

// TestHeldByAnother: a claim of pool p, or another one, is given 10.0.0.5 at a place. An IPAddress of pool p has this address in network view v of
// the InfobloxInstance i. Nothing but the names says that j is the same Infoblox, and other is not.
func TestHeldByAnother(t *testing.T) {
	for name, tc := range map[string]struct {
		pool string
		at   known.Place
		want bool
	}{
		"the place":                                 {"q", known.Place{Instance: "i", NetworkView: "v"}, true},
		"another network view":                      {"q", known.Place{Instance: "i", NetworkView: "w"}, false},
		"another Infoblox":                          {"q", known.Place{Instance: "other", NetworkView: "v"}, false},
		"the Infoblox under another name":           {"q", known.Place{Instance: "j", NetworkView: "v"}, true},
		"the Infoblox, and its port in its name":    {"q", known.Place{Instance: "k", NetworkView: "v"}, true},
		"an InfobloxInstance that is gone":          {"q", known.Place{Instance: "gone", NetworkView: "v"}, false},
		"the pool, of an InfobloxInstance that was": {"p", known.Place{Instance: "gone", NetworkView: "v"}, true},
		"the pool, and a network view that was":     {"p", known.Place{Instance: "i", NetworkView: "w"}, true},
	} {
		t.Run(name, func(t *testing.T) {
			now := start
			l := testLogic(t, nil, &now)
			feed := &shell.Feed{Lock: l.Lock, Logic: l}
			for instance, host := range map[string]string{"i": "Infoblox.example", "j": "infoblox.example", "k": "infoblox.example:443", "other": "other.example"} {
				feed.Shows(l.Instances, &v1alpha1.InfobloxInstance{ObjectMeta: metav1.ObjectMeta{Name: instance, UID: types.UID(instance)}, Spec: v1alpha1.InfobloxInstanceSpec{Host: host}})
			}
			pool := func(name string) v1beta2.IPPoolReference {
				return v1beta2.IPPoolReference{APIGroup: shell.GroupIPAM, Kind: v1alpha1.KindInfobloxIPPool, Name: name}
			}
			feed.Shows(l.Addresses, &v1beta2.IPAddress{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "has", Annotations: map[string]string{known.AnnotationPlace: "i/v"}},
				Spec: v1beta2.IPAddressSpec{PoolRef: pool("p"), Address: "10.0.0.5"}})
			feed.Shows(l.Claims, &v1beta2.IPAddressClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "wants", UID: "1"}, Spec: v1beta2.IPAddressClaimSpec{PoolRef: pool(tc.pool)}})
			feed.Fill()
			if got := (known.At{World: l.World, Place: tc.at}).HeldByAnother("1", netip.MustParseAddr("10.0.0.5")); got != tc.want {
				t.Errorf("held: %t", got)
			}
			if conflicts := l.Figures().Conflicts; conflicts != 0 {
				t.Errorf("one IPAddress, %d conflicts", conflicts)
			}
			feed.Shows(l.Addresses, &v1beta2.IPAddress{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "wants", Annotations: map[string]string{known.AnnotationPlace: tc.at.String()}},
				Spec: v1beta2.IPAddressSpec{PoolRef: pool(tc.pool), Address: "10.0.0.5"}})
			if conflicts := l.Figures().Conflicts; (conflicts == 1) != tc.want {
				t.Errorf("two IPAddresses, %d conflicts", conflicts)
			}
		})
	}
}

// TestHeldSomewhere: the InfobloxInstance of an IPAddress was deleted. It may have been the Infoblox that gives the same address to another claim, under another
// name.
func TestHeldSomewhere(t *testing.T) {
	now := start
	l := testLogic(t, nil, &now)
	feed := &shell.Feed{Lock: l.Lock, Logic: l}
	feed.Shows(l.Instances, &v1alpha1.InfobloxInstance{ObjectMeta: metav1.ObjectMeta{Name: "i", UID: "i"}, Spec: v1alpha1.InfobloxInstanceSpec{Host: "infoblox.example"}})
	feed.Shows(l.Addresses, &v1beta2.IPAddress{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "has", Annotations: map[string]string{known.AnnotationPlace: "gone/v"}},
		Spec: v1beta2.IPAddressSpec{PoolRef: v1beta2.IPPoolReference{APIGroup: shell.GroupIPAM, Kind: v1alpha1.KindInfobloxIPPool, Name: "p"}, Address: "10.0.0.5"}})
	feed.Fill()
	held := func(where known.Place) (is bool) {
		l.Lock.With(func() {
			is = (known.At{World: l.World, Place: where}).HeldByAnother("1", netip.MustParseAddr("10.0.0.5"))
		})
		return is
	}
	for view, want := range map[string]bool{"v": true, "w": false} {
		if got := held(known.Place{Instance: "i", NetworkView: view}); got != want {
			t.Errorf("in network view %s: held: %t", view, got)
		}
	}
	// The controller has seen at which host the InfobloxInstance was, and that another one is the same Infoblox.
	gone := &v1alpha1.InfobloxInstance{ObjectMeta: metav1.ObjectMeta{Name: "gone", UID: "gone"}, Spec: v1alpha1.InfobloxInstanceSpec{Host: "other.example"}}
	same := &v1alpha1.InfobloxInstance{ObjectMeta: metav1.ObjectMeta{Name: "same", UID: "same", ResourceVersion: "1"}, Spec: v1alpha1.InfobloxInstanceSpec{Host: "other.example"}}
	feed.Shows(l.Instances, gone)
	feed.Shows(l.Instances, same)
	feed.Gone(l.Instances, gone)
	for instance, want := range map[string]bool{"i": false, "same": true} {
		if got := held(known.Place{Instance: instance, NetworkView: "v"}); got != want {
			t.Errorf("in the InfobloxInstance %s: held: %t", instance, got)
		}
	}
	// That one gets another host.
	same = same.DeepCopy()
	same.Spec.Host, same.ResourceVersion = "other-name.example", "2"
	if feed.Shows(l.Instances, same); !held(known.Place{Instance: "same", NetworkView: "v"}) {
		t.Error("not held in the same Infoblox at another host")
	}
}

// TestHeldWhereItWasLast: an InfobloxInstance gets another host, is used there, and is deleted, and the watch misses that. What an answer has shown before is known.
func TestHeldWhereItWasLast(t *testing.T) {
	now := start
	l := testLogic(t, nil, &now)
	feed := &shell.Feed{Lock: l.Lock, Logic: l}
	instance := func(name, version, host string) *v1alpha1.InfobloxInstance {
		return &v1alpha1.InfobloxInstance{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name), ResourceVersion: version}, Spec: v1alpha1.InfobloxInstanceSpec{Host: host}}
	}
	feed.Shows(l.Instances, instance("same", "1", "new.example"))
	feed.Shows(l.Instances, instance("gone", "2", "old.example"))
	feed.Shows(l.Addresses, &v1beta2.IPAddress{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "has", Annotations: map[string]string{known.AnnotationPlace: "gone/v"}},
		Spec: v1beta2.IPAddressSpec{PoolRef: v1beta2.IPPoolReference{APIGroup: shell.GroupIPAM, Kind: v1alpha1.KindInfobloxIPPool, Name: "p"}, Address: "10.0.0.5"}})
	feed.Fill()
	feed.Wrote(l.Instances, instance("gone", "4", "new.example")) // the answer to its status
	feed.Gone(l.Instances, instance("gone", "4", "new.example"))  // as after a list
	l.Lock.With(func() {
		if !(known.At{World: l.World, Place: known.Place{Instance: "same", NetworkView: "v"}}).HeldByAnother("1", netip.MustParseAddr("10.0.0.5")) {
			t.Error("nobody has the address of an InfobloxInstance that was this Infoblox when it was deleted")
		}
	})
}

// TestRecordOutlastsInstance: a write without an answer is remembered after its InfobloxInstance is deleted, and when it is created again. A release that
// does not know of it ends before the write is carried out, and leaves a host record of nobody.
func TestRecordOutlastsInstance(t *testing.T) {
	now := start
	l := testLogic(t, nil, &now)
	feed := &shell.Feed{Lock: l.Lock, Logic: l}
	instance := &v1alpha1.InfobloxInstance{ObjectMeta: metav1.ObjectMeta{Name: "i", UID: "1"}, Spec: v1alpha1.InfobloxInstanceSpec{Host: "infoblox.example"}}
	feed.Shows(l.Instances, instance)
	feed.Fill()
	record := known.RecordName{Place: known.Place{Instance: "i", NetworkView: "v"}, Name: "host"}
	l.Lock.With(func() { l.recordState(record).unsettle(true, now) })
	settles := func() error {
		var r *recordState
		l.Lock.With(func() { r = l.recordState(record) })
		return l.settles(r, false)
	}
	if feed.Gone(l.Instances, instance); settles() == nil {
		t.Error("the write is forgotten after the InfobloxInstance was deleted")
	}
	if feed.Shows(l.Instances, instance); settles() == nil {
		t.Error("the write is forgotten after the InfobloxInstance was created again")
	}
	if now = now.Add(settled); settles() != nil {
		t.Error("the write is never over")
	}
}

// TestLeave: a claim does not leave its host record when the cache only does not show its IPAddress yet, or that it was told of one, which somebody has
// deleted by force since: its machine uses the address.
func TestLeave(t *testing.T) {
	served := &v1beta2.IPAddressClaim{ObjectMeta: metav1.ObjectMeta{UID: "1"}}
	served.Status.AddressRef.Name = "c"
	waits := &v1beta2.IPAddressClaim{ObjectMeta: metav1.ObjectMeta{UID: "1"}}
	for name, tc := range map[string]struct {
		stored  map[*shell.Kind]metav1.Object
		telling time.Duration
		want    error
	}{
		"there is an IPAddress":        {map[*shell.Kind]metav1.Object{shell.IPAddresses: &v1beta2.IPAddress{}, shell.IPAddressClaims: waits}, 0, writes.Later(time.Second)},
		"there was one":                {map[*shell.Kind]metav1.Object{shell.IPAddressClaims: served}, 0, writes.Later(time.Second)},
		"the claim may yet be told so": {map[*shell.Kind]metav1.Object{shell.IPAddressClaims: waits}, 7 * time.Second, writes.Later(7 * time.Second)},
		"another claim has the name":   {map[*shell.Kind]metav1.Object{shell.IPAddressClaims: &v1beta2.IPAddressClaim{}}, 0, writes.Later(time.Second)},
		"there was none":               {map[*shell.Kind]metav1.Object{shell.IPAddressClaims: waits}, 0, nil},
	} {
		t.Run(name, func(t *testing.T) {
			now := start
			l := testLogic(t, storedObjects{of: tc.stored}, &now)
			l.Telling["1"] = now.Add(tc.telling)
			if err := l.leave(t.Context(), waits); !errors.Is(err, tc.want) {
				t.Errorf("got %v, want %v", err, tc.want)
			}
		})
	}
}

// TestTellingWithoutAnswer: a write that tells a claim of its IPAddress may be carried out later if it was not answered.
func TestTellingWithoutAnswer(t *testing.T) {
	for name, tc := range map[string]struct {
		answer error
		want   bool
	}{
		"no answer": {context.DeadlineExceeded, true},
		"refused":   {apierrors.NewConflict(schema.GroupResource{}, "c", nil), false},
		"stored":    {nil, false},
	} {
		t.Run(name, func(t *testing.T) {
			now := start
			l := testLogic(t, answers{err: tc.answer}, &now)
			claim := &v1beta2.IPAddressClaim{ObjectMeta: metav1.ObjectMeta{UID: "1"}}
			(&shell.Feed{Lock: l.Lock, Logic: l}).Shows(l.Claims, claim)
			if err := l.status(t.Context(), claim, metav1.Condition{Type: v1beta2.ConditionReady, Status: metav1.ConditionTrue, Reason: "Ready"}, "c"); !errors.Is(err, tc.answer) {
				t.Fatal(err)
			}
			if err := l.leave(t.Context(), claim); errors.Is(err, writes.Later(writeLasts)) != tc.want {
				t.Errorf("leave: %v", err)
			}
		})
	}
}

// answers is an API server that answers every patch with err, and every read with that there is nothing.
type answers struct {
	shell.API
	err error
}

func (a answers) Patch(context.Context, *shell.Kind, types.NamespacedName, shell.Patch, metav1.Object) error {
	return a.err
}

func (answers) Get(_ context.Context, kind *shell.Kind, of types.NamespacedName, _ metav1.Object) error {
	return apierrors.NewNotFound(schema.GroupResource{Resource: kind.Resource}, of.Name)
}

// storedObjects is an API server that answers reads, with one object of each kind.
type storedObjects struct {
	shell.API
	of map[*shell.Kind]metav1.Object
}

func (s storedObjects) Get(_ context.Context, kind *shell.Kind, of types.NamespacedName, object metav1.Object) error {
	switch o := s.of[kind].(type) {
	case *v1beta2.IPAddress:
		*object.(*v1beta2.IPAddress) = *o
	case *v1beta2.IPAddressClaim:
		*object.(*v1beta2.IPAddressClaim) = *o
	default:
		return apierrors.NewNotFound(schema.GroupResource{Resource: kind.Resource}, of.Name)
	}
	return nil
}

// The host record of an IPAddress has its mark, or none if another program has made both, and its address.
func TestReserves(t *testing.T) {
	uid := func(n int) types.UID { return types.UID(fmt.Sprintf("00000000-0000-0000-0000-%012d", n)) }
	const address, view = "10.0.0.2", "default"
	for name, tc := range map[string]struct {
		of       types.UID // of whom the record is
		view, at string
		unmarked bool
		want     bool
	}{
		"of the claim":                         {uid(1), view, address, false, true},
		"of the claim that it was made for":    {uid(2), "renamed", address, false, true},
		"of another claim":                     {uid(3), view, address, false, false},
		"of nobody":                            {"", view, address, false, false},
		"of another program":                   {"", view, address, true, true},
		"of another program, in another view":  {"", "other", address, true, false},
		"of another claim, was made otherwise": {uid(3), view, address, true, false},
		"with another address":                 {uid(2), view, "10.0.0.3", false, false},
	} {
		c := released{RecordName: known.RecordName{Place: known.Place{Instance: "i", NetworkView: view}}, Released: host.Released{UID: uid(1), Was: uid(2), Unmarked: tc.unmarked, Address: netip.MustParseAddr(address)}}
		r := host.Record{NetworkView: tc.view, IPv4: []host.Addr4{{Address: tc.at}}}
		if tc.of != "" {
			r.Comment = host.Mark([]types.UID{tc.of}, "")
		}
		if got := c.reserves(r); got != tc.want {
			t.Errorf("%s: %t, want %t", name, got, tc.want)
		}
	}
}

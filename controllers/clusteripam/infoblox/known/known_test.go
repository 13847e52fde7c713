package known

import (
	"maps"
	"slices"
	"strconv"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/multicidr/controller-manager/apis/clusterapi/v1alpha1"
	"github.com/multicidr/controller-manager/apis/clusterapi/v1beta2"
	"github.com/multicidr/controller-manager/controllers/clusteripam/infoblox/host"
	"github.com/multicidr/controller-manager/controllers/clusteripam/shell"
)

// The objects of these tests are in one namespace, and were made, if nothing else is said, for a claim that is not there any more: with the UID "was" it had 10.0.0.2
// in the host record "h".

// heard is a World that hears of objects as the controller does.
type heard struct {
	shell.Logic
	*World
}

func newHeard(objects ...metav1.Object) *heard {
	h := &heard{World: New("s", noQueue{}, time.Now, func(string) string { return "default" })}
	feed := &shell.Feed{Lock: &shell.Lock{}, Logic: h}
	feed.Fill()
	for _, o := range objects {
		h.shows(feed, o)
	}
	return h
}

func (h *heard) wrote(object metav1.Object) {
	if _, ok := object.(*v1beta2.IPAddress); ok {
		(&shell.Feed{}).Wrote(h.Addresses, object)
		return
	}
	(&shell.Feed{}).Wrote(h.Claims, object)
}

func (h *heard) shows(feed *shell.Feed, object metav1.Object) {
	if _, ok := object.(*v1beta2.IPAddress); ok {
		feed.Shows(h.Addresses, object)
		return
	}
	feed.Shows(h.Claims, object)
}

func (*heard) Fill() {}

func (h *heard) Heard(c shell.Change) {
	if c.Kind == shell.IPAddresses {
		before, _ := c.Before.(*v1beta2.IPAddress)
		now, _ := c.Now.(*v1beta2.IPAddress)
		h.HeardOfAddress(before, now)
		return
	}
	before, _ := c.Before.(*v1beta2.IPAddressClaim)
	now, _ := c.Now.(*v1beta2.IPAddressClaim)
	h.HeardOfClaim(before, now)
}

type noQueue struct{}

func (noQueue) Add(shell.Key)                     {}
func (noQueue) AddAfter(shell.Key, time.Duration) {}

func annotations(more ...string) map[string]string {
	all := map[string]string{AnnotationClaim: "was", AnnotationPlace: "i/default", AnnotationName: "h"}
	for n := 0; n < len(more); n += 2 {
		all[more[n]] = more[n+1]
	}
	return all
}

func poolOf(kind string) v1beta2.IPPoolReference {
	return v1beta2.IPPoolReference{APIGroup: shell.GroupIPAM, Kind: kind, Name: "p"}
}

func address(name string, edits ...func(*v1beta2.IPAddress)) *v1beta2.IPAddress {
	a := &v1beta2.IPAddress{
		ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: name, UID: types.UID("address " + name), Annotations: annotations(), Finalizers: []string{v1beta2.FinalizerProtectAddress}},
		Spec:       v1beta2.IPAddressSpec{Address: "10.0.0.2", PoolRef: poolOf(v1alpha1.KindInfobloxIPPool), ClaimRef: v1beta2.IPAddressClaimReference{Name: name}},
	}
	for _, edit := range edits {
		edit(a)
	}
	return a
}

// claim is a claim that was told that it has the address.
func claim(name string, edits ...func(*v1beta2.IPAddressClaim)) *v1beta2.IPAddressClaim {
	c := &v1beta2.IPAddressClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: name, UID: types.UID("claim " + name), Annotations: annotations(AnnotationAddress, "10.0.0.2")},
		Spec:       v1beta2.IPAddressClaimSpec{PoolRef: poolOf(v1alpha1.KindInfobloxIPPool)},
	}
	c.Status.AddressRef.Name = name
	for _, edit := range edits {
		edit(c)
	}
	return c
}

func untold(c *v1beta2.IPAddressClaim)  { c.Status.AddressRef.Name = "" }
func deleted(c *v1beta2.IPAddressClaim) { c.DeletionTimestamp = &metav1.Time{} }
func kept(c *v1beta2.IPAddressClaim)    { c.Finalizers = []string{"example.com/machine"} }
func elsewhere(c *v1beta2.IPAddress)    { c.Annotations[AnnotationPlace] = "j/default" }
func released(a *v1beta2.IPAddress)     { a.Annotations[AnnotationReleasedBy] = "somebody" }
func ofAnother(a *v1beta2.IPAddress)    { a.Spec.PoolRef.Kind = "InClusterIPPool" }
func unprotected(a *v1beta2.IPAddress)  { a.Finalizers = nil }
func saysNothing(c *v1beta2.IPAddressClaim) {
	untold(c)
	c.Annotations = nil
}
func otherRecord(a *v1beta2.IPAddress)     { a.Annotations[AnnotationName] = "g" }
func ofOriginal(c *v1beta2.IPAddressClaim) { c.UID = "was" }

// TestSharing is about an IPAddress x, and about a claim x that was told the same and whose IPAddress is gone: what else has their host record.
func TestSharing(t *testing.T) {
	for name, tc := range map[string]struct {
		others []metav1.Object
		want   []string
	}{
		"nothing":                                   {},
		"another IPAddress":                         {others: []metav1.Object{address("y")}, want: []string{"n/y"}},
		"two":                                       {others: []metav1.Object{address("z"), address("y")}, want: []string{"n/y", "n/z"}},
		"one in another Infoblox":                   {others: []metav1.Object{address("y", elsewhere)}},
		"one in another record":                     {others: []metav1.Object{address("y", otherRecord)}},
		"one that is being released":                {others: []metav1.Object{address("y", released)}},
		"one with its claim":                        {others: []metav1.Object{address("y"), claim("y")}, want: []string{"n/y"}},
		"one without its finalizer":                 {others: []metav1.Object{address("y", unprotected)}},
		"one without it, with its claim":            {others: []metav1.Object{address("y", unprotected), claim("y")}, want: []string{"n/y"}},
		"one without it, with a moved claim":        {others: []metav1.Object{address("y", unprotected), claim("y", untold)}, want: []string{"n/y"}},
		"one without it, with a claim that goes":    {others: []metav1.Object{address("y", unprotected), claim("y", untold, deleted)}},
		"one without it, in the way of a claim":     {others: []metav1.Object{address("y", unprotected), claim("y", saysNothing)}},
		"a claim without its IPAddress":             {others: []metav1.Object{claim("y")}, want: []string{"n/y"}},
		"a claim that another one stands in way of": {others: []metav1.Object{claim("y"), address("y", ofAnother)}, want: []string{"n/y"}},
		"a claim that goes":                         {others: []metav1.Object{claim("y", deleted)}},
		"a claim that was told nothing":             {others: []metav1.Object{claim("y", untold)}},
		"the claim that it was made for":            {others: []metav1.Object{claim("y", ofOriginal)}, want: []string{"n/y"}},
	} {
		t.Run(name, func(t *testing.T) {
			var got []string
			for _, other := range newHeard(append(tc.others, address("x"))...).Originals(address("x")) {
				got = append(got, other.String())
			}
			if !slices.Equal(got, tc.want) {
				t.Errorf("the IPAddress is a copy of %v, want %v", got, tc.want)
			}
			_, original := newHeard(tc.others...).Names["was"] // Of that one, nobody asks whether the IPAddress is gone.
			if got, want := newHeard(append(tc.others, claim("x"))...).IsCopied(claim("x")), len(tc.want) > 0 && !original; got != want {
				t.Errorf("the claim is copied: %t, want %t", got, want)
			}
		})
	}
}

// What this process writes is shown before it is heard of, and counts at once: the new IPAddress of a claim, and that a claim was told its address.
func TestSharingBeforeTheWatch(t *testing.T) {
	for name, written := range map[string]metav1.Object{"a new IPAddress": address("y"), "a claim is told": claim("y")} {
		t.Run(name, func(t *testing.T) {
			heard := claim("y")
			heard.ResourceVersion = "1"
			if _, ok := written.(*v1beta2.IPAddressClaim); ok {
				untold(heard)
			}
			h := newHeard(heard, address("x"))
			written.SetResourceVersion("2")
			h.wrote(written)
			if got := h.Originals(address("x")); len(got) != 1 {
				t.Errorf("originals: %v", got)
			}
			if !h.IsCopied(claim("x")) {
				t.Error("the claim is not copied")
			}
		})
	}
}

// An IPAddress that this process has created is edited, and the watch misses what it said before. Its machine has that.
func TestEditedBeforeTheWatch(t *testing.T) {
	created, edited := address("y"), address("y", func(a *v1beta2.IPAddress) { a.Spec.Address = "10.0.0.3" })
	created.ResourceVersion, edited.ResourceVersion = "2", "4"
	h := newHeard()
	feed := &shell.Feed{Lock: &shell.Lock{}, Logic: h}
	feed.Fill()
	h.wrote(created)
	if h.shows(feed, edited); len(h.Holders[HostAddress(created)]) != 1 || h.FirstOf(edited) != HostAddress(created) {
		t.Errorf("it has %v, want %v; holders: %v", h.FirstOf(edited), HostAddress(created), h.Holders)
	}
}

// TestExpecting is about claims that may get an IPAddress with the host record of x.
func TestExpecting(t *testing.T) {
	for name, tc := range map[string]struct {
		others []metav1.Object
		want   bool
	}{
		"nothing":                          {},
		"one that was moved here":          {others: []metav1.Object{claim("y", untold)}, want: true},
		"one that goes":                    {others: []metav1.Object{claim("y", untold, deleted)}},
		"one whose machine runs":           {others: []metav1.Object{claim("y", untold, deleted, kept)}, want: true},
		"one that was told":                {others: []metav1.Object{claim("y")}},
		"one with an IPAddress":            {others: []metav1.Object{claim("y", untold), address("y")}},
		"one with an IPAddress in its way": {others: []metav1.Object{claim("y", untold), address("y", ofAnother)}},
		"its own":                          {others: []metav1.Object{claim("x", untold)}},
		"one that can be asked":            {others: []metav1.Object{claim("y", untold), claim("z", ofOriginal)}},
		"one that begins to get another":   {others: []metav1.Object{claim("y", untold, func(c *v1beta2.IPAddressClaim) { c.Annotations[AnnotationName] = "g" })}, want: true},
		"one of another claim":             {others: []metav1.Object{claim("y", untold, func(c *v1beta2.IPAddressClaim) { c.Annotations[AnnotationClaim] = "another" })}},
		"one of another address":           {others: []metav1.Object{claim("y", untold, func(c *v1beta2.IPAddressClaim) { c.Annotations[AnnotationAddress] = "10.0.0.3" })}},
	} {
		t.Run(name, func(t *testing.T) {
			got := newHeard(tc.others...).Expecting(NameOf(address("x")), host.Released{Was: "was", Address: HostAddress(address("x"))})
			if (len(got) > 0) != tc.want {
				t.Errorf("%d claims", len(got))
			}
		})
	}
}

// What a claim was told, and what it says, is noted as long as it is so.
func TestToldIsForgotten(t *testing.T) {
	h := newHeard()
	feed := &shell.Feed{Lock: &shell.Lock{}, Logic: h}
	feed.Fill()
	versions := 0
	counts := func() [2]int { return [2]int{len(h.told), len(h.expects)} }
	for _, step := range []struct {
		claim *v1beta2.IPAddressClaim
		want  [2]int
	}{{claim("y", untold), [2]int{0, 1}}, {claim("y"), [2]int{1, 0}}, {claim("y", func(c *v1beta2.IPAddressClaim) { c.Annotations = nil }), [2]int{}}} {
		versions++
		step.claim.ResourceVersion = strconv.Itoa(versions)
		if h.shows(feed, step.claim); counts() != step.want {
			t.Errorf("%v, want %v", counts(), step.want)
		}
	}
}

// A claim names another provider's pool for a while. Its host record is still its own, for whoever hears of it only then as well.
func TestClaimOfAnotherProviderKeepsItsRecord(t *testing.T) {
	names := func(c *v1beta2.IPAddressClaim) { c.Spec.PoolRef = poolOf("InClusterIPPool") }
	never := func(c *v1beta2.IPAddressClaim) { c.Annotations = nil }
	h := newHeard(claim("x", names), claim("y", names, never), claim("z", never))
	if got := slices.Sorted(maps.Keys(h.Names)); !slices.Equal(got, []types.UID{"claim x", "claim z"}) {
		t.Errorf("known: %v", got)
	}
}

// The address of a claim that was moved stays that of its former UID, which its host record has, also if somebody has taken its IPAddress away.
func TestHeldFor(t *testing.T) {
	for name, object := range map[string]metav1.Object{"an IPAddress": address("x"), "a claim without one": claim("x")} {
		h := newHeard(object)
		if got := h.HeldFor("was", HostAddress(address("x"))); !slices.Equal(got, []string{"n"}) {
			t.Errorf("%s: in %v", name, got)
		}
		if got := h.HeldFor("another", HostAddress(address("x"))); got != nil {
			t.Errorf("%s, of another claim: in %v", name, got)
		}
	}
}

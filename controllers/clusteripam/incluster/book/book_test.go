package book

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/multicidr/controller-manager/apis/clusterapi/v1alpha2"
	"github.com/multicidr/controller-manager/apis/clusterapi/v1beta2"
)

// script plays one history by hand, with one pool p in the namespace n.
type script struct {
	*testing.T
	*Book
	now     time.Time
	version int
}

func newScript(t *testing.T, addresses ...string) *script {
	s := &script{T: t, Book: New(), now: epoch}
	s.setPool(addresses...)
	s.Start()
	return s
}

func (s *script) meta(name string) metav1.ObjectMeta {
	s.version++
	return metav1.ObjectMeta{Name: name, Namespace: "n", UID: types.UID("uid of " + name), ResourceVersion: strconv.Itoa(s.version), CreationTimestamp: metav1.NewTime(s.now)}
}

func (s *script) setPool(addresses ...string) {
	p := &Pool{Kind: kindPool, ObjectMeta: s.meta("p"), Spec: v1alpha2.InClusterIPPoolSpec{Addresses: addresses, Prefix: 24}}
	p.Finalizers = []string{v1beta2.FinalizerProtectPool}
	s.SetPool(p)
}

// claim shows a claim, changed as change says.
func (s *script) claim(name string, change func(*v1beta2.IPAddressClaim)) {
	o := &v1beta2.IPAddressClaim{ObjectMeta: s.meta(name), Spec: v1beta2.IPAddressClaimSpec{PoolRef: v1beta2.IPPoolReference{APIGroup: v1alpha2.GroupName, Kind: kindPool, Name: "p"}}}
	o.Finalizers = []string{v1beta2.FinalizerReleaseAddress}
	if before := s.claims[ClaimKey("n", name)]; before != nil {
		o.CreationTimestamp = before.object.CreationTimestamp
	}
	if change != nil {
		change(o)
	}
	s.SetClaim(o)
}

func (s *script) deleting(o *v1beta2.IPAddressClaim) {
	now := metav1.NewTime(s.now)
	o.DeletionTimestamp = &now
}

// next asks about a claim until the request is no write of a status, and wants this verb; "" means that there is nothing to do.
func (s *script) next(name, verb string) *Request {
	s.Helper()
	n := s.NextForClaim(ClaimKey("n", name), s.now)
	for n.Request != nil && n.Request.Verb == PatchStatus {
		c := s.claims[ClaimKey("n", name)].object.DeepCopy()
		s.version++
		c.ResourceVersion = strconv.Itoa(s.version)
		ready := metav1.Condition{Type: v1beta2.ConditionReady}
		ready.Reason, ready.Message = s.why(s.claims[ClaimKey("n", name)])
		ready.Status = metav1.ConditionFalse
		if ready.Reason == "" {
			return nil
		}
		c.Status.Conditions = []metav1.Condition{ready}
		s.Done(n.Request, Answer{Claim: c}, s.now)
		n = s.NextForClaim(ClaimKey("n", name), s.now)
	}
	got := ""
	if n.Request != nil {
		got = n.Request.Verb.String()
	}
	if got != verb {
		s.Fatalf("the next request about %s is %q (again at %v), want %q", name, got, n.Again.Sub(epoch), verb)
	}
	return n.Request
}

// has wants a claim to be in this state with this address.
func (s *script) has(name string, state State, address string) {
	s.Helper()
	c, got := s.claims[ClaimKey("n", name)], ""
	if c.addr.IsValid() {
		got = c.addr.String()
	}
	if c.state != state || got != address {
		s.Fatalf("%s is %v with %q, want %v with %q", name, c.state, got, state, address)
	}
}

// A pool that is full says where addresses can be added: the addresses of a ClusterIPAMClaim's pool are written by that claim.
func TestWhereAddressesAreAdded(t *testing.T) {
	for name, tc := range map[string]struct {
		owners []metav1.OwnerReference
		want   string
	}{
		"a pool of its own":         {want: "Add addresses to the pool, or delete"},
		"a pool of a claim":         {[]metav1.OwnerReference{{APIVersion: "v1", Kind: "ConfigMap", Name: "x"}, {APIVersion: "k0rdent.mirantis.com/v1beta1", Kind: "ClusterIPAMClaim", Name: "edge"}}, "Add addresses to spec.nodeNetwork of the ClusterIPAMClaim edge, or delete"},
		"a pool of something alike": {[]metav1.OwnerReference{{APIVersion: "example.com/v1", Kind: "ClusterIPAMClaim", Name: "edge"}}, "Add addresses to the pool, or delete"},
	} {
		t.Run(name, func(t *testing.T) {
			s := &script{T: t, Book: New(), now: epoch}
			p := &Pool{Kind: kindPool, ObjectMeta: s.meta("p"), Spec: v1alpha2.InClusterIPPoolSpec{Addresses: []string{"10.0.0.5"}, Prefix: 24}}
			p.Finalizers, p.OwnerReferences = []string{v1beta2.FinalizerProtectPool}, tc.owners
			s.SetPool(p)
			s.Start()
			s.claim("a", nil)
			s.claim("b", nil)
			s.next("a", "create")
			ready := s.pools[p.key()].ready()
			_, why := s.why(s.claims[ClaimKey("n", "b")])
			for _, message := range []string{ready.Message, why} {
				if !strings.Contains(message, "is full: all 1 addresses are in use. "+tc.want) {
					t.Errorf("got %q, want %q in it", message, tc.want)
				}
			}
		})
	}
}

// A create request without an answer can arrive later, whatever is answered to the next one. Until it cannot, nobody else gets the address.
func TestARefusalSaysNothingAboutAnEarlierRequest(t *testing.T) {
	s := newScript(t, "10.0.0.5")
	s.claim("a", nil)
	s.claim("b", nil)
	until := s.now.Add(10 * time.Second)
	s.Done(s.next("a", "create"), Answer{Result: Unknown, Until: until}, s.now)
	s.Done(s.next("a", "read"), Answer{Result: NotFound}, s.now) // it can still arrive
	s.has("a", Sent, "10.0.0.5")
	s.Done(s.next("a", "create"), Answer{Result: Rejected, Why: "no"}, s.now)
	s.has("a", Sent, "10.0.0.5")
	s.claim("a", s.deleting)
	s.has("a", Sent, "10.0.0.5")
	s.has("b", Waiting, "")
	s.next("a", "") // nothing can be known yet
	s.now = until
	s.Done(s.next("a", "read"), Answer{Result: NotFound}, s.now)
	s.next("a", "patch") // the finalizer
	s.has("b", Waiting, "")
	s.ClaimGone("n", "a", "uid of a")
	s.has("b", Reserved, "10.0.0.5")
}

// What a read finds when a request can still arrive proves nothing.
func TestAReadThatIsTooEarly(t *testing.T) {
	s := newScript(t, "10.0.0.5", "10.0.0.6")
	s.claim("a", nil)
	until := s.now.Add(10 * time.Second)
	s.Done(s.next("a", "create"), Answer{Result: Unknown, Until: until}, s.now)
	s.setPool("10.0.0.6") // which has the address no more
	r := s.next("a", "read")
	s.now = until // the answer comes late, but the read was early
	s.Done(r, Answer{Result: NotFound}, s.now)
	s.has("a", Sent, "10.0.0.5")
	s.Done(s.next("a", "read"), Answer{Result: NotFound}, s.now)
	s.has("a", Reserved, "10.0.0.6")
}

// An IPAddress that exists already may come from an earlier request.
func TestAnIPAddressThatExists(t *testing.T) {
	s := newScript(t, "10.0.0.5", "10.0.0.6")
	s.claim("a", nil)
	r := s.next("a", "create")
	s.Done(r, Answer{Result: Exists}, s.now)
	s.setPool("10.0.0.6")
	s.has("a", Sent, "10.0.0.5")
	o := r.Object.DeepCopy()
	o.UID = "uid of the IPAddress"
	s.Done(s.next("a", "read"), Answer{Address: o}, s.now)
	s.next("a", "") // The cache will show it. Meanwhile the claim has its status.
	s.has("a", Sent, "10.0.0.5")
}

// Who waits longest is served first, and only as many are asked about as can be served.
func TestTheOldestClaimIsServedFirst(t *testing.T) {
	s := newScript(t, "10.0.0.5-10.0.0.6")
	for _, name := range []string{"a", "b"} {
		s.claim(name, nil)
	}
	for i := range 1000 {
		s.now = epoch.Add(time.Duration(1000-i) * time.Second) // the last one that is heard of is the oldest
		s.claim(fmt.Sprintf("c%d", i), nil)
	}
	s.Changes()
	s.claim("b", s.deleting)
	s.has("c999", Reserved, "10.0.0.6")
	s.has("c998", Waiting, "")
	if got := s.Changes(); len(got) > 3 {
		t.Errorf("one free address makes the controller look at %v", got)
	}
}

// A claim whose IPAddress is refused for long does not keep its address from others that wait for one.
func TestARefusedClaimGivesWay(t *testing.T) {
	s := newScript(t, "10.0.0.5")
	s.claim("a", nil)
	s.claim("b", nil)
	s.Done(s.next("a", "create"), Answer{Result: Rejected, Why: "no"}, s.now)
	s.has("a", Refused, "10.0.0.5")
	s.now = s.now.Add(giveWayAfter)
	s.Done(s.next("a", "create"), Answer{Result: Rejected, Why: "no"}, s.now)
	s.has("a", Waiting, "")
	s.has("b", Reserved, "10.0.0.5")
	s.claim("b", s.deleting)
	s.has("a", Reserved, "10.0.0.5")
}

// Nothing is done about what is paused, and it is done when it is not any more.
func TestPaused(t *testing.T) {
	pause := func(o metav1.Object) { o.SetAnnotations(map[string]string{v1beta2.AnnotationPaused: ""}) }
	s := newScript(t, "10.0.0.5")
	s.SetClustersServed(true)
	s.claim("a", func(o *v1beta2.IPAddressClaim) { pause(o) })
	s.next("a", "")
	s.has("a", Waiting, "")
	s.claim("a", func(o *v1beta2.IPAddressClaim) { o.Spec.ClusterName = "cl" })
	s.next("a", "")
	s.has("a", Waiting, "")
	s.SetCluster("n", "cl", true)
	s.next("a", "")
	s.has("a", Waiting, "")
	s.SetCluster("n", "cl", false)
	s.has("a", Reserved, "10.0.0.5")
	s.ClusterGone("n", "cl")
	s.has("a", Waiting, "")
	s.SetClustersServed(false)
	s.has("a", Reserved, "10.0.0.5")
	p := *s.pool(Key{kindPool, "n", "p"}).object
	p.ResourceVersion = "1000"
	pause(&p)
	s.SetPool(&p)
	s.next("a", "")
	s.has("a", Waiting, "")
	if n := s.NextForPool(p.key(), s.now); n.Request != nil {
		t.Errorf("a paused pool gets %v", n.Request)
	}
}

// An IPAddress of the claim's name that belongs to another claim is in the way, and stays as it is until somebody deletes it.
func TestAnIPAddressThatIsInTheWay(t *testing.T) {
	s := newScript(t, "10.0.0.5")
	prefix := int32(24)
	o := &v1beta2.IPAddress{ObjectMeta: s.meta("a"), Spec: v1beta2.IPAddressSpec{Address: "10.0.0.5", Prefix: &prefix, ClaimRef: v1beta2.IPAddressClaimReference{Name: "x"},
		PoolRef: v1beta2.IPPoolReference{APIGroup: v1alpha2.GroupName, Kind: kindPool, Name: "p"}}}
	o.Finalizers = []string{v1beta2.FinalizerProtectAddress}
	s.SetAddress(o)
	s.claim("a", nil)
	s.next("a", "")
	s.has("a", Waiting, "")
	s.deleteAddress(o.DeepCopy())
	if r := s.next("a", "patch"); r.Key.Kind != kindAddress {
		t.Errorf("the next request is %v, want one that releases the IPAddress", r)
	}
	s.AddressGone("n", "a", o.UID)
	s.has("a", Reserved, "10.0.0.5")
}

// An IPAddress that is in the way says whose it is and what to do, whether the cache shows it or a read has found it: of another claim, or of this one's name
// and another pool.
func TestWhatIsSaidOfAnIPAddressInTheWay(t *testing.T) {
	for name, tc := range map[string]struct {
		claim, group, kind, pool string
		want                     string
	}{
		"of another claim": {"x", v1alpha2.GroupName, kindPool, "p",
			"The IPAddress of the same name belongs to the claim x and to InClusterIPPool p. Delete it if no machine uses it, or give this claim another name."},
		"of another pool": {"a", v1alpha2.GroupName, kindPool, "q",
			"The IPAddress of the same name has an address of InClusterIPPool q, and this claim asks for one of InClusterIPPool p. Delete the IPAddress if no machine uses it. Otherwise delete this claim, and create it for InClusterIPPool q."},
		"of another group": {"a", "example.com", kindPool, "p",
			"The IPAddress of the same name has an address of InClusterIPPool p of example.com, and this claim asks for one of InClusterIPPool p. Delete the IPAddress if no machine uses it. Otherwise delete this claim, and create it for InClusterIPPool p of example.com."},
	} {
		for _, found := range []string{"by the cache", "by a read"} {
			t.Run(name+" "+found, func(t *testing.T) {
				s := newScript(t, "10.0.0.5")
				o := &v1beta2.IPAddress{ObjectMeta: s.meta("a"), Spec: v1beta2.IPAddressSpec{Address: "10.0.0.5", Prefix: new(int32(24)),
					ClaimRef: v1beta2.IPAddressClaimReference{Name: tc.claim}, PoolRef: v1beta2.IPPoolReference{APIGroup: tc.group, Kind: tc.kind, Name: tc.pool}}}
				s.claim("a", nil)
				if found == "by a read" {
					s.Done(s.next("a", "create"), Answer{Result: Exists}, s.now)
					s.Done(s.next("a", "read"), Answer{Address: o}, s.now)
				} else {
					s.SetAddress(o)
				}
				if reason, got := s.why(s.claims[ClaimKey("n", "a")]); reason != v1beta2.ReasonAllocationFailed || got != tc.want {
					t.Errorf("%s: %s\nwant %s", reason, got, tc.want)
				}
			})
		}
	}
}

// A claim is deleted while its create request is on its way, and the answer is that an IPAddress of its name exists: one of another program, which may be gone
// when it is read. The finalizer of somebody else keeps the claim, but not the address, which no machine can have.
func TestAClaimWithoutIPAddressKeepsNoAddress(t *testing.T) {
	for name, o := range map[string]*v1beta2.IPAddress{
		"it is in the way": {Spec: v1beta2.IPAddressSpec{Address: "10.0.0.5", Prefix: new(int32(24)), ClaimRef: v1beta2.IPAddressClaimReference{Name: "a"},
			PoolRef: v1beta2.IPPoolReference{APIGroup: v1alpha2.GroupName, Kind: kindPool, Name: "another"}}},
		"it is gone": nil,
	} {
		t.Run(name, func(t *testing.T) {
			s := newScript(t, "10.0.0.5")
			s.claim("a", nil)
			s.claim("b", nil)
			create := s.next("a", "create")
			s.claim("a", func(c *v1beta2.IPAddressClaim) {
				c.Finalizers = append(c.Finalizers, "example.com/other")
				s.deleting(c)
			})
			s.Done(create, Answer{Result: Exists}, s.now)
			s.has("b", Waiting, "") // perhaps it is the claim's own
			answer := Answer{Result: NotFound}
			if o != nil {
				o.ObjectMeta = s.meta("a")
				answer = Answer{Result: Stored, Address: o}
			}
			s.Done(s.next("a", "read"), answer, s.now)
			s.has("a", Waiting, "")
			s.has("b", Reserved, "10.0.0.5")
			s.next("a", "patch") // the finalizer
		})
	}
}

// Ten thousand claims at once, served and released: each change costs about the same however many claims there are.
func TestManyClaims(t *testing.T) {
	s := newScript(t, "10.0.0.0/16")
	p := *s.pool(Key{kindPool, "n", "p"}).object
	p.ResourceVersion, p.Spec.Prefix = "1", 16
	s.SetPool(&p)
	const many = 10_000
	began := time.Now()
	var taken []string
	for i := range many {
		name := fmt.Sprintf("c%d", i)
		s.claim(name, nil)
		taken = append(taken, s.claims[ClaimKey("n", name)].addr.String())
	}
	if slices.Sort(taken); len(slices.Compact(taken)) != many || s.pool(p.key()).usage.Counts().Used != many {
		t.Errorf("%d claims have %d different addresses, and %d are in use", many, len(slices.Compact(taken)), s.pool(p.key()).usage.Counts().Used)
	}
	t.Logf("%v for each claim", time.Since(began)/many)
}

// address shows an IPAddress of a claim, as this program makes them.
func (s *script) address(name, at string) *v1beta2.IPAddress {
	prefix := int32(24)
	o := &v1beta2.IPAddress{ObjectMeta: s.meta(name), Spec: v1beta2.IPAddressSpec{Address: at, Prefix: &prefix, ClaimRef: v1beta2.IPAddressClaimReference{Name: name},
		PoolRef: v1beta2.IPPoolReference{APIGroup: v1alpha2.GroupName, Kind: kindPool, Name: "p"}}}
	o.Finalizers = []string{v1beta2.FinalizerProtectAddress}
	s.SetAddress(o)
	return o
}

// deleteAddress makes the API server show that somebody has deleted an IPAddress.
func (s *script) deleteAddress(o *v1beta2.IPAddress) {
	s.version++
	o.ResourceVersion, o.DeletionTimestamp = strconv.Itoa(s.version), &metav1.Time{Time: s.now}
	s.SetAddress(o)
}

// changePool changes the pool, and shows it.
func (s *script) changePool(change func(*Pool)) {
	p := *s.pool(Key{kindPool, "n", "p"}).object
	s.version++
	p.ResourceVersion = strconv.Itoa(s.version)
	change(&p)
	s.SetPool(&p)
}

// A claim whose IPAddress is forced away keeps the address, whatever else happens: its machine may have it configured.
func TestAnIPAddressIsForcedAway(t *testing.T) {
	pause := map[string]string{v1beta2.AnnotationPaused: ""}
	whole := []string{"10.0.0.5-10.0.0.6"}
	for name, tc := range map[string]struct {
		before, after func(*script)
		waits         bool // for others to delete the claim
	}{
		"and nothing else": {},
		"while the claim is paused": {
			before: func(s *script) { s.claim("a", func(o *v1beta2.IPAddressClaim) { o.Annotations = pause }) },
			after:  func(s *script) { s.claim("a", nil) },
		},
		"while the pool is paused": {
			before: func(s *script) { s.changePool(func(p *Pool) { p.Annotations = pause }) },
			after:  func(s *script) { s.changePool(func(p *Pool) { p.Annotations = nil }) },
		},
		"while the Cluster is paused": {
			before: func(s *script) { s.SetCluster("n", "cl", true) },
			after:  func(s *script) { s.SetCluster("n", "cl", false) },
		},
		"after the deletion of the Cluster": {before: func(s *script) { s.ClusterGone("n", "cl") }},
		"after it was excluded":             {before: func(s *script) { s.changePool(func(p *Pool) { p.Spec.ExcludedAddresses = []string{"10.0.0.5"} }) }},
		"while the pool is not valid": {
			before: func(s *script) { s.changePool(func(p *Pool) { p.Spec.Addresses = []string{"nonsense"} }) },
			after:  func(s *script) { s.changePool(func(p *Pool) { p.Spec.Addresses = whole }) },
		},
		"while the pool is gone": {
			before: func(s *script) { s.PoolGone(Key{kindPool, "n", "p"}, "uid of p") },
			after:  func(s *script) { s.setPool(whole...) },
		},
		"while others have a finalizer on the claim": {before: func(s *script) {
			s.claim("a", func(o *v1beta2.IPAddressClaim) {
				s.deleting(o)
				o.Finalizers = append(o.Finalizers, "example.com/machine-runs")
			})
		}},
		"in the grace period": {before: func(s *script) {
			grace := int32(60)
			s.changePool(func(p *Pool) { p.Spec.AddressReuseGracePeriodSeconds = &grace })
			s.claim("a", s.deleting)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScript(t, whole...)
			s.SetClustersServed(true)
			s.SetCluster("n", "cl", false)
			s.claim("a", func(o *v1beta2.IPAddressClaim) { o.Labels = map[string]string{v1beta2.LabelClusterName: "cl"} })
			o := s.address("a", "10.0.0.5")
			if tc.before != nil {
				tc.before(s)
			}
			s.AddressGone("n", "a", o.UID)
			s.claim("b", nil)
			if tc.after != nil {
				s.next("a", "")
				tc.after(s)
			}
			s.has("b", Reserved, "10.0.0.6")
			s.Done(s.next("a", "create"), Answer{Result: Rejected, Why: "no"}, s.now)
			s.claim("c", nil)
			s.now = s.now.Add(giveWayAfter)
			r := s.next("a", "create")
			if s.Done(r, Answer{Result: Rejected, Why: "no"}, s.now); r.Object.Spec.Address != "10.0.0.5" {
				t.Errorf("the claim gets the address %s, and had 10.0.0.5", r.Object.Spec.Address)
			}
			s.has("c", Waiting, "")
		})
	}
}

// A claim is deleted before the answer to its create request, which never comes. Somebody else's finalizer keeps the claim. A read tells what became of the
// request: a pool that is being deleted waits for that, and the claim's IPAddress, if there is one, says which address is in use.
func TestAnUnansweredCreateOfAClaimThatOthersHold(t *testing.T) {
	for _, stored := range []bool{false, true} {
		s := newScript(t, "10.0.0.5-10.0.0.6")
		pool := Key{kindPool, "n", "p"}
		s.claim("a", nil)
		create := s.next("a", "create")
		s.claim("a", func(c *v1beta2.IPAddressClaim) {
			c.Finalizers = append(c.Finalizers, "example.com/machine-runs")
			s.deleting(c)
		})
		until := s.now.Add(10 * time.Second)
		s.Done(create, Answer{Result: Unknown, Until: until}, s.now)
		if n := s.NextForClaim(ClaimKey("n", "a"), s.now); n.Request != nil || !n.Again.Equal(until) {
			t.Errorf("the next request is %v, again at %v; want none before the request cannot arrive any more", n.Request, n.Again.Sub(epoch))
		}
		s.changePool(func(p *Pool) { p.DeletionTimestamp = &metav1.Time{Time: s.now} })
		if !s.pool(pool).inUse() {
			t.Error("the pool goes, and the IPAddress may still be created")
		}
		s.now = until
		read := s.next("a", "read")
		if !stored {
			s.Done(read, Answer{Result: NotFound}, s.now)
			s.next("a", "")
			s.has("a", Released, "10.0.0.5")
			if s.pool(pool).inUse() {
				t.Error("the pool stays, and no IPAddress can be created any more")
			}
			continue
		}
		o := create.Object.DeepCopy()
		o.UID, o.ResourceVersion, o.Namespace, o.Name = "uid of the IPAddress", "900", "n", "a"
		s.Done(read, Answer{Result: Stored, Address: o}, s.now)
		s.next("a", "") // It stays as long as others hold the claim.
		if s.SetAddress(o.DeepCopy()); !s.pool(pool).inUse() {
			t.Error("the pool goes, and there is an IPAddress")
		}
		s.has("a", Assigned, "10.0.0.5")
	}
}

// The IPAddress of a claim that others hold came, and was forced away, and the create request was not answered. The pool is being deleted, so the IPAddress is
// not created again: a read tells whether it exists, and the pool need not wait for those others.
func TestAnUnansweredCreateWhileThePoolIsDeleted(t *testing.T) {
	s := newScript(t, "10.0.0.5")
	s.claim("a", nil)
	create := s.next("a", "create")
	until := s.now.Add(10 * time.Second)
	s.Done(create, Answer{Result: Unknown, Until: until}, s.now)
	shown := s.address("a", "10.0.0.5")
	s.claim("a", func(c *v1beta2.IPAddressClaim) {
		c.Finalizers = append(c.Finalizers, "example.com/machine-runs")
		s.deleting(c)
	})
	s.AddressGone("n", "a", shown.UID)
	s.changePool(func(p *Pool) { p.DeletionTimestamp = &metav1.Time{Time: s.now} })
	s.now = until
	s.Done(s.next("a", "read"), Answer{Result: NotFound}, s.now)
	s.next("a", "")
	if s.pool(Key{kindPool, "n", "p"}).inUse() {
		t.Error("the pool stays, and no IPAddress can be created any more")
	}
}

// A claim names a paused pool by now. Whether it has an address of the pool that it named before is found out all the same, because others wait for that address.
func TestAnAddressOfAnotherPoolThanThePausedOne(t *testing.T) {
	s := newScript(t, "10.0.0.5")
	s.SetPool(&Pool{Kind: kindPool, ObjectMeta: metav1.ObjectMeta{Name: "q", Namespace: "n", UID: "uid of q", ResourceVersion: "800", Annotations: map[string]string{v1beta2.AnnotationPaused: ""}}})
	s.claim("a", nil)
	create := s.next("a", "create")
	s.claim("b", nil)
	s.claim("a", func(c *v1beta2.IPAddressClaim) { c.Spec.PoolRef.Name = "q" })
	s.Done(create, Answer{Result: Exists}, s.now)
	s.has("b", Waiting, "")
	s.Done(s.next("a", "read"), Answer{Result: NotFound}, s.now)
	s.next("a", "")
	s.next("b", "create")
}

// While others have finalizers on a claim, its machine may still run. A restart changes nothing about it. The garbage collector's own finalizer
// waits for the IPAddress.
func TestAClaimThatOthersHold(t *testing.T) {
	s := newScript(t, "10.0.0.5")
	held := func(finalizer string) {
		s.claim("a", func(o *v1beta2.IPAddressClaim) {
			s.deleting(o)
			o.Finalizers = append(o.Finalizers, finalizer)
		})
	}
	s.claim("a", nil)
	s.address("a", "10.0.0.5")
	held("example.com/machine-runs")
	s.claim("b", nil)
	s.next("a", "")
	s.has("a", Assigned, "10.0.0.5")
	held(metav1.FinalizerDeleteDependents)
	if r := s.next("a", "patch"); r.Key.Kind != kindAddress {
		t.Errorf("the next request is %v, want one that releases the IPAddress", r)
	}
	s.has("b", Waiting, "")
}

// The cache of IPAddresses is late, and that of claims is not: a claim gets an IPAddress and releases it, and nothing of it is shown until the next claim of
// the name has another address. It keeps that.
func TestAnIPAddressIsShownAfterItsEnd(t *testing.T) {
	for name, next := range map[string]State{"before the next one is created": Reserved, "while it is created": Sent, "after it is created": Assigned} {
		t.Run(name, func(t *testing.T) {
			s := newScript(t, "10.0.0.5-10.0.0.7")
			first := s.endUnseen("a")
			s.Done(s.next("a", "read"), Answer{Result: NotFound}, s.now)
			s.Done(s.next("a", "patch"), Answer{}, s.now)
			s.ClaimGone("n", "a", "uid of a")
			s.claim("b", nil)
			s.create("b", "of b")
			s.claim("a", func(o *v1beta2.IPAddressClaim) { o.UID = "second uid of a" })
			want := Sent
			switch next {
			case Reserved:
				want = Reserved
			case Sent:
				s.next("a", "create")
			case Assigned: // and not shown
				s.create("a", "second")
			}
			s.SetAddress(first)
			s.has("a", want, "10.0.0.6")
			s.claim("c", nil)
			s.has("c", Reserved, "10.0.0.7")
			s.AddressGone("n", "a", first.UID) // The cache's store had it from an answer, and shows an earlier one of the name now.
			s.SetAddress(first)
			s.has("a", want, "10.0.0.6")
			s.now = s.now.Add(lateAtMost + time.Second)
			s.endUnseen("c")
			if s.Done(s.next("c", "read"), Answer{Result: NotFound}, s.now); len(s.over) != 1 {
				t.Errorf("after an hour it knows %v", s.over)
			}
		})
	}
}

// Another program has created an IPAddress and deleted it, and the cache shows that late: while the create request of the next claim of its name is on its
// way, after its answer, or before a lost one can have been carried out. Nobody else gets the address that was sent.
func TestAnIPAddressOfAnotherProgramIsShownLate(t *testing.T) {
	for name, tc := range map[string]struct{ answered, lost, read bool }{
		"on its way": {}, "answered": {answered: true}, "not answered": {lost: true}, "not answered, and read too early": {lost: true, read: true},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScript(t, "10.0.0.5")
			s.claim("a", nil)
			s.claim("b", nil)
			r, until := s.next("a", "create"), s.now.Add(10*time.Second)
			late, stored := r.Object.DeepCopy(), r.Object.DeepCopy()
			late.UID, late.ResourceVersion, late.Spec.Address = "of another program", "1", "10.0.0.9"
			stored.UID, stored.ResourceVersion = "of a", "51"
			switch {
			case tc.answered:
				s.Done(r, Answer{Address: stored.DeepCopy()}, s.now)
			case tc.lost:
				s.Done(r, Answer{Result: Unknown, Until: until}, s.now)
			}
			if tc.read {
				s.Done(s.next("a", "read"), Answer{Address: late}, s.now)
			}
			s.SetAddress(late)
			s.has("a", Sent, "10.0.0.5")
			if !tc.answered && !tc.lost {
				s.Done(r, Answer{Address: stored.DeepCopy()}, s.now)
			}
			s.AddressGone("n", "a", late.UID)
			s.has("b", Waiting, "")
			if s.now = until; tc.lost {
				s.Done(s.next("a", "read"), Answer{Address: stored.DeepCopy()}, s.now)
			}
			s.SetAddress(stored)
			s.has("a", Assigned, "10.0.0.5")
			s.has("b", Waiting, "")
		})
	}
}

// The same, and the other program's IPAddress stays: it is the claim's as soon as the lost request cannot be carried out any more.
func TestAnIPAddressOfAnotherProgramIsFaster(t *testing.T) {
	s := newScript(t, "10.0.0.5")
	s.claim("a", nil)
	s.claim("b", nil)
	r := s.next("a", "create")
	until := s.now.Add(10 * time.Second)
	s.Done(r, Answer{Result: Unknown, Until: until}, s.now)
	other := r.Object.DeepCopy()
	other.UID, other.ResourceVersion, other.Spec.Address = "of another program", "1", "10.0.0.9"
	s.SetAddress(other)
	s.Done(s.next("a", "read"), Answer{Address: other}, s.now)
	s.next("a", "")
	s.has("b", Waiting, "")
	s.now = until
	s.Done(s.next("a", "read"), Answer{Address: other}, s.now)
	s.has("a", Assigned, "10.0.0.9")
	s.has("b", Reserved, "10.0.0.5")
}

// An IPAddress whose create was not answered is released and goes, and another program creates one of its name. The claim does not wait for that one.
func TestAnIPAddressTakesTheNameOfAReleasedOne(t *testing.T) {
	s := newScript(t, "10.0.0.5")
	s.claim("a", nil)
	r := s.next("a", "create")
	s.now = s.now.Add(10 * time.Second)
	s.Done(r, Answer{Result: Unknown, Until: s.now}, s.now)
	first := s.address("a", "10.0.0.5")
	s.claim("a", s.deleting)
	s.endAddress("a", first)
	s.AddressGone("n", "a", first.UID)
	other := first.DeepCopy()
	other.UID, other.OwnerReferences, other.Spec.ClaimRef.Name = "of another program", nil, "other"
	s.SetAddress(other)
	s.Done(s.next("a", "read"), Answer{Address: other}, s.now)
	if r := s.next("a", "patch"); r.Key.Kind != v1beta2.KindIPAddressClaim {
		t.Errorf("the next request is %v, want one that releases the claim", r)
	}
}

// endUnseen lets a claim get an IPAddress and delete it, and shows nothing of that. Whether it is gone is to be read.
func (s *script) endUnseen(claim string) *v1beta2.IPAddress {
	s.Helper()
	s.claim(claim, nil)
	first := s.create(claim, "first of "+claim)
	s.claim(claim, s.deleting)
	s.Done(s.next(claim, "read"), Answer{Address: first}, s.now)
	s.endAddress(claim, first)
	return first
}

// endAddress has the API server carry out what a claim does to end its IPAddress.
func (s *script) endAddress(claim string, o *v1beta2.IPAddress) {
	s.Helper()
	o = o.DeepCopy()
	s.version++
	o.ResourceVersion, o.Finalizers = strconv.Itoa(s.version), nil
	s.Done(s.next(claim, "patch"), Answer{Address: o}, s.now)
	s.Done(s.next(claim, "delete"), Answer{}, s.now)
}

// create has the API server create the IPAddress of a claim, and does not show it.
func (s *script) create(claim, uid string) *v1beta2.IPAddress {
	s.Helper()
	r := s.next(claim, "create")
	s.version++
	o := r.Object.DeepCopy()
	o.UID, o.ResourceVersion = types.UID(uid), strconv.Itoa(s.version)
	s.Done(r, Answer{Address: o.DeepCopy()}, s.now)
	return o
}

// Claims that come and go while an older one waits leave nothing behind.
func TestTheQueueForgetsClaimsThatAreGone(t *testing.T) {
	s := newScript(t, "10.0.0.5")
	s.claim("a", nil)
	s.claim("old", nil)
	for i := range 1000 {
		name := fmt.Sprint("c", i)
		s.now = s.now.Add(time.Second) // younger than all before
		s.claim(name, nil)
		s.ClaimGone("n", name, types.UID("uid of "+name))
	}
	if n := len(s.pool(Key{kindPool, "n", "p"}).waiting); n > 20 {
		t.Errorf("one claim waits, and the queue has %d entries", n)
	}
	s.ClaimGone("n", "a", "uid of a")
	s.has("old", Reserved, "10.0.0.5")
}

// Very many pools with the same addresses: each names a few of the others, and one that is deleted is named no more.
func TestManyPoolsOverlap(t *testing.T) {
	b := New()
	b.Start()
	const many = 2000
	key := func(i int) Key { return Key{kindPool, "n", fmt.Sprintf("p%04d", i)} }
	for i := range many {
		b.SetPool(&Pool{Kind: kindPool, ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: key(i).Name, UID: types.UID(key(i).Name), ResourceVersion: "1"},
			Spec: v1alpha2.InClusterIPPoolSpec{Addresses: []string{"10.0.0.0/24"}, Prefix: 24}})
	}
	b.Changes()
	for i := range 3 {
		b.PoolGone(key(i), types.UID(key(i).Name))
	}
	if n := len(b.Changes()); n != many { // All others named these.
		t.Errorf("%d pools are looked at again, want %d", n, many)
	}
	b.PoolGone(key(1000), types.UID(key(1000).Name)) // which nobody named
	if n := len(b.Changes()); n > 1 {
		t.Errorf("%d pools are looked at again because of one that they do not name", n)
	}
	for i := 3; i < many; i += 7 {
		var got, want []Key
		for _, o := range b.pool(key(i)).overlaps {
			got = append(got, o.pool.key)
		}
		for j := 3; len(want) < atMost; j++ {
			if j != i {
				want = append(want, key(j))
			}
		}
		if !slices.Equal(got, want) {
			t.Fatalf("%v names %v, want %v", key(i), got, want)
		}
	}
}

// The first address that two pools share changes with one of them. The other one names it, too.
func TestPoolsShareAnotherAddress(t *testing.T) {
	s := newScript(t, "10.0.0.1-10.0.0.9")
	q := Key{kindPool, "n", "q"}
	s.SetPool(&Pool{Kind: kindPool, ObjectMeta: s.meta("q"), Spec: v1alpha2.InClusterIPPoolSpec{Addresses: []string{"10.0.0.1-10.0.0.9"}, Prefix: 24}})
	for _, change := range []struct {
		first  int
		writes bool
	}{{5, true}, {7, true}, {7, false}} {
		s.Changes()
		s.changePool(func(p *Pool) { p.Spec.Addresses = []string{fmt.Sprintf("10.0.0.%d-10.0.0.9", change.first)} })
		if got := slices.Contains(s.Changes(), q); got != change.writes {
			t.Errorf("the first address is .%d: looked at again: %t", change.first, got)
		}
	}
}

// Two claims have one address, because another program has created the second IPAddress. The first is deleted, its machine runs, and somebody forces its
// IPAddress away. It is created again when the second claim is gone.
func TestAnAddressIsOneClaimsAloneAgain(t *testing.T) {
	s := newScript(t, "10.0.0.5")
	s.claim("a", nil)
	first := s.address("a", "10.0.0.5")
	s.claim("b", nil)
	second := s.address("b", "10.0.0.5")
	s.claim("a", func(o *v1beta2.IPAddressClaim) {
		s.deleting(o)
		o.Finalizers = append(o.Finalizers, "example.com/machine-runs")
	})
	s.AddressGone("n", "a", first.UID)
	s.claim("b", s.deleting)
	s.AddressGone("n", "b", second.UID)
	s.next("a", "")
	s.Changes()
	s.ClaimGone("n", "b", "uid of b")
	if !slices.Contains(s.Changes(), ClaimKey("n", "a")) {
		t.Error("nobody looks at the claim again")
	}
	s.next("a", "create")
}

// Other programs write addresses in many ways. What can be read is held, and what cannot is told.
func TestAddressesOfOthers(t *testing.T) {
	for text, held := range map[string]string{
		"10.0.0.5": "10.0.0.5", "::ffff:10.0.0.5": "10.0.0.5", "10.0.0.5/24": "10.0.0.5", " 10.0.0.5 ": "10.0.0.5", "010.0.0.5": "", "nonsense": "",
	} {
		s := newScript(t, "10.0.0.5-10.0.0.6")
		o := s.address("x", text)
		s.claim("a", nil)
		message := s.pool(Key{kindPool, "n", "p"}).ready().Message
		if told := strings.Contains(message, fmt.Sprintf("cannot be read: 1 (n/x %q)", text)); told != (held == "") {
			t.Errorf("%q: the pool says %q", text, message)
		}
		if held == "" {
			s.has("a", Reserved, "10.0.0.5")
		} else {
			s.has("a", Reserved, "10.0.0.6")
		}
		s.AddressGone("n", "x", o.UID)
		if p := s.pool(Key{kindPool, "n", "p"}); len(p.unreadable)+len(p.strays) > 0 {
			t.Errorf("%q: the pool names an IPAddress that is gone: %s", text, p.ready().Message)
		}
	}
}

// An IPAddress that has lost its claim stays, because it may be in use. Its pool names it until the claim comes back or it is deleted.
func TestAnIPAddressWithoutClaim(t *testing.T) {
	s := newScript(t, "10.0.0.5")
	names := func(want bool) {
		t.Helper()
		message := s.pool(Key{kindPool, "n", "p"}).ready().Message
		if got := strings.Contains(message, "IPAddresses without an IPAddressClaim: 1 (n/a)"); got != want {
			t.Errorf("the pool says %q; names n/a: %t, want %t", message, got, want)
		}
	}
	s.claim("a", nil)
	o := s.address("a", "10.0.0.5")
	names(false)
	s.ClaimGone("n", "a", "uid of a")
	names(true)
	s.claim("a", nil)
	names(false)
	s.ClaimGone("n", "a", "uid of a")
	s.claim("b", nil)
	s.has("b", Waiting, "")
	names(true)
	s.deleteAddress(o.DeepCopy())
	names(false)
	s.next("a", "patch") // It is released.
}

// An IPAddress without a claim is named, too, if there is a claim of its name that it does not belong to: of another pool, or another allocator's.
func TestAnIPAddressWithoutClaimThatIsHidden(t *testing.T) {
	for _, kind := range []string{kindPool, "InfobloxIPPool"} {
		s := newScript(t, "10.0.0.5")
		s.address("a", "10.0.0.5")
		s.Changes()
		s.claim("a", func(o *v1beta2.IPAddressClaim) { o.Spec.PoolRef.Kind, o.Spec.PoolRef.Name = kind, "q" })
		p := s.pool(Key{kindPool, "n", "p"})
		if message := p.ready().Message; !strings.Contains(message, "IPAddresses without an IPAddressClaim: 1 (n/a)") {
			t.Errorf("claim of %s q: the pool says %q", kind, message)
		}
	}
}

// Cluster API's webhooks and our CRDs refuse changes of these specs, but there are API servers with neither. A claim and an IPAddress keep what was
// allocated, and say what was edited.
func TestASpecIsEdited(t *testing.T) {
	toAddress := func(at string) func(*script, *v1beta2.IPAddress) {
		return func(s *script, o *v1beta2.IPAddress) {
			s.version++
			o.ResourceVersion, o.Spec.Address = strconv.Itoa(s.version), at
			s.SetAddress(o.DeepCopy())
		}
	}
	toPool := func(kind, name string) func(*script, *v1beta2.IPAddress) {
		return func(s *script, o *v1beta2.IPAddress) {
			s.version++
			o.ResourceVersion, o.Spec.PoolRef.Kind, o.Spec.PoolRef.Name = strconv.Itoa(s.version), kind, name
			s.SetAddress(o.DeepCopy())
		}
	}
	claimToPool := func(s *script, _ *v1beta2.IPAddress) {
		s.claim("a", func(o *v1beta2.IPAddressClaim) { o.Spec.PoolRef.Name = "q" })
	}
	for name, tc := range map[string]struct {
		edit        func(*script, *v1beta2.IPAddress)
		claim, pool string // what they say
	}{
		"another address":                {toAddress("10.0.0.7"), `The address is 10.0.0.5. The IPAddress was edited, and says "10.0.0.7" of InClusterIPPool p`, "edited: 1 (n/a was 10.0.0.5)"},
		"no address":                     {toAddress("nonsense"), `The address is 10.0.0.5. The IPAddress was edited, and says "nonsense"`, "edited: 1 (n/a was 10.0.0.5)"},
		"another pool":                   {toPool(kindPool, "q"), `The address is 10.0.0.5. The IPAddress was edited, and says "10.0.0.5" of InClusterIPPool q`, "edited: 1 (n/a was 10.0.0.5)"},
		"another allocator's pool":       {toPool("InfobloxIPPool", "p"), "has an address of InfobloxIPPool p, and this claim asks for one of InClusterIPPool p. Delete the IPAddress if no machine uses it", "edited: 1 (n/a was 10.0.0.5)"},
		"another pool in the claim":      {claimToPool, "The address is 10.0.0.5. It is of InClusterIPPool n/p, and stays so: set spec.poolRef back", ""},
		"there and back, and once again": {func(s *script, o *v1beta2.IPAddress) { toAddress("10.0.0.6")(s, o); toAddress("10.0.0.5")(s, o) }, "The address is 10.0.0.5.", ""},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScript(t, "10.0.0.5-10.0.0.7")
			s.claim("a", nil)
			r := s.next("a", "create")
			o := r.Object.DeepCopy()
			o.ResourceVersion, o.UID = "1", "uid of the IPAddress"
			s.SetAddress(o.DeepCopy())
			s.Done(r, Answer{Address: o.DeepCopy()}, s.now)
			tc.edit(s, o)
			n := s.NextForClaim(ClaimKey("n", "a"), s.now)
			if n.Request == nil || !strings.Contains(strings.ReplaceAll(string(n.Request.Body), `\"`, `"`), tc.claim) {
				t.Errorf("the next request is %v, want a status with %q", n.Request, tc.claim)
			}
			p := s.pool(Key{kindPool, "n", "p"})
			if message := p.ready().Message; !strings.Contains(message, tc.pool) || tc.pool == "" && strings.Contains(message, "edited") {
				t.Errorf("the pool says %q, want %q in it", message, tc.pool)
			}
			for _, other := range []string{"b", "c", "d"} {
				if s.claim(other, nil); s.claims[ClaimKey("n", other)].addr.String() == "10.0.0.5" {
					t.Errorf("%s has 10.0.0.5, and so has the machine of a", other)
				}
			}
			s.AddressGone("n", "a", o.UID) // Forced away, it is created again as it was.
			if r := s.next("a", "create"); r.Object.Spec.Address != "10.0.0.5" || r.Object.Spec.PoolRef.Name != "p" {
				t.Errorf("the claim gets %+v", r.Object.Spec)
			}
			if message := p.ready().Message; strings.Contains(message, "edited") {
				t.Errorf("the pool names an IPAddress that is gone: %q", message)
			}
		})
	}
}

// A claim that names a pool of another provider by now keeps its address as long as it lives, and releases it when it is deleted, also under a process that has never seen
// it otherwise. Nothing else is written about it, because that provider may do so.
func TestAClaimThatNamesAnotherProvider(t *testing.T) {
	for name, restarts := range map[string]bool{"the same process": false, "a new process": true} {
		t.Run(name, func(t *testing.T) {
			s := newScript(t, "10.0.0.5")
			s.claim("a", nil)
			o := s.create("a", "uid of the IPAddress")
			s.SetAddress(o)
			pool := s.pool(Key{kindPool, "n", "p"}).object
			if restarts {
				s.Book = New()
				s.SetPool(pool)
				s.SetAddress(o)
			}
			elsewhere := func(o *v1beta2.IPAddressClaim) { o.Spec.PoolRef.Kind = "InfobloxIPPool" }
			if s.claim("a", elsewhere); restarts {
				s.Start()
			}
			s.next("a", "")
			if message := s.pool(pool.key()).ready().Message; strings.Contains(message, "without an IPAddressClaim") {
				t.Errorf("the pool says %q", message)
			}
			s.claim("b", nil)
			s.has("b", Waiting, "")

			s.claim("a", func(o *v1beta2.IPAddressClaim) { elsewhere(o); s.deleting(o) })
			s.endAddress("a", o)
			s.AddressGone("n", "a", o.UID)
			s.has("b", Waiting, "")
			if r := s.next("a", "patch"); r.Key.Kind != kindClaim {
				t.Errorf("the next request is %v, want one that releases the claim", r)
			}
			s.ClaimGone("n", "a", "uid of a")
			s.has("b", Reserved, "10.0.0.5")
		})
	}
}

// A claim that names another pool by now releases its IPAddress all the same, after the grace of the pool that has it.
func TestAnEditedClaimIsReleased(t *testing.T) {
	s := newScript(t, "10.0.0.5")
	grace := int32(60)
	s.changePool(func(p *Pool) { p.Spec.AddressReuseGracePeriodSeconds = &grace })
	s.claim("a", nil)
	o := s.address("a", "10.0.0.5")
	o = o.DeepCopy()
	s.version++
	o.ResourceVersion, o.OwnerReferences = strconv.Itoa(s.version), []metav1.OwnerReference{s.claims[ClaimKey("n", "a")].ownerReference(true)}
	s.SetAddress(o)
	s.claim("a", func(o *v1beta2.IPAddressClaim) { s.deleting(o); o.Spec.PoolRef.Name = "q" })
	s.next("a", "")
	s.now = s.now.Add(time.Minute)
	if r := s.next("a", "patch"); r.Key.Kind != kindAddress {
		t.Errorf("the next request is %v, want one that releases the IPAddress", r)
	}
	s.AddressGone("n", "a", o.UID)
	s.claim("b", nil)
	s.has("b", Waiting, "")
	if r := s.next("a", "patch"); r.Key.Kind != kindClaim {
		t.Errorf("the next request is %v, want one that releases the claim", r)
	}
}

// The IPAddress of a claim is released, and the last write about the claim is not answered. A longer grace period comes too late.
func TestAGracePeriodThatComesTooLate(t *testing.T) {
	s := newScript(t, "10.0.0.5")
	s.claim("a", nil)
	o := s.address("a", "10.0.0.5").DeepCopy()
	s.claim("a", s.deleting)
	r := s.next("a", "patch")
	s.version++
	o.ResourceVersion, o.Finalizers = strconv.Itoa(s.version), nil
	s.Done(r, Answer{Address: o}, s.now)
	s.Done(s.next("a", "delete"), Answer{}, s.now)
	s.AddressGone("n", "a", o.UID)
	s.Done(s.next("a", "patch"), Answer{Result: Unknown, Until: s.now.Add(time.Minute)}, s.now)
	grace := int32(60)
	s.changePool(func(p *Pool) { p.Spec.AddressReuseGracePeriodSeconds = &grace })
	s.next("a", "")
	s.has("a", Released, "10.0.0.5")
}

// An IPAddress that was edited before the cache shows it holds what it said in the answer to the create request: a machine may use that. It does not matter who is
// faster, the cache or a read. In the histories that the simulation found, it was created again after somebody had forced it away.
func TestAnIPAddressIsEditedBeforeItShows(t *testing.T) {
	for name, edit := range map[string]func(*v1beta2.IPAddress){
		"another address": func(o *v1beta2.IPAddress) { o.Spec.Address = "10.0.0.7" },
		"no address":      func(o *v1beta2.IPAddress) { o.Spec.Address = "nonsense" },
		"another pool":    func(o *v1beta2.IPAddress) { o.Spec.PoolRef.Name = "q" },
	} {
		for faster, read := range map[string]bool{"the cache is faster": false, "a read is faster": true} {
			for claim, gone := range map[string]bool{"the claim stays": false, "the claim is gone": true} {
				t.Run(name+", "+faster+", "+claim, func(t *testing.T) {
					s := newScript(t, "10.0.0.5-10.0.0.7")
					s.claim("a", nil)
					r := s.next("a", "create")
					o := r.Object.DeepCopy()
					o.ResourceVersion, o.UID = "1", "uid of the first"
					s.SetAddress(o.DeepCopy())
					s.Done(r, Answer{Address: o.DeepCopy()}, s.now)
					s.AddressGone("n", "a", o.UID)
					r = s.next("a", "create")
					o = r.Object.DeepCopy()
					o.ResourceVersion, o.UID = "2", "uid of the second"
					s.Done(r, Answer{Address: o.DeepCopy()}, s.now)
					o.ResourceVersion = "3"
					edit(o)
					c := s.claims[ClaimKey("n", "a")]
					if gone {
						s.ClaimGone("n", "a", "uid of a")
					}
					if read {
						s.now = s.now.Add(readAfter)
						s.Done(s.readBack(c, s.now), Answer{Address: o.DeepCopy()}, s.now)
					}
					if !read || gone { // The book forgets a claim that is gone when the cache shows its IPAddress.
						s.SetAddress(o.DeepCopy())
						s.NextForClaim(ClaimKey("n", "a"), s.now)
					}
					if !gone {
						s.has("a", c.state, "10.0.0.5")
					}
					for _, other := range []string{"b", "c", "d"} {
						if s.claim(other, nil); s.claims[ClaimKey("n", other)].addr.String() == "10.0.0.5" {
							t.Errorf("%s has 10.0.0.5, and so has the machine of a", other)
						}
					}
				})
			}
		}
	}
}

// A pool that is being deleted is looked at again when an answer says that no IPAddress of it exists or can be created, also if the claim keeps its
// address: it goes then, and nothing else may come that wakes it.
func TestADeletedPoolGoesAfterAnAnswer(t *testing.T) {
	until := epoch.Add(10 * time.Second)
	for name, answer := range map[string]Answer{"a read": {Result: Unknown, Until: until}, "a refusal": {Result: Rejected, Why: "no"}} {
		t.Run(name, func(t *testing.T) {
			s := newScript(t, "10.0.0.5")
			s.claim("a", nil)
			r := s.next("a", "create")
			o := r.Object.DeepCopy()
			o.ResourceVersion, o.UID = "1", "uid of the IPAddress"
			s.SetAddress(o.DeepCopy())
			s.Done(r, Answer{Address: o}, s.now)
			s.AddressGone("n", "a", o.UID) // forced away
			r = s.next("a", "create")
			p := *s.pools[Key{kindPool, "n", "p"}].object
			s.version++
			now := metav1.NewTime(s.now)
			p.DeletionTimestamp, p.ResourceVersion = &now, strconv.Itoa(s.version)
			s.SetPool(&p)
			if n := s.NextForPool(p.key(), s.now); n.Request == nil || n.Request.Verb != PatchStatus {
				t.Fatalf("the pool goes while an IPAddress of it may be created: %v", n.Request)
			}
			s.Changes()
			if s.Done(r, answer, s.now); answer.Result == Unknown {
				s.now = until
				s.Done(s.next("a", "read"), Answer{Result: NotFound}, s.now)
			}
			s.has("a", Refused, "10.0.0.5") // It keeps the address: its machine may still run.
			if !slices.Contains(s.Changes(), p.key()) {
				t.Error("nobody asks about the pool")
			}
			if n := s.NextForPool(p.key(), s.now); n.Request == nil || n.Request.What != "release the pool" {
				t.Errorf("the next request about the pool is %v, want its release", n.Request)
			}
		})
	}
}

// What an IPAddress without a claim had before it was edited may be in use as well.
func TestAnEditedIPAddressWithoutClaim(t *testing.T) {
	s := newScript(t, "10.0.0.5-10.0.0.6")
	o := s.address("a", "10.0.0.5").DeepCopy()
	s.version++
	o.ResourceVersion, o.Spec.Address = strconv.Itoa(s.version), "10.0.0.6"
	s.SetAddress(o)
	s.claim("b", nil)
	s.has("b", Waiting, "")
	s.AddressGone("n", "a", o.UID)
	s.has("b", Reserved, "10.0.0.5")
	if n := s.pool(Key{kindPool, "n", "p"}).usage.Counts(); n.Used != 1 {
		t.Errorf("%d addresses are in use, want 1", n.Used)
	}
}

// Of a claim whose fields cannot all be read, nothing is written, until it is deleted.
func TestABrokenClaim(t *testing.T) {
	for name, known := range map[string]bool{"that was whole before": true, "that was never whole": false} {
		t.Run(name, func(t *testing.T) {
			s := newScript(t, "10.0.0.5")
			broken := &v1beta2.IPAddressClaim{}
			see := func(change func(*v1beta2.IPAddressClaim)) {
				s.version++
				broken.ResourceVersion = strconv.Itoa(s.version)
				if change != nil {
					change(broken)
				}
				s.SetBrokenClaim(broken.DeepCopy())
			}
			if known {
				s.claim("a", nil)
				broken.ObjectMeta = s.claims[ClaimKey("n", "a")].object.ObjectMeta
			} else {
				broken.ObjectMeta = s.meta("a")
				broken.Finalizers = []string{v1beta2.FinalizerReleaseAddress}
				broken.Spec.PoolRef = v1beta2.IPPoolReference{APIGroup: v1alpha2.GroupName, Kind: kindPool, Name: "p"}
			}
			if !known { // It does not wait for an address of the pool, which has one.
				see(nil)
				if got := s.Figures().Waiting; len(got) != 1 || got[ReasonUnreadable] != 1 {
					t.Errorf("the figures say that it waits for %v", got)
				}
			}
			o := s.address("a", "10.0.0.5")
			see(nil)
			if n := s.NextForClaim(ClaimKey("n", "a"), s.now); n.Request != nil {
				t.Errorf("the next request is %v, want none", n.Request)
			}
			if message := s.pool(Key{kindPool, "n", "p"}).ready().Message; strings.Contains(message, "without an IPAddressClaim") {
				t.Errorf("its IPAddress counts as one without a claim: %s", message)
			}
			o = o.DeepCopy()
			s.deleteAddress(o)
			if n := s.NextForClaim(ClaimKey("n", "a"), s.now); n.Request != nil {
				t.Errorf("the next request is %v, and the claim of the IPAddress exists", n.Request)
			}
			see(s.deleting)
			if r := s.next("a", "patch"); r.Key.Kind != kindAddress {
				t.Errorf("the next request is %v, want one that releases the IPAddress", r)
			}
			s.AddressGone("n", "a", o.UID)
			r := s.next("a", "patch")
			if want := fmt.Sprintf(`"resourceVersion":"%d"`, s.version); r.Key.Kind != kindClaim || !strings.Contains(string(r.Body), want) {
				t.Errorf("the next request is %v %s, want one that releases the claim in version %d", r, r.Body, s.version)
			}
		})
	}
}

// A claim goes while a create request is unanswered. A read that was sent before that request could not arrive any more proves nothing, whatever it
// finds and whenever its answer comes.
func TestReadOnItsWayWhenAClaimGoes(t *testing.T) {
	for name, early := range map[string]bool{"answered before the claim goes": true, "answered after that": false} {
		t.Run(name, func(t *testing.T) {
			s := newScript(t, "10.0.0.5")
			s.claim("a", nil)
			s.claim("b", nil)
			r, until := s.next("a", "create"), s.now.Add(10*time.Second)
			other, stored := r.Object.DeepCopy(), r.Object.DeepCopy()
			other.UID, other.ResourceVersion, other.Spec.Address = "of another program", "1", "10.0.0.9"
			stored.UID, stored.ResourceVersion = "of a", "51"
			s.Done(r, Answer{Result: Unknown, Until: until}, s.now)
			read := s.next("a", "read")
			s.SetAddress(other)
			if early {
				s.Done(read, Answer{Address: other}, s.now)
			}
			s.ClaimGone("n", "a", "uid of a")
			if !early {
				s.Done(read, Answer{Address: other}, s.now)
			}
			// The other program deletes its IPAddress, and the create request is carried out at the last moment: the cache shows neither yet.
			s.now = until
			s.NextForClaim(ClaimKey("n", "a"), s.now)
			s.has("b", Waiting, "")
			s.SetAddress(stored)
		})
	}
}

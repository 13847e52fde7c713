package incluster

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/multicidr/controller-manager/apis/clusterapi/v1alpha2"
	"github.com/multicidr/controller-manager/apis/clusterapi/v1beta2"
	"github.com/multicidr/controller-manager/controllers/clusteripam/runner"
	"github.com/multicidr/controller-manager/test/contracttest"
)

var poolP = runner.Key{Kind: runner.InClusterIPPools, Namespace: "n", Name: "p"}

func poolWith(addresses ...string) *object {
	return ofAddresses(v1alpha2.KindInClusterIPPool, metav1.ObjectMeta{Namespace: "n", Name: "p", UID: "p", Finalizers: []string{v1beta2.FinalizerProtectPool}},
		&v1alpha2.InClusterIPPoolSpec{Addresses: addresses, Prefix: 8}, v1alpha2.InClusterIPPoolStatus{})
}

func claimOf(name string, age time.Duration) *v1beta2.IPAddressClaim {
	o := &v1beta2.IPAddressClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: name, UID: types.UID(name)}}
	o.CreationTimestamp = metav1.NewTime(time.Unix(1_000_000, 0).Add(-age))
	o.Spec.PoolRef = v1beta2.IPPoolReference{APIGroup: v1beta2.GroupName, Kind: v1alpha2.KindInClusterIPPool, Name: "p"}
	return o
}

func addressOf(name, address string) *v1beta2.IPAddress {
	o := &v1beta2.IPAddress{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: name, UID: types.UID(name)}}
	o.Spec = v1beta2.IPAddressSpec{ClaimRef: v1beta2.IPAddressClaimReference{Name: name}, PoolRef: claimOf("", 0).Spec.PoolRef, Address: address}
	return o
}

func everybodyWants(*claim) bool { return true }

func newAllocator(wants func(*claim) bool) *allocator {
	return &allocator{pools: map[runner.Key]*pool{}, wants: wants, touch: func(runner.Key) {}}
}

// Claims that wait get addresses in the order of their creation, whoever asks first. Those that do not want one now wait again later.
func TestTheOldestClaimIsServedFirst(t *testing.T) {
	rests := map[string]bool{"oldest": true}
	a := newAllocator(func(c *claim) bool { return !rests[c.object.Name] })
	a.setPool(poolP, poolWith("10.0.0.1"))
	for i, name := range []string{"youngest", "younger", "old", "oldest"} {
		a.setClaim(claimOf(name, time.Duration(i)*time.Hour))
	}
	next := func(asks, want string) {
		t.Helper()
		a.want(a.claim(claimOf(asks, 0)))
		for name, c := range a.pools[poolP].claims {
			if c.block.IsValid() != (string(name) == want) {
				t.Errorf("after %s has asked: %s has %v, want one for %q", asks, name, c.block, want)
			}
		}
	}
	next("youngest", "old")
	a.claimGone(claimOf("old", 0))
	next("oldest", "younger")
	rests["oldest"] = false
	a.setClaim(claimOf("oldest", 3*time.Hour))
	a.claimGone(claimOf("younger", 0))
	next("youngest", "oldest")
	a.setClaim(claimOf("late", 99*time.Hour))
	a.claimGone(claimOf("youngest", 0))
	a.claimGone(claimOf("oldest", 0))
	next("late", "late")
	if p := a.pools[poolP]; len(p.waiting) != 0 || len(p.claims) != 1 {
		t.Errorf("%d claims wait, of %d", len(p.waiting), len(p.claims))
	}
	a.claimGone(claimOf("late", 0))
	if a.setPool(poolP, nil); len(a.pools) > 0 {
		t.Errorf("something is left: %+v", a)
	}
}

// Somebody else creates an IPAddress with the address that is reserved for a claim, before the claim says it. The claim gets another one.
func TestAReservationThatNobodyKnows(t *testing.T) {
	a := newAllocator(everybodyWants)
	a.setPool(poolP, poolWith("10.0.0.1-10.0.0.2"))
	a.setClaim(claimOf("c", 0))
	c := a.claim(claimOf("c", 0))
	first, _ := a.want(c)
	a.setAddress(addressOf("other", first.Addr().String()))
	if second, by := a.want(c); !second.IsValid() || second == first || by != "" {
		t.Errorf("it had %v, and gets %v, which is also of %q", first, second, by)
	}
}

// BenchmarkWant chooses an address in a pool in which 60,000 are used.
func BenchmarkWant(b *testing.B) {
	a := newAllocator(everybodyWants)
	a.setPool(poolP, poolWith("10.0.0.0/8"))
	for i := range 60_000 {
		o := claimOf(fmt.Sprint("c", i), 0)
		a.setClaim(o)
		a.want(a.claim(o))
	}
	d := rand.New(rand.NewPCG(1, 1))
	for b.Loop() {
		b.StopTimer()
		o := claimOf(fmt.Sprint("c", d.IntN(60_000)), 0)
		a.claimGone(o)
		b.StartTimer()
		a.setClaim(o)
		if block, _ := a.want(a.claim(o)); !block.IsValid() {
			b.Fatal("it has none")
		}
	}
}

// restricted is the queue of a term.
type restricted struct {
	*testing.T
	workers map[*runner.Kind]int
}

func (q restricted) Add(key runner.Key) {
	if q.workers[key.Kind] == 0 {
		q.Errorf("%v is queued, and the runner has no queue for its kind", key)
	}
}

func (q restricted) AddAfter(key runner.Key, _ time.Duration) { q.Add(key) }

// A controller of one namespace leaves Global pools alone, and claims of the namespace name them all the same.
func TestClaimsOfPoolsThatAreNotRead(t *testing.T) {
	config := configOf(Config{Namespace: "n", Workers: 1})
	term := &runner.Term{Queue: restricted{t, config.Workers}}
	config.New(term)
	for kind := range kinds {
		ref := v1beta2.IPPoolReference{APIGroup: runner.GroupIPAM, Kind: kind, Name: "p"}
		contracttest.Show(term, runner.IPAddressClaims, &v1beta2.IPAddressClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: kind, UID: types.UID(kind)}, Spec: v1beta2.IPAddressClaimSpec{PoolRef: ref}})
		contracttest.Show(term, runner.IPAddresses, &v1beta2.IPAddress{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: kind}, Spec: v1beta2.IPAddressSpec{PoolRef: ref, Address: "10.0.0.1"}})
	}
}

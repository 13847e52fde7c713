package incluster

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/multicidr/controller-manager/apis/clusterapi/v1alpha2"
	"github.com/multicidr/controller-manager/apis/clusterapi/v1beta2"
	"github.com/multicidr/controller-manager/controllers/clusteripam/runner"
	"github.com/multicidr/controller-manager/test/seeds"
)

var poolP = runner.Key{Kind: runner.InClusterIPPools, Namespace: "n", Name: "p"}

func poolWith(addresses ...string) *object {
	return ofAddresses(v1alpha2.KindInClusterIPPool, &metav1.ObjectMeta{Namespace: "n", Name: "p", UID: "p", Finalizers: []string{v1beta2.FinalizerProtectPool}},
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

// The allocator in random histories, beside a slow one: who holds a block, which is the next one, and which IPAddresses are in conflict.
func TestAllocatorHistories(t *testing.T) {
	seeds.Each(t, 300, func(t *testing.T, seed uint64) {
		defer seeds.Report(t, seed, nil)
		d := rand.New(rand.NewPCG(seed, 0))
		a := newAllocator(everybodyWants)
		a.setPool(poolP, poolWith("10.0.0.1-10.0.0.9"))
		addresses := map[string]string{}
		for range 200 {
			name := fmt.Sprint("c", d.IntN(12))
			switch d.IntN(6) {
			case 0:
				a.setClaim(claimOf(name, time.Duration(d.IntN(9))*time.Hour))
			case 1:
				a.claimGone(claimOf(name, 0))
			case 2:
				if addresses[name] == "" {
					addresses[name] = fmt.Sprint("10.0.0.", 1+d.IntN(12))
					a.setAddress(addressOf(name, addresses[name]))
					if c := a.claim(claimOf(name, 0)); c != nil { // It gets the annotation.
						a.setClaim(c.object)
					}
				}
			case 3:
				a.addressGone(addressOf(name, ""))
				delete(addresses, name)
			case 4:
				a.setPool(poolP, poolWith(fmt.Sprintf("10.0.0.%d-10.0.0.%d", 1+d.IntN(4), 5+d.IntN(6))))
			case 5:
				if c := a.claim(claimOf(name, 0)); c != nil {
					a.want(c)
				}
			}
			a.serve(a.pools[poolP])
			judgeAllocator(t, a, addresses)
		}
	})
}

func judgeAllocator(t *testing.T, a *allocator, addresses map[string]string) {
	t.Helper()
	p := a.pools[poolP]
	held := map[netip.Prefix][]string{} // by whom
	for name, at := range addresses {
		block := netip.MustParsePrefix(at + "/32")
		held[block] = append(held[block], name)
		if c := p.claims[types.UID(name)]; c != nil && c.block != block {
			t.Errorf("%s has %v, and its IPAddress says %v", name, c.block, block)
		}
	}
	conflicts := 0
	for _, names := range held {
		if len(names) > 1 {
			conflicts++
		}
	}
	for name, c := range p.claims {
		if c.block.IsValid() && !slices.Contains(held[c.block], string(name)) {
			held[c.block] = append(held[c.block], string(name))
		}
		if p.waiting[c] != !c.block.IsValid() {
			t.Errorf("%s has %v and waits: %t", name, c.block, p.waiting[c])
		}
	}
	if n := p.usage.Counts(); n.Used != len(held) || len(p.clashes()) != conflicts {
		t.Errorf("%+v are counted and %v in conflict; held are %v", n, p.clashes(), held)
	}
	if next, ok := p.usage.Next(); ok && (len(held[next]) > 0 || len(p.waiting) > 0) {
		t.Errorf("the next one is %v, held are %v, and %d wait", next, held, len(p.waiting))
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

package allocator

import (
	"net/netip"
	"slices"
	"testing"
	"time"

	networkingv1 "github.com/multicidr/controller-manager/apis/networking/v1"
	. "github.com/multicidr/controller-manager/controllers/nodeipam/internal/objects"
)

// TestOrderOfFamilies: a Node shows its podCIDRs with the primary family first, and blocks are chosen IPv4 first. What happens to them after a
// restore of etcd does not depend on which family is the primary one.
func TestOrderOfFamilies(t *testing.T) {
	spec := networkingv1.ClusterCIDRSpec{IPv4: "10.0.0.0/24", IPv6: "fd00::/112", PerNodeHostBits: 4}
	chosen := Pfxs("10.0.0.0/28", "fd00::/124") // by Reserve
	restored := Renewals{Sent: 2, Proven: 1, WentBack: 2}
	for order, shown := range map[string][]netip.Prefix{"IPv4 first": chosen, "IPv6 first": Pfxs("fd00::/124", "10.0.0.0/28")} {
		same := func(blocks []netip.Prefix) bool {
			return len(blocks) == 2 && slices.Contains(blocks, chosen[0]) && slices.Contains(blocks, chosen[1])
		}
		begin := func() *State {
			b := New()
			Set(ClusterCIDR("cc", spec))(b)
			Reserve(Node("n"))(b)
			return b
		}
		lost := func(b *State) {
			b.Keep("n", nil, 1)
			b.NodeGone("n", Node("n").UID)
			b.Decide("n", restored)
		}
		t.Run(order+", they are taken away", func(t *testing.T) {
			b, n := begin(), Node("n", From("cc"))
			b.Observe(n, shown, nil)
			b.Observe(Node("n"), nil, nil)
			if wait, read := b.HoldBack(n, time.Unix(1000, 0), restored.WentBack); wait > 0 || read {
				t.Errorf("they are not written again: wait %v, read %t", wait, read)
			}
			if r, _, _ := b.Allocate(n); !same(r.Blocks) {
				t.Errorf("the Node is allocated %v, want what it had", r.Blocks)
			}
		})
		t.Run(order+", the Node vanishes and is back without them", func(t *testing.T) {
			b, n := begin(), Node("n", UID("later"))
			b.Observe(Node("n", From("cc")), shown, nil)
			lost(b)
			b.Observe(n, nil, nil)
			if b.Reclaim(n); !same(b.HeldBy(OwnerOf(n.UID))) || b.Doubted("n") {
				t.Errorf("the Node has %v, want what it had; in doubt: %v", b.HeldBy(OwnerOf(n.UID)), b.InDoubt("n"))
			}
		})
		t.Run(order+", the Node vanishes and is back with what was sent", func(t *testing.T) {
			b, n := begin(), Node("n", UID("later"), From("cc"))
			lost(b)
			n.Spec.PodCIDRs = Texts(shown)
			b.Observe(n, shown, nil)
			if b.Reclaim(n); b.Doubted("n") {
				t.Errorf("in doubt: %v, want none: the Node shows them", b.InDoubt("n"))
			}
		})
	}
}

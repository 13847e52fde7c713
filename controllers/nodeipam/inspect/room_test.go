package inspect

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	networkingv1 "github.com/multicidr/controller-manager/apis/networking/v1"
	. "github.com/multicidr/controller-manager/controllers/nodeipam/internal/objects"
)

// The room of a group of Nodes is the number of such Nodes that get podCIDRs when they are created one after the other, whatever their
// ClusterCIDRs share, exclude and have allocated before.
func TestRoomIsHowManyNodesGetPodCIDRs(t *testing.T) {
	for seed := range uint64(3000) {
		d := rand.New(rand.NewPCG(seed, 1))
		objects := Objects{}
		for i := range 1 + d.IntN(4) {
			objects.ClusterCIDRs = append(objects.ClusterCIDRs, drawClusterCIDR(d, fmt.Sprint("cc", i)))
		}
		for i := range d.IntN(6) {
			objects.Nodes = append(objects.Nodes, drawNode(d, fmt.Sprint("n", i)))
		}
		c := New(objects)
		pools, _ := c.enabled(c.create("first", nil))
		want := c.room(pools)
		for got := uint64(0); ; got++ {
			if e := c.ExplainNew(fmt.Sprint("x", got), nil); e.State == Pending {
				if got != want {
					t.Fatalf("seed %d: room for %d Nodes, but %d get podCIDRs", seed, want, got)
				}
				break
			}
		}
	}
}

// drawClusterCIDR draws one in a small part of the address space, so that many overlap.
func drawClusterCIDR(d *rand.Rand, name string) *networkingv1.ClusterCIDR {
	bits := 22 + d.IntN(4)
	base := netip.MustParsePrefix(fmt.Sprintf("10.0.%d.%d/%d", d.IntN(4), d.IntN(4)*64, bits)).Masked()
	spec := networkingv1.ClusterCIDRSpec{IPv4: base.String(), PerNodeHostBits: int32(4 + d.IntN(32-bits-4+1)), Priority: int32(d.IntN(2))}
	if d.IntN(3) == 0 {
		spec.IPv6, spec.IPv6PerNodeHostBits = netip.MustParsePrefix(fmt.Sprintf("fd00::%d:0/%d", d.IntN(2), 110+d.IntN(6))).Masked().String(), new(int32(10+d.IntN(3)))
	}
	if d.IntN(2) == 0 {
		spec.ExcludedCIDRs = []string{netip.PrefixFrom(base.Addr(), bits+1+d.IntN(5)).String()}
	}
	cc := ClusterCIDR(name, spec)
	if d.IntN(2) == 0 {
		cc.Status.IPv4 = &networkingv1.RangeStatus{Cursor: fmt.Sprintf("10.0.%d.%d", d.IntN(4), d.IntN(256))} // ignored if it is outside
	}
	return cc
}

// drawNode draws one with podCIDRs somewhere there.
func drawNode(d *rand.Rand, name string) *v1.Node {
	n := Node(name)
	block := netip.MustParsePrefix(fmt.Sprintf("10.0.%d.%d/%d", d.IntN(4), d.IntN(256), 24+d.IntN(6))).Masked()
	n.Spec.PodCIDRs, n.Spec.PodCIDR = []string{block.String()}, block.String()
	n.CreationTimestamp = metav1.Unix(int64(d.IntN(5)), 0)
	return n
}

package inspect

import (
	"fmt"
	"net/netip"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	networkingv1 "github.com/multicidr/controller-manager/apis/networking/v1"
	. "github.com/multicidr/controller-manager/test/objects"
)

// A large cluster: 100,000 Nodes, 100 in each of 1,000 ClusterCIDRs, and a fall-back. One Node in a thousand is pending.
func large() (objects Objects) {
	for i := range 1000 {
		pool := fmt.Sprintf("pool-%03d", i)
		base := netip.AddrFrom4([4]byte{10, byte(i / 4), byte(i % 4 * 64), 0})
		objects.ClusterCIDRs = append(objects.ClusterCIDRs, ClusterCIDR(pool, networkingv1.ClusterCIDRSpec{
			IPv4: netip.PrefixFrom(base, 18).String(), PerNodeHostBits: 6, NodeSelector: AnyOf(AllOf(In("pool", pool))),
		}))
		for j := range 100 {
			node := Node(fmt.Sprintf("%s-%02d", pool, j), Label("pool", pool))
			node.CreationTimestamp = metav1.Unix(int64(i), 0)
			node.Status.Addresses = []v1.NodeAddress{{Type: v1.NodeInternalIP, Address: fmt.Sprintf("172.16.%d.%d", i%250, j)}}
			if j > 0 || i%10 > 0 {
				block := netip.PrefixFrom(base, 18)
				bytes := block.Addr().As4()
				bytes[2], bytes[3] = bytes[2]+byte(j/4), byte(j%4*64)
				cidr := netip.PrefixFrom(netip.AddrFrom4(bytes), 26).String()
				node.Spec.PodCIDR, node.Spec.PodCIDRs = cidr, []string{cidr}
				node.Annotations = map[string]string{networkingv1.AnnotationClusterCIDR: pool}
			}
			objects.Nodes = append(objects.Nodes, node)
		}
	}
	objects.ClusterCIDRs = append(objects.ClusterCIDRs, ClusterCIDR("fallback", networkingv1.ClusterCIDRSpec{IPv4: "10.0.0.0/8", PerNodeHostBits: 6}))
	return objects
}

func BenchmarkLarge(b *testing.B) {
	objects := large()
	b.Run("New", func(b *testing.B) {
		for b.Loop() {
			New(objects)
		}
	})
	b.Run("Status", func(b *testing.B) {
		for b.Loop() {
			New(objects).Status()
		}
	})
	b.Run("Who", func(b *testing.B) {
		for b.Loop() {
			New(objects).Who(Pfx("10.7.64.9/32"))
		}
	})
	b.Run("Map", func(b *testing.B) {
		for b.Loop() {
			New(objects).Map("", netip.Prefix{}, 5)
		}
	})
	b.Run("Explain", func(b *testing.B) {
		for b.Loop() {
			New(objects).Explain("pool-010-00")
		}
	})
	b.Run("Plan", func(b *testing.B) {
		for b.Loop() {
			if _, err := objects.Plan(Changes{Disable: []string{"pool-007"}, NewNodes: 1000, Labels: map[string]string{"pool": "pool-009"}}); err != nil {
				b.Fatal(err)
			}
		}
	})
}

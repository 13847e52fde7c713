package allocator_test

import (
	"fmt"
	"math/bits"
	"runtime"
	"slices"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	networkingv1 "github.com/multicidr/controller-manager/apis/networking/v1"
	"github.com/multicidr/controller-manager/controllers/nodeipam/allocator"
	"github.com/multicidr/controller-manager/controllers/nodeipam/pool"
	. "github.com/multicidr/controller-manager/test/objects"
)

// BenchmarkCore measures what the state does between the event of a Node and its PATCH, and at a start. `make bench` runs it and holds the
// figures against the marks. What is after "=" in a name it takes as a number.
func BenchmarkCore(b *testing.B) {
	for _, nodes := range []int{1_000, 100_000} {
		for _, clusterCIDRs := range []int{50, 100, 1_000} {
			size := fmt.Sprintf("nodes=%d/clusterCIDRs=%d", nodes, clusterCIDRs)
			b.Run("serve/"+size, func(b *testing.B) { benchmarkServe(b, nodes, clusterCIDRs) })
			b.Run("scrape/"+size, func(b *testing.B) { benchmarkScrape(b, nodes, clusterCIDRs) })
			b.Run("rebuild/"+size, func(b *testing.B) { benchmarkRebuild(b, nodes, clusterCIDRs) })
		}
	}
}

// town has ClusterCIDRs side by side, each for the Nodes of one group of machines.
func town(clusterCIDRs int) *allocator.State {
	s := allocator.New()
	hostBits := max(24-bits.Len(uint(clusterCIDRs-1)), 11)
	ipv6 := int32(64)
	for i := range clusterCIDRs {
		at := 10<<24 + i<<hostBits
		s.SetPool(pool.Compile(ClusterCIDR(fmt.Sprintf("range-%04d", i), networkingv1.ClusterCIDRSpec{
			IPv4: fmt.Sprintf("%d.%d.%d.%d/%d", at>>24, at>>16&255, at>>8&255, at&255, 32-hostBits), PerNodeHostBits: 4,
			IPv6: fmt.Sprintf("fd00:%x::/32", i), IPv6PerNodeHostBits: &ipv6,
			NodeSelector: AnyOf(AllOf(In("kubernetes.io/os", "linux"), In("example.com/pool", fmt.Sprintf("pool-%04d", i)))),
		}), nil))
	}
	return s
}

// machine is the i-th Node, of one of n groups, with the labels and addresses that a cloud gives it.
func machine(i, n int) *v1.Node {
	node := Node(fmt.Sprintf("worker-%06d", i))
	node.Labels = map[string]string{
		"example.com/pool": fmt.Sprintf("pool-%04d", i%n), "kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64", "kubernetes.io/hostname": node.Name,
		"node.kubernetes.io/instance-type": "m7.2xlarge", "topology.kubernetes.io/region": "eu-central-1", "topology.kubernetes.io/zone": "eu-central-1a",
	}
	node.Status.Addresses = []v1.NodeAddress{{Type: v1.NodeInternalIP, Address: fmt.Sprintf("172.%d.%d.%d", 16+i>>16, i>>8&255, i&255)}, {Type: v1.NodeHostName, Address: node.Name}}
	return node
}

// fill gives podCIDRs to that many Nodes, and returns them as they are then shown.
func fill(b *testing.B, s *allocator.State, nodes, clusterCIDRs int) (all []*v1.Node) {
	b.Helper()
	s.Start()
	for i := range nodes {
		node := machine(i, clusterCIDRs)
		s.Observe(node, time.Time{})
		s.Next(node.Name, time.Time{})
		r, ok := s.Send(node.Name, node.UID)
		if !ok {
			b.Fatalf("Node %s is not served", node.Name)
		}
		node = node.DeepCopy()
		node.Spec.PodCIDRs = Texts(r.Blocks)
		node.Spec.PodCIDR = node.Spec.PodCIDRs[0]
		From(r.ClusterCIDR)(node)
		s.Observe(node, time.Time{})
		all = append(all, node)
	}
	s.Changes()
	runtime.GC()
	return all
}

func benchmarkServe(b *testing.B, nodes, clusterCIDRs int) {
	s := town(clusterCIDRs)
	fill(b, s, nodes, clusterCIDRs)
	var choose, confirm []time.Duration
	for i := 0; b.Loop(); i++ {
		node := machine(nodes+i%1000, clusterCIDRs)
		start := time.Now()
		s.Observe(node, time.Time{})
		s.Next(node.Name, start)
		r, ok := s.Send(node.Name, node.UID)
		s.Changes()
		choose = append(choose, time.Since(start))
		if !ok {
			b.Fatalf("Node %s is not served", node.Name)
		}
		node = node.DeepCopy()
		node.Spec.PodCIDRs = Texts(r.Blocks)
		start = time.Now()
		s.Observe(node, time.Time{})
		s.Changes()
		confirm = append(confirm, time.Since(start))
		s.Gone(node.Name, node.UID)
		s.Walk()
	}
	report(b, "choose", choose)
	report(b, "confirm", confirm)
}

// benchmarkScrape reads what the metrics show, for which the lock is held.
func benchmarkScrape(b *testing.B, nodes, clusterCIDRs int) {
	s := town(clusterCIDRs)
	fill(b, s, nodes, clusterCIDRs)
	var scrape []time.Duration
	for b.Loop() {
		start := time.Now()
		s.Counts()
		for _, p := range s.Pools() {
			for _, r := range p.Ranges {
				s.RangeStatus(p, r)
				s.CoveredBy(r)
			}
		}
		scrape = append(scrape, time.Since(start))
	}
	report(b, "scrape", scrape)
}

func benchmarkRebuild(b *testing.B, nodes, clusterCIDRs int) {
	all := fill(b, town(clusterCIDRs), nodes, clusterCIDRs)
	var rebuild []time.Duration
	for b.Loop() {
		start := time.Now()
		s := town(clusterCIDRs)
		for _, node := range all {
			s.Observe(node, time.Time{})
		}
		s.Start()
		s.Walk()
		rebuild = append(rebuild, time.Since(start))
	}
	report(b, "rebuild", rebuild)
}

// report reports the mean, some percentiles and the maximum of what an operation took, in nanoseconds.
func report(b *testing.B, what string, took []time.Duration) {
	slices.Sort(took)
	sum := time.Duration(0)
	for _, t := range took {
		sum += t
	}
	for name, t := range map[string]time.Duration{
		"mean": sum / time.Duration(len(took)), "p50": took[len(took)/2], "p99": took[len(took)*99/100], "max": took[len(took)-1],
	} {
		b.ReportMetric(float64(t), what+"-"+name+"-ns")
	}
}

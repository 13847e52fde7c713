package main

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"net/netip"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	k8sruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/client-go/kubernetes"

	"github.com/multicidr/controller-manager/apis/generated/clientset/versioned"
	networkingv1 "github.com/multicidr/controller-manager/apis/networking/v1"
	"github.com/multicidr/controller-manager/cmd/kubectl-node_ipam/internal/cluster"
	"github.com/multicidr/controller-manager/test/controlplane"
)

var largeNodes = flag.Int("large.nodes", 0, "how many Nodes TestLarge makes, in a hundredth as many ClusterCIDRs; 0: it is skipped")

// How long status and who take in a large cluster, and what they weigh: `-large.nodes=100000`.
func TestLarge(t *testing.T) {
	if *largeNodes == 0 {
		t.Skip("-large.nodes is 0")
	}
	cp := controlplane.StartForTest(t, controlplane.Options{ServiceRange: "198.51.100.0/24"})
	root, err := controlplane.ModuleRoot()
	if err != nil {
		t.Fatal(err)
	}
	if err := cp.Apply(t.Context(), filepath.Join(root, "manifests/crds")); err != nil {
		t.Fatal(err)
	}
	makeLarge(t, cp)
	bareList(t, cp)
	for _, args := range [][]string{{"status"}, {"status", "--disable-compression"}, {"who", "10.0.1.17"}, {"explain", "node-000007"}} {
		config := cp.AdminConfig()
		config.DisableCompression = slices.Contains(args, "--disable-compression")
		reader, err := cluster.NewReader(config)
		if err != nil {
			t.Fatal(err)
		}
		var out bytes.Buffer
		p := &program{IOStreams: genericiooptions.IOStreams{Out: &out, ErrOut: &out}, now: time.Now, connect: func() (*cluster.Reader, error) { return reader, nil }}
		runtime.GC()
		begin := time.Now()
		peak := heap(func() {
			if code := p.run(t.Context(), args); code != 0 {
				t.Errorf("%v: exit code %d: %s", args, code, &out)
			}
		})
		t.Logf("%v: %v, a heap of %d MiB at most", args, time.Since(begin).Round(10*time.Millisecond), peak>>20)
	}
}

// bareList reads all Nodes in pages and forgets them: nothing that has to know them can be faster.
func bareList(t *testing.T, cp *controlplane.ControlPlane) {
	config := cp.AdminConfig()
	config.ContentType, config.QPS = k8sruntime.ContentTypeProtobuf, -1
	kube, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		begin, n := time.Now(), 0
		for next := ""; n == 0 || next != ""; {
			page, err := kube.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{Limit: 1000, Continue: next})
			if err != nil {
				t.Fatal(err)
			}
			n, next = n+len(page.Items), page.Continue
		}
		t.Logf("a bare list of %d Nodes in pages: %v", n, time.Since(begin).Round(10*time.Millisecond))
	}
}

// heap returns the largest heap while f runs.
func heap(f func()) (most uint64) {
	done := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		for ticks := time.NewTicker(20 * time.Millisecond); ; {
			var m runtime.MemStats
			runtime.ReadMemStats(&m)
			most = max(most, m.HeapAlloc)
			select {
			case <-done:
				return
			case <-ticks.C:
			}
		}
	})
	f()
	close(done)
	wg.Wait()
	return most
}

// makeLarge makes ClusterCIDRs, and Nodes that have podCIDRs in them.
func makeLarge(t *testing.T, cp *controlplane.ControlPlane) {
	config := cp.AdminConfig()
	clusterCIDRs, err := versioned.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	config.ContentType = k8sruntime.ContentTypeProtobuf
	kube, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	if err := wait.PollUntilContextTimeout(t.Context(), 100*time.Millisecond, time.Minute, true, func(ctx context.Context) (bool, error) {
		_, err := clusterCIDRs.NetworkingV1().ClusterCIDRs().List(ctx, metav1.ListOptions{}) // not served for a moment
		return err == nil, nil
	}); err != nil {
		t.Fatal(err)
	}
	const perRange = 100
	base := func(i int) netip.Addr { return netip.AddrFrom4([4]byte{10, byte(i >> 2), byte(i&3) << 6, 0}) }
	parallel(t, *largeNodes/perRange, func(ctx context.Context, i int) error {
		cc := &networkingv1.ClusterCIDR{
			ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("pool-", i), Finalizers: []string{networkingv1.Finalizer}},
			Spec: networkingv1.ClusterCIDRSpec{IPv4: netip.PrefixFrom(base(i), 18).String(), PerNodeHostBits: 6, NodeSelector: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{
				{MatchExpressions: []corev1.NodeSelectorRequirement{{Key: "pool", Operator: corev1.NodeSelectorOpIn, Values: []string{fmt.Sprint("pool-", i)}}}}}}},
		}
		_, err := clusterCIDRs.NetworkingV1().ClusterCIDRs().Create(ctx, cc, metav1.CreateOptions{})
		return err
	})
	parallel(t, *largeNodes, func(ctx context.Context, i int) error {
		pool, n := i/perRange, i%perRange
		b := base(pool).As4()
		b[2], b[3] = b[2]+byte(n>>2), byte(n&3)<<6
		cidr := netip.PrefixFrom(netip.AddrFrom4(b), 26).String()
		name := fmt.Sprint("pool-", pool)
		node := &corev1.Node{
			ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("node-%06d", i), Labels: map[string]string{"pool": name}, Annotations: map[string]string{networkingv1.AnnotationClusterCIDR: name}},
			Spec:       corev1.NodeSpec{PodCIDR: cidr, PodCIDRs: []string{cidr}},
			Status:     corev1.NodeStatus{Addresses: []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: fmt.Sprintf("172.16.%d.%d", i/250%250, i%250)}}},
		}
		for j := range 30 { // a kubelet reports images, which are most of a Node
			node.Status.Images = append(node.Status.Images, corev1.ContainerImage{Names: []string{fmt.Sprintf("registry.example.com/team/image-%d@sha256:%064d", j, i)}, SizeBytes: 1 << 20})
		}
		_, err := kube.CoreV1().Nodes().Create(ctx, node, metav1.CreateOptions{})
		return err
	})
}

// parallel calls f for every index below n.
func parallel(t *testing.T, n int, f func(ctx context.Context, i int) error) {
	var next atomic.Int64
	var wg sync.WaitGroup
	for range 32 {
		wg.Go(func() {
			for i := int(next.Add(1)) - 1; i < n && !t.Failed(); i = int(next.Add(1)) - 1 {
				if err := f(t.Context(), i); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
}

package checker

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	networkingapiv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"

	"github.com/multicidr/controller-manager/apis/generated/clientset/versioned"
	networkingv1 "github.com/multicidr/controller-manager/apis/networking/v1"
	"github.com/multicidr/controller-manager/test/controlplane"
)

// The follower sees every change in a real etcd, once and in order, with etcd killed in between.
func TestFollower(t *testing.T) {
	cp := controlplane.StartForTest(t, controlplane.Options{})
	root, err := controlplane.ModuleRoot()
	if err != nil {
		t.Fatal(err)
	}
	if err := cp.Apply(t.Context(), filepath.Join(root, "manifests/crds")); err != nil {
		t.Fatal(err)
	}
	kube := kubernetes.NewForConfigOrDie(cp.AdminConfig())
	nodes, leases := kube.CoreV1().Nodes(), kube.CoordinationV1().Leases(metav1.NamespaceSystem)
	clusterCIDRs := versioned.NewForConfigOrDie(cp.AdminConfig()).NetworkingV1().ClusterCIDRs()
	ctx := t.Context()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	node := func(name string) *corev1.Node { return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}} }
	_, err = nodes.Create(ctx, node("before"), metav1.CreateOptions{})
	must(err)

	var mu sync.Mutex
	var got []string
	var revisions []int64
	client, err := Dial(cp.EtcdEndpoint(), cp.PKIDir())
	must(err)
	t.Cleanup(func() { client.Close() })
	follower := NewFollower(client, func(e Event) {
		mu.Lock()
		defer mu.Unlock()
		revisions = append(revisions, e.Revision)
		gone := map[bool]string{true: " gone"}[e.Gone]
		switch {
		case e.Node != nil:
			got = append(got, fmt.Sprintf("Node %s %v%s", e.Node.Name, e.Node.Spec.PodCIDRs, gone))
		case e.ClusterCIDR != nil:
			got = append(got, fmt.Sprintf("ClusterCIDR %s %s%s", e.ClusterCIDR.Name, e.ClusterCIDR.Spec.IPv4, gone))
		case e.ServiceCIDR != nil:
			got = append(got, fmt.Sprintf("ServiceCIDR %s %v%s", e.ServiceCIDR.Name, e.ServiceCIDR.Spec.CIDRs, gone))
		default:
			got = append(got, fmt.Sprintf("Lease %s %s%s", e.Lease.Name, *e.Lease.Spec.HolderIdentity, gone))
		}
	})
	running, stop := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- follower.Run(running) }()
	must(follower.CatchUp(ctx))

	_, err = nodes.Create(ctx, node("n1"), metav1.CreateOptions{})
	must(err)
	_, err = nodes.Patch(ctx, "n1", types.MergePatchType, []byte(`{"spec":{"podCIDR":"10.0.0.0/24","podCIDRs":["10.0.0.0/24"]}}`), metav1.PatchOptions{})
	must(err)
	must(cp.Etcd().Kill())
	must(cp.StartEtcd(ctx))
	cc := &networkingv1.ClusterCIDR{ObjectMeta: metav1.ObjectMeta{Name: "a"}, Spec: networkingv1.ClusterCIDRSpec{IPv4: "10.0.0.0/16", PerNodeHostBits: 8}}
	// The API server may need a moment to find etcd again.
	must(wait.PollUntilContextTimeout(ctx, 50*time.Millisecond, time.Minute, true, func(ctx context.Context) (bool, error) {
		_, err := clusterCIDRs.Create(ctx, cc, metav1.CreateOptions{})
		return err == nil || apierrors.IsAlreadyExists(err), nil
	}))
	must(nodes.Delete(ctx, "n1", metav1.DeleteOptions{}))
	holder := "somebody"
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: "manager"}, Spec: coordinationv1.LeaseSpec{HolderIdentity: &holder}}
	_, err = leases.Create(ctx, lease, metav1.CreateOptions{})
	must(err)
	must(clusterCIDRs.Delete(ctx, "a", metav1.DeleteOptions{}))
	service := &networkingapiv1.ServiceCIDR{ObjectMeta: metav1.ObjectMeta{Name: "s"}, Spec: networkingapiv1.ServiceCIDRSpec{CIDRs: []string{"10.0.0.0/24"}}}
	_, err = kube.NetworkingV1().ServiceCIDRs().Create(ctx, service, metav1.CreateOptions{})
	must(err)
	must(follower.CatchUp(ctx))

	stop()
	must(<-ended)
	// The API server has a lease and service ranges of its own, and marks all of them as ready.
	interesting := slices.Compact(slices.DeleteFunc(got, func(event string) bool {
		return strings.HasPrefix(event, "Lease apiserver-") || strings.HasPrefix(event, "ServiceCIDR kubernetes ")
	}))
	want := []string{
		"Node before []",
		"Node n1 []",
		"Node n1 [10.0.0.0/24]",
		"ClusterCIDR a 10.0.0.0/16",
		"Node n1 [] gone",
		"Lease manager somebody",
		"ClusterCIDR a  gone",
		"ServiceCIDR s [10.0.0.0/24]",
	}
	if diff := cmp.Diff(want, interesting); diff != "" {
		t.Errorf("what was observed (-want +got):\n%s", diff)
	}
	if !slices.IsSorted(revisions) {
		t.Errorf("revisions %v are not in order", revisions)
	}
}

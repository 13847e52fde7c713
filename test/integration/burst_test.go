package integration

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/workqueue"

	networkingv1 "github.com/multicidr/controller-manager/apis/networking/v1"
)

// TestManyNodesAtOnce creates 2,000 Nodes of four kinds as fast as the API server takes them, kills the controller in the
// middle, and wants every Node served with no address given twice.
func TestManyNodesAtOnce(t *testing.T) {
	const nodes = 2000
	c := sharedCluster(t)
	ctx := context.Background()
	// d overlaps a with larger blocks, and nobody selects kind 3 but the fall-back d.
	for _, args := range [][]string{
		{"a", "sel(kind=0)", "10.0.64.0/18", "hb5"},
		{"b", "sel(kind=1)", "10.64.0.0/16", "fd00:b::/48", "hb7", "v6hb64"},
		{"c", "sel(kind=2)", "fd00:c::/112", "hb4"},
		{"d", "10.0.0.0/13", "fd00:d::/48", "hb8", "v6hb64"},
	} {
		if err := createClusterCIDR(c, args); err != nil {
			t.Fatal(err)
		}
	}

	errs := make([]error, nodes)
	workqueue.ParallelizeUntil(ctx, 16, nodes, func(i int) {
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("n%04d", i), Labels: map[string]string{"kind": fmt.Sprint(i % 4)}}}
		_, errs[i] = c.kube.CoreV1().Nodes().Create(ctx, node, metav1.CreateOptions{})
		if i == nodes/2 {
			errs[i] = errors.Join(errs[i], manage(c, []string{"kill"}), manage(c, []string{"start"}))
		}
	})
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}

	var list *corev1.NodeList
	err := eventually(time.Minute, func(ctx context.Context) (err error) {
		if list, err = c.kube.CoreV1().Nodes().List(ctx, metav1.ListOptions{}); err != nil {
			return err
		}
		waiting := 0
		for _, node := range list.Items {
			if len(node.Spec.PodCIDRs) == 0 {
				waiting++
			}
		}
		if waiting > 0 {
			return fmt.Errorf("%d of %d Nodes are not served", waiting, len(list.Items))
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := c.overlaps(ctx); err != nil {
		t.Error(err)
	}

	// Until the finalizers of all four ClusterCIDRs are in, nobody overtakes them, so who serves which kind does not
	// depend on timing; save that d may take so much of a's addresses that a runs out.
	type due struct{ blocks, within []string }
	dues := map[string]due{
		"a": {[]string{"/27"}, []string{"10.0.64.0/18"}},
		"b": {[]string{"/25", "/64"}, []string{"10.64.0.0/16", "fd00:b::/48"}},
		"c": {[]string{"/124"}, []string{"fd00:c::/112"}},
		"d": {[]string{"/24", "/64"}, []string{"10.0.0.0/13", "fd00:d::/48"}},
	}
	servedBy := map[string][]string{"0": {"a", "d"}, "1": {"b"}, "2": {"c"}, "3": {"d"}}
	for _, node := range list.Items {
		by := node.Annotations[networkingv1.AnnotationClusterCIDR]
		if want := servedBy[node.Labels["kind"]]; !slices.Contains(want, by) {
			t.Errorf("Node %s was served by %q, want one of %q", node.Name, by, want)
			continue
		}
		want := dues[by]
		if len(node.Spec.PodCIDRs) != len(want.blocks) {
			t.Errorf("Node %s has podCIDRs %q, want %d", node.Name, node.Spec.PodCIDRs, len(want.blocks))
			continue
		}
		for i, podCIDR := range node.Spec.PodCIDRs {
			block := netip.MustParsePrefix(podCIDR)
			if !strings.HasSuffix(podCIDR, want.blocks[i]) || !netip.MustParsePrefix(want.within[i]).Contains(block.Addr()) {
				t.Errorf("Node %s has podCIDR %v, want a %s in %s", node.Name, block, want.blocks[i], want.within[i])
			}
		}
	}
}

package integration

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/multicidr/controller-manager/controllers/nodeipam/api"
)

// TestPodCIDRsAreNeverChanged sends what the controller sends to Nodes that have got podCIDRs since it looked: a strategic merge patch
// adds to lists, and all that may come of it is that the API server refuses it.
func TestPodCIDRsAreNeverChanged(t *testing.T) {
	c := sharedCluster(t)
	const a4, b4, a6, b6 = "10.0.0.0/24", "10.0.1.0/24", "fd00::/120", "fd00::100/120"
	for i, tc := range []struct {
		has, gets []string
		refused   bool
	}{
		{has: nil, gets: []string{a4}},
		{has: nil, gets: []string{a6, a4}},
		{has: []string{a4}, gets: []string{a4}},
		{has: []string{a4, a6}, gets: []string{a4, a6}},
		{has: []string{a4}, gets: []string{b4}, refused: true},
		{has: []string{a4}, gets: []string{a6}, refused: true},
		{has: []string{a4}, gets: []string{a4, a6}, refused: true},
		{has: []string{a4, a6}, gets: []string{a4, b6}, refused: true},
		{has: []string{a4, a6}, gets: []string{b4, b6}, refused: true},
		{has: []string{a4, a6}, gets: []string{b4}, refused: true},
	} {
		t.Run(fmt.Sprintf("%v gets %v", tc.has, tc.gets), func(t *testing.T) {
			node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("patched-%d", i)}, Spec: corev1.NodeSpec{PodCIDRs: tc.has}}
			if len(tc.has) > 0 {
				node.Spec.PodCIDR = tc.has[0]
			}
			node, err := c.kube.CoreV1().Nodes().Create(t.Context(), node, metav1.CreateOptions{})
			if err != nil {
				t.Fatal(err)
			}
			version, err := api.PatchNode(t.Context(), c.kube, node.Name, api.PodCIDRsPatch(node.UID, "a", tc.gets, "me"))
			if api.Refused(err) != tc.refused || (version == "") != tc.refused || err != nil && !tc.refused {
				t.Errorf("got version %q and error %v, want that it is refused: %t", version, err, tc.refused)
			}
			want := tc.gets
			if tc.refused {
				want = tc.has
			}
			if node, err = c.kube.CoreV1().Nodes().Get(t.Context(), node.Name, metav1.GetOptions{}); err != nil {
				t.Fatal(err)
			}
			if !slices.Equal(node.Spec.PodCIDRs, want) || node.Spec.PodCIDR != want[0] {
				t.Errorf("it has %q and %q now, want %q", node.Spec.PodCIDRs, node.Spec.PodCIDR, want)
			}
		})
	}

	t.Run("a younger Node of the name", func(t *testing.T) {
		must(t, createNode(c, []string{"younger"}))
		_, err := api.PatchNode(t.Context(), c.kube, "younger", api.PodCIDRsPatch("of-the-older", "a", []string{a4}, "me"))
		if !api.Refused(err) || !strings.Contains(err.Error(), "metadata.uid") {
			t.Errorf("got error %v, want that its UID is another", err)
		}
	})
}

package integration

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/multicidr/controller-manager/test/controlplane"
)

// TestServiceCIDRsServedLater runs node-ipam-controller before an API server that has no ServiceCIDRs, as one of v1.32, and upgrades it. Nobody restarts
// the controller, and it gives no block of a ServiceCIDR. (An API server of today does not start without ServiceCIDRs, so a proxy hides them.)
func TestServiceCIDRsServedLater(t *testing.T) {
	c := sharedCluster(t)
	c.runs(t, alone)
	must(t, c.stopManager((*controlplane.Process).Stop))
	front, kubeconfig := c.behindFront(t)
	const group = "/apis/networking.k8s.io/v1"
	front.answer(map[string]http.HandlerFunc{
		group: func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			fmt.Fprint(w, `{"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": "networking.k8s.io/v1", "resources": [{"name": "ingresses", "kind": "Ingress", "verbs": ["list"]}]}`)
		},
		group + "/servicecidrs": http.NotFound,
	})
	m := c.start(t, controlplane.ManagerOptions{Alone: true, Name: "before-the-upgrade", Kubeconfig: kubeconfig,
		Args: append(slices.Clone(alone.usual), "--enable-leader-election=false")})
	must(t, passes(m), createClusterCIDR(c, []string{"a", "10.0.0.0/22", "hb8"}), createServiceCIDR(c, []string{"later", "10.0.1.0/24"}),
		createNode(c, []string{"n1"}), served(c, []string{"n1", "10.0.0.0/24"}))
	front.answer(nil)
	err := eventually(patience, func(ctx context.Context) error {
		cc, err := c.clusterCIDRs.NetworkingV1().ClusterCIDRs().Get(ctx, "a", metav1.GetOptions{})
		if err == nil && (cc.Status.IPv4 == nil || cc.Status.IPv4.Unavailable != 1) {
			err = fmt.Errorf("the status is %+v, want one block that is not available", cc.Status.IPv4)
		}
		return err
	})
	must(t, err, createNode(c, []string{"n2"}), served(c, []string{"n2", "10.0.2.0/24"}), passes(m))
	if n := timesLogged(t, m, "has ended by itself"); n > 0 {
		t.Errorf("the log says %d times that the controller has ended by itself", n)
	}
}

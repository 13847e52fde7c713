package integration

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/multicidr/controller-manager/test/controlplane"
)

// TestOutage restarts the API server under the controller. As soon as it is ready, users do what makes blocks unavailable, each by another kind of
// object, and then Nodes join. Whichever watch is back first, no Node gets such a block, and the others are served soon.
func TestOutage(t *testing.T) {
	ctx := t.Context()
	c := freshCluster(t, controlplane.Options{}, append(slices.Clone(ours), "--leader-elect-lease-duration=60s", "--leader-elect-renew-deadline=40s")...)
	err := errors.Join(
		createClusterCIDR(c, []string{"service", "10.1.0.0/24", "hb4", "sel(kind=service)"}),
		createClusterCIDR(c, []string{"disabled", "10.2.0.0/24", "hb4", "sel(kind=disabled)"}),
		createClusterCIDR(c, []string{"one", "10.3.0.0/28", "hb4", "sel(kind=one)"}),
		createClusterCIDR(c, []string{"free", "10.4.0.0/24", "hb4", "sel(kind=free)"}),
		createNode(c, []string{"z", "kind=one"}), served(c, []string{"z", "10.3.0.0/28"}), deleteObjects(c, []string{"node", "z"}),
		eventually(patience, func(ctx context.Context) error {
			cc, err := c.clusterCIDRs.NetworkingV1().ClusterCIDRs().Get(ctx, "one", metav1.GetOptions{})
			if err == nil && (cc.Status.IPv4 == nil || cc.Status.IPv4.Free != 1) {
				err = fmt.Errorf("the status is %+v, want one free block", cc.Status.IPv4)
			}
			return err
		}),
	)
	if err != nil {
		t.Fatal(err)
	}

	if err := c.cp.APIServer().Kill(); err != nil {
		t.Fatal(err)
	}
	time.Sleep(9 * time.Second) // By then, an informer that were left alone would try again after very different times.
	if err := c.cp.StartAPIServer(ctx); err != nil {
		t.Fatal(err)
	}
	err = errors.Join(
		createServiceCIDR(c, []string{"later", "10.1.0.0/24"}),
		set(c, []string{"cc", "disabled", "disabled"}),
		createNode(c, []string{"z", "kind=one", "from=one", "10.3.0.0/28"}),
	)
	// An API server that starts takes writes of ClusterCIDRs before its own cache of them is filled, from which this list and the controller's come. Under load that once took five seconds.
	_, filled := c.clusterCIDRs.NetworkingV1().ClusterCIDRs().List(ctx, metav1.ListOptions{ResourceVersion: "0"})
	err = errors.Join(err, filled)
	ready := time.Now()
	for _, kind := range []string{"service", "disabled", "one", "free"} {
		err = errors.Join(err, createNode(c, []string{"a-" + kind, "kind=" + kind}))
	}
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.waitServed("a-free", 5*time.Second); err != nil {
		t.Error(err)
	}
	t.Logf("a Node is served %v after the API server is back", time.Since(ready))
	for _, kind := range []string{"service", "disabled", "one"} {
		if err := waits(c, []string{"a-" + kind}); err != nil {
			t.Error(err)
		}
	}
}

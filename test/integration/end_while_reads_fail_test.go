package integration

import (
	"errors"
	"net/http"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"

	"github.com/multicidr/controller-manager/test/controlplane"
)

// TestEndsWhileReadsAreTurnedAway tells the leader to end while the API server turns reads of ServiceCIDRs away. docs/operators/fencing.md: it waits until the writes
// under way are answered, 5 seconds at most, and releases the Lease.
func TestEndsWhileReadsAreTurnedAway(t *testing.T) {
	c := freshCluster(t, controlplane.Options{}, ours...)
	if err := errors.Join(c.stopManager((*controlplane.Process).Stop), createClusterCIDR(c, []string{"a", "10.0.0.0/16", "hb8"})); err != nil {
		t.Fatal(err)
	}
	config, err := c.cp.Config(controlplane.AloneUser)
	if err != nil {
		t.Fatal(err)
	}
	reads := newReads(t, config)
	kubeconfig, err := c.cp.WriteKubeconfig("behind-proxy", &rest.Config{Host: reads.url})
	if err != nil {
		t.Fatal(err)
	}
	c.manager = c.cp.StartManagerForTest(t, controlplane.ManagerOptions{Alone: true, Kubeconfig: kubeconfig, Args: []string{noTakeoverDelay}})
	if err := errors.Join(createNode(c, []string{"first"}), served(c, []string{"first", "10.0.0.0/24"}), c.healthy()); err != nil {
		t.Fatal(err)
	}
	const path = "/apis/networking.k8s.io/v1/servicecidrs"
	reads.fail(map[string]int{path: http.StatusServiceUnavailable}) // its watch ends, and it has to list anew
	time.Sleep(3 * time.Second)
	reads.fail(map[string]int{path: http.StatusTooManyRequests})
	time.Sleep(50 * time.Second) // its pauses grow
	began := time.Now()
	ended := make(chan error, 1)
	go func() { ended <- c.stopManager((*controlplane.Process).Stop) }()
	released := time.Duration(0)
	for time.Since(began) < 70*time.Second {
		lease, err := c.kube.CoordinationV1().Leases(metav1.NamespaceSystem).Get(t.Context(), standaloneLease, metav1.GetOptions{})
		if err == nil && ptr.Deref(lease.Spec.HolderIdentity, "") == "" {
			released = time.Since(began)
			break
		}
		if err == nil {
			t.Logf("after %v the Lease is held, renewed %v ago", time.Since(began).Round(time.Second), time.Since(lease.Spec.RenewTime.Time).Round(time.Second))
		}
		time.Sleep(2 * time.Second)
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if released == 0 || released > 7*time.Second {
		t.Errorf("released after %v (0: never); ended after %v", released, time.Since(began))
	}
}

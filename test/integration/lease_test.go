package integration

import (
	"context"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	networkingv1 "github.com/multicidr/controller-manager/apis/networking/v1"
	"github.com/multicidr/controller-manager/test/controlplane"
)

// shortLease makes a failover take seconds. Shorter ones are lost on a machine that compiles meanwhile.
var shortLease = []string{"--leader-elect-lease-duration=6s", "--leader-elect-renew-deadline=4s", "--leader-elect-retry-period=1s"}

// TestWritesHaveADeadline wants the API server to know how long each write may take: at most a third of the lease, less what went by
// before it was sent.
func TestWritesHaveADeadline(t *testing.T) {
	c := sharedCluster(t)
	since, err := controlplane.MarkAudit(c.auditLog)
	if err != nil {
		t.Fatal(err)
	}
	must(t, createClusterCIDR(c, []string{"a", "10.0.0.0/16", "hb8"}), c.createNodes(t.Context(), nil, "n"))
	must(t, c.isServed("n"))
	want := map[string]bool{"nodes": false, "clustercidrs": false, "clustercidrs/status": false}
	expect(t, eventually(patience, func(context.Context) error {
		writes, err := c.writes(since)
		if err != nil {
			return err
		}
		for _, w := range byController(writes) {
			resource := strings.TrimSuffix(w.ObjectRef.Resource+"/"+w.ObjectRef.Subresource, "/")
			if _, ok := want[resource]; !ok {
				continue
			}
			uri, err := url.Parse(w.RequestURI)
			if err != nil {
				t.Fatal(err)
			}
			timeout, err := time.ParseDuration(uri.Query().Get("timeout"))
			if err != nil || timeout <= 0 || timeout > 5*time.Second {
				t.Fatalf("%s: got timeout %v (%v), want more than 0 and at most 5s", w.RequestURI, timeout, err)
			}
			want[resource] = true
		}
		for resource, seen := range want {
			if !seen {
				return fmt.Errorf("no write to %s", resource)
			}
		}
		return nil
	}))
}

// TestCoordinatedLeaderElection: the API server writes the Lease first, and the fence is open and the Lease is renewed all the same.
func TestCoordinatedLeaderElection(t *testing.T) {
	c := freshCluster(t,
		controlplane.Options{APIServerArgs: []string{"--feature-gates=CoordinatedLeaderElection=true", "--runtime-config=coordination.k8s.io/v1beta1=true"}},
		slices.Concat(ours, []string{"--feature-gates=CoordinatedLeaderElection=true"})...)
	must(t, createClusterCIDR(c, []string{"a", "10.0.0.0/16", "hb8"}), c.createNodes(t.Context(), nil, "n"))
	node, err := c.waitServed("n", patience)
	if err != nil {
		t.Fatal(err)
	}
	lease, err := c.kube.CoordinationV1().Leases(metav1.NamespaceSystem).Get(t.Context(), "kube-controller-manager", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if lease.Spec.Strategy == nil {
		t.Error("the Lease has no strategy, so nothing was coordinated")
	}
	if got := node.Annotations[networkingv1.AnnotationLeaseHolder]; got == "" || got != *lease.Spec.HolderIdentity {
		t.Errorf("got annotation %s=%q, want the holder %q", networkingv1.AnnotationLeaseHolder, got, *lease.Spec.HolderIdentity)
	}
	// It knows its own lease again, also by the times in it, and renews it.
	for range 2 {
		before := lease.Spec.RenewTime
		must(t, eventually(patience, func(ctx context.Context) (err error) {
			if lease, err = c.kube.CoordinationV1().Leases(metav1.NamespaceSystem).Get(ctx, "kube-controller-manager", metav1.GetOptions{}); err != nil {
				return err
			}
			if lease.Spec.RenewTime.Equal(before) {
				return fmt.Errorf("the Lease was not renewed since %v", before)
			}
			return nil
		}))
	}
}

// byController returns the writes of our controller, but not those of other controllers of the same process.
func byController(writes []write) []write {
	return slices.DeleteFunc(writes, func(w write) bool { return w.User.Username != controllerUser })
}

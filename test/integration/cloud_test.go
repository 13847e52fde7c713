package integration

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/retry"

	"github.com/multicidr/controller-manager/test/controlplane"
)

// TestCloudManagerFailover kills a cloud-controller-manager with two Leases, the program's and the controller's. The next one takes one after the other,
// and gives no block twice.
func TestCloudManagerFailover(t *testing.T) {
	ctx := t.Context()
	c := sharedCluster(t)
	c.runs(t, inCloud)
	must(t, manage(c, append([]string{"restart"}, shortLease...)))
	standby := c.start(t, controlplane.ManagerOptions{Name: "standby", Cloud: true, Args: append(slices.Clone(shortLease), ours...)})
	must(t,
		c.cloudHealth(ctx, standby, "/healthz/multi-cidr-node-ipam-controller", http.StatusOK, "ok"), // A standby has nothing to do.
		c.cloudHealth(ctx, standby, debugPath, http.StatusNotFound, "holds the Lease kube-system/node-ipam-controller"),
		createClusterCIDR(c, []string{"a", "10.0.0.0/16", "hb8"}), c.createNodes(ctx, nil, "before"),
	)
	must(t, c.isServed("before"))
	must(t, manage(c, []string{"kill"}), c.createNodes(ctx, nil, "after"), standby.WaitLeading(ctx))
	must(t, c.isServed("after"))
	expect(t, c.cloudHealth(ctx, standby, "/healthz?verbose", http.StatusOK, "[+]multi-cidr-node-ipam-controller ok"), c.overlaps(ctx))
}

// TestCloudManagerWithoutItsLease: while another process holds the Lease of the controller, the program around it works, and says so where a person asks
// but not to the kubelet, which would restart it. A leader that loses the Lease ends: its view of what is free is out of date.
func TestCloudManagerWithoutItsLease(t *testing.T) {
	ctx := t.Context()
	c := sharedCluster(t)
	c.runs(t, inCloud)
	must(t, manage(c, append([]string{"restart"}, shortLease...)))
	must(t, c.setHolder(ctx, inCloud.lease, "somebody"))
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if code, err := c.manager.Wait(ctx); err != nil || code != 1 {
		t.Fatalf("without its Lease it ended with %d, %v, want 1", code, err)
	}
	if log, err := c.manager.Log(); err != nil || !strings.Contains(log, "the Lease kube-system/node-ipam-controller was lost") {
		t.Errorf("it does not say why (%v):\n%s", err, log)
	}
	next := c.start(t, controlplane.ManagerOptions{Name: "next", Cloud: true, Args: ours})
	expect(t,
		c.cloudHealth(ctx, next, "/healthz/multi-cidr-node-ipam-controller", http.StatusInternalServerError, "somebody holds"),
		c.cloudHealth(ctx, next, "/healthz?verbose", http.StatusInternalServerError, "[-]multi-cidr-node-ipam-controller failed"),
		c.cloudHealth(ctx, next, "/healthz", http.StatusOK, "ok"),
	)
}

// TestCloudManagerRefusals: what cannot work ends the program at once, with what to do.
func TestCloudManagerRefusals(t *testing.T) {
	c := sharedCluster(t)
	for name, tc := range map[string]struct{ args, want string }{
		"a block that is no part of the range": {"--allocate-node-cidrs --cluster-cidr=10.0.0.0/24 --node-cidr-mask-size=16", "Nodes cannot get /16 blocks of --cluster-cidr 10.0.0.0/24"},
		"one Lease for both":                   {"--node-ipam-leader-elect-resource-name=cloud-controller-manager", "or the Lease of this program"},
		"no worker":                            {"--concurrent-node-cidr-syncs=0", "--concurrent-node-cidr-syncs must be greater than 0"},
	} {
		t.Run(name, func(t *testing.T) {
			c.doesNotStart(t, controlplane.ManagerOptions{Name: strings.ReplaceAll(name, " ", "-"), Cloud: true, Args: append(slices.Clone(ours), strings.Fields(tc.args)...)}, tc.want)
		})
	}
}

// cloudHealth waits until a manager answers a path like that.
func (c *cluster) cloudHealth(ctx context.Context, m *controlplane.Manager, path string, status int, text string) error {
	return eventually(patience, func(context.Context) error {
		got, body, err := m.Get(ctx, path)
		if err == nil && (got != status || !strings.Contains(string(body), text)) {
			err = fmt.Errorf("GET %s: %d %.300s, want %d with %q", path, got, body, status, text)
		}
		return err
	})
}

// setHolder gives a Lease to another process.
func (c *cluster) setHolder(ctx context.Context, name, holder string) error {
	leases := c.kube.CoordinationV1().Leases(metav1.NamespaceSystem)
	return retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		lease, err := leases.Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		lease.Spec.HolderIdentity = &holder
		_, err = leases.Update(ctx, lease, metav1.UpdateOptions{})
		return err
	})
}

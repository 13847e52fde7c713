package integration

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/retry"

	"github.com/multicidr/controller-manager/test/controlplane"
)

// TestCloudManagerDiesWhileNodesJoin kills a cloud-controller-manager. Its leases run out at the same time: one after the other, Nodes would
// wait for longer than the test does.
func TestCloudManagerDiesWhileNodesJoin(t *testing.T) {
	c := sharedCluster(t)
	c.runs(t, inCloud)
	election := []string{"--leader-elect-lease-duration=16s", "--leader-elect-renew-deadline=12s", "--leader-elect-retry-period=1s"}
	if err := manage(c, append([]string{"restart"}, election...)); err != nil {
		t.Fatal(err)
	}
	standby := c.cp.StartManagerForTest(t, controlplane.ManagerOptions{Name: "standby", Cloud: true, Args: append(election, ours...)})
	t.Cleanup(func() {
		if err := standby.Stop(); err != nil {
			t.Error(err)
		}
	})
	if err := c.cloudHealth(t.Context(), standby, "/healthz/multi-cidr-node-ipam-controller", http.StatusOK, "ok"); err != nil {
		t.Error(err) // A standby has nothing to do.
	}

	c.joinAround(t, func() error { return manage(c, []string{"kill"}) })

	if err := standby.WaitLeading(t.Context()); err != nil {
		t.Error(err)
	}
}

// TestCloudManagersThatStartTogether kills the first leader of two that started before there was a Lease of the controller, as in a new cluster. The
// standby has followed that Lease all the same: Nodes do not wait for one lease after the other.
func TestCloudManagersThatStartTogether(t *testing.T) {
	ctx := t.Context()
	c := sharedCluster(t)
	c.runs(t, inCloud)
	if err := c.stopManager((*controlplane.Process).Stop); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.startManager(inCloud.usual...); err != nil {
			t.Error(err)
		}
	})
	// Neither leads before both have started.
	leases := c.kube.CoordinationV1().Leases(metav1.NamespaceSystem)
	if err := leases.Delete(ctx, inCloud.lease, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
		t.Fatal(err)
	}
	if err := c.setLease(ctx, inCloud.outer, "somebody"); err != nil {
		t.Fatal(err)
	}
	election := []string{"--leader-elect-lease-duration=16s", "--leader-elect-renew-deadline=12s", "--leader-elect-retry-period=1s"}
	var both []*controlplane.Manager
	for _, name := range []string{"first", "second"} {
		m, err := c.cp.StartManager(ctx, controlplane.ManagerOptions{Name: "together-" + name, Cloud: true, Args: append(slices.Clone(election), ours...)})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := m.Stop(); err != nil {
				t.Error(err)
			}
		})
		both = append(both, m)
	}
	if err := leases.Delete(ctx, inCloud.outer, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	var leader *controlplane.Manager
	if err := eventually(patience, func(ctx context.Context) error {
		for _, m := range both {
			status, _, err := m.Get(ctx, debugPath)
			if err != nil {
				return err
			}
			if status == http.StatusOK {
				leader = m
				return nil
			}
		}
		return errors.New("nobody leads")
	}); err != nil {
		t.Fatal(err)
	}

	c.joinAround(t, leader.Kill)
}

// TestCloudManagerLosesItsLease: while another process holds the Lease of the controller, the program around it goes on, and says so where a
// person asks but not to the kubelet, which would restart it. When the Lease is free the controller starts anew, under another identity.
func TestCloudManagerLosesItsLease(t *testing.T) {
	ctx := t.Context()
	c := sharedCluster(t)
	c.runs(t, inCloud)
	if err := manage(c, append([]string{"restart"}, shortLease...)); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(createClusterCIDR(c, []string{"a", "10.0.0.0/16", "hb8"}), c.createNodes(ctx, nil, "before")); err != nil {
		t.Fatal(err)
	}
	if _, err := c.waitServed("before", patience); err != nil {
		t.Fatal(err)
	}
	first, err := c.setHolder(ctx, inCloud.lease, "somebody")
	if err != nil {
		t.Fatal(err)
	}
	// From when it knows, and not from when its term has run out.
	if err := c.cloudHealth(ctx, c.manager, "/healthz/multi-cidr-node-ipam-controller", http.StatusInternalServerError, "the lease kube-system/node-ipam-controller went to another process"); err != nil {
		t.Error(err)
	}
	const held = "somebody holds"
	if err := errors.Join(
		c.cloudHealth(ctx, c.manager, "/healthz/multi-cidr-node-ipam-controller", http.StatusInternalServerError, held),
		c.cloudHealth(ctx, c.manager, "/healthz?verbose", http.StatusInternalServerError, "[-]multi-cidr-node-ipam-controller failed"),
		c.cloudHealth(ctx, c.manager, "/healthz", http.StatusOK, "ok"),
		c.cloudHealth(ctx, c.manager, debugPath, http.StatusNotFound, "holds the Lease kube-system/node-ipam-controller"),
		c.createNodes(ctx, nil, "after"),
	); err != nil {
		t.Fatal(err)
	}
	// Nobody renews it, so it runs out.
	if _, err := c.waitServed("after", patience); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(c.cloudHealth(ctx, c.manager, "/healthz?verbose", http.StatusOK, "[+]multi-cidr-node-ipam-controller ok"), c.overlaps(ctx)); err != nil {
		t.Error(err)
	}
	lease, err := c.kube.CoordinationV1().Leases(metav1.NamespaceSystem).Get(ctx, inCloud.lease, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if *lease.Spec.HolderIdentity == first {
		t.Errorf("%s leads again: to everybody else it must be another process", first)
	}
}

// TestCloudManagerRefusals: what cannot work ends the program at once, with what to do.
func TestCloudManagerRefusals(t *testing.T) {
	c := sharedCluster(t)
	for name, tc := range map[string]struct{ args, want string }{
		"a block that is no part of the range": {"--allocate-node-cidrs --cluster-cidr=10.0.0.0/24 --node-cidr-mask-size=16", "Nodes cannot get /16 blocks of --cluster-cidr 10.0.0.0/24"},
		"one Lease for both":                   {"--node-ipam-leader-elect-resource-name=cloud-controller-manager", "is the Lease of this program"},
		"the Lease of another program":         {"--node-ipam-leader-elect-resource-name=kube-controller-manager", "is the Lease of kube-controller-manager"},
		"a Lease that cannot be":               {"--node-ipam-leader-elect-resource-name=a/b", "is no name of a Lease"},
		"no worker":                            {"--concurrent-node-cidr-syncs=0", "--concurrent-node-cidr-syncs must be greater than 0"},
		"a port that is none":                  {"--node-ipam-secure-port=70000", "--node-ipam-secure-port=70000 must be between 0 and 65535"},
	} {
		t.Run(name, func(t *testing.T) {
			m, err := c.cp.LaunchManager(controlplane.ManagerOptions{Name: strings.ReplaceAll(name, " ", "-"), Cloud: true, Args: append(slices.Clone(ours), strings.Fields(tc.args)...)})
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			if code, err := m.Wait(ctx); err != nil || code != 1 {
				t.Errorf("ended with %d, %v, want 1", code, err)
			}
			if log, err := m.Log(); err != nil || !strings.Contains(log, tc.want) {
				t.Errorf("no %q in its log (%v):\n%s", tc.want, err, log)
			}
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

// setHolder gives a Lease to another process, which has renewed it now, and returns who had it.
func (c *cluster) setHolder(ctx context.Context, name, holder string) (before string, err error) {
	leases := c.kube.CoordinationV1().Leases(metav1.NamespaceSystem)
	err = retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		lease, err := leases.Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		before = *lease.Spec.HolderIdentity
		lease.Spec.HolderIdentity = &holder
		_, err = leases.Update(ctx, lease, metav1.UpdateOptions{})
		return err
	})
	return before, err
}

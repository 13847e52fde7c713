package integration

import (
	"errors"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/multicidr/controller-manager/test/controlplane"
)

// TestTakeoverFromStockAgain takes over from the in-tree allocator, as docs/operators/standalone.md says, in a cluster in which node-ipam-controller ran before:
// its Lease is there still, and says nothing about who has allocated since then under another Lease.
func TestTakeoverFromStockAgain(t *testing.T) {
	ctx := t.Context()
	c := freshCluster(t, controlplane.Options{APIServerArgs: []string{"--request-timeout=15s"}}, ours...)
	if err := errors.Join(c.stopManager((*controlplane.Process).Stop), c.setLease(ctx, kcmLease, noLease), c.setLease(ctx, standaloneLease, noLease)); err != nil {
		t.Fatal(err)
	}
	start := func(name string) *controlplane.Manager {
		t.Helper()
		m, err := c.cp.StartManager(ctx, controlplane.ManagerOptions{Alone: true, Name: name, Args: []string{"--node-ipam-takeover-delay=15s"}})
		if err != nil {
			t.Fatal(err)
		}
		if err := m.WaitLeading(ctx); err != nil {
			t.Fatal(err)
		}
		return m
	}
	before := start("before")
	if err := errors.Join(c.waitMarked(standaloneLease), before.Stop()); err != nil {
		t.Fatal(err)
	}

	held := c.servedByStock(t)
	// As if the time had passed that it takes a person to change managers.
	leases := c.kube.CoordinationV1().Leases(metav1.NamespaceSystem)
	lease, err := leases.Get(ctx, standaloneLease, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	lease.Spec.RenewTime = &metav1.MicroTime{Time: lease.Spec.RenewTime.Add(-time.Minute)}
	if _, err := leases.Update(ctx, lease, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	start("again")
	// It should wait, and see this PATCH, which arrives meanwhile.
	if err := served(c, []string{"-within", "8s", "next", "10.244.1.0/24"}); err == nil {
		t.Error("Node next has a block 8 seconds after the start: there was no wait for what the in-tree allocator has sent")
	}
	held.Release()
	if err := errors.Join(served(c, []string{"last", "10.244.1.0/24"}), served(c, []string{"next", "10.244.2.0/24"})); err != nil {
		t.Error(err)
	}
}

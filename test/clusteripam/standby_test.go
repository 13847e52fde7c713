package clusteripam

import (
	"context"
	"fmt"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/multicidr/controller-manager/test/controlplane"
)

// TestStandBy: where the original programs run, the controllers leave the work to them, say so, and take over by themselves.
func TestStandBy(t *testing.T) {
	const k0rdent = "kcm-system"
	c := newCluster(t, alone)
	c.apply(crds)
	_, err := c.kube.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: k0rdent}}, metav1.CreateOptions{})
	c.do("make a namespace", err)
	leases := c.kube.CoordinationV1().Leases(k0rdent)
	lease, err := leases.Create(t.Context(), &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Name: "31c555b4.k0rdent.mirantis.com"},
		Spec:       coordinationv1.LeaseSpec{HolderIdentity: new("kcm"), LeaseDurationSeconds: new(int32(3600)), RenewTime: new(metav1.NowMicro())},
	}, metav1.CreateOptions{})
	c.do("make the Lease of the original", err)
	c.setProvider("ipam-in-cluster")

	c.start()
	c.untilHealth("cluster-ipam-controller", "k0rdent's manager to stop")
	c.untilHealth("cluster-deployment-ipam-controller", "k0rdent's manager to stop")
	c.untilHealth("in-cluster-ip-pool-controller", "InClusterIPPool (ipam-in-cluster)")
	c.create(claims, "c", claimOfCase5)
	c.create(pools, "p", `{spec: {addresses: [10.0.0.0/24], prefix: 24}}`)

	// The allocator is allowed to work, and its pool shows that time has passed.
	c.setProvider("")
	c.until(pools, "p", map[string]string{"status.ipAddresses.total": "254"})
	if c.get(ipams, "c") != nil {
		t.Error("a claim was worked on while k0rdent's manager leads")
	}
	lease.Spec.HolderIdentity, lease.Spec.LeaseDurationSeconds, lease.Spec.RenewTime = new(""), new(int32(1)), new(metav1.NewMicroTime(time.Now()))
	_, err = leases.Update(t.Context(), lease, metav1.UpdateOptions{})
	c.do("release the Lease of the original", err)

	// It may only restart. A minute later it does not.
	c.untilHealth("cluster-ipam-controller", "renewed or released its Lease")
	c.do("wait for the claim", controlplane.Eventually(t.Context(), 2*patience, func(context.Context) error {
		if bound := at(c.get(claims, "c"), "status.bound"); bound != "true" {
			return fmt.Errorf("bound is %s", bound)
		}
		return nil
	}))
	if after := time.Since(lease.Spec.RenewTime.Time); after < time.Minute {
		t.Errorf("a claim was worked on %v after k0rdent's manager led, which may come back", after)
	}
}

// setProvider labels a CustomResourceDefinition of pools as a provider of Cluster API does; empty removes the label.
func (c *cluster) setProvider(provider string) {
	c.t.Helper()
	value := `"` + provider + `"`
	if provider == "" {
		value = "null"
	}
	_, err := c.dynamic.Resource(schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}).Patch(
		context.WithoutCancel(c.t.Context()), "inclusterippools.ipam.cluster.x-k8s.io", types.MergePatchType, []byte(`{"metadata":{"labels":{"cluster.x-k8s.io/provider":`+value+`}}}`), metav1.PatchOptions{})
	c.do("label a CustomResourceDefinition", err)
}

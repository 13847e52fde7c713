package clusteripam

import (
	"context"
	"errors"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
)

// TestPolicy: a used pool is not deleted by people, unless they say that they mean it. It is deleted by who tries again until its finalizer is gone.
func TestPolicy(t *testing.T) {
	c := newCluster(t, alone)
	c.apply(crds, "../../manifests/clusteripam/policy")
	for _, name := range []string{"used", "unused", "moved", "skipped"} {
		c.create(pools, name, `{spec: {addresses: [10.0.0.0/24], prefix: 24}}`)
	}
	for _, name := range []string{"used", "moved", "skipped"} {
		c.patch(pools, name, `{status: {ipAddresses: {total: 254, used: 2, free: 252, outOfRange: 0}}}`, "status")
	}
	c.patch(pools, "moved", `{metadata: {annotations: {clusterctl.cluster.x-k8s.io/delete-for-move: ""}}}`)
	c.patch(pools, "skipped", `{metadata: {annotations: {ipam.cluster.x-k8s.io/skip-validate-delete-webhook: ""}}}`)
	// remove deletes a pool, as a user with all permissions, without carrying it out.
	remove := func(user, name string) error {
		config := rest.CopyConfig(c.cp.AdminConfig())
		if user != "" {
			config.Impersonate = rest.ImpersonationConfig{UserName: user, Groups: []string{"system:masters"}}
		}
		return dynamic.NewForConfigOrDie(config).Resource(pools).Namespace(namespace).Delete(t.Context(), name, metav1.DeleteOptions{DryRun: []string{metav1.DryRunAll}})
	}
	var refused error
	c.eventually(func(context.Context) error {
		if refused = remove("", "used"); refused == nil {
			return errors.New("the policy has no effect")
		}
		return nil
	})
	if !apierrors.IsForbidden(refused) || !strings.Contains(refused.Error(), "the pool used is in use: IPAddressClaims have 2 of its addresses. Delete them first.") {
		t.Errorf("the refusal is: %v", refused)
	}
	for _, name := range []string{"unused", "moved", "skipped"} {
		if err := remove("", name); err != nil {
			t.Errorf("pool %s: %v", name, err)
		}
	}
	for _, user := range []string{"system:serviceaccount:kube-system:generic-garbage-collector", "system:serviceaccount:kube-system:namespace-controller"} {
		if err := remove(user, "used"); err != nil {
			t.Errorf("%s: %v", user, err)
		}
	}
}

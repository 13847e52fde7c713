package integration

import (
	"errors"
	"slices"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/multicidr/controller-manager/test/controlplane"
)

// TestRefusedWatches takes away the permission to watch from a kube-controller-manager with all controllers. There the informer of Nodes is shared,
// and exists before our controller does.
func TestRefusedWatches(t *testing.T) {
	ctx := t.Context()
	c := freshCluster(t, controlplane.Options{}, "--controllers=*,multi-cidr-node-ipam-controller", noTakeoverDelay,
		"--leader-elect-lease-duration=3m", "--leader-elect-renew-deadline=2m") // longer than the API server is away
	if err := c.healthy(); err != nil {
		t.Fatal(err)
	}
	role, err := c.kube.RbacV1().ClusterRoles().Get(ctx, "system:kube-controller-manager", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	metav1.SetMetaDataAnnotation(&role.ObjectMeta, rbacv1.AutoUpdateAnnotationKey, "false")
	role.Rules = slices.DeleteFunc(role.Rules, func(r rbacv1.PolicyRule) bool { return slices.Contains(r.Verbs, "watch") })
	if _, err := c.kube.RbacV1().ClusterRoles().Update(ctx, role, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	// A watch that runs is not asked for its permission; the next one is.
	if err := errors.Join(c.cp.APIServer().Kill(), c.cp.StartAPIServer(ctx)); err != nil {
		t.Fatal(err)
	}
	for _, kind := range []string{"Nodes", "ServiceCIDRs"} {
		if err := c.healthSays("changes of " + kind + " are not seen: the API server does not let this process watch them: apply manifests/rbac"); err != nil {
			t.Error(err)
		}
	}
}

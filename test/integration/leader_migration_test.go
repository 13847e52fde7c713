package integration

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/multicidr/controller-manager/test/controlplane"
)

const sharedLease = "node-ipam-migration"

const migrationFile = `apiVersion: controllermanager.config.k8s.io/v1
kind: LeaderMigrationConfiguration
leaderName: ` + sharedLease + `
controllerLeaders:
- {name: node-ipam-controller, component: "*"}
- {name: multi-cidr-node-ipam-controller, component: "*"}
`

// TestLeaderMigration kills a kube-controller-manager whose controller runs under the shared Lease of a leader migration. The next one has that Lease
// later than its own, and gives no block twice.
func TestLeaderMigration(t *testing.T) {
	ctx := t.Context()
	c := freshCluster(t, controlplane.Options{APIServerArgs: []string{"--request-timeout=5s"}}, ours...)
	config := filepath.Join(t.TempDir(), "migration.yaml")
	must(t, c.stopManager((*controlplane.Process).Stop), c.setLease(ctx, kcmLease, noLease), c.mayWriteAnyLease(ctx, managersUser),
		os.WriteFile(config, []byte(migrationFile), 0o600))
	start := func(name string) *controlplane.Manager {
		t.Helper()
		return c.start(t, controlplane.ManagerOptions{Name: name, Args: slices.Concat(shortLease, []string{
			"--controllers=multi-cidr-node-ipam-controller", "--allocate-node-cidrs", "--cluster-cidr=10.0.0.0/12", "--node-cidr-mask-size=24",
			"--enable-leader-migration", "--leader-migration-config=" + config,
			"--node-ipam-takeover-delay=5s", // at least the API server's --request-timeout
		})})
	}
	before := start("before")
	must(t, createNode(c, []string{"one"}), served(c, []string{"one", "10.0.0.0/24"}), c.waitMarked(sharedLease), before.Kill())
	start("again")
	must(t, createNode(c, []string{"two"}), served(c, []string{"two", "10.0.1.0/24"}))
}

// mayWriteAnyLease lets a user lead by any Lease.
func (c *cluster) mayWriteAnyLease(ctx context.Context, user string) error {
	meta := metav1.ObjectMeta{Namespace: metav1.NamespaceSystem, Name: "any-lease"}
	_, err := c.kube.RbacV1().Roles(meta.Namespace).Create(ctx, &rbacv1.Role{ObjectMeta: meta, Rules: []rbacv1.PolicyRule{
		{APIGroups: []string{"coordination.k8s.io"}, Resources: []string{"leases"}, Verbs: []string{"get", "create", "update"}},
	}}, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	_, err = c.kube.RbacV1().RoleBindings(meta.Namespace).Create(ctx, &rbacv1.RoleBinding{
		ObjectMeta: meta, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: meta.Name},
		Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "User", Name: user}},
	}, metav1.CreateOptions{})
	return err
}

package integration

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"

	"github.com/multicidr/controller-manager/test/controlplane"
)

// TestHealthAfterTheStart takes away from a running controller what it needs. Its health check and one line in the log say what
// to apply; nobody restarts anything, and once it is applied Nodes are served and the check passes.
func TestHealthAfterTheStart(t *testing.T) {
	ctx := t.Context()
	// The lease outlives a restart of the API server.
	c := freshCluster(t, controlplane.Options{}, append(slices.Clone(ours), "--leader-elect-lease-duration=3m", "--leader-elect-renew-deadline=2m")...)
	if err := c.healthy(); err != nil {
		t.Fatal(err)
	}
	// Later Nodes show that all works again.
	works := func(t *testing.T, nodes ...string) {
		t.Helper()
		for _, node := range nodes {
			if _, err := c.waitServed(node, time.Minute+patience); err != nil {
				t.Error(err)
			}
		}
		if err := c.healthy(); err != nil {
			t.Error(err)
		}
	}
	t.Run("the CRD is deleted", func(t *testing.T) {
		c.deleteCRD(t)
		const says = "changes of ClusterCIDRs are not seen: the CustomResourceDefinition of ClusterCIDR is not installed: run helm upgrade"
		if err := c.healthSays(says); err != nil {
			t.Fatal(err)
		}
		c.saidOnce(t, "is not installed: run helm upgrade")
		if err := c.cp.Apply(ctx, "../../manifests/crds"); err != nil {
			t.Fatal(err)
		}
		err := eventually(patience, func(context.Context) error { return createClusterCIDR(c, []string{"a", "10.0.0.0/16", "hb8"}) })
		if err != nil {
			t.Fatal(err)
		}
		if err := createNode(c, []string{"after-crd"}); err != nil {
			t.Fatal(err)
		}
		works(t, "after-crd")
	})

	t.Run("all permissions are taken away", func(t *testing.T) {
		if err := c.kube.RbacV1().ClusterRoleBindings().Delete(ctx, roleName, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		// A watch that runs is not asked for its permission; the next one is.
		if err := errors.Join(c.cp.APIServer().Kill(), c.cp.StartAPIServer(ctx)); err != nil {
			t.Fatal(err)
		}
		if err := c.healthSays("changes of ClusterCIDRs are not seen: the controller may not read ClusterCIDRs: run helm upgrade"); err != nil {
			t.Fatal(err)
		}
		if err := c.cp.Apply(ctx, "../../manifests/rbac"); err != nil {
			t.Fatal(err)
		}
		if err := createNode(c, []string{"after-binding"}); err != nil {
			t.Fatal(err)
		}
		works(t, "after-binding")
	})

	t.Run("Nodes may not be patched", func(t *testing.T) {
		c.forbidPatch(t, "nodes")
		var nodes []string
		for i := range 20 {
			nodes = append(nodes, fmt.Sprintf("forbidden-%02d", i))
			if err := createNode(c, nodes[i:i+1]); err != nil {
				t.Fatal(err)
			}
		}
		if err := c.healthSays("Node forbidden-00 and 19 more cannot be written: the API server forbids it: run helm upgrade"); err != nil {
			t.Fatal(err)
		}
		c.saidOnce(t, `"Cannot write: the API server forbids it: run helm upgrade if you use the Helm chart, else apply install-kube-controller-manager.yaml of the release" err="patch podCIDRs of Node`)
		if err := c.cp.Apply(ctx, "../../manifests/rbac"); err != nil {
			t.Fatal(err)
		}
		works(t, nodes...)
	})

	t.Run("ClusterCIDRs may not be patched", func(t *testing.T) {
		c.forbidPatch(t, "clustercidrs")
		cc, err := parseClusterCIDR([]string{"b", "sel(p=b)", "10.1.0.0/16", "hb8"})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := c.clusterCIDRs.NetworkingV1().ClusterCIDRs().Create(ctx, cc, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		if err := c.healthSays("ClusterCIDR b cannot be written: the API server forbids it: run helm upgrade"); err != nil {
			t.Fatal(err)
		}
		// Without its finalizer it gives nothing.
		if err := createNode(c, []string{"forbidden-cc", "p=b"}); err != nil {
			t.Fatal(err)
		}
		if err := c.cp.Apply(ctx, "../../manifests/rbac"); err != nil {
			t.Fatal(err)
		}
		works(t, "forbidden-cc")
	})

	t.Run("statuses may not be written", func(t *testing.T) {
		const cannot = `"Cannot write: the API server forbids it: run helm upgrade if you use the Helm chart, else apply install-kube-controller-manager.yaml of the release" err="apply status of ClusterCIDR `
		const again = `"Can write again" logger="multi-cidr-node-ipam-controller" kind="status of ClusterCIDR"`
		cannotBefore, againBefore := c.timesSaid(t, cannot), c.timesSaid(t, again) // when all permissions were missing
		c.forbidPatch(t, "clustercidrs/status")
		since, err := c.mark()
		if err != nil {
			t.Fatal(err)
		}
		if err := createNode(c, []string{"uncounted"}); err != nil {
			t.Fatal(err)
		}
		if err := c.healthSays("status of ClusterCIDR a"); err != nil {
			t.Fatal(err)
		}
		// Each further try is put off first, which is no success.
		err = eventually(patience, func(context.Context) error {
			writes, err := c.writes(since)
			refused := 0
			for _, w := range writes {
				if about(w, "clustercidrs/status", "a") && w.ResponseStatus.Code == http.StatusForbidden {
					refused++
				}
			}
			if err == nil && refused < 3 {
				err = fmt.Errorf("%d statuses were refused, want 3:%s", refused, describe(writes))
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		if err := c.cp.Apply(ctx, "../../manifests/rbac"); err != nil {
			t.Fatal(err)
		}
		works(t, "uncounted")
		if got := c.timesSaid(t, cannot) - cannotBefore; got != 1 {
			t.Errorf("the log says %d times that the status cannot be written, want once", got)
		}
		if got := c.timesSaid(t, again) - againBefore; got != 1 {
			t.Errorf("the log says %d times that the status can be written again, want once", got)
		}
	})
}

// TestCRDDeletedWhileInUse deletes the CRD under Nodes that hold blocks. That deletes every ClusterCIDR, and goes on until they are gone.
// The steps in docs/use/ranges.md (remove the finalizers, apply everything again) bring the ranges back, and no block is given twice.
func TestCRDDeletedWhileInUse(t *testing.T) {
	c := freshCluster(t, controlplane.Options{}, append(slices.Clone(ours), "--allocate-node-cidrs", "--cluster-cidr=10.244.0.0/16")...)
	const fromFlags = "created-from-flags-9458922a"
	steps := func(steps ...error) {
		t.Helper()
		if err := errors.Join(steps...); err != nil {
			t.Fatal(err)
		}
	}
	steps(
		createNode(c, []string{"n1"}),
		served(c, []string{"n1", "10.244.0.0/24", "by", fromFlags}),
		createClusterCIDR(c, []string{"a", "sel(p=a)", "10.0.0.0/16", "hb8"}),
		createNode(c, []string{"n2", "p=a"}),
		served(c, []string{"n2", "10.0.0.0/24", "by", "a"}),
	)

	c.deleteCRD(t)
	steps(
		condition(c, []string{fromFlags, "Ready", "False", "Terminating", "1 Node belongs to it: n1"}),
		condition(c, []string{"a", "Ready", "False", "Terminating", "1 Node belongs to it: n2"}),
		// What the flags say is to be there again, and cannot be.
		c.healthSays("cannot be written: the CustomResourceDefinition of ClusterCIDR is being deleted"),
		createNode(c, []string{"n3"}),
		waits(c, []string{"n3", fromFlags + " is terminating. Create another one."}),
	)
	c.saidOnce(t, "Cannot write: the CustomResourceDefinition of ClusterCIDR is being deleted")

	steps(
		strip(c, []string{"cc", "a"}),
		strip(c, []string{"cc", fromFlags}),
		c.healthSays("changes of ClusterCIDRs are not seen: the CustomResourceDefinition of ClusterCIDR is not installed"),
		c.cp.Apply(t.Context(), "../../manifests/crds"),
		served(c, []string{"n3", "10.244.1.0/24", "by", fromFlags}),
		createClusterCIDR(c, []string{"a", "sel(p=a)", "10.0.0.0/16", "hb8"}),
		createNode(c, []string{"n4", "p=a"}),
		served(c, []string{"n4", "10.0.1.0/24", "by", "a"}),
		c.healthy(),
	)
	c.saidOnce(t, "Can write again")
	log, err := c.manager.Log()
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(log, "manifests/rbac") {
		t.Error("the log says that permissions are missing, and they are not")
	}
}

// deleteCRD starts the deletion of the CRD, which goes on as long as there are ClusterCIDRs.
func (c *cluster) deleteCRD(t *testing.T) {
	t.Helper()
	crds := dynamic.NewForConfigOrDie(c.cp.AdminConfig()).Resource(schema.GroupVersionResource{
		Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions",
	})
	if err := crds.Delete(t.Context(), "clustercidrs.networking.x-k8s.io", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
}

// saidOnce wants a text in the manager's log exactly once.
func (c *cluster) saidOnce(t *testing.T, text string) {
	t.Helper()
	n := 0
	_ = eventually(patience, func(context.Context) error { // The log says it when it fails again.
		if n = c.timesSaid(t, text); n == 0 {
			return errors.New("not yet")
		}
		return nil
	})
	if n != 1 {
		t.Errorf("the log says %q %d times, want once", text, n)
	}
}

func (c *cluster) timesSaid(t *testing.T, text string) int {
	t.Helper()
	log, err := c.manager.Log()
	if err != nil {
		t.Fatal(err)
	}
	return strings.Count(log, text)
}

// roleName is that of our controller's ClusterRole and of its binding.
const roleName = "system:controller:multi-cidr-node-ipam-controller"

// forbidPatch takes the permission to patch a resource from the controller, until manifests/rbac is applied again. The API server follows a moment after the
// ClusterRole has changed.
func (c *cluster) forbidPatch(t *testing.T, resource string) {
	t.Helper()
	roles := c.kube.RbacV1().ClusterRoles()
	role, err := roles.Get(t.Context(), roleName, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(role.Rules, func(r rbacv1.PolicyRule) bool { return slices.Contains(r.Resources, resource) })
	if i < 0 {
		t.Fatalf("ClusterRole %s does not name %s", roleName, resource)
	}
	group := role.Rules[i].APIGroups[0]
	role.Rules[i].Verbs = slices.DeleteFunc(role.Rules[i].Verbs, func(verb string) bool { return verb == "patch" })
	if len(role.Rules[i].Verbs) == 0 {
		role.Rules = slices.Delete(role.Rules, i, i+1)
	}
	if _, err := roles.Update(t.Context(), role, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	attributes := &authorizationv1.ResourceAttributes{Group: group, Resource: resource, Verb: "patch"}
	if err := eventually(patience, func(ctx context.Context) error {
		review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{User: controlplane.AloneUser, ResourceAttributes: attributes}}
		review, err := c.kube.AuthorizationV1().SubjectAccessReviews().Create(ctx, review, metav1.CreateOptions{})
		if err == nil && review.Status.Allowed {
			err = fmt.Errorf("%s may still patch %s", controlplane.AloneUser, resource)
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
}

// healthy waits until the controller's own health check passes. After refusals client-go opens a watch again within a minute.
func (c *cluster) healthy() error {
	return eventually(time.Minute+patience, func(ctx context.Context) error {
		status, body, err := c.manager.Get(ctx, healthPath)
		if err == nil && status != http.StatusOK {
			err = fmt.Errorf("%s answers %d %s, want it to pass", healthPath, status, body)
		}
		return err
	})
}

package integration

import (
	"context"
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

// TestCRDDeletedWhileInUse deletes the CRD under Nodes that hold blocks. That deletes every ClusterCIDR, and goes on until they are gone.
// The steps in docs/use/ranges.md (remove the finalizers, apply everything again) bring the ranges back, and no block is given twice.
func TestCRDDeletedWhileInUse(t *testing.T) {
	c := freshCluster(t, controlplane.Options{}, append(slices.Clone(ours), "--allocate-node-cidrs", "--cluster-cidr=10.244.0.0/16")...)
	const fromFlags = "created-from-flags-9458922a"
	steps := func(steps ...error) {
		t.Helper()
		must(t, steps...)
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
		c.healthSays("cannot be written: "+sentence(t, "health TestWriteProblem/the_CRD_is_being_deleted")),
		createNode(c, []string{"n3"}),
		waits(c, []string{"n3", fromFlags + " is terminating. Create another one."}),
	)
	c.saidOnce(t, "Cannot write: "+sentence(t, "health TestWriteProblem/the_CRD_is_being_deleted"))

	steps(
		strip(c, []string{"cc", "a"}),
		strip(c, []string{"cc", fromFlags}),
		c.healthSays("changes of ClusterCIDRs are not seen: "+sentence(t, "health TestReadProblem/no_CRD")),
		c.cp.Apply(t.Context(), "../../manifests/crds"),
		served(c, []string{"n3", "10.244.1.0/24", "by", fromFlags}),
		createClusterCIDR(c, []string{"a", "sel(p=a)", "10.0.0.0/16", "hb8"}),
		createNode(c, []string{"n4", "p=a"}),
		served(c, []string{"n4", "10.0.1.0/24", "by", "a"}),
		c.healthy(),
	)
	c.saidOnce(t, "Can write again")
	if timesLogged(t, c.manager, "manifests/rbac") > 0 {
		t.Error("the log says that permissions are missing, and they are not")
	}
}

// healthy waits until the controller's own health check passes.
func (c *cluster) healthy() error { return passes(c.manager) }

// passes waits until the controller's own health check passes in a manager. After refusals client-go opens a watch again within a minute.
func passes(m *controlplane.Manager) error {
	return eventually(time.Minute+patience, func(ctx context.Context) error {
		status, body, err := m.Get(ctx, healthPath)
		if err == nil && status != http.StatusOK {
			err = fmt.Errorf("%s answers %d %s, want it to pass", healthPath, status, body)
		}
		return err
	})
}

// saidOnce wants a text in the manager's log exactly once; it says what fails when that fails again.
func (c *cluster) saidOnce(t *testing.T, text string) {
	t.Helper()
	expect(t, logSays(c, []string{"-times=1", "--", text}))
}

// timesLogged is how often a manager's log says something.
func timesLogged(t *testing.T, m *controlplane.Manager, text string) int {
	t.Helper()
	log, err := m.Log()
	if err != nil {
		t.Fatal(err)
	}
	return strings.Count(log, text)
}

// deleteCRD starts the deletion of the CRD, which goes on as long as there are ClusterCIDRs.
func (c *cluster) deleteCRD(t *testing.T) {
	t.Helper()
	crds := dynamic.NewForConfigOrDie(c.cp.AdminConfig()).Resource(schema.GroupVersionResource{
		Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions",
	})
	must(t, crds.Delete(t.Context(), "clustercidrs.networking.x-k8s.io", metav1.DeleteOptions{}))
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
	must(t, eventually(patience, func(ctx context.Context) error {
		review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{User: controlplane.AloneUser, ResourceAttributes: attributes}}
		review, err := c.kube.AuthorizationV1().SubjectAccessReviews().Create(ctx, review, metav1.CreateOptions{})
		if err == nil && review.Status.Allowed {
			err = fmt.Errorf("%s may still patch %s", controlplane.AloneUser, resource)
		}
		return err
	}))
}

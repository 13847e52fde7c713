package integration

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/multicidr/controller-manager/test/controlplane"
	"github.com/multicidr/controller-manager/test/said"
)

const healthPath = "/healthz/multi-cidr-node-ipam-controller"

// TestStartsWithoutCRDAndRBAC starts the whole manager on a cluster where nothing of ours is installed. Upstream's
// controllers work, ours says what is missing, and serves as soon as that is there, without a restart.
func TestStartsWithoutCRDAndRBAC(t *testing.T) {
	ctx := context.Background()
	cp := controlplane.StartForTest(t, controlplane.Options{})
	c := clusterOf(cp, insideManager)
	must(t, c.startManager("--controllers=*,multi-cidr-node-ipam-controller"))

	must(t, c.healthSays("waiting for the end of this problem: "+sentence(t, "health TestReadProblem/no_permission_for_it")))
	must(t, createNode(c, []string{"n1"}))
	// A namespace gets its default ServiceAccount from one of upstream's controllers.
	if _, err := c.kube.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "others-work"}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	expect(t, eventually(patience, func(ctx context.Context) error {
		_, err := c.kube.CoreV1().ServiceAccounts("others-work").Get(ctx, "default", metav1.GetOptions{})
		return err
	}))

	must(t, cp.Apply(ctx, "../../manifests/rbac"))
	expect(t, c.healthSays(sentence(t, "health TestReadProblem/no_CRD")))

	must(t, cp.Apply(ctx, "../../manifests/crds"))
	// The API server serves a CRD a moment after it has taken it.
	must(t, eventually(patience, func(context.Context) error { return createClusterCIDR(c, []string{"a", "10.0.0.0/16", "hb8"}) }))
	expect(t, served(c, []string{"n1", "10.0.0.0/24", "by", "a"}))
	expect(t, c.healthy())

	c.saidOnce(t, "is not installed: run helm upgrade")
	c.saidOnce(t, "not read ClusterCIDRs: run helm upgrade")
}

// healthSays waits until the controller's own health check fails with a text, and wants the check of the whole process, which a
// kubelet asks, to pass all the while.
func (c *cluster) healthSays(text string) error {
	return eventually(patience, func(ctx context.Context) error {
		status, body, err := c.manager.Get(ctx, "/healthz")
		if err != nil || status != http.StatusOK {
			return errors.Join(err, fmt.Errorf("/healthz answers %d %s", status, body))
		}
		status, body, err = c.manager.Get(ctx, healthPath)
		if err == nil && (status == http.StatusOK || !strings.Contains(string(body), text)) {
			err = fmt.Errorf("%s answers %d %s, want a failure that says %q", healthPath, status, body, text)
		}
		return err
	})
}

// sentence is what a unit test in controllers/nodeipam has found that people are told.
func sentence(t *testing.T, test string) string {
	t.Helper()
	return said.Of(t, "controllers/nodeipam/"+test)
}

// TestStoredInvalidClusterCIDRs stores ClusterCIDRs that break the rules, as an older CRD let them. They serve nobody, say
// why, and hold up neither the Nodes that others serve nor the start of a controller.
func TestStoredInvalidClusterCIDRs(t *testing.T) {
	c := freshCluster(t, controlplane.Options{})
	names := newAdmission(t, c.cp).storeBroken(t)
	must(t, createClusterCIDR(c, []string{"valid", "sel(p=x)", "10.0.0.0/16", "hb8"}))
	must(t, createNode(c, []string{"n1", "p=x"}))
	expect(t, served(c, []string{"n1", "10.0.0.0/24", "by", "valid"}))
	must(t, createNode(c, []string{"n2"}))
	expect(t, waits(c, []string{"n2", "is invalid (neither spec.ipv4 nor spec.ipv6 is set)"}))

	must(t, manage(c, []string{"restart"}))
	must(t, createNode(c, []string{"n3", "p=x"}))
	expect(t, served(c, []string{"n3", "10.0.1.0/24", "by", "valid"}))

	// An operator can get rid of them.
	clusterCIDRs := c.clusterCIDRs.NetworkingV1().ClusterCIDRs()
	for kind, name := range names {
		must(t, clusterCIDRs.Delete(t.Context(), name, metav1.DeleteOptions{}))
		if err := gone(c, []string{"cc", name}); err != nil {
			t.Errorf("%s: %v", kind, err)
		}
	}
}

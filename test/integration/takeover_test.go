package integration

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"sigs.k8s.io/yaml"

	"github.com/multicidr/controller-manager/test/controlplane"
)

// TestTakeover starts in a cluster as kubernetes-sigs/node-ipam-controller leaves it: its CRD, which has no status and next to no rules;
// ClusterCIDRs with finalizers, some of them edited since; Nodes that it served, which have no annotation of ours; and its Lease, which
// its last leader still holds. Our program waits for the Lease, changes no Node and no spec, and serves the next Nodes around what is held.
func TestTakeover(t *testing.T) {
	ctx := t.Context()
	cp := controlplane.StartForTest(t, controlplane.Options{})
	c := clusterOf(cp, alone)
	must(t, c.applyBareCRD(ctx), cp.Apply(ctx, "../../manifests/rbac", "standalone-rbac.yaml"))
	for _, cc := range []string{
		"plain 10.0.0.0/22 hb8 finalized",
		"dual sel(p=x) 10.1.0.0/16 fd00:1::/112 hb8 finalized",
		"edited sel(p=y) 10.2.0.0/16 hb8 finalized",
		"going sel(p=z) 10.3.0.0/16 hb8 finalized",
	} {
		// A new kind is not served at once.
		must(t, eventually(patience, func(context.Context) error { return createClusterCIDR(c, append(strings.Fields(cc), "-nowait")) }))
	}
	edited, err := c.clusterCIDRs.NetworkingV1().ClusterCIDRs().Patch(ctx, "edited", types.MergePatchType, []byte(`{"spec":{"ipv4":"10.4.0.0/16"}}`), metav1.PatchOptions{})
	if err != nil || edited.Generation < 2 {
		t.Fatalf("generation %d, %v: an edit makes a new generation", edited.Generation, err)
	}
	for _, node := range []string{
		"plain-0 10.0.0.0/24", "plain-2 10.0.2.0/24",
		"dual-0 p=x 10.1.0.0/24 fd00:1::/120",
		"relabelled 10.1.1.0/24 fd00:1::100/120", // served by dual
		"before-the-edit p=y 10.2.0.0/24",
		"going-0 p=z 10.3.0.0/24",
	} {
		must(t, createNode(c, strings.Fields(node)))
	}
	must(t, deleteObjects(c, []string{"cc", "going"}))
	before := c.nodesAndRanges(t)

	const lease = 8 * time.Second // long enough to be seen as good
	must(t, c.holdLease(ctx, "node-ipam-controller-7d9f8b6c5-x2x4z", lease))
	// Our CRD is applied over the other one, as the chart does.
	must(t, cp.Apply(ctx, "../../manifests/crds"))
	kubeconfig, err := cp.Kubeconfig(controlplane.AloneUser)
	if err != nil {
		t.Fatal(err)
	}
	p := startPlain(t, c, "successor", "--kubeconfig="+kubeconfig, "--webserver-bind-address=127.0.0.1:0", "--leader-elect-namespace=kube-system",
		"--node-ipam-takeover-delay=1s") // Nobody has sent anything here; TestTakeoverFromStock is about that.
	must(t, p.ready(), p.answers("/metrics", 200, `leader_election_master_status{name="node-ipam-controller"} 0`))
	for _, node := range []string{"next", "next-dual p=x", "next-edited p=y"} { // one for each range: who waits at once is served in any order
		must(t, createNode(c, strings.Fields(node)))
	}
	must(t, p.leads())

	for name, want := range map[string][]string{
		"next":        {"10.0.3.0/24", "by", "plain"}, // behind the youngest Node
		"next-dual":   {"10.1.2.0/24", "fd00:1::200/120", "by", "dual"},
		"next-edited": {"10.4.0.0/24", "by", "edited"},
	} {
		expect(t, served(c, append([]string{name}, want...)))
	}
	// going gives nothing any more, so the fall-back serves what selects it.
	expect(t, createNode(c, []string{"next-going", "p=z"}), served(c, []string{"next-going", "10.0.1.0/24", "by", "plain"}))
	if diff := cmp.Diff(before, c.nodesAndRanges(t)); diff != "" {
		t.Errorf("changed by the takeover (-before +after):\n%s", diff)
	}
	if err := errors.Join(terminating(c, []string{"going"}), deleteObjects(c, []string{"node", "going-0"}), gone(c, []string{"cc", "going"})); err != nil {
		t.Errorf("a deletion that the peer began does not go on: %v", err)
	}
	expect(t, event(c, []string{"before-the-edit", "CIDROutsideRanges", "10.2.0.0/24"}))

	t.Run("both run by mistake", func(t *testing.T) {
		// Under another Lease, else they would exclude each other. The peer writes nothing but podCIDRs.
		must(t, createNode(c, []string{"nobody-selects-it", "p=none"}))
		full := []string{"10.0.0.0/24", "10.0.1.0/24", "10.0.2.0/24", "10.0.3.0/24"}
		if err := waits(c, []string{"nobody-selects-it", "plain is full (IPv4)"}); err != nil {
			t.Fatalf("%v; all of %v are held", err, full)
		}
		must(t, assign(c, []string{"nobody-selects-it", "10.1.3.0/24"}))
		expect(t, event(c, []string{"nobody-selects-it", "CIDRAssignedByOther", "were written by another process than this controller. It did not say who it is"}))
		expect(t, p.answers("/metrics", 200, "node_ipam_controller_assignments_by_others_total 1"))
	})
}

// nodesAndRanges are all Nodes that have podCIDRs and are not named next, and what users have said in ClusterCIDRs.
func (c *cluster) nodesAndRanges(t *testing.T) map[string]any {
	t.Helper()
	found := map[string]any{}
	nodes, err := c.kube.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, node := range nodes.Items {
		if !strings.HasPrefix(node.Name, "next") {
			found["Node "+node.Name] = node // with its resourceVersion: not written at all
		}
	}
	ccs, err := c.clusterCIDRs.NetworkingV1().ClusterCIDRs().List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, cc := range ccs.Items {
		cc.Spec.Allocation = "" // Our CRD has a default, which shows at every read.
		found["ClusterCIDR "+cc.Name] = []any{cc.UID, cc.Generation, cc.Finalizers, cc.Labels, cc.Annotations, cc.Spec}
	}
	return found
}

// applyBareCRD installs ClusterCIDRs without status and rules.
func (c *cluster) applyBareCRD(ctx context.Context) error {
	object := map[string]any{}
	if err := yaml.Unmarshal([]byte(`
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata:
  name: clustercidrs.networking.x-k8s.io
spec:
  group: networking.x-k8s.io
  scope: Cluster
  names: {kind: ClusterCIDR, listKind: ClusterCIDRList, plural: clustercidrs, singular: clustercidr}
  versions:
  - name: v1
    served: true
    storage: true
    schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
`), &object); err != nil {
		return err
	}
	return c.cp.ApplyObjects(ctx, &unstructured.Unstructured{Object: object})
}

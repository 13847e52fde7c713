package integration

import (
	"errors"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/multicidr/controller-manager/test/controlplane"
)

// TestKubeletChoosesItsRange: a kubelet sets and changes the labels of its own Node, and so it chooses its ClusterCIDR, unless the
// nodeSelector asks for a label that the admission plugin NodeRestriction keeps from it. docs/use/ranges.md says so.
func TestKubeletChoosesItsRange(t *testing.T) {
	const guarded = "node-restriction.kubernetes.io/pool"
	ctx := t.Context()
	c := freshCluster(t, controlplane.Options{APIServerArgs: []string{"--enable-admission-plugins=NodeRestriction"}})
	err := errors.Join(
		createClusterCIDR(c, []string{"guarded", "sel(" + guarded + "=a)", "10.1.0.0/16", "hb8"}),
		createClusterCIDR(c, []string{"open", "sel(example.com/pool=a)", "10.2.0.0/16", "hb8"}),
	)
	if err != nil {
		t.Fatal(err)
	}
	kubelet := func(node string) kubernetes.Interface {
		config, err := c.cp.Config("system:node:"+node, "system:nodes")
		if err != nil {
			t.Fatal(err)
		}
		return kubernetes.NewForConfigOrDie(config)
	}
	register := func(name string, labels map[string]string) error {
		_, err := kubelet(name).CoreV1().Nodes().Create(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}}, metav1.CreateOptions{})
		return err
	}
	label := func(client kubernetes.Interface, node, key string) error {
		_, err := client.CoreV1().Nodes().Patch(ctx, node, types.MergePatchType, []byte(`{"metadata":{"labels":{"`+key+`":"a"}}}`), metav1.PatchOptions{})
		return err
	}
	servedFrom := func(name, podCIDR string) {
		t.Helper()
		if node, err := c.waitServed(name, patience); err != nil || node.Spec.PodCIDR != podCIDR {
			t.Errorf("Node %s has podCIDR %s (%v), want %s", name, node.Spec.PodCIDR, err, podCIDR)
		}
	}

	if err := register("n1", map[string]string{guarded: "a"}); !apierrors.IsForbidden(err) {
		t.Errorf("a kubelet registers with the guarded label: %v, want a refusal", err)
	}
	if err := register("n1", nil); err != nil {
		t.Fatal(err)
	}
	if err := label(kubelet("n1"), "n1", guarded); !apierrors.IsForbidden(err) {
		t.Errorf("a kubelet gives itself the guarded label: %v, want a refusal", err)
	}
	if err := label(kubelet("n1"), "n1", "example.com/pool"); err != nil {
		t.Errorf("a kubelet gives itself another label: %v", err)
	}
	servedFrom("n1", "10.2.0.0/24")

	if err := register("n2", map[string]string{"example.com/other": "b"}); err != nil {
		t.Fatal(err)
	}
	if err := label(c.kube, "n2", guarded); err != nil {
		t.Fatal(err)
	}
	servedFrom("n2", "10.1.0.0/24")
}

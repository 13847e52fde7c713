package preflight

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/multicidr/controller-manager/controllers/nodeipam/fromflags"
	"github.com/multicidr/controller-manager/test/controlplane"
)

// A real cluster, from the first look to the second range.
func TestRealCluster(t *testing.T) {
	cp := controlplane.StartForTest(t, controlplane.Options{ServiceRange: "10.96.0.0/16"})
	kubeconfig, err := cp.WriteKubeconfig("preflight", cp.AdminConfig())
	if err != nil {
		t.Fatal(err)
	}
	client, err := kubernetes.NewForConfig(cp.AdminConfig())
	if err != nil {
		t.Fatal(err)
	}
	root, err := controlplane.ModuleRoot()
	if err != nil {
		t.Fatal(err)
	}
	given := flags{fromflags.Flags{Allocate: true, ClusterCIDR: "10.244.0.0/16"}}
	n := node("n1", "", "10.244.0.0/24")
	if _, err := client.CoreV1().Nodes().Create(t.Context(), &n, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}

	preflight(t, kubeconfig, nil, given, warning, "there is no ClusterCIDR CRD", "there is no ClusterRoleBinding", "ServiceCIDR kubernetes (10.96.0.0/16)")

	if err := cp.Apply(t.Context(), filepath.Join(root, "manifests/crds"), filepath.Join(root, "manifests/rbac")); err != nil {
		t.Fatal(err)
	}
	preflight(t, kubeconfig, nil, given, OK, "1 of 1 Nodes have podCIDRs")

	outside := node("n2", "", "10.246.0.0/24")
	if _, err := client.CoreV1().Nodes().Create(t.Context(), &outside, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	preflight(t, kubeconfig, nil, given, warning, "10.246.0.0/24 of Node n2 lies in no range")

	second := filepath.Join(t.TempDir(), "second.yaml")
	if err := os.WriteFile(second, []byte(`
apiVersion: networking.x-k8s.io/v1
kind: ClusterCIDR
metadata: {name: second}
spec: {ipv4: 10.246.0.0/16, perNodeHostBits: 8}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: of-somebody-else}
`), 0o600); err != nil {
		t.Fatal(err)
	}
	preflight(t, kubeconfig, []string{filepath.Dir(second)}, given, OK, "second (10.246.0.0/16)")
	if err := cp.Apply(t.Context(), second); err != nil {
		t.Fatal(err)
	}
	preflight(t, kubeconfig, nil, given, OK, "second (10.246.0.0/16)")

	preflight(t, kubeconfig, []string{"no-such-file.yaml"}, given, failed)

	file := func(content string) []string {
		path := filepath.Join(t.TempDir(), "third.yaml")
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		return []string{path}
	}
	const third = "{apiVersion: networking.x-k8s.io/v1, kind: ClusterCIDR, metadata: {name: third}, spec: {ipv4: 10.96.64.0/20, perNodeHostBits: 8}}"
	preflight(t, kubeconfig, file("{apiVersion: v1, kind: List, items: ["+third+"]}"), given, problem, "third (10.96.64.0/20) lies in the service range")
	preflight(t, kubeconfig, file("{apiVersion: v1, kind: ConfigMap, metadata: {name: third}}"), given, warning, "third.yaml has no ClusterCIDR, only objects of other kinds (ConfigMap)")
	preflight(t, kubeconfig, file(strings.Replace(third, "spec: {", "spec: {excludedCIDR: [10.96.0.0/16], ", 1)), given, failed, `third.yaml: ClusterCIDR "third": unknown field "spec.excludedCIDR"`)

	managers := managerPod("a", "--allocate-node-cidrs", "--cluster-cidr=10.244.0.0/16", "--use-service-account-credentials")
	if _, err := client.CoreV1().ServiceAccounts("kube-system").Create(t.Context(), &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "default"}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"kube-controller-manager-a", "kube-controller-manager-b"} {
		managers.Name = name
		managers.Spec.Containers[0].Name, managers.Spec.Containers[0].Image = "manager", "registry.example.com/kube-controller-manager"
		if _, err := client.CoreV1().Pods("kube-system").Create(t.Context(), &managers, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		managers.Spec.Containers[0].Args = []string{"--controllers", "*,multicidrnodeipam"}
	}
	preflight(t, kubeconfig, nil, given, problem, "kube-controller-manager-b has multi-cidr-node-ipam-controller in --controllers and kube-controller-manager-a has not: finish the swap")
	checked(t, kubeconfig, Options{form: peer}, problem, "second writer: kube-controller-manager has multi-cidr-node-ipam-controller")

	all := node("all", "", "0.0.0.0/0")
	if _, err := client.CoreV1().Nodes().Create(t.Context(), &all, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	preflight(t, kubeconfig, nil, given, problem, "0.0.0.0/0 of Node all contains the whole range")
}

// failed stands for a check that returns an error.
const failed = problem + 1

// preflight checks with some files and flags.
func preflight(t *testing.T, kubeconfig string, files []string, given flags, want Level, texts ...string) {
	t.Helper()
	checked(t, kubeconfig, Options{files: files, given: given}, want, texts...)
}

// checked compares the worst level, and looks for texts among the findings.
func checked(t *testing.T, kubeconfig string, o Options, want Level, texts ...string) {
	t.Helper()
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	found, err := o.Run(t.Context(), config)
	said, worst := "", Worst(found)
	if err != nil {
		said, worst = err.Error(), failed
	}
	for _, f := range found {
		said += fmt.Sprintln(f)
	}
	if worst != want {
		t.Errorf("the worst level is %d, want %d", int(worst), int(want))
	}
	for _, text := range texts {
		if !strings.Contains(said, text) {
			t.Errorf("it does not say %q", text)
		}
	}
	t.Logf("\n%s", said)
}

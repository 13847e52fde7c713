package chart

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/multicidr/controller-manager/test/controlplane"
)

// What a release has for kubectl, as a user applies it who has nothing but the release.
func TestInstallFiles(t *testing.T) {
	if *packaged == "" {
		t.Skip("the files are those of a release: make verify-release gives it one")
	}
	c := startCluster(t, controlplane.Options{})
	kubeconfig, err := c.Kubeconfig("installer", "system:masters")
	if err != nil {
		t.Fatal(err)
	}
	apply := func(t *testing.T, file string) string {
		t.Helper()
		out, err := exec.CommandContext(t.Context(), "../../bin/kubectl", "--kubeconfig="+kubeconfig, "apply", "-f", filepath.Join(*packaged, file)).CombinedOutput()
		if err != nil {
			t.Fatalf("kubectl apply -f %s: %v\n%s", file, err, out)
		}
		return string(out)
	}
	for _, form := range []struct {
		name, namespace string // of the Deployment; none for kube-controller-manager
		files           []string
	}{
		{name: "node-ipam-controller", namespace: "kube-system", files: []string{"install-node-ipam-controller.yaml"}},
		{name: "kube-controller-manager", files: []string{"install-kube-controller-manager.yaml", "fencing-kube-controller-manager.yaml"}},
		{name: "cluster-ipam-controller", namespace: "cluster-ipam", files: []string{"install-cluster-ipam-controller.yaml"}},
	} {
		t.Run(form.name, func(t *testing.T) {
			for _, file := range form.files {
				if out := apply(t, file); strings.Count(out, "\n") < 2 {
					t.Errorf("%s changes only\n%s", file, out)
				}
				if out := apply(t, file); strings.Contains(out, " created") {
					t.Errorf("%s creates something when it is applied again:\n%s", file, out)
				}
			}
			if form.namespace == "" {
				return
			}
			deployment, err := c.kube.AppsV1().Deployments(form.namespace).Get(t.Context(), form.name, metav1.GetOptions{})
			if err != nil {
				t.Fatal(err)
			}
			// kubectl writes all objects that have defaults once more. That restarts no Pods.
			if deployment.Generation != 1 {
				t.Errorf("the Deployment has changed when it was applied again: generation %d", deployment.Generation)
			}
			spec := deployment.Spec.Template.Spec
			if want := "/" + form.name + ":" + loadChart(t).Metadata.AppVersion; !strings.HasSuffix(spec.Containers[0].Image, want) {
				t.Errorf("the image is %s, want …%s", spec.Containers[0].Image, want)
			}
			pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "probe", Labels: deployment.Spec.Template.Labels}, Spec: spec}
			if _, err := c.kube.CoreV1().Pods(form.namespace).Create(t.Context(), pod, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}); err != nil {
				t.Errorf("the namespace does not admit its Pods: %v", err)
			}
		})
	}
	t.Run("the patch for kubeadm names the image of the release", func(t *testing.T) {
		patch, err := os.ReadFile(filepath.Join(*packaged, "kubeadm-patch-kube-controller-manager.yaml"))
		if err != nil {
			t.Fatal(err)
		}
		if want := "/kube-controller-manager:" + loadChart(t).Metadata.AppVersion + "\n"; !strings.Contains(string(patch), want) {
			t.Errorf("no %q in\n%s", want, patch)
		}
	})
}

package kubeadm

import (
	"bytes"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/yaml"

	"github.com/multicidr/controller-manager/controllers/build"
	"github.com/multicidr/controller-manager/test/controlplane"
)

var update = flag.Bool("update", false, "write manifests/static-pod again")

const (
	image         = "localhost/multicidr/kube-controller-manager:"
	controllers   = "--controllers="
	patchesInPlan = "/etc/kubernetes/patches"

	fileConfiguration = "kubeadm/config-file/kubeadm.yaml"
	fileThere         = "/etc/kubernetes/controller-manager.yaml"
)

func TestConfigurationIsValid(t *testing.T) {
	kubeadm(t, "config", "validate", "--config="+manifest(t, "kubeadm/kubeadm.yaml"))
	kubeadm(t, "config", "validate", "--config="+manifest(t, fileConfiguration))
}

// Whoever reads the manifests may rely on it: everything else in the static Pod is as kubeadm made it.
func TestStaticPodDiffersOnlyInImageAndControllers(t *testing.T) {
	stock := render(t, "apiVersion: kubeadm.k8s.io/v1beta4\nkind: ClusterConfiguration\nkubernetesVersion: "+version(t)+
		"\nnetworking: {podSubnet: 10.244.0.0/16}\n")
	ours := render(t, configuration(t, "kubeadm/kubeadm.yaml"))

	if want := controllersOf(t, stock) + ",multi-cidr-node-ipam-controller"; controllersOf(t, ours) != want {
		t.Errorf("the static Pod has %s, want %s", controllersOf(t, ours), want)
	}
	want := stock.DeepCopy()
	container := &want.Spec.Containers[0]
	container.Image = image + version(t) + "-mc" + strings.TrimPrefix(build.Get().GitVersion, "v")
	for _, pod := range []*corev1.Pod{want, ours} {
		pod.Spec.Containers[0].Command = slices.DeleteFunc(pod.Spec.Containers[0].Command, isControllers)
	}
	if diff := cmp.Diff(want, ours); diff != "" {
		t.Errorf("static Pod (-want +got):\n%s", diff)
	}
}

func TestStaticPodForOthers(t *testing.T) {
	path := manifest(t, "static-pod/kube-controller-manager.yaml")
	want := render(t, configuration(t, "kubeadm/kubeadm.yaml"))
	// kubeadm adds these if the host has them, for distributions that keep certificates elsewhere.
	elsewhere := func(name string) bool {
		return !slices.Contains([]string{"ca-certs", "k8s-certs", "kubeconfig", "flexvolume-dir"}, name)
	}
	container := &want.Spec.Containers[0]
	container.VolumeMounts = slices.DeleteFunc(container.VolumeMounts, func(m corev1.VolumeMount) bool { return elsewhere(m.Name) })
	want.Spec.Volumes = slices.DeleteFunc(want.Spec.Volumes, func(v corev1.Volume) bool { return elsewhere(v.Name) })
	if *update {
		content, err := yaml.Marshal(want)
		if err != nil {
			t.Fatal(err)
		}
		content = append([]byte(`# kube-controller-manager as a static Pod, where no kubeadm writes it. It is what kubeadm makes of manifests/kubeadm; written by
# "go test ./test/kubeadm -update". Change image, ranges and paths to those of your cluster.
`), bytes.TrimSuffix(content, []byte("status: {}\n"))...)
		if err := os.WriteFile(path, content, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if diff := cmp.Diff(want, readPod(t, path)); diff != "" {
		t.Errorf("manifests/static-pod is not what kubeadm makes of manifests/kubeadm (-want +got):\n%s\nrun go test ./test/kubeadm -update", diff)
	}
}

// The file adds a flag and a mount, and its keys are none of the flags that kubeadm sets itself, which would win.
func TestStaticPodThatReadsAFile(t *testing.T) {
	want := render(t, configuration(t, "kubeadm/kubeadm.yaml"))
	got := render(t, configuration(t, fileConfiguration))

	pod, container := &want.Spec, &want.Spec.Containers[0]
	container.Command = append(container.Command, "--config="+fileThere)
	slices.Sort(container.Command[1:])
	slices.Sort(got.Spec.Containers[0].Command[1:])
	container.VolumeMounts = append(container.VolumeMounts, corev1.VolumeMount{Name: "config", MountPath: fileThere, ReadOnly: true})
	pod.Volumes = append(pod.Volumes, corev1.Volume{Name: "config", VolumeSource: corev1.VolumeSource{
		HostPath: &corev1.HostPathVolumeSource{Path: fileThere, Type: ptr.To(corev1.HostPathFile)},
	}})
	anyOrder := cmp.Options{
		cmpopts.SortSlices(func(a, b corev1.Volume) bool { return a.Name < b.Name }),
		cmpopts.SortSlices(func(a, b corev1.VolumeMount) bool { return a.Name < b.Name }),
	}
	if diff := cmp.Diff(want, got, anyOrder); diff != "" {
		t.Errorf("static Pod (-want +got):\n%s", diff)
	}

	content, err := os.ReadFile(manifest(t, "kubeadm/config-file/controller-manager.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var keys map[string]any
	if err := yaml.UnmarshalStrict(content, &keys); err != nil {
		t.Fatal(err)
	}
	for _, arg := range container.Command {
		name, _, _ := strings.Cut(strings.TrimPrefix(arg, "--"), "=")
		for key := range keys {
			if strings.EqualFold(key, strings.ReplaceAll(name, "-", "")) {
				t.Errorf("%s of the file has no effect: kubeadm sets --%s", key, name)
			}
		}
	}
}

func isControllers(arg string) bool { return strings.HasPrefix(arg, controllers) }

func controllersOf(t *testing.T, pod *corev1.Pod) string {
	t.Helper()
	command := pod.Spec.Containers[0].Command
	at := slices.IndexFunc(command, isControllers)
	if at < 0 {
		t.Fatalf("no %s in %q", controllers, command)
	}
	return command[at]
}

// configuration is one of manifests/kubeadm, with the patches where they are now.
func configuration(t *testing.T, name string) string {
	t.Helper()
	content, err := os.ReadFile(manifest(t, name))
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(content), patchesInPlan) {
		t.Fatalf("%s does not name %s", name, patchesInPlan)
	}
	return strings.ReplaceAll(string(content), patchesInPlan, manifest(t, "kubeadm/patches"))
}

// render has kubeadm make the manager's static Pod, without touching this machine.
func render(t *testing.T, configuration string) *corev1.Pod {
	t.Helper()
	dir := t.TempDir()
	config := filepath.Join(t.TempDir(), "kubeadm.yaml")
	if err := os.WriteFile(config, []byte(configuration), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("KUBEADM_INIT_DRYRUN_DIR", dir)
	kubeadm(t, "init", "phase", "control-plane", "controller-manager", "--dry-run", "--config="+config)
	return readPod(t, filepath.Join(dir, "kube-controller-manager.yaml"))
}

func readPod(t *testing.T, path string) *corev1.Pod {
	t.Helper()
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	pod := &corev1.Pod{}
	if err := yaml.UnmarshalStrict(content, pod); err != nil {
		t.Fatal(err)
	}
	return pod
}

func version(t *testing.T) string {
	t.Helper()
	return strings.TrimSpace(kubeadm(t, "version", "--output=short"))
}

func kubeadm(t *testing.T, args ...string) (stdout string) {
	t.Helper()
	program := controlplane.Program("kubeadm")
	if _, err := os.Stat(program); err != nil {
		t.Fatalf("%v; `make bin/kubeadm` builds it", err)
	}
	cmd := exec.CommandContext(t.Context(), program, args...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	output, err := cmd.Output()
	if err != nil {
		t.Fatalf("kubeadm %q: %v\n%s", args, err, stderr.Bytes())
	}
	return string(output)
}

func manifest(t *testing.T, path string) string {
	t.Helper()
	return filepath.Join(root(t), "manifests", path)
}

func root(t *testing.T) string {
	t.Helper()
	root, err := controlplane.ModuleRoot()
	if err != nil {
		t.Fatal(err)
	}
	return root
}

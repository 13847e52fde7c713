package e2e

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/yaml"
)

const (
	manifestDir = "/etc/kubernetes/manifests"
	managerPod  = "kube-controller-manager"
)

// firstControlPlane is the machine that every cluster has.
const firstControlPlane = "control-plane"

// disk is a path of the first control plane as the host sees it.
func (c *cluster) disk(path string) string { return c.diskOf(firstControlPlane, path) }

// diskOf is a path of a machine as the host sees it.
func (c *cluster) diskOf(machine, path string) string {
	return filepath.Join(c.dir, "machines", machine, "disk", path)
}

// managerManifest is the static Pod that kubeadm has written on a machine, to change and to write back.
func (c *cluster) managerManifest(t *testing.T, machine string) *corev1.Pod {
	t.Helper()
	content, err := os.ReadFile(c.diskOf(machine, manifestDir+"/"+managerPod+".yaml"))
	if err != nil {
		t.Fatal(err)
	}
	pod := &corev1.Pod{}
	if err := yaml.UnmarshalStrict(content, pod); err != nil {
		t.Fatal(err)
	}
	return pod
}

// writeManifest hands a static Pod to the kubelet, as a whole: it looks at the directory all the time.
func (c *cluster) writeManifest(t *testing.T, name string, pod *corev1.Pod) {
	t.Helper()
	content, err := yaml.Marshal(pod)
	if err != nil {
		t.Fatal(err)
	}
	temporary := c.disk("etc/kubernetes/" + name + ".yaml")
	if err := os.WriteFile(temporary, content, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(temporary, c.disk(manifestDir+"/"+name+".yaml")); err != nil {
		t.Fatal(err)
	}
}

func (c *cluster) removeManifest(t *testing.T, name string) {
	t.Helper()
	if err := os.Remove(c.disk(manifestDir + "/" + name + ".yaml")); err != nil {
		t.Fatal(err)
	}
}

// setFlag changes or adds a flag of the manager.
func setFlag(pod *corev1.Pod, name, value string) {
	command := pod.Spec.Containers[0].Command
	for i, arg := range command {
		if strings.HasPrefix(arg, "--"+name+"=") {
			command[i] = "--" + name + "=" + value
			return
		}
	}
	pod.Spec.Containers[0].Command = append(command, "--"+name+"="+value)
}

// swapManager changes the manager's static Pod and waits until the changed one runs and leads.
func (c *cluster) swapManager(t *testing.T, change func(*corev1.Pod)) {
	t.Helper()
	before := c.leader(t.Context(), managerPod)
	pod := c.managerManifest(t, firstControlPlane)
	change(pod)
	c.writeManifest(t, managerPod, pod)
	c.waitForStaticPod(t, managerPod, pod.Spec.Containers[0].Image)
	c.waitForLeader(t, managerPod, before)
}

func (c *cluster) waitForStaticPod(t *testing.T, name, image string) {
	t.Helper()
	c.waitForStaticPodOn(t, firstControlPlane, name, image)
}

func (c *cluster) waitForStaticPodOn(t *testing.T, machine, name, image string) {
	t.Helper()
	eventually(t, 90*time.Second, "static Pod "+name+" on "+machine+" is ready with image "+image, func(ctx context.Context) (bool, string) {
		pod, err := c.client.CoreV1().Pods(metav1.NamespaceSystem).Get(ctx, name+"-"+machine, metav1.GetOptions{})
		if err != nil {
			return false, err.Error()
		}
		if len(pod.Status.ContainerStatuses) == 0 {
			return false, "no container"
		}
		status := pod.Status.ContainerStatuses[0]
		// The specification has the new image before the container has.
		return status.Ready && status.Image == image && pod.Spec.Containers[0].Image == image, fmt.Sprintf("%s: ready=%t %v", status.Image, status.Ready, status.State)
	})
}

// managerLog is what the managers of a machine's static Pod have written, with those that have ended.
func (c *cluster) managerLog(t *testing.T, machine string) string {
	t.Helper()
	var all []byte
	for _, path := range glob(t, c.diskOf(machine, "var/log/pods/kube-system_"+managerPod+"-"+machine+"_*/*/*.log")) {
		content, err := os.ReadFile(path)
		if err != nil && !errors.Is(err, fs.ErrNotExist) { // The kubelet keeps the last ones only.
			t.Fatal(err)
		}
		all = append(all, content...)
	}
	return string(all)
}

// leader is who holds the lease, or "" if nobody does or nobody answers.
func (c *cluster) leader(ctx context.Context, lease string) string {
	held, err := c.client.CoordinationV1().Leases(metav1.NamespaceSystem).Get(ctx, lease, metav1.GetOptions{})
	if err != nil {
		return ""
	}
	return ptr.Deref(held.Spec.HolderIdentity, "")
}

func (c *cluster) waitForLeader(t *testing.T, lease, other string) {
	t.Helper()
	eventually(t, time.Minute, "another holder of lease "+lease+" than "+other, func(ctx context.Context) (bool, string) {
		holder := c.leader(ctx, lease)
		return holder != "" && holder != other, holder
	})
}

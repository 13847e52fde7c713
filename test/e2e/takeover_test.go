package e2e

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
)

// secondRange goes before the one of the flags.
const secondRange = `
apiVersion: networking.x-k8s.io/v1
kind: ClusterCIDR
metadata: {name: second}
spec:
  ipv4: 10.246.0.0/16
  perNodeHostBits: 6
  priority: 10
`

func TestTakeover(t *testing.T) {
	c := newCluster(t, "stock")
	c.start(t, "--workers=1", "--config=testdata/kubeadm-stock.yaml")
	c.apply(t, daemonSet)
	nodes := []string{"control-plane", "worker-1"}
	c.checkPodNetwork(t, nodes...)
	stock := c.managerManifest(t, firstControlPlane)
	blocks := c.podCIDRs(t, nodes...)
	containers := c.containers(t)

	// undisturbed sees that what was there before is there still, as it was.
	undisturbed := func(t *testing.T) {
		t.Helper()
		if diff := cmp.Diff(blocks, c.podCIDRs(t, nodes...), comparePrefixes); diff != "" {
			t.Errorf("podCIDRs of the Nodes that were there before (-want +got):\n%s", diff)
		}
		c.checkContainers(t, containers)
		c.checkNoOverlap(t)
	}
	steps := []struct {
		name string
		do   func(t *testing.T)
	}{
		{"ours takes over: nothing restarts, no podCIDR changes", func(t *testing.T) {
			c.kubectl(t, "apply", "-f", "../../manifests/crds", "-f", "../../manifests/rbac")
			c.importImage(t, firstControlPlane, ourArchive)
			c.swapManager(t, func(pod *corev1.Pod) {
				container := &pod.Spec.Containers[0]
				container.Image = ourImage
				container.Command = append([]string{"/go-runner", "--also-stdout", "--log-file=/dev/null"}, container.Command...) // as kOps starts it
				setFlag(pod, "controllers", "*,bootstrapsigner,tokencleaner,multi-cidr-node-ipam-controller")
			})
			undisturbed(t)
		}},
		{"the next Node is served from the range of the flags", func(t *testing.T) {
			c.join(t, map[string]string{"worker-2": ""})
			c.checkBlock(t, "worker-2", "10.244.0.0/16", 24)
			c.checkPodNetwork(t, "control-plane", "worker-1", "worker-2")
			undisturbed(t)
		}},
		{"a second range is added live: the next Node uses it", func(t *testing.T) {
			c.apply(t, secondRange)
			c.kubectl(t, "wait", "--for=condition=Ready", "--timeout=30s", "clustercidr/second")
			c.join(t, map[string]string{"worker-3": ""})
			c.checkBlock(t, "worker-3", "10.246.0.0/16", 26)
			c.checkPodNetwork(t, "control-plane", "worker-1", "worker-2", "worker-3")
			undisturbed(t)
		}},
		{"the stock manager does not start while a Node is outside its one range", func(t *testing.T) {
			c.writeManifest(t, managerPod, stock)
			eventually(t, 90*time.Second, "the stock manager ends and names the podCIDR", func(context.Context) (bool, string) {
				said := c.managerLog(t, firstControlPlane)
				return strings.Contains(said, "failed to mark cidr[10.246.0.0/26]"), said[max(0, len(said)-1000):]
			})
			undisturbed(t)
		}},
		{"back to the stock manager, once no Node is outside its one range", func(t *testing.T) {
			c.cluster(t, "remove", "worker-3")
			c.kubectl(t, "delete", "node", "worker-3")
			c.waitForStaticPod(t, managerPod, stock.Spec.Containers[0].Image)
			c.join(t, map[string]string{"worker-4": ""})
			c.checkBlock(t, "worker-4", "10.244.0.0/16", 24)
			c.checkPodNetwork(t, "control-plane", "worker-1", "worker-2", "worker-4")
			undisturbed(t)
		}},
	}
	for _, step := range steps {
		if !t.Run(step.name, step.do) {
			return // The next ones start from here.
		}
	}
}

package e2e

import (
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"golang.org/x/sync/errgroup"
)

const (
	// leaseDuration is --leader-elect-lease-duration: how long Nodes may wait if a leader ends without releasing its lease.
	leaseDuration = 15 * time.Second

	ourImage  = "localhost/multicidr/kube-controller-manager:v1.37.1-mc0.2.0"
	nextImage = "localhost/multicidr/kube-controller-manager:next"
)

// ourArchive is what make image has written.
var ourArchive = "../../bin/images/kube-controller-manager-linux-" + runtime.GOARCH + ".tar"

// groups have ranges and block sizes of their own, in both families.
const groups = `
apiVersion: networking.x-k8s.io/v1
kind: ClusterCIDR
metadata: {name: edge}
spec:
  nodeSelector: {nodeSelectorTerms: [{matchExpressions: [{key: example.com/pool, operator: In, values: [edge]}]}]}
  ipv4: 10.245.0.0/20
  ipv6: fd00:10:245::/56
  perNodeHostBits: 4
  ipv6PerNodeHostBits: 64
---
apiVersion: networking.x-k8s.io/v1
kind: ClusterCIDR
metadata: {name: large}
spec:
  nodeSelector: {nodeSelectorTerms: [{matchExpressions: [{key: example.com/pool, operator: In, values: [large]}]}]}
  ipv4: 10.128.0.0/12
  ipv6: fd00:10:128::/48
  perNodeHostBits: 9
  ipv6PerNodeHostBits: 72
`

func TestBornWithOurManager(t *testing.T) {
	c := newCluster(t, "ours")
	c.start(t, "--workers=0", "--config="+dualStackConfig(t), "--patches=../../manifests/kubeadm/patches",
		"--file=/etc/kubernetes/controller-manager.yaml=../../manifests/kubeadm/config-file/controller-manager.yaml",
		"--apply=../../manifests/crds", "--apply=../../manifests/rbac", "--image="+ourArchive, "--image=../../bin/images/next.tar")

	ok := t.Run("Nodes of two groups get blocks of different sizes from different ranges, and their Pods reach each other", func(t *testing.T) {
		c.apply(t, groups)
		c.apply(t, daemonSet)
		c.join(t, map[string]string{"edge-1": "example.com/pool=edge", "edge-2": "example.com/pool=edge", "large-1": "example.com/pool=large"})

		type block struct {
			In   string
			Bits int
		}
		want := map[string][]block{
			"control-plane": {{"10.244.0.0/16", 25}, {"fd00:10:244::/56", 64}}, // /25 is what the file says
			"edge-1":        {{"10.245.0.0/20", 28}, {"fd00:10:245::/56", 64}},
			"edge-2":        {{"10.245.0.0/20", 28}, {"fd00:10:245::/56", 64}},
			"large-1":       {{"10.128.0.0/12", 23}, {"fd00:10:128::/48", 56}},
		}
		got := map[string][]block{}
		for node, blocks := range c.podCIDRs(t, "control-plane", "edge-1", "edge-2", "large-1") {
			for i, prefix := range blocks {
				in := "elsewhere"
				if i < len(want[node]) && netip.MustParsePrefix(want[node][i].In).Overlaps(prefix) {
					in = want[node][i].In
				}
				got[node] = append(got[node], block{in, prefix.Bits()})
			}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatalf("podCIDRs (-want +got):\n%s", diff)
		}
		c.checkNoOverlap(t)
		c.checkPodNetwork(t, "control-plane", "edge-1", "edge-2", "large-1")
	})
	if !ok {
		return
	}

	ok = t.Run("the next build takes the lease over while Nodes join", func(t *testing.T) {
		pods := c.containers(t)
		stream := c.startNodeStream(t, "upgrade", 0)
		// As on a second control plane: the next build stands by before this one goes.
		standby := c.managerManifest(t, firstControlPlane)
		standby.Name += "-next"
		standby.Spec.Containers[0].Image = nextImage
		setFlag(standby, "secure-port", "10267")
		setProbePort(standby, 10267)
		before := c.leader(t.Context(), managerPod)
		c.writeManifest(t, standby.Name, standby)
		c.waitForStaticPod(t, standby.Name, nextImage)
		if leader := c.leader(t.Context(), managerPod); leader != before {
			t.Errorf("%q leads; want still %q", leader, before)
		}
		served := stream.served()
		c.removeManifest(t, managerPod)
		c.waitForLeader(t, managerPod, before)
		stream.waitForMore(t, 3)
		stream.end()
		t.Logf("%d Nodes served before the handover, %d in all; the longest wait was %s", served, stream.served(), stream.longestWait())
		if longest := stream.longestWait(); longest > leaseDuration {
			t.Errorf("a Node waited %s for its podCIDRs", longest)
		}
		c.checkNoOverlap(t)
		c.checkContainers(t, pods)
	})
	if !ok {
		return
	}

	t.Run("the control plane reboots while Nodes join", func(t *testing.T) {
		stream := c.startNodeStream(t, "reboot", 0)
		var joins errgroup.Group
		joins.Go(func() error {
			_, err := c.try(t.Context(), "join", "edge-3", "--labels=example.com/pool=edge")
			return err
		})
		stream.waitForMore(t, 3)
		before := c.serverPods(t, "control-plane")["control-plane"]
		c.cluster(t, "reboot", "control-plane")
		stream.waitForMore(t, 3)
		stream.end()
		c.waitForRestart(t, before)
		if err := joins.Wait(); err != nil {
			t.Fatal(err)
		}
		c.checkNoOverlap(t)
		c.checkPodNetwork(t, "control-plane", "edge-1", "edge-2", "edge-3", "large-1")
	})
}

// dualStackConfig is that of a manager that reads a file, for both families, and with a lease that a manager releases when it ends:
// otherwise it has to run out before the next one leads.
func dualStackConfig(t *testing.T) string {
	t.Helper()
	const name = "../../manifests/kubeadm/config-file/kubeadm.yaml"
	content, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	config := string(content)
	for old, new := range map[string]string{
		"  podSubnet: 10.244.0.0/16\n": "  podSubnet: 10.244.0.0/16,fd00:10:244::/56\n  serviceSubnet: 10.96.0.0/16,fd00:10:96::/112\n",
		"  extraArgs:\n":               "  extraArgs:\n  - {name: feature-gates, value: ControllerManagerReleaseLeaderElectionLockOnExit=true}\n",
	} {
		if !strings.Contains(config, old) {
			t.Fatalf("%q is not in %s any more", old, name)
		}
		config = strings.Replace(config, old, new, 1)
	}
	path := filepath.Join(t.TempDir(), "kubeadm.yaml")
	if err := os.WriteFile(path, []byte(config), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

func setProbePort(pod *corev1.Pod, port int32) {
	container := &pod.Spec.Containers[0]
	for _, probe := range []*corev1.Probe{container.LivenessProbe, container.StartupProbe, container.ReadinessProbe} {
		if probe != nil && probe.HTTPGet != nil {
			probe.HTTPGet.Port.IntVal, probe.HTTPGet.Port.StrVal, probe.HTTPGet.Port.Type = port, "", 0
		}
	}
	for i := range container.Ports {
		container.Ports[i].ContainerPort, container.Ports[i].HostPort = port, port
	}
}

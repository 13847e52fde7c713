package e2e

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	// A new static Pod: the kubelet ends the old one and starts the new one.
	changeOfPod = 15 * time.Second
	// While the one control plane has no API server that answers, nobody can give a Node podCIDRs: etcd and the API server are replaced.
	replacedServers = 60 * time.Second

	afterSwap = changeOfPod + changeOfLeader
	// A kubelet of another minor restarts all static Pods.
	afterKubelet = replacedServers + afterSwap
	// The old manager, which could not renew its Lease meanwhile, ends and is started again; and then it is replaced, too.
	afterUpgrade = replacedServers + 2*afterSwap
)

// minorCluster is one that goes from one minor of Kubernetes to the next.
type minorCluster struct {
	*joiningCluster
	controlPlanes []string // the first one is firstControlPlane
	older, newer  string   // the directories of programs
	from, to      string   // the versions
}

// TestUpgradeFromLastMinor does what docs/install/kubeadm.md says of upgrades, and what it says not to do.
func TestUpgradeFromLastMinor(t *testing.T) {
	c := startMinorCluster(t, "upgrade", firstControlPlane)
	c.runSteps(t, []joiningStep{
		{"objects, image and patch of the new version", startOfLeader, c.prepare},
		{"kubeadm upgrade apply --patches", afterUpgrade, c.upgradeFirst},
		{"the kubelets and the workers", afterKubelet, c.upgradeNodes},
		{"kubeadm upgrade apply without --patches, and step 5 again", afterSwap, c.forgetPatches},
	})
}

// TestUpgradeThreeControlPlanes does the same where there are always other control planes, of both minors for a while: no Node waits for longer
// than a change of the leader takes.
func TestUpgradeThreeControlPlanes(t *testing.T) {
	c := startMinorCluster(t, "upgrade-ha", firstControlPlane, "control-plane-2", "control-plane-3")
	second, third := c.controlPlanes[1], c.controlPlanes[2]
	c.runSteps(t, []joiningStep{
		{"objects, image and patch of the new version", startOfLeader, c.prepare},
		{"kubeadm upgrade apply --patches on the first control plane", changeOfLeader, c.upgradeFirst},
		{"kubeadm upgrade node --patches on the second one", changeOfLeader, func(t *testing.T) { c.upgradeOther(t, second) }},
		{"kubeadm upgrade node --patches on the third one", changeOfLeader, func(t *testing.T) { c.upgradeOther(t, third) }},
		{"the kubelets and the workers", changeOfLeader, c.upgradeNodes},
		{"kubeadm upgrade node without --patches on the second one: the others serve; and step 5 again", changeOfLeader, func(t *testing.T) {
			c.upgradeWithoutPatches(t, second, "node")
			c.waitForServed(t)
			c.repairImage(t, second)
		}},
	})
}

// startMinorCluster starts one of the minor UPGRADE_FROM, with workers that have blocks of both ranges.
func startMinorCluster(t *testing.T, name string, controlPlanes ...string) *minorCluster {
	t.Helper()
	minor := os.Getenv("UPGRADE_FROM")
	if minor == "" {
		t.Fatal("UPGRADE_FROM names no minor: run make e2e-upgrade")
	}
	c := &minorCluster{joiningCluster: newJoiningCluster(t, name), controlPlanes: controlPlanes}
	c.older, c.newer = c.bin(minor), filepath.Dir(c.bin("kubeadm"))
	c.from, c.to = versionIn(t, c.older), versionIn(t, c.newer)
	c.start(t, "--bin="+c.older, fmt.Sprintf("--control-planes=%d", len(controlPlanes)), "--workers=1", "--config=../../manifests/kubeadm/kubeadm.yaml",
		"--patches="+olderPatches(t, c.from), "--image="+filepath.Join(c.older, "images/kube-controller-manager-linux-"+runtime.GOARCH+".tar"),
		"--apply=../../manifests/crds", "--apply=../../manifests/rbac")
	t.Logf("%s: a cluster of %s is up", c.sinceStart(), c.from)
	c.applyPolicies(t)
	c.apply(t, secondRange)
	c.kubectl(t, "wait", "--for=condition=Ready", "--timeout=30s", "clustercidr/second")
	c.cluster.cluster(t, "join", "worker-2", "--bin="+c.older)
	c.checkBlock(t, "worker-2", "10.246.0.0/16", 26)
	c.watch(t, nil, controlPlanes, slices.Concat(controlPlanes, []string{"worker-1", "worker-2"}))
	return c
}

// versionIn is that of the programs in a directory.
func versionIn(t *testing.T, dir string) string {
	t.Helper()
	version, err := run(t.Context(), nil, filepath.Join(dir, "kubeadm"), "version", "--output=short")
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(version)
}

// olderPatches are our patches as they are for an older version.
func olderPatches(t *testing.T, version string) string {
	t.Helper()
	const name = "kube-controller-manager+strategic.yaml"
	content, err := os.ReadFile("../../manifests/kubeadm/patches/" + name)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(content), ourImage) {
		t.Fatalf("%s does not name %s:\n%s", name, ourImage, content)
	}
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, name), []byte(strings.ReplaceAll(string(content), ourImage, imageOf(version))), 0o644); err != nil {
		t.Fatal(err)
	}
	return dir
}

// imageOf is our image that is made of a version of Kubernetes.
func imageOf(version string) string {
	repository, tag, _ := strings.Cut(ourImage, ":")
	_, ours, _ := strings.Cut(tag, "-")
	return repository + ":" + version + "-" + ours
}

func (c *cluster) applyPolicies(t *testing.T) {
	t.Helper()
	for _, file := range []string{"keep-leases", "policy", "kube-controller-manager", "created-nodes"} {
		c.kubectl(t, "apply", "-f", "../../manifests/fencing/"+file+".yaml")
	}
}

// prepare is what comes before kubeadm; the old version works with it.
func (c *minorCluster) prepare(t *testing.T) {
	c.kubectl(t, "apply", "-f", "../../manifests/crds", "-f", "../../manifests/rbac")
	c.applyPolicies(t)
	for _, machine := range c.controlPlanes {
		c.importImage(t, machine, ourArchive)
		patches := c.diskOf(machine, "etc/kubernetes/patches")
		if err := os.RemoveAll(patches); err != nil {
			t.Fatal(err)
		}
		if err := os.CopyFS(patches, os.DirFS("../../manifests/kubeadm/patches")); err != nil {
			t.Fatal(err)
		}
	}
}

// install is what a package manager does on a machine before and after kubeadm.
func (c *minorCluster) install(t *testing.T, machine string, programs ...string) {
	t.Helper()
	c.cluster.cluster(t, append([]string{"--bin=" + c.newer, "install", machine}, programs...)...)
}

// ignored are the only checks of kubeadm that its command is told to pass over: what the kernel and the cgroups of this host are like, and
// CoreDNS, which these clusters do not have, and which is looked for even where it is disabled.
const ignored = "--ignore-preflight-errors=SystemVerification,CoreDNSMigration,CoreDNSUnsupportedPlugins"

// kubeadmUpgrade runs kubeadm upgrade on a machine.
func (c *minorCluster) kubeadmUpgrade(t *testing.T, machine string, args ...string) {
	t.Helper()
	begin := time.Now()
	command := slices.Concat([]string{"kubeadm", "upgrade"}, args, []string{ignored})
	output := c.exec(t, machine, command...)
	t.Logf("%s: %s on %s took %s", c.sinceStart(), strings.Join(command, " "), machine, time.Since(begin).Round(time.Second))
	if err := os.WriteFile(c.diskOf(machine, "var/log/kubeadm-upgrade-"+args[0]+".log"), []byte(output), 0o644); err != nil {
		t.Error(err)
	}
}

const withPatches = "--patches=/etc/kubernetes/patches"

func (c *minorCluster) upgradeFirst(t *testing.T) {
	before := c.leader(t.Context(), managerPod)
	c.upgradeControlPlane(t, firstControlPlane, "apply", c.to, "--yes", withPatches)
	if len(c.controlPlanes) == 1 {
		c.waitForLeader(t, managerPod, before)
	}
}

func (c *minorCluster) upgradeOther(t *testing.T, machine string) {
	c.upgradeControlPlane(t, machine, "node", withPatches)
}

func (c *minorCluster) upgradeControlPlane(t *testing.T, machine string, args ...string) {
	t.Helper()
	c.install(t, machine, "kubeadm", "kubectl")
	c.kubeadmUpgrade(t, machine, args...)
	c.waitForStaticPodOn(t, machine, managerPod, ourImage)
	c.waitForControlPlane(t, machine)
	if version := c.exec(t, machine, "kubectl", c.serverOf(t, machine), "version"); !strings.Contains(version, "Server Version: "+c.to+"\n") {
		t.Errorf("the API server of %s says %s; want %s", machine, version, c.to)
	}
	// The manifest of the new version has what the ConfigMap says.
	if command := c.managerManifest(t, machine).Spec.Containers[0].Command; !slices.Contains(command, ourControllers) {
		t.Errorf("the new manager of %s has the flags %q; want also %s", machine, command, ourControllers)
	}
}

const ourControllers = "--controllers=*,bootstrapsigner,tokencleaner,multi-cidr-node-ipam-controller"

func (c *minorCluster) upgradeNodes(t *testing.T) {
	for _, machine := range c.controlPlanes {
		c.upgradeKubelet(t, machine)
	}
	for _, worker := range []string{"worker-1", "worker-2"} {
		c.install(t, worker, "kubeadm", "kubectl")
		c.kubeadmUpgrade(t, worker, "node")
		c.install(t, worker, "kubelet")
	}
	for _, machine := range slices.Sorted(maps.Keys(c.blocks)) {
		eventually(t, 2*time.Minute, "the kubelet of "+machine+" is "+c.to, func(ctx context.Context) (bool, string) {
			node, err := c.client.CoreV1().Nodes().Get(ctx, machine, metav1.GetOptions{})
			if err != nil {
				return false, err.Error()
			}
			return node.Status.NodeInfo.KubeletVersion == c.to, node.Status.NodeInfo.KubeletVersion
		})
	}
	c.join(t, map[string]string{"worker-3": ""})
	c.checkBlock(t, "worker-3", "10.246.0.0/16", 26)
	maps.Copy(c.blocks, c.podCIDRs(t, "worker-3"))
}

// upgradeKubelet replaces the kubelet of a control plane. It restarts all static Pods, some time after its start: the next machine waits for that.
func (c *minorCluster) upgradeKubelet(t *testing.T, machine string) {
	t.Helper()
	pods := []string{"etcd", "kube-apiserver", managerPod}
	before := map[string]string{}
	for _, pod := range pods {
		before[pod], _ = c.readyContainer(t.Context(), pod+"-"+machine)
	}
	c.install(t, machine, "kubelet")
	for _, pod := range pods {
		eventually(t, 2*time.Minute, pod+" of "+machine+" is another container, and ready", func(ctx context.Context) (bool, string) {
			id, err := c.readyContainer(ctx, pod+"-"+machine)
			return err == nil && id != "" && id != before[pod], fmt.Sprint(id, err)
		})
	}
	c.waitForControlPlane(t, machine)
}

// readyContainer is the one of a static Pod, or "" if it is not ready.
func (c *minorCluster) readyContainer(ctx context.Context, pod string) (id string, err error) {
	found, err := c.client.CoreV1().Pods(metav1.NamespaceSystem).Get(ctx, pod, metav1.GetOptions{})
	if err != nil || len(found.Status.ContainerStatuses) == 0 || !found.Status.ContainerStatuses[0].Ready {
		return "", err
	}
	return found.Status.ContainerStatuses[0].ContainerID, nil
}

// forgetPatches makes the mistake where nobody else can lead, looks at what comes of it, and repairs it.
func (c *minorCluster) forgetPatches(t *testing.T) {
	before := c.leader(t.Context(), managerPod)
	c.upgradeWithoutPatches(t, firstControlPlane, "apply", c.to, "--yes")
	served := c.served()
	if after := c.leader(t.Context(), managerPod); after != before {
		t.Errorf("%q leads; want still %q, which has ended", after, before)
	}
	c.judgeBlocks(t)
	c.repair = time.Now()
	if now := c.served(); now != served {
		t.Errorf("%d Nodes were served while no manager ran", now-served)
	}
	c.repairImage(t, firstControlPlane)
	c.waitForLeader(t, managerPod, before)
}

// upgradeWithoutPatches makes the mistake on a machine, and waits for what comes of it.
func (c *minorCluster) upgradeWithoutPatches(t *testing.T, machine string, args ...string) {
	t.Helper()
	c.kubeadmUpgrade(t, machine, args...)
	eventually(t, 90*time.Second, "the stock manager of "+machine+" ends again and again", func(ctx context.Context) (bool, string) {
		pod, err := c.client.CoreV1().Pods(metav1.NamespaceSystem).Get(ctx, managerPod+"-"+machine, metav1.GetOptions{})
		if err != nil || len(pod.Status.ContainerStatuses) == 0 {
			return false, fmt.Sprint(err)
		}
		status := pod.Status.ContainerStatuses[0]
		return status.Image == stockImage() && status.RestartCount > 1, fmt.Sprintf("%s, started again %d times", status.Image, status.RestartCount)
	})
	const complaint = `\"multi-cidr-node-ipam-controller\" is not in the list of known controllers`
	if log := c.managerLog(t, machine); !strings.Contains(log, complaint) {
		t.Errorf("its log does not say %s:\n%s", complaint, log)
	}
	if image := c.managerManifest(t, machine).Spec.Containers[0].Image; image != stockImage() {
		t.Errorf("the manager's image is %s; want %s", image, stockImage())
	}
}

// repairImage does step 5 on a machine whose settings are ours, but not the image.
func (c *minorCluster) repairImage(t *testing.T, machine string) {
	t.Helper()
	want := []string{"image: " + stockImage(), "image: " + ourImage}
	if diff := cmp.Diff(want, c.doStep5(t, readPage(t, "../../docs/install/kubeadm.md"), machine)); diff != "" {
		t.Errorf("what step 5 has changed on %s (-want +got):\n%s", machine, diff)
	}
}

// served is how many Nodes of all streams have been served.
func (c *joiningCluster) served() int {
	sum := 0
	for _, stream := range c.streams {
		sum += stream.served()
	}
	return sum
}

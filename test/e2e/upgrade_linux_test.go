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
	// A kubelet of another minor makes all static Pods anew.
	afterKubelet = replacedServers + afterSwap
	// The old manager, which could not renew its Lease meanwhile, ends and is started again; and then it is replaced, too.
	afterUpgrade = replacedServers + 2*afterSwap
)

// minorCluster is one that goes from one minor of Kubernetes to the next.
type minorCluster struct {
	*joiningCluster
	older, newer string // the directories of programs
	from, to     string // the versions
}

// TestUpgradeFromLastMinor does what docs/operators/kubeadm.md says of upgrades, and what it says not to do.
func TestUpgradeFromLastMinor(t *testing.T) {
	minor := os.Getenv("UPGRADE_FROM")
	if minor == "" {
		t.Fatal("UPGRADE_FROM names no minor: run make e2e-upgrade")
	}
	c := &minorCluster{joiningCluster: newJoiningCluster(t, "upgrade")}
	c.older, c.newer = c.bin(minor), filepath.Dir(c.bin("kubeadm"))
	c.from, c.to = versionIn(t, c.older), versionIn(t, c.newer)
	c.start(t, "--bin="+c.older, "--workers=1", "--config=../../manifests/kubeadm/kubeadm.yaml", "--patches="+olderPatches(t, c.from),
		"--image="+filepath.Join(c.older, "images/kube-controller-manager-linux-"+runtime.GOARCH+".tar"),
		"--apply=../../manifests/crds", "--apply=../../manifests/rbac")
	t.Logf("%s: a cluster of %s is up", c.sinceStart(), c.from)
	c.applyPolicies(t)
	c.apply(t, secondRange)
	c.kubectl(t, "wait", "--for=condition=Ready", "--timeout=30s", "clustercidr/second")
	c.cluster.cluster(t, "join", "worker-2", "--bin="+c.older)
	c.checkBlock(t, "worker-2", "10.246.0.0/16", 26)
	c.watch(t, nil, []string{firstControlPlane}, []string{firstControlPlane, "worker-1", "worker-2"})
	c.runSteps(t, []joiningStep{
		{"objects, image and patch of the new version", startOfLeader, c.prepare},
		{"kubeadm upgrade apply --patches", afterUpgrade, c.upgradeControlPlane},
		{"the kubelets and the workers", afterKubelet, c.upgradeNodes},
		{"kubeadm upgrade apply without --patches, and step 5 again", afterSwap, c.forgetPatches},
	})
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
	c.importImage(t, firstControlPlane, ourArchive)
	patches := c.disk("etc/kubernetes/patches")
	if err := os.RemoveAll(patches); err != nil {
		t.Fatal(err)
	}
	if err := os.CopyFS(patches, os.DirFS("../../manifests/kubeadm/patches")); err != nil {
		t.Fatal(err)
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

func (c *minorCluster) upgradeControlPlane(t *testing.T) {
	before := c.leader(t.Context(), managerPod)
	c.install(t, firstControlPlane, "kubeadm", "kubectl")
	c.kubeadmUpgrade(t, firstControlPlane, "apply", c.to, "--yes", "--patches=/etc/kubernetes/patches")
	c.waitForStaticPodOn(t, firstControlPlane, managerPod, ourImage)
	c.waitForLeader(t, managerPod, before)
	version, err := c.client.Discovery().ServerVersion()
	if err != nil {
		t.Fatal(err)
	}
	if version.GitVersion != c.to {
		t.Errorf("the API server is %s; want %s", version.GitVersion, c.to)
	}
	// The manifest of the new version has what the ConfigMap says.
	if command := c.managerManifest(t).Spec.Containers[0].Command; !slices.Contains(command, ourControllers) {
		t.Errorf("the new manager has the flags %q; want also %s", command, ourControllers)
	}
}

const ourControllers = "--controllers=*,bootstrapsigner,tokencleaner,multi-cidr-node-ipam-controller"

func (c *minorCluster) upgradeNodes(t *testing.T) {
	c.install(t, firstControlPlane, "kubelet")
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

// forgetPatches makes the mistake, looks at what comes of it, and repairs it.
func (c *minorCluster) forgetPatches(t *testing.T) {
	before := c.leader(t.Context(), managerPod)
	c.kubeadmUpgrade(t, firstControlPlane, "apply", c.to, "--yes")
	eventually(t, 90*time.Second, "the stock manager ends again and again", func(ctx context.Context) (bool, string) {
		pod, err := c.client.CoreV1().Pods(metav1.NamespaceSystem).Get(ctx, managerPod+"-"+firstControlPlane, metav1.GetOptions{})
		if err != nil || len(pod.Status.ContainerStatuses) == 0 {
			return false, fmt.Sprint(err)
		}
		status := pod.Status.ContainerStatuses[0]
		return status.Image == stockImage() && status.RestartCount > 1, fmt.Sprintf("%s, started again %d times", status.Image, status.RestartCount)
	})
	const complaint = `\"multi-cidr-node-ipam-controller\" is not in the list of known controllers`
	if log := c.managerLog(t); !strings.Contains(log, complaint) {
		t.Errorf("its log does not say %s:\n%s", complaint, log)
	}
	served := c.served()
	if after := c.leader(t.Context(), managerPod); after != before {
		t.Errorf("%q leads; want still %q, which has ended", after, before)
	}
	c.judgeBlocks(t)
	image := c.managerManifest(t).Spec.Containers[0].Image
	if image != stockImage() {
		t.Errorf("the manager's image is %s; want %s", image, stockImage())
	}

	c.repair = time.Now()
	if now := c.served(); now != served {
		t.Errorf("%d Nodes were served while no manager ran", now-served)
	}
	want := []string{"image: " + stockImage(), "image: " + ourImage}
	if diff := cmp.Diff(want, c.doStep5(t, readPage(t, "../../docs/operators/kubeadm.md"), firstControlPlane)); diff != "" {
		t.Errorf("what step 5 has changed (-want +got):\n%s", diff)
	}
	c.waitForLeader(t, managerPod, before)
}

// served is how many Nodes of all streams have been served.
func (c *joiningCluster) served() int {
	sum := 0
	for _, stream := range c.streams {
		sum += stream.served()
	}
	return sum
}

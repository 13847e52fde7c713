package e2e

import (
	"context"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/multicidr/controller-manager/test/chaos/checker"
)

// haCluster is one with three control planes.
type haCluster struct {
	*joiningCluster
	machines []string
}

func TestThreeControlPlanes(t *testing.T) {
	c := &haCluster{newJoiningCluster(t, "ha"), []string{"control-plane", "control-plane-2", "control-plane-3"}}
	c.start(t, "--control-planes=3", "--workers=0", "--config=testdata/kubeadm-stock.yaml")
	t.Logf("%s: three control planes are up", c.sinceStart())
	static, err := checker.ParseRange("10.244.0.0/16:24")
	if err != nil {
		t.Fatal(err)
	}
	c.watch(t, []checker.Range{static}, c.machines, c.machines)
	page := readPage(t, "../../docs/install/kubeadm.md")
	c.runSteps(t, slices.Concat(c.swapSteps(page), c.faultSteps()))
}

// swapSteps are those of docs/install/kubeadm.md, with changes of the leader in between, so that both kinds lead in turn.
func (c *haCluster) swapSteps(page string) []joiningStep {
	var ours string              // the machine that is swapped first
	var stock, stockFirst string // the other two; the second one leads at the beginning
	return []joiningStep{
		{"CRD, RBAC, image and settings; the stock managers go on", startOfLeader, func(t *testing.T) {
			stockFirst = c.leadingMachine(t.Context())
			others := c.except(stockFirst)
			ours, stock = others[0], others[1]
			c.kubectl(t, "apply", "-f", "../../manifests/crds", "-f", "../../manifests/rbac")
			c.kubectl(t, "wait", "--for=condition=Established", "crd/clustercidrs.networking.x-k8s.io")
			for _, machine := range c.machines {
				c.importImage(t, machine, ourArchive)
				if err := os.CopyFS(c.diskOf(machine, "etc/kubernetes/patches"), os.DirFS("../../manifests/kubeadm/patches")); err != nil {
					t.Fatal(err)
				}
			}
			c.setControllers(t)
		}},
		{"the first manager is swapped, and stands by", startOfLeader, func(t *testing.T) {
			before := c.leader(t.Context(), managerPod)
			c.swap(t, page, ours)
			if after := c.leader(t.Context(), managerPod); after != before {
				t.Errorf("%q leads; want still %q", after, before)
			}
		}},
		{"ours leads when the stock managers are away", afterStock, func(t *testing.T) {
			c.putAway(t, stock)
			c.putAway(t, stockFirst)
			c.waitForLeaderOn(t, ours)
			c.waitForServed(t)
			c.putBack(t, stock)
			c.putBack(t, stockFirst)
		}},
		{"a stock manager leads again when ours has ended", changeOfLeader, func(t *testing.T) {
			c.putAway(t, ours)
			c.waitForLeaderOn(t, stock, stockFirst)
			c.putBack(t, ours)
		}},
		{"the second manager is swapped, and stands by", startOfLeader, func(t *testing.T) {
			// The one that leads now is the last.
			if c.leadingMachine(t.Context()) == stock {
				stock, stockFirst = stockFirst, stock
			}
			c.swap(t, page, stock)
			c.waitForLeaderOn(t, stockFirst)
		}},
		{"the last manager is swapped, and one of ours leads", afterStock, func(t *testing.T) {
			before := c.leader(t.Context(), managerPod)
			c.swap(t, page, stockFirst)
			c.waitForLeader(t, managerPod, before)
		}},
	}
}

// faultSteps are for a cluster whose managers are all ours.
func (c *haCluster) faultSteps() []joiningStep {
	return []joiningStep{
		{"the policies are installed, and a second range is added: the next Node uses it", startOfLeader, func(t *testing.T) {
			c.applyPolicies(t)
			c.apply(t, secondRange)
			c.kubectl(t, "wait", "--for=condition=Ready", "--timeout=30s", "clustercidr/second")
			c.join(t, map[string]string{"worker-1": ""})
			c.checkBlock(t, "worker-1", "10.246.0.0/16", 26)
			maps.Copy(c.blocks, c.podCIDRs(t, "worker-1"))
		}},
		{"the leader's machine loses its power", changeOfLeader, func(t *testing.T) {
			machine, before := c.leadingMachine(t.Context()), c.leader(t.Context(), managerPod)
			c.cluster.cluster(t, "kill", machine)
			c.waitForLeader(t, managerPod, before)
			c.waitForServed(t)
			c.cluster.cluster(t, "reboot", machine)
			c.waitForControlPlane(t, machine)
		}},
		{"the leader's machine is cut off from the network", changeOfLeader, func(t *testing.T) {
			machine, before := c.leadingMachine(t.Context()), c.leader(t.Context(), managerPod)
			c.cluster.cluster(t, "cut", machine)
			c.waitForLeader(t, managerPod, before)
			c.waitForServed(t)
			c.cluster.cluster(t, "mend", machine)
			c.waitForControlPlane(t, machine)
		}},
		{"the leader's machine reboots", changeOfLeader, func(t *testing.T) {
			machine, before := c.leadingMachine(t.Context()), c.leader(t.Context(), managerPod)
			c.cluster.cluster(t, "reboot", machine)
			c.waitForLeader(t, managerPod, before)
			c.waitForControlPlane(t, machine)
		}},
	}
}

// except returns the other control planes.
func (c *haCluster) except(machine string) []string {
	return slices.DeleteFunc(slices.Clone(c.machines), func(name string) bool { return name == machine })
}

func (c *haCluster) waitForLeaderOn(t *testing.T, machines ...string) {
	t.Helper()
	eventually(t, time.Minute, "the leader runs on "+strings.Join(machines, " or "), func(ctx context.Context) (bool, string) {
		machine := c.leadingMachine(ctx)
		return slices.Contains(machines, machine), machine
	})
}

// putAway ends a machine's manager, as its kubelet does when the manifest has gone.
func (c *haCluster) putAway(t *testing.T, machine string) {
	t.Helper()
	if err := os.Rename(c.diskOf(machine, manifestDir+"/"+managerPod+".yaml"), c.diskOf(machine, "etc/kubernetes/away.yaml")); err != nil {
		t.Fatal(err)
	}
}

func (c *haCluster) putBack(t *testing.T, machine string) {
	t.Helper()
	if err := os.Rename(c.diskOf(machine, "etc/kubernetes/away.yaml"), c.diskOf(machine, manifestDir+"/"+managerPod+".yaml")); err != nil {
		t.Fatal(err)
	}
}

// setControllers does what the page says of ConfigMap kubeadm-config.
func (c *haCluster) setControllers(t *testing.T) {
	t.Helper()
	config, err := c.client.CoreV1().ConfigMaps(metav1.NamespaceSystem).Get(t.Context(), "kubeadm-config", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	const before, after = "controllerManager: {}\n", `controllerManager:
  extraArgs:
  - {name: controllers, value: "*,bootstrapsigner,tokencleaner,multi-cidr-node-ipam-controller"}
`
	if !strings.Contains(config.Data["ClusterConfiguration"], before) {
		t.Fatalf("no %q in ConfigMap kubeadm-config:\n%s", before, config.Data["ClusterConfiguration"])
	}
	config.Data["ClusterConfiguration"] = strings.Replace(config.Data["ClusterConfiguration"], before, after, 1)
	if _, err := c.client.CoreV1().ConfigMaps(metav1.NamespaceSystem).Update(t.Context(), config, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// swap does step 5 on a machine with the stock manager.
func (c *haCluster) swap(t *testing.T, page, machine string) {
	t.Helper()
	want := []string{
		"- --controllers=*,bootstrapsigner,tokencleaner",
		"image: " + stockImage(),
		"- --controllers=*,bootstrapsigner,tokencleaner,multi-cidr-node-ipam-controller",
		"image: " + ourImage,
	}
	if diff := cmp.Diff(want, c.doStep5(t, page, machine)); diff != "" {
		t.Fatalf("what step 5 has changed on %s (-want +got):\n%s", machine, diff)
	}
}

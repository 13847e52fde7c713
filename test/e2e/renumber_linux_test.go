package e2e

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/clientcmd"
)

// renumberRange is a ClusterCIDR for all Nodes; the one of both families has the same IPv4 range as the one before.
func renumberRange(name, v4, v6 string) string {
	object := "apiVersion: networking.x-k8s.io/v1\nkind: ClusterCIDR\nmetadata: {name: " + name + "}\nspec:\n  perNodeHostBits: 8\n  ipv4: " + v4 + "\n"
	if v6 != "" {
		object += "  ipv6: " + v6 + "\n  ipv6PerNodeHostBits: 64\n"
	}
	return object
}

const (
	oldRange, newRange, newRange6 = "10.244.0.0/16", "10.245.0.0/16", "fd00:10:245::/48"
	bothServices                  = "10.96.0.0/16,fd00:10:96::/112"
)

// TestRenumber replaces all Nodes of a cluster three times: into another range, into two families, and back into one, as docs/use/ranges.md and
// docs/use/dual-stack.md say.
func TestRenumber(t *testing.T) {
	c := &networkCluster{cluster: newCluster(t, "renumber"), plugin: plugin{name: "bridge"}, families: 1}
	const config = "testdata/kubeadm-renumber.yaml"
	c.start(t, slices.Concat([]string{
		"--workers=2", "--config=" + config, "--patches=../../manifests/kubeadm/patches", "--image=" + ourArchive,
		"--apply=../../manifests/crds", "--apply=../../manifests/rbac",
	}, c.kubeProxy(t, config), []string{"--apply=" + writeFile(t, renumberRange("old", oldRange, ""))})...)
	nodes := []string{"worker-1", "worker-2", firstControlPlane}
	c.addPods(t, nodes...)
	c.tryAllWithin(t)

	steps := []struct {
		name string
		do   func(t *testing.T)
	}{
		{"into another range", func(t *testing.T) {
			c.apply(t, renumberRange("new", newRange, ""))
			c.disable(t, "old")
			c.replaceAll(t, nodes, newRange)
			c.waitForFree(t, "old")
			c.retire(t, "old")
		}},
		{"into two families: what is missing before", func(t *testing.T) {
			c.wantCheck(t, "-f="+writeFile(t, renumberRange("both", newRange, newRange6)),
				"Services have no IPv6 range", "Nodes have podCIDRs of one family and keep them")
		}},
		{"into two families", func(t *testing.T) {
			c.setServiceRanges(t, bothServices)
			c.apply(t, renumberRange("both", newRange, newRange6))
			c.disable(t, "new")
			c.families = 2
			c.replaceAll(t, nodes, newRange, newRange6)
			c.retire(t, "new")
			c.wantCheck(t, "", "ranges, Services and Nodes have both families")
		}},
		{"and back", func(t *testing.T) {
			c.apply(t, renumberRange("new", newRange, ""))
			c.disable(t, "both")
			c.families = 1
			c.replaceAll(t, nodes, newRange)
			c.retire(t, "both")
		}},
	}
	for _, step := range steps {
		if !t.Run(step.name, step.do) {
			return // The next ones start from here.
		}
	}
}

// tryAllWithin tries all but what leaves the cluster: the router has one family only for some of it.
func (c *networkCluster) tryAllWithin(t *testing.T) {
	t.Helper()
	c.tryOneNode(t)
	c.tryNodes(t)
	c.tryServices(t)
}

func (c *networkCluster) disable(t *testing.T, clusterCIDR string) {
	t.Helper()
	c.kubectl(t, "patch", "clustercidr", clusterCIDR, "--type=merge", `--patch={"spec":{"allocation":"Disabled"}}`)
}

// replaceAll replaces one Node after the other, and sees after each that it has a block of every range and that all Pods reach each other: those
// of Nodes that have been replaced, and those of Nodes that have not, in the families that both have.
func (c *networkCluster) replaceAll(t *testing.T, nodes []string, ranges ...string) {
	t.Helper()
	for i, node := range nodes {
		c.replaceNode(t, node)
		blocks := c.podCIDRs(t, node)[node]
		if len(blocks) != len(ranges) {
			t.Fatalf("podCIDRs of %s: %v; want one of each of %v", node, blocks, ranges)
		}
		for i, in := range ranges {
			if !netip.MustParsePrefix(in).Overlaps(blocks[i]) {
				t.Errorf("podCIDRs of %s: %v; want one of each of %v", node, blocks, ranges)
			}
		}
		c.checkNoOverlap(t)
		c.addPods(t, node)
		for _, other := range nodes {
			if other != node {
				c.askFirst(t, "a-"+node, "a-"+other)
				c.askFirst(t, "a-"+other, "a-"+node)
			}
		}
		t.Logf("%d of %d Nodes are replaced", i+1, len(nodes))
	}
	c.tryAllWithin(t)
}

// askFirst has a Pod ask another one in the family that all Nodes have.
func (c *networkCluster) askFirst(t *testing.T, from, to string) {
	t.Helper()
	c.ask(t, from, []string{serverAt(c.firstAddress(t, to), 8080)}, []string{c.firstAddress(t, from).String()})
}

func (c *networkCluster) firstAddress(t *testing.T, name string) netip.Addr {
	t.Helper()
	pod, err := c.client.CoreV1().Pods("default").Get(t.Context(), name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return podIPs(pod)[0]
}

// replaceNode does what docs/use/ranges.md says of machines of your own.
func (c *networkCluster) replaceNode(t *testing.T, node string) {
	t.Helper()
	c.kubectl(t, "drain", node, "--ignore-daemonsets", "--force")
	c.kubectl(t, "delete", "node", node)
	c.cluster.cluster(t, "reboot", node)
	c.nodes = slices.DeleteFunc(c.nodes, func(name string) bool { return name == node })
	eventually(t, 5*time.Minute, "Node "+node+" is ready again", func(ctx context.Context) (bool, string) {
		found, err := c.client.CoreV1().Nodes().Get(ctx, node, metav1.GetOptions{})
		if err != nil {
			return false, err.Error()
		}
		for _, condition := range found.Status.Conditions {
			if condition.Type == corev1.NodeReady {
				return condition.Status == corev1.ConditionTrue, condition.Message
			}
		}
		return false, "no condition"
	})
	if node == firstControlPlane {
		// kubeadm has set its label and taint, not the kubelet.
		c.exec(t, node, "kubeadm", "init", "phase", "mark-control-plane", "--config=/etc/kubernetes/kubeadm-init.yaml")
	}
}

// retire deletes a ClusterCIDR that no Node uses any more: it goes at once, also if Nodes have blocks of the same range from another one.
func (c *networkCluster) retire(t *testing.T, name string) {
	t.Helper()
	c.kubectl(t, "delete", "clustercidr", name, "--timeout=30s")
}

// waitForFree waits until all blocks of a range are free.
func (c *networkCluster) waitForFree(t *testing.T, name string) {
	t.Helper()
	config, err := clientcmd.BuildConfigFromFlags("", c.kubeconfig())
	if err != nil {
		t.Fatal(err)
	}
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	clusterCIDRs := client.Resource(schema.GroupVersionResource{Group: "networking.x-k8s.io", Version: "v1", Resource: "clustercidrs"})
	eventually(t, 30*time.Second, "no Node has a block of ClusterCIDR "+name, func(ctx context.Context) (bool, string) {
		found, err := clusterCIDRs.Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return false, err.Error()
		}
		status, _ := found.Object["status"].(map[string]any)
		counts, _ := status["ipv4"].(map[string]any)
		return counts["allocated"] == int64(0) && counts["free"] == counts["total"], fmt.Sprint(status)
	})
}

// setServiceRanges gives the API server and the manager the Services' ranges, as a kubeadm user does who edits networking.serviceSubnet.
func (c *networkCluster) setServiceRanges(t *testing.T, ranges string) {
	t.Helper()
	const config = "/etc/kubernetes/kubeadm-init.yaml"
	c.exec(t, firstControlPlane, "sed", "-i", "s#serviceSubnet: .*#serviceSubnet: "+ranges+"#", config)
	c.exec(t, firstControlPlane, "kubeadm", "init", "phase", "control-plane", "all", "--config="+config)
	eventually(t, 3*time.Minute, "Services have ranges of both families", func(ctx context.Context) (bool, string) {
		found, err := c.client.NetworkingV1().ServiceCIDRs().Get(ctx, "kubernetes", metav1.GetOptions{})
		if err != nil {
			return false, err.Error()
		}
		return strings.Join(found.Spec.CIDRs, ",") == ranges, fmt.Sprint(found.Spec.CIDRs)
	})
}

// wantCheck wants these in what `kubectl node-ipam check --before dual-stack` says.
func (c *networkCluster) wantCheck(t *testing.T, flag string, want ...string) {
	t.Helper()
	args := []string{"check", "--kubeconfig=" + c.kubeconfig(), "--before=dual-stack"}
	if flag != "" {
		args = append(args, flag)
	}
	output, err := exec.CommandContext(t.Context(), c.bin("kubectl-node_ipam"), args...).CombinedOutput()
	if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	t.Logf("check --before=dual-stack:\n%s", output)
	for _, sentence := range want {
		if !strings.Contains(string(output), sentence) {
			t.Errorf("check does not say %q", sentence)
		}
	}
}

package e2e

import (
	"context"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
)

// standalone is the chart's release, its Deployment and its lease.
const standalone = "node-ipam-controller"

var standaloneArchive = "../../bin/images/node-ipam-controller-linux-" + runtime.GOARCH + ".tar"

const standaloneRanges = `
apiVersion: networking.x-k8s.io/v1
kind: ClusterCIDR
metadata: {name: all}
spec:
  ipv4: 10.128.0.0/12
  perNodeHostBits: 8
---
apiVersion: networking.x-k8s.io/v1
kind: ClusterCIDR
metadata: {name: edge}
spec:
  nodeSelector: {nodeSelectorTerms: [{matchExpressions: [{key: example.com/pool, operator: In, values: [edge]}]}]}
  ipv4: 10.245.0.0/20
  perNodeHostBits: 4
`

// The stock manager stays as it is and allocates nothing; the chart's Pods do. No Service works in these clusters, as in every cluster in
// which kube-proxy waits for podCIDRs: the Pods have to start without.
func TestStandalone(t *testing.T) {
	c := newCluster(t, "standalone")
	waitForUp := c.startUnserved(t, "--workers=1", "--config=testdata/kubeadm-standalone.yaml", "--image="+standaloneArchive)
	nodes := []string{"control-plane", "worker-1"}

	steps := []struct {
		name string
		do   func(t *testing.T)
	}{
		{"without a ClusterCIDR the Pods of the chart run, and Nodes wait", func(t *testing.T) {
			c.apply(t, c.renderChart(t))
			c.waitForRollout(t)
			for _, name := range nodes {
				c.waitForNodeEvent(t, name, "CIDRNotAvailable")
				node, err := c.client.CoreV1().Nodes().Get(t.Context(), name, metav1.GetOptions{})
				if err != nil {
					t.Fatal(err)
				}
				if len(node.Spec.PodCIDRs) > 0 {
					t.Errorf("Node %s has podCIDRs %v; want none", name, node.Spec.PodCIDRs)
				}
			}
		}},
		{"with ClusterCIDRs the Nodes are served, become ready, and their Pods reach each other", func(t *testing.T) {
			c.apply(t, standaloneRanges)
			if err := waitForUp(); err != nil {
				t.Fatal(err)
			}
			for _, node := range nodes {
				c.checkBlock(t, node, "10.128.0.0/12", 24)
			}
			c.checkNoOverlap(t)
			c.apply(t, daemonSet)
			c.checkPodNetwork(t, nodes...)
		}},
		{"the leader's Pod goes while Nodes join: the other replica goes on, nothing changes for Nodes that were served", func(t *testing.T) {
			blocks, containers := c.podCIDRs(t, nodes...), c.containers(t)
			stream := c.startNodeStream(t, "failover", 0)
			stream.waitForMore(t, 3)
			before := c.leader(t.Context(), standalone)
			leader, _, _ := strings.Cut(before, "_")
			replicas := c.replicas(t)
			// Not on this Node again, and the port of the other one is taken: until there is one more Node the standby is alone.
			c.kubectl(t, "taint", "node", replicas[leader], "example.com/maintenance=:NoSchedule")
			c.kubectl(t, "delete", "pod", leader, "--namespace=kube-system")
			c.waitForLeader(t, standalone, before)
			stream.waitForMore(t, 3)
			stream.end()
			after, _, _ := strings.Cut(c.leader(t.Context(), standalone), "_")
			if after == leader || replicas[after] == "" {
				t.Errorf("%s leads after the end of %s; want the other one of %v", after, leader, replicas)
			}
			c.join(t, map[string]string{"worker-2": "example.com/pool=edge"})
			c.checkBlock(t, "worker-2", "10.245.0.0/20", 28)
			t.Logf("%d Nodes served; the longest wait was %s", stream.served(), stream.longestWait())
			if longest := stream.longestWait(); longest > leaseDuration {
				t.Errorf("a Node waited %s for its podCIDRs", longest)
			}
			if diff := cmp.Diff(blocks, c.podCIDRs(t, nodes...), comparePrefixes); diff != "" {
				t.Errorf("podCIDRs of the Nodes that were there before (-want +got):\n%s", diff)
			}
			delete(containers, metav1.NamespaceSystem+"/"+leader)
			c.checkContainers(t, containers)
			c.checkNoOverlap(t)
		}},
		{"the new Node runs Pods: a replica in place of the lost one, and one that reaches the others", func(t *testing.T) {
			c.waitForRollout(t)
			c.checkPodNetwork(t, append(nodes, "worker-2")...)
		}},
	}
	for _, step := range steps {
		if !t.Run(step.name, step.do) {
			return // The next ones start from here.
		}
	}
}

// renderChart is what Helm makes of the chart for two replicas that ask the API server at its own address.
func (c *cluster) renderChart(t *testing.T) string {
	t.Helper()
	admin, err := clientcmd.BuildConfigFromFlags("", c.disk("etc/kubernetes/admin.conf"))
	if err != nil {
		t.Fatal(err)
	}
	objects, err := run(t.Context(), nil, c.bin("helm"), "template", standalone, "../../manifests/charts/node-ipam-controller",
		"--namespace="+metav1.NamespaceSystem, "--set=image.repository=localhost/multicidr/node-ipam-controller", "--set=replicaCount=2", "--set=apiServer="+admin.Host)
	if err != nil {
		t.Fatal(err)
	}
	return objects
}

func (c *cluster) waitForRollout(t *testing.T) {
	t.Helper()
	c.kubectl(t, "rollout", "status", "deployment/"+standalone, "--namespace="+metav1.NamespaceSystem, "--timeout=90s")
}

// replicas are the Pods of the chart, and their Nodes.
func (c *cluster) replicas(t *testing.T) map[string]string {
	t.Helper()
	pods, err := c.client.CoreV1().Pods(metav1.NamespaceSystem).List(t.Context(), metav1.ListOptions{LabelSelector: "app.kubernetes.io/name=" + standalone})
	if err != nil {
		t.Fatal(err)
	}
	nodes := map[string]string{}
	for _, pod := range pods.Items {
		nodes[pod.Name] = pod.Spec.NodeName
	}
	return nodes
}

func (c *cluster) waitForNodeEvent(t *testing.T, node, reason string) {
	t.Helper()
	eventually(t, 30*time.Second, "event "+reason+" on Node "+node, func(ctx context.Context) (bool, string) {
		events, err := c.client.CoreV1().Events(metav1.NamespaceDefault).List(ctx, metav1.ListOptions{FieldSelector: "involvedObject.kind=Node,involvedObject.name=" + node})
		if err != nil {
			return false, err.Error()
		}
		var seen []string
		for _, event := range events.Items {
			if event.Reason == reason {
				return true, ""
			}
			seen = append(seen, event.Reason)
		}
		return false, strings.Join(seen, ", ")
	})
}

package e2e

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// daemonSet runs one server Pod on every Node.
const daemonSet = `
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: server}
spec:
  selector: {matchLabels: {app: server}}
  template:
    metadata: {labels: {app: server}}
    spec:
      tolerations: [{operator: Exists}]
      terminationGracePeriodSeconds: 1
      containers:
      - {name: server, image: "example.com/e2e/pod:v1", imagePullPolicy: Never}
`

// serverPods waits until the DaemonSet's Pods run on the Nodes, and returns them by Node.
func (c *cluster) serverPods(t *testing.T, nodes ...string) map[string]*corev1.Pod {
	t.Helper()
	found := map[string]*corev1.Pod{}
	eventually(t, 90*time.Second, "a running Pod on each of "+strings.Join(nodes, ", "), func(ctx context.Context) (bool, string) {
		pods, err := c.client.CoreV1().Pods("default").List(ctx, metav1.ListOptions{LabelSelector: "app=server"})
		if err != nil {
			return false, err.Error()
		}
		clear(found)
		var seen []string
		for _, pod := range pods.Items {
			seen = append(seen, fmt.Sprintf("%s on %q: %s %v", pod.Name, pod.Spec.NodeName, pod.Status.Phase, pod.Status.PodIPs))
			if pod.Status.Phase == corev1.PodRunning && len(pod.Status.PodIPs) > 0 {
				found[pod.Spec.NodeName] = &pod
			}
		}
		missing := slices.ContainsFunc(nodes, func(node string) bool { return found[node] == nil })
		return !missing, strings.Join(seen, "; ")
	})
	return found
}

// waitForRestart waits until the kubelet has restarted the Pod's container and says so: after a reboot the API server shows for a while
// what was before.
func (c *cluster) waitForRestart(t *testing.T, before *corev1.Pod) {
	t.Helper()
	eventually(t, 90*time.Second, "Pod "+before.Name+" runs again", func(ctx context.Context) (bool, string) {
		pod, err := c.client.CoreV1().Pods(before.Namespace).Get(ctx, before.Name, metav1.GetOptions{})
		if err != nil {
			return false, err.Error()
		}
		status := pod.Status.ContainerStatuses[0]
		return status.Ready && status.ContainerID != before.Status.ContainerStatuses[0].ContainerID, fmt.Sprintf("%s: ready=%t %v", status.ContainerID, status.Ready, status.State)
	})
}

func podIPs(pod *corev1.Pod) []netip.Addr {
	var addresses []netip.Addr
	for _, ip := range pod.Status.PodIPs {
		addresses = append(addresses, netip.MustParseAddr(ip.IP))
	}
	return addresses
}

// checkPodNetwork: on each of the Nodes runs a Pod with an address of every family, from its Node's block, and every Pod reaches
// every other, which sees it under its own address.
func (c *cluster) checkPodNetwork(t *testing.T, nodes ...string) {
	t.Helper()
	blocks := c.podCIDRs(t, nodes...)
	pods := c.serverPods(t, nodes...)
	for _, node := range nodes {
		addresses := podIPs(pods[node])
		if len(addresses) != len(blocks[node]) {
			t.Errorf("the Pod on %s has addresses %v; want one of each of %v", node, addresses, blocks[node])
		}
		for _, address := range addresses {
			if !slices.ContainsFunc(blocks[node], func(block netip.Prefix) bool { return block.Contains(address) }) {
				t.Errorf("the Pod on %s has address %s, which is in none of %v", node, address, blocks[node])
			}
		}
	}
	for _, from := range nodes {
		var urls, want []string
		for _, to := range nodes {
			for i, address := range podIPs(pods[to]) {
				if from != to {
					urls = append(urls, "http://"+netip.AddrPortFrom(address, 8080).String())
					want = append(want, podIPs(pods[from])[i].String())
				}
			}
		}
		got := c.kubectl(t, append([]string{"exec", pods[from].Name, "--", "/usr/local/bin/e2e-pod"}, urls...)...)
		if got := strings.Fields(got); !slices.Equal(got, want) {
			t.Errorf("the Pod on %s asked %v and was seen as %v, want %v", from, urls, got, want)
		}
	}
}

// containers are all that run in the cluster, save for the manager's: where they are, and which they are.
func (c *cluster) containers(t *testing.T) map[string]string {
	t.Helper()
	pods, err := c.client.CoreV1().Pods(metav1.NamespaceAll).List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]string{}
	for _, pod := range pods.Items {
		for _, status := range pod.Status.ContainerStatuses {
			if !strings.HasPrefix(pod.Name, managerPod) {
				found[pod.Namespace+"/"+pod.Name] = fmt.Sprintf("%s, restarted %d times, %v", status.ContainerID, status.RestartCount, pod.Status.PodIPs)
			}
		}
	}
	return found
}

// checkContainers sees that all of these run still, without a restart.
func (c *cluster) checkContainers(t *testing.T, before map[string]string) {
	t.Helper()
	after := c.containers(t)
	for name, container := range before {
		if after[name] != container {
			t.Errorf("%s was %s, and is %q now", name, container, after[name])
		}
	}
}

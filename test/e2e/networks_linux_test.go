package e2e

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// networkRanges are what Nodes get blocks of, by the Node that is the range's: the first is for whoever has no range of its own, and the third lies outside
// of kubeadm's podSubnet, which kube-proxy and flannel know.
var networkRanges = map[string]struct{ name, v4, v6 string }{
	"node-1": {"first", "10.244.0.0/16", "fd00:10:244::/48"},
	"node-2": {"second", "10.246.0.0/16", "fd00:10:246::/48"},
	"node-3": {"outside", "10.128.0.0/16", "fd00:10:128::/48"},
}

// rangeOf is the ClusterCIDR of a Node's range.
func rangeOf(node string) string {
	r := networkRanges[node]
	selector := ""
	if r.name != "first" {
		selector = "nodeSelector: {nodeSelectorTerms: [{matchExpressions: [{key: example.com/range, operator: In, values: [" + r.name + "]}]}]}"
	}
	return fmt.Sprintf(`
apiVersion: networking.x-k8s.io/v1
kind: ClusterCIDR
metadata: {name: %s}
spec:
  %s
  ipv4: %s
  ipv6: %s
  perNodeHostBits: 8
  ipv6PerNodeHostBits: 64
`, r.name, selector, r.v4, r.v6)
}

// networkCluster is a cluster with a network plugin and kube-proxy.
type networkCluster struct {
	*cluster
	plugin   plugin
	nodes    []string // those on which Pods have a network
	families int      // of Pods and Services: 1 is IPv4 only
}

// networkCases are tried one after the other on one cluster for each plugin. All of them are about both families. What they return stands in the
// table.
var networkCases = []struct {
	name string
	try  func(*networkCluster, *testing.T) string
}{
	{"Pods of one Node", (*networkCluster).tryOneNode},
	{"Pods of two Nodes", (*networkCluster).tryNodes},
	{"Service", func(c *networkCluster, t *testing.T) string { return c.tryServices(t) }},
	{"to outside", (*networkCluster).tryOutside},
	{"second range, added live", (*networkCluster).tryAddedRange},
	{"range outside of podSubnet", (*networkCluster).tryRangeOutside},
	{"its Services: iptables, ClusterCIDR", proxyCase("iptables", "ClusterCIDR")},
	// In turn, since each start cleans up behind the other mode: kube-proxy v1.37.1 that finds its own nftables, with nft 1.0.6 of Debian 12, loses
	// Services until its next full synchronization.
	{"nftables, ClusterCIDR", proxyCase("nftables", "ClusterCIDR")},
	{"iptables, NodeCIDR", proxyCase("iptables", "NodeCIDR")},
	{"nftables, NodeCIDR", proxyCase("nftables", "NodeCIDR")},
	{"Node replaced", (*networkCluster).tryReplacedNode},
	{"range retired", (*networkCluster).tryRetiredRange},
}

// TestNetworks runs Pods on real network plugins. It prints a table of plugins and cases at the end.
func TestNetworks(t *testing.T) {
	results := map[string][]string{}
	for _, p := range plugins {
		t.Run(p.name, func(t *testing.T) {
			c := startNetworkCluster(t, p)
			for _, tc := range networkCases {
				result := "not run"
				t.Run(tc.name, func(t *testing.T) {
					result = "FAILED"
					said := tc.try(c, t)
					if !t.Failed() {
						result = said
					}
				})
				results[p.name] = append(results[p.name], result)
			}
		})
	}
	fmt.Print("\n| case |")
	for _, p := range plugins {
		fmt.Printf(" %s |", p.name)
	}
	fmt.Print("\n|---|" + strings.Repeat("---|", len(plugins)) + "\n")
	for i, tc := range networkCases {
		fmt.Printf("| %s |", tc.name)
		for _, p := range plugins {
			result := "not run"
			if i < len(results[p.name]) {
				result = results[p.name][i]
			}
			fmt.Printf(" %s |", result)
		}
		fmt.Println()
	}
	fmt.Println()
}

const works = "works"

func startNetworkCluster(t *testing.T, p plugin) *networkCluster {
	t.Helper()
	c := &networkCluster{cluster: newCluster(t, "networks-"+strings.ReplaceAll(p.name, " ", "-")), plugin: p, families: 2}
	begin := time.Now()
	c.start(t, slices.Concat([]string{
		"--workers=0", "--config=testdata/kubeadm-networks.yaml", "--patches=../../manifests/kubeadm/patches", "--image=" + ourArchive,
		"--apply=../../manifests/crds", "--apply=../../manifests/rbac",
	}, c.kubeProxy(t, "testdata/kubeadm-networks.yaml"), p.up(t, c.cluster), []string{"--apply=" + writeFile(t, rangeOf("node-1"))})...)
	c.serveOutside(t)
	c.join(t, map[string]string{"node-1": ""})
	c.addPods(t, firstControlPlane, "node-1")
	t.Logf("up after %s", time.Since(begin).Round(time.Second))
	return c
}

func writeFile(t *testing.T, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "objects.yaml")
	if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

// outside are the addresses of the router, which is no Node and has no Pods. Where a plugin has its own routes the router knows none to Pods.
var outside = []string{"http://172.18.0.1:8080", "http://[fd00:172:18::1]:8080"}

func (c *networkCluster) serveOutside(t *testing.T) {
	t.Helper()
	pid, err := os.ReadFile(filepath.Join(c.dir, "router", "pid"))
	if err != nil {
		t.Fatal(err)
	}
	server := exec.Command("nsenter", "--target", string(pid), "--net", c.bin("e2e-pod"))
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := server.Process.Kill(); err != nil {
			t.Error(err)
		}
		_ = server.Wait() // It says that it was killed.
	})
}

// nodePods are two Pods of a Node, and a Service for the first one.
const nodePods = `
apiVersion: v1
kind: Pod
metadata: {name: a-NODE, labels: {node: NODE}}
spec:
  nodeName: NODE
  tolerations: [{operator: Exists}]
  terminationGracePeriodSeconds: 1
  containers:
  - {name: server, image: "example.com/e2e/pod:v1", imagePullPolicy: Never}
---
apiVersion: v1
kind: Pod
metadata: {name: b-NODE}
spec:
  nodeName: NODE
  tolerations: [{operator: Exists}]
  terminationGracePeriodSeconds: 1
  containers:
  - {name: server, image: "example.com/e2e/pod:v1", imagePullPolicy: Never}
---
apiVersion: v1
kind: Service
metadata: {name: on-NODE}
spec:
  selector: {node: NODE}
  ipFamilyPolicy: POLICY
  ports: [{port: 80, targetPort: 8080}]
`

// addPods runs Pods on Nodes and looks that their addresses are of their Node's blocks.
func (c *networkCluster) addPods(t *testing.T, nodes ...string) {
	t.Helper()
	policy := "SingleStack"
	if c.families == 2 {
		policy = "RequireDualStack"
	}
	for _, node := range nodes {
		c.apply(t, strings.NewReplacer("NODE", node, "POLICY", policy).Replace(nodePods))
		c.nodes = append(c.nodes, node)
	}
	blocks := c.podCIDRs(t, nodes...)
	for _, node := range nodes {
		for _, address := range append(c.pod(t, "a-"+node), c.pod(t, "b-"+node)...) {
			if !slices.ContainsFunc(blocks[node], func(block netip.Prefix) bool { return block.Contains(address) }) {
				t.Errorf("the Pod on %s has address %s, which is in none of %v", node, address, blocks[node])
			}
		}
	}
}

// pod waits until the Pod runs, and returns its addresses, IPv4 first.
func (c *networkCluster) pod(t *testing.T, name string) []netip.Addr {
	t.Helper()
	var addresses []netip.Addr
	eventually(t, 5*time.Minute, fmt.Sprintf("Pod %s runs with %d addresses", name, c.families), func(ctx context.Context) (bool, string) {
		pod, err := c.client.CoreV1().Pods("default").Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return false, err.Error()
		}
		addresses = podIPs(pod)
		return pod.Status.Phase == corev1.PodRunning && len(addresses) == c.families, fmt.Sprint(pod.Status.Phase, addresses)
	})
	return addresses
}

// ask waits until servers see the Pod as it is wanted, in the order of the URLs: a plugin learns of a new Node some time after it is there.
func (c *networkCluster) ask(t *testing.T, pod string, urls, want []string) {
	t.Helper()
	eventually(t, 3*time.Minute, fmt.Sprintf("%s asks %v and is seen as %v", pod, urls, want), func(ctx context.Context) (bool, string) {
		ctx, cancel := context.WithTimeout(ctx, 20*time.Second) // An exec may hang while its Node's network changes.
		defer cancel()
		args := append([]string{"--kubeconfig=" + c.kubeconfig(), "exec", pod, "--", "/usr/local/bin/e2e-pod"}, urls...)
		got, err := run(ctx, nil, c.bin("kubectl"), args...)
		if err != nil {
			return false, err.Error()
		}
		return slices.Equal(strings.Fields(got), want), got
	})
}

func serverAt(address netip.Addr, port uint16) string {
	return "http://" + netip.AddrPortFrom(address, port).String()
}

// askPod has a Pod ask another one, which is to see it under its own addresses.
func (c *networkCluster) askPod(t *testing.T, from, to string) {
	t.Helper()
	var own []string
	for _, address := range c.pod(t, from) {
		own = append(own, address.String())
	}
	c.askPodAs(t, own, from, to)
}

func (c *networkCluster) askPodAs(t *testing.T, seenAs []string, from, to string) {
	t.Helper()
	var urls []string
	for _, address := range c.pod(t, to) {
		urls = append(urls, serverAt(address, 8080))
	}
	c.ask(t, from, urls, seenAs)
}

func (c *networkCluster) tryOneNode(t *testing.T) string {
	for _, node := range c.nodes {
		c.askPod(t, "b-"+node, "a-"+node)
	}
	return works
}

func (c *networkCluster) tryNodes(t *testing.T) string {
	for _, from := range c.nodes {
		for _, to := range c.nodes {
			if from != to {
				c.askPod(t, "a-"+from, "a-"+to)
			}
		}
	}
	return works
}

// tryServices has Pods ask the Service of the next Node. The server is to see them under their own addresses, save for those whose Service traffic is
// masqueraded.
func (c *networkCluster) tryServices(t *testing.T, masqueraded ...string) string {
	t.Helper()
	for i, from := range c.nodes {
		to := c.nodes[(i+1)%len(c.nodes)]
		service, err := c.client.CoreV1().Services("default").Get(t.Context(), "on-"+to, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		own, node := c.pod(t, "a-"+from), c.nodeAddresses(t, from)
		var urls, want []string
		for family, ip := range service.Spec.ClusterIPs {
			urls = append(urls, serverAt(netip.MustParseAddr(ip), 80))
			if slices.Contains(masqueraded, from) {
				want = append(want, node[family])
			} else {
				want = append(want, own[family].String())
			}
		}
		c.ask(t, "a-"+from, urls, want)
	}
	return works
}

// nodeAddresses are those of a machine, IPv4 first.
func (c *networkCluster) nodeAddresses(t *testing.T, name string) []string {
	t.Helper()
	node, err := c.client.CoreV1().Nodes().Get(t.Context(), name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var addresses []string
	for _, address := range node.Status.Addresses {
		if address.Type == corev1.NodeInternalIP {
			addresses = append(addresses, address.Address)
		}
	}
	return addresses
}

func (c *networkCluster) tryOutside(t *testing.T) string {
	for _, from := range c.nodes {
		want := c.nodeAddresses(t, from)
		if !c.plugin.masquerades {
			want = nil
			for _, own := range c.pod(t, "a-"+from) {
				want = append(want, own.String())
			}
		}
		c.ask(t, "a-"+from, outside, want)
	}
	if !c.plugin.masquerades {
		return "works, routed"
	}
	return "works, masqueraded"
}

// tryAll tries all that there is between Pods, and from them.
func (c *networkCluster) tryAll(t *testing.T) {
	t.Helper()
	c.tryOneNode(t)
	c.tryNodes(t)
	c.tryServices(t)
	c.tryOutside(t)
}

// addRange creates the range of a Node, and joins that Node.
func (c *networkCluster) addRange(t *testing.T, node string) {
	t.Helper()
	r := networkRanges[node]
	c.apply(t, rangeOf(node))
	c.kubectl(t, "wait", "--for=condition=Ready", "--timeout=30s", "clustercidr/"+r.name)
	c.join(t, map[string]string{node: "example.com/range=" + r.name})
	block := c.podCIDRs(t, node)[node]
	if len(block) != 2 || !netip.MustParsePrefix(r.v4).Overlaps(block[0]) || !netip.MustParsePrefix(r.v6).Overlaps(block[1]) {
		t.Fatalf("podCIDRs of %s: %v; want a block of each of %s and %s", node, block, r.v4, r.v6)
	}
}

func (c *networkCluster) tryAddedRange(t *testing.T) string {
	before := c.ownContainers(t)
	c.addRange(t, "node-2")
	c.addPods(t, "node-2")
	c.tryAll(t)
	c.checkContainers(t, before)
	return works
}

// ownContainers are those of the test's own Pods: a busy host may restart a scheduler that could not renew its Lease.
func (c *networkCluster) ownContainers(t *testing.T) map[string]string {
	t.Helper()
	all := c.containers(t)
	maps.DeleteFunc(all, func(name, _ string) bool { return !strings.HasPrefix(name, "default/") })
	return all
}

// tryRangeOutside adds a range that nothing knows but the controller.
func (c *networkCluster) tryRangeOutside(t *testing.T) string {
	before := c.ownContainers(t)
	c.addRange(t, "node-3")
	if refusal := c.plugin.refusal; refusal != "" {
		eventually(t, 2*time.Minute, "the plugin on node-3 says "+refusal, func(context.Context) (bool, string) {
			log := c.podLogs(t, "node-3")
			return strings.Contains(log, refusal), log[max(0, len(log)-1000):]
		})
		c.removeRangeOutside(t, before)
		return "**refused**: " + refusal
	}
	if c.plugin.oneRange {
		inside := slices.Clone(c.nodes)
		c.addPods(t, "node-3")
		for _, node := range inside {
			c.askPodAs(t, c.nodeAddresses(t, node), "a-"+node, "a-node-3")
			c.askPod(t, "a-node-3", "a-"+node)
		}
		c.removeRangeOutside(t, before)
		return "**source lost**"
	}
	c.addPods(t, "node-3")
	c.tryOneNode(t)
	c.tryNodes(t)
	c.tryOutside(t)
	c.checkContainers(t, before)
	return works
}

// removeRangeOutside ends what is in the range outside, which others do not notice.
func (c *networkCluster) removeRangeOutside(t *testing.T, before map[string]string) {
	t.Helper()
	c.removeNode(t, "node-3")
	c.kubectl(t, "delete", "clustercidr", "outside")
	c.tryAll(t)
	c.checkContainers(t, before)
}

// podLogs are those of all Pods on a machine.
func (c *networkCluster) podLogs(t *testing.T, machine string) string {
	t.Helper()
	var all []byte
	for _, path := range glob(t, c.diskOf(machine, "var/log/pods/*/*/*.log")) {
		content, err := os.ReadFile(path)
		if err != nil && !errors.Is(err, fs.ErrNotExist) { // The kubelet keeps the last ones only.
			t.Fatal(err)
		}
		all = append(all, content...)
	}
	return string(all)
}

// apply tries again: the API server of a busy host may be restarted.
func (c *networkCluster) apply(t *testing.T, objects string) {
	t.Helper()
	eventually(t, 3*time.Minute, "objects are applied", func(ctx context.Context) (bool, string) {
		_, err := run(ctx, []byte(objects), c.bin("kubectl"), "--kubeconfig="+c.kubeconfig(), "apply", "-f", "-")
		return err == nil, fmt.Sprint(err)
	})
}

// removeNode ends a machine for good.
func (c *networkCluster) removeNode(t *testing.T, node string) {
	t.Helper()
	c.cluster.cluster(t, "remove", node)
	c.kubectl(t, "delete", "node", node)
	c.kubectl(t, "delete", "pods", "--force", "--field-selector=spec.nodeName="+node, "--all-namespaces")
	c.nodes = slices.DeleteFunc(c.nodes, func(name string) bool { return name == node })
}

// proxyCase restarts kube-proxy in a mode, and sees as whom Pods reach Services: with ClusterCIDR those of a range that it does not know are
// masqueraded, unless the plugin gives them their Services.
func proxyCase(mode, detectLocal string) func(*networkCluster, *testing.T) string {
	return func(c *networkCluster, t *testing.T) string {
		c.setProxyMode(t, mode, detectLocal)
		if detectLocal == "ClusterCIDR" && slices.Contains(c.nodes, "node-3") && !c.plugin.balances {
			c.tryServices(t, "node-3")
			return "**source lost**"
		}
		return c.tryServices(t)
	}
}

// tryReplacedNode has another machine join under the name of one that is gone.
func (c *networkCluster) tryReplacedNode(t *testing.T) string {
	c.removeNode(t, "node-2")
	c.join(t, map[string]string{"node-2": "example.com/range=second"})
	c.addPods(t, "node-2")
	c.tryAll(t)
	return works
}

// tryRetiredRange deletes a ClusterCIDR that a Node uses, and then that Node: the ClusterCIDR goes, and so do the routes to its blocks.
func (c *networkCluster) tryRetiredRange(t *testing.T) string {
	block := c.podCIDRs(t, "node-2")["node-2"]
	c.kubectl(t, "delete", "clustercidr", "second", "--wait=false")
	c.tryAll(t)
	c.removeNode(t, "node-2")
	c.kubectl(t, "wait", "--for=delete", "--timeout=30s", "clustercidr/second")
	eventually(t, 3*time.Minute, "control-plane has no route to "+fmt.Sprint(block), func(context.Context) (bool, string) {
		routes := c.exec(t, firstControlPlane, "ip", "route") + c.exec(t, firstControlPlane, "ip", "-6", "route")
		return !slices.ContainsFunc(block, func(b netip.Prefix) bool { return strings.Contains(routes, b.String()) }), routes
	})
	c.tryAll(t)
	return works
}

package e2e

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/multicidr/controller-manager/test/chaos/checker"
)

const (
	// What docs/operators/kubeadm.md and fencing.md say of pending Nodes: a Lease that was not released has to run out, a standby looks at
	// it every retry period, and after a stock manager the controller waits for --node-ipam-takeover-delay.
	retryPeriod   = 2 * time.Second
	takeoverDelay = time.Minute
	// startOfLeader is what it takes a new leader to read everything and to start, here where three control planes share the CPUs, and
	// etcd to elect a leader of its own, of which each round takes three to six seconds.
	startOfLeader = 10 * time.Second

	changeOfLeader = leaseDuration + retryPeriod + startOfLeader
	afterStock     = changeOfLeader + takeoverDelay
)

// haCluster is one with three control planes, with Nodes that join all the time.
type haCluster struct {
	*cluster
	machines []string
	blocks   map[string][]netip.Prefix // of the machines, when all began
	history  *history
	streams  []*nodeStream
	began    time.Time
}

func TestThreeControlPlanes(t *testing.T) {
	c := &haCluster{cluster: newCluster(t, "ha"), machines: []string{"control-plane", "control-plane-2", "control-plane-3"}, began: time.Now()}
	c.start(t, "--control-planes=3", "--workers=0", "--config=testdata/kubeadm-stock.yaml")
	t.Logf("%s: three control planes are up", c.sinceStart())
	c.blocks = c.podCIDRs(t, c.machines...)
	static, err := checker.ParseRange("10.244.0.0/16:24")
	if err != nil {
		t.Fatal(err)
	}
	c.history = c.startHistory(t, static, netip.MustParsePrefix("10.96.0.0/16"), c.machines...)
	for _, name := range []string{"a", "b", "c"} {
		c.streams = append(c.streams, c.startNodeStream(t, "stream-"+name, 300*time.Millisecond))
	}
	page := readPage(t, "../../docs/operators/kubeadm.md")
	steps := slices.Concat(c.swapSteps(page), c.faultSteps())
	for _, step := range steps {
		begin := time.Now()
		if !t.Run(step.name, step.do) {
			return // The next ones start from here.
		}
		c.judge(t, step, begin)
	}
	for _, stream := range c.streams {
		stream.end()
	}
	c.history.take(t)
	c.history.check(t)
	summary := c.history.checker.Summary()
	t.Logf("%s: %d revisions, %d Nodes created, %d served, %d leaders", c.sinceStart(), summary.Revisions, summary.Created, summary.Served, summary.Leaders)
	c.checkNoOverlap(t)
}

func (c *haCluster) sinceStart() time.Duration { return time.Since(c.began).Round(time.Second) }

// haStep is followed by a look at all Nodes that were served meanwhile.
type haStep struct {
	name     string
	patience time.Duration // how long a Node may be pending
	do       func(t *testing.T)
}

// judge waits until new Nodes are served, and looks at the waits of all since the last time, and at the Nodes that were there before.
func (c *haCluster) judge(t *testing.T, step haStep, begin time.Time) {
	t.Helper()
	for _, stream := range c.streams {
		stream.waitForMore(t, 3)
	}
	served := c.history.take(t)
	longest := served[0] // The streams go on only when Nodes are served.
	wait := longest.wait().Round(100 * time.Millisecond)
	t.Logf("%s: %s: took %s, then %s leads, %d Nodes served; the longest wait was %s (%s), of %s allowed", c.sinceStart(), step.name,
		time.Since(begin).Round(time.Second), c.leadingMachine(t.Context()), len(served), wait, longest.name, step.patience)
	if wait > step.patience {
		t.Errorf("%s: Node %s was pending for %s; want no more than %s", step.name, longest.name, wait, step.patience)
	}
	c.history.check(t)
	c.checkNoOverlap(t)
	if diff := cmp.Diff(c.blocks, c.podCIDRs(t, slices.Sorted(maps.Keys(c.blocks))...), comparePrefixes); diff != "" {
		t.Errorf("podCIDRs of the Nodes that were there before (-want +got):\n%s", diff)
	}
}

// swapSteps are those of docs/operators/kubeadm.md, with changes of the leader in between, so that both kinds lead in turn.
func (c *haCluster) swapSteps(page string) []haStep {
	var ours string              // the machine that is swapped first
	var stock, stockFirst string // the other two; the second one leads at the beginning
	return []haStep{
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
func (c *haCluster) faultSteps() []haStep {
	return []haStep{
		{"the policies are installed, and a second range is added: the next Node uses it", startOfLeader, func(t *testing.T) {
			for _, file := range []string{"keep-leases", "policy", "kube-controller-manager", "created-nodes"} {
				c.kubectl(t, "apply", "-f", "../../manifests/fencing/"+file+".yaml")
			}
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

// leadingMachine is where the leader runs: its identity begins with the name of its host.
func (c *cluster) leadingMachine(ctx context.Context) string {
	machine, _, _ := strings.Cut(c.leader(ctx, managerPod), "_")
	return machine
}

func (c *haCluster) waitForLeaderOn(t *testing.T, machines ...string) {
	t.Helper()
	eventually(t, time.Minute, "the leader runs on "+strings.Join(machines, " or "), func(ctx context.Context) (bool, string) {
		machine := c.leadingMachine(ctx)
		return slices.Contains(machines, machine), machine
	})
}

// waitForServed waits until all that wait now have been served.
func (c *haCluster) waitForServed(t *testing.T) {
	t.Helper()
	for _, stream := range c.streams {
		stream.waitForMore(t, 0)
	}
}

// waitForControlPlane waits until the API server of the machine serves, with the etcd there and its other members.
func (c *haCluster) waitForControlPlane(t *testing.T, machine string) {
	t.Helper()
	server := "--server=https://" + c.addressOf(t, machine) + ":6443"
	eventually(t, 2*time.Minute, "the API server of "+machine+" is ready", func(ctx context.Context) (bool, string) {
		output, err := run(ctx, nil, c.bin("cluster"), "--dir="+c.dir, "exec", machine, "--", "kubectl", server, "--request-timeout=5s", "get", "--raw=/readyz")
		return err == nil, fmt.Sprint(output, err)
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

// swap runs the commands of step 5 of the page on a machine, and waits as the page says: until the Pod is ready.
func (c *haCluster) swap(t *testing.T, page, machine string) {
	t.Helper()
	// diff, the last command, ends with 1 because there is a difference.
	diff := c.exec(t, machine, "bash", "-c", "mkdir -p /root; "+page+"\n[[ $? == 1 ]]")
	changes := regexp.MustCompile(`(?m)^[<>] +(.*)$`).FindAllStringSubmatch(diff, -1)
	var got []string
	for _, change := range changes {
		got = append(got, change[1])
	}
	want := []string{
		"- --controllers=*,bootstrapsigner,tokencleaner",
		"image: registry.k8s.io/kube-controller-manager:" + strings.TrimSuffix(ourImage[strings.LastIndex(ourImage, ":")+1:], "-mc0.2.0"),
		"- --controllers=*,bootstrapsigner,tokencleaner,multi-cidr-node-ipam-controller",
		"image: " + ourImage,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Fatalf("what step 5 has changed on %s (-want +got):\n%s", machine, diff)
	}
	c.waitForStaticPodOn(t, machine, managerPod, ourImage)
}

// readPage returns the first shell block of step 5.
func readPage(t *testing.T, path string) string {
	t.Helper()
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	_, step, _ := strings.Cut(string(content), "\n## 5. ")
	_, block, _ := strings.Cut(step, "\n```sh\n")
	block, _, ok := strings.Cut(block, "\n```\n")
	if !ok {
		t.Fatalf("%s has no step 5 with a shell block", path)
	}
	return block
}

package e2e

import (
	"cmp"
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

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/multicidr/controller-manager/test/chaos/checker"
)

const (
	// What docs/install/kubeadm.md and fencing.md say of pending Nodes: a Lease that was not released has to run out, a standby looks at
	// it every retry period, and after a stock manager the controller waits for --node-ipam-takeover-delay.
	retryPeriod   = 2 * time.Second
	takeoverDelay = time.Minute
	// startOfLeader is what it takes a new leader to read everything and to start, here where three control planes share the CPUs, and
	// etcd to elect a leader of its own, of which each round takes three to six seconds.
	startOfLeader = 10 * time.Second

	changeOfLeader = leaseDuration + retryPeriod + startOfLeader
	afterStock     = changeOfLeader + takeoverDelay
)

// joiningCluster is one with Nodes that join all the time, and with somebody who looks at each revision of them in etcd.
type joiningCluster struct {
	*cluster
	blocks  map[string][]netip.Prefix // of the machines, when all began
	history *history
	streams []*nodeStream
	began   time.Time
	// repair is when somebody began to repair what nobody can promise anything about: waits before that do not count.
	repair time.Time
}

func newJoiningCluster(t *testing.T, name string) *joiningCluster {
	t.Helper()
	return &joiningCluster{cluster: newCluster(t, name), began: time.Now()}
}

// watch begins to follow the etcd of the control planes, and to register Nodes. These nodes have podCIDRs, which must stay.
func (c *joiningCluster) watch(t *testing.T, static []checker.Range, controlPlanes, nodes []string) {
	t.Helper()
	c.blocks = c.podCIDRs(t, nodes...)
	c.history = c.startHistory(t, static, netip.MustParsePrefix("10.96.0.0/16"), controlPlanes...)
	for _, name := range []string{"a", "b", "c"} {
		c.streams = append(c.streams, c.startNodeStream(t, "stream-"+name, 300*time.Millisecond))
	}
}

// runSteps ends with the first step that fails, since the next ones start from there.
func (c *joiningCluster) runSteps(t *testing.T, steps []joiningStep) {
	t.Helper()
	for _, step := range steps {
		begin := time.Now()
		if !t.Run(step.name, step.do) {
			return
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

func (c *joiningCluster) sinceStart() time.Duration { return time.Since(c.began).Round(time.Second) }

// joiningStep is followed by a look at all Nodes that were served meanwhile.
type joiningStep struct {
	name     string
	patience time.Duration // how long a Node may be pending
	do       func(t *testing.T)
}

// judge waits until new Nodes are served, and looks at the waits of all since the last time, and at the Nodes that were there before.
func (c *joiningCluster) judge(t *testing.T, step joiningStep, begin time.Time) {
	t.Helper()
	for _, stream := range c.streams {
		stream.waitForMore(t, 3)
	}
	served := c.history.take(t)
	// The streams go on only when Nodes are served.
	longest := slices.MaxFunc(served, func(a, b *nodeTimes) int { return cmp.Compare(a.wait(c.repair), b.wait(c.repair)) })
	wait := longest.wait(c.repair).Round(100 * time.Millisecond)
	t.Logf("%s: %s: took %s, then %s leads, %d Nodes served; the longest wait was %s (%s), of %s allowed", c.sinceStart(), step.name,
		time.Since(begin).Round(time.Second), c.leadingMachine(t.Context()), len(served), wait, longest.name, step.patience)
	if wait > step.patience {
		t.Errorf("%s: Node %s was pending for %s; want no more than %s", step.name, longest.name, wait, step.patience)
	}
	c.judgeBlocks(t)
}

// judgeBlocks looks at all Nodes that there were, and at those that were there before.
func (c *joiningCluster) judgeBlocks(t *testing.T) {
	t.Helper()
	c.history.check(t)
	c.checkNoOverlap(t)
	if diff := gocmp.Diff(c.blocks, c.podCIDRs(t, slices.Sorted(maps.Keys(c.blocks))...), comparePrefixes); diff != "" {
		t.Errorf("podCIDRs of the Nodes that were there before (-want +got):\n%s", diff)
	}
}

// leadingMachine is where the leader runs: its identity begins with the name of its host.
func (c *cluster) leadingMachine(ctx context.Context) string {
	machine, _, _ := strings.Cut(c.leader(ctx, managerPod), "_")
	return machine
}

// serverOf is the flag of kubectl that asks the API server of a machine, and no other one.
func (c *cluster) serverOf(t *testing.T, machine string) string {
	t.Helper()
	return "--server=https://" + c.addressOf(t, machine) + ":6443"
}

// waitForControlPlane waits until the API server of the machine serves, with the etcd there and its other members.
func (c *cluster) waitForControlPlane(t *testing.T, machine string) {
	t.Helper()
	server := c.serverOf(t, machine)
	eventually(t, 2*time.Minute, "the API server of "+machine+" is ready", func(ctx context.Context) (bool, string) {
		output, err := run(ctx, nil, c.bin("cluster"), "--dir="+c.dir, "exec", machine, "--", "kubectl", server, "--request-timeout=5s", "get", "--raw=/readyz")
		return err == nil, fmt.Sprint(output, err)
	})
}

// waitForServed waits until all that wait now have been served.
func (c *joiningCluster) waitForServed(t *testing.T) {
	t.Helper()
	for _, stream := range c.streams {
		stream.waitForMore(t, 0)
	}
}

// stockImage is the image of Kubernetes' own kube-controller-manager, of the same version of Kubernetes as ours.
func stockImage() string {
	version, _, _ := strings.Cut(ourImage[strings.LastIndex(ourImage, ":")+1:], "-mc")
	return "registry.k8s.io/kube-controller-manager:" + version
}

// doStep5 runs the commands of step 5 of the page on a machine, and waits as the page says: until the Pod is ready. It returns what diff, the
// last command, shows.
func (c *joiningCluster) doStep5(t *testing.T, page, machine string) []string {
	t.Helper()
	// diff ends with 1 because there is a difference.
	diff := c.exec(t, machine, "bash", "-c", "mkdir -p /root; "+page+"\n[[ $? == 1 ]]")
	var changes []string
	for _, change := range regexp.MustCompile(`(?m)^[<>] +(.*)$`).FindAllStringSubmatch(diff, -1) {
		changes = append(changes, change[1])
	}
	c.waitForStaticPodOn(t, machine, managerPod, ourImage)
	return changes
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

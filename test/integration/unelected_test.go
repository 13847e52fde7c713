package integration

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	networkingv1 "github.com/multicidr/controller-manager/apis/networking/v1"
	"github.com/multicidr/controller-manager/controllers/nodeipam"
	"github.com/multicidr/controller-manager/test/controlplane"
)

// TestTwoWithoutLeaderElection runs two processes at once without leader election. Both allocate, and people are told so by an event on every
// Node, by the metric and by the log. One that is stopped, or killed and started again, is no second allocator.
func TestTwoWithoutLeaderElection(t *testing.T) {
	for name, p := range map[string]program{"kube-controller-manager": insideManager, "node-ipam-controller": alone} {
		t.Run(name, func(t *testing.T) {
			ctx := t.Context()
			c := sharedCluster(t)
			c.runs(t, p)
			must(t, c.stopManager((*controlplane.Process).Stop))
			unelected := "--leader-elect=false"
			if p.alone {
				unelected = "--enable-leader-election=false"
			}
			start := func(name string) *controlplane.Manager {
				t.Helper()
				return c.start(t, controlplane.ManagerOptions{Alone: p.alone, Name: name, Args: append(slices.Clone(p.usual), unelected)})
			}
			first, second := start(name+"-first"), start(name+"-second")
			for _, m := range []*controlplane.Manager{first, second} {
				must(t, passes(m))
			}
			must(t, createClusterCIDR(c, []string{"a", "10.0.0.0/16", "hb8", "-nowait"}))
			var nodes []string
			for i := range 30 {
				nodes = append(nodes, fmt.Sprintf("n%02d", i))
			}
			must(t, c.createNodes(ctx, nil, nodes...))
			writers := map[string]bool{}
			for _, name := range nodes {
				node, err := c.waitServed(name, patience)
				if err != nil {
					t.Fatal(err)
				}
				must(t, eventually(patience, func(ctx context.Context) error {
					events, err := c.warnings(ctx, node.UID, nodeipam.ReasonAssignedByOther)
					if err == nil && len(events) == 0 {
						err = fmt.Errorf("Node %s has no event %s", name, nodeipam.ReasonAssignedByOther)
					}
					return err
				}))
				writers[node.Annotations[networkingv1.AnnotationLeaseHolder]] = true
			}
			if writers[""] || len(writers) == 0 {
				t.Errorf("Nodes say that they were assigned by %v", writers)
			}
			noticed := others(t, first) + others(t, second)
			if noticed < float64(len(nodes)) {
				t.Errorf("both together count %v Nodes that were assigned by the other one, want all %d", noticed, len(nodes))
			}
			if logs := timesLogged(t, first, "Another allocator is on") + timesLogged(t, second, "Another allocator is on"); float64(logs) != noticed {
				t.Errorf("the logs say it %d times, and the metrics %v times", logs, noticed)
			}

			// One is enough, and it may end in any way: what it wrote is no other allocator's to its next run.
			must(t, first.Stop(), second.Kill())
			third := start(name + "-third")
			must(t, passes(third), c.createNodes(ctx, nil, "last"))
			last, err := c.waitServed("last", patience)
			if err != nil {
				t.Fatal(err)
			}
			if writers[last.Annotations[networkingv1.AnnotationLeaseHolder]] {
				t.Error("a process that was started again has the identity of one before")
			}
			if got := others(t, third); got != 0 {
				t.Errorf("after a restart %v Nodes count as assigned by another allocator", got)
			}
		})
	}
}

// TestRestartWithoutLeaderElection kills a process without leader election whose PATCH of a Node is held up on its way, and starts it again. The
// PATCH arrives, and no block is given twice.
func TestRestartWithoutLeaderElection(t *testing.T) {
	ctx := t.Context()
	c := freshCluster(t, controlplane.Options{}, ours...)
	must(t, c.stopManager((*controlplane.Process).Stop))
	args := append(slices.Clone(ours), "--leader-elect=false")
	proxy, kubeconfig := c.behindProxy(t)
	first := c.start(t, controlplane.ManagerOptions{Name: "first", Kubeconfig: kubeconfig, Args: args})
	must(t, passes(first), createClusterCIDR(c, []string{"a", "10.0.0.0/23", "hb8"}))
	held := c.diesWithPatchHeld(t, first, proxy, "late")

	// The Node of the held PATCH takes no part any more, else the next process would choose the same block for it.
	must(t, createClusterCIDR(c, []string{"b", "sel(p=x)", "10.0.0.0/23", "hb8", "-nowait"}),
		deallocate(ctx, c, "a"), createNode(c, []string{"next", "p=x"}))
	second := c.start(t, controlplane.ManagerOptions{Name: "second", Args: args})
	begun := time.Now()
	const waits = "waiting for the last request of an earlier process to be over"
	must(t, eventually(patience, func(ctx context.Context) error {
		_, body, err := second.Get(ctx, healthPath)
		if err == nil && !strings.Contains(string(body), waits) {
			err = fmt.Errorf("GET %s: %s, want %q", healthPath, body, waits)
		}
		return err
	}))
	held.Release()
	must(t, served(c, []string{"late", "10.0.0.0/24"}), served(c, []string{"next", "10.0.1.0/24"}))
	if waited := time.Since(begun); waited > patience {
		t.Errorf("the next Node waited for %v", waited)
	}
	if got := others(t, second); got != 0 {
		t.Errorf("the late PATCH of the last process counts as another allocator's: %v", got)
	}
}

// deallocate makes a ClusterCIDR serve no new Nodes.
func deallocate(ctx context.Context, c *cluster, name string) error {
	cc, err := c.object("cc", name)
	if err != nil {
		return err
	}
	return cc.merge(ctx, `{"spec":{"allocation":"Disabled"}}`)
}

// others is how many Nodes a manager counts that another allocator has assigned.
func others(t *testing.T, m *controlplane.Manager) float64 {
	t.Helper()
	families, err := scrape(t.Context(), m)
	if err != nil {
		t.Fatal(err)
	}
	value, ok := samplesOf(families)["assignments_by_others_total{}"]
	if !ok {
		t.Fatalf("%s: no metric of that", m.LogPath())
	}
	return value
}

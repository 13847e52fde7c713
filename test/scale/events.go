package main

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"

	networkingv1 "github.com/multicidr/controller-manager/apis/networking/v1"
	nodeevents "github.com/multicidr/controller-manager/controllers/nodeipam/events"
	"github.com/multicidr/controller-manager/test/chaos/faultproxy"
	"github.com/multicidr/controller-manager/test/controlplane"
	"github.com/multicidr/controller-manager/test/results"
)

const (
	// eventsServed is how many Nodes are served, one after the other, with events that hang, and as many with events that are stored. The
	// ClusterCIDR for them has as many blocks.
	eventsServed = 16
	// eventsPatience is for what should take a second or two.
	eventsPatience = 2 * time.Minute
	poolLabel      = "example.com/pool"
)

// events has Nodes pending while requests for events hang, and measures how long other Nodes and a status take then. Then events are
// stored again, and it measures how long it takes until every pending Node has its event; and the same other Nodes once more.
func (s *scale) events(ctx context.Context, who contestant, nodes int) (got sample, err error) {
	got.values = map[string]float64{}
	err = withCluster(ctx, false, func(c *cluster) error {
		proxy, r, err := s.startBehindProxy(ctx, c, who)
		if err != nil {
			return err
		}
		defer proxy.Close()
		for name, ipv4 := range map[string]string{"hanging": "10.64.0.0/22", "stored": "10.65.0.0/22"} {
			spec := networkingv1.ClusterCIDRSpec{IPv4: ipv4, PerNodeHostBits: hostBits, NodeSelector: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
				MatchExpressions: []corev1.NodeSelectorRequirement{{Key: poolLabel, Operator: corev1.NodeSelectorOpIn, Values: []string{name}}},
			}}}}
			if err := c.createClusterCIDR(ctx, name, spec); err != nil {
				return err
			}
		}
		proxy.Set(faultproxy.Faults{HangEvents: 1})
		f, err := c.register(ctx, "pending", nodes, nil)
		if err != nil {
			return err
		}
		defer f.stop()
		if err := c.settle(ctx); err != nil {
			return err
		}
		hanging, err := c.oneByOne(ctx, r, "hanging", got.values)
		if err != nil {
			return err
		}
		if n, err := c.countEvents(ctx); err != nil || n.all > 0 {
			return fmt.Errorf("%d events were stored while requests for events hang: %w", n.all, err)
		}

		proxy.Set(faultproxy.Faults{})
		begin := time.Now()
		var n eventCount
		err = wait.PollUntilContextTimeout(ctx, time.Second, patience, true, func(ctx context.Context) (_ bool, err error) {
			n, err = c.countEvents(ctx)
			return n.nodes >= nodes, err
		})
		if err != nil {
			return fmt.Errorf("%d of %d pending Nodes have an event: %w; the end of the log:\n%s", n.nodes, nodes, err, tail(r.LogPath()))
		}
		got.values["all-events-s"] = round(time.Since(begin).Seconds())
		if err := c.settle(ctx); err != nil {
			return err
		}
		if n, err = c.countEvents(ctx); err != nil {
			return err
		}
		got.values["events-too-many"] = float64(n.all - nodes)
		stored, err := c.oneByOne(ctx, r, "stored", got.values)
		if err != nil {
			return err
		}
		return overlap(append(hanging, stored...)...)
	})
	return got, err
}

// startBehindProxy starts a manager that has a proxy for the API server.
func (s *scale) startBehindProxy(ctx context.Context, c *cluster, who contestant) (*faultproxy.Proxy, *runner, error) {
	if who.binary == "" {
		return nil, nil, fmt.Errorf("%s writes no events: choose another contestant", who.name)
	}
	upstream, err := c.Config("system:kube-controller-manager")
	if err != nil {
		return nil, nil, err
	}
	certificate, key, err := c.ServingCertificate("faultproxy")
	if err != nil {
		return nil, nil, err
	}
	proxy, err := faultproxy.Start(faultproxy.Config{Upstream: upstream, Certificate: certificate, Key: key})
	if err != nil {
		return nil, nil, err
	}
	behind := rest.CopyConfig(upstream)
	behind.Host = proxy.URL()
	kubeconfig, err := c.WriteKubeconfig("behind-proxy", behind)
	if err != nil {
		return nil, nil, err
	}
	manager, err := c.StartManager(ctx, controlplane.ManagerOptions{Binary: who.binary, Name: who.name, Kubeconfig: kubeconfig, Args: who.args})
	if err != nil {
		return nil, nil, err
	}
	r := &runner{manager.Process, manager}
	if err := s.moveApart(r.PID(), true); err != nil {
		return nil, nil, err
	}
	return proxy, r, manager.WaitLeading(ctx)
}

// oneByOne creates the Nodes of a ClusterCIDR one after the other, each once the one before is served. It measures how long each takes, and then
// how long the status takes to say that the ClusterCIDR is exhausted.
func (c *cluster) oneByOne(ctx context.Context, r *runner, pool string, values map[string]float64) (fleets []*fleet, err error) {
	var took []time.Duration
	for i := range eventsServed {
		f, err := c.register(ctx, fmt.Sprintf("%s-%d", pool, i), 1, func(_ int, node *corev1.Node) { node.Labels[poolLabel] = pool })
		if err != nil {
			return nil, err
		}
		defer f.stop()
		if err := f.wait(ctx, r, patience); err != nil {
			return nil, err
		}
		took = append(took, f.latencies()...)
		fleets = append(fleets, f)
	}
	values["p50-"+pool+"-ms"], values["max-"+pool+"-ms"] = milliseconds(quantile(took, .5)), milliseconds(quantile(took, 1))
	last := time.Now()
	said := ""
	err = wait.PollUntilContextTimeout(ctx, 50*time.Millisecond, eventsPatience, true, func(ctx context.Context) (bool, error) {
		cc, err := c.clusterCIDRs.NetworkingV1().ClusterCIDRs().Get(ctx, pool, metav1.GetOptions{})
		if err != nil {
			return false, err
		}
		ready := meta.FindStatusCondition(cc.Status.Conditions, networkingv1.ConditionReady)
		if ready != nil && cc.Status.IPv4 != nil {
			said = fmt.Sprintf("%s, %d allocated", ready.Reason, cc.Status.IPv4.Allocated)
		}
		return said == fmt.Sprintf("%s, %d allocated", networkingv1.ReasonExhausted, eventsServed), nil
	})
	if err != nil {
		return nil, fmt.Errorf("the status of ClusterCIDR %s says %q: %w", pool, said, err)
	}
	values["status-"+pool+"-s"] = round(time.Since(last).Seconds())
	return fleets, nil
}

// eventCount is how many events CIDRNotAvailable there are, and on how many Nodes.
type eventCount struct{ all, nodes int }

func (c *cluster) countEvents(ctx context.Context) (n eventCount, err error) {
	list, err := c.kube.CoreV1().Events(metav1.NamespaceDefault).List(ctx, metav1.ListOptions{
		FieldSelector: fields.OneTermEqualSelector("reason", nodeevents.ReasonNotAvailable).String(),
	})
	if err != nil {
		return n, err
	}
	nodes := map[string]bool{}
	for _, e := range list.Items {
		n.all++
		nodes[e.InvolvedObject.Name] = true
	}
	n.nodes = len(nodes)
	return n, nil
}

var eventsColumns = []column{
	{"events hang: p50 ms", "p50-hanging-ms"}, {"max ms", "max-hanging-ms"}, {"status s", "status-hanging-s"},
	{"then all events s", "all-events-s"}, {"events too many", "events-too-many"},
	{"events are stored: p50 ms", "p50-stored-ms"}, {"max ms", "max-stored-ms"}, {"status s", "status-stored-s"},
}

// eventsMarks holds what we measured against the limits that were set.
func eventsMarks(nodes int, round map[string]sample) []results.Mark {
	we := round[ours].values
	if we == nil {
		return nil
	}
	name := func(text string) string { return fmt.Sprintf("%d pending Nodes, events hang: %s", nodes, text) }
	return []results.Mark{
		results.AtMost(name("ours, the slowest of the Nodes that can be served"), "s", 1, round3(we["max-hanging-ms"]/1000)),
		results.AtMost(name("ours, the status is right after"), "s", 5, we["status-hanging-s"]),
		results.AtMost(name("ours, events too many once they are stored"), "events", 0, we["events-too-many"]),
	}
}

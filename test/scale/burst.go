package main

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"math"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/multicidr/controller-manager/test/results"
)

const (
	// warmUp is how many Nodes are served before the measurement, so that connections, caches and the API server's heap are those of a
	// cluster at work.
	warmUp = 100
	// patience is enough for 20,000 Nodes at 20 in a second.
	patience = 20 * time.Minute
)

// interleavedPart is how many Nodes of a burst are created before it is another contestant's turn.
var interleavedPart = 500

// burst creates Nodes as fast as the API server takes them, while a contestant that is at work already serves them: a cluster scales up.
// Interleaved with others, it does so in parts.
func (s *scale) burst(ctx context.Context, who contestant, nodes int) (sample, error) {
	all := sample{values: map[string]float64{}}
	err := withCluster(ctx, false, func(c *cluster) error {
		if err := c.createClusterCIDR(ctx, rangeName, wholeRange()); err != nil {
			return err
		}
		runner, err := s.start(ctx, c, who)
		if err != nil {
			return err
		}
		if err := c.warmUp(ctx, runner, nil); err != nil {
			return err
		}
		if s.clients > 0 {
			if err := c.createBy(ctx, s.clients); err != nil {
				return err
			}
		}
		size := nodes
		if s.meet != nil {
			size = min(size, cmp.Or(s.part, interleavedPart))
		}
		var parts []*fleet
		for begun := 0; begun < nodes; begun += size {
			if err := s.meetOthers(); err != nil {
				return err
			}
			part, err := c.watchFleet(ctx, fmt.Sprintf("node-%d", begun), min(size, nodes-begun))
			if err != nil {
				return err
			}
			if err := s.burstOf(ctx, c, runner, part, cmp.Or(s.profileName, fmt.Sprintf("burst-%s-%d", who.name, nodes)), all.values); err != nil {
				return err
			}
			all.latencies = append(all.latencies, part.latencies()...)
			parts = append(parts, part)
		}
		if err := s.meetOthers(); err != nil { // whom the end of this control plane would disturb
			return err
		}
		all.values["nodes-per-s"] = round(float64(nodes) / all.values["total-s"])
		for name, rank := range map[string]float64{"p50": .5, "p90": .9, "p99": .99, "max": 1} {
			all.values["latency-"+name+"-ms"] = milliseconds(quantile(all.latencies, rank))
		}
		all.values["requests-per-node"] = sumOf(all.values, requestPrefix) / float64(nodes)
		return overlap(parts...)
	})
	return all, err
}

// burstOf creates one fleet, and adds what that took.
func (s *scale) burstOf(ctx context.Context, c *cluster, r *runner, f *fleet, profile string, sum map[string]float64) error {
	defer f.stop()
	m, err := c.measure(ctx, r)
	if err != nil {
		return err
	}
	before, err := c.stagesSoFar(ctx, r)
	if err != nil {
		return err
	}
	profiled := s.profile(ctx, c, r, profile)
	if err := c.create(ctx, f, nil); err != nil {
		return err
	}
	if err := f.wait(ctx, r, patience); err != nil {
		return err
	}
	if err := profiled(); err != nil {
		return err
	}
	values, err := m.values(ctx, requests{"POST nodes": f.size})
	if err != nil {
		return err
	}
	values["total-s"] = f.seconds()
	for name, value := range values {
		if sum[name] += value; name == "manager-peak-MiB" {
			sum[name] = value // which is of all parts so far
		}
	}
	after, err := c.stagesSoFar(ctx, r)
	if err != nil {
		return err
	}
	maps.Copy(sum, after.since(before)) // of the last part
	return nil
}

// warmUp has a few Nodes served.
func (c *cluster) warmUp(ctx context.Context, r *runner, change func(int, *corev1.Node)) error {
	f, err := c.register(ctx, "warm", warmUp, change)
	if err != nil {
		return err
	}
	defer f.stop()
	return f.wait(ctx, r, patience)
}

// seconds is how long it took from the first creation until all were served.
func (f *fleet) seconds() float64 { return f.last().Sub(f.first).Seconds() }

// quantile is the nearest rank: the smallest value that so many are not above.
func quantile(all []time.Duration, rank float64) time.Duration {
	all = slices.Sorted(slices.Values(all))
	return all[int(math.Ceil(rank*float64(len(all))))-1]
}

func milliseconds(d time.Duration) float64 { return round(float64(d.Microseconds()) / 1000) }

var burstColumns = []column{
	{"Nodes/s", "nodes-per-s"}, {"p50 ms", "latency-p50-ms"}, {"p99 ms", "latency-p99-ms"}, {"max ms", "latency-max-ms"},
	{"requests per Node", "requests-per-node"}, {"PATCHes", requestPrefix + "PATCH nodes"}, {"manager CPU s", "manager-cpu-s"}, {"peak MiB", "manager-peak-MiB"},
	{"API server CPU s", "apiserver-cpu-s"}, {"etcd CPU s", "etcd-cpu-s"}, {"harness CPU s", "harness-cpu-s"},
}

// burstMarks holds ours against the bare loop of the same round.
func burstMarks(nodes int, round map[string]sample) []results.Mark {
	var marks []results.Mark
	name := func(text string) string { return fmt.Sprintf("burst of %d Nodes: %s", nodes, text) }
	best, raced := round[bare]
	if we, ok := round[ours]; ok && raced {
		p99 := func(s sample) float64 { return quantile(s.latencies, .99).Seconds() }
		marks = append(marks,
			results.AtLeast(name("ours, Nodes per second"), "of the bare loop's", 0.95, round3(best.values["total-s"]/we.values["total-s"])),
			results.AtMost(name("ours, p99 from create to podCIDRs"), "of the bare loop's", 1.2, round3(p99(we)/p99(best))),
		)
		if steady(best.values) > 0 { // a few Nodes take less than a tick of the kernel's clock
			marks = append(marks, results.AtLeast(name("ours, Nodes per second on an equal machine"), "of the bare loop's", 0.95, round3(steady(we.values)/steady(best.values))))
		}
	}
	for _, who := range contestants {
		values := round[who.name].values
		if values == nil || who.name != ours && who.name != oursLimited {
			continue
		}
		marks = append(marks, results.AtMost(name(who.name+", requests"), "per Node", 1.05, round3(values["requests-per-node"])))
		if who.qps > 0 {
			marks = append(marks, results.AtMost(name(who.name+", total time"), "of Nodes / QPS", 1.05, round3(values["total-s"]*who.qps/float64(nodes))))
		}
	}
	return marks
}

// steady is the rate by a clock that goes as the machine does. Two virtual cores are now and then a quarter slower for some seconds. The harness
// does the same work for every contestant, so the CPU time that it took says how fast they were.
func steady(values map[string]float64) float64 {
	return values["harness-cpu-s"] / values["total-s"]
}

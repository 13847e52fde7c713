package main

import (
	"context"
	"fmt"
	"time"

	"github.com/multicidr/controller-manager/test/results"

	networkingv1 "github.com/multicidr/controller-manager/apis/networking/v1"
)

// waitingQuiet is how long Nodes wait while nothing may be asked because of them.
const waitingQuiet = 30 * time.Second

// waiting has Nodes wait for addresses, and then adds a range with enough for all of them.
func (s *scale) waiting(ctx context.Context, who contestant, nodes int) (got sample, err error) {
	err = withCluster(ctx, true, func(c *cluster) error {
		// One block, which the first Node takes.
		if err := c.createClusterCIDR(ctx, "full", networkingv1.ClusterCIDRSpec{IPv4: "10.64.0.0/26", PerNodeHostBits: hostBits}); err != nil {
			return err
		}
		runner, err := s.start(ctx, c, who)
		if err != nil {
			return err
		}
		full, err := c.register(ctx, "full", 1, nil)
		if err != nil {
			return err
		}
		defer full.stop()
		if who.name == ours { // The loop waits for the range that is to come, with all Nodes.
			if err := full.wait(ctx, runner, patience); err != nil {
				return err
			}
		}
		f, err := c.register(ctx, "node", nodes, nil)
		if err != nil {
			return err
		}
		defer f.stop()
		if err := c.settle(ctx); err != nil {
			return err
		}
		quiet := time.Now()
		if err := pause(ctx, waitingQuiet); err != nil {
			return err
		}
		asked, err := c.asked(quiet)
		if err != nil {
			return err
		}
		if len(asked) > 0 {
			fmt.Printf("  asked while all Nodes wait:%s\n", describe(asked))
		}

		if err := s.meetOthers(); err != nil {
			return err
		}
		m, err := c.measure(ctx, runner)
		if err != nil {
			return err
		}
		f.first = time.Now()
		profiled := s.profile(ctx, c, runner, fmt.Sprintf("waiting-%s-%d", who.name, nodes))
		if err := c.createClusterCIDR(ctx, rangeName, wholeRange()); err != nil {
			return err
		}
		if err := f.wait(ctx, runner, patience); err != nil {
			return err
		}
		if err := profiled(); err != nil {
			return err
		}
		values, err := m.values(ctx, requests{"POST clustercidrs": 1})
		if err != nil {
			return err
		}
		if err := s.meetOthers(); err != nil {
			return err
		}
		values["requests-while-waiting"] = float64(len(asked))
		values["first-node-s"] = round3(f.served[f.order[0]].Sub(f.first).Seconds())
		values["total-s"] = f.seconds()
		values["nodes-per-s"] = round(float64(nodes) / f.seconds())
		values["overtaken-by-nodes"] = float64(f.overtaken())
		got.values = values
		return overlap(f)
	})
	return got, err
}

// overtaken is by how many younger Nodes a Node was overtaken that was served before, at most. Nodes that were created in the same second are
// equally old: that is all that a creationTimestamp tells.
func (f *fleet) overtaken() (most int) {
	served := map[time.Time]int{} // by creation
	for _, index := range f.order {
		younger := 0
		for stamp, n := range served {
			if stamp.After(f.stamps[index]) {
				younger += n
			}
		}
		most = max(most, younger)
		served[f.stamps[index]]++
	}
	return most
}

// pause lets time go by. Here it is time that is measured: how much happens in it.
func pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

var waitingColumns = []column{
	{"requests while waiting", "requests-while-waiting"}, {"first Node s", "first-node-s"}, {"all s", "total-s"}, {"Nodes/s", "nodes-per-s"},
	{"overtaken by", "overtaken-by-nodes"}, {"manager CPU s", "manager-cpu-s"}, {"peak MiB", "manager-peak-MiB"},
}

// waitingMarks holds what we measured against the limits that were set.
func waitingMarks(nodes int, round map[string]sample) []results.Mark {
	we := round[ours].values
	if we == nil {
		return nil
	}
	name := func(text string) string { return fmt.Sprintf("%d Nodes wait: %s", nodes, text) }
	marks := []results.Mark{
		results.AtMost(name(fmt.Sprintf("ours, requests in %s", waitingQuiet)), "requests", 0, we["requests-while-waiting"]),
		results.AtMost(name("ours, from new range to first Node"), "s", 1, we["first-node-s"]),
		// So many PATCHes are on their way at a time, and each may be overtaken by the others.
		results.AtMost(name("ours, a Node overtaken by younger ones"), "Nodes", loopWorkers, we["overtaken-by-nodes"]),
	}
	if best := round[bare].values; best != nil {
		marks = append(marks, results.AtLeast(name("ours, Nodes per second"), "of the bare loop's", 0.95, round3(best["total-s"]/we["total-s"])))
	}
	return marks
}

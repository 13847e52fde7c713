package main

import (
	"context"
	"fmt"

	"github.com/multicidr/controller-manager/test/results"
)

// overloaded are the contestants of an overload. The bare loop has as many workers as ours and upstream's.
var overloaded = []contestant{
	contestantOf(bare),
	contestantOf(ours),
	contestantOf(upstreamRaised),
	{name: oursAlone, alone: true, args: []string{noTakeoverDelay}},
}

// oursAlone is our controller as a program of its own. It takes part only if it is asked for.
const oursAlone = "ours-alone"

// overload creates all Nodes at once, by more clients than a contestant has workers: a cluster starts.
func (s *scale) overload(ctx context.Context, who contestant, nodes int) (sample, error) {
	own := *s
	own.part, own.profileName = nodes, fmt.Sprintf("overload-%s-%d-%d", who.name, nodes, s.clients)
	got, err := own.burst(ctx, who, nodes)
	if err == nil {
		got.values["clients"] = float64(s.clients)
	}
	return got, err
}

var overloadColumns = append([]column{{"clients", "clients"}, {"in the queue ms", "queue-ms"}, {"worker ms", "work-ms"}, {"watches ended", endedWatches}}, burstColumns...)

// overloadMarks holds ours against the bare loop and the in-tree allocator of the same round.
func overloadMarks(nodes int, round map[string]sample) []results.Mark {
	we, ok := round[ours]
	if !ok {
		return nil
	}
	var marks []results.Mark
	for _, of := range []struct {
		who, whose string
		limit      float64
	}{{bare, "of the bare loop's", 1.3}, {upstreamRaised, "of the in-tree allocator's", 1}} {
		other, raced := round[of.who]
		if !raced {
			continue
		}
		for _, rank := range []float64{.5, .99} {
			name := fmt.Sprintf("%d Nodes at once by %.0f clients: ours, p%.0f from create to podCIDRs", nodes, we.values["clients"], 100*rank)
			marks = append(marks, results.AtMost(name, of.whose, of.limit, round3(quantile(we.latencies, rank).Seconds()/quantile(other.latencies, rank).Seconds())))
		}
	}
	return marks
}

// numbersOfClients are those that are measured one after the other.
func (s *scale) numbersOfClients() []int {
	if len(s.clientsList) == 0 {
		return []int{0}
	}
	return s.clientsList
}

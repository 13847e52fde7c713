package checker

import (
	"slices"
	"time"
)

// Summary is what was seen, violations aside.
type Summary struct {
	Revisions    int // of Nodes, ClusterCIDRs and Leases
	Created      int
	Deleted      int
	Served       int
	Foreign      int
	ClusterCIDRs int
	Leaders      int // how often the lease changed hands, the first included

	// ForeignOverlaps: a Node was created with podCIDRs that somebody had.
	ForeignOverlaps int
	// ForeignRaces: a Node was served what another Node had been created with while the first one waited.
	ForeignRaces int
	// Late: a Node was served what its ClusterCIDR had stopped giving up to MaxLag before.
	Late   int
	MaxLag time.Duration

	// Deposed: a Node was served by a leader whose lease another one had by then. Only seen of allocators that say who they are.
	Deposed int

	LastServed time.Time
	// Latency from the creation of a Node to its podCIDRs, of those that were served.
	Latency Percentiles

	// Now:
	Nodes   int
	Waiting int
	Pools   int
}

// Percentiles of durations; all 0 of none.
type Percentiles struct {
	P50 time.Duration
	P90 time.Duration
	P99 time.Duration
	Max time.Duration
}

// PercentilesOf returns those of durations in any order.
func PercentilesOf(ds []time.Duration) Percentiles {
	if len(ds) == 0 {
		return Percentiles{}
	}
	sorted := slices.Sorted(slices.Values(ds))
	at := func(percent int) time.Duration { return sorted[(len(sorted)-1)*percent/100] }
	return Percentiles{P50: at(50), P90: at(90), P99: at(99), Max: at(100)}
}

// Summary returns what was seen so far.
func (c *Checker) Summary() Summary {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.summary
	s.Latency = PercentilesOf(c.latencies)
	s.Nodes, s.Pools = len(c.nodes), len(c.pools)
	for _, n := range c.nodes {
		if len(n.blocks) == 0 {
			s.Waiting++
		}
	}
	return s
}

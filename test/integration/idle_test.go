package integration

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"k8s.io/client-go/util/flowcontrol"
)

// TestIdle runs 1,000 Nodes for a minute in which nothing happens but that each Node's kubelet updates it once. Our manager writes
// nothing: no status, no event, no retry, no resync. Nodes that wait, share a block or are in no range are among them, because it is
// they who cost others writes.
func TestIdle(t *testing.T) {
	const (
		nodes  = 1000
		minute = time.Minute
	)
	c := sharedCluster(t)
	for _, step := range []struct {
		run  func(*cluster, []string) error
		args []string
	}{
		{createClusterCIDR, []string{"a", "10.0.0.0/14", "fd00::/48", "hb8", "v6hb64"}},
		{createClusterCIDR, []string{"full", "sel(p=full)", "10.8.0.0/24", "hb8", "priority=1"}},
		{createClusterCIDR, []string{"off", "sel(p=off)", "10.9.0.0/16", "hb8", "disabled"}},
		{createClusterCIDR, []string{"going", "sel(p=going)", "10.10.0.0/16", "hb8"}},
		{createNode, []string{"outside", "172.16.0.0/24"}},
		{createNode, []string{"twin1", "10.3.0.0/24"}},
		{createNode, []string{"twin2", "10.3.0.0/24"}},
		{createNode, []string{"member", "10.10.0.0/24", "from=going"}},
		{deleteObjects, []string{"cc", "going"}},
		{createNodes, []string{fmt.Sprint(nodes), "n"}},
		{counts, []string{"a", "ipv4", "total=1024", fmt.Sprintf("allocated=%d", nodes+1)}},
		{set, []string{"cc", "a", "disabled"}},
		{condition, []string{"a", "Ready", "False", "Disabled"}},
		{createNodes, []string{"20", "waiting"}},

		// All that there is to write about them has been written.
		{condition, []string{"a", "Conflicted", "True", "Overlap"}},
		{condition, []string{"full", "Ready", "True", "Available"}},
		{condition, []string{"off", "Ready", "False", "Disabled"}},
		{condition, []string{"going", "Ready", "False", "Terminating"}},
		{clusterCIDREvent, []string{"going", "DeletionBlocked"}},
		{event, []string{"outside", "CIDROutsideRanges"}},
		{event, []string{"twin1", "CIDRConflict"}},
		{event, []string{"twin2", "CIDRConflict"}},
	} {
		if err := step.run(c, step.args); err != nil {
			t.Fatalf("%q: %v", step.args, err)
		}
	}
	names := []string{"outside", "twin1", "twin2", "member"}
	for i := range 20 {
		name := fmt.Sprint("waiting", i+1)
		must(t, waits(c, []string{name, "a is disabled"}))
		names = append(names, name)
	}
	for i := range nodes {
		names = append(names, fmt.Sprint("n", i+1))
	}

	must(t, count(c, nil))
	idle, cancel := context.WithTimeout(t.Context(), minute)
	defer cancel()
	beat := flowcontrol.NewTokenBucketRateLimiter(float32(len(names))/float32(minute.Seconds()), 1)
	beats := 0
	for ; beat.Wait(idle) == nil; beats++ {
		must(t, touch(c, []string{names[beats%len(names)], "1"}))
	}
	<-idle.Done()

	// What the manager does now, it does after all that it had to do in that minute, and the log of writes has it.
	must(t, createNode(c, []string{"last", "p=full"}))
	must(t, served(c, []string{"last", "10.8.0.0/24"}))
	expect(t, writes(c, []string{"1", "nodes"}))
	all, err := c.writes(c.counted)
	if err != nil {
		t.Fatal(err)
	}
	during := slices.DeleteFunc(all, func(w write) bool {
		return about(w, "nodes", "last") || about(w, "clustercidrs/status", "full") || about(w, "events", "full")
	})
	if len(during) > 0 {
		t.Errorf("the manager wrote %d times in %s while %d Nodes were updated, want none:%s", len(during), minute, beats, describe(during))
	}
}

// TestStatusIsWrittenOnceASecond serves Nodes until three writes of the status told of them: changes in between go into
// one write. How far two writes are apart at the API server says little, since each may have waited on its way there; but
// no more can have come than there were seconds since before the first.
func TestStatusIsWrittenOnceASecond(t *testing.T) {
	c := sharedCluster(t)
	must(t, count(c, nil))
	start := time.Now()
	must(t, createClusterCIDR(c, []string{"a", "10.0.0.0/16", "hb8"}))
	var statuses []write
	n := 0
	for ; len(statuses) < 4; n++ {
		if time.Since(start) > patience {
			t.Fatalf("%d Nodes were served in %s and the status of ClusterCIDR a was written %d times, want that people see what goes on:%s",
				n, patience, len(statuses), describe(statuses))
		}
		name := fmt.Sprint("n", n)
		must(t, createNode(c, []string{name}))
		must(t, c.isServed(name))
		all, err := c.writes(c.counted)
		if err != nil {
			t.Fatal(err)
		}
		statuses = slices.DeleteFunc(all, func(w write) bool { return !about(w, "clustercidrs/status", "a") })
	}
	for i, w := range statuses {
		if since := w.RequestReceivedTimestamp.Sub(start); since < time.Duration(i)*time.Second {
			t.Errorf("%d writes of the status in %s, want at most one a second:%s", i+1, since, describe(statuses[:i+1]))
		}
	}
	if n <= len(statuses) {
		t.Errorf("%d Nodes and %d writes of the status: nothing was left out", n, len(statuses))
	}
	expect(t, counts(c, []string{"a", "ipv4", fmt.Sprintf("allocated=%d", n)}))
}

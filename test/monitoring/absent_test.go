package monitoring

import (
	"testing"
	"time"
)

// TestAbsentInOneOfSeveralClusters: the head of prometheusrule.yaml says that the label `cluster` is for a Prometheus that scrapes several clusters.
// Where one of two clusters has lost its allocator, NodeIPAMControllerAbsent has to fire as it does for a single cluster.
func TestAbsentInOneOfSeveralClusters(t *testing.T) {
	rule := alerts(t)["NodeIPAMControllerAbsent"]
	series := "node_ipam_controller_ready{cluster=\"east\"} 1x5 stale\nnode_ipam_controller_ready{cluster=\"west\"} 1x60\n" +
		"up{cluster=\"east\"} 1x60\nup{cluster=\"west\"} 1x60"
	if got := firingAfter(t, rule, series, 40*time.Minute, false); len(got) == 0 {
		t.Error("cluster east has no controller for 35 minutes, and no alert fires")
	}
}

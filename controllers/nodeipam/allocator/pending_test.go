package allocator

import (
	"testing"

	"github.com/multicidr/controller-manager/controllers/nodeipam/clustercidr"
	. "github.com/multicidr/controller-manager/controllers/nodeipam/internal/objects"
	"github.com/multicidr/controller-manager/controllers/nodeipam/pending"
)

// An event on a pending Node comes again when it says something else, and only then: that no ClusterCIDR exists is the same whichever was the last.
func TestReasonsWithoutClusterCIDRs(t *testing.T) {
	after := pendingNode{refusals: []pending.Refusal{{Pool: clustercidr.Compile(ClusterCIDR("a", Spec4("10.0.0.0/24", 4, nil), Deleted))}}}
	if got, want := after.reasons(0), (pendingNode{}).reasons(0); got != want {
		t.Errorf("after the last ClusterCIDR: %q, want %q as before the first", got, want)
	}
	if after.reasons(1) == (pendingNode{}).reasons(1) {
		t.Errorf("a ClusterCIDR that refuses a Node is told like one that does not select it: %q", after.reasons(1))
	}
}

package pending

import (
	"testing"

	"github.com/multicidr/controller-manager/controllers/nodeipam/clustercidr"
	. "github.com/multicidr/controller-manager/controllers/nodeipam/internal/objects"
)

// An event on a pending Node comes again when it says something else, and only then: that no ClusterCIDR exists is the same whichever was the last.
func TestReasonsWithoutClusterCIDRs(t *testing.T) {
	after := []Refusal{{Pool: clustercidr.Compile(ClusterCIDR("a", Spec4("10.0.0.0/24", 4, nil), Deleted))}}
	if got, want := Gist(after, 0), Gist(nil, 0); got != want {
		t.Errorf("after the last ClusterCIDR: %q, want %q as before the first", got, want)
	}
	if Gist(after, 1) == Gist(nil, 1) {
		t.Errorf("a ClusterCIDR that refuses a Node is told like one that does not select it: %q", Gist(after, 1))
	}
}

package metrics

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/common/expfmt"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/component-base/metrics/legacyregistry"

	networkingv1 "github.com/multicidr/controller-manager/apis/networking/v1"
	"github.com/multicidr/controller-manager/controllers/lease"
	"github.com/multicidr/controller-manager/controllers/nodeipam/allocator"
	"github.com/multicidr/controller-manager/controllers/nodeipam/api"
	"github.com/multicidr/controller-manager/controllers/nodeipam/health"
	"github.com/multicidr/controller-manager/controllers/nodeipam/pool"
	. "github.com/multicidr/controller-manager/test/objects"
)

// scraped returns what a scrape shows under these names, without comments and the prefix of names.
func scraped(t *testing.T, names ...string) string {
	t.Helper()
	families, err := legacyregistry.DefaultGatherer.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var text bytes.Buffer
	for _, family := range families {
		if _, err := expfmt.MetricFamilyToText(&text, family); err != nil {
			t.Fatal(err)
		}
	}
	var lines []string
	for line := range strings.Lines(text.String()) {
		line, ours := strings.CutPrefix(line, Prefix)
		for _, name := range names {
			if ours && strings.HasPrefix(line, name) {
				lines = append(lines, strings.TrimSpace(line))
			}
		}
	}
	return strings.Join(lines, "\n")
}

// cluster is a state in which everything that is shown occurs.
func cluster() *allocator.State {
	s := allocator.New()
	s.Start()
	show := func(name string, podCIDRs ...string) {
		n := Node(name)
		n.Spec.PodCIDRs = podCIDRs
		s.Observe(n, time.Time{})
	}
	send := func(name string) {
		show(name)
		s.Next(name, time.Time{})
		s.Send(name, Node(name).UID)
	}
	excludes := func(cc *networkingv1.ClusterCIDR) { cc.Spec.ExcludedCIDRs = []string{"10.0.3.0/24"} }
	s.SetPool(pool.Compile(ClusterCIDR("a", Spec4("10.0.0.0/22", 8, nil), excludes), nil))
	s.SetPool(pool.Compile(ClusterCIDR("b", Spec4("10.1.0.0/24", 4, nil), Deleted), nil))
	show("old", "10.0.0.0/24")
	show("wide", "10.1.0.0/16")
	show("resident", "10.1.0.16/28")
	send("n1") // the second block
	send("n2")
	s.Gone("n2", Node("n2").UID)
	send("n3") // the third block again
	show("n4")
	show("n5")
	return s
}

func TestSource(t *testing.T) {
	state, failing := cluster(), health.New(&health.Watches{})
	failing.Wrote(health.WritesNode, "n4", api.ErrNotKept)
	failing.Wrote(health.WritesNode, "n5", api.ErrNotKept)
	defer Show(Source{Health: failing, With: func(f func(*allocator.State)) bool { f(state); return true }})()
	want := `blocks{clusterCIDRName="a",family="IPv4",state="allocated"} 3
blocks{clusterCIDRName="a",family="IPv4",state="free"} 0
blocks{clusterCIDRName="a",family="IPv4",state="unavailable"} 1
blocks{clusterCIDRName="b",family="IPv4",state="allocated"} 1
blocks{clusterCIDRName="b",family="IPv4",state="free"} 0
blocks{clusterCIDRName="b",family="IPv4",state="unavailable"} 15
clustercidr_state{clusterCIDRName="a",state="Enabled"} 1
clustercidr_state{clusterCIDRName="b",state="Terminating"} 1
conflicting_nodes 2
failing_writes{kind="ClusterCIDR"} 0
failing_writes{kind="Node"} 2
failing_writes{kind="status of ClusterCIDR"} 0
multicidrset_allocation_tries_per_request_bucket{clusterCIDR="10.0.0.0/22",clusterCIDRName="a",le="1"} 1
multicidrset_allocation_tries_per_request_bucket{clusterCIDR="10.0.0.0/22",clusterCIDRName="a",le="5"} 3
multicidrset_allocation_tries_per_request_bucket{clusterCIDR="10.0.0.0/22",clusterCIDRName="a",le="25"} 3
multicidrset_allocation_tries_per_request_bucket{clusterCIDR="10.0.0.0/22",clusterCIDRName="a",le="125"} 3
multicidrset_allocation_tries_per_request_bucket{clusterCIDR="10.0.0.0/22",clusterCIDRName="a",le="625"} 3
multicidrset_allocation_tries_per_request_bucket{clusterCIDR="10.0.0.0/22",clusterCIDRName="a",le="+Inf"} 3
multicidrset_allocation_tries_per_request_sum{clusterCIDR="10.0.0.0/22",clusterCIDRName="a"} 7
multicidrset_allocation_tries_per_request_count{clusterCIDR="10.0.0.0/22",clusterCIDRName="a"} 3
multicidrset_allocation_tries_per_request_bucket{clusterCIDR="10.1.0.0/24",clusterCIDRName="b",le="1"} 0
multicidrset_allocation_tries_per_request_bucket{clusterCIDR="10.1.0.0/24",clusterCIDRName="b",le="5"} 0
multicidrset_allocation_tries_per_request_bucket{clusterCIDR="10.1.0.0/24",clusterCIDRName="b",le="25"} 0
multicidrset_allocation_tries_per_request_bucket{clusterCIDR="10.1.0.0/24",clusterCIDRName="b",le="125"} 0
multicidrset_allocation_tries_per_request_bucket{clusterCIDR="10.1.0.0/24",clusterCIDRName="b",le="625"} 0
multicidrset_allocation_tries_per_request_bucket{clusterCIDR="10.1.0.0/24",clusterCIDRName="b",le="+Inf"} 0
multicidrset_allocation_tries_per_request_sum{clusterCIDR="10.1.0.0/24",clusterCIDRName="b"} 0
multicidrset_allocation_tries_per_request_count{clusterCIDR="10.1.0.0/24",clusterCIDRName="b"} 0
multicidrset_cidrs_allocations_total{clusterCIDR="10.0.0.0/22",clusterCIDRName="a"} 3
multicidrset_cidrs_allocations_total{clusterCIDR="10.1.0.0/24",clusterCIDRName="b"} 0
multicidrset_cidrs_releases_total{clusterCIDR="10.0.0.0/22",clusterCIDRName="a"} 1
multicidrset_cidrs_releases_total{clusterCIDR="10.1.0.0/24",clusterCIDRName="b"} 0
multicidrset_max_cidrs{clusterCIDR="10.0.0.0/22",clusterCIDRName="a"} 4
multicidrset_max_cidrs{clusterCIDR="10.1.0.0/24",clusterCIDRName="b"} 16
multicidrset_usage_cidrs{clusterCIDR="10.0.0.0/22",clusterCIDRName="a"} 1
multicidrset_usage_cidrs{clusterCIDR="10.1.0.0/24",clusterCIDRName="b"} 1
nodes_holding_blocks 5
nodes_outside_ranges 1
nodes_with_podcidrs 3
range_covered{clusterCIDRName="b",family="IPv4",node="wide"} 1
ready 0
terminating_clustercidr_nodes{clusterCIDRName="b"} 1
waiting_nodes{reason="Disabled"} 0
waiting_nodes{reason="Full"} 2
waiting_nodes{reason="Invalid"} 0
waiting_nodes{reason="NoClusterCIDR"} 0
waiting_nodes{reason="NotSelected"} 0
waiting_nodes{reason="Terminating"} 0`
	got := scraped(t, "blocks", "clustercidr_", "conflicting_", "failing_", "multicidrset_", "nodes_", "range_", "ready", "terminating_", "waiting_")
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// A standby shows nothing of a state, and a controller that cannot be built is not ready.
func TestWhichSourceIsShown(t *testing.T) {
	ready := func() string { return scraped(t, "ready") }
	hideUnbuilt := Show(Source{})
	if got := ready(); got != "ready 0" || scraped(t, "waiting_") != "" {
		t.Errorf("before it is built: %q", got)
	}
	hide := Show(Source{Health: health.New(&health.Watches{}), With: func(func(*allocator.State)) bool { return false }})
	hideUnbuilt()
	if got := ready(); got != "ready 1" || scraped(t, "waiting_") != "" {
		t.Errorf("before it has read everything: %q", got)
	}
	hide()
	if got := ready(); got != "" {
		t.Errorf("a controller that ended shows %q", got)
	}
}

func TestCounters(t *testing.T) {
	Show(Source{})()
	before := scraped(t, "node_patches_total", "assignment", "assignments")
	nodes := schema.GroupResource{Resource: "nodes"}
	for _, err := range []error{
		nil, nil, apierrors.NewNotFound(nodes, "n"), apierrors.NewConflict(nodes, "n", nil), apierrors.NewForbidden(nodes, "n", nil),
		apierrors.NewInvalid(schema.GroupKind{}, "n", nil), apierrors.NewTooManyRequests("busy", 1), apierrors.NewTimeoutError("slow", 1),
		context.DeadlineExceeded, errors.New("reset"), fmt.Errorf("%w: not now", lease.ErrClosed),
	} {
		CountPatch(err)
	}
	ObserveAssignment(0.2)
	AssignedByOther()
	want := `node_patches_total{result="error"} 1
node_patches_total{result="forbidden"} 1
node_patches_total{result="gone"} 2
node_patches_total{result="invalid"} 1
node_patches_total{result="success"} 2
node_patches_total{result="throttled"} 1
node_patches_total{result="timeout"} 2`
	if got := scraped(t, "node_patches_total"); got != want || strings.Count(before, "node_patches_total") != len(patchResults) {
		t.Errorf("%s\nbefore:\n%s", cmp.Diff(want, got), before)
	}
	for _, want := range []string{"assignment_duration_seconds_sum 0.2", "assignments_by_others_total 1"} {
		if got := scraped(t, want); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

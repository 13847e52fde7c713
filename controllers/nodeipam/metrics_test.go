package nodeipam

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus/testutil"
	dto "github.com/prometheus/client_model/go"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"

	networkingv1 "github.com/multicidr/controller-manager/apis/networking/v1"
	"github.com/multicidr/controller-manager/controllers/lease"
	"github.com/multicidr/controller-manager/controllers/nodeipam/allocator"
	"github.com/multicidr/controller-manager/controllers/nodeipam/clustercidr"
	"github.com/multicidr/controller-manager/controllers/nodeipam/health"
	. "github.com/multicidr/controller-manager/controllers/nodeipam/internal/objects"
	. "github.com/multicidr/controller-manager/controllers/nodeipam/internal/steps"
	nodemetrics "github.com/multicidr/controller-manager/controllers/nodeipam/metrics"
	"github.com/multicidr/controller-manager/controllers/nodeipam/requests"
)

// answering is an API server that gives the same answer to every PATCH of a Node.
type answering struct {
	requests.API
	err error
	// before is called before the answer is given.
	before func()
}

func (r answering) PatchNode(context.Context, string, []byte) error {
	if r.before != nil {
		r.before()
	}
	return r.err
}

// newQuietController makes a controller whose cluster has the given Nodes and which talks to nobody.
func newQuietController(t testing.TB, nodes ...*v1.Node) *Controller {
	t.Helper()
	indexer := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{})
	for _, n := range nodes {
		if err := indexer.Add(n); err != nil {
			t.Fatal(err)
		}
	}
	c := newController(Config{Workers: 1}, parts{now: time.Now, nodes: corelisters.NewNodeLister(indexer), newQueue: newQueue})
	t.Cleanup(func() {
		for _, l := range c.lines() {
			l.queue.ShutDown()
		}
	})
	return c
}

func TestStateMetrics(t *testing.T) {
	showing := func(n *v1.Node, cidrs ...string) *v1.Node { n.Spec.PodCIDRs = cidrs; return n }
	c := newQuietController(t, showing(Node("old"), "10.0.0.0/24"), showing(Node("clash"), "10.0.0.0/25"), showing(Node("far"), "172.16.0.0/24"), Node("n1"), Node("n2"))
	c.with(func(b *allocator.State) {
		for _, s := range []Step{
			Set(ClusterCIDR("a", networkingv1.ClusterCIDRSpec{IPv4: "10.0.0.0/22", IPv6: "fd00::/116", PerNodeHostBits: 8, ExcludedCIDRs: []string{"10.0.1.0/28"}})),
			Set(ClusterCIDR("going", Spec4("10.0.0.0/23", 8, nil), Deleted)),
			Set(ClusterCIDR("wrong", Spec4("10.9.0.0/16", 20, nil))),
			Set(ClusterCIDR("off", Spec4("10.8.0.0/16", 8, AnyOf(AllOf(In("p", "off")))), func(cc *networkingv1.ClusterCIDR) { cc.Spec.Allocation = networkingv1.AllocationDisabled })),
			Shows(Node("old"), "10.0.0.0/24"), Shows(Node("clash"), "10.0.0.0/25"), Shows(Node("far"), "172.16.0.0/24"),
			Reserve(Node("n1")), Reserve(Node("n2")), Gone("n1"), Reserve(Node("n3")), Reserve(Node("n4")), Reserve(Node("n5")),
			Set(ClusterCIDR("a2", Spec4("10.1.0.0/24", 8, nil), NoFinalizer)),
			Set(ClusterCIDR("covered", Spec4("192.168.8.0/21", 8, AnyOf(AllOf(In("p", "covered")))))),
			Set(ClusterCIDR("covered-too", Spec4("192.168.4.0/24", 8, AnyOf(AllOf(In("p", "covered")))))),
			Set(ClusterCIDR("one-block", Spec4("192.168.0.0/16", 16, AnyOf(AllOf(In("p", "covered")))))),
			Shows(Node("wide"), "192.168.0.0/16"),
		} {
			s(b)
		}
	})
	c.health.WaitFor(health.Problem{})

	var collector nodemetrics.Collector
	registry := metrics.NewKubeRegistry()
	registry.CustomMustRegister(&collector)
	want := func(text string, names ...string) {
		t.Helper()
		for i := range names {
			names[i] = nodemetrics.Prefix + names[i]
		}
		if err := testutil.GatherAndCompare(registry, strings.NewReader(text), names...); err != nil {
			t.Error(err)
		}
	}
	want("") // A standby shows nothing at all.

	defer collector.Show(shown{c})()
	const ready = `
# HELP node_ipam_controller_ready [ALPHA] 1 if the controller can do all of its work, 0 if something is missing, which its health check names.
# TYPE node_ipam_controller_ready gauge
node_ipam_controller_ready %d
`
	const failing = `
# HELP node_ipam_controller_failing_writes [ALPHA] Number of objects whose writes fail, for whatever reason, for longer than 2 seconds. kind: Node, ClusterCIDR, status of ClusterCIDR.
# TYPE node_ipam_controller_failing_writes gauge
node_ipam_controller_failing_writes{kind="ClusterCIDR"} 0
node_ipam_controller_failing_writes{kind="Node"} %d
node_ipam_controller_failing_writes{kind="status of ClusterCIDR"} 0`
	want(fmt.Sprintf(failing+ready, 0, 1)) // and before the state is filled, nothing else
	c.health.Wrote(health.WritesNode, "n1", errTimeout)
	now := c.health.Now()
	c.health.Now = func() time.Time { return now.Add(health.FailsFor) }
	want(fmt.Sprintf(failing+ready, 1, 0))
	c.health.Wrote(health.WritesNode, "n1", nil)

	c.filled.Store(true)
	c.health.Read(health.Problem{What: "no permission"})
	want(fmt.Sprintf(ready, 0), "ready")
	want(`
# HELP node_ipam_controller_blocks [ALPHA] Number of blocks of a ClusterCIDR by family and state: allocated to a Node, free, or unavailable because the ClusterCIDR excludes them, or they are of a service range or otherwise held.
# TYPE node_ipam_controller_blocks gauge
node_ipam_controller_blocks{clusterCIDRName="a",family="IPv4",state="allocated"} 3
node_ipam_controller_blocks{clusterCIDRName="a",family="IPv4",state="free"} 0
node_ipam_controller_blocks{clusterCIDRName="a",family="IPv4",state="unavailable"} 1
node_ipam_controller_blocks{clusterCIDRName="a",family="IPv6",state="allocated"} 2
node_ipam_controller_blocks{clusterCIDRName="a",family="IPv6",state="free"} 14
node_ipam_controller_blocks{clusterCIDRName="a",family="IPv6",state="unavailable"} 0
node_ipam_controller_blocks{clusterCIDRName="a2",family="IPv4",state="allocated"} 0
node_ipam_controller_blocks{clusterCIDRName="a2",family="IPv4",state="free"} 1
node_ipam_controller_blocks{clusterCIDRName="a2",family="IPv4",state="unavailable"} 0
node_ipam_controller_blocks{clusterCIDRName="covered",family="IPv4",state="allocated"} 0
node_ipam_controller_blocks{clusterCIDRName="covered",family="IPv4",state="free"} 0
node_ipam_controller_blocks{clusterCIDRName="covered",family="IPv4",state="unavailable"} 8
node_ipam_controller_blocks{clusterCIDRName="covered-too",family="IPv4",state="allocated"} 0
node_ipam_controller_blocks{clusterCIDRName="covered-too",family="IPv4",state="free"} 0
node_ipam_controller_blocks{clusterCIDRName="covered-too",family="IPv4",state="unavailable"} 1
node_ipam_controller_blocks{clusterCIDRName="going",family="IPv4",state="allocated"} 1
node_ipam_controller_blocks{clusterCIDRName="going",family="IPv4",state="free"} 1
node_ipam_controller_blocks{clusterCIDRName="going",family="IPv4",state="unavailable"} 0
node_ipam_controller_blocks{clusterCIDRName="off",family="IPv4",state="allocated"} 0
node_ipam_controller_blocks{clusterCIDRName="off",family="IPv4",state="free"} 256
node_ipam_controller_blocks{clusterCIDRName="off",family="IPv4",state="unavailable"} 0
node_ipam_controller_blocks{clusterCIDRName="one-block",family="IPv4",state="allocated"} 1
node_ipam_controller_blocks{clusterCIDRName="one-block",family="IPv4",state="free"} 0
node_ipam_controller_blocks{clusterCIDRName="one-block",family="IPv4",state="unavailable"} 0
# HELP node_ipam_controller_clustercidr_state [ALPHA] 1 for every ClusterCIDR, with the state that it is in: Enabled, Pending, Disabled, Terminating or Invalid.
# TYPE node_ipam_controller_clustercidr_state gauge
node_ipam_controller_clustercidr_state{clusterCIDRName="a",state="Enabled"} 1
node_ipam_controller_clustercidr_state{clusterCIDRName="a2",state="Pending"} 1
node_ipam_controller_clustercidr_state{clusterCIDRName="covered",state="Enabled"} 1
node_ipam_controller_clustercidr_state{clusterCIDRName="covered-too",state="Enabled"} 1
node_ipam_controller_clustercidr_state{clusterCIDRName="going",state="Terminating"} 1
node_ipam_controller_clustercidr_state{clusterCIDRName="off",state="Disabled"} 1
node_ipam_controller_clustercidr_state{clusterCIDRName="one-block",state="Enabled"} 1
node_ipam_controller_clustercidr_state{clusterCIDRName="wrong",state="Invalid"} 1
# HELP node_ipam_controller_conflicting_nodes [ALPHA] Number of Nodes that hold addresses which another Node or a service range holds too.
# TYPE node_ipam_controller_conflicting_nodes gauge
node_ipam_controller_conflicting_nodes 2
# HELP node_ipam_controller_nodes_holding_blocks [ALPHA] Number of Nodes that hold blocks in the controller's ledger, those included whose podCIDRs are being written.
# TYPE node_ipam_controller_nodes_holding_blocks gauge
node_ipam_controller_nodes_holding_blocks 6
# HELP node_ipam_controller_nodes_outside_ranges [ALPHA] Number of Nodes that hold podCIDRs of which none lies in a ClusterCIDR; 0 while there is no ClusterCIDR.
# TYPE node_ipam_controller_nodes_outside_ranges gauge
node_ipam_controller_nodes_outside_ranges 1
# HELP node_ipam_controller_nodes_with_podcidrs [ALPHA] Number of Nodes in the cluster that have podCIDRs. It differs from nodes_holding_blocks for as long as a write takes.
# TYPE node_ipam_controller_nodes_with_podcidrs gauge
node_ipam_controller_nodes_with_podcidrs 3
# HELP node_ipam_controller_range_covered [ALPHA] 1 for every range of a ClusterCIDR that one podCIDR of a Node contains as a whole, if that is larger than a block. The label node names the Node.
# TYPE node_ipam_controller_range_covered gauge
node_ipam_controller_range_covered{clusterCIDRName="covered",family="IPv4",node="wide"} 1
node_ipam_controller_range_covered{clusterCIDRName="covered-too",family="IPv4",node="wide"} 1
# HELP node_ipam_controller_terminating_clustercidr_nodes [ALPHA] Number of Nodes that keep a ClusterCIDR which is being deleted. There is a series for every such ClusterCIDR.
# TYPE node_ipam_controller_terminating_clustercidr_nodes gauge
node_ipam_controller_terminating_clustercidr_nodes{clusterCIDRName="going"} 2
# HELP node_ipam_controller_waiting_nodes [ALPHA] Number of Nodes that no ClusterCIDR can serve, by reason: NoClusterCIDR, NotSelected, Full, Pending, Disabled, Terminating, Invalid; or that wait because changes may have been missed: ChangesMissed.
# TYPE node_ipam_controller_waiting_nodes gauge
node_ipam_controller_waiting_nodes{reason="ChangesMissed"} 0
node_ipam_controller_waiting_nodes{reason="Disabled"} 0
node_ipam_controller_waiting_nodes{reason="Full"} 2
node_ipam_controller_waiting_nodes{reason="Invalid"} 0
node_ipam_controller_waiting_nodes{reason="NoClusterCIDR"} 0
node_ipam_controller_waiting_nodes{reason="NotSelected"} 0
node_ipam_controller_waiting_nodes{reason="Pending"} 0
node_ipam_controller_waiting_nodes{reason="Terminating"} 0
`, "blocks", "clustercidr_state", "conflicting_nodes", "nodes_holding_blocks", "nodes_outside_ranges", "nodes_with_podcidrs", "range_covered", "terminating_clustercidr_nodes", "waiting_nodes")

	// The peer's, of one ClusterCIDR whose objects are gone and one that stays.
	c.with(func(b *allocator.State) {
		for _, name := range []string{"a2", "covered", "covered-too", "going", "off", "one-block", "wrong"} {
			b.DropPool(name)
		}
	})
	want(`
# HELP node_ipam_controller_multicidrset_allocation_tries_per_request [STABLE] Histogram measuring CIDR allocation tries per request: 1 if the next CIDR was free.
# TYPE node_ipam_controller_multicidrset_allocation_tries_per_request histogram
node_ipam_controller_multicidrset_allocation_tries_per_request_bucket{clusterCIDR="10.0.0.0/22",clusterCIDRName="a",le="1"} 1
node_ipam_controller_multicidrset_allocation_tries_per_request_bucket{clusterCIDR="10.0.0.0/22",clusterCIDRName="a",le="5"} 3
node_ipam_controller_multicidrset_allocation_tries_per_request_bucket{clusterCIDR="10.0.0.0/22",clusterCIDRName="a",le="25"} 3
node_ipam_controller_multicidrset_allocation_tries_per_request_bucket{clusterCIDR="10.0.0.0/22",clusterCIDRName="a",le="125"} 3
node_ipam_controller_multicidrset_allocation_tries_per_request_bucket{clusterCIDR="10.0.0.0/22",clusterCIDRName="a",le="625"} 3
node_ipam_controller_multicidrset_allocation_tries_per_request_bucket{clusterCIDR="10.0.0.0/22",clusterCIDRName="a",le="+Inf"} 3
node_ipam_controller_multicidrset_allocation_tries_per_request_sum{clusterCIDR="10.0.0.0/22",clusterCIDRName="a"} 7
node_ipam_controller_multicidrset_allocation_tries_per_request_count{clusterCIDR="10.0.0.0/22",clusterCIDRName="a"} 3
node_ipam_controller_multicidrset_allocation_tries_per_request_bucket{clusterCIDR="fd00::/116",clusterCIDRName="a",le="1"} 3
node_ipam_controller_multicidrset_allocation_tries_per_request_bucket{clusterCIDR="fd00::/116",clusterCIDRName="a",le="5"} 3
node_ipam_controller_multicidrset_allocation_tries_per_request_bucket{clusterCIDR="fd00::/116",clusterCIDRName="a",le="25"} 3
node_ipam_controller_multicidrset_allocation_tries_per_request_bucket{clusterCIDR="fd00::/116",clusterCIDRName="a",le="125"} 3
node_ipam_controller_multicidrset_allocation_tries_per_request_bucket{clusterCIDR="fd00::/116",clusterCIDRName="a",le="625"} 3
node_ipam_controller_multicidrset_allocation_tries_per_request_bucket{clusterCIDR="fd00::/116",clusterCIDRName="a",le="+Inf"} 3
node_ipam_controller_multicidrset_allocation_tries_per_request_sum{clusterCIDR="fd00::/116",clusterCIDRName="a"} 3
node_ipam_controller_multicidrset_allocation_tries_per_request_count{clusterCIDR="fd00::/116",clusterCIDRName="a"} 3
# HELP node_ipam_controller_multicidrset_cidrs_allocations_total [STABLE] Counter measuring total number of CIDR allocations. What Nodes had before this process started does not count.
# TYPE node_ipam_controller_multicidrset_cidrs_allocations_total counter
node_ipam_controller_multicidrset_cidrs_allocations_total{clusterCIDR="10.0.0.0/22",clusterCIDRName="a"} 3
node_ipam_controller_multicidrset_cidrs_allocations_total{clusterCIDR="fd00::/116",clusterCIDRName="a"} 3
# HELP node_ipam_controller_multicidrset_cidrs_releases_total [STABLE] Counter measuring total number of CIDR releases.
# TYPE node_ipam_controller_multicidrset_cidrs_releases_total counter
node_ipam_controller_multicidrset_cidrs_releases_total{clusterCIDR="10.0.0.0/22",clusterCIDRName="a"} 1
node_ipam_controller_multicidrset_cidrs_releases_total{clusterCIDR="fd00::/116",clusterCIDRName="a"} 1
# HELP node_ipam_controller_multicidrset_max_cidrs [STABLE] Maximum number of CIDRs that can be allocated.
# TYPE node_ipam_controller_multicidrset_max_cidrs gauge
node_ipam_controller_multicidrset_max_cidrs{clusterCIDR="10.0.0.0/22",clusterCIDRName="a"} 4
node_ipam_controller_multicidrset_max_cidrs{clusterCIDR="fd00::/116",clusterCIDRName="a"} 16
# HELP node_ipam_controller_multicidrset_usage_cidrs [STABLE] Share of the CIDRs, from 0 to 1, that are not free: allocated, or not available.
# TYPE node_ipam_controller_multicidrset_usage_cidrs gauge
node_ipam_controller_multicidrset_usage_cidrs{clusterCIDR="10.0.0.0/22",clusterCIDRName="a"} 1
node_ipam_controller_multicidrset_usage_cidrs{clusterCIDR="fd00::/116",clusterCIDRName="a"} 0.125
`, "multicidrset_allocation_tries_per_request", "multicidrset_cidrs_allocations_total", "multicidrset_cidrs_releases_total", "multicidrset_max_cidrs", "multicidrset_usage_cidrs")
}

// TestPatchMetrics writes one Node several times, the way it went for one that met with everything.
func TestPatchMetrics(t *testing.T) {
	nodemetrics.Show(shown{newQuietController(t)})() // registers them
	gathered := func() map[string]float64 {
		families, err := legacyregistry.DefaultGatherer.Gather()
		if err != nil {
			t.Fatal(err)
		}
		all := map[string]float64{}
		for _, family := range families {
			for _, m := range family.Metric {
				switch family.GetName() {
				case nodemetrics.Prefix + "node_patches_total":
					all[m.Label[0].GetValue()] = m.Counter.GetValue()
				case nodemetrics.Prefix + "assignment_duration_seconds":
					all["durations"], all["seconds"] = float64(m.Histogram.GetSampleCount()), m.Histogram.GetSampleSum()
				}
			}
		}
		return all
	}
	before := gathered()
	for _, result := range nodemetrics.PatchResults {
		if _, ok := before[result]; !ok {
			t.Errorf("result %q is not shown before it happens, so its first time is no increase", result)
		}
	}

	nodes := schema.GroupResource{Resource: "nodes"}
	now := time.Unix(0, 0)
	c := newQuietController(t)
	c.now = func() time.Time { return now }
	r := allocator.Reservation{ClusterCIDR: "a", Blocks: Pfxs("10.0.0.0/24")}
	write := func(n *v1.Node, err error) {
		c.api = answering{err: err}
		_ = c.write(t.Context(), n, r)
	}

	c.firstSeen.See(Node("n"), now)
	now = now.Add(time.Second)
	c.firstSeen.See(Node("n"), now) // the first sighting counts
	for _, err := range []error{
		apierrors.NewForbidden(nodes, "n", nil), apierrors.NewUnauthorized(""),
		apierrors.NewInvalid(schema.GroupKind{}, "n", nil), apierrors.NewTooManyRequests("", 1),
		apierrors.NewTimeoutError("", 1), apierrors.NewServerTimeout(nodes, "patch", 1), fmt.Errorf("patch: %w", context.DeadlineExceeded),
		apierrors.NewConflict(nodes, "n", nil), apierrors.NewNotFound(nodes, "n"),
		errors.New("connection refused"), apierrors.NewInternalError(errors.New("etcd")),
		fmt.Errorf("patch: %w", lease.ErrClosed), // which was not sent, and does not count
	} {
		write(Node("n"), err)
	}
	now = now.Add(2 * time.Second)
	write(Node("n"), nil)
	c.firstSeen.See(Node("n"), now) // an event from before the write
	write(Node("n"), nil)           // which is carried out once more

	// A Node that is made anew is another one, also if its predecessor was not seen to go.
	c.firstSeen.See(Node("n", UID("again")), now)
	now = now.Add(4 * time.Second)
	write(Node("n"), nil)              // an answer for the old one
	c.api = answering{before: func() { // The watch is often faster than the answer.
		served := Node("n", UID("again"))
		served.Spec.PodCIDRs = []string{"10.0.0.0/24"}
		c.firstSeen.See(served, now)
	}}
	_ = c.write(t.Context(), Node("n", UID("again")), r)
	c.firstSeen.See(Node("other"), now)
	c.firstSeen.Gone("other")
	if c.firstSeen.Waiting("n") || c.firstSeen.Waiting("other") {
		t.Error("when a Node was first seen is kept, although it is served or gone")
	}

	after, delta := gathered(), map[string]float64{}
	for name, value := range after {
		if value != before[name] {
			delta[name] = value - before[name]
		}
	}
	want := map[string]float64{
		"success": 4, "gone": 2, "forbidden": 2, "invalid": 1, "throttled": 1, "timeout": 3, "error": 2,
		"durations": 2, "seconds": 3 + 4,
	}
	if diff := cmp.Diff(want, delta); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestOnlyTheRunningControllerIsShown(t *testing.T) {
	isShown := func() int {
		families, err := legacyregistry.DefaultGatherer.Gather()
		if err != nil {
			t.Fatal(err)
		}
		return slices.IndexFunc(families, func(f *dto.MetricFamily) bool { return f.GetName() == nodemetrics.Prefix+"ready" })
	}
	one, two := newQuietController(t), newQuietController(t)
	hideOne := nodemetrics.Show(shown{one})
	hideTwo := nodemetrics.Show(shown{two}) // A test can have two in a process. The registry refuses series that are there twice.
	if isShown() < 0 {
		t.Error("two controllers run and none is shown")
	}
	hideOne()
	if isShown() < 0 {
		t.Error("the first one ended, and the second is not shown any more")
	}
	hideTwo()
	if isShown() >= 0 {
		t.Error("a controller that ended is shown")
	}
}

// BenchmarkScrape measures how long the state is locked for one scrape, and the whole scrape, with 100,000 Nodes in 1,000
// ClusterCIDRs, one of which is going, and 1,000 Nodes waiting.
func BenchmarkScrape(b *testing.B) {
	const pools, nodes = 1000, 100_000
	layouts := map[string]func(i int) networkingv1.ClusterCIDRSpec{
		"side by side": func(i int) networkingv1.ClusterCIDRSpec {
			return Spec4(fmt.Sprintf("10.%d.%d.0/18", i/4, i%4*64), 4, nil)
		},
		"nested": func(i int) networkingv1.ClusterCIDRSpec { return Spec4(fmt.Sprintf("10.0.0.0/%d", 8+i%2), 4, nil) },
	}
	for sentence, layout := range layouts {
		var all []*v1.Node
		book := allocator.New()
		for i := range 1000 { // They stay pending: nobody looks at them again here.
			book.Reserve(Node(fmt.Sprint("w", i)))
		}
		for i := range pools {
			book.SetPool(clustercidr.Compile(ClusterCIDR(fmt.Sprint("cc", i), layout(i))))
		}
		for i := range nodes {
			n := Node(fmt.Sprint("n", i), From(fmt.Sprint("cc", i%pools)))
			j := i % pools
			n.Spec.PodCIDRs = []string{fmt.Sprintf("10.%d.%d.%d/28", j/4, j%4*64+i/pools/16, i/pools%16*16)}
			book.Observe(n, Pfxs(n.Spec.PodCIDRs...), nil)
			all = append(all, n)
		}
		book.SetPool(clustercidr.Compile(ClusterCIDR("cc0", layout(0), Deleted)))
		c := newQuietController(b, all...)
		c.state = book
		c.filled.Store(true)
		collector := &nodemetrics.Collector{}
		defer collector.Show(shown{c})()
		registry := metrics.NewKubeRegistry()
		registry.CustomMustRegister(collector)
		book.Figures() // the first one counts
		b.Run(sentence+", lock", func(b *testing.B) {
			for b.Loop() {
				c.state.Figures()
			}
		})
		b.Run(sentence+", lock, and a Node comes and goes", func(b *testing.B) {
			var locked time.Duration
			for b.Loop() {
				c.state.Observe(Node("new"), Pfxs("10.0.0.240/28"), nil)
				c.state.NodeGone("new", "uid-new")
				start := time.Now()
				c.state.Figures()
				locked += time.Since(start)
			}
			b.ReportMetric(float64(locked.Microseconds())/float64(b.N), "locked-µs/op")
		})
		b.Run(sentence+", scrape", func(b *testing.B) {
			for b.Loop() {
				if _, err := registry.Gather(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

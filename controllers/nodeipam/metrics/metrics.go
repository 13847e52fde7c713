// Package metrics exports what the controller knows and has done to Prometheus.
package metrics

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"

	"github.com/multicidr/controller-manager/controllers/ipam"
	"github.com/multicidr/controller-manager/controllers/nodeipam/allocator"
	"github.com/multicidr/controller-manager/controllers/nodeipam/health"
	"github.com/multicidr/controller-manager/controllers/nodeipam/pool"
	"github.com/multicidr/controller-manager/controllers/writes"
)

// There are two kinds of metrics. What follows from the state of the cluster is read from the state at every scrape, so it is never
// outdated, and a series ends with its object. Momentary actions, such as a PATCH, are counted when they happen.
//
// The names node_ipam_controller_multicidrset_* are those of kubernetes-sigs/node-ipam-controller and are STABLE, so that existing
// dashboards keep working. The others are ALPHA, which in Kubernetes means that they may still change.

// Prefix is the prefix of all names.
const Prefix = "node_ipam_controller_"

// Source is the view of a controller for metrics. The zero value is a controller that is not built yet, and so is not ready. Others have all.
type Source struct {
	Health *health.Health
	// With calls a function with the state, which does not change meanwhile. It returns false, and there is nothing to show, before the start
	// has read everything.
	With func(func(*allocator.State)) bool
}

// stateDescs are what desc has returned.
var stateDescs []*metrics.Desc

func desc(stability metrics.StabilityLevel, name, help string, labels ...string) *metrics.Desc {
	d := metrics.NewDesc(Prefix+name, help, labels, nil, stability, "")
	stateDescs = append(stateDescs, d)
	return d
}

var (
	readyDesc = desc(metrics.ALPHA, "ready",
		"1 if the controller can do all of its work, 0 if something is missing, which its health check names.")
	failingDesc = desc(metrics.ALPHA, "failing_writes",
		"Number of objects whose writes fail, for whatever reason, for longer than 2 seconds. kind: Node, ClusterCIDR, status of ClusterCIDR.", "kind")
	stateDesc = desc(metrics.ALPHA, "clustercidr_state",
		"1 for every ClusterCIDR, with the state that it is in: Enabled, Disabled, None, Terminating or Invalid.", "clusterCIDRName", "state")
	blocksDesc = desc(metrics.ALPHA, "blocks",
		"Number of blocks of a ClusterCIDR by family and state: allocated to a Node, free, or unavailable because the ClusterCIDR excludes them, or they are of a service range or otherwise held.",
		"clusterCIDRName", "family", "state")
	coveredDesc = desc(metrics.ALPHA, "range_covered",
		"1 for every range of a ClusterCIDR that one podCIDR of a Node contains as a whole, if that is larger than a block. The label node names the Node.",
		"clusterCIDRName", "family", "node")
	blockersDesc = desc(metrics.ALPHA, "terminating_clustercidr_nodes",
		"Number of Nodes that keep a ClusterCIDR which is being deleted. There is a series for every such ClusterCIDR.", "clusterCIDRName")
	waitingDesc = desc(metrics.ALPHA, "waiting_nodes",
		"Number of pending Nodes, which no ClusterCIDR can serve, by reason: NoClusterCIDR, NotSelected, Full, Disabled, Terminating, Invalid.", "reason")
	sharingDesc = desc(metrics.ALPHA, "conflicting_nodes",
		"Number of Nodes that hold addresses which another Node or a service range holds too.")
	outsidersDesc = desc(metrics.ALPHA, "nodes_outside_ranges",
		"Number of Nodes that hold podCIDRs of which none lies in a ClusterCIDR; 0 while there is no ClusterCIDR.")
	holdingDesc = desc(metrics.ALPHA, "nodes_holding_blocks",
		"Number of Nodes that hold blocks in the controller's ledger, those included whose podCIDRs are being written.")
	showingDesc = desc(metrics.ALPHA, "nodes_with_podcidrs",
		"Number of Nodes in the cluster that have podCIDRs. It differs from nodes_holding_blocks for as long as a write takes.")

	maxDesc = desc(metrics.STABLE, "multicidrset_max_cidrs",
		"Maximum number of CIDRs that can be allocated.", "clusterCIDR", "clusterCIDRName")
	usageDesc = desc(metrics.STABLE, "multicidrset_usage_cidrs",
		"Share of the CIDRs, from 0 to 1, that are not free: allocated, or not available.", "clusterCIDR", "clusterCIDRName")
	allocationsDesc = desc(metrics.STABLE, "multicidrset_cidrs_allocations_total",
		"Counter measuring total number of CIDR allocations. What Nodes had before this process started does not count.", "clusterCIDR", "clusterCIDRName")
	releasesDesc = desc(metrics.STABLE, "multicidrset_cidrs_releases_total",
		"Counter measuring total number of CIDR releases.", "clusterCIDR", "clusterCIDRName")
	triesDesc = desc(metrics.STABLE, "multicidrset_allocation_tries_per_request",
		"Histogram measuring CIDR allocation tries per request: 1 if the next CIDR was free.", "clusterCIDR", "clusterCIDRName")

	assignmentDuration = metrics.NewHistogram(&metrics.HistogramOpts{
		Name:           Prefix + "assignment_duration_seconds",
		Help:           "Seconds from seeing a Node without podCIDRs first to the PATCH that gave it some, its wait for a ClusterCIDR included.",
		Buckets:        []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 120, 300},
		StabilityLevel: metrics.ALPHA,
	})
	nodePatches = metrics.NewCounterVec(&metrics.CounterOpts{
		Name: Prefix + "node_patches_total",
		Help: "Number of PATCHes of podCIDRs by result: success, gone (the Node is deleted, or another one of its name), forbidden, invalid, throttled, " +
			"timeout, error. All but the first two are tried again.",
		StabilityLevel: metrics.ALPHA,
	}, []string{"result"})
	assignmentsByOthers = metrics.NewCounter(&metrics.CounterOpts{
		Name:           Prefix + "assignments_by_others_total",
		Help:           "Number of Nodes that got their podCIDRs from another process while this one was the leader. More than 0: two allocators are on.",
		StabilityLevel: metrics.ALPHA,
	})
)

// ObserveAssignment notes for how long a Node was seen without podCIDRs, in seconds, when it got them from this process.
func ObserveAssignment(seconds float64) { assignmentDuration.Observe(seconds) }

// AssignedByOther counts a Node that got its podCIDRs from another process.
func AssignedByOther() { assignmentsByOthers.Inc() }

// CountPatch counts a PATCH of podCIDRs by its answer; nothing if the fence kept it from being sent.
func CountPatch(err error) {
	if !writes.NotItsTurn(err) {
		nodePatches.WithLabelValues(patchResult(err)).Inc()
	}
}

var patchResults = []string{"success", "gone", "forbidden", "invalid", "throttled", "timeout", "error"}

func patchResult(err error) string {
	switch {
	case err == nil:
		return "success"
	case apierrors.IsNotFound(err), apierrors.IsConflict(err):
		return "gone"
	case apierrors.IsForbidden(err), apierrors.IsUnauthorized(err):
		return "forbidden"
	case apierrors.IsInvalid(err), apierrors.IsBadRequest(err):
		return "invalid"
	case apierrors.IsTooManyRequests(err):
		return "throttled"
	case apierrors.IsTimeout(err), apierrors.IsServerTimeout(err), utilnet.IsTimeout(err), errors.Is(err, context.DeadlineExceeded):
		return "timeout"
	default:
		return "error"
	}
}

// collector shows the Source that runs in this process; nothing if none does, because a standby has no state.
type collector struct {
	metrics.BaseStableCollector
	running atomic.Pointer[Source]
}

var (
	shown    collector
	register = sync.OnceFunc(func() {
		legacyregistry.MustRegister(assignmentDuration, nodePatches, assignmentsByOthers)
		legacyregistry.CustomMustRegister(&shown)
		for _, result := range patchResults { // A rate needs a series that starts at 0.
			nodePatches.WithLabelValues(result)
		}
	})
)

// Show makes the metrics of the process show a Source in place of any other one, until hide is called. The first call registers the
// metrics, so a program without this controller does not have them.
func Show(of Source) (hide func()) {
	register()
	shown.running.Store(&of)
	return func() { shown.running.CompareAndSwap(&of, nil) }
}

// DescribeWithStability is called by the registry.
func (c *collector) DescribeWithStability(ch chan<- *metrics.Desc) {
	for _, d := range stateDescs {
		ch <- d
	}
}

// CollectWithStability is called by the registry.
func (c *collector) CollectWithStability(ch chan<- metrics.Metric) {
	of := c.running.Load()
	if of == nil {
		return
	}
	if of.Health == nil {
		ch <- gauge(readyDesc, 0)
		return
	}
	ready := 0.0
	if of.Health.Check(nil) == nil {
		ready = 1
	}
	found := []metrics.Metric{gauge(readyDesc, ready)}
	for _, kind := range health.Kinds {
		found = append(found, gauge(failingDesc, float64(of.Health.Failing(kind)), string(kind)))
	}
	var pools []*pool.Pool
	of.With(func(s *allocator.State) {
		found, pools = append(found, ofNodes(s.Counts())...), s.Pools()
	})
	for _, p := range pools { // one after the other, so that Nodes need not wait for all of them
		of.With(func(s *allocator.State) {
			if now, ok := s.Pool(p.Name); ok && now == p {
				found = append(found, ofPool(s, p)...)
			}
		})
	}
	for _, m := range found { // without the lock of With
		ch <- m
	}
}

func gauge(d *metrics.Desc, value float64, labels ...string) metrics.Metric {
	return metrics.NewLazyConstMetric(d, metrics.GaugeValue, value, labels...)
}

func ofNodes(counts allocator.Counts) []metrics.Metric {
	found := []metrics.Metric{
		gauge(showingDesc, float64(counts.Assigned)), gauge(holdingDesc, float64(counts.Holding)),
		gauge(sharingDesc, float64(counts.Sharing)), gauge(outsidersDesc, float64(counts.OutOfRange)),
	}
	for _, reason := range allocator.Reasons {
		found = append(found, gauge(waitingDesc, float64(counts.Pending[reason]), string(reason)))
	}
	return found
}

func ofPool(s *allocator.State, p *pool.Pool) []metrics.Metric {
	found := []metrics.Metric{gauge(stateDesc, 1, p.Name, p.State.String())}
	if p.State == ipam.Terminating {
		found = append(found, gauge(blockersDesc, float64(s.Users(p)), p.Name))
	}
	for _, r := range p.Ranges {
		found = append(found, ofRange(s, p, r)...)
	}
	return found
}

func ofRange(s *allocator.State, p *pool.Pool, r ipam.Range) (found []metrics.Metric) {
	family, status, traffic := r.Family().String(), s.RangeStatus(p, r), s.Traffic(p, r.Family())
	for state, n := range map[string]int64{"allocated": status.Allocated, "free": status.Free, "unavailable": status.Unavailable} {
		found = append(found, gauge(blocksDesc, float64(n), p.Name, family, state))
	}
	if covering, covered := s.CoveredBy(r); covered {
		found = append(found, gauge(coveredDesc, 1, p.Name, family, covering.Owner.ID))
	}
	show := func(d *metrics.Desc, kind metrics.ValueType, value float64) metrics.Metric {
		return metrics.NewLazyConstMetric(d, kind, value, status.CIDR, p.Name)
	}
	total, free := float64(status.Total), float64(status.Free)
	found = append(found,
		show(maxDesc, metrics.GaugeValue, total),
		show(usageDesc, metrics.GaugeValue, (total-free)/total),
		show(allocationsDesc, metrics.CounterValue, float64(traffic.Allocations)),
		show(releasesDesc, metrics.CounterValue, float64(traffic.Releases)),
	)
	// The metrics package has no constant histograms. show returns nil if the metric is disabled.
	if untyped := show(triesDesc, metrics.UntypedValue, 0); untyped != nil {
		cumulative, sum := map[float64]uint64{}, uint64(0)
		for i, n := range traffic.Tries {
			sum += n
			cumulative[allocator.TriesBuckets[i]] = sum
		}
		found = append(found, prometheus.MustNewConstHistogram(untyped.Desc(), traffic.Allocations, traffic.TriesSum, cumulative, status.CIDR, p.Name))
	}
	return found
}

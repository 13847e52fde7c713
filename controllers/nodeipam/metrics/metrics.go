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

	networkingv1 "github.com/multicidr/controller-manager/apis/networking/v1"
	"github.com/multicidr/controller-manager/controllers/ipam"
	"github.com/multicidr/controller-manager/controllers/nodeipam/allocator"
	"github.com/multicidr/controller-manager/controllers/nodeipam/health"
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
	// Ready reports whether the controller can do all of its work.
	Ready func() bool
	// Failing is the number of objects whose writes fail.
	Failing func(health.Kind) int
	// Figures returns figures about the state. ok is false, and there is nothing to show, before the start has read everything.
	Figures func() (f Figures, ok bool)
}

// Figures is what a scrape copies from the state, so that it holds the lock only briefly.
type Figures struct {
	WithPodCIDRs int // Nodes that have podCIDRs
	Holding      int // Nodes that hold blocks, those included whose podCIDRs are being written
	Sharing      int // Nodes that hold addresses which another holder has, too
	OutOfRange   int // Nodes that have podCIDRs of which none lies in a ClusterCIDR; 0 without ClusterCIDRs

	Pending  map[allocator.Reason]int // Nodes
	States   map[string]string        // Enabled, Disabled, None, Terminating or Invalid, by the ClusterCIDR's name
	Blockers map[string]int           // Nodes that use a terminating ClusterCIDR, by its name
	Ranges   []RangeFigures
}

// RangeFigures is about one range of a ClusterCIDR.
type RangeFigures struct {
	ClusterCIDR string // name
	Family      ipam.Family
	Status      networkingv1.RangeStatus
	CoveredBy   string // the Node that holds the whole range as one podCIDR larger than a block; empty if there is none

	allocator.Traffic
}

func desc(stability metrics.StabilityLevel, name, help string, labels ...string) *metrics.Desc {
	return metrics.NewDesc(Prefix+name, help, labels, nil, stability, "")
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

	stateDescs = []*metrics.Desc{
		readyDesc, failingDesc, stateDesc, blocksDesc, coveredDesc, blockersDesc, waitingDesc, sharingDesc, outsidersDesc, holdingDesc, showingDesc,
		maxDesc, usageDesc, allocationsDesc, releasesDesc, triesDesc,
	}

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
	gauge := func(d *metrics.Desc, value float64, labels ...string) {
		ch <- metrics.NewLazyConstMetric(d, metrics.GaugeValue, value, labels...)
	}
	if of.Ready == nil {
		gauge(readyDesc, 0)
		return
	}
	ready := 0.0
	if of.Ready() {
		ready = 1
	}
	gauge(readyDesc, ready)
	for _, kind := range health.Kinds {
		gauge(failingDesc, float64(of.Failing(kind)), string(kind))
	}
	if f, ok := of.Figures(); ok {
		collect(f, gauge)
		for _, r := range f.Ranges {
			collectRange(r, ch)
		}
	}
}

func collect(f Figures, gauge func(d *metrics.Desc, value float64, labels ...string)) {
	gauge(showingDesc, float64(f.WithPodCIDRs))
	gauge(holdingDesc, float64(f.Holding))
	gauge(sharingDesc, float64(f.Sharing))
	gauge(outsidersDesc, float64(f.OutOfRange))
	for _, reason := range allocator.Reasons {
		gauge(waitingDesc, float64(f.Pending[reason]), string(reason))
	}
	for name, state := range f.States {
		gauge(stateDesc, 1, name, state)
	}
	for name, n := range f.Blockers {
		gauge(blockersDesc, float64(n), name)
	}
}

func collectRange(r RangeFigures, ch chan<- metrics.Metric) {
	for state, n := range map[string]int64{"allocated": r.Status.Allocated, "free": r.Status.Free, "unavailable": r.Status.Unavailable} {
		ch <- metrics.NewLazyConstMetric(blocksDesc, metrics.GaugeValue, float64(n), r.ClusterCIDR, r.Family.String(), state)
	}
	if r.CoveredBy != "" {
		ch <- metrics.NewLazyConstMetric(coveredDesc, metrics.GaugeValue, 1, r.ClusterCIDR, r.Family.String(), r.CoveredBy)
	}
	show := func(d *metrics.Desc, kind metrics.ValueType, value float64) metrics.Metric {
		return metrics.NewLazyConstMetric(d, kind, value, r.Status.CIDR, r.ClusterCIDR)
	}
	total, free := float64(r.Status.Total), float64(r.Status.Free)
	ch <- show(maxDesc, metrics.GaugeValue, total)
	ch <- show(usageDesc, metrics.GaugeValue, (total-free)/total)
	ch <- show(allocationsDesc, metrics.CounterValue, float64(r.Allocations))
	ch <- show(releasesDesc, metrics.CounterValue, float64(r.Releases))

	// The metrics package has no constant histograms. show returns nil if the metric is disabled.
	if untyped := show(triesDesc, metrics.UntypedValue, 0); untyped != nil {
		cumulative, sum := map[float64]uint64{}, uint64(0)
		for i, n := range r.Tries {
			sum += n
			cumulative[allocator.TriesBuckets[i]] = sum
		}
		ch <- prometheus.MustNewConstHistogram(untyped.Desc(), r.Allocations, r.TriesSum, cumulative, r.Status.CIDR, r.ClusterCIDR)
	}
}

// Package metrics exports what the controller knows and has done to Prometheus.
package metrics

import (
	"runtime/debug"
	"sync"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"
	"k8s.io/klog/v2"

	"github.com/multicidr/controller-manager/controllers/nodeipam/allocator"
	"github.com/multicidr/controller-manager/controllers/nodeipam/health"
	"github.com/multicidr/controller-manager/controllers/nodeipam/pending"
	"github.com/multicidr/controller-manager/controllers/nodeipam/requests"
	"github.com/multicidr/controller-manager/controllers/nodeipam/traffic"
)

// There are two kinds of metrics. What follows from the state of the cluster is read from the state at every scrape, so it is never
// outdated, and a series ends with its object. Momentary actions, such as a PATCH, are counted when they happen.
//
// The names node_ipam_controller_multicidrset_* are those of kubernetes-sigs/node-ipam-controller and are STABLE, so that existing
// dashboards keep working. The others are ALPHA, which in Kubernetes means that they may still change.

// Prefix is the prefix of all names.
const Prefix = "node_ipam_controller_"

func desc(stability metrics.StabilityLevel, name, help string, labels ...string) *metrics.Desc {
	return metrics.NewDesc(Prefix+name, help, labels, nil, stability, "")
}

var (
	readyDesc = desc(metrics.ALPHA, "ready",
		"1 if the controller can do all of its work, 0 if something is missing, which its health check names.")
	failingDesc = desc(metrics.ALPHA, "failing_writes",
		"Number of objects whose writes fail, for whatever reason, for longer than 2 seconds. kind: Node, ClusterCIDR, status of ClusterCIDR.", "kind")
	stateDesc = desc(metrics.ALPHA, "clustercidr_state",
		"1 for every ClusterCIDR, with the state that it is in: Enabled, Pending, Disabled, Terminating or Invalid.", "clusterCIDRName", "state")
	blocksDesc = desc(metrics.ALPHA, "blocks",
		"Number of blocks of a ClusterCIDR by family and state: allocated to a Node, free, or unavailable because the ClusterCIDR excludes them, or they are of a service range or otherwise held.",
		"clusterCIDRName", "family", "state")
	coveredDesc = desc(metrics.ALPHA, "range_covered",
		"1 for every range of a ClusterCIDR that one podCIDR of a Node contains as a whole, if that is larger than a block. The label node names the Node.",
		"clusterCIDRName", "family", "node")
	blockersDesc = desc(metrics.ALPHA, "terminating_clustercidr_nodes",
		"Number of Nodes that keep a ClusterCIDR which is being deleted. There is a series for every such ClusterCIDR.", "clusterCIDRName")
	waitingDesc = desc(metrics.ALPHA, "waiting_nodes",
		"Number of Nodes that no ClusterCIDR can serve, by reason: NoClusterCIDR, NotSelected, Full, Pending, Disabled, Terminating, Invalid; or that wait because changes may have been missed: ChangesMissed.", "reason")
	sharingDesc = desc(metrics.ALPHA, "conflicting_nodes",
		"Number of Nodes that hold addresses which another Node or a service range holds too.")
	outsidersDesc = desc(metrics.ALPHA, "nodes_outside_ranges",
		"Number of Nodes that hold podCIDRs of which none lies in a ClusterCIDR; 0 while there is no ClusterCIDR.")
	holdingDesc = desc(metrics.ALPHA, "nodes_holding_blocks",
		"Number of Nodes that hold blocks in the controller's ledger, those included whose podCIDRs are being written.")
	inDoubtDesc = desc(metrics.ALPHA, "nodes_in_doubt",
		"Number of Nodes that went when etcd was restored from a backup. Their blocks are kept, because their machines may run; see docs/operators/restore-etcd.md.")
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
		readyDesc, failingDesc, stateDesc, blocksDesc, coveredDesc, blockersDesc, waitingDesc, sharingDesc, outsidersDesc, holdingDesc, showingDesc, inDoubtDesc,
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
	panics = metrics.NewCounter(&metrics.CounterOpts{
		Name:           Prefix + "panics_total",
		Help:           "Number of panics of the controller. Each ended it; it was built anew and started again in the same process. More than 0 is a defect.",
		StabilityLevel: metrics.ALPHA,
	})
)

// Source is the view of a controller for metrics.
type Source interface {
	// Ready reports whether the controller can do all of its work.
	Ready() bool
	// Failing is the number of objects whose writes fail.
	Failing(kind health.Kind) int
	// Known returns figures about the state, and how many Nodes of the cluster have podCIDRs. ok is false, and there is nothing to show,
	// before the start has read everything and after a panic.
	Known() (f allocator.Figures, withPodCIDRs int, ok bool)
}

// Collector shows the Source that runs in this process; nothing if none does, because a standby has no state.
type Collector struct {
	metrics.BaseStableCollector
	running atomic.Pointer[Source]
}

var (
	collector Collector
	register  = sync.OnceFunc(func() {
		legacyregistry.MustRegister(assignmentDuration, nodePatches, assignmentsByOthers, panics)
		legacyregistry.CustomMustRegister(&collector)
		for _, result := range PatchResults { // A rate needs a series that starts at 0.
			nodePatches.WithLabelValues(result)
		}
	})
)

// Show makes the metrics of the process show a Source in place of any other one, until hide is called. The first call registers the
// metrics, so a program without this controller does not have them.
func Show(of Source) (hide func()) {
	register()
	return collector.Show(of)
}

// ShowUnbuilt makes the metrics of the process show a controller that is not built yet, and so is not ready, until hide is called or a Source
// takes its place. Without it, a leader that cannot build its controller looks like a process without this controller.
func ShowUnbuilt() (hide func()) { return Show(unbuilt{}) }

// unbuilt is the Source of a controller that is not built yet.
type unbuilt struct{}

func (unbuilt) Ready() bool                                  { return false }
func (unbuilt) Failing(health.Kind) int                      { return 0 }
func (unbuilt) Known() (_ allocator.Figures, _ int, ok bool) { return allocator.Figures{}, 0, false }

// Show makes a Collector show a Source until hide is called.
func (c *Collector) Show(of Source) (hide func()) {
	c.running.Store(&of)
	return func() { c.running.CompareAndSwap(&of, nil) }
}

// DescribeWithStability is called by the registry.
func (c *Collector) DescribeWithStability(ch chan<- *metrics.Desc) {
	for _, d := range stateDescs {
		ch <- d
	}
}

// CollectWithStability is called by the registry.
func (c *Collector) CollectWithStability(ch chan<- metrics.Metric) {
	running := c.running.Load()
	if running == nil {
		return
	}
	of := *running
	gauge := func(d *metrics.Desc, value float64, labels ...string) {
		ch <- metrics.NewLazyConstMetric(d, metrics.GaugeValue, value, labels...)
	}
	gauge(readyDesc, boolValue(of.Ready()))
	for _, kind := range health.Kinds {
		gauge(failingDesc, float64(of.Failing(kind)), string(kind))
	}
	defer func() {
		// Nothing else recovers this panic, and it would end the process.
		if r := recover(); r != nil {
			klog.Background().Error(nil, "Panic: the metrics are incomplete. This is a defect: report it with this line", "controller", requests.Manager, "panic", r, "stack", string(debug.Stack()))
		}
	}()
	f, showing, ok := of.Known()
	if !ok {
		return
	}
	gauge(showingDesc, float64(showing))
	gauge(holdingDesc, float64(f.Holding))
	gauge(sharingDesc, float64(f.Sharing))
	gauge(outsidersDesc, float64(f.OutOfRange))
	gauge(inDoubtDesc, float64(f.InDoubt))
	for _, reason := range pending.Reasons {
		gauge(waitingDesc, float64(f.Pending[reason]), string(reason))
	}
	for name, state := range f.States {
		gauge(stateDesc, 1, name, state.String())
	}
	for name, n := range f.Blockers {
		gauge(blockersDesc, float64(n), name)
	}
	for _, r := range f.Ranges {
		collect(r, ch)
	}
}

// Panicked counts a panic of the controller.
func Panicked() { panics.Inc() }

// AssignedByOther counts a Node that got its podCIDRs from another process.
func AssignedByOther() { assignmentsByOthers.Inc() }

func boolValue(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

func collect(r allocator.RangeFigures, ch chan<- metrics.Metric) {
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
	ch <- show(allocationsDesc, metrics.CounterValue, float64(r.Traffic.Allocations))
	ch <- show(releasesDesc, metrics.CounterValue, float64(r.Traffic.Releases))

	// The metrics package has no constant histograms. show returns nil if the metric is disabled.
	if untyped := show(triesDesc, metrics.UntypedValue, 0); untyped != nil {
		cumulative, sum := map[float64]uint64{}, uint64(0)
		for i, n := range r.Traffic.Tries {
			sum += n
			cumulative[traffic.TriesBuckets[i]] = sum
		}
		ch <- prometheus.MustNewConstHistogram(untyped.Desc(), r.Traffic.Allocations, r.Traffic.TriesSum, cumulative, r.Status.CIDR, r.ClusterCIDR)
	}
}

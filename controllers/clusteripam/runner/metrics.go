package runner

import (
	"sync"

	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"

	"github.com/multicidr/controller-manager/controllers/writes"
)

// There are two kinds of metrics. What follows from the state is read from the state at every scrape. Momentary actions are counted when
// they happen.

const prefix = "cluster_ipam_"

func desc(name, help string, labels ...string) *metrics.Desc {
	return metrics.NewDesc(prefix+name, help, append([]string{"controller"}, labels...), nil, metrics.ALPHA, "")
}

func k0rdentDesc(name, help string) *metrics.Desc {
	return metrics.NewDesc(name, help, []string{"ipam_kind", "ipam_namespace", "ipam_name"}, nil, metrics.ALPHA, "")
}

var (
	readyDesc = desc("ready", "1 if the controller can do all of its work, 0 if something is missing, which its health check names.")
	failDesc  = desc("failing_objects", "Number of objects on which the work fails, for whatever reason, for longer than 2 seconds.", "kind")
	waitDesc  = desc("waiting_objects", "Number of objects that wait for what they ask for, by reason.", "reason")
	boundDesc = desc("bound_objects", "Number of objects that have what they asked for.")
	clashDesc = desc("conflicting_addresses", "Number of addresses that several objects hold.")
	poolsDesc = desc("addresses", "Number of addresses of a pool by state: used, free, or out_of_range (used and not in the pool any more).", "kind", "namespace", "pool", "state")

	// The names, labels and values are those of k0rdent's manager: its users have dashboards of them.
	k0rdentUse   = k0rdentDesc("kcm_ipam_claim_use", "1 for each ClusterIPAM that belongs to a ClusterIPAMClaim. The name is that of k0rdent's manager.")
	k0rdentBound = k0rdentDesc("kcm_ipam_claims_bound", "1 if the ClusterIPAMClaim of a ClusterIPAM is bound, otherwise 0. The name is that of k0rdent's manager.")

	descs = []*metrics.Desc{readyDesc, failDesc, waitDesc, boundDesc, clashDesc, poolsDesc, k0rdentUse, k0rdentBound}

	sent = metrics.NewCounterVec(&metrics.CounterOpts{
		Name: prefix + "writes_total", Help: "Number of writes by kind, verb and outcome: success, refused (by the API server), not_sent, unknown (no answer).", StabilityLevel: metrics.ALPHA,
	}, []string{"controller", "kind", "verb", "outcome"})
	tookSeconds = metrics.NewHistogramVec(&metrics.HistogramOpts{
		Name: prefix + "wait_duration_seconds", Help: "Seconds from seeing an object first until it had what it asked for.",
		Buckets: []float64{.005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300}, StabilityLevel: metrics.ALPHA,
	}, []string{"controller"})
)

var (
	shown    collector
	register = sync.OnceFunc(func() {
		legacyregistry.MustRegister(sent, tookSeconds)
		legacyregistry.CustomMustRegister(&shown)
	})
)

// collector shows the controllers that run in this process.
type collector struct {
	metrics.BaseStableCollector
	running sync.Map // *Controller by name
}

// show makes the metrics show a controller until hide is called. A program without such a controller does not have these metrics.
func show(c *Controller) (hide func()) {
	register()
	shown.running.Store(c.cfg.Name, c)
	return func() { shown.running.CompareAndDelete(c.cfg.Name, c) }
}

// DescribeWithStability is called by the registry.
func (s *collector) DescribeWithStability(ch chan<- *metrics.Desc) {
	for _, d := range descs {
		ch <- d
	}
}

// CollectWithStability is called by the registry.
func (s *collector) CollectWithStability(ch chan<- metrics.Metric) {
	s.running.Range(func(_, c any) bool {
		c.(*Controller).collect(ch)
		return true
	})
}

func (c *Controller) collect(ch chan<- metrics.Metric) {
	gauge := func(d *metrics.Desc, value float64, labels ...string) {
		ch <- metrics.NewLazyConstMetric(d, metrics.GaugeValue, value, append([]string{c.cfg.Name}, labels...)...)
	}
	gauge(readyDesc, number(c.Check(nil) == nil))
	for kind := range c.cfg.Workers {
		gauge(failDesc, float64(c.health.count(kind)), kind.Name)
	}
	now := c.running.Load()
	if now == nil {
		return // A state that is not filled, or not updated any more, says nothing.
	}
	f := (*now).Figures()
	gauge(boundDesc, float64(f.Bound))
	gauge(clashDesc, float64(f.Conflicts))
	for reason, n := range f.Waiting {
		gauge(waitDesc, float64(n), reason)
	}
	for _, p := range f.Pools {
		for state, n := range map[string]float64{"used": p.Used, "free": p.Free, "out_of_range": p.OutOfRange} {
			gauge(poolsDesc, n, p.Kind.Name, p.Namespace, p.Name, state)
		}
	}
	for _, i := range f.IPAMs {
		ch <- metrics.NewLazyConstMetric(k0rdentUse, metrics.GaugeValue, 1, ClusterIPAMs.Name, i.Namespace, i.Name)
		ch <- metrics.NewLazyConstMetric(k0rdentBound, metrics.GaugeValue, number(i.Bound), ClusterIPAMs.Name, i.Namespace, i.Name)
	}
}

func number(is bool) float64 {
	if is {
		return 1
	}
	return 0
}

// countWrite counts a write.
func (c *Controller) countWrite(kind *Kind, verb string, err error) {
	outcome := "refused"
	switch {
	case err == nil:
		outcome = "success"
	case writes.NotSent(err):
		outcome = "not_sent"
	case !writes.Answered(err):
		outcome = "unknown"
	}
	sent.WithLabelValues(c.cfg.Name, kind.Name, verb, outcome).Inc()
}

package main

import (
	"bytes"
	"context"
	"fmt"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
)

// stages is how long Nodes have been in each stage of our controller so far, in all, and how many there were; and how many watches of Nodes the
// API server has ended because their client, or the API server itself, did not keep up.
type stages map[string]sum

type sum struct{ seconds, count float64 }

// ofStages are the histograms of each stage, by the value's name: a Node waits in the queue, a worker serves it, and both together from the
// first event to the answer to the PATCH.
var ofStages = map[string]struct{ histogram, queue string }{
	"queue-ms":           {"workqueue_queue_duration_seconds", "multi_cidr_node_ipam_nodes"},
	"work-ms":            {"workqueue_work_duration_seconds", "multi_cidr_node_ipam_nodes"},
	"seen-to-patched-ms": {"node_ipam_controller_assignment_duration_seconds", ""},
}

const endedWatches = "watches-ended"

func (c *cluster) stagesSoFar(ctx context.Context, r *runner) (stages, error) {
	text, err := c.kube.Discovery().RESTClient().Get().AbsPath("/metrics").SetHeader("Accept", "text/plain").DoRaw(ctx)
	if err != nil {
		return nil, fmt.Errorf("read the API server's metrics: %w", err)
	}
	families, err := parseMetrics(text)
	if err != nil {
		return nil, err
	}
	got := stages{}
	for _, metric := range families["apiserver_terminated_watchers_total"].GetMetric() {
		if label(metric, "resource") == "nodes" {
			got[endedWatches] = sum{count: metric.GetCounter().GetValue()}
		}
	}
	if r.manager == nil {
		return got, nil
	}
	_, body, err := r.manager.Get(ctx, "/metrics")
	if err != nil {
		return nil, fmt.Errorf("read the manager's metrics: %w", err)
	}
	if families, err = parseMetrics([]byte(body)); err != nil {
		return nil, err
	}
	for name, of := range ofStages {
		for _, metric := range families[of.histogram].GetMetric() {
			if label(metric, "name") == of.queue {
				got[name] = sum{metric.GetHistogram().GetSampleSum(), float64(metric.GetHistogram().GetSampleCount())}
			}
		}
	}
	return got, nil
}

func parseMetrics(text []byte) (map[string]*dto.MetricFamily, error) {
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(bytes.NewReader(text))
	if err != nil {
		return nil, fmt.Errorf("read metrics: %w", err)
	}
	return families, nil
}

func label(metric *dto.Metric, name string) string {
	for _, l := range metric.GetLabel() {
		if l.GetName() == name {
			return l.GetValue()
		}
	}
	return ""
}

// since are the values of what has come since before: the mean of each stage, and the watches.
func (s stages) since(before stages) map[string]float64 {
	values := map[string]float64{endedWatches: s[endedWatches].count - before[endedWatches].count}
	for name := range ofStages {
		if n := s[name].count - before[name].count; n > 0 {
			values[name] = round((s[name].seconds - before[name].seconds) / n * 1000)
		}
	}
	return values
}

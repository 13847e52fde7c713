package main

import (
	"bytes"
	"context"
	"fmt"
	"strings"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
)

// requests counts requests by verb and resource: "PATCH nodes".
type requests map[string]int

// requestsSoFar are all that the API server has answered about resources, whoever asked, from its metrics. Leases are left out: to renew
// one is not work for Nodes, and costs the same whoever leads. Watches too: they count when they end, and on a busy machine the API server
// ends those that cannot keep up, this program's among them.
func (c *cluster) requestsSoFar(ctx context.Context) (requests, error) {
	text, err := c.kube.Discovery().RESTClient().Get().AbsPath("/metrics").SetHeader("Accept", "text/plain").DoRaw(ctx)
	if err != nil {
		return nil, fmt.Errorf("read the API server's metrics: %w", err)
	}
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(bytes.NewReader(text))
	if err != nil {
		return nil, fmt.Errorf("read the API server's metrics: %w", err)
	}
	counts := requests{}
	for _, metric := range families["apiserver_request_total"].GetMetric() {
		labels := map[string]string{}
		for _, label := range metric.GetLabel() {
			labels[label.GetName()] = label.GetValue()
		}
		resource := labels["resource"]
		if resource == "" || resource == "leases" || labels["verb"] == "WATCH" {
			continue
		}
		if subresource := labels["subresource"]; subresource != "" {
			resource += "/" + strings.TrimPrefix(subresource, "/")
		}
		counts[labels["verb"]+" "+resource] += int(metric.GetCounter().GetValue())
	}
	return counts, nil
}

// since returns what has come since before, without what this program has asked itself.
func (r requests) since(before, own requests) requests {
	diff := requests{}
	for what, n := range r {
		if n -= before[what] + own[what]; n != 0 {
			diff[what] = n
		}
	}
	return diff
}

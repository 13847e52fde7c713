package monitoring

import (
	"encoding/json"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/promqltest"
)

type dashboard struct {
	Title, UID string
	Templating struct{ List []variable }
	Panels     []panel
}

type variable struct {
	Name, Type string
	Query      any
}

type panel struct {
	ID          int
	Type, Title string
	GridPos     struct{ X, Y, W, H int }
	Datasource  struct{ UID string }
	Targets     []struct{ RefID, Expr, LegendFormat string }
}

// TestDashboard evaluates every expression on one series of everything that is documented: each has to be right in its names, and to
// show something.
func TestDashboard(t *testing.T) {
	content, err := os.ReadFile("../../manifests/monitoring/dashboard.json")
	if err != nil {
		t.Fatal(err)
	}
	var d dashboard
	if err := json.Unmarshal(content, &d); err != nil {
		t.Fatal(err)
	}
	known := documented(t)
	storage := promqltest.LoadedStorage(t, samples(known))
	engine := promqltest.NewTestEngine(t, false, 0, 100_000)

	variables := strings.NewReplacer("$__rate_interval", "5m", "$clusterCIDRName", ".*")
	for _, v := range d.Templating.List {
		if v.Type == "query" {
			query := regexp.MustCompile(`^label_values\((\w+), (\w+)\)$`).FindStringSubmatch(v.Query.(map[string]any)["query"].(string))
			if query == nil {
				t.Errorf("variable %s: %v is not understood", v.Name, v.Query)
				continue
			}
			expr, err := promQL.ParseExpr(fmt.Sprintf("count by (%s) (%s)", query[2], query[1]))
			if err != nil {
				t.Fatal(err)
			}
			checkNames(t, expr, known)
		}
	}

	ids := map[int]bool{}
	cells := map[[2]int]string{}
	for _, p := range d.Panels {
		t.Run(p.Title, func(t *testing.T) {
			if ids[p.ID] {
				t.Errorf("another panel has the id %d too", p.ID)
			}
			ids[p.ID] = true
			for x := range p.GridPos.W {
				for y := range p.GridPos.H {
					cell := [2]int{p.GridPos.X + x, p.GridPos.Y + y}
					if other, taken := cells[cell]; taken || cell[0] >= 24 {
						t.Fatalf("at %v it covers %q, or is outside of the page", cell, other)
					}
					cells[cell] = p.Title
				}
			}
			if p.Type == "row" {
				return
			}
			if p.Datasource.UID != "${datasource}" {
				t.Errorf("its data source is %q and cannot be chosen", p.Datasource.UID)
			}
			if len(p.Targets) == 0 {
				t.Error("it shows nothing")
			}
			for _, target := range p.Targets {
				text := variables.Replace(target.Expr)
				expr, err := promQL.ParseExpr(text)
				if err != nil {
					t.Errorf("%s: %v", target.Expr, err)
					continue
				}
				checkNames(t, expr, known)
				query, err := engine.NewInstantQuery(t.Context(), storage, nil, text, time.Unix(0, 0).Add(20*time.Minute))
				if err != nil {
					t.Fatal(err)
				}
				result := query.Exec(t.Context())
				vector, err := result.Vector()
				if err != nil || len(vector) == 0 {
					t.Errorf("%s has no result: %v", text, err)
				}
				checkLegend(t, target.LegendFormat, vector)
				query.Close()
			}
		})
	}
}

// checkLegend wants a legend to name labels that the series have, and to tell the series apart.
func checkLegend(t *testing.T, legend string, vector promql.Vector) {
	t.Helper()
	placeholder := regexp.MustCompile(`{{(\w+)}}`)
	seen := map[string]bool{}
	for _, s := range vector {
		text := placeholder.ReplaceAllStringFunc(legend, func(label string) string {
			value := s.Metric.Get(strings.Trim(label, "{}"))
			if value == "" {
				t.Errorf("the legend %q names a label that %v does not have", legend, s.Metric)
			}
			return value
		})
		if seen[text] {
			t.Errorf("the legend %q is the same for two series: %q", legend, text)
		}
		seen[text] = true
	}
}

// samples makes series of every documented metric, in the notation of Prometheus' tests: for each label, each of two values.
func samples(known map[string]metric) string {
	values := map[string][]string{
		"clusterCIDRName": {"a", "b"}, "clusterCIDR": {"10.0.0.0/16", "fd00::/48"}, "family": {"IPv4", "IPv6"},
		"state": {"free", "Terminating"}, "reason": {"Full", "NotSelected"}, "result": {"success", "forbidden"},
		"name": {"multi_cidr_node_ipam_nodes", "garbage"}, "le": {"0.1", "+Inf"},
	}
	text := "load 1m\n"
	for name, m := range known {
		names, suffixes := m.labels, []string{""}
		if m.kind == "histogram" {
			suffixes = []string{"_bucket", "_sum", "_count"}
		}
		for _, suffix := range suffixes {
			with := names
			if suffix == "_bucket" {
				with = append(slices.Clip(names), "le")
			}
			sets := []string{""}
			for _, label := range with {
				var more []string
				for _, set := range sets {
					for _, value := range values[label] {
						more = append(more, fmt.Sprintf("%s%s=%q,", set, label, value))
					}
				}
				sets = more
			}
			for _, set := range sets {
				text += fmt.Sprintf("  %s%s{%s} 1+1x30\n", name, suffix, strings.TrimSuffix(set, ","))
			}
		}
	}
	return text
}

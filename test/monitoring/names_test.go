// Package monitoring sees that the alerts and the dashboard of manifests/monitoring use what docs/reference/metrics.md lists, and nothing else. The
// integration tests compare that page with real programs, and `promtool test rules` says when the alerts fire: node-ipam.yaml and cluster-ipam.yaml.
//
// It is a module of its own, so that what Prometheus needs stays out of the go.mod of the controller manager.
package monitoring

import (
	"encoding/json"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/prometheus/promql/parser"
	"go.yaml.in/yaml/v3"
)

// metric is a section of the page.
type metric struct {
	labels  []string
	meaning string // names the values of its labels
}

var (
	row  = regexp.MustCompile(`(?ms)^### ([a-z_:]+)\n\n- Type: (gauge|counter|histogram), [^\n]*\n(?:- Labels: ([^\n]*)\n)?\n(.*?)\n(?:\n|\z)`)
	word = regexp.MustCompile(`\w+`)
)

// targetLabels are those that a Prometheus gives to all that it scrapes. It renames the label namespace of a metric if the target has a namespace.
var targetLabels = []string{"cluster", "job", "instance", "exported_namespace"}

// documented are all series of the page, by the names that Prometheus has for them.
func documented(t *testing.T) map[string]metric {
	t.Helper()
	all := map[string]metric{}
	for _, m := range row.FindAllStringSubmatch(strings.ReplaceAll(read(t, "../../docs/reference/metrics.md"), `\_`, "_"), -1) {
		name, labels := m[1], slices.Concat(word.FindAllString(m[3], -1), targetLabels)
		if m[2] != "histogram" {
			all[name] = metric{labels, m[4]}
			continue
		}
		all[name+"_sum"], all[name+"_count"] = metric{labels, m[4]}, metric{labels, m[4]}
		all[name+"_bucket"] = metric{slices.Concat(labels, []string{"le"}), m[4]}
	}
	if len(all) < 30 {
		t.Fatalf("only %d series are documented: the page is not read right", len(all))
	}
	return all
}

func read(t *testing.T, path string) string {
	t.Helper()
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}

// TestAlerts sees also that each alert is tried, and that its texts name labels that it has.
func TestAlerts(t *testing.T) {
	known := documented(t)
	label := regexp.MustCompile(`\$labels\.(\w+)`)
	for rules, tests := range map[string]string{"prometheusrule.yaml": "node-ipam.yaml", "cluster-ipam-prometheusrule.yaml": "cluster-ipam.yaml"} {
		var object struct {
			Spec struct {
				Groups []struct {
					Rules []struct {
						Alert, Expr string
						Annotations map[string]string
					}
				}
			}
		}
		if err := yaml.Unmarshal([]byte(read(t, "../../manifests/monitoring/"+rules)), &object); err != nil {
			t.Fatal(err)
		}
		tried := read(t, tests)
		for _, rule := range object.Spec.Groups[0].Rules {
			has := checkExpr(t, rule.Alert, rule.Expr, known)
			if !strings.Contains(tried, `alertname="`+rule.Alert+`"`) {
				t.Errorf("%s does not try the alert %s", tests, rule.Alert)
			}
			for _, m := range label.FindAllStringSubmatch(rule.Annotations["summary"]+rule.Annotations["description"], -1) {
				if !slices.Contains(has, m[1]) {
					t.Errorf("a text of %s names the label %s, which %q has not", rule.Alert, m[1], rule.Expr)
				}
			}
		}
	}
}

func TestDashboard(t *testing.T) {
	var dashboard struct {
		Panels []struct {
			Title   string
			Targets []struct{ Expr, LegendFormat string }
		}
	}
	if err := json.Unmarshal([]byte(read(t, "../../manifests/monitoring/dashboard.json")), &dashboard); err != nil {
		t.Fatal(err)
	}
	known, exprs := documented(t), 0
	variables := strings.NewReplacer("$__rate_interval", "5m", "$clusterCIDRName", ".*")
	placeholder := regexp.MustCompile(`{{(\w+)}}`)
	for _, panel := range dashboard.Panels {
		for _, target := range panel.Targets {
			exprs++
			has := checkExpr(t, panel.Title, variables.Replace(target.Expr), known)
			for _, m := range placeholder.FindAllStringSubmatch(target.LegendFormat, -1) {
				if !slices.Contains(has, m[1]) {
					t.Errorf("the legend of %q names the label %s, which %q has not", panel.Title, m[1], target.Expr)
				}
			}
		}
	}
	if exprs < 15 {
		t.Errorf("only %d expressions: the dashboard is not read right", exprs)
	}
}

// checkExpr fails for metrics, labels and values of labels that are not documented: a misspelt one would match nothing, or everything, for ever.
// It returns the labels by which the expression tells its results apart.
func checkExpr(t *testing.T, where, text string, known map[string]metric) (by []string) {
	t.Helper()
	expr, err := parser.NewParser(parser.Options{}).ParseExpr(text)
	if err != nil {
		t.Errorf("%s: %v", where, err)
		return nil
	}
	var usable []string
	parser.Inspect(expr, func(node parser.Node, _ []parser.Node) error {
		switch node := node.(type) {
		case *parser.VectorSelector:
			m, ok := known[node.Name]
			if !ok {
				t.Errorf("%s: metric %s is not in the page", where, node.Name)
			}
			usable = append(usable, m.labels...)
			for _, matcher := range node.LabelMatchers {
				values := strings.Split(matcher.Value, "|")
				switch {
				case matcher.Name == "__name__", matcher.Value == ".*":
				case !slices.Contains(m.labels, matcher.Name):
					t.Errorf("%s: %s has no label %s", where, node.Name, matcher.Name)
				case slices.ContainsFunc(values, func(value string) bool { return !regexp.MustCompile(`\b` + value).MatchString(m.meaning) }):
					t.Errorf("%s: the page does not say that label %s of %s can be %q", where, matcher.Name, node.Name, values)
				}
			}
		case *parser.AggregateExpr:
			by = append(by, node.Grouping...)
		}
		return nil
	})
	for _, label := range by {
		if !slices.Contains(usable, label) {
			t.Errorf("%s: no metric in %s has a label %s", where, text, label)
		}
	}
	return by
}

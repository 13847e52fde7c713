package monitoring

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"
)

var promQL = parser.NewParser(parser.Options{})

// pages list metrics.
var pages = []string{"docs/reference/metrics.md"}

// metric is one of them.
type metric struct {
	kind    string
	labels  []string
	meaning string // names the values of its labels
}

var (
	row  = regexp.MustCompile(`(?ms)^### ([a-z_:]+)\n\n- Type: (gauge|counter|histogram), [^\n]*\n(?:- Labels: ([^\n]*)\n)?\n(.*?)\n(?:\n|\z)`)
	word = regexp.MustCompile(`\w+`)
)

// targetLabels are those that a Prometheus gives to all that it scrapes. It renames the label namespace of a metric if the target has a namespace.
var targetLabels = []string{"cluster", "job", "instance", "exported_namespace"}

func documented(t *testing.T) map[string]metric {
	t.Helper()
	all := map[string]metric{}
	for _, name := range pages {
		page, err := os.ReadFile("../../" + name)
		if err != nil {
			t.Fatal(err)
		}
		rows := row.FindAllStringSubmatch(strings.ReplaceAll(string(page), `\_`, "_"), -1)
		if len(rows) < 10 {
			t.Fatalf("only %d metrics found in %s: it is not read right", len(rows), name)
		}
		for _, m := range rows {
			all[m[1]] = metric{kind: m[2], labels: word.FindAllString(m[3], -1), meaning: m[4]}
		}
	}
	return all
}

// checkNames fails for metrics, labels and values of labels in an expression that the documentation does not know.
func checkNames(t *testing.T, expr parser.Expr, known map[string]metric) {
	t.Helper()
	var usable []string // labels of all metrics in the expression
	parser.Inspect(expr, func(node parser.Node, _ []parser.Node) error {
		selector, ok := node.(*parser.VectorSelector)
		if !ok {
			return nil
		}
		base, part := cutHistogram(selector.Name)
		m, ok := known[base]
		if !ok {
			if m, ok = known[selector.Name]; !ok {
				t.Errorf("metric %s is not in %v", selector.Name, pages)
				return nil
			}
			part = ""
		}
		if (m.kind == "histogram") != (part != "") {
			t.Errorf("%s: the page says that it is a %s", selector.Name, m.kind)
		}
		has := slices.Concat(m.labels, targetLabels)
		if part == "_bucket" {
			has = append(has, "le")
		}
		usable = append(usable, has...)
		for _, matcher := range selector.LabelMatchers {
			switch {
			case matcher.Name == model.MetricNameLabel, matcher.Value == ".*":
			case !slices.Contains(has, matcher.Name):
				t.Errorf("%s has no label %s", selector.Name, matcher.Name)
			default:
				checkValues(t, selector.Name, matcher, m.meaning)
			}
		}
		return nil
	})
	parser.Inspect(expr, func(node parser.Node, _ []parser.Node) error {
		var used []string
		switch node := node.(type) {
		case *parser.AggregateExpr:
			used = node.Grouping
		case *parser.BinaryExpr:
			if node.VectorMatching != nil {
				used = slices.Concat(node.VectorMatching.MatchingLabels, node.VectorMatching.Include)
			}
		}
		for _, label := range used {
			if !slices.Contains(usable, label) {
				t.Errorf("no metric in %s has a label %s", node, label)
			}
		}
		return nil
	})
}

func cutHistogram(name string) (base, part string) {
	for _, part := range []string{"_bucket", "_sum", "_count"} {
		if base, ok := strings.CutSuffix(name, part); ok {
			return base, part
		}
	}
	return name, ""
}

// checkValues wants every value that a matcher names in the description of the metric: a misspelt one would match nothing, or
// everything, for ever.
func checkValues(t *testing.T, name string, matcher *labels.Matcher, meaning string) {
	t.Helper()
	for value := range strings.SplitSeq(matcher.Value, "|") {
		known := labels.MustNewMatcher(labels.MatchRegexp, matcher.Name, value)
		if !slices.ContainsFunc(word.FindAllString(meaning, -1), known.Matches) {
			t.Errorf("the page does not say that label %s of %s can be %q", matcher.Name, name, value)
		}
	}
}

package main

import (
	_ "embed"
	"fmt"
	"go/ast"
	"maps"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"
)

// metric is what the code says of a metric where it is made.
type metric struct {
	name, help, kind, stability string
	labels                      []string
}

// metricPackages are those that make metrics.
var metricPackages = []string{"controllers/nodeipam/metrics", "controllers/clusteripam/runner", "controllers/build"}

//go:embed metrics.yaml
var metricsTable []byte

// more is metrics.yaml.
type more struct {
	Sections []struct {
		Title    string   `json:"title"`
		Prefixes []string `json:"prefixes"`
		About    string   `json:"about"`
	} `json:"sections"`
	Notes      map[string]string `json:"notes"`
	Kubernetes []struct {
		Name   string   `json:"name"`
		Type   string   `json:"type"`
		Labels []string `json:"labels"`
		Help   string   `json:"help"`
	} `json:"kubernetes"`
}

// section is the index of the part that a metric is in: the one with the longest prefix, else the last one.
func (m *more) section(name string) int {
	best, length := len(m.Sections)-1, 0
	for i, s := range m.Sections {
		for _, prefix := range s.Prefixes {
			if strings.HasPrefix(name, prefix) && len(prefix) > length {
				best, length = i, len(prefix)
			}
		}
	}
	return best
}

func writeMetrics(t tree, w *markdown) error {
	var table more
	if err := yaml.UnmarshalStrict(metricsTable, &table); err != nil {
		return fmt.Errorf("hack/reference/metrics.yaml: %w", err)
	}
	all, err := allMetrics(t, &table)
	if err != nil {
		return err
	}
	w.paragraph("The leader shows these metrics at `/metrics`; a standby shows only that of the build. " +
		"STABLE and ALPHA have the meaning that they have in Kubernetes: an ALPHA metric can still change. " +
		"The [alerts](alerts.md) use them.")
	for i, s := range table.Sections {
		w.heading(2, s.Title)
		if s.About != "" {
			w.paragraph(plain(s.About))
		}
		for _, m := range all {
			if table.section(m.name) == i {
				writeMetric(w, m, table.Notes[m.name])
				delete(table.Notes, m.name)
			}
		}
	}
	if len(table.Notes) > 0 {
		return fmt.Errorf("hack/reference/metrics.yaml has notes on metrics that do not exist: %s", strings.Join(slices.Sorted(maps.Keys(table.Notes)), ", "))
	}
	return nil
}

// allMetrics are those in the code and those of Kubernetes in the table.
func allMetrics(t tree, table *more) (all []metric, err error) {
	packages, err := t.parse(metricPackages...)
	if err != nil {
		return nil, err
	}
	for _, p := range packages {
		made, err := metricsOf(p)
		if err != nil {
			return nil, err
		}
		all = append(all, made...)
	}
	for _, k := range table.Kubernetes {
		all = append(all, metric{name: k.Name, help: k.Help, kind: k.Type, stability: "of Kubernetes", labels: k.Labels})
	}
	return all, nil
}

func writeMetric(w *markdown, m metric, note string) {
	w.heading(3, m.name)
	w.item(fmt.Sprintf("Type: %s, %s", m.kind, m.stability))
	if len(m.labels) > 0 {
		w.item("Labels: `" + strings.Join(m.labels, "`, `") + "`")
	}
	w.paragraph(strings.TrimSpace(plain(m.help + " " + note)))
}

// metricsOf reads the metrics that a package makes: calls of functions that make descriptors, and options.
func metricsOf(p *pkg) ([]metric, error) {
	makers, labels := p.makers(), p.labelsOfVectors()
	found := map[string]metric{}
	for _, file := range p.files {
		for _, decl := range file.Decls {
			general, ok := decl.(*ast.GenDecl)
			if !ok {
				continue
			}
			ast.Inspect(general, func(n ast.Node) bool {
				switch n := n.(type) {
				case *ast.CallExpr:
					if f, ok := n.Fun.(*ast.Ident); ok && makers[f.Name] != nil {
						m := makers[f.Name].metric(p, n)
						found[m.name] = m
					}
				case *ast.CompositeLit:
					if kind, ok := optionKind(n); ok {
						m := p.fromOptions(n, kind, labels[n])
						found[m.name] = m
					}
				}
				return true
			})
		}
	}
	delete(found, "")
	if len(found) == 0 {
		return nil, fmt.Errorf("%s makes no metrics that this program understands", p.path)
	}
	var all []metric
	for _, name := range slices.Sorted(maps.Keys(found)) {
		m := found[name]
		if m.help == "" {
			return nil, fmt.Errorf("%s: metric %s has no help", p.path, name)
		}
		all = append(all, m)
	}
	return all, nil
}

// maker is a function that makes a descriptor of what it gets: a name, a help text and labels, after a stability perhaps.
type maker struct {
	prefix    string   // stands before the name
	labels    []string // stand before the labels
	stability string   // empty: it is the first argument
}

// makers returns the functions of a package that call metrics.NewDesc(name, help, labels, nil, stability, "").
func (p *pkg) makers() map[string]*maker {
	all := map[string]*maker{}
	for _, file := range p.files {
		for _, decl := range file.Decls {
			f, ok := decl.(*ast.FuncDecl)
			if !ok || f.Recv != nil {
				continue
			}
			ast.Inspect(f.Body, func(n ast.Node) bool {
				if call, ok := n.(*ast.CallExpr); ok && selected(call.Fun) == "NewDesc" && len(call.Args) == 6 {
					m := &maker{labels: p.texts(call.Args[2]), stability: selected(call.Args[4])}
					if sum, ok := call.Args[0].(*ast.BinaryExpr); ok {
						m.prefix, _ = p.value(sum.X)
					}
					all[f.Name.Name] = m
				}
				return true
			})
		}
	}
	return all
}

// metric is what a call of the function makes.
func (m *maker) metric(p *pkg, call *ast.CallExpr) metric {
	args, made := call.Args, metric{stability: m.stability, labels: slices.Clone(m.labels)}
	if made.stability == "" {
		made.stability, args = selected(args[0]), args[1:]
	}
	made.name, _ = p.value(args[0])
	made.name = m.prefix + made.name
	made.help, _ = p.value(args[1])
	for _, arg := range args[2:] {
		made.labels = append(made.labels, p.texts(arg)...)
	}
	// A descriptor has no type. Names and help texts follow the rules of Prometheus, and a test compares the types with those that a process shows.
	switch {
	case strings.HasSuffix(made.name, "_total"):
		made.kind = "counter"
	case strings.HasPrefix(made.help, "Histogram "):
		made.kind = "histogram"
	default:
		made.kind = "gauge"
	}
	return made
}

// optionKind is the type of a metric that options are of.
func optionKind(lit *ast.CompositeLit) (kind string, ok bool) {
	kind, ok = strings.CutSuffix(selected(lit.Type), "Opts")
	return strings.ToLower(kind), ok
}

func (p *pkg) fromOptions(lit *ast.CompositeLit, kind string, labels []string) metric {
	m := metric{kind: kind, labels: labels}
	for _, element := range lit.Elts {
		field, ok := element.(*ast.KeyValueExpr)
		if !ok {
			continue
		}
		switch key := field.Key.(*ast.Ident).Name; key {
		case "Name":
			m.name, _ = p.value(field.Value)
		case "Help":
			m.help, _ = p.value(field.Value)
		case "StabilityLevel":
			m.stability = selected(field.Value)
		}
	}
	return m
}

// labelsOfVectors are the labels that stand beside options: NewCounterVec(&CounterOpts{...}, labels).
func (p *pkg) labelsOfVectors() map[*ast.CompositeLit][]string {
	all := map[*ast.CompositeLit][]string{}
	for _, file := range p.files {
		ast.Inspect(file, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok || len(call.Args) != 2 || !strings.HasSuffix(selected(call.Fun), "Vec") {
				return true
			}
			if options, ok := call.Args[0].(*ast.UnaryExpr); ok {
				if lit, ok := options.X.(*ast.CompositeLit); ok {
					all[lit] = p.texts(call.Args[1])
				}
			}
			return true
		})
	}
	return all
}

// texts are the texts in an expression, in their order.
func (p *pkg) texts(e ast.Expr) (all []string) {
	ast.Inspect(e, func(n ast.Node) bool {
		if lit, ok := n.(*ast.BasicLit); ok {
			if value, ok := p.value(lit); ok {
				all = append(all, value)
			}
		}
		return true
	})
	return all
}

// selected is the name after the dot; empty for another expression.
func selected(e ast.Expr) string {
	if s, ok := e.(*ast.SelectorExpr); ok {
		return s.Sel.Name
	}
	return ""
}

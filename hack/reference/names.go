package main

import (
	_ "embed"
	"fmt"
	"maps"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"
)

//go:embed names.yaml
var namesTable []byte

// object is a kind of object and the names on it.
type object struct {
	Object string `json:"object"`
	About  string `json:"about"`
	Names  []name `json:"names"`
}

// name is a row of names.yaml.
type name struct {
	Const []string `json:"const"`
	Is    string   `json:"is"`
	Means string   `json:"means"`
	Do    string   `json:"do"`

	value string
}

// metadata reports whether the name is in the metadata of objects, and not an event or in their status.
func (n name) metadata() bool {
	return slices.Contains([]string{"label", "annotation", "finalizer"}, n.Is)
}

// readNames reads names.yaml and compares it with the constants in the code.
func readNames(t tree) ([]object, error) {
	packages, err := t.parse("apis", "controllers")
	if err != nil {
		return nil, err
	}
	var objects []object
	if err := yaml.UnmarshalStrict(namesTable, &objects); err != nil {
		return nil, fmt.Errorf("hack/reference/names.yaml: %w", err)
	}
	problems := fill(objects, names(packages))
	if len(problems) > 0 {
		return nil, fmt.Errorf("correct hack/reference/names.yaml:\n  %s", strings.Join(problems, "\n  "))
	}
	return objects, nil
}

// fill sets the value of each row, and returns what is wrong with the rows.
func fill(objects []object, code map[string]string) (problems []string) {
	used := map[string]bool{}
	for _, o := range objects {
		for i := range o.Names {
			n := &o.Names[i]
			if n.Is == "" || n.Means == "" || len(n.Const) == 0 {
				problems = append(problems, fmt.Sprintf("%s %v: const, is and means must not be empty", o.Object, n.Const))
				continue
			}
			for _, constant := range n.Const {
				value, ok := code[constant]
				if !ok {
					problems = append(problems, constant+": there is no such constant in the code any more; remove it, or its row")
				} else if n.value != "" && n.value != value {
					problems = append(problems, fmt.Sprintf("%s is %q, and another constant of the row is %q; give each a row", constant, value, n.value))
				}
				n.value, used[constant] = value, true
			}
		}
	}
	for _, constant := range slices.Sorted(maps.Keys(code)) {
		if !used[constant] {
			problems = append(problems, fmt.Sprintf("%s (%s): add a row that says what it means, and what to do", constant, code[constant]))
		}
	}
	return problems
}

func writeEvents(t tree, w *markdown) error {
	objects, err := readNames(t)
	if err != nil {
		return err
	}
	w.paragraph("The anchor of a name is the kind of object and the name, for example `#clustercidr-exhausted`. " +
		"Events are kept for one hour; conditions stay. " +
		"Events about Nodes and ClusterCIDRs are in the namespace `default`.")
	return writeNames(objects, w, func(n name) bool { return !n.metadata() })
}

func writeLabels(t tree, w *markdown) error {
	objects, err := readNames(t)
	if err != nil {
		return err
	}
	w.paragraph("Do not change what the controllers write, unless it says so here.")
	return writeNames(objects, w, name.metadata)
}

func writeNames(objects []object, w *markdown, wanted func(name) bool) error {
	for _, o := range objects {
		rows := slices.DeleteFunc(slices.Clone(o.Names), func(n name) bool { return !wanted(n) })
		if len(rows) == 0 {
			continue
		}
		w.heading(2, o.Object)
		if o.About != "" {
			w.paragraph(o.About)
		}
		for _, n := range rows {
			w.heading(3, o.Object+" "+n.value)
			w.item("Is: " + n.Is)
			w.item("Means: " + plain(n.Means))
			if n.Do != "" {
				w.item("Do: " + plain(n.Do))
			}
		}
	}
	return nil
}

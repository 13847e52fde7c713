package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	apiextensions "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/yaml"
)

func writeClusterCIDR(t tree, w *markdown) error {
	w.paragraph("`kubectl explain clustercidrs` shows the same. The [examples](../../examples/README.md) have one to start from.")
	return writeKinds(w, 2, t.path("manifests/crds/*.yaml"))
}

func writeClusterIPAM(t tree, w *markdown) error {
	w.paragraph("`kubectl explain KIND` shows the same. The [examples](../../examples/cluster-ipam/README.md) have a claim or a pool to start from.")
	return writeKinds(w, 3, t.path("manifests/clusteripam/crds/*.yaml"))
}

// writeKinds writes all kinds in the files. With several, each has a heading, and its name stands before that of its fields.
func writeKinds(w *markdown, level int, pattern string) error {
	files, err := filepath.Glob(pattern)
	if err != nil {
		return err
	}
	if len(files) == 0 {
		return fmt.Errorf("no file is called %s", pattern)
	}
	for _, file := range files {
		var crd apiextensions.CustomResourceDefinition
		content, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		if err := yaml.UnmarshalStrict(content, &crd); err != nil {
			return fmt.Errorf("%s: %w", file, err)
		}
		prefix := ""
		if level > 2 {
			w.heading(2, crd.Spec.Names.Kind)
			prefix = crd.Spec.Names.Kind + " "
		}
		writeKind(w, level, prefix, &crd)
	}
	return nil
}

func writeKind(w *markdown, level int, prefix string, crd *apiextensions.CustomResourceDefinition) {
	var versions []string
	for _, v := range crd.Spec.Versions {
		if v.Served {
			versions = append(versions, v.Name)
		}
	}
	names := crd.Spec.Names
	w.item(fmt.Sprintf("apiVersion: `%s/%s`", crd.Spec.Group, strings.Join(versions, "`, `")))
	w.item("Name for kubectl: `" + strings.Join(append([]string{names.Plural}, names.ShortNames...), "`, `") + "`")
	if crd.Spec.Scope == apiextensions.ClusterScoped {
		w.item("Scope: the cluster")
	} else {
		w.item("Scope: a namespace")
	}
	// The stored version has all fields; older ones say the same in another form.
	at := slices.IndexFunc(crd.Spec.Versions, func(v apiextensions.CustomResourceDefinitionVersion) bool { return v.Storage })
	v := crd.Spec.Versions[at]
	describe(w, v.Schema.OpenAPIV3Schema.Description)
	rules(w, v.Schema.OpenAPIV3Schema)
	for _, part := range []string{"spec", "status"} {
		if schema, ok := v.Schema.OpenAPIV3Schema.Properties[part]; ok {
			field(w, level, prefix, part, &schema, false)
		}
	}
	if len(v.AdditionalPrinterColumns) > 0 {
		columns(w, level, prefix, v.AdditionalPrinterColumns)
	}
}

// columns are what kubectl get shows.
func columns(w *markdown, level int, prefix string, all []apiextensions.CustomResourceColumnDefinition) {
	w.heading(level, prefix+"columns of kubectl get")
	for _, c := range all {
		where := ""
		if c.Priority > 0 {
			where = " (with `-o wide`)"
		}
		what := c.Description
		if what == "" {
			what = "From `" + c.JSONPath + "`"
		} else {
			what = plain(what)
		}
		w.item(fmt.Sprintf("`%s`%s: %s.", strings.ToUpper(c.Name), where, strings.TrimSuffix(what, ".")))
	}
}

// field writes a field and those in it.
func field(w *markdown, level int, prefix, path string, s *apiextensions.JSONSchemaProps, required bool) {
	w.heading(level, prefix+path)
	describe(w, s.Description)
	for _, fact := range facts(s, required) {
		w.item(fact)
	}
	inner := s
	if s.Items != nil && s.Items.Schema != nil {
		inner, path = s.Items.Schema, path+"[]"
		rules(w, inner)
	}
	rules(w, s)
	for _, name := range slices.Sorted(maps.Keys(inner.Properties)) {
		next := inner.Properties[name]
		field(w, level, prefix, path+"."+name, &next, slices.Contains(inner.Required, name))
	}
}

func describe(w *markdown, text string) {
	if text == "" {
		return
	}
	for _, p := range paragraphs(text) {
		if lines := strings.Split(p, "\n"); strings.HasPrefix(lines[0], "- ") {
			for line := range strings.SplitSeq(p, "\n- ") {
				w.item(plain(strings.TrimPrefix(line, "- ")))
			}
			continue
		}
		w.paragraph(plain(p))
	}
}

// facts are what the schema says of a field, beside its description.
func facts(s *apiextensions.JSONSchemaProps, required bool) []string {
	kind := s.Type
	switch {
	case s.XIntOrString:
		kind = "integer or string"
	case s.Items != nil && s.Items.Schema != nil:
		kind = "list of " + s.Items.Schema.Type + "s"
	case s.Format != "":
		kind += " (" + s.Format + ")"
	}
	all := []string{"Type: " + kind}
	if required {
		all[0] += ", required"
	}
	if s.Default != nil {
		all = append(all, "Default: `"+compact(s.Default.Raw)+"`")
	}
	var values []string
	for _, v := range s.Enum {
		values = append(values, "`"+compact(v.Raw)+"`")
	}
	if len(values) > 0 {
		all = append(all, "Values: "+strings.Join(values, ", "))
	}
	return append(all, bounds(s)...)
}

func bounds(s *apiextensions.JSONSchemaProps) (all []string) {
	add := func(name string, value *int64) {
		if value != nil {
			all = append(all, name+": "+strconv.FormatInt(*value, 10))
		}
	}
	number := func(name string, value *float64) {
		if value != nil {
			all = append(all, name+": "+strconv.FormatFloat(*value, 'f', -1, 64))
		}
	}
	number("At least", s.Minimum)
	number("At most", s.Maximum)
	add("Characters, at least", s.MinLength)
	add("Characters, at most", s.MaxLength)
	add("Entries, at least", s.MinItems)
	add("Entries, at most", s.MaxItems)
	if s.Pattern != "" {
		all = append(all, "Pattern: `"+s.Pattern+"`")
	}
	return all
}

// rules are what the API server checks, in its own words.
func rules(w *markdown, s *apiextensions.JSONSchemaProps) {
	for _, rule := range s.XValidations {
		name := "Rule"
		if rule.FieldPath != "" {
			name += " for `" + strings.TrimPrefix(rule.FieldPath, ".") + "`"
		}
		if rule.Message != "" {
			w.item(name + ": " + ended(plain(rule.Message)))
		} else {
			w.item(name + ": " + quoted(rule.Rule))
		}
	}
}

// compact is a JSON value on one line; a string has no quotes.
func compact(raw []byte) string {
	var s string
	if json.Unmarshal(raw, &s) == nil {
		return s
	}
	return string(raw)
}

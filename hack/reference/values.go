package main

import (
	"fmt"
	"os"
	"strings"

	"go.yaml.in/yaml/v3"
)

var charts = []string{"node-ipam-controller", "cluster-ipam-controller"}

func writeValues(t tree, w *markdown) error {
	w.paragraph("`helm show values` shows the same.")
	for _, chart := range charts {
		file := "manifests/charts/" + chart + "/values.yaml"
		content, err := os.ReadFile(t.path(file))
		if err != nil {
			return err
		}
		var document yaml.Node
		if err := yaml.Unmarshal(content, &document); err != nil {
			return fmt.Errorf("%s: %w", file, err)
		}
		w.heading(2, chart)
		if missing := values(w, chart, "", document.Content[0]); len(missing) > 0 {
			return fmt.Errorf("%s: write a comment above %s that says what it does", file, strings.Join(missing, ", "))
		}
	}
	return nil
}

// values writes the values of a mapping and of those in it. missing are values without a comment.
func values(w *markdown, chart, prefix string, mapping *yaml.Node) (missing []string) {
	for i := 0; i < len(mapping.Content); i += 2 {
		key, value := mapping.Content[i], mapping.Content[i+1]
		path, comment := prefix+key.Value, commentOf(key)
		if section(value) {
			if comment != "" {
				w.heading(3, chart+" "+path)
				w.paragraph(plain(comment))
			}
			missing = append(missing, values(w, chart, path+".", value)...)
			continue
		}
		if comment == "" {
			missing = append(missing, path)
			continue
		}
		w.heading(3, chart+" "+path)
		w.paragraph(plain(comment))
		if text := defaultOf(value); strings.Contains(text, "\n") {
			w.code("yaml", text)
		} else {
			w.item("Default: `" + text + "`")
		}
	}
	return missing
}

// section reports whether a mapping has values that are explained one by one. Others, such as resources, are one value.
func section(value *yaml.Node) bool {
	for i := 0; value.Kind == yaml.MappingNode && i < len(value.Content); i += 2 {
		if value.Content[i].HeadComment != "" {
			return true
		}
	}
	return false
}

// commentOf is the comment above a value, as text.
func commentOf(key *yaml.Node) string {
	var lines []string
	for line := range strings.Lines(key.HeadComment) {
		line = strings.TrimSpace(strings.TrimPrefix(strings.TrimSpace(line), "#"))
		if line == "" { // A comment of the file or a section, and not of the value.
			lines = nil
			continue
		}
		lines = append(lines, line)
	}
	return strings.Join(lines, " ")
}

func defaultOf(value *yaml.Node) string {
	bare := *value
	bare.HeadComment, bare.FootComment, bare.LineComment = "", "", ""
	out, err := yaml.Marshal(&bare)
	if err != nil {
		return err.Error()
	}
	return strings.TrimSpace(string(out))
}

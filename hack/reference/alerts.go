package main

import (
	"cmp"
	_ "embed"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"
)

// ruleFile has those parts of a PrometheusRule that this program reads.
type ruleFile struct {
	Spec struct {
		Groups []struct {
			Rules []alert `json:"rules"`
		} `json:"groups"`
	} `json:"spec"`
}

type alert struct {
	Alert       string            `json:"alert"`
	Expr        string            `json:"expr"`
	For         string            `json:"for"`
	Labels      map[string]string `json:"labels"`
	Annotations map[string]string `json:"annotations"`
}

//go:embed alerts.yaml
var alertNotes []byte

func writeAlerts(t tree, w *markdown) error {
	notes := map[string]string{}
	if err := yaml.UnmarshalStrict(alertNotes, &notes); err != nil {
		return fmt.Errorf("hack/reference/alerts.yaml: %w", err)
	}
	version, err := os.ReadFile(t.path("controllers/build/VERSION"))
	if err != nil {
		return err
	}
	base := "https://github.com/multicidr/controller-manager/blob/" + strings.TrimSpace(string(version)) + "/" + dir + "/alerts.md#"
	files, err := filepath.Glob(t.path("manifests/monitoring/*prometheusrule.yaml"))
	if err != nil {
		return err
	}
	w.paragraph("The annotation `runbook_url` of an alert leads to its heading here. Words such as `{{ $labels.node }}` stand for what the alert is about.")
	var wrong []string
	for _, path := range slices.Backward(files) { // Those of Pod ranges come first.
		var file ruleFile
		content, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		if err := yaml.Unmarshal(content, &file); err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		name := filepath.Base(path)
		w.heading(2, "In "+name)
		for _, group := range file.Spec.Groups {
			for _, rule := range group.Rules {
				if want := base + anchor(rule.Alert); rule.Annotations["runbook_url"] != want {
					wrong = append(wrong, fmt.Sprintf("%s: set the annotation runbook_url of %s to %s", name, rule.Alert, want))
				}
				writeAlert(w, rule, notes[rule.Alert])
				delete(notes, rule.Alert)
			}
		}
	}
	for name := range notes {
		wrong = append(wrong, "hack/reference/alerts.yaml: there is no alert "+name)
	}
	if len(wrong) > 0 {
		return fmt.Errorf("%s", strings.Join(wrong, "\n  "))
	}
	return nil
}

func writeAlert(w *markdown, rule alert, note string) {
	w.heading(3, rule.Alert)
	w.item("Severity: " + rule.Labels["severity"])
	w.item("After: " + rule.For)
	w.paragraph(templated(rule.Annotations["summary"]))
	w.paragraph(templated(cmp.Or(note, rule.Annotations["description"])))
	w.code("text", rule.Expr)
}

// templated makes a text of an alert one that shows as it is: what Prometheus fills in is code.
func templated(text string) string {
	parts := strings.Split(text, "`")
	for i := 0; i < len(parts); i += 2 {
		parts[i] = strings.NewReplacer("{{", "`{{", "}}", "}}`").Replace(parts[i])
	}
	return plain(strings.Join(parts, "`"))
}

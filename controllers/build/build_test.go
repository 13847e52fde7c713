package build

import (
	"regexp"
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"k8s.io/component-base/metrics/legacyregistry"
	"k8s.io/component-base/version"
)

// The pattern is that of semantic versions without build metadata, which the tag of an image cannot have.
func TestVersionCanBeATag(t *testing.T) {
	if !regexp.MustCompile(`^v\d+\.\d+\.\d+(-[0-9A-Za-z.-]+)?\n$`).MatchString(versionFile) {
		t.Errorf("VERSION is %q: write it with hack/set-version.sh", versionFile)
	}
	i := Get()
	if want := "v" + i.Major + "." + i.Minor + "."; !strings.HasPrefix(i.GitVersion, want) {
		t.Errorf("major %q and minor %q are not those of %s", i.Major, i.Minor, i.GitVersion)
	}
}

func TestPrint(t *testing.T) {
	kubernetes := version.Get()
	for value, want := range map[string]string{
		"":        "",
		"true":    "Kubernetes " + kubernetes.String() + " (multicidr " + Get().GitVersion + ")\n",
		"raw":     `version.Info{Major:"` + kubernetes.Major,
		"false":   "",
		"v1.37.2": "",
	} {
		fs := pflag.NewFlagSet("", pflag.ContinueOnError)
		AddFlags(fs)
		var printed strings.Builder
		if asked := Print(&printed, value); asked != (want != "") {
			t.Errorf("--version=%s: asked is %v", value, asked)
		}
		if !strings.HasPrefix(printed.String(), want) || want == "" && printed.Len() > 0 {
			t.Errorf("--version=%s printed %q, want %q", value, printed.String(), want)
		}
		if value == "raw" && !strings.Contains(printed.String(), "\nmulticidr version.Info{") {
			t.Errorf("--version=raw printed nothing of this project: %q", printed.String())
		}
	}
}

func TestMetric(t *testing.T) {
	families, err := legacyregistry.DefaultGatherer.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range families {
		if family.GetName() != "multicidr_build_info" {
			continue
		}
		labels := map[string]string{}
		for _, l := range family.Metric[0].Label {
			labels[l.GetName()] = l.GetValue()
		}
		if labels["git_version"] != Get().GitVersion || family.Metric[0].GetGauge().GetValue() != 1 {
			t.Errorf("got %v", family.Metric[0])
		}
		return
	}
	t.Error("there is no metric multicidr_build_info")
}

// Package build says which build of this project a program is. Importing it adds the metric multicidr_build_info.
//
// component-base's package version has the Kubernetes version that a program is made of. Tools read that everywhere, for example to compare
// a manager with its API server, so it stays as it is, and this package has the version of the project beside it.
package build

import (
	_ "embed"
	"fmt"
	"io"
	"os"
	"runtime"
	"runtime/debug"
	"strings"

	"github.com/spf13/pflag"

	apimachineryversion "k8s.io/apimachinery/pkg/version"
	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"
	"k8s.io/component-base/version"
	"k8s.io/component-base/version/verflag"
)

// VERSION is a file and no linker flag, so that programs of others that import the controller know the version, too. hack/set-version.sh
// writes it.
//
//go:embed VERSION
var versionFile string

var info = metrics.NewGaugeVec(&metrics.GaugeOpts{
	Name: "multicidr_build_info",
	Help: "A metric with a constant '1' value labeled by the version of multicidr/controller-manager, its git commit and git tree state, " +
		"Go version and compiler from which it was built, and platform on which it is running.",
	StabilityLevel: metrics.STABLE,
}, []string{"git_version", "git_commit", "git_tree_state", "go_version", "compiler", "platform"})

func init() {
	legacyregistry.MustRegister(info)
	i := Get()
	info.WithLabelValues(i.GitVersion, i.GitCommit, i.GitTreeState, i.GoVersion, i.Compiler, i.Platform).Set(1)
}

// Get returns the version of this project. The commit and its time are empty if the Go linker did not know them.
func Get() apimachineryversion.Info {
	i := apimachineryversion.Info{
		GitVersion: strings.TrimSpace(versionFile),
		GoVersion:  runtime.Version(),
		Compiler:   runtime.Compiler,
		Platform:   runtime.GOOS + "/" + runtime.GOARCH,
	}
	i.Major, i.Minor, _ = strings.Cut(strings.TrimPrefix(i.GitVersion, "v"), ".")
	i.Minor, _, _ = strings.Cut(i.Minor, ".")
	// In a program of others, the commit would be one of theirs.
	linked, ok := debug.ReadBuildInfo()
	if !ok || linked.Main.Path != "github.com/multicidr/controller-manager" {
		return i
	}
	for _, setting := range linked.Settings {
		switch setting.Key {
		case "vcs.revision":
			i.GitCommit = setting.Value
		case "vcs.time":
			i.BuildDate = setting.Value
		case "vcs.modified":
			i.GitTreeState = map[string]string{"true": "dirty", "false": "clean"}[setting.Value]
		}
	}
	return i
}

// Page returns the address of a page of docs, as this version has it: a reader of a message may have no checkout.
func Page(path string) string {
	return "https://github.com/multicidr/controller-manager/blob/" + Get().GitVersion + "/docs/" + path
}

// Manifest returns the address of a file of manifests, as this version has it. kubectl apply -f takes it.
func Manifest(path string) string {
	return "https://raw.githubusercontent.com/multicidr/controller-manager/" + Get().GitVersion + "/manifests/" + path
}

// AddFlags adds --version, which is component-base's.
func AddFlags(fs *pflag.FlagSet) { verflag.AddFlags(fs) }

// PrintAndExitIfRequested prints both versions and ends the process if --version, among fs, says so.
func PrintAndExitIfRequested(fs *pflag.FlagSet) {
	if Print(os.Stdout, fs.Lookup("version").Value.String()) {
		os.Exit(0)
	}
}

// Print writes the versions that --version asks for with this value, and reports whether it asks for any. The text begins as
// component-base writes it, because tools read it.
func Print(w io.Writer, value string) bool {
	switch value {
	case "true":
		fmt.Fprintf(w, "Kubernetes %s (multicidr %s)\n", version.Get(), Get())
	case "raw":
		fmt.Fprintf(w, "%#v\nmulticidr %#v\n", version.Get(), Get())
	default: // false, or the Kubernetes version that the process is to report
		return false
	}
	return true
}

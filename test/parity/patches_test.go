package parity

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// patchedPackage is the package that the patches change.
const patchedPackage = "cmd/kube-controller-manager/app"

// The staging patches apply to the pinned Kubernetes, one on top of the other, and what they make compiles and does what they say.
func TestStagingPatches(t *testing.T) {
	patches, err := filepath.Glob("../../staging-patches/*.patch")
	if err != nil || len(patches) == 0 {
		t.Fatalf("no patches found: %v", err)
	}
	dir := t.TempDir()
	files, err := filepath.Glob(filepath.Join(sourceOfKubernetes(t), patchedPackage, "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	// The module cache cannot be changed, and go build refuses to see its files differently. So the changed package takes the
	// place of one that testdata/seam imports.
	overlay := map[string]string{}
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		changed := filepath.Join(dir, patchedPackage, filepath.Base(file))
		copyFile(t, file, changed)
		overlay[absolute(t, filepath.Join("testdata/seam/app", filepath.Base(file)))] = changed
	}

	command(t, dir, "git", "init", "-q")
	for _, patch := range patches {
		command(t, dir, "git", "apply", absolute(t, patch))
	}
	replace, err := json.Marshal(map[string]any{"Replace": overlay})
	if err != nil {
		t.Fatal(err)
	}
	overlayFile := filepath.Join(dir, "overlay.json")
	if err := os.WriteFile(overlayFile, replace, 0o600); err != nil {
		t.Fatal(err)
	}
	command(t, ".", "go", "test", "-count=1", "-vet=off", "-overlay="+overlayFile, "./testdata/seam")
}

func sourceOfKubernetes(t *testing.T) string {
	return strings.TrimSpace(command(t, ".", "go", "list", "-m", "-f", "{{.Dir}}", "k8s.io/kubernetes"))
}

func absolute(t *testing.T, path string) string {
	t.Helper()
	path, err := filepath.Abs(path)
	if err != nil {
		t.Fatal(err)
	}
	return path
}

func copyFile(t *testing.T, from, to string) {
	t.Helper()
	content, err := os.ReadFile(from)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Dir(to), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(to, content, 0o600); err != nil {
		t.Fatal(err)
	}
}

// command runs a program and returns what it prints.
func command(t *testing.T, dir, name string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), name, args...)
	cmd.Dir = dir
	output, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, output)
	}
	return string(output)
}

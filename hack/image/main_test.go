package main

import (
	"bytes"
	"crypto/x509"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"github.com/google/go-containerregistry/pkg/v1/validate"
)

const testName = "registry.example.com/some/program:v1"

func TestTheSameProgramMakesTheSameBytes(t *testing.T) {
	program := buildProgram(t, "GOOS=linux", "CGO_ENABLED=0")
	first, err := os.ReadFile(archive(t, program))
	if err != nil {
		t.Fatal(err)
	}
	later := time.Now().Add(time.Hour)
	if err := os.Chtimes(program, later, later); err != nil {
		t.Fatal(err)
	}
	if second, err := os.ReadFile(archive(t, program)); err != nil || !bytes.Equal(first, second) {
		t.Errorf("two runs made two different archives (%v)", err)
	}
}

func TestImage(t *testing.T) {
	index := untar(t, archive(t, buildProgram(t, "GOOS=linux", "CGO_ENABLED=0", "GOARCH=arm64")))
	manifest, err := index.IndexManifest()
	if err != nil {
		t.Fatal(err)
	}
	if manifest.MediaType != types.OCIImageIndex || manifest.Manifests[0].MediaType != types.OCIManifestSchema1 {
		t.Errorf("media types %s, %s are not OCI's", manifest.MediaType, manifest.Manifests[0].MediaType)
	}
	// containerd calls the image so.
	if diff := cmp.Diff(map[string]string{"io.containerd.image.name": testName, "org.opencontainers.image.ref.name": "v1"}, manifest.Manifests[0].Annotations); diff != "" {
		t.Errorf("annotations (-want +got):\n%s", diff)
	}
	image, err := index.Image(manifest.Manifests[0].Digest)
	if err != nil {
		t.Fatal(err)
	}
	if err := validate.Image(image); err != nil {
		t.Error(err)
	}
	config, err := image.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	want := v1.Config{
		User:       "65532:65532",
		Entrypoint: []string{"/usr/local/bin/program"},
		Env:        []string{"PATH=/usr/local/bin", "SSL_CERT_FILE=/etc/ssl/certs/ca-certificates.crt"},
		Labels:     config.Config.Labels,
	}
	if diff := cmp.Diff(want, config.Config); diff != "" {
		t.Errorf("configuration (-want +got):\n%s", diff)
	}
	if config.OS != "linux" || config.Architecture != "arm64" {
		t.Errorf("it is for %s/%s, want that of the program, linux/arm64", config.OS, config.Architecture)
	}
	if got := config.Config.Labels["org.opencontainers.image.version"]; got != "v1" {
		t.Errorf("the label of the version says %q, want that of the tag", got)
	}
}

func TestIndexOfPlatforms(t *testing.T) {
	top := untar(t, archive(t, buildProgram(t, "GOOS=linux", "CGO_ENABLED=0", "GOARCH=amd64"), buildProgram(t, "GOOS=linux", "CGO_ENABLED=0", "GOARCH=arm64")))
	manifest, err := top.IndexManifest()
	if err != nil {
		t.Fatal(err)
	}
	if len(manifest.Manifests) != 1 || manifest.Manifests[0].Annotations["io.containerd.image.name"] != testName {
		t.Fatalf("the layout has %+v, want one thing of the name", manifest.Manifests)
	}
	index, err := top.ImageIndex(manifest.Manifests[0].Digest)
	if err != nil {
		t.Fatal(err)
	}
	if err := validate.Index(index); err != nil {
		t.Error(err)
	}
	if manifest, err = index.IndexManifest(); err != nil {
		t.Fatal(err)
	}
	var platforms []string
	for _, m := range manifest.Manifests {
		platforms = append(platforms, m.Platform.String())
		image, err := index.Image(m.Digest)
		if err != nil {
			t.Fatal(err)
		}
		if config, err := image.ConfigFile(); err != nil || config.Architecture != m.Platform.Architecture {
			t.Errorf("the image for %s is for %s (%v)", m.Platform, config.Architecture, err)
		}
	}
	if diff := cmp.Diff([]string{"linux/amd64", "linux/arm64"}, platforms); diff != "" {
		t.Errorf("platforms (-want +got):\n%s", diff)
	}
}

// Distributions set the user of a kube-controller-manager, or leave root to it.
func TestUser(t *testing.T) {
	for program, want := range map[string]string{"kube-controller-manager": "", "node-ipam-controller": "65532:65532"} {
		if got := userOf(program); got != want {
			t.Errorf("%s runs as %q, want %q", program, got, want)
		}
	}
}

// Upstream's image has a wrapper at /go-runner, and manifests of distributions start kube-controller-manager under it.
func TestFiles(t *testing.T) {
	program := filepath.Join(t.TempDir(), "program")
	for name, want := range map[string]map[string]int64{
		"program": {"usr/local/bin/program": 0o755, "etc/ssl/certs/ca-certificates.crt": 0o644},
		manager:   {"usr/local/bin/kube-controller-manager": 0o755, "etc/ssl/certs/ca-certificates.crt": 0o644, "go-runner": 0o755},
	} {
		if err := os.WriteFile(program, nil, 0o755); err != nil {
			t.Fatal(err)
		}
		if _, err := filesOf(manager, program); name == manager && (err == nil || !strings.Contains(err.Error(), "build k8s.io/component-base/logs/kube-log-runner")) {
			t.Errorf("without the wrapper beside the program: %v", err)
		}
		if err := os.WriteFile(filepath.Join(filepath.Dir(program), wrapper), nil, 0o755); err != nil {
			t.Fatal(err)
		}
		files, err := filesOf(name, program)
		if err != nil {
			t.Fatal(err)
		}
		modes := map[string]int64{}
		for _, f := range files {
			modes[f.path] = f.mode
			if f.path == certificates && !x509.NewCertPool().AppendCertsFromPEM(f.content) {
				t.Error("no certificate authority can be read")
			}
		}
		if diff := cmp.Diff(want, modes); diff != "" {
			t.Errorf("files of %s (-want +got):\n%s", name, diff)
		}
		if err := os.Remove(filepath.Join(filepath.Dir(program), wrapper)); err != nil {
			t.Fatal(err)
		}
	}
}

func TestRefused(t *testing.T) {
	static := buildProgram(t, "GOOS=linux", "CGO_ENABLED=0")
	for description, tc := range map[string]struct{ name, program string }{
		"a name that means another registry to Docker than to a kubelet": {"program:v1", static},
		"a name without a tag":          {"registry.example.com/program", static},
		"a program for another system":  {testName, buildProgram(t, "GOOS=darwin", "CGO_ENABLED=0")},
		"a file that is no Go program":  {testName, "main.go"},
		"a program that does not exist": {testName, "no-such-file"},
		"two programs for one platform": {testName, static + " " + static},
	} {
		t.Run(description, func(t *testing.T) {
			archive := filepath.Join(t.TempDir(), "image.tar")
			if err := run(tc.name, strings.Fields(tc.program), archive); err == nil {
				t.Error("no error")
			}
			if _, err := os.Stat(archive); err == nil {
				t.Error("there is an archive all the same")
			}
		})
	}
}

// buildProgram builds the smallest of programs.
func buildProgram(t *testing.T, env ...string) string {
	t.Helper()
	dir := t.TempDir()
	for name, content := range map[string]string{"go.mod": "module example.com/program\n", "main.go": "package main\n\nfunc main() {}\n"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	build := exec.CommandContext(t.Context(), "go", "build", "-o", "program", ".")
	build.Dir, build.Env = dir, append(os.Environ(), env...)
	if output, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, output)
	}
	return filepath.Join(dir, "program")
}

func archive(t *testing.T, programs ...string) string {
	t.Helper()
	archive := filepath.Join(t.TempDir(), "image.tar")
	if err := run(testName, programs, archive); err != nil {
		t.Fatal(err)
	}
	return archive
}

func untar(t *testing.T, archive string) v1.ImageIndex {
	t.Helper()
	dir := t.TempDir()
	if output, err := exec.CommandContext(t.Context(), "tar", "--extract", "--file="+archive, "--directory="+dir).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, output)
	}
	index, err := layout.ImageIndexFromPath(dir)
	if err != nil {
		t.Fatal(err)
	}
	return index
}

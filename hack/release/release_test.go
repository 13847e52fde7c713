package main

import (
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const testRegistry = "registry.example.com/multicidr"

// The versions are those of our sources, which the charts and manifests name.
var (
	testVersion        = strings.TrimSpace(contents("../../controllers/build")["VERSION"])
	_, testTag, _      = strings.Cut(strings.TrimSpace(contents("../../manifests/kubeadm/patches")["kube-controller-manager+strategic.yaml"]), "/kube-controller-manager:")
	ofKubernetes, _, _ = strings.Cut(testTag, "-mc")
)

// TestRelease makes a release of small programs and reads it back. Made a second time, elsewhere, it has the same bytes; and when anything in it is
// changed, somebody notices.
func TestRelease(t *testing.T) {
	first, second := newSources(t), newSources(t)
	release := makeRelease(t, first)
	if err := verify(release, ""); err != nil {
		t.Fatal(err)
	}

	t.Run("the same bytes from another directory", func(t *testing.T) {
		if diff := cmp.Diff(digests(t, release), digests(t, makeRelease(t, second))); diff != "" {
			t.Errorf("(-first +second):\n%s", diff)
		}
	})

	t.Run("Krew would install another archive", func(t *testing.T) {
		text := contents(release)[krewName(testVersion)]
		for what, changed := range map[string]string{
			"checksum": regexp.MustCompile(`sha256: .`).ReplaceAllString(text, "sha256: x"), "address": strings.Replace(text, "/download/", "/", 1),
			"platform": strings.Replace(text, "arch: amd64", "arch: arm64", 1), "version": strings.Replace(text, "version: "+testVersion, "version: v0.0.0", 1),
		} {
			p := &published{dir: copyOf(t, release), version: testVersion, files: slices.Sorted(maps.Keys(contents(release)))}
			if err := p.checkKrew(); err != nil {
				t.Fatal(err)
			}
			write(t, filepath.Join(p.dir, krewName(testVersion)), changed)
			if err := p.checkKrew(); err == nil {
				t.Errorf("another %s is not noticed", what)
			}
		}
	})

	sums := contents(release)[checksumFile]
	for name := range contents(release) {
		if name == checksumFile {
			continue
		}
		t.Run("changed: "+name, func(t *testing.T) {
			changed := copyOf(t, release)
			write(t, filepath.Join(changed, name), contents(release)[name]+" ")
			wantRefused(t, changed, name)
			// Also if the checksum is changed with it: the provenance has another one.
			digest, err := digestOf(filepath.Join(changed, name))
			if err != nil {
				t.Fatal(err)
			}
			var lines []string
			for line := range strings.Lines(sums) {
				if strings.HasSuffix(line, "  "+name+"\n") {
					line = digest + "  " + name + "\n"
				}
				lines = append(lines, line)
			}
			write(t, filepath.Join(changed, checksumFile), strings.Join(lines, ""))
			if !strings.HasPrefix(name, "provenance-") { // Blanks in JSON mean nothing; who changes more has to sign it.
				wantRefused(t, changed, name)
			}
		})
	}
	t.Run("a file more", func(t *testing.T) {
		changed := copyOf(t, release)
		write(t, filepath.Join(changed, "more.yaml"), "kind: Role\n")
		wantRefused(t, changed, "more.yaml")
	})
	t.Run("a file less", func(t *testing.T) {
		changed := copyOf(t, release)
		if err := os.Remove(filepath.Join(changed, "install-kube-controller-manager.yaml")); err != nil {
			t.Fatal(err)
		}
		wantRefused(t, changed, "install-kube-controller-manager.yaml")
	})
}

func TestProgramsThatAreNotReleased(t *testing.T) {
	for sentence, tc := range map[string]struct {
		change func(t *testing.T, root string)
		want   string
	}{
		"with changes": {func(t *testing.T, root string) {
			write(t, filepath.Join(root, "LICENSE"), "another one")
			buildPrograms(t, root, "-trimpath")
		}, "without changes"},
		"with paths": {func(t *testing.T, root string) { buildPrograms(t, root, "-trimpath=false") }, "without -trimpath"},
		"none":       {func(t *testing.T, root string) { remove(t, filepath.Join(root, "bin")) }, "there are no programs"},
	} {
		t.Run(sentence, func(t *testing.T) {
			root := newSources(t)
			tc.change(t, root)
			r := release{root: root, version: testVersion, tag: testTag, registry: testRegistry, output: t.TempDir()}
			if err := r.make(); err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("got %v, want an error that says %q", err, tc.want)
			}
		})
	}
}

func TestLicences(t *testing.T) {
	apache := contents("../..")["LICENSE"]
	for sentence, tc := range map[string]struct{ text, want, err string }{
		"a known text":        {apache, "Apache-2.0", ""},
		"a text of their own": {"You may use this on Mondays.", "", "the licence of example.com/m v1.0.0 is not known"},
		"no text":             {"", "", `its files are []`},
	} {
		t.Run(sentence, func(t *testing.T) {
			module := &licensed{path: "example.com/m", version: "v1.0.0", files: map[string][]byte{}}
			if tc.text != "" {
				module.files["LICENSE"] = []byte(tc.text)
			}
			err := classify(map[string]*licensed{module.path: module})
			if fmt.Sprint(err) != "<nil>" && (tc.err == "" || !strings.Contains(err.Error(), tc.err)) || err == nil && tc.err != "" {
				t.Errorf("got %v, want %q", err, tc.err)
			}
			if got := strings.Join(module.names, " AND "); got != tc.want {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
}

// A new dependency whose licence nobody can tell is noticed when it comes, and not when a release is made.
func TestLicencesOfOurPrograms(t *testing.T) {
	var builds []build
	for _, program := range []string{"kube-controller-manager", "node-ipam-controller", "cluster-ipam-controller"} {
		builds = append(builds, build{program: program, os: "linux", arch: "amd64"}, build{program: program, os: "linux", arch: "arm64"})
	}
	for _, system := range []string{"linux", "darwin", "windows"} {
		builds = append(builds, build{program: "kubectl-node_ipam", os: system, arch: "amd64"}, build{program: "preflight", os: system, arch: "amd64"})
	}
	r := release{root: "../..", version: testVersion}
	all, err := r.licensesOf(builds)
	if err != nil {
		t.Fatal(err)
	}
	if err := classify(all); err != nil {
		t.Error(err)
	}
	if all["k8s.io/kubernetes"] == nil || len(all) < 100 {
		t.Errorf("only %d modules were found", len(all))
	}
	for _, module := range all {
		t.Logf("%s %s: %v", module.path, module.version, module.names)
	}
}

// newSources is a repository with what a release takes from ours, but for the programs: one that only says its version.
func newSources(t *testing.T) string {
	t.Helper()
	root := t.TempDir()
	for _, dir := range []string{"manifests", "hack/image"} {
		if err := os.CopyFS(filepath.Join(root, dir), os.DirFS(filepath.Join("../..", dir))); err != nil {
			t.Fatal(err)
		}
	}
	license, err := os.ReadFile("../../LICENSE")
	if err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(root, "LICENSE"), string(license))
	write(t, filepath.Join(root, ".gitignore"), "/bin/\n")
	write(t, filepath.Join(root, "go.mod"), "module github.com/multicidr/controller-manager\n\ngo 1.26.0\n")
	for _, program := range []string{"kube-controller-manager", "node-ipam-controller", "preflight", plugin} {
		write(t, filepath.Join(root, "cmd", program, "main.go"), "package main\n\nfunc main() { print() }\n")
		write(t, filepath.Join(root, "cmd", program, "print.go"), fmt.Sprintf("package main\n\nimport \"fmt\"\n\nfunc print() { fmt.Println(\"Kubernetes %s (multicidr %s)\") }\n", ofKubernetes, testVersion))
	}
	for _, args := range [][]string{
		{"init", "--quiet"}, {"add", "."}, {"-c", "user.name=test", "-c", "user.email=test@example.com", "commit", "--quiet", "--message=all"}, {"tag", testVersion},
	} {
		git := exec.CommandContext(t.Context(), "git", args...)
		git.Dir = root
		git.Env = append(os.Environ(), "GIT_AUTHOR_DATE=2026-11-23T00:00:00Z", "GIT_COMMITTER_DATE=2026-11-23T00:00:00Z", "GIT_CONFIG_GLOBAL=/dev/null")
		if output, err := git.CombinedOutput(); err != nil {
			t.Fatalf("git %v: %v\n%s", args, err, output)
		}
	}
	buildPrograms(t, root, "-trimpath")
	return root
}

// buildPrograms does what hack/release.sh does.
func buildPrograms(t *testing.T, root, trimpath string) {
	t.Helper()
	build := func(platform, program, output string) string {
		system, arch, _ := strings.Cut(platform, "/")
		command := exec.CommandContext(t.Context(), "go", "build", trimpath, "-buildvcs=true", "-o", output, "./cmd/"+program)
		command.Dir, command.Env = root, append(os.Environ(), "GOFLAGS=", "CGO_ENABLED=0", "GOOS="+system, "GOARCH="+arch)
		if out, err := command.CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		return output
	}
	for _, program := range []string{"kube-controller-manager", "node-ipam-controller"} {
		args := []string{"-C", filepath.Join(root, "hack/image"), "run", ".", testRegistry + "/" + program + ":" + testTag}
		for _, arch := range []string{"amd64", "arm64"} {
			args = append(args, build("linux/"+arch, program, filepath.Join(root, "bin/images/linux-"+arch, program)))
		}
		if out, err := exec.CommandContext(t.Context(), "go", append(args, filepath.Join(root, "bin/images", program+".tar"))...).CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
	}
	build(runtime.GOOS+"/"+runtime.GOARCH, "preflight", filepath.Join(root, "bin/commands", runtime.GOOS+"-"+runtime.GOARCH, "preflight"))
	build("windows/amd64", "preflight", filepath.Join(root, "bin/commands/windows-amd64/preflight.exe"))
	build("linux/amd64", plugin, filepath.Join(root, "bin/commands/linux-amd64", plugin))
	build("windows/amd64", plugin, filepath.Join(root, "bin/commands/windows-amd64", plugin+".exe"))
}

func makeRelease(t *testing.T, root string) string {
	t.Helper()
	r := release{root: root, version: testVersion, tag: testTag, registry: testRegistry, output: filepath.Join(t.TempDir(), "release")}
	if err := r.make(); err != nil {
		t.Fatal(err)
	}
	return r.output
}

func wantRefused(t *testing.T, dir, name string) {
	t.Helper()
	if err := verify(dir, ""); err == nil || !strings.Contains(err.Error(), name) {
		t.Errorf("verify says %v, want an error that names %s", err, name)
	}
}

// contents are the files directly in a directory.
func contents(dir string) map[string]string {
	entries, err := os.ReadDir(dir)
	if err != nil {
		panic(err)
	}
	all := map[string]string{}
	for _, entry := range entries {
		if entry.Type().IsRegular() {
			content, err := os.ReadFile(filepath.Join(dir, entry.Name()))
			if err != nil {
				panic(err)
			}
			all[entry.Name()] = string(content)
		}
	}
	return all
}

// digests are shorter to look at.
func digests(t *testing.T, dir string) map[string]string {
	t.Helper()
	all := map[string]string{}
	for name := range contents(dir) {
		var err error
		if all[name], err = digestOf(filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	return all
}

func copyOf(t *testing.T, dir string) string {
	t.Helper()
	changed := filepath.Join(t.TempDir(), "copy")
	if err := os.CopyFS(changed, os.DirFS(dir)); err != nil {
		t.Fatal(err)
	}
	return changed
}

func write(t *testing.T, path, content string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
}

func remove(t *testing.T, path string) {
	t.Helper()
	if err := os.RemoveAll(path); err != nil {
		t.Fatal(err)
	}
}

// TestPagesNameImages sees that the pages name the archives of images as imageFile does.
func TestPagesNameImages(t *testing.T) {
	for _, page := range []string{"docs/install/files.md", "docs/engineering/releasing.md"} {
		content, err := os.ReadFile(filepath.Join("../..", page))
		if err != nil {
			t.Fatal(err)
		}
		names := regexp.MustCompile(`[A-Za-z-]+-(v[0-9.]+-mc[0-9]+\.[0-9]+\.[0-9]+)[a-z.]*`).FindAllStringSubmatch(string(content), -1)
		if len(names) == 0 {
			t.Errorf("%s names no image", page)
		}
		for _, name := range names {
			program, _, _ := strings.Cut(name[0], "-"+name[1])
			if want := (&release{tag: name[1]}).imageFile(program); name[0] != want {
				t.Errorf("%s names %s; want %s", page, name[0], want)
			}
		}
	}
}

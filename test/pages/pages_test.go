// Package pages runs the shell blocks of the pages for users, and compares the outputs that the pages show with what the commands print.
package pages

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/multicidr/controller-manager/test/controlplane"
)

var rewrite = flag.Bool("rewrite", false, "write what the commands print into the pages")

// story are the pages whose blocks run one after the other in the cluster of `make run`. Those of README.md run in a cluster of their own.
var story = []string{
	"docs/use/ranges.md", "docs/quickstart.md", "docs/use/kubectl-node-ipam.md", "docs/use/network-plugins.md", "docs/install/kubeadm.md",
	"docs/install/upgrade.md", "docs/operate/policies.md", "docs/operate/troubleshooting.md", "docs/install/uninstall.md",
}

// mark is the first line of a block that does not run here.
var mark = regexp.MustCompile(`^# (?:not run here|run by make ([\w-]+))\b`)

// block is a fenced block of a page.
type block struct {
	page, kind, text string
	line             int
	indent           string // of each of its lines in the page
}

func (b block) String() string { return fmt.Sprintf("%s:%d", b.page, b.line) }

// TestEveryBlockIsRunOrMarked reads all pages for users: nobody can add a command that no test runs without telling the reader.
func TestEveryBlockIsRunOrMarked(t *testing.T) {
	makefile := read(t, "Makefile")
	for _, b := range blocks(t, userPages(t)...) {
		if !isShell(b) {
			continue
		}
		for _, target := range regexp.MustCompile(`(?m)^(?:# run by )?make ([\w-]+)`).FindAllStringSubmatch(b.text, -1) {
			if !regexp.MustCompile(`(?m)^([\w $()-]+ )?` + target[1] + `\b[^=\n]*:`).MatchString(makefile) {
				t.Errorf("%s: the Makefile has no target %s", b, target[1])
			}
		}
		if b.page != "README.md" && !slices.Contains(story, b.page) && !mark.MatchString(b.text) && !onlyMake(b) {
			t.Errorf("%s: begin the block with # not run here, or add the page to the story", b)
		}
	}
}

// TestPages runs the blocks.
func TestPages(t *testing.T) {
	t.Run("README.md", func(t *testing.T) {
		c := newCluster(t)
		c.bash(t, `kubectl apply -f - <<< '{apiVersion: networking.x-k8s.io/v1, kind: ClusterCIDR, metadata: {name: first}, spec: {ipv4: 10.100.0.0/22, perNodeHostBits: 8}}'
`+register("node-01", "node-02", "node-03", "node-04")+allocated+register("node-05"))
		c.page(t, "README.md")
	})
	t.Run("docs", func(t *testing.T) {
		c := newCluster(t)
		c.bash(t, `kubectl apply -f examples/
for file in examples/*.yaml; do cat $file; echo ---; done > clustercidrs.yaml
kubectl wait --for=condition=Ready clustercidr fallback edge zone-a-gpu
`+register("worker-01", "store-01", "gpu-01", "worker-02", "store-02", "gpu-02", "worker-03", "store-03", "gpu-03", "worker-04", "store-04", "gpu-04")+allocated)
		for _, page := range story {
			c.page(t, page)
		}
	})
}

// register is shell that creates Nodes as `make run` does.
func register(names ...string) (shell string) {
	labels := map[string]string{"store": "example.com/pool: edge", "gpu": "example.com/pool: gpu, topology.kubernetes.io/zone: zone-a"}
	for _, name := range names {
		group, _, _ := strings.Cut(name, "-")
		shell += fmt.Sprintf("kubectl create -f - <<< '{apiVersion: v1, kind: Node, metadata: {name: %s, labels: {%s}}}'\n", name, labels[group])
	}
	return shell
}

// allocated is shell that waits until all Nodes have podCIDRs.
const allocated = "kubectl wait --for=jsonpath='{.spec.podCIDR}' nodes --all\n"

// before does what a reader of the block has done, or a mistake that the block repairs.
func (c *cluster) before(t *testing.T, b block) {
	t.Helper()
	switch {
	case strings.HasPrefix(b.text, "$ kubectl node-ipam status"):
		c.bash(t, "kubectl patch clustercidr fallback --type=merge -p '{\"spec\":{\"allocation\":\"Disabled\"}}'\n"+register("worker-05"))
	case strings.Contains(b.text, "wait --for=delete crd/"):
		c.bash(t, "kubectl delete --wait=false -f manifests/crds")
	case strings.HasPrefix(b.text, "kubectl delete clustercidrs --all"):
		if err := c.manager.Stop(); err != nil {
			t.Fatal(err)
		}
	}
}

type cluster struct {
	dir     string // where the reader is, with what a checkout has
	env     []string
	manager *controlplane.Manager
}

func newCluster(t *testing.T) *cluster {
	t.Helper()
	cp := controlplane.StartForTest(t, controlplane.Options{})
	kubeconfig, err := cp.Kubeconfig("admin", "system:masters")
	if err != nil {
		t.Fatal(err)
	}
	bin := filepath.Dir(controlplane.Program("kubectl"))
	c := &cluster{dir: t.TempDir(), env: append(os.Environ(), "KUBECONFIG="+kubeconfig, "PATH="+bin+":"+os.Getenv("PATH"))}
	for name, path := range map[string]string{"bin": bin, "manifests": fromRoot(t, "manifests"), "examples": fromRoot(t, "examples")} {
		if err := os.Symlink(path, filepath.Join(c.dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	if err := cp.Apply(t.Context(), fromRoot(t, "manifests/crds"), fromRoot(t, "manifests/rbac")); err != nil {
		t.Fatal(err)
	}
	c.manager = cp.StartManagerForTest(t, controlplane.ManagerOptions{Args: []string{"--leader-elect=true", "--controllers=*,multi-cidr-node-ipam-controller"}})
	if err := c.manager.WaitLeading(t.Context()); err != nil {
		t.Fatal(err)
	}
	return c
}

// page runs the blocks of a page that are not marked. A YAML block that begins with the comment # NAME.yaml becomes that file.
func (c *cluster) page(t *testing.T, page string) {
	t.Helper()
	text := read(t, page)
	for _, b := range blocks(t, page) {
		if name := regexp.MustCompile(`^# ([\w-]+\.yaml)\n`).FindStringSubmatch(b.text); b.kind == "yaml" && name != nil {
			if err := os.WriteFile(filepath.Join(c.dir, name[1]), []byte(b.text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, b := range blocks(t, page) {
		if !isShell(b) || mark.MatchString(b.text) || onlyMake(b) {
			continue
		}
		c.before(t, b)
		if b.kind == "sh" {
			t.Logf("%s:\n%s", b, c.bash(t, b.text))
			continue
		}
		got := c.console(t, b)
		if diff := gocmp.Diff(plain(b.text), plain(got)); diff != "" && !*rewrite {
			t.Errorf("%s shows something else than the commands print (go test ./test/pages -rewrite writes that):\n%s", b, diff)
		} else if diff != "" {
			text = strings.Replace(text, indent(b.text, b.indent), indent(got, b.indent), 1)
		}
	}
	if *rewrite {
		if err := os.WriteFile(fromRoot(t, page), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// console runs each command of a block, and returns the block with what they print. Until the controller has done what a command shows,
// it is repeated. A last line ... stands for all that comes after it.
func (c *cluster) console(t *testing.T, b block) (got string) {
	t.Helper()
	for _, part := range strings.Split("\n"+b.text, "\n$ ")[1:] {
		command, want, _ := strings.Cut(part, "\n")
		want = strings.TrimSuffix(want, "\n") + "\n"
		var output string
		for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(200 * time.Millisecond) {
			output = c.bash(t, command+"\n")
			if shown, ok := strings.CutSuffix(want, "\n...\n"); ok {
				lines := strings.SplitAfter(output, "\n")
				output = strings.Join(lines[:min(len(lines), strings.Count(shown, "\n")+1)], "") + "...\n"
			}
			if plain(output) == plain(want) || writes.MatchString(command) || time.Now().After(deadline) {
				break
			}
		}
		got += "$ " + command + "\n" + regexp.MustCompile(`(?m)[ \t]+$`).ReplaceAllString(identity.ReplaceAllString(output, "host-1_0c7e4f1a-5b0d-4f0e-9f53-2f6b8c1d9e70"), "")
	}
	return got
}

// bash fails the test if a command fails. The plugin fails if it cannot answer; with 1 and 2 it says that there is something to do.
func (c *cluster) bash(t *testing.T, text string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	command := exec.CommandContext(ctx, "bash", "-euo", "pipefail", "-c", `kubectl() { command kubectl "$@" || { local code=$?; [[ $1 == node-ipam && $code -le 2 ]]; }; }
`+regexp.MustCompile(`\bNODE\b`).ReplaceAllString(strings.ReplaceAll(text, " NAME ", " edge "), "store-01"))
	command.Dir, command.Env = c.dir, c.env
	output, err := command.CombinedOutput()
	if err != nil {
		t.Fatalf("%v:\n%s\n%s", err, text, output)
	}
	return string(output)
}

var (
	identity = regexp.MustCompile(`[\w.-]+_[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}`)
	age      = regexp.MustCompile(`\b(\d+m)?\d+s\b`)
	blanks   = regexp.MustCompile(` +`)
	writes   = regexp.MustCompile(`kubectl (apply|create|patch)`)
)

// plain is an output without what differs each time.
func plain(output string) string {
	output = age.ReplaceAllString(identity.ReplaceAllString(output, "IDENTITY"), "AGE")
	return regexp.MustCompile(`(?m) +$`).ReplaceAllString(blanks.ReplaceAllString(output, " "), "")
}

func indent(text, by string) string {
	return regexp.MustCompile(`(?m)^(.)`).ReplaceAllString(text, by+"$1")
}

func isShell(b block) bool { return b.kind == "sh" || b.kind == "console" }

func onlyMake(b block) bool { return regexp.MustCompile(`^(make .*\n)+$`).MatchString(b.text) }

// userPages are README.md and docs, without the reference, Cluster IPAM and what is for engineers.
func userPages(t *testing.T) (pages []string) {
	t.Helper()
	for _, pattern := range []string{"README.md", "docs/*.md", "docs/install/*.md", "docs/use/*.md", "docs/operate/*.md", "docs/concepts/*.md"} {
		found, err := filepath.Glob(fromRoot(t, pattern))
		if err != nil || len(found) == 0 {
			t.Fatalf("%s: no page, %v", pattern, err)
		}
		for _, path := range found {
			pages = append(pages, strings.TrimPrefix(path, fromRoot(t, ".")+"/"))
		}
	}
	return pages
}

func blocks(t *testing.T, pages ...string) (all []block) {
	t.Helper()
	fence := regexp.MustCompile("(?ms)^( *)```([a-z]+)\n(.*?)^ *```$")
	for _, page := range pages {
		text := read(t, page)
		for _, at := range fence.FindAllStringSubmatchIndex(text, -1) {
			b := block{page: page, indent: text[at[2]:at[3]], kind: text[at[4]:at[5]], line: strings.Count(text[:at[6]], "\n") + 1}
			b.text = regexp.MustCompile(`(?m)^`+b.indent).ReplaceAllString(text[at[6]:at[7]], "")
			all = append(all, b)
		}
	}
	return all
}

func read(t *testing.T, path string) string {
	t.Helper()
	content, err := os.ReadFile(fromRoot(t, path))
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}

func fromRoot(t *testing.T, path string) string {
	t.Helper()
	root, err := controlplane.ModuleRoot()
	if err != nil {
		t.Fatal(err)
	}
	return filepath.Join(root, path)
}

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

	"github.com/google/go-cmp/cmp"

	"github.com/multicidr/controller-manager/test/controlplane"
)

var rewrite = flag.Bool("rewrite", false, "write what the commands print into the pages")

// story are the pages whose blocks run one after the other, after README.md.
var story = []string{
	"docs/use/ranges.md", "docs/quickstart.md", "docs/use/kubectl-node-ipam.md", "docs/use/network-plugins.md", "docs/install/kubeadm.md",
	"docs/install/upgrade.md", "docs/operate/policies.md", "docs/operate/troubleshooting.md", "docs/install/uninstall.md", "docs/cluster-ipam/README.md",
}

var (
	// mark is the first line of a block that does not run here.
	mark     = regexp.MustCompile(`^# (?:not run here|run by make [\w-]+)\b`)
	target   = regexp.MustCompile(`(?m)^(?:# run by )?make ([\w-]+)`)
	onlyMake = regexp.MustCompile(`^(make .*\n)+$`)
	file     = regexp.MustCompile(`^# ([\w-]+\.yaml)\n`)
	node     = regexp.MustCompile(`\bNODE\b`)
	writes   = regexp.MustCompile(`kubectl (apply|create|patch)`)

	// Outputs differ in these each time.
	identity = regexp.MustCompile(`[\w.-]+_[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}`)
	age      = regexp.MustCompile(`\b(\d+m)?\d+s\b`)
	blanks   = regexp.MustCompile(`(?m) +(\n|$)?`)
)

// TestEveryBlockIsRunOrMarked reads all pages for users: nobody can add a command that no test runs without telling the reader.
func TestEveryBlockIsRunOrMarked(t *testing.T) {
	t.Chdir("../..")
	makefile := read(t, "Makefile")
	for _, pattern := range []string{"README.md", "docs/*.md", "docs/install/*.md", "docs/use/*.md", "docs/operate/*.md", "docs/concepts/*.md", "docs/cluster-ipam/*.md"} {
		pages, err := filepath.Glob(pattern)
		if err != nil || len(pages) == 0 {
			t.Fatalf("%s: no page, %v", pattern, err)
		}
		for _, page := range pages {
			for _, b := range blocks(t, page) {
				for _, found := range target.FindAllStringSubmatch(b.text, -1) {
					if b.isShell() && !regexp.MustCompile(`(?m)^([\w-]+ )*`+found[1]+`( [\w-]+)*:`).MatchString(makefile) {
						t.Errorf("%s: the Makefile has no target %s", b, found[1])
					}
				}
				if b.runs() && page != "README.md" && !slices.Contains(story, page) {
					t.Errorf("%s: begin the block with # not run here, or add the page to the story", b)
				}
			}
		}
	}
}

// TestPages runs the blocks: those of README.md with the range that it shows, and then the others as after `make run`.
func TestPages(t *testing.T) {
	t.Chdir("../..")
	c := newCluster(t)
	c.bash(t, `kubectl apply -f - <<< '{apiVersion: networking.x-k8s.io/v1, kind: ClusterCIDR, metadata: {name: first}, spec: {ipv4: 10.100.0.0/22, perNodeHostBits: 8}}'
`+register("store-01", "store-02", "store-03", "store-04")+allocated+register("store-05"))
	c.page(t, "README.md")
	c.bash(t, `kubectl delete nodes,clustercidrs --all
kubectl apply -f examples/
for file in examples/*.yaml; do cat $file; echo ---; done > clustercidrs.yaml
kubectl wait --for=condition=Ready clustercidr fallback edge zone-a-gpu
`+register("worker-01", "store-01", "gpu-01", "worker-02", "store-02", "gpu-02", "worker-03", "store-03", "gpu-03", "worker-04", "store-04", "gpu-04")+allocated)
	for _, page := range story {
		c.page(t, page)
	}
}

// allocated is shell that waits until all Nodes have podCIDRs.
const allocated = "kubectl wait --for=jsonpath='{.spec.podCIDR}' nodes --all\n"

// register is shell that creates Nodes as `make run` does.
func register(names ...string) (shell string) {
	labels := map[string]string{"worker": "general, topology.kubernetes.io/zone: zone-b", "store": "edge, topology.kubernetes.io/zone: zone-c", "gpu": "gpu, topology.kubernetes.io/zone: zone-a"}
	for _, name := range names {
		group, _, _ := strings.Cut(name, "-")
		shell += fmt.Sprintf("kubectl create -f - <<< '{apiVersion: v1, kind: Node, metadata: {name: %s, labels: {example.com/pool: %s}}}'\n", name, labels[group])
	}
	return shell
}

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
	root, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	bin := filepath.Dir(controlplane.Program("kubectl"))
	c := &cluster{dir: t.TempDir(), env: append(os.Environ(), "KUBECONFIG="+kubeconfig, "PATH="+bin+":"+os.Getenv("PATH"))}
	for name, path := range map[string]string{"bin": bin, "manifests": root + "/manifests", "examples": root + "/examples"} {
		if err := os.Symlink(path, filepath.Join(c.dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	if err := cp.Apply(t.Context(), "manifests/crds", "manifests/rbac"); err != nil {
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
		if name := file.FindStringSubmatch(b.text); b.kind == "yaml" && name != nil {
			write(t, filepath.Join(c.dir, name[1]), b.text)
		}
	}
	for _, b := range blocks(t, page) {
		if !b.runs() {
			continue
		}
		c.before(t, b)
		if b.kind == "sh" {
			t.Logf("%s:\n%s", b, c.bash(t, b.text))
			continue
		}
		got := c.console(t, b)
		if diff := cmp.Diff(plain(b.text), plain(got)); diff != "" && !*rewrite {
			t.Errorf("%s shows something else than the commands print (make docs-outputs writes that):\n%s", b, diff)
		} else if diff != "" {
			text = strings.Replace(text, b.inPage(b.text), b.inPage(got), 1)
		}
	}
	if *rewrite {
		write(t, page, text)
	}
}

// console runs each command of a block, and returns the block with what they print. Until the controller or the API server has done what a
// command shows, it is repeated, unless it writes. A last line ... stands for all that comes after it.
func (c *cluster) console(t *testing.T, b block) (got string) {
	t.Helper()
	for _, part := range strings.Split("\n"+b.text, "\n$ ")[1:] {
		command, want, _ := strings.Cut(part, "\n")
		want = strings.TrimSuffix(want, "\n") + "\n"
		var output string
		once := writes.MatchString(command) && !strings.Contains(command, "--dry-run")
		for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(200 * time.Millisecond) {
			output = c.bash(t, command+" || true\n") // A page can show a refusal.
			if shown, ok := strings.CutSuffix(want, "\n...\n"); ok {
				lines := strings.SplitAfter(output, "\n")
				output = strings.Join(lines[:min(len(lines), strings.Count(shown, "\n")+1)], "") + "...\n"
			}
			if plain(output) == plain(want) || once || time.Now().After(deadline) {
				break
			}
		}
		got += "$ " + command + "\n" + identity.ReplaceAllString(output, "host-1_0c7e4f1a-5b0d-4f0e-9f53-2f6b8c1d9e70")
	}
	return regexp.MustCompile(`(?m) +$`).ReplaceAllString(got, "")
}

// bash fails the test if a command fails. The plugin fails if it cannot answer; with 1 and 2 it says that there is something to do.
func (c *cluster) bash(t *testing.T, text string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	command := exec.CommandContext(ctx, "bash", "-euo", "pipefail", "-c", `kubectl() { command kubectl "$@" || { local code=$?; [[ $1 == node-ipam && $code -le 2 ]]; }; }
`+node.ReplaceAllString(strings.ReplaceAll(text, " NAME ", " edge "), "store-01"))
	command.Dir, command.Env = c.dir, c.env
	output, err := command.CombinedOutput()
	if err != nil {
		t.Fatalf("%v:\n%s\n%s", err, text, output)
	}
	return string(output)
}

// plain is an output without what differs each time.
func plain(output string) string {
	return blanks.ReplaceAllString(age.ReplaceAllString(identity.ReplaceAllString(output, "IDENTITY"), "AGE"), " $1")
}

// block is a fenced block of a page.
type block struct {
	page, kind, text string
	line             int
	indent           string // of each of its lines in the page
}

func (b block) String() string { return fmt.Sprintf("%s:%d", b.page, b.line) }

func (b block) isShell() bool { return b.kind == "sh" || b.kind == "console" }

// runs is whether TestPages has to run it.
func (b block) runs() bool {
	return b.isShell() && !mark.MatchString(b.text) && !onlyMake.MatchString(b.text)
}

func (b block) inPage(text string) string {
	return regexp.MustCompile(`(?m)^(.)`).ReplaceAllString(text, b.indent+"$1")
}

func blocks(t *testing.T, page string) (all []block) {
	t.Helper()
	text := read(t, page)
	for _, at := range regexp.MustCompile("(?ms)^( *)```([a-z]+)\n(.*?)^ *```$").FindAllStringSubmatchIndex(text, -1) {
		b := block{page: page, indent: text[at[2]:at[3]], kind: text[at[4]:at[5]], line: strings.Count(text[:at[6]], "\n") + 1}
		b.text = regexp.MustCompile(`(?m)^`+b.indent).ReplaceAllString(text[at[6]:at[7]], "")
		all = append(all, b)
	}
	return all
}

// write writes a page or a file of the reader, whose directories are there.
func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

func read(t *testing.T, path string) string {
	t.Helper()
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}

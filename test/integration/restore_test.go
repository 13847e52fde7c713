package integration

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net"
	"net/netip"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/multicidr/controller-manager/controllers/nodeipam"
	"github.com/multicidr/controller-manager/test/controlplane"
)

// TestRestoreEtcd does what docs/operate/restore-etcd.md says: every script of it runs, on a real etcd and kube-apiserver that run as static Pods of a small kubelet. Since the backup Nodes were created, allocated podCIDRs, deleted and created again, and blocks
// were reused. After the restore, every machine that still runs has its blocks, and nobody else does.
//
// The first case leaves out the steps that protect. Then a new Node gets a block of a machine that runs, or this test proves nothing.
func TestRestoreEtcd(t *testing.T) {
	page := readRunbook(t)
	w := newRestored(t)
	w.story(t, page)
	for _, tc := range []struct {
		name string
		// answers: the old cluster still does, and then nobody needs machines or logs.
		answers bool
		without []string // steps
		overlap bool
	}{
		{name: "without the steps that protect", without: []string{"1", "5", "6"}, overlap: true},
		{name: "the old cluster is gone"},
		{name: "the old cluster still answers", answers: true},
	} {
		ok := t.Run(tc.name, func(t *testing.T) {
			w.back(t, tc.answers)
			machines, gone := filepath.Join(w.dir, "names"), filepath.Join(w.dir, "gone")
			if tc.answers {
				machines, gone = os.DevNull, os.DevNull
			}
			work := filepath.Join(t.TempDir(), "work")
			settings := map[string]string{
				"WORK":         work,
				"MACHINES":     machines,
				"GONE":         gone,
				"CLUSTERCIDRS": w.clusterCIDRs,
				"LOGS":         map[bool]string{false: filepath.Join(w.dir, "saved", "*.log*"), true: filepath.Join(w.dir, "none", "*.log*")}[tc.answers],
				"QUIET_PORT":   w.quietPort,
			}
			disk, err := os.Stat(w.etcdData)
			if err != nil {
				t.Fatal(err)
			}
			if tc.overlap {
				t.Logf("the runbook's output:\n%s", w.bash(t, page.without(tc.without...), settings))
			} else {
				t.Logf("the runbook's output:\n%s", w.bash(t, page.without("6", "7", "8"), settings))
				w.refuses(t, page, work, settings)
				t.Logf("the runbook's output, from step 6:\n%s", w.bash(t, page.only("6", "7", "8"), settings))
			}
			if now, err := os.Stat(w.etcdData); err != nil || !os.SameFile(disk, now) {
				t.Errorf("the directory of etcd's data is another one, %v: it can be a disk of its own", err)
			}
			w.check(t, tc.overlap)
		})
		if !ok {
			return
		}
	}
}

// restoreScripts are where the runbook is; docs/operate/restore-etcd.md says when to run which.
const restoreScripts = "../../hack/restore-etcd"

// runbook has the paths of its scripts in their order.
type runbook []string

func readRunbook(t *testing.T) runbook {
	t.Helper()
	scripts, err := filepath.Glob(filepath.Join(restoreScripts, "[0-9]-*.sh"))
	if err != nil || len(scripts) != 8 {
		t.Fatalf("scripts of the runbook: %q, %v; want one for each of the 8 steps", scripts, err)
	}
	page, err := os.ReadFile("../../docs/operate/restore-etcd.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range scripts {
		if name := filepath.Base(path); !strings.Contains(string(page), "`"+name+"`") {
			t.Errorf("docs/operate/restore-etcd.md does not name %s", name)
		}
	}
	return scripts
}

// backup is how to make a backup.
func (r runbook) backup() string { return run(filepath.Join(restoreScripts, "backup.sh")) }

// without is how to restore it, without some steps.
func (r runbook) without(steps ...string) string {
	return run(slices.DeleteFunc(slices.Clone(r), func(path string) bool { return isStep(path, steps) })...)
}

// only is some of the steps.
func (r runbook) only(steps ...string) string {
	return run(slices.DeleteFunc(slices.Clone(r), func(path string) bool { return !isStep(path, steps) })...)
}

func isStep(path string, steps []string) bool {
	number, _, _ := strings.Cut(filepath.Base(path), "-")
	return slices.Contains(steps, number)
}

// run runs scripts one after the other, until one fails.
func run(scripts ...string) string { return "set -e\n" + strings.Join(scripts, "\n") + "\n" }

// refuses runs step 6 with blocks that the API server does not store, and sees that no Node is deleted for them.
func (w *restored) refuses(t *testing.T, page runbook, work string, settings map[string]string) {
	t.Helper()
	path := filepath.Join(work, "in-use")
	right, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	writeFile(t, path, `kept ["10.0.0.1/28"]`, 0o600) // as flannel writes it, and without a newline
	output, err := w.tryBash(t, page.only("6"), settings)
	if err == nil || !strings.Contains(output, "nothing is changed yet: correct the line of kept") || strings.Contains(output, "deleted") {
		t.Errorf("step 6 with addresses that are no block: %v:\n%s", err, output)
	}
	writeFile(t, path, string(right), 0o600)
}

// restored is a cluster whose etcd is restored.
type restored struct {
	*cluster
	dir          string
	clusterCIDRs string            // a directory with their manifests
	machines     map[string]string // what the machines that run use, as JSON, by the Node's name
	kubelet      *kubelet
	manifests    map[string][]byte // of the static Pods
	etcdData     string
	quietPort    string
	environment  []string
}

func newRestored(t *testing.T) *restored {
	t.Helper()
	c := freshCluster(t, controlplane.Options{}, slices.Concat(ours, shortLease)...)
	w := &restored{cluster: c, dir: t.TempDir(), etcdData: filepath.Join(c.cp.Dir(), "etcd"), machines: map[string]string{}, manifests: map[string][]byte{}}
	w.clusterCIDRs = filepath.Join(w.dir, "clustercidrs")
	processes := map[string]*controlplane.Process{"etcd": c.cp.Etcd(), "kube-apiserver": c.cp.APIServer(), "kube-controller-manager": c.manager.Process}
	port := func(address string) string {
		u, err := url.Parse(address)
		if err != nil {
			t.Fatal(err)
		}
		return u.Port()
	}
	ports := map[string]string{"ETCD_PORT": port(c.cp.EtcdEndpoint()), "API_PORT": port(c.cp.AdminConfig().Host), "MANAGER_PORT": port(c.manager.URL())}
	listener, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	w.quietPort = port("tcp://" + listener.Addr().String())
	must(t, listener.Close())
	for _, name := range staticPods {
		w.manifests[name] = staticPod(name, processes[name].Command()[1:])
		must(t, processes[name].Stop())
	}
	kubeconfig, err := c.cp.Kubeconfig("admin", "system:masters")
	if err != nil {
		t.Fatal(err)
	}
	bin, err := controlplane.BinDir()
	if err != nil {
		t.Fatal(err)
	}
	w.kubelet = startKubelet(t, filepath.Join(w.dir, "manifests"), bin)
	for name, script := range map[string]string{
		// What ssh would run on a machine: there /etc is this machine's directory.
		"ssh": `#!/usr/bin/env bash
[ "$1" = -n ] && shift
machine=$MACHINE_DIRS/$1
[ -d "$machine" ] || exit 255
eval "$(sed "s#/etc/#$machine/etc/#g" <<< "$2")"
`,
		"systemctl": "#!/usr/bin/env bash\necho \"$machine $*\" >> \"$MACHINE_DIRS/systemctl\"\n",
	} {
		writeFile(t, filepath.Join(w.dir, "path", name), script, 0o700)
	}
	pki := func(file string) string { return filepath.Join(c.cp.PKIDir(), file) }
	for name, value := range map[string]string{
		"PATH":              filepath.Join(w.dir, "path") + ":" + bin + ":" + os.Getenv("PATH"),
		"KUBECONFIG":        kubeconfig,
		"HOME":              w.dir,
		"ETCDCTL_CACERT":    pki("ca.crt"),
		"ETCDCTL_CERT":      pki("etcd-client.crt"),
		"ETCDCTL_KEY":       pki("etcd-client.key"),
		"ETCDCTL_ENDPOINTS": c.cp.EtcdEndpoint(),
		"BACKUP":            filepath.Join(w.dir, "backup.db"),
		"MANIFESTS":         w.kubelet.manifests,
		"ETCD_DATA":         w.etcdData,
		"MACHINE_DIRS":      filepath.Join(w.dir, "machines"),
	} {
		w.environment = append(w.environment, name+"="+value)
	}
	for name, value := range ports {
		w.environment = append(w.environment, name+"="+value)
	}
	w.up(t)
	return w
}

// staticPods in the order in which they are stopped.
var staticPods = []string{"kube-controller-manager", "kube-apiserver", "etcd"}

// staticPod is one as kubeadm writes it, as far as anybody reads it here.
func staticPod(name string, args []string) []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, "apiVersion: v1\nkind: Pod\nmetadata:\n  name: %s\n  namespace: kube-system\nspec:\n  containers:\n  - command:\n    - %s\n", name, name)
	for _, arg := range args {
		fmt.Fprintf(&b, "    - %s\n", arg)
	}
	fmt.Fprintf(&b, "    name: %s\n  hostNetwork: true\n", name)
	return b.Bytes()
}

// up starts all static Pods.
func (w *restored) up(t *testing.T) {
	t.Helper()
	for _, name := range staticPods {
		writeFile(t, filepath.Join(w.kubelet.manifests, name+".yaml"), string(w.manifests[name]), 0o600)
	}
	must(t, eventually(2*time.Minute, func(ctx context.Context) error {
		_, err := w.kube.CoreV1().Namespaces().Get(ctx, metav1.NamespaceSystem, metav1.GetOptions{})
		return err
	}))
}

// down stops them.
func (w *restored) down(t *testing.T) {
	t.Helper()
	for _, name := range staticPods {
		if err := os.Remove(filepath.Join(w.kubelet.manifests, name+".yaml")); err != nil && !errors.Is(err, fs.ErrNotExist) {
			t.Fatal(err)
		}
		w.kubelet.waitStopped(name)
	}
}

const (
	firstClusterCIDR = `apiVersion: networking.x-k8s.io/v1
kind: ClusterCIDR
metadata: {name: first}
spec:
  nodeSelector: {nodeSelectorTerms: [{matchExpressions: [{key: pool, operator: In, values: [first]}]}]}
  ipv4: 10.0.0.0/25
  ipv6: fd00::/121
  perNodeHostBits: 4
`
	secondClusterCIDR = `apiVersion: networking.x-k8s.io/v1
kind: ClusterCIDR
metadata: {name: second}
spec:
  nodeSelector: {nodeSelectorTerms: [{matchExpressions: [{key: pool, operator: In, values: [second]}]}]}
  ipv4: 10.1.0.0/24
  perNodeHostBits: 4
`
)

// story is what happens before and after the backup. In the end range first has one free block, the last one.
func (w *restored) story(t *testing.T, page runbook) {
	ctx := t.Context()
	first, second := filepath.Join(w.clusterCIDRs, "first.yaml"), filepath.Join(w.clusterCIDRs, "second.yaml")
	apply := func(paths ...string) {
		t.Helper()
		must(t, w.cp.Apply(ctx, paths...))
	}
	serve := func(names ...string) {
		t.Helper()
		for _, name := range names {
			must(t, w.createNodes(ctx, map[string]string{"pool": "first"}, name))
			if _, err := w.waitServed(name, patience); err != nil {
				t.Fatal(err)
			}
		}
	}
	remove := func(names ...string) {
		t.Helper()
		for _, name := range names {
			must(t, w.kube.CoreV1().Nodes().Delete(ctx, name, metav1.DeleteOptions{}))
		}
	}

	writeFile(t, first, firstClusterCIDR, 0o600)
	apply(first)
	serve("kept", "renewed", "gone")
	if err := w.createNodes(ctx, map[string]string{"pool": "second"}, "bare"); err != nil { // nobody serves it yet
		t.Fatal(err)
	}
	// The fence is in force before and after: the runbook gets along with it.
	apply(policy, insideKCM, createdNodes)
	w.bash(t, page.backup(), nil)

	writeFile(t, second, secondClusterCIDR, 0o600)
	apply(second)
	if _, err := w.waitServed("bare", patience); err != nil {
		t.Fatal(err)
	}
	serve("new", "dark")
	remove("renewed", "gone")
	serve("renewed", "another", "ended")
	// What somebody has saved who has no manifest: it has the UID of an object that is not in the backup.
	writeFile(t, second, w.bash(t, "kubectl get clustercidr second --output=yaml", nil), 0o600)
	serve("heir-1", "heir-2") // of the blocks that renewed and gone had when the backup was made
	remove("ended")

	nodes, err := w.kube.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, node := range nodes.Items {
		podCIDRs, err := json.Marshal(node.Spec.PodCIDRs)
		if err != nil {
			t.Fatal(err)
		}
		w.machines[node.Name] = string(podCIDRs)
		if node.Name == "dark" {
			continue // runs, but nobody reaches it: only the log tells what it has
		}
		var ranges [][]map[string]string
		for _, podCIDR := range node.Spec.PodCIDRs {
			ranges = append(ranges, []map[string]string{{"subnet": podCIDR}})
		}
		conflist, err := json.MarshalIndent(map[string]any{"plugins": []any{map[string]any{"type": "bridge", "ipam": map[string]any{"ranges": ranges}}}}, "", "  ")
		if err != nil {
			t.Fatal(err)
		}
		writeFile(t, filepath.Join(w.dir, "machines", node.Name, "etc/cni/net.d/10-pods.conflist"), string(conflist), 0o600)
	}
	t.Logf("the machines use %v", w.machines)
	writeFile(t, filepath.Join(w.dir, "names"), strings.Join(slices.Sorted(maps.Keys(w.machines)), "\n"), 0o600) // no newline at the end

	writeFile(t, filepath.Join(w.dir, "gone"), "ended\ngone", 0o600)

	w.down(t)
	// The log as it is left: part of it was rotated away.
	log, err := os.ReadFile(w.kubelet.log("kube-controller-manager"))
	if err != nil {
		t.Fatal(err)
	}
	var kept strings.Builder
	for line := range strings.Lines(string(log)) {
		if !strings.Contains(line, `node="new"`) {
			kept.WriteString(line)
		}
	}
	writeFile(t, filepath.Join(w.dir, "saved", "kube-controller-manager.log"), kept.String(), 0o600)
	must(t, os.CopyFS(filepath.Join(w.dir, "world"), os.DirFS(w.etcdData)))
}

// back makes it as it was when the story ended; or without what etcd had.
func (w *restored) back(t *testing.T, answers bool) {
	t.Helper()
	w.down(t)
	must(t, os.RemoveAll(w.etcdData))
	if answers {
		must(t, os.CopyFS(w.etcdData, os.DirFS(filepath.Join(w.dir, "world"))))
		must(t, os.Chmod(w.etcdData, 0o700))
		w.up(t)
		return
	}
	writeFile(t, filepath.Join(w.etcdData, "member", "snap", "db"), "not what etcd has written", 0o600)
	for _, name := range staticPods {
		writeFile(t, filepath.Join(w.kubelet.manifests, name+".yaml"), string(w.manifests[name]), 0o600)
	}
}

// check has Nodes created and looks at whose blocks they get.
func (w *restored) check(t *testing.T, overlap bool) {
	t.Helper()
	ctx := t.Context()
	must(t, w.createNodes(ctx, map[string]string{"pool": "first"}, "late-1"))
	late, err := w.waitServed("late-1", patience)
	if err != nil {
		t.Fatal(err)
	}
	if !overlap {
		if got, want := late.Spec.PodCIDRs[0], "10.0.0.112/28"; got != want {
			t.Errorf("Node late-1 has %s, want %s, the only block that no machine uses", got, want)
		}
		must(t, w.createNodes(ctx, map[string]string{"pool": "first"}, "late-2"), w.createNodes(ctx, map[string]string{"pool": "second"}, "late-3"))
		if _, err := w.waitServed("late-3", patience); err != nil {
			t.Error(err)
		}
		full, err := w.kube.CoreV1().Nodes().Get(ctx, "late-2", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		expect(t, eventually(patience, func(ctx context.Context) error {
			events, err := w.warnings(ctx, full.UID, nodeipam.ReasonNotAvailable)
			if err == nil && len(events) == 0 {
				err = errors.New("no event says that the range is full")
			}
			return err
		}))
	}

	nodes, err := w.kube.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var overlaps []string
	seen := map[string]bool{}
	for _, node := range nodes.Items {
		seen[node.Name] = true
		if uses, runs := w.machines[node.Name]; runs {
			if shows, _ := json.Marshal(node.Spec.PodCIDRs); string(shows) != uses && !overlap {
				t.Errorf("Node %s shows %s, and its machine uses %s", node.Name, shows, uses)
			}
			continue
		}
		if node.Name == "gone" {
			continue // came back with the backup, and has no machine
		}
		for machine, uses := range w.machines {
			if shares(t, node, uses) {
				overlaps = append(overlaps, fmt.Sprintf("Node %s was given %v, and machine %s uses %s", node.Name, node.Spec.PodCIDRs, machine, uses))
			}
		}
	}
	if len(overlaps) > 0 != overlap {
		t.Errorf("want an overlap: %t; got %q", overlap, overlaps)
	}
	for name := range w.machines {
		if !overlap && !seen[name] {
			t.Errorf("there is no Node %s", name)
		}
	}
}

// shares reports whether a Node has addresses of podCIDRs, which are JSON.
func shares(t *testing.T, node corev1.Node, podCIDRs string) bool {
	t.Helper()
	var uses []string
	must(t, json.Unmarshal([]byte(podCIDRs), &uses))
	for _, a := range node.Spec.PodCIDRs {
		for _, b := range uses {
			if netip.MustParsePrefix(a).Overlaps(netip.MustParsePrefix(b)) {
				return true
			}
		}
	}
	return false
}

// bash runs a script and returns what it printed.
func (w *restored) bash(t *testing.T, script string, environment map[string]string) string {
	t.Helper()
	output, err := w.tryBash(t, script, environment)
	if err != nil {
		t.Fatalf("%v:\n%s", err, output)
	}
	return output
}

func (w *restored) tryBash(t *testing.T, script string, environment map[string]string) (string, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "bash", "-c", script)
	cmd.WaitDelay = time.Second
	cmd.Env = w.environment
	for name, value := range environment {
		cmd.Env = append(cmd.Env, name+"="+value)
	}
	output, err := cmd.CombinedOutput()
	return string(output), err
}

func writeFile(t *testing.T, path, content string, mode fs.FileMode) {
	t.Helper()
	must(t, os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, []byte(content), mode))
}

// kubelet runs the programs of the static Pods in a directory, as a kubelet would.
type kubelet struct {
	manifests string
	logs      string
	bin       string

	mu      sync.Mutex
	running map[string]*controlplane.Process
}

func startKubelet(t *testing.T, manifests, bin string) *kubelet {
	t.Helper()
	k := &kubelet{manifests: manifests, logs: t.TempDir(), bin: bin, running: map[string]*controlplane.Process{}}
	must(t, os.MkdirAll(manifests, 0o700))
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	for _, name := range staticPods {
		wg.Go(func() { k.follow(ctx, t, name) })
	}
	t.Cleanup(func() {
		cancel()
		wg.Wait()
		for _, name := range staticPods {
			if p := k.process(name); p != nil {
				expect(t, p.Stop())
			}
		}
	})
	return k
}

func (k *kubelet) log(name string) string { return filepath.Join(k.logs, name+".log") }

func (k *kubelet) process(name string) *controlplane.Process {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.running[name]
}

// waitStopped returns when a static Pod runs no more.
func (k *kubelet) waitStopped(name string) {
	for k.process(name) != nil {
		time.Sleep(poll)
	}
}

// follow keeps one static Pod as its manifest says.
func (k *kubelet) follow(ctx context.Context, t *testing.T, name string) {
	var now []byte
	for tick := time.NewTicker(poll); ; {
		select {
		case <-tick.C:
		case <-ctx.Done():
			tick.Stop()
			return
		}
		want, err := os.ReadFile(filepath.Join(k.manifests, name+".yaml"))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			t.Error(err)
			return
		}
		p := k.process(name)
		if p != nil {
			ended := false
			select {
			case <-p.Done():
				ended = true
			default:
			}
			if bytes.Equal(now, want) && !ended {
				continue
			}
			expect(t, p.Stop())
			p = nil
		}
		if len(want) > 0 {
			if p, err = k.start(name, want); err != nil {
				continue // half a file
			}
		}
		now = want
		k.mu.Lock()
		k.running[name] = p
		k.mu.Unlock()
	}
}

func (k *kubelet) start(name string, manifest []byte) (*controlplane.Process, error) {
	var pod corev1.Pod
	if err := yaml.UnmarshalStrict(manifest, &pod); err != nil {
		return nil, err
	}
	command := pod.Spec.Containers[0].Command
	return controlplane.StartProcess(name, k.log(name), filepath.Join(k.bin, command[0]), command[1:]...)
}

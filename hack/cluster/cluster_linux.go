package main

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"golang.org/x/sync/errgroup"
)

const (
	// controlPlane is the first one.
	controlPlane = "control-plane"
	// madeBy is what marks a cluster's directory.
	madeBy = "hack/cluster\n"
)

// cluster is everything below one directory and one cgroup.
type cluster struct {
	dir, bin string
	cgroup   string
	begin    time.Time
}

func openCluster(dir, bin string) (*cluster, error) {
	if os.Geteuid() != 0 {
		return nil, errors.New("needs root, for namespaces, mounts and cgroups: run it with sudo")
	}
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	bin, err = filepath.Abs(bin)
	if err != nil {
		return nil, err
	}
	// The cgroup is found again without the directory, should somebody have removed that.
	id := fmt.Sprintf("cluster-%x", sha256.Sum256([]byte(dir)))[:len("cluster-")+8]
	return &cluster{dir: dir, bin: bin, cgroup: id, begin: time.Now()}, nil
}

// say reports progress.
func (c *cluster) say(format string, args ...any) {
	fmt.Printf("%5.1fs  %s\n", time.Since(c.begin).Seconds(), fmt.Sprintf(format, args...))
}

func (c *cluster) kubeconfig() string { return filepath.Join(c.dir, "kubeconfig") }

type upOptions struct {
	controlPlanes, workers int
	config, patches        string
	apply, images          []string
	files                  map[string]string // each control plane's, by their paths there
	podNetwork             bool              // the router is to keep routes and CNI configurations
}

func (c *cluster) up(ctx context.Context, opts upOptions) error {
	if err := c.require(); err != nil {
		return err
	}
	if opts.controlPlanes < 1 {
		return fmt.Errorf("--control-planes=%d: a cluster has at least one", opts.controlPlanes)
	}
	if err := os.Mkdir(c.dir, 0o755); errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("%s exists: end that cluster first, with `cluster down --dir=%[1]s`", c.dir)
	} else if err != nil {
		return err
	}
	if err := os.WriteFile(c.marker(), []byte(madeBy), 0o644); err != nil {
		return err
	}
	if err := c.start(ctx, opts); err != nil {
		return fmt.Errorf("%w\nlogs are below %s; `cluster down --dir=%s` removes what was started", err, c.dir, c.dir)
	}
	c.say("up: export KUBECONFIG=%s", c.kubeconfig())
	return nil
}

func (c *cluster) start(ctx context.Context, opts upOptions) error {
	if err := errors.Join(c.keepImages(opts.images), c.keepControlPlaneFiles(opts)); err != nil {
		return err
	}
	port, err := c.startRouter(opts.podNetwork)
	if err != nil {
		return err
	}
	c.say("boot %s", controlPlane)
	m := c.machine(controlPlane)
	if err := m.create(ctx, true); err != nil {
		return err
	}
	c.say("kubeadm init")
	if err := m.kubeadmInit(ctx, opts); err != nil {
		return err
	}
	if err := c.writeKubeconfig(port); err != nil {
		return err
	}
	for _, path := range opts.apply {
		c.say("kubectl apply -f %s", path)
		apply := exec.CommandContext(ctx, filepath.Join(c.bin, "kubectl"), "--kubeconfig="+c.kubeconfig(), "apply", "-f", path)
		if output, err := apply.CombinedOutput(); err != nil {
			return fmt.Errorf("%w\n%s", err, output)
		}
	}
	names, err := c.joinAll(ctx, opts)
	if err != nil {
		return err
	}
	c.say("wait until the Nodes are ready")
	return c.waitReady(ctx, names)
}

// joinAll adds the other control planes one after the other, because each is a new member of etcd, and then the workers at once. It returns
// the names of all machines.
func (c *cluster) joinAll(ctx context.Context, opts upOptions) ([]string, error) {
	names := []string{controlPlane}
	for i := 2; i <= opts.controlPlanes; i++ {
		name := fmt.Sprintf("%s-%d", controlPlane, i)
		names = append(names, name)
		if err := c.join(ctx, name, joinOptions{controlPlane: true}); err != nil {
			return nil, err
		}
	}
	joins, joinCtx := errgroup.WithContext(ctx)
	for i := range opts.workers {
		name := fmt.Sprintf("worker-%d", i+1)
		names = append(names, name)
		joins.Go(func() error { return c.join(joinCtx, name, joinOptions{}) })
	}
	return names, joins.Wait()
}

// waitReady waits for Nodes that run Pods, which a Node without podCIDRs does not.
func (c *cluster) waitReady(ctx context.Context, names []string) error {
	config, err := clientcmd.BuildConfigFromFlags("", c.kubeconfig())
	if err != nil {
		return err
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	var waitFor string
	err = wait.PollUntilContextTimeout(ctx, 200*time.Millisecond, 3*time.Minute, true, func(ctx context.Context) (bool, error) {
		for _, name := range names {
			node, err := client.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
			if err != nil {
				waitFor = err.Error()
				return false, nil
			}
			ready := slices.IndexFunc(node.Status.Conditions, func(c corev1.NodeCondition) bool { return c.Type == corev1.NodeReady })
			if ready < 0 || node.Status.Conditions[ready].Status != corev1.ConditionTrue {
				waitFor = fmt.Sprintf("Node %s with podCIDRs %v is not ready", name, node.Spec.PodCIDRs)
				if ready >= 0 {
					waitFor += ": " + node.Status.Conditions[ready].Message
				}
				return false, nil
			}
		}
		return true, nil
	})
	if err != nil {
		return fmt.Errorf("%s: %w", waitFor, err)
	}
	return nil
}

// writeKubeconfig makes kubeadm's admin.conf one for the host.
func (c *cluster) writeKubeconfig(port int) error {
	config, err := clientcmd.LoadFromFile(c.machine(controlPlane).disk("etc/kubernetes/admin.conf"))
	if err != nil {
		return err
	}
	for _, cluster := range config.Clusters {
		cluster.Server = fmt.Sprintf("https://127.0.0.1:%d", port)
	}
	return clientcmd.WriteToFile(*config, c.kubeconfig())
}

// down needs nothing of what up has written but the marker, so that it also ends what is left of an up that was killed. The cgroup's
// name follows from the directory's, so its processes are the cluster's whether the directory is still there or not.
func (c *cluster) down(ctx context.Context) error {
	made, err := c.made()
	if err != nil {
		return err
	}
	if err := removeCgroup(ctx, c.cgroup); err != nil || !made {
		return err // What still runs keeps its disk.
	}
	// The marker goes last: what cannot be removed now can be with the next down.
	entries, err := os.ReadDir(c.dir)
	if err != nil {
		return err
	}
	for _, entry := range entries {
		if path := filepath.Join(c.dir, entry.Name()); path != c.marker() {
			if err := os.RemoveAll(path); err != nil {
				return err
			}
		}
	}
	return os.RemoveAll(c.dir)
}

// made reports whether there is a directory of a cluster. One that up has not made is an error: down runs as root, and --dir may be mistyped.
func (c *cluster) made() (bool, error) {
	info, err := os.Lstat(c.dir)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	content, err := os.ReadFile(c.marker())
	if err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, syscall.ENOTDIR) {
		return false, err
	}
	if !info.IsDir() || string(content) != madeBy {
		return false, fmt.Errorf("%s was not made by `cluster up`, so it is not removed: see that --dir names the directory of a cluster", c.dir)
	}
	return true, nil
}

// marker is the file without which a directory is not removed.
func (c *cluster) marker() string { return filepath.Join(c.dir, ".made-by") }

// require says what is missing before anything is started.
func (c *cluster) require() error {
	var missing []string
	for _, program := range []string{"bash", "haproxy", "ip", "losetup", "mount", "nsenter", "pivot_root", "runc", "unshare"} {
		if _, err := exec.LookPath(program); err != nil {
			missing = append(missing, program)
		}
	}
	if len(missing) > 0 {
		return fmt.Errorf("not installed: %s (Debian: apt-get install haproxy runc iproute2 mount util-linux)", strings.Join(missing, ", "))
	}
	programs := []string{"kubeadm", "kubelet", "kubectl", "node/containerd", "node/ctr", "node/pause"}
	for _, program := range slices.AppendSeq(programs, maps.Values(controlPlanePrograms)) {
		if _, err := os.Stat(filepath.Join(c.bin, program)); err != nil {
			return fmt.Errorf("%w; `make cluster-tools` builds it", err)
		}
	}
	if filesystems, err := os.ReadFile("/proc/filesystems"); err == nil && !strings.Contains(string(filesystems), "\toverlay\n") {
		return errors.New("this kernel has no overlay file system: load it with `modprobe overlay`")
	}
	return nil
}

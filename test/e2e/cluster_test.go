package e2e

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/google/go-cmp/cmp/cmpopts"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/multicidr/controller-manager/test/controlplane"
)

// cluster is one of hack/cluster's, used through its command as a person would.
type cluster struct {
	name      string
	root, dir string
	client    kubernetes.Interface
}

// newCluster is a cluster that is not started, but that ends with the test and must leave nothing behind.
func newCluster(t *testing.T, name string) *cluster {
	t.Helper()
	root, err := controlplane.ModuleRoot()
	if err != nil {
		t.Fatal(err)
	}
	c := &cluster{name: name, root: root, dir: filepath.Join(root, "bin", "e2e-"+name)}
	c.cluster(t, "down") // What an interrupted run may have left.
	before := lookAtHost(t, c.dir)
	t.Cleanup(func() {
		if t.Failed() {
			c.keepLogs(t)
		} else if len(cgroups(t, c.dir)) == 0 {
			t.Error("the cluster runs, but no cgroup of it was found: nobody would see that one is left")
		}
		c.cluster(t, "down")
		before.compare(t, c.dir)
	})
	return c
}

// start brings it up.
func (c *cluster) start(t *testing.T, args ...string) {
	t.Helper()
	c.cluster(t, c.up(args)...)
	var err error
	if c.client, err = c.connect(); err != nil {
		t.Fatal(err)
	}
}

// startUnserved brings it up where nobody gives Nodes podCIDRs yet, and returns when its manager leads. What it returns waits for the
// end of up, which comes when somebody has, so that all Nodes are ready.
func (c *cluster) startUnserved(t *testing.T, args ...string) (waitForUp func() error) {
	t.Helper()
	var up errgroup.Group
	up.Go(func() error {
		_, err := run(t.Context(), nil, c.bin("cluster"), append([]string{"--dir=" + c.dir}, c.up(args)...)...)
		return err
	})
	t.Cleanup(func() {
		if err := up.Wait(); err != nil { // It ended by itself, or with the test.
			t.Log(err)
		}
	})
	eventually(t, 2*time.Minute, "the API server answers, and a manager leads", func(ctx context.Context) (bool, string) {
		var err error
		if c.client, err = c.connect(); err != nil {
			return false, err.Error()
		}
		return c.leader(ctx, managerPod) != "", "no manager"
	})
	return up.Wait
}

func (c *cluster) up(args []string) []string {
	return append([]string{"up", "--image=example.com/e2e/pod:v1=" + c.bin("e2e-pod")}, args...)
}

// connect returns a client with a connection of its own.
func (c *cluster) connect() (kubernetes.Interface, error) {
	config, err := clientcmd.BuildConfigFromFlags("", c.kubeconfig())
	if err != nil {
		return nil, err
	}
	config.QPS = -1
	// Clients with the same dialer would share one connection, and with it one API server.
	config.Dial = (&net.Dialer{}).DialContext
	return kubernetes.NewForConfig(config)
}

func (c *cluster) bin(name string) string { return filepath.Join(c.root, "bin", name) }

func (c *cluster) kubeconfig() string { return filepath.Join(c.dir, "kubeconfig") }

// cluster runs the command of hack/cluster.
func (c *cluster) cluster(t *testing.T, args ...string) string {
	t.Helper()
	output, err := c.try(t.Context(), args...)
	if err != nil {
		t.Fatal(err)
	}
	return output
}

func (c *cluster) try(ctx context.Context, args ...string) (string, error) {
	return run(context.WithoutCancel(ctx), nil, c.bin("cluster"), append([]string{"--dir=" + c.dir}, args...)...)
}

// join adds workers, by name with their labels, at once.
func (c *cluster) join(t *testing.T, workers map[string]string) {
	t.Helper()
	var joins errgroup.Group
	for name, labels := range workers {
		joins.Go(func() error {
			_, err := c.try(t.Context(), "join", name, "--labels="+labels)
			return err
		})
	}
	if err := joins.Wait(); err != nil {
		t.Fatal(err)
	}
}

// importImage does on a control plane what docs/install/kubeadm.md says.
func (c *cluster) importImage(t *testing.T, machine, archive string) {
	t.Helper()
	content, err := os.ReadFile(archive)
	if err != nil {
		t.Fatal(err)
	}
	c.execInput(t, string(content), machine, "ctr", "--namespace=k8s.io", "images", "import", "-")
}

// exec runs a command on a machine.
func (c *cluster) exec(t *testing.T, machine string, command ...string) string {
	t.Helper()
	return c.execInput(t, "", machine, command...)
}

func (c *cluster) execInput(t *testing.T, input, machine string, command ...string) string {
	t.Helper()
	output, err := run(t.Context(), []byte(input), c.bin("cluster"), slices.Concat([]string{"--dir=" + c.dir, "exec", machine, "--"}, command)...)
	if err != nil {
		t.Fatal(err)
	}
	return output
}

func (c *cluster) kubectl(t *testing.T, args ...string) string {
	t.Helper()
	return c.kubectlInput(t, "", args...)
}

func (c *cluster) kubectlInput(t *testing.T, input string, args ...string) string {
	t.Helper()
	output, err := run(t.Context(), []byte(input), c.bin("kubectl"), append([]string{"--kubeconfig=" + c.kubeconfig()}, args...)...)
	if err != nil {
		t.Fatal(err)
	}
	return output
}

func (c *cluster) apply(t *testing.T, objects string) {
	t.Helper()
	c.kubectlInput(t, objects, "apply", "-f", "-")
}

// run returns what a program writes to its standard output; its error has the rest.
func run(ctx context.Context, input []byte, program string, args ...string) (string, error) {
	// Three control planes join one after the other: five minutes on two CPUs that others use as well.
	ctx, cancel := context.WithTimeout(ctx, 10*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, program, args...)
	var stdout, stderr bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(input), &stdout, &stderr
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("%s %s: %w\n%s%s", filepath.Base(program), strings.Join(args, " "), err, stdout.String(), stderr.String())
	}
	return stdout.String(), nil
}

// keepLogs copies what the machines have logged out of the directory that down removes.
func (c *cluster) keepLogs(t *testing.T) {
	logs := c.bin("e2e-logs/" + c.name)
	if err := os.RemoveAll(logs); err != nil {
		t.Error(err)
	}
	machines, err := filepath.Glob(filepath.Join(c.dir, "machines", "*"))
	if err != nil {
		t.Error(err)
	}
	for _, machine := range machines {
		to := filepath.Join(logs, filepath.Base(machine))
		if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
			t.Error(err)
		}
		// cp, because the logs of containers are symbolic links into a machine's file system.
		if _, err := run(context.Background(), nil, "cp", "--recursive", "--no-dereference", filepath.Join(machine, "disk/var/log"), to); err != nil {
			t.Error(err)
		}
	}
	t.Logf("logs are kept in %s", logs)
}

// eventually waits until check is content; otherwise it says what it has seen last.
func eventually(t *testing.T, bound time.Duration, what string, check func(ctx context.Context) (done bool, seen string)) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), bound)
	defer cancel()
	ticker := time.NewTicker(200 * time.Millisecond)
	defer ticker.Stop()
	for {
		done, seen := check(ctx)
		if done {
			return
		}
		select {
		case <-ctx.Done():
			t.Fatalf("not within %s: %s; seen: %s", bound, what, seen)
		case <-ticker.C:
		}
	}
}

// podCIDRs waits until each Node has its podCIDRs.
func (c *cluster) podCIDRs(t *testing.T, nodes ...string) map[string][]netip.Prefix {
	t.Helper()
	found := map[string][]netip.Prefix{}
	for _, name := range nodes {
		// After a takeover ours waits for a minute, --node-ipam-takeover-delay.
		eventually(t, 2*time.Minute, "Node "+name+" has podCIDRs", func(ctx context.Context) (bool, string) {
			node, err := c.client.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
			if err != nil {
				return false, err.Error()
			}
			found[name] = nil
			for _, cidr := range node.Spec.PodCIDRs {
				found[name] = append(found[name], netip.MustParsePrefix(cidr))
			}
			return len(found[name]) > 0, "none"
		})
	}
	return found
}

var comparePrefixes = cmpopts.EquateComparable(netip.Prefix{})

// checkBlock wants one podCIDR of that size from the range.
func (c *cluster) checkBlock(t *testing.T, node, in string, bits int) {
	t.Helper()
	got := c.podCIDRs(t, node)[node]
	if len(got) != 1 || got[0].Bits() != bits || !netip.MustParsePrefix(in).Overlaps(got[0]) {
		t.Errorf("podCIDRs of %s: %v; want one /%d from %s", node, got, bits, in)
	}
}

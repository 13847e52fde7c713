package integration

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/multicidr/controller-manager/test/controlplane"
)

// defect is a file of package nodeipam with a function that panics in the first three Controllers, perhaps in several workers of each.
const defect = `package nodeipam

import "sync"

var poisoned = struct {
	sync.Mutex
	controllers map[*Controller]bool
}{controllers: map[*Controller]bool{}}

func poison(c *Controller, name string) {
	poisoned.Lock()
	defer poisoned.Unlock()
	if name != "poison" || len(poisoned.controllers) == 3 && !poisoned.controllers[c] {
		return
	}
	poisoned.controllers[c] = true
	panic("poison")
}
`

// TestPanic runs the real binary with a defect built in: the work on one Node panics. The process goes on, with its lease and its other
// controllers, and our controller starts again until it gets through; then health and metrics say that all is well, and how often it was not.
func TestPanic(t *testing.T) {
	ctx := t.Context()
	c := sharedCluster(t)
	const (
		function = "func (c *Controller) syncNode(ctx context.Context, name string) error {\n"
		file     = "../../controllers/nodeipam/node.go"
	)
	source, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if strings.Count(string(source), function) != 1 {
		t.Fatalf("syncNode is not once in %s", file)
	}
	binary := buildWith(t, map[string]string{
		file:                                   strings.Replace(string(source), function, function+"\tpoison(c, name)\n", 1),
		"../../controllers/nodeipam/defect.go": defect,
	})
	if err := c.stopManager((*controlplane.Process).Stop); err != nil {
		t.Fatal(err)
	}
	manager, err := c.cp.StartManager(ctx, controlplane.ManagerOptions{
		Binary: binary, Args: []string{"--controllers=multi-cidr-node-ipam-controller,serviceaccount-controller", noTakeoverDelay},
	})
	if err != nil {
		t.Fatal(err)
	}
	c.manager = manager
	if err := manager.WaitLeading(ctx); err != nil {
		t.Fatal(err)
	}

	if err := createClusterCIDR(c, []string{"a", "10.0.0.0/16", "hb8"}); err != nil {
		t.Fatal(err)
	}
	for _, node := range []string{"before", "poison", "after"} {
		if err := createNode(c, []string{node}); err != nil {
			t.Fatal(err)
		}
	}
	if err := c.healthSays("the controller has panicked"); err != nil {
		t.Error(err)
	}
	// Another controller of the same process works in the meantime.
	namespace, err := c.kube.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "panic-"}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	err = eventually(patience, func(ctx context.Context) error {
		_, err := c.kube.CoreV1().ServiceAccounts(namespace.Name).Get(ctx, "default", metav1.GetOptions{})
		return err
	})
	if err != nil {
		t.Error(err)
	}

	for _, node := range []string{"before", "poison", "after"} {
		if _, err := c.waitServed(node, patience); err != nil {
			t.Error(err)
		}
	}
	if err := errors.Join(c.healthy(), c.overlaps(ctx)); err != nil {
		t.Error(err)
	}
	families, err := scrape(ctx, manager)
	if err != nil {
		t.Fatal(err)
	}
	if got := samplesOf(families)["panics_total{}"]; got != 3 {
		t.Errorf("panics_total is %v, want 3", got)
	}
}

// buildWith builds kube-controller-manager with other texts for some files of the tree.
func buildWith(t *testing.T, texts map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	replace := map[string]string{}
	for file, text := range texts {
		path, err := filepath.Abs(file)
		if err != nil {
			t.Fatal(err)
		}
		replace[path] = filepath.Join(dir, filepath.Base(file))
		if err := os.WriteFile(replace[path], []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	overlay, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		t.Fatal(err)
	}
	overlayFile, binary := filepath.Join(dir, "overlay.json"), filepath.Join(dir, "kube-controller-manager")
	if err := os.WriteFile(overlayFile, overlay, 0o600); err != nil {
		t.Fatal(err)
	}
	build := exec.CommandContext(t.Context(), "go", "build", "-overlay="+overlayFile, "-o", binary, "../../cmd/kube-controller-manager")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return binary
}

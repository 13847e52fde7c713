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

	"github.com/multicidr/controller-manager/test/controlplane"
)

// TestPanic runs the real binary with a defect built in: the work on one Node panics. The process ends, as after a panic of every other controller. The
// next one, without the defect, gives every Node podCIDRs, and no block twice.
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
		file: strings.Replace(string(source), function, function+"\tif name == \"poison\" {\n\t\tpanic(name)\n\t}\n", 1),
	})
	if err := c.stopManager((*controlplane.Process).Stop); err != nil {
		t.Fatal(err)
	}
	manager, err := c.cp.StartManager(ctx, controlplane.ManagerOptions{Name: "panics", Binary: binary, Args: ours})
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(manager.WaitLeading(ctx), createClusterCIDR(c, []string{"a", "10.0.0.0/16", "hb8"}), createNode(c, []string{"before"})); err != nil {
		t.Fatal(err)
	}
	if _, err := c.waitServed("before", patience); err != nil {
		t.Fatal(err)
	}
	if err := createNode(c, []string{"poison"}); err != nil {
		t.Fatal(err)
	}
	waiting, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if code, err := manager.Wait(waiting); err != nil || code != 2 {
		t.Errorf("ended with %d, %v, want the 2 of a panic", code, err)
	}
	if log, err := manager.Log(); err != nil || !strings.Contains(log, "poison") {
		t.Errorf("the log does not say why (%v):\n%s", err, log)
	}
	if err := errors.Join(c.startManager(ours...), createNode(c, []string{"after"})); err != nil {
		t.Fatal(err)
	}
	for _, node := range []string{"poison", "after"} {
		if _, err := c.waitServed(node, patience); err != nil {
			t.Error(err)
		}
	}
	if err := errors.Join(c.healthy(), c.overlaps(ctx)); err != nil {
		t.Error(err)
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

package integration

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/multicidr/controller-manager/test/controlplane"
)

// TestOneObjectPanics runs the real binary with defects built in: to compile one ClusterCIDR panics, and to read one Node. Those two are set aside,
// and what was allocated stays; everybody else is served.
func TestOneObjectPanics(t *testing.T) {
	ctx := t.Context()
	c := sharedCluster(t)
	binary := buildWith(t, map[string]string{
		"../../controllers/nodeipam/pool/pool.go": panicAfter(t, "../../controllers/nodeipam/pool/pool.go",
			"func compile(cc *networkingv1.ClusterCIDR, earlier *Pool) *Pool {\n", `cc.Name == "poison" && cc.Spec.Priority == 13`),
		"../../controllers/nodeipam/pool/read.go": panicAfter(t, "../../controllers/nodeipam/pool/read.go",
			"func PodCIDRsOf(node *v1.Node) (blocks []netip.Prefix, unreadable []string) {\n", `node.Labels["poison"] != ""`),
	})
	must(t, c.stopManager((*controlplane.Process).Stop))
	manager, err := c.cp.StartManager(ctx, controlplane.ManagerOptions{Name: "panics", Binary: binary, Args: ours})
	if err != nil {
		t.Fatal(err)
	}
	c.manager, c.managerArgs = manager, nil // so that it is replaced behind this test
	must(t, manager.WaitLeading(ctx))
	for _, step := range []struct {
		do   func(*cluster, []string) error
		args string
	}{
		{createClusterCIDR, "poison sel(p=x) 10.1.0.0/24 hb4"},
		{createClusterCIDR, "other 10.0.0.0/16 hb8"},
		{createNode, "a p=x"},
		{served, "a 10.1.0.0/28"},
		{createNode, "b"},
		{served, "b 10.0.0.0/24"},
		{set, "cc poison priority=13"},
		{condition, "poison Ready False Invalid it cannot be read, which is a defect of this controller"},
		{clusterCIDREvent, "poison Invalid it cannot be read"},
		{counts, "poison ipv4 total=16 allocated=1"}, // as before: a still belongs to it
		{label, "b poison=true"},
		{createNode, "c p=x"}, // The next one that selects it serves it.
		{served, "c 10.0.1.0/24"},
		{logSays, "it keeps what it held"},
		{set, "cc other disabled"},
		{createClusterCIDR, "late sel(p=y) 10.0.0.0/23 hb4"}, // in the addresses of b
		{createNode, "d p=y"},
		{waits, "d late is full"},
		{deleteObjects, "node c"},
		{served, "d 10.0.1.0/28"},
		{deleteObjects, "node b"},
		{createNodes, "17 e p=y"}, // more than without the block of b
	} {
		if err := step.do(c, strings.Fields(step.args)); err != nil {
			t.Fatalf("%s: %v", step.args, err)
		}
	}
	for i := range 17 {
		expect(t, c.isServed(fmt.Sprint("e", i+1)))
	}
	// Without the defect, the ClusterCIDR allocates behind what it had allocated.
	must(t, c.stopManager((*controlplane.Process).Stop), c.startManager(ours...), createNode(c, []string{"f", "p=x"}))
	expect(t, served(c, []string{"f", "10.1.0.16/28"}), c.healthy(), c.overlaps(ctx))
}

// panicAfter returns the text of a file with a panic in the first line of a function.
func panicAfter(t *testing.T, file, function, condition string) string {
	t.Helper()
	source, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if strings.Count(string(source), function) != 1 {
		t.Fatalf("%q is not once in %s", function, file)
	}
	return strings.Replace(string(source), function, function+"\tif "+condition+" {\n\t\tpanic(\"defect\")\n\t}\n", 1)
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
		must(t, os.WriteFile(replace[path], []byte(text), 0o600))
	}
	overlay, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		t.Fatal(err)
	}
	overlayFile, binary := filepath.Join(dir, "overlay.json"), filepath.Join(dir, "kube-controller-manager")
	must(t, os.WriteFile(overlayFile, overlay, 0o600))
	build := exec.CommandContext(t.Context(), "go", "build", "-overlay="+overlayFile, "-o", binary, "../../cmd/kube-controller-manager")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return binary
}

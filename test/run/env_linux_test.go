package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/multicidr/controller-manager/test/controlplane"
)

// TestEnv does what `make setup-test-env` and `make teardown-test-env` do: in between there is a cluster in which only the kind
// ClusterCIDR is new, and afterwards nothing.
func TestEnv(t *testing.T) {
	root, err := controlplane.ModuleRoot()
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(t.TempDir(), "env")
	script := func(what string) string {
		t.Helper()
		command := exec.Command(filepath.Join(root, "hack/test-env.sh"), what)
		command.Env = append(os.Environ(), "TEST_ENV_DIR="+dir)
		output, err := command.CombinedOutput()
		if err != nil {
			t.Errorf("%s: %v\n%s", what, err, output)
		}
		return string(output)
	}
	t.Cleanup(func() { script("down") })

	said := script("up")
	kubeconfig := regexp.MustCompile(`export KUBECONFIG=(.*)`).FindStringSubmatch(said)
	if kubeconfig == nil || !strings.Contains(said, "bin/node-ipam-controller --kubeconfig=") {
		t.Fatalf("up does not say how to use it:\n%s", said)
	}
	if again := script("up"); again != said {
		t.Errorf("up for the second time says\n%s\nwant the same again:\n%s", again, said)
	}
	output, err := exec.Command(filepath.Join(root, "bin/kubectl"), "--kubeconfig="+kubeconfig[1], "get", "clustercidrs,nodes").CombinedOutput()
	if err != nil || !strings.Contains(string(output), "No resources found") {
		t.Errorf("kubectl get clustercidrs,nodes: %v\n%s", err, output)
	}
	script("down")
	if _, err := os.Stat(dir); !os.IsNotExist(err) {
		t.Errorf("down leaves %s behind: %v", dir, err)
	}
}

package integration

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/multicidr/controller-manager/test/controlplane"
)

// TestConfig: flags from a file, and what is wrong in a file ends the program before it asks an API server.
func TestConfig(t *testing.T) {
	c := sharedCluster(t)
	file := func(t *testing.T, text string) string {
		t.Helper()
		path := filepath.Join(t.TempDir(), "file.yaml")
		must(t, os.WriteFile(path, []byte(text), 0o600))
		return "--config=" + path
	}
	t.Run("what is wrong in the file, of those in controllers/manager TestConfigFile", func(t *testing.T) {
		c.doesNotStart(t, controlplane.ManagerOptions{Name: "wrong-file", Args: append([]string{file(t, "v: 1\nclusterCIDRs: 10.244.0.0/16\n")}, ours...)},
			"line 2: clusterCIDRs: no flag has this key")
	})
	t.Run("the flags of the file count, and those of the command line win", func(t *testing.T) {
		// A list in the file, with which the manager would run nothing of ours, loses too.
		path := file(t, "allocateNodeCIDRs: true\nclusterCIDR: 10.200.0.0/16\nnodeCIDRMaskSize: 26\nnodeIPAMTakeoverDelay: 0s\ncontrollers: [ttl-controller]\n")
		expect(t, manage(c, []string{"restart", path, "--node-cidr-mask-size=27"}), createNode(c, []string{"n"}), served(c, []string{"n", "10.200.0.0/27"}))
	})
}

// doesNotStart wants a manager to end with 1 and to say something.
func (c *cluster) doesNotStart(t *testing.T, opts controlplane.ManagerOptions, says string) {
	t.Helper()
	m, err := c.cp.LaunchManager(opts)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if code, err := m.Wait(ctx); err != nil || code != 1 {
		t.Errorf("ended with %d, %v, want 1", code, err)
	}
	if log, err := m.Log(); err != nil || !strings.Contains(log, says) {
		t.Errorf("no %q in its log (%v):\n%s", says, err, log)
	}
}

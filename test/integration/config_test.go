package integration

import (
	"context"
	"errors"
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
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return "--config=" + path
	}
	for name, tc := range map[string]struct{ file, want string }{
		"an unknown key":          {"v: 1\nclusterCIDRs: 10.244.0.0/16\n", "line 2: clusterCIDRs: no flag has this key"},
		"an unknown feature gate": {"featureGates: {Nothing: true}\n", "unrecognized feature gate: Nothing"},
		"a wrong type":            {"allocateNodeCIDRs: 10\n", "line 1: allocateNodeCIDRs: invalid argument"},
		"a wrong value":           {"concurrentNodeCIDRSyncs: 0\n", "--concurrent-node-cidr-syncs must be greater than 0"},
	} {
		t.Run(name, func(t *testing.T) {
			m, err := c.cp.LaunchManager(controlplane.ManagerOptions{Name: strings.ReplaceAll(name, " ", "-"), Args: append([]string{file(t, tc.file)}, ours...)})
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			if code, err := m.Wait(ctx); err != nil || code != 1 {
				t.Errorf("ended with %d, %v, want 1", code, err)
			}
			if log, err := m.Log(); err != nil || !strings.Contains(log, tc.want) {
				t.Errorf("no %q in its log (%v):\n%s", tc.want, err, log)
			}
		})
	}
	t.Run("the flags of the file count, and those of the command line win", func(t *testing.T) {
		// A list in the file, with which the manager would run nothing of ours, loses too.
		path := file(t, "allocateNodeCIDRs: true\nclusterCIDR: 10.200.0.0/16\nnodeCIDRMaskSize: 26\nnodeIPAMTakeoverDelay: 0s\ncontrollers: [ttl-controller]\n")
		if err := errors.Join(manage(c, []string{"restart", path, "--node-cidr-mask-size=27"}), createNode(c, []string{"n"}), served(c, []string{"n", "10.200.0.0/27"})); err != nil {
			t.Error(err)
		}
	})
}

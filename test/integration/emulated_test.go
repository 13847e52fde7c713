package integration

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/multicidr/controller-manager/test/controlplane"
)

// TestEmulatedVersions runs the manager, and the API server, as older versions of themselves. That changes feature gates of client-go, and with
// AtomicFIFO off no cache tells how new it is. The controller starts all the same, also after a restart, and gives no block twice.
func TestEmulatedVersions(t *testing.T) {
	for _, apiServer := range []string{"1.37", "1.36", "1.35", "1.34"} {
		t.Run("API server as of "+apiServer, func(t *testing.T) {
			c := freshCluster(t, controlplane.Options{APIServerArgs: []string{"--emulated-version=" + apiServer}}, ours...)
			must(t, createClusterCIDR(c, []string{"a", "10.0.0.0/16", "hb8"}))
			next := 0
			for _, flags := range [][]string{
				{"--emulated-version=1.36"},
				{"--emulated-version=1.35"},
				{"--emulated-version=1.34"},
				// With what needs it in upstream's controllers.
				{"--emulated-version=1.36", "--feature-gates=AtomicFIFO=false,UnlockWhileProcessingFIFO=false,WatchListClient=false,StaleControllerConsistencyDaemonSet=false," +
					"StaleControllerConsistencyJob=false,StaleControllerConsistencyReplicaSet=false,StaleControllerConsistencyStatefulSet=false"},
			} {
				must(t, c.stopManager((*controlplane.Process).Stop))
				before, after := fmt.Sprintf("n%d", next), fmt.Sprintf("n%d", next+1)
				must(t, createNode(c, []string{before}))
				if err := c.startManager(slices.Concat(ours, flags)...); err != nil {
					t.Fatalf("%v: %v", flags, err)
				}
				err := errors.Join(createNode(c, []string{after}), c.healthy())
				for _, node := range []string{before, after} {
					_, servedErr := c.waitServed(node, patience)
					err = errors.Join(err, servedErr)
				}
				next += 2
				if err = errors.Join(err, c.overlaps(t.Context())); err != nil {
					t.Fatalf("%v: %v", flags, err)
				}
			}
		})
	}
}

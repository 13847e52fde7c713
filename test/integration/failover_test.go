package integration

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/util/workqueue"

	"github.com/multicidr/controller-manager/test/controlplane"
)

const joining = 200

// joinAround creates Nodes and in the middle of it does something that the Nodes' kubelets feel, too: they try until they are
// registered. In the end every Node is served, nobody overlaps, and no block is held for nobody.
func (c *cluster) joinAround(t *testing.T, disaster func() error) {
	t.Helper()
	must(t, createClusterCIDR(c, []string{"a", "10.0.0.0/16", "fd00::/112", "hb8"}))
	ctx := context.Background()
	errs := make([]error, joining)
	workqueue.ParallelizeUntil(ctx, 8, joining, func(i int) {
		errs[i] = eventually(patience, func(context.Context) error {
			if err := createNode(c, []string{fmt.Sprint("n", i)}); err != nil && !apierrors.IsAlreadyExists(err) {
				return err
			}
			return nil
		})
		if i == joining/2 {
			errs[i] = errors.Join(errs[i], disaster())
		}
	})
	must(t, errs...)
	for i := range joining {
		// After an outage client-go opens a watch again within a minute.
		if _, err := c.waitServed(fmt.Sprint("n", i), time.Minute+patience); err != nil {
			t.Fatal(err)
		}
	}
	expect(t, c.overlaps(ctx))
	allocated := fmt.Sprintf("allocated=%d", joining)
	for _, family := range []string{"ipv4", "ipv6"} {
		expect(t, counts(c, []string{"a", family, "total=256", allocated, "unavailable=0", fmt.Sprintf("free=%d", 256-joining)}))
	}
}

// TestLeaderDiesWhileNodesJoin has a second manager that waits for the lease, and takes over when the first one is killed.
func TestLeaderDiesWhileNodesJoin(t *testing.T) {
	c := sharedCluster(t)
	// Shorter than the defaults, so that the lease runs out in reasonable time.
	election := []string{"--leader-elect-lease-duration=8s", "--leader-elect-renew-deadline=6s", "--leader-elect-retry-period=1s"}
	must(t, manage(c, append([]string{"restart"}, election...)))
	standby := c.start(t, controlplane.ManagerOptions{Name: "standby", Args: append(election, ours...)})

	c.joinAround(t, func() error { return manage(c, []string{"kill"}) })

	expect(t, standby.WaitLeading(t.Context()))
}

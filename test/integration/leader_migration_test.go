package integration

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/multicidr/controller-manager/test/controlplane"
)

// TestLeaderMigration moves the allocation from a kube-controller-manager to a cloud-controller-manager and back, by the leader migration of
// Kubernetes and as docs/operators/cloud-controller-manager.md says, while Nodes join. Nobody has to stop anything first: the Lease of the
// migration says who allocates. At no time do two Nodes share addresses, and all are served in the end, by each of them.
func TestLeaderMigration(t *testing.T) {
	// The stock manager v1.37.1 ends as soon as it holds both leases (staging-patches/0002), ours does not, with the in-tree allocator in it.
	for name, controllers := range map[string]string{"from the in-tree allocator": "node-ipam-controller", "from ours": "multi-cidr-node-ipam-controller"} {
		t.Run(name, func(t *testing.T) {
			ctx := t.Context()
			c := freshCluster(t, controlplane.Options{APIServerArgs: []string{"--request-timeout=5s"}}, ours...)
			if err := errors.Join(c.stopManager((*controlplane.Process).Stop), c.setLease(ctx, kcmLease, noLease), c.cp.Apply(ctx, "../../examples/cloud-controller-manager/leader-migration-rbac.yaml")); err != nil {
				t.Fatal(err)
			}
			config, err := filepath.Abs("../../examples/cloud-controller-manager/leader-migration.yaml")
			if err != nil {
				t.Fatal(err)
			}
			migrating := []string{"--enable-leader-migration", "--leader-migration-config=" + config}
			allocating := slices.Concat([]string{"--allocate-node-cidrs", "--cluster-cidr=10.0.0.0/12", "--node-cidr-mask-size=24"}, shortLease)
			// At least the API server's --request-timeout.
			const delay = "--node-ipam-takeover-delay=5s"
			start := func(opts controlplane.ManagerOptions, args ...string) *controlplane.Manager {
				t.Helper()
				opts.Args = slices.Concat(allocating, args)
				m, err := c.cp.StartManager(ctx, opts)
				if err != nil {
					t.Fatal(err)
				}
				return m
			}
			kcm := func(name string) *controlplane.Manager {
				return start(controlplane.ManagerOptions{Name: name}, append(slices.Clone(migrating), "--controllers="+controllers, delay)...)
			}
			ccm := func() *controlplane.Manager {
				return start(controlplane.ManagerOptions{Name: "cloud", Cloud: true}, append(slices.Clone(migrating), "--controllers=multi-cidr-node-ipam-controller", delay)...)
			}
			joining := c.join(t)

			before := kcm("before")
			joining.untilServed(10)
			cloud := ccm()
			joining.untilServed(10) // while both run
			if text, err := cloud.Log(); err != nil || strings.Contains(text, `"Starting controller" controller="multi-cidr-node-ipam-controller"`) {
				t.Errorf("two allocate (%v):\n%s", err, text)
			}
			if err := before.Kill(); err != nil { // The writes of a manager that is stopped might all have arrived.
				t.Fatal(err)
			}
			joining.untilServed(10)
			after := kcm("after")
			joining.untilServed(10)
			if err := cloud.Kill(); err != nil {
				t.Fatal(err)
			}
			joining.untilServed(10)
			joining.end()
			if err := c.overlaps(ctx); err != nil {
				t.Error(err)
			}
			if err := after.Stop(); err != nil {
				t.Error(err)
			}
		})
	}
}

// stream creates Nodes all the time, and looks all the time that none share addresses.
type stream struct {
	t    *testing.T
	c    *cluster
	stop context.CancelFunc
	wg   sync.WaitGroup
	mu   sync.Mutex
	n    int
	errs []error
}

func (c *cluster) join(t *testing.T) *stream {
	ctx, stop := context.WithCancel(t.Context())
	j := &stream{t: t, c: c, stop: stop}
	note := func(err error) {
		if err != nil && ctx.Err() == nil {
			j.mu.Lock()
			j.errs = append(j.errs, err)
			j.mu.Unlock()
		}
	}
	j.wg.Go(func() {
		for ctx.Err() == nil {
			if err := createNode(c, []string{fmt.Sprintf("joins-%d", j.n)}); err != nil && !apierrors.IsAlreadyExists(err) {
				note(err)
			}
			j.mu.Lock()
			j.n++
			j.mu.Unlock()
			select {
			case <-ctx.Done():
			case <-time.After(200 * time.Millisecond): // the pace
			}
		}
	})
	j.wg.Go(func() {
		for ctx.Err() == nil {
			note(c.overlaps(ctx))
			select {
			case <-ctx.Done():
			case <-time.After(time.Second):
			}
		}
	})
	t.Cleanup(func() { stop(); j.wg.Wait() })
	return j
}

// untilServed waits until some more Nodes have been created after this call, and all so far are served.
func (j *stream) untilServed(more int) {
	j.t.Helper()
	j.mu.Lock()
	want := j.n + more
	j.mu.Unlock()
	for i := range want {
		if _, err := j.c.waitServed(fmt.Sprintf("joins-%d", i), 2*patience); err != nil {
			j.t.Fatal(err)
		}
	}
}

// end ends it, and says what went wrong.
func (j *stream) end() {
	j.stop()
	j.wg.Wait()
	if err := errors.Join(j.errs...); err != nil {
		j.t.Error(err)
	}
}

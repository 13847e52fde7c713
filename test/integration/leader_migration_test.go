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
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	networkingv1 "github.com/multicidr/controller-manager/apis/networking/v1"
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
			c, start := migrating(t)
			kcm := func(name string) *controlplane.Manager {
				return start(controlplane.ManagerOptions{Name: name}, "--controllers="+controllers)
			}
			ccm := func() *controlplane.Manager {
				return start(controlplane.ManagerOptions{Name: "cloud", Cloud: true}, allocates)
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

// allocates enables the controller, with the delay after a takeover.
const allocates = "--controllers=multi-cidr-node-ipam-controller"

// migrating starts a control plane for a leader migration. The function that it returns starts a manager that takes part.
func migrating(t *testing.T) (*cluster, func(controlplane.ManagerOptions, ...string) *controlplane.Manager) {
	t.Helper()
	c := freshCluster(t, controlplane.Options{APIServerArgs: []string{"--request-timeout=5s"}}, ours...)
	if err := errors.Join(c.stopManager((*controlplane.Process).Stop), c.setLease(t.Context(), kcmLease, noLease), c.cp.Apply(t.Context(), "../../examples/cloud-controller-manager/leader-migration-rbac.yaml")); err != nil {
		t.Fatal(err)
	}
	config, err := filepath.Abs("../../examples/cloud-controller-manager/leader-migration.yaml")
	if err != nil {
		t.Fatal(err)
	}
	common := slices.Concat([]string{
		"--allocate-node-cidrs", "--cluster-cidr=10.0.0.0/12", "--node-cidr-mask-size=24", "--enable-leader-migration", "--leader-migration-config=" + config,
		"--node-ipam-takeover-delay=5s", // at least the API server's --request-timeout
	}, shortLease)
	return c, func(opts controlplane.ManagerOptions, args ...string) *controlplane.Manager {
		t.Helper()
		opts.Args = slices.Concat(common, args)
		m, err := c.cp.StartManager(t.Context(), opts)
		if err != nil {
			t.Fatal(err)
		}
		return m
	}
}

// TestPausedLeaderMigration pauses a cloud-controller-manager until a kube-controller-manager has taken the Lease of the migration. Nobody has
// taken the Lease of the controller itself, and the program's elector goes on for some time before it gives up: until then the controller must
// not allocate.
func TestPausedLeaderMigration(t *testing.T) {
	c, start := migrating(t)
	served := func(name string) string {
		t.Helper()
		if err := createNode(c, []string{name}); err != nil {
			t.Fatal(err)
		}
		node, err := c.waitServed(name, 2*patience)
		if err != nil {
			t.Fatal(err)
		}
		return node.Annotations[networkingv1.AnnotationLeaseHolder]
	}
	cloud := start(controlplane.ManagerOptions{Name: "cloud", Cloud: true}, allocates)
	before := served("before")
	start(controlplane.ManagerOptions{Name: "kcm"}, allocates)
	if err := cloud.Pause(); err != nil {
		t.Fatal(err)
	}
	served("meanwhile")
	if err := cloud.Continue(); err != nil {
		t.Fatal(err)
	}
	for i := 0; ; i++ {
		if err := createNodes(c, []string{"48", fmt.Sprintf("after-%d-", i)}); err != nil {
			t.Fatal(err)
		}
		select {
		case <-cloud.Done():
		default:
			continue
		}
		break
	}
	served("last")
	nodes, err := c.kube.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, node := range nodes.Items {
		if node.Name != "before" && node.Annotations[networkingv1.AnnotationLeaseHolder] == before {
			t.Errorf("%s has %v from the former leader", node.Name, node.Spec.PodCIDRs)
		}
	}
	if err := c.overlaps(t.Context()); err != nil {
		t.Error(err)
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

package nodeipam

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	applyv1 "github.com/multicidr/controller-manager/apis/generated/applyconfiguration/networking/v1"
	clustercidrlisters "github.com/multicidr/controller-manager/apis/generated/listers/networking/v1"
	networkingv1 "github.com/multicidr/controller-manager/apis/networking/v1"
	"github.com/multicidr/controller-manager/controllers/nodeipam/allocator"
	"github.com/multicidr/controller-manager/controllers/nodeipam/clustercidr"
	"github.com/multicidr/controller-manager/controllers/nodeipam/health"
	. "github.com/multicidr/controller-manager/controllers/nodeipam/internal/objects"
	"github.com/multicidr/controller-manager/controllers/nodeipam/internal/testapi"
	"github.com/multicidr/controller-manager/controllers/nodeipam/requests"
	"github.com/multicidr/controller-manager/controllers/queues"
)

// refusing is an API server that takes no write of ClusterCIDRs while err is set.
type refusing struct {
	requests.API
	err   error
	tried []time.Time
}

func (r *refusing) write() error {
	r.tried = append(r.tried, time.Now())
	return r.err
}

func (r *refusing) PatchClusterCIDR(context.Context, string, []byte) error { return r.write() }

func (r *refusing) ApplyStatus(_ context.Context, patch *applyv1.ClusterCIDRApplyConfiguration) (networkingv1.ClusterCIDRStatus, error) {
	return testapi.Applied(patch), r.write()
}

// controllerOf makes a controller that has one ClusterCIDR.
func controllerOf(t *testing.T, api requests.API, cc *networkingv1.ClusterCIDR) *Controller {
	t.Helper()
	clusterCIDRs := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{})
	if err := clusterCIDRs.Add(cc); err != nil {
		t.Fatal(err)
	}
	c := newController(Config{}, parts{api: api, now: time.Now, clusterCIDRs: clustercidrlisters.NewClusterCIDRLister(clusterCIDRs), newQueue: newQueue})
	for _, l := range c.lines() {
		t.Cleanup(l.queue.ShutDown)
	}
	c.with(func(b *allocator.State) { b.SetPool(clustercidr.Compile(cc)) })
	c.health.WaitFor(health.Problem{})
	return c
}

// A status that cannot be written is tried ever more rarely, and people are told for all that time, also while it is put off.
func TestStatusThatIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := &refusing{err: apierrors.NewForbidden(networkingv1.SchemeGroupVersion.WithResource("clustercidrs").GroupResource(), "a", errors.New("no"))}
		c := controllerOf(t, api, ClusterCIDR("a", Spec4("10.0.0.0/16", 8, nil)))
		ctx := klog.NewContext(t.Context(), logr.Discard())
		const tries = 12
		for len(api.tried) < tries {
			queues.WorkOne(ctx, c.statusQueue, c.noting("status of ClusterCIDR", c.syncStatus))
			if c.health.Check(nil) == nil {
				t.Fatalf("after %d tries the health check says that all is well", len(api.tried))
			}
		}
		var pauses []time.Duration
		for i := range tries - 1 {
			pauses = append(pauses, api.tried[i+1].Sub(api.tried[i]))
		}
		s, ms := time.Second, time.Millisecond
		if diff := cmp.Diff([]time.Duration{s, s, s, s, s, s, s, 1280 * ms, 2560 * ms, 5120 * ms, 10 * s}, pauses); diff != "" {
			t.Errorf("pauses between tries (-want +got):\n%s", diff)
		}
		api.err = nil
		for len(api.tried) == tries {
			queues.WorkOne(ctx, c.statusQueue, c.noting("status of ClusterCIDR", c.syncStatus))
		}
		if err := c.health.Check(nil); err != nil {
			t.Errorf("once it is written: %v", err)
		}
	})
}

// An API server whose CRD has no status answers as if the ClusterCIDR were gone.
func TestStatusThatTheCRDLacks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := &refusing{err: apierrors.NewNotFound(networkingv1.SchemeGroupVersion.WithResource("clustercidrs").GroupResource(), "a")}
		c := controllerOf(t, api, ClusterCIDR("a", Spec4("10.0.0.0/16", 8, nil)))
		ctx := klog.NewContext(t.Context(), logr.Discard())
		for len(api.tried) < 5 {
			queues.WorkOne(ctx, c.statusQueue, c.noting("status of ClusterCIDR", c.syncStatus))
		}
		if err := c.health.Check(nil); err == nil || !strings.Contains(err.Error(), health.CRDOfAnotherVersion) {
			t.Errorf("the health check says %v, and nothing of the CRD", err)
		}
	})
}

// Nodes that wait for a ClusterCIDR hear why its finalizer cannot be added, and not again because an error names another port.
func TestFinalizerThatIsRefused(t *testing.T) {
	api := &refusing{}
	c := controllerOf(t, api, ClusterCIDR("a", Spec4("10.0.0.0/16", 8, nil), NoFinalizer))
	c.with(func(b *allocator.State) { b.Reserve(Node("n")) })
	forbidden := func(text string) error {
		return apierrors.NewForbidden(networkingv1.SchemeGroupVersion.WithResource("clustercidrs").GroupResource(), "a", errors.New(text))
	}
	const (
		silent  = "its finalizer cannot be added: the API server does not answer in time: look at the network, at its load, at etcd and at admission webhooks (patch finalizers of ClusterCIDR a: reset, port "
		forbids = "its finalizer cannot be added: the API server forbids it: " + health.ApplyRBAC + ` (patch finalizers of ClusterCIDR a: clustercidrs.networking.x-k8s.io "a" is forbidden: request `
	)
	for _, step := range []struct {
		err    error
		want   string // what is said of it
		called int    // Nodes
	}{
		{errors.New("reset, port 1"), silent + "1)", 1},
		{errors.New("reset, port 2"), silent + "1)", 0},
		{forbidden("request 3"), forbids + "3)", 1},
		{forbidden("request 4"), forbids + "3)", 0},
		{errors.New("reset, port 5"), silent + "5)", 1},
	} {
		api.err = step.err
		if err := c.syncClusterCIDR(t.Context(), "a"); err == nil {
			t.Fatalf("%v: no error, so it is not tried again", step.err)
		}
		if p, _ := c.state.Pool("a"); p.Problem != step.want {
			t.Errorf("%v: it says %q, want %q", step.err, p.Problem, step.want)
		}
		if got := c.nodeQueue.Len(); got != step.called {
			t.Errorf("%v: %d Nodes are called, want %d", step.err, got, step.called)
		}
		for range c.nodeQueue.Len() {
			name, _ := c.nodeQueue.Get()
			c.nodeQueue.Done(name)
		}
	}
}

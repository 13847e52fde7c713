package nodeipam

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apimachinery/pkg/watch"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	corelisters "k8s.io/client-go/listers/core/v1"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/cache"
	"k8s.io/component-base/metrics/legacyregistry"
	"k8s.io/klog/v2/ktesting"

	nodemetrics "github.com/multicidr/controller-manager/controllers/nodeipam/metrics"

	versionedfake "github.com/multicidr/controller-manager/apis/generated/clientset/versioned/fake"
	networkingv1 "github.com/multicidr/controller-manager/apis/networking/v1"
	"github.com/multicidr/controller-manager/controllers/nodeipam/allocator"
	"github.com/multicidr/controller-manager/controllers/nodeipam/clustercidr"
	"github.com/multicidr/controller-manager/controllers/nodeipam/health"
	. "github.com/multicidr/controller-manager/controllers/nodeipam/internal/objects"
	"github.com/multicidr/controller-manager/controllers/nodeipam/internal/testapi"
	"github.com/multicidr/controller-manager/controllers/writes"
)

// fakes are a Config's clients and informers. Fakes have no resource versions, so a Controller with them waits for fresh caches for ever.
func fakes(t *testing.T, fence writes.Fence) (cfg Config, client *fake.Clientset, factory informers.SharedInformerFactory) {
	// One of the others holds up everybody who reports errors in quick succession, by a clock that is not synctest's.
	handlers := utilruntime.ErrorHandlers
	utilruntime.ErrorHandlers = handlers[:1]
	t.Cleanup(func() { utilruntime.ErrorHandlers = handlers })
	client = fake.NewClientset()
	factory = informers.NewSharedInformerFactory(client, 0)
	clusterCIDRs := networkingv1.SchemeGroupVersion.WithResource("clustercidrs")
	return Config{
		Client: client, ClusterCIDRClient: versionedfake.NewClientset(),
		Dynamic: dynamicfake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), map[schema.GroupVersionResource]string{clusterCIDRs: "ClusterCIDRList"}),
		Nodes:   factory.Core().V1().Nodes(), Workers: 3, Fence: fence,
	}, client, factory
}

// ready is what the metric says; -1 if there is none.
func ready(t *testing.T) float64 {
	t.Helper()
	return metricValue(t, "node_ipam_controller_ready")
}

func metricValue(t *testing.T, name string) float64 {
	t.Helper()
	families, err := legacyregistry.DefaultGatherer.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == name {
			return f.Metric[0].GetGauge().GetValue() + f.Metric[0].GetCounter().GetValue()
		}
	}
	return -1
}

// An informer may sleep for a minute after the API server has refused its list. Run does not wait for that.
func TestRunEndsBeforeItsInformers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, ctx := ktesting.NewTestContext(t)
		ctx, cancel := context.WithCancel(ctx)
		cfg, _, factory := fakes(t, nil)
		asleep := make(chan struct{})
		cfg.Dynamic.(*dynamicfake.FakeDynamicClient).PrependWatchReactor("clustercidrs", func(clienttesting.Action) (bool, watch.Interface, error) {
			<-asleep
			return true, nil, errors.New("awake")
		})
		c, err := New(cfg)
		if err != nil {
			t.Fatal(err)
		}
		factory.Start(ctx.Done())
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			c.Run(ctx)
		}()
		synctest.Wait()
		cancel()
		<-ended // or nothing moves any more, and the bubble says so
		close(asleep)
		synctest.Wait() // while fakes still holds
	})
}

// TestAnotherOneAfterAPanic lets a Controller panic, and runs another one on the same informers. Nothing of the first one is left: no
// goroutine, which synctest would find, no event handler, nothing in a queue. The metrics go on.
func TestAnotherOneAfterAPanic(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, ctx := ktesting.NewTestContext(t)
		ctx, cancel := context.WithCancel(ctx)
		cfg, client, factory := fakes(t, nil)
		run := func() (c *Controller, ended chan struct{}) {
			c, err := New(cfg)
			if err != nil {
				t.Fatal(err)
			}
			factory.Start(ctx.Done())
			ended = make(chan struct{})
			go func() {
				defer close(ended)
				c.Run(ctx)
			}()
			synctest.Wait()
			return c, ended
		}
		create := func(name string) {
			if _, err := client.CoreV1().Nodes().Create(ctx, Node(name), metav1.CreateOptions{}); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
		}
		knows := func(c *Controller, name string) bool {
			ok := c.firstSeen.Waiting(name)
			return ok
		}

		first, ended := run()
		before := metricValue(t, "node_ipam_controller_panics_total")
		handlers := len(first.stopHearing)
		for i, stop := range first.stopHearing {
			first.stopHearing[i] = func() error { handlers--; return stop() }
		}
		create("a")
		first.nodeQueue.Add("a")
		if !knows(first, "a") || first.Err() != nil {
			t.Fatalf("the first one does not hear of Nodes, or has ended: %v", first.Err())
		}
		first.safely(func() { panic("a nil map") })
		<-ended
		create("b")
		if knows(first, "b") {
			t.Error("the first one has ended and hears of Nodes")
		}
		if handlers > 0 {
			t.Errorf("%d event handlers are left", handlers)
		}
		for _, l := range first.lines() {
			if n := l.queue.Len(); n > 0 {
				t.Errorf("%d names are left in a queue, which its metric goes on to count", n)
			}
		}
		if diff := cmp.Diff("panic: a nil map", first.Err().Error()); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
		if got := metricValue(t, "node_ipam_controller_panics_total") - before; got != 1 {
			t.Errorf("%v panics are counted", got)
		}
		if got := ready(t); got != 0 {
			t.Errorf("after a panic ready is %v", got)
		}

		second, ended := run()
		if !knows(second, "a") || !knows(second, "b") {
			t.Error("the second one does not know the Nodes that were there before it")
		}
		if got := ready(t); got != 0 {
			t.Errorf("while the second one starts ready is %v", got)
		}
		if err := second.health.Check(nil); err == nil || strings.Contains(err.Error(), "panic") {
			t.Errorf("the second one has not panicked and says %v", err)
		}
		cancel()
		<-ended
		if got := ready(t); got != -1 {
			t.Errorf("nobody runs, and ready is %v", got)
		}
		factory.Shutdown()
	})
}

// nodesThatPanic is a lister with a Node that whoever looks at it panics over.
type nodesThatPanic struct{ corelisters.NodeLister }

func (l nodesThatPanic) Get(name string) (*v1.Node, error) {
	if name == "poison" {
		panic("poison")
	}
	return l.NodeLister.Get(name)
}

// A panic with the state in hand leaves it half changed, perhaps. Nobody decides anything by it any more, nobody waits for it for ever, and
// those who show it say so.
func TestNobodyUsesATornBook(t *testing.T) {
	nodes := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{})
	s := &testapi.Server{Gate: &testapi.Gate{}}
	c := newController(Config{}, parts{api: s, now: time.Now, nodes: nodesThatPanic{corelisters.NewNodeLister(nodes)}, newQueue: newQueue})
	for _, l := range c.lines() {
		t.Cleanup(l.queue.ShutDown)
	}
	defer nodemetrics.Show(shown{c})()
	c.health.WaitFor(health.Problem{})
	c.with(func(b *allocator.State) {
		b.SetPool(clustercidr.Compile(ClusterCIDR("a", Spec4("10.0.0.0/16", 8, nil))))
		c.filled.Store(true)
	})
	if err := nodes.Add(Node("n")); err != nil {
		t.Fatal(err)
	}
	debugPage := func() int {
		w := httptest.NewRecorder()
		c.DebuggingHandler().ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/", nil))
		return w.Code
	}
	if code := debugPage(); code != http.StatusOK || ready(t) != 1 || metricValue(t, "node_ipam_controller_nodes_holding_blocks") != 0 {
		t.Fatalf("the debug page answers %d, ready is %v", code, ready(t))
	}

	// The lock is free again before the panic is noticed further up: another worker may have it in between.
	func() {
		defer func() { _ = recover() }()
		c.heardOfNode("poison", nil, Node("poison"))
	}()
	if c.Err() != nil {
		t.Fatal("the panic has been noticed already")
	}
	if code := debugPage(); code != http.StatusServiceUnavailable {
		t.Errorf("the debug page answers %d", code)
	}
	if got := metricValue(t, "node_ipam_controller_nodes_holding_blocks"); got != -1 {
		t.Errorf("the metrics show a book that may be half changed: %v", got)
	}
	c.safely(func() {
		err := c.syncNode(t.Context(), "n")
		t.Errorf("a Node was served from a book that may be half changed: %v", err)
	})
	if len(s.Arrived) > 0 {
		t.Errorf("written: %v", s.Arrived)
	}
	if c.Err() == nil {
		t.Error("a worker that cannot go on does not end the controller")
	}
	c.safely(func() { t.Error("it goes on after a panic") })
	// What was first, and not what follows from it, is the reason.
	c.health.Breaks("poison")
	if diff := cmp.Diff("panic: poison", c.Err().Error()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if got := ready(t); got != 0 {
		t.Errorf("after a panic ready is %v", got)
	}
}

// unansweredUntil is a Fence with a write that may be carried out until then.
type unansweredUntil struct {
	testapi.Gate
	at time.Time
}

func (u *unansweredUntil) Unanswered() time.Duration { return max(0, time.Until(u.at)) }

// TestStartWaitsForWritesWithoutAnswer: who starts in the place of another one reads nothing before what that one has written, and had no
// answer to, cannot be carried out any more.
func TestStartWaitsForWritesWithoutAnswer(t *testing.T) {
	for name, wait := range map[string]time.Duration{"all were answered": 0, "one was not": 9 * time.Second} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				_, ctx := ktesting.NewTestContext(t)
				ctx, cancel := context.WithCancel(ctx)
				began := time.Now()
				fence := &unansweredUntil{at: began.Add(wait)}
				cfg, client, _ := fakes(t, fence)
				cfg.NodesAsOf = "1" // from before: it must not be used if there was something to wait for
				c, err := New(cfg)
				if err != nil {
					t.Fatal(err)
				}
				read := make(chan time.Time, 100)
				client.PrependReactor("list", "nodes", func(clienttesting.Action) (bool, runtime.Object, error) {
					read <- time.Now()
					return false, nil, nil
				})
				ended := make(chan struct{})
				go func() {
					defer close(ended)
					c.Run(ctx)
				}()
				synctest.Wait()
				if says := c.health.Check(nil).Error(); strings.Contains(says, "writes from before") != (wait > 0) {
					t.Errorf("health says %q", says)
				}
				if wait > 0 {
					select {
					case at := <-read:
						if at.Sub(began) < wait {
							t.Errorf("Nodes were read after %v, and a write may have been carried out for %v", at.Sub(began), wait)
						}
					case <-time.After(time.Hour):
						t.Error("it goes by what was read before")
					}
				} else if c.nodesAsOf != "1" || len(read) > 0 {
					t.Errorf("Nodes were read again, though there was nothing to wait for: %d times, as of %q", len(read), c.nodesAsOf)
				}
				cancel()
				<-ended
			})
		})
	}
}

package nodeipam

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/labels"
	coreinformers "k8s.io/client-go/informers/core/v1"
	networkinginformers "k8s.io/client-go/informers/networking/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/flowcontrol"
	"k8s.io/controller-manager/pkg/healthz"
	"k8s.io/klog/v2"

	utilruntime "k8s.io/apimachinery/pkg/util/runtime"

	"github.com/multicidr/controller-manager/apis/generated/clientset/versioned"
	"github.com/multicidr/controller-manager/apis/generated/informers/externalversions"
	networkingv1 "github.com/multicidr/controller-manager/apis/networking/v1"
	"github.com/multicidr/controller-manager/controllers/events"
	"github.com/multicidr/controller-manager/controllers/lease"
	"github.com/multicidr/controller-manager/controllers/nodeipam/allocator"
	"github.com/multicidr/controller-manager/controllers/nodeipam/api"
	"github.com/multicidr/controller-manager/controllers/nodeipam/debugpage"
	"github.com/multicidr/controller-manager/controllers/nodeipam/fromflags"
	"github.com/multicidr/controller-manager/controllers/nodeipam/health"
	"github.com/multicidr/controller-manager/controllers/nodeipam/metrics"
	"github.com/multicidr/controller-manager/controllers/queues"
)

// Name is the controller's name.
const Name = api.Manager

// Alias is its other name in --controllers.
const Alias = "multicidrnodeipam"

// clusterCIDRWorkers is how many ClusterCIDRs are written concurrently.
const clusterCIDRWorkers = 4

// Config is the input of New. Clients, informers and Workers are required.
type Config struct {
	// Client reads and patches Nodes and writes events.
	Client            kubernetes.Interface
	ClusterCIDRClient versioned.Interface
	// Nodes and ServiceCIDRs are shared informers. StartInformers starts them, if that is left to the controller: it is called after the
	// first consistent reads.
	Nodes          coreinformers.NodeInformer
	ServiceCIDRs   networkinginformers.ServiceCIDRInformer
	StartInformers func(stop <-chan struct{})
	// NodesAsOf is the result of a ReadNodes made after the Lease was acquired, ideally before the informer of Nodes started. If it is
	// empty, the start reads for itself.
	NodesAsOf string
	// Watches are those of shared informers that run before New; nil: New follows all informers.
	Watches *health.Watches
	// FromFlags are the in-tree allocator's flags: a ClusterCIDR is made from them, they name service ranges, which like those of ServiceCIDRs
	// are never allocated, and they say which family comes first in podCIDRs.
	FromFlags fromflags.Flags
	// Workers is how many Nodes are written concurrently.
	Workers int
	// Limiter limits requests; nil means no limit here.
	Limiter flowcontrol.RateLimiter
	// Fence is that of the leader Lease; nil means no leader election.
	Fence *lease.Fence
	// TakeoverDelay is for how long after the start of the term a write of another allocator may still arrive.
	TakeoverDelay time.Duration
}

// Controller allocates podCIDRs to Nodes from ClusterCIDRs. See the package comment.
type Controller struct {
	Config
	api      api.API
	health   *health.Health
	informer cache.SharedIndexInformer // of ClusterCIDRs
	events   *events.Writer

	nodeQueue, clusterCIDRQueue queues.Queue[string]

	mu    sync.Mutex // held only to compute: never across a request, and not while a possibly large object is compiled
	state *allocator.State
	// clusterCIDRs are the objects as last shown, by name.
	clusterCIDRs map[string]*clusterCIDR
}

// clusterCIDR is a ClusterCIDR as last shown.
type clusterCIDR struct {
	object *networkingv1.ClusterCIDR
	// looked is when its status was last compared with what it should be.
	looked time.Time
}

// New returns a controller, or what is wrong with the flags. It does no I/O.
func New(cfg Config) (*Controller, error) {
	if err := errors.Join(cfg.FromFlags.Validate()...); err != nil {
		return nil, err
	}
	if cfg.Fence == nil {
		cfg.Fence = &lease.Fence{}
	}
	c := &Controller{
		Config:           cfg,
		nodeQueue:        queues.New[string]("multi_cidr_node_ipam_nodes", queues.RetryMax),
		clusterCIDRQueue: queues.New[string]("multi_cidr_node_ipam_clustercidrs", queues.RetryMax),
		state:            allocator.New(),
		clusterCIDRs:     map[string]*clusterCIDR{},
		events:           events.New(cfg.Client, Name),
	}
	c.api = api.API{ClusterCIDRs: cfg.ClusterCIDRClient, Fence: cfg.Fence, Limiter: cfg.Limiter}
	factory := externalversions.NewSharedInformerFactoryWithOptions(cfg.ClusterCIDRClient, 0, externalversions.WithTransform(WithoutManagedFields))
	c.informer = factory.Networking().V1().ClusterCIDRs().Informer()
	ranges, _ := cfg.FromFlags.ServiceRanges()
	c.state.SetService(fromflags.ServiceRanges, ranges)
	watches, err := cfg.Watches, error(nil)
	if watches == nil {
		watches = &health.Watches{}
		err = errors.Join(watches.Follow("Nodes", c.Nodes.Informer()), watches.Follow("ServiceCIDRs", c.ServiceCIDRs.Informer()))
	}
	c.health = health.New(watches)
	c.health.WaitFor(health.Problem{What: "the start"})
	return c, errors.Join(err, watches.Follow("ClusterCIDRs", c.informer))
}

// WithoutManagedFields is a transformer of informers that keeps their caches small.
func WithoutManagedFields(object any) (any, error) {
	if o, err := meta.Accessor(object); err == nil {
		o.SetManagedFields(nil)
	}
	return object, nil
}

// Name implements the manager's interface for controllers.
func (c *Controller) Name() string { return Name }

// Run runs until ctx is done. It returns when everything it started has ended, including writes, except informers: a reflector may sleep for
// a minute without looking at its context, and a leader that waited for that would keep the Lease.
func (c *Controller) Run(ctx context.Context) {
	logger := klog.FromContext(ctx)
	logger.Info("Starting controller", "controller", Name)
	defer logger.Info("Stopped controller", "controller", Name)
	defer metrics.Show(metrics.Source{Health: c.health, With: c.whenStarted})()

	var wg sync.WaitGroup
	defer wg.Wait()
	defer c.nodeQueue.ShutDown()
	defer c.clusterCIDRQueue.ShutDown()
	defer c.events.Start()()

	if !c.start(ctx) {
		return
	}
	work := func(workers int, queue queues.Queue[string], sync func(context.Context, string) error) {
		for range workers {
			wg.Go(func() {
				defer utilruntime.HandleCrashWithContext(ctx)
				queues.Work(ctx, queue, sync)
			})
		}
	}
	work(c.Workers, c.nodeQueue, c.syncNode)
	work(clusterCIDRWorkers, c.clusterCIDRQueue, c.syncClusterCIDR)
	<-ctx.Done()
}

// with runs f on the state, exclusively, and then queues the objects that its changes affect.
func (c *Controller) with(f func(*allocator.State)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	f(c.state)
	changes := c.state.Changes()
	if changes.Walk {
		c.nodeQueue.Add(walk)
	}
	for _, name := range changes.Nodes {
		c.nodeQueue.Add(name)
	}
	now := time.Now()
	for name := range changes.ClusterCIDRs {
		if known, ok := c.clusterCIDRs[name]; ok {
			c.clusterCIDRQueue.AddAfter(name, statusInterval-now.Sub(known.looked))
		}
	}
}

// whenStarted runs f on the state, exclusively, if it knows everything that existed at the start, and reports whether it does.
func (c *Controller) whenStarted(f func(*allocator.State)) (started bool) {
	c.with(func(s *allocator.State) {
		if started = s.Started(); started {
			f(s)
		}
	})
	return started
}

// note notes whether an object can be written. Usually all fail for the same reason, so only the first failure is logged, and each object gets
// its own event.
func (c *Controller) note(ctx context.Context, kind health.Kind, name string, err error) {
	news, tell := c.health.Wrote(kind, name, err)
	switch {
	case news && err != nil:
		klog.FromContext(ctx).Error(err, "Cannot write: "+health.WriteProblem(err).What, "kind", kind, "name", name)
	case news:
		klog.FromContext(ctx).Info("Can write again", "kind", kind)
	}
	c.tellWriteFailed(kind, name, tell)
}

// HealthChecker reports an error that says what to do, as long as the controller cannot do all of its work.
func (c *Controller) HealthChecker() healthz.UnnamedHealthChecker { return c.health }

// DebuggingHandler serves the debug page: see package debugpage.
func (c *Controller) DebuggingHandler() http.Handler {
	return debugpage.Handler(debugpage.Source{
		Health: c.health,
		Nodes: func() []*v1.Node {
			nodes, _ := c.Nodes.Lister().List(labels.Everything()) // It fails only for a selector that cannot be parsed.
			return nodes
		},
		With: c.whenStarted,
	})
}

package nodeipam

import (
	"context"
	"net/netip"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/types"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/dynamic"
	coreinformers "k8s.io/client-go/informers/core/v1"
	networkinginformers "k8s.io/client-go/informers/networking/v1"
	"k8s.io/client-go/kubernetes"
	corelisters "k8s.io/client-go/listers/core/v1"
	networkinglisters "k8s.io/client-go/listers/networking/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/multicidr/controller-manager/apis/generated/clientset/versioned"
	"github.com/multicidr/controller-manager/apis/generated/informers/externalversions"
	clustercidrlisters "github.com/multicidr/controller-manager/apis/generated/listers/networking/v1"
	networkingv1 "github.com/multicidr/controller-manager/apis/networking/v1"
	"github.com/multicidr/controller-manager/controllers/ipam"
	"github.com/multicidr/controller-manager/controllers/lease"
	"github.com/multicidr/controller-manager/controllers/nodeipam/allocator"
	"github.com/multicidr/controller-manager/controllers/nodeipam/clustercidr"
	"github.com/multicidr/controller-manager/controllers/nodeipam/events"
	"github.com/multicidr/controller-manager/controllers/nodeipam/fromflags"
	"github.com/multicidr/controller-manager/controllers/nodeipam/health"
	"github.com/multicidr/controller-manager/controllers/nodeipam/metrics"
	"github.com/multicidr/controller-manager/controllers/nodeipam/queues"
	"github.com/multicidr/controller-manager/controllers/nodeipam/requests"
	"github.com/multicidr/controller-manager/controllers/nodeipam/stored"
)

// Name is the controller's name.
const Name = requests.Manager

// Config is what a Controller is made from. Clients, Nodes and Workers are required.
type Config struct {
	// Client patches Nodes and writes events.
	Client kubernetes.Interface
	// ClusterCIDRClient writes ClusterCIDRs, and Dynamic reads them.
	ClusterCIDRClient versioned.Interface
	Dynamic           dynamic.Interface
	// Nodes is the shared informer; whoever made it starts it.
	Nodes coreinformers.NodeInformer
	// NodesAsOf is what ReadNodes returned after the lease was won, and best before the informer of Nodes started. Empty: the
	// start reads for itself.
	NodesAsOf string
	// ServiceCIDRs is the shared informer of ServiceCIDRs; nil if the cluster does not have that API.
	ServiceCIDRs networkinginformers.ServiceCIDRInformer
	// Watches are those of the shared informers; nil if the health check need not tell of them.
	Watches *health.Watches
	// ServiceRanges are never handed out, beside those of ServiceCIDRs: what --service-cluster-ip-range says.
	ServiceRanges []netip.Prefix
	// FromFlags is what there has to be a ClusterCIDR for, because the flags of the in-tree allocator say so; nil for none.
	FromFlags *networkingv1.ClusterCIDRSpec
	// PrimaryFamily is the family that comes first in podCIDRs.
	PrimaryFamily ipam.Family
	// Workers is how many Nodes are written at a time.
	Workers int
	// Fence is that of the leader lease; nil is one that is always open.
	Fence requests.Fence
	// Term is of the same lease, as a rule the same *lease.Fence; nil without leader election.
	Term Term
	// LeaseOfItsOwn says that other allocators, such as the in-tree one, lead by another Lease.
	LeaseOfItsOwn bool
	// TakeoverDelay is for how long after the start of the term a write of another allocator may still arrive.
	TakeoverDelay time.Duration
}

// Controller serves Nodes from ClusterCIDRs. See the package comment.
type Controller struct {
	api               requests.API
	client            kubernetes.Interface // for what start looks at, like the next
	clusterCIDRClient versioned.Interface
	dynamic           dynamic.Interface
	now               func() time.Time
	flags             *networkingv1.ClusterCIDRSpec
	primary           ipam.Family
	workers           int
	identity          string // of this process: that in the lease, or one of its own without a lease
	fence             requests.Fence
	witness           witness // nil without leader election

	nodes        corelisters.NodeLister
	clusterCIDRs clustercidrlisters.ClusterCIDRLister
	serviceCIDRs networkinglisters.ServiceCIDRLister // nil without that API
	informers    externalversions.SharedInformerFactory
	synced       map[string]cache.InformerSynced // by what is cached
	stopHearing  []func() error                  // each ends the events of one informer, and returns when the last one has been handled
	// These are for waitTakeover.
	term          Term
	leaseOfItsOwn bool
	takeoverDelay time.Duration
	// nodesAsOf and the versions are for waitFresh.
	nodesAsOf                         string
	nodesVersion, clusterCIDRsVersion func() string

	nodeQueue        queues.Queue
	clusterCIDRQueue queues.Queue
	statusQueue      queues.Queue // of ClusterCIDRs
	eventQueue       queues.Queue // of eventKeys

	// entering is held from the look at a ClusterCIDR until what it says is in the state, and while the state is filled. With mu too, it is taken first.
	entering  sync.Mutex
	selectors clustercidr.SelectorCache // guarded by entering

	mu    sync.Locker // held for computing only, never across a call to the API server, and not while an object is read that may be large
	state *allocator.State
	torn  bool // somebody is at work in the state, or a panic has ended that work: it may be half changed
	// statusWritten is when each ClusterCIDR's status was last written.
	statusWritten map[string]time.Time
	// statusQueued are the ClusterCIDRs whose status is about to be looked at, since while Nodes join each of them asks for that.
	statusQueued map[string]bool
	// finalizerTries are of the ClusterCIDRs that wait for their finalizer, by name.
	finalizerTries map[string]finalizerTries
	// storedOtherwise are the ClusterCIDRs of the flags, by name, that were not stored as they were sent. For the worker of ClusterCIDRs alone.
	storedOtherwise map[string]types.UID
	// stays is what was written last into a ClusterCIDR and has to stay, by its name. For the worker of ClusterCIDRs alone.
	stays map[string]lastWrite
	// goesSince is when it was first tried to let a ClusterCIDR go, by its name. For the same worker.
	goesSince map[string]lastWrite
	// awaited is since when a Node waits for the finalizer of a ClusterCIDR, by the latter's name.
	awaited map[string]time.Time
	// heardVersion is the highest resource version of a Node of which an event was handled, or that was there at the start.
	heardVersion string
	announcer    announcer

	health    health.Health
	firstSeen metrics.FirstSeen
	// broken is closed by the panic that ends the controller.
	broken   chan struct{}
	breaking sync.Once
	// filled is whether the state knows all that there was at the start.
	filled atomic.Bool
	// earlier is what the start has found of earlier terms. mu guards it.
	earlier earlierTerms
}

// parts are what a Controller works with: the real ones in New, simulated ones in a test that takes every step itself.
type parts struct {
	api          requests.API
	now          func() time.Time
	nodes        corelisters.NodeLister
	clusterCIDRs clustercidrlisters.ClusterCIDRLister
	serviceCIDRs networkinglisters.ServiceCIDRLister // nil without that API
	newQueue     func(of string, longest time.Duration) queues.Queue
}

// New makes a controller. It does no I/O.
func New(cfg Config) (*Controller, error) {
	c := newController(cfg, parts{
		api:      requests.Clients{Kube: cfg.Client, ClusterCIDRs: cfg.ClusterCIDRClient},
		now:      time.Now,
		nodes:    cfg.Nodes.Lister(),
		newQueue: queues.New,
	})
	c.client, c.clusterCIDRClient, c.dynamic = cfg.Client, cfg.ClusterCIDRClient, cfg.Dynamic
	c.informers = externalversions.NewSharedInformerFactoryWithOptions(cfg.ClusterCIDRClient, 0, externalversions.WithTransform(stored.StripManagedFields))
	clusterCIDRs := c.informers.InformerFor(&networkingv1.ClusterCIDR{}, func(_ versioned.Interface, resync time.Duration) cache.SharedIndexInformer {
		return stored.NewInformer(c.dynamic, resync, c.noteRead)
	})
	c.clusterCIDRs = clustercidrlisters.NewClusterCIDRLister(clusterCIDRs.GetIndexer())

	c.nodesAsOf = cfg.NodesAsOf
	// Of the stores: an informer's own is that of its reflector, which runs ahead of what listers show.
	c.nodesVersion = cfg.Nodes.Informer().GetStore().LastStoreSyncResourceVersion
	c.clusterCIDRsVersion = clusterCIDRs.GetStore().LastStoreSyncResourceVersion

	if err := c.watch("Nodes", cfg.Nodes.Informer(), c.nodeEvent); err != nil {
		return nil, err
	}
	if err := c.watch("ClusterCIDRs", clusterCIDRs, func(name string, _, _ any) { c.heardOfClusterCIDR(name) }); err != nil {
		return nil, err
	}
	if cfg.ServiceCIDRs != nil {
		c.serviceCIDRs = cfg.ServiceCIDRs.Lister()
		if err := c.watch("ServiceCIDRs", cfg.ServiceCIDRs.Informer(), func(name string, _, _ any) { c.heardOfServiceCIDR(name) }); err != nil {
			return nil, err
		}
	}
	return c, nil
}

func newController(cfg Config, p parts) *Controller {
	c := &Controller{
		api:              p.api,
		now:              p.now,
		flags:            cfg.FromFlags,
		primary:          cfg.PrimaryFamily,
		workers:          cfg.Workers,
		term:             cfg.Term,
		leaseOfItsOwn:    cfg.LeaseOfItsOwn,
		takeoverDelay:    cfg.TakeoverDelay,
		nodes:            p.nodes,
		clusterCIDRs:     p.clusterCIDRs,
		serviceCIDRs:     p.serviceCIDRs,
		nodeQueue:        p.newQueue("nodes", queues.RetryMax),
		clusterCIDRQueue: p.newQueue("clustercidrs", queues.RetryMax),
		statusQueue:      p.newQueue("status", queues.RetryMax),
		eventQueue:       p.newQueue("events", eventRetryMax),
		selectors:        clustercidr.SelectorCache{},
		mu:               &sync.Mutex{},
		state:            allocator.New(),
		statusWritten:    map[string]time.Time{},
		statusQueued:     map[string]bool{},
		finalizerTries:   map[string]finalizerTries{},
		awaited:          map[string]time.Time{},
		storedOtherwise:  map[string]types.UID{},
		stays:            map[string]lastWrite{},
		goesSince:        map[string]lastWrite{},
		announcer:        announcer{since: map[string]time.Time{}, clusterCIDRs: map[string]alarm{}},
		synced:           map[string]cache.InformerSynced{},
		broken:           make(chan struct{}),
	}
	if c.fence = cfg.Fence; c.fence == nil {
		c.fence = &lease.Fence{}
	}
	c.api, c.identity = requests.Fenced{API: p.api, Fence: c.fence}, c.fence.Holder()
	if c.identity != "" {
		c.witness, _ = c.fence.(witness)
	} else {
		c.identity = requests.UnelectedIdentity()
	}
	c.health.Now, c.health.Watches = c.now, cfg.Watches
	c.health.WaitFor(health.Problem{What: "the start"})
	c.state.SetService(fromflags.ServiceRanges, cfg.ServiceRanges)
	return c
}

// watch makes every event of an informer call heard, and the start wait for the informer. before is nil for an object that is new, now for one
// that is gone.
func (c *Controller) watch(kind string, informer cache.SharedIndexInformer, heard func(name string, before, now any)) error {
	event := func(before, now any) {
		object := now
		if object == nil {
			object = before
		}
		name, err := cache.DeletionHandlingObjectToName(object)
		if err != nil {
			utilruntime.HandleError(err)
			return
		}
		c.safely(func() { heard(name.Name, before, now) })
	}
	c.synced[kind] = informer.HasSynced
	handler, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(now any) { event(nil, now) },
		UpdateFunc: event,
		DeleteFunc: func(last any) { event(last, nil) },
	})
	if err == nil {
		c.stopHearing = append(c.stopHearing, func() error { return cache.ShutDownEventHandler(informer, handler) })
	}
	return err
}

// Name makes Controller one that the manager can run.
func (c *Controller) Name() string { return Name }

// Run serves until ctx is done or something panics, and returns when all that it started, writes included, has ended. After a panic
// another Controller can be built and run in its place: see package restart.
func (c *Controller) Run(ctx context.Context) {
	logger := klog.FromContext(ctx)
	logger.Info("Starting controller", "controller", Name)
	defer logger.Info("Stopped controller", "controller", Name)

	hide := metrics.Show(shown{c})
	defer func() {
		if c.Err() == nil {
			hide() // else they go on to say that it is not ready, until the next one takes its place
		}
	}()
	defer c.leaveNothing()
	var wg sync.WaitGroup
	defer wg.Wait()
	defer c.informers.Shutdown()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // before Shutdown, which waits for what ends with ctx
	wg.Go(func() {
		select {
		case <-c.broken:
			cancel()
		case <-ctx.Done():
		}
	})
	lines := c.lines()
	for _, l := range lines {
		defer l.queue.ShutDown()
	}

	serves := false
	if c.safely(func() { serves = c.start(ctx) }); !serves {
		return
	}
	for _, l := range lines {
		for range l.workers {
			wg.Go(func() { c.safely(func() { queues.Work(ctx, l.queue, l.sync) }) })
		}
	}
	<-ctx.Done()
}

// safely calls f unless something has panicked before. A panic ends this controller, for its state may be half changed then; it does not
// end the process, whose other controllers the cluster needs, and which would meet the same object again after its restart. Whoever runs
// this controller builds another one.
func (c *Controller) safely(f func()) {
	select {
	case <-c.broken:
		return
	default:
	}
	defer func() {
		if r := recover(); r != nil {
			if !health.PanickedWith(health.ErrTorn, r) {
				klog.Background().Error(nil, "Panic: no Node gets podCIDRs until the controller has started again, which it does by itself. This is a defect: report it with this line",
					"controller", Name, "panic", r, "stack", string(debug.Stack()))
			}
			c.health.Breaks(r)
			c.breaking.Do(func() {
				metrics.Panicked()
				close(c.broken)
			})
		}
	}()
	f()
}

// line is a queue of names and what is done about each.
type line struct {
	queue   queues.Queue
	sync    func(ctx context.Context, name string) error
	workers int
}

func (c *Controller) lines() []line {
	return []line{
		{c.clusterCIDRQueue, c.noting(health.WritesClusterCIDR, c.syncClusterCIDR), 1},
		{c.statusQueue, c.noting(health.WritesStatus, c.syncStatus), 1},
		{c.nodeQueue, c.noting(health.WritesNode, c.syncNode), c.workers},
		{c.eventQueue, c.syncEvent, eventWorkers},
	}
}

// with runs f on the state, alone, and then wakes whom its changes may concern. It panics if somebody's panic has left the state half
// changed: nothing may be decided, and then written, by such a state.
func (c *Controller) with(f func(*allocator.State)) {
	if !c.withWhole(f) {
		panic(health.ErrTorn)
	}
}

// withWhole is with for who only shows what is in the state. It reports false, and does not call f, if the state may be half changed.
func (c *Controller) withWhole(f func(*allocator.State)) (whole bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.torn {
		return false
	}
	c.torn = true // A panic leaves it so.
	f(c.state)
	e := c.state.Changes()
	for _, name := range e.Terminating {
		c.clusterCIDRQueue.Add(name)
	}
	for _, name := range e.Nodes {
		c.nodeQueue.Add(name)
	}
	for _, name := range e.ClusterCIDRs {
		if c.statusQueued[name] {
			continue
		}
		c.statusQueued[name] = true
		c.statusQueue.AddAfter(name, c.statusWritten[name].Add(statusInterval).Sub(c.now()))
	}
	c.torn = false
	return true
}

// noting passes on what sync returns, and notes which objects cannot be written. All of them fail for the same reason, as a rule, so only
// the first is logged. Each has an event of its own.
func (c *Controller) noting(kind health.Kind, sync func(context.Context, string) error) func(context.Context, string) error {
	return func(ctx context.Context, name string) error {
		err := sync(ctx, name)
		news, tell := c.health.Wrote(kind, name, err)
		switch {
		case news && err != nil:
			t, _ := health.WriteProblem(err)
			klog.FromContext(ctx).Error(err, "Cannot write: "+t.What, "kind", kind, "name", name)
		case news:
			klog.FromContext(ctx).Info("Can write again", "kind", kind)
		}
		if tell {
			c.with(func(*allocator.State) {
				switch kind {
				case health.WritesNode:
					c.announce(events.AboutNode, name, events.ReasonWriteFailed)
				case health.WritesStatus:
					c.announce(events.AboutClusterCIDR, name, events.ReasonStatusWriteFailed)
				}
			})
		}
		return err
	}
}

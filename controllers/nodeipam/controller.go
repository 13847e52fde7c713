package nodeipam

import (
	"context"
	"net/netip"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
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
	"github.com/multicidr/controller-manager/controllers/nodeipam/author"
	"github.com/multicidr/controller-manager/controllers/nodeipam/clustercidr"
	"github.com/multicidr/controller-manager/controllers/nodeipam/events"
	"github.com/multicidr/controller-manager/controllers/nodeipam/finalizers"
	"github.com/multicidr/controller-manager/controllers/nodeipam/fresh"
	"github.com/multicidr/controller-manager/controllers/nodeipam/fromflags"
	"github.com/multicidr/controller-manager/controllers/nodeipam/health"
	"github.com/multicidr/controller-manager/controllers/nodeipam/internal/handlers"
	"github.com/multicidr/controller-manager/controllers/nodeipam/metrics"
	"github.com/multicidr/controller-manager/controllers/nodeipam/requests"
	"github.com/multicidr/controller-manager/controllers/nodeipam/seen"
	"github.com/multicidr/controller-manager/controllers/nodeipam/stored"
	"github.com/multicidr/controller-manager/controllers/nodeipam/takeover"
	"github.com/multicidr/controller-manager/controllers/queues"
	"github.com/multicidr/controller-manager/controllers/writes"
)

// Name is the controller's name.
const Name = requests.Manager

// Config is the input of New. Clients, Nodes and Workers are required.
type Config struct {
	// Client patches Nodes and writes events.
	Client kubernetes.Interface
	// ClusterCIDRClient writes ClusterCIDRs, and Dynamic reads them.
	ClusterCIDRClient versioned.Interface
	Dynamic           dynamic.Interface
	// Nodes is the shared informer. Its creator starts it.
	Nodes coreinformers.NodeInformer
	// NodesAsOf is the result of a ReadNodes made after the Lease was acquired, ideally before the informer of Nodes started. If it is
	// empty, start reads for itself.
	NodesAsOf string
	// ServiceCIDRs is the shared informer of ServiceCIDRs; nil if the cluster does not serve that API.
	ServiceCIDRs networkinginformers.ServiceCIDRInformer
	// Watches are those of the shared informers; nil if the health check need not report on them.
	Watches *health.Watches
	// ServiceRanges are the ranges of --service-cluster-ip-range. Like those of ServiceCIDRs, they are never allocated.
	ServiceRanges []netip.Prefix
	// FromFlags is the spec of the ClusterCIDR that the in-tree allocator's flags stand for; nil for none.
	FromFlags *networkingv1.ClusterCIDRSpec
	// PrimaryFamily is the family that comes first in podCIDRs.
	PrimaryFamily ipam.Family
	// Workers is how many Nodes are written concurrently.
	Workers int
	// Fence is the fence of the leader Lease; nil means one that is always open.
	Fence writes.Fence
	// Term is the term of the same Lease, usually the same *lease.Fence; nil without leader election.
	Term takeover.Term
	// LeaseOfItsOwn means that other allocators, such as the in-tree one, use another Lease.
	LeaseOfItsOwn bool
	// TakeoverDelay is for how long after the start of the term a write of another allocator may still arrive.
	TakeoverDelay time.Duration
}

// Controller allocates podCIDRs to Nodes from ClusterCIDRs. See the package comment.
type Controller struct {
	api               requests.API
	client            kubernetes.Interface // for the reads of start, like the next two
	clusterCIDRClient versioned.Interface
	dynamic           dynamic.Interface
	now               func() time.Time
	flags             *networkingv1.ClusterCIDRSpec
	primary           ipam.Family
	workers           int
	identity          string // of this process: the holder in the Lease, or a generated one without leader election
	fence             writes.Fence
	witness           witness // nil without leader election

	nodes        corelisters.NodeLister
	clusterCIDRs clustercidrlisters.ClusterCIDRLister
	gone         *fresh.Gone                         // ClusterCIDRs that clusterCIDRs leaves out
	serviceCIDRs networkinglisters.ServiceCIDRLister // nil without that API
	informers    externalversions.SharedInformerFactory
	synced       map[string]cache.InformerSynced // by the kind that is cached
	stopHearing  []func() error                  // each removes an event handler, and returns when its last event has been handled
	// For takeover.Leader.
	term          takeover.Term
	leaseOfItsOwn bool
	takeoverDelay time.Duration
	// nodesAsOf and the versions are for fresh.Wait.
	nodesAsOf                         string
	nodesVersion, clusterCIDRsVersion func() string
	// reads are consistent reads of each kind, and readNodes is that of one Node.
	reads     map[string]fresh.Read
	readNodes func(context.Context) (asOf string, err error)
	// seen knows whether changes are seen.
	seen *seen.Kinds

	nodeQueue        queues.Queue[string]
	clusterCIDRQueue queues.Queue[string]
	statusQueue      queues.Queue[string] // of ClusterCIDRs
	eventQueue       queues.Queue[string] // of keys from events.Key

	// entering is held from reading a ClusterCIDR until the state has it, and while the state is filled. Lock order: entering before mu.
	entering  sync.Mutex
	selectors clustercidr.SelectorCache // guarded by entering

	mu    sync.Locker // held only to compute: never across a call to the API server, and not while a possibly large object is parsed
	state *allocator.State
	torn  bool // set during a change of the state; it stays set after a panic, because the state may then be half changed
	// statusWritten is when each ClusterCIDR's status was last written.
	statusWritten map[string]time.Time
	// statusQueued are the ClusterCIDRs whose status write is already queued: while Nodes join, each of them asks for one.
	statusQueued map[string]bool
	// finalizerTries are the attempts to add finalizers.
	finalizerTries finalizers.Tries
	// storedOtherwise are the ClusterCIDRs made from flags that were not stored as sent, by name. Only used by the worker of ClusterCIDRs.
	storedOtherwise map[string]types.UID
	// stays is the last write to each ClusterCIDR that nothing must undo, by name. Only used by the worker of ClusterCIDRs.
	stays map[string]lastWrite
	// goesSince is when the controller first tried to remove a ClusterCIDR's finalizer, by the ClusterCIDR's name. Only used by the worker
	// of ClusterCIDRs.
	goesSince map[string]lastWrite
	// awaited is since when Nodes have waited for a ClusterCIDR's finalizer, by the ClusterCIDR's name.
	awaited map[string]time.Time
	// listed are Nodes in lists of which handlers have not heard yet.
	listed seen.Listed
	// mayBeInUse are the ClusterCIDRs that are kept until it is known whether Nodes use them.
	mayBeInUse map[string]bool
	// heardVersion is the highest resource version of a Node whose event was handled, or that was read at the start. If there was none, it is
	// that of the read.
	heardVersion string
	announcer    announcer

	health    health.Health
	firstSeen metrics.FirstSeen
	// broken is closed by a panic, which ends the controller.
	broken   chan struct{}
	breaking sync.Once
	// filled is whether the state has everything that existed at the start.
	filled atomic.Bool
	// earlier is what the start found out about earlier leaders. Guarded by mu.
	earlier author.Earlier
}

// parts are the dependencies of a Controller: real ones in New, simulated ones in a test that controls every step.
type parts struct {
	api          requests.API
	now          func() time.Time
	nodes        corelisters.NodeLister
	clusterCIDRs clustercidrlisters.ClusterCIDRLister
	serviceCIDRs networkinglisters.ServiceCIDRLister // nil without that API
	newQueue     func(of string, longest time.Duration) queues.Queue[string]
}

// New returns a controller. It does no I/O.
func New(cfg Config) (*Controller, error) {
	c := newController(cfg, parts{
		api:      requests.Clients{Kube: cfg.Client, ClusterCIDRs: cfg.ClusterCIDRClient},
		now:      time.Now,
		nodes:    cfg.Nodes.Lister(),
		newQueue: newQueue,
	})
	c.client, c.clusterCIDRClient, c.dynamic = cfg.Client, cfg.ClusterCIDRClient, cfg.Dynamic
	changes := health.NewChanges("ClusterCIDRs", c.noteRead)
	c.informers = externalversions.NewSharedInformerFactoryWithOptions(cfg.ClusterCIDRClient, 0, externalversions.WithTransform(stored.StripManagedFields))
	clusterCIDRs := c.informers.InformerFor(&networkingv1.ClusterCIDR{}, func(_ versioned.Interface, resync time.Duration) cache.SharedIndexInformer {
		return stored.NewInformer(c.dynamic, resync, changes)
	})
	c.clusterCIDRs = stored.Existing{ClusterCIDRLister: clustercidrlisters.NewClusterCIDRLister(clusterCIDRs.GetIndexer()), Gone: c.gone}

	c.nodesAsOf = cfg.NodesAsOf
	// Use the store's version: the informer's own is that of its reflector, which is ahead of what listers show.
	c.nodesVersion = fresh.VersionOf(cfg.Nodes.Informer().GetStore())
	c.clusterCIDRsVersion = fresh.VersionOf(clusterCIDRs.GetStore())

	if cfg.Watches != nil {
		c.stopHearing = append(c.stopHearing, cfg.Watches.TellLists(c))
	}
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
	c.readFromClients()
	gaps := map[string]*health.Changes{"ClusterCIDRs": changes}
	if cfg.Watches != nil {
		gaps["Nodes"], gaps["ServiceCIDRs"] = cfg.Watches.Of("Nodes"), cfg.Watches.Of("ServiceCIDRs")
	}
	c.seen = seen.New(c.kinds(func(kind string) func() health.Gap {
		if gaps[kind] == nil {
			return nil
		}
		return gaps[kind].Gap
	})...)
	return c, nil
}

// readFromClients makes consistent reads go to the API server.
func (c *Controller) readFromClients() {
	c.readNodes = func(ctx context.Context) (string, error) { return fresh.ReadNodes(ctx, c.client) }
	c.reads = map[string]fresh.Read{
		"Nodes":        fresh.ReadPages(c.client.CoreV1().Nodes().List),
		"ServiceCIDRs": fresh.ReadPages(c.client.NetworkingV1().ServiceCIDRs().List),
		"ClusterCIDRs": fresh.ReadPages(func(ctx context.Context, opts metav1.ListOptions) (*unstructured.UnstructuredList, error) {
			return stored.ClusterCIDRs(c.dynamic).List(ctx, opts)
		}),
	}
}

func newQueue(of string, longest time.Duration) queues.Queue[string] {
	return queues.New[string]("multi_cidr_node_ipam_"+of, longest)
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
		gone:             &fresh.Gone{},
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
		finalizerTries:   finalizers.Tries{},
		awaited:          map[string]time.Time{},
		storedOtherwise:  map[string]types.UID{},
		stays:            map[string]lastWrite{},
		goesSince:        map[string]lastWrite{},
		announcer:        announcer{since: map[string]time.Time{}, alarms: events.Alarms{}},
		synced:           map[string]cache.InformerSynced{},
		listed:           seen.NewListed(),
		mayBeInUse:       map[string]bool{},
		seen:             &seen.Kinds{},
		broken:           make(chan struct{}),
	}
	c.clusterCIDRs = stored.Existing{ClusterCIDRLister: p.clusterCIDRs, Gone: c.gone}
	if c.fence = cfg.Fence; c.fence == nil {
		c.fence = &lease.Fence{}
	}
	fenced := requests.Fenced{API: p.api, Fence: c.fence}
	if of, ok := c.fence.(interface{ Lease() string }); ok {
		fenced.Lease = of.Lease()
	}
	c.api, c.identity = fenced, c.fence.Holder()
	if c.identity != "" {
		c.witness, _ = c.fence.(witness)
	} else {
		c.identity = writes.UnelectedIdentity()
	}
	c.health.Now, c.health.Watches = c.now, cfg.Watches
	if of, ok := c.fence.(interface{ Deposed() error }); ok {
		c.health.Deposed = of.Deposed
	}
	c.health.Missed = func() string { return c.seen.MissedFor(missedPatience) }
	c.health.WaitFor(health.Problem{What: "the start"})
	c.state.SetService(fromflags.ServiceRanges, cfg.ServiceRanges)
	return c
}

// watch calls heard for every event of an informer, and makes start wait for the informer. before is nil for a new object, now is nil for a
// deleted one.
func (c *Controller) watch(kind string, informer cache.SharedIndexInformer, heard func(name string, before, now any)) error {
	gate := handlers.NewGate()
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
		gate.Pass(func() { c.safely(func() { heard(name.Name, before, now) }) })
	}
	c.synced[kind] = informer.HasSynced
	handler, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(now any) { event(nil, now) },
		UpdateFunc: event,
		DeleteFunc: func(last any) { event(last, nil) },
	})
	if err == nil {
		c.stopHearing = append(c.stopHearing, func() error { return gate.End(informer, handler) })
	}
	return err
}

// Name implements the manager's interface for controllers.
func (c *Controller) Name() string { return Name }

// Run runs until ctx is done or something panics. It returns when everything it started has ended, including writes, except informers. After a
// panic, another Controller can be built and run in its place: see package restart.
//
// An informer ends with ctx too, but may take a minute: after the API server has refused a list, client-go's reflector sleeps without looking
// at its context. A leader that waited for that would keep the Lease, and nobody would allocate.
func (c *Controller) Run(ctx context.Context) {
	logger := klog.FromContext(ctx)
	logger.Info("Starting controller", "controller", Name)
	defer logger.Info("Stopped controller", "controller", Name)

	hide := metrics.Show(shown{c})
	defer func() {
		if c.Err() == nil {
			hide() // otherwise they report "not ready" until the next Controller takes over
		}
	}()
	defer c.leaveNothing()
	var wg sync.WaitGroup
	defer wg.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // before Wait, which waits for goroutines that end with ctx
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
	wg.Go(func() { c.safely(func() { c.seen.Run(ctx, c.caughtUp) }) })
	for _, l := range lines {
		for range l.workers {
			wg.Go(func() { c.safely(func() { queues.Work(ctx, l.queue, l.sync) }) })
		}
	}
	<-ctx.Done()
}

// safely calls f unless something has panicked before. A panic ends this controller, because its state may be half changed. It does not end
// the process: the cluster needs the other controllers in it, and a restarted process would meet the same object again. The caller of Run
// builds another Controller.
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

// line is a queue of names and the function that processes them.
type line struct {
	queue   queues.Queue[string]
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

// with runs f on the state, exclusively, and then queues the objects that its changes may affect. It panics if an earlier panic has left
// the state half changed: such a state must not lead to decisions or writes.
func (c *Controller) with(f func(*allocator.State)) {
	if !c.withWhole(f) {
		panic(health.ErrTorn)
	}
}

// withWhole is with for callers that only show the state. It reports false, and does not call f, if the state may be half changed.
func (c *Controller) withWhole(f func(*allocator.State)) (whole bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.torn {
		return false
	}
	c.torn = true // It stays so after a panic.
	f(c.state)
	if c.state.AllocationDue() && c.allKnown() { // Otherwise what is chosen may be the podCIDRs of a Node that it does not know of.
		c.state.AllocatePending()
	}
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

// noting passes on the result of sync, and notes which objects cannot be written. Usually all of them fail for the same reason, so only the
// first failure is logged. Each object gets its own event.
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

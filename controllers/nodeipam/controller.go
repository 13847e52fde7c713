package nodeipam

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	coreinformers "k8s.io/client-go/informers/core/v1"
	"k8s.io/client-go/kubernetes"
	kubescheme "k8s.io/client-go/kubernetes/scheme"
	v1core "k8s.io/client-go/kubernetes/typed/core/v1"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"

	"github.com/multicidr/controller-manager/apis/generated/clientset/versioned"
	"github.com/multicidr/controller-manager/apis/generated/informers/externalversions"
	networkinglisters "github.com/multicidr/controller-manager/apis/generated/listers/networking/v1"
	networkingv1 "github.com/multicidr/controller-manager/apis/networking/v1"
	"github.com/multicidr/controller-manager/controllers/ipam"
)

// Name is the controller's name: in --controllers, of its ServiceAccount, as field manager and as the source of events.
const Name = "multi-cidr-node-ipam-controller"

// Retries of one object after a failed write: the first at once, then ever later. There is no limit shared by all
// objects, so that one API server outage is not followed by a queue of its own.
const (
	retryFirst = 10 * time.Millisecond
	retryMax   = 10 * time.Second
)

// Config is what a Controller is made from. All fields are required.
type Config struct {
	// Client patches Nodes and writes events.
	Client kubernetes.Interface
	// ClusterCIDRClient reads ClusterCIDRs and patches their finalizers.
	ClusterCIDRClient versioned.Interface
	// Nodes is the shared informer; whoever made it starts it.
	Nodes coreinformers.NodeInformer
	// PrimaryFamily is the family that comes first in podCIDRs.
	PrimaryFamily ipam.Family
	// Workers is how many Nodes are written at a time.
	Workers int
}

// Controller serves Nodes from ClusterCIDRs. See the package comment.
type Controller struct {
	client            kubernetes.Interface
	clusterCIDRClient versioned.Interface
	primary           ipam.Family
	workers           int

	nodes              corelisters.NodeLister
	nodesSynced        cache.InformerSynced
	clusterCIDRs       networkinglisters.ClusterCIDRLister
	clusterCIDRsSynced cache.InformerSynced
	informers          externalversions.SharedInformerFactory

	nodeQueue        workqueue.TypedRateLimitingInterface[string]
	clusterCIDRQueue workqueue.TypedRateLimitingInterface[string]
	broadcaster      record.EventBroadcaster
	recorder         record.EventRecorder

	mu   sync.Mutex // held for computing only, never across a call to the API server
	book *book

	// waitsFor says, for people, what Run waits for before it starts to serve; nil once it does.
	waitsFor atomic.Pointer[string]
}

// New makes a controller. It does no I/O.
func New(cfg Config) (*Controller, error) {
	factory := externalversions.NewSharedInformerFactoryWithOptions(cfg.ClusterCIDRClient, 0, externalversions.WithTransform(stripManagedFields))
	clusterCIDRs := factory.Networking().V1().ClusterCIDRs()

	scheme := runtime.NewScheme()
	utilruntime.Must(kubescheme.AddToScheme(scheme))
	utilruntime.Must(networkingv1.AddToScheme(scheme)) // else no event can refer to a ClusterCIDR
	broadcaster := record.NewBroadcaster()

	c := &Controller{
		client:             cfg.Client,
		clusterCIDRClient:  cfg.ClusterCIDRClient,
		primary:            cfg.PrimaryFamily,
		workers:            cfg.Workers,
		nodes:              cfg.Nodes.Lister(),
		nodesSynced:        cfg.Nodes.Informer().HasSynced,
		clusterCIDRs:       clusterCIDRs.Lister(),
		clusterCIDRsSynced: clusterCIDRs.Informer().HasSynced,
		informers:          factory,
		nodeQueue:          newQueue("multi_cidr_node_ipam_nodes"),
		clusterCIDRQueue:   newQueue("multi_cidr_node_ipam_clustercidrs"),
		broadcaster:        broadcaster,
		recorder:           broadcaster.NewRecorder(scheme, v1.EventSource{Component: Name}),
		book:               newBook(),
	}
	c.setWaitsFor("the start")
	if _, err := cfg.Nodes.Informer().AddEventHandler(enqueueTo(c.nodeQueue)); err != nil {
		return nil, err
	}
	if _, err := clusterCIDRs.Informer().AddEventHandler(enqueueTo(c.clusterCIDRQueue)); err != nil {
		return nil, err
	}
	return c, nil
}

// stripManagedFields keeps what nobody here reads out of the cache.
func stripManagedFields(obj any) (any, error) {
	if o, err := meta.Accessor(obj); err == nil {
		o.SetManagedFields(nil)
	}
	return obj, nil
}

func newQueue(name string) workqueue.TypedRateLimitingInterface[string] {
	return workqueue.NewTypedRateLimitingQueueWithConfig(
		workqueue.NewTypedItemExponentialFailureRateLimiter[string](retryFirst, retryMax),
		workqueue.TypedRateLimitingQueueConfig[string]{Name: name},
	)
}

// enqueueTo returns handlers that put the names of objects on a queue.
func enqueueTo(queue workqueue.TypedRateLimitingInterface[string]) cache.ResourceEventHandler {
	enqueue := func(obj any) {
		name, err := cache.DeletionHandlingObjectToName(obj)
		if err != nil {
			utilruntime.HandleError(err)
			return
		}
		queue.Add(name.Name)
	}
	return cache.ResourceEventHandlerFuncs{
		AddFunc:    enqueue,
		UpdateFunc: func(_, obj any) { enqueue(obj) },
		DeleteFunc: enqueue,
	}
}

// Name makes Controller one that the manager can run.
func (c *Controller) Name() string { return Name }

// Run serves until ctx is done, and returns when all that it started, writes included, has ended.
func (c *Controller) Run(ctx context.Context) {
	defer utilruntime.HandleCrashWithContext(ctx)
	logger := klog.FromContext(ctx)
	logger.Info("Starting controller", "controller", Name)
	defer logger.Info("Stopped controller", "controller", Name)

	c.broadcaster.StartRecordingToSink(&v1core.EventSinkImpl{Interface: c.client.CoreV1().Events("")})
	defer c.broadcaster.Shutdown()

	var wg sync.WaitGroup
	defer wg.Wait()
	defer c.nodeQueue.ShutDown()
	defer c.clusterCIDRQueue.ShutDown()
	defer c.informers.Shutdown()

	if !c.start(ctx) {
		return
	}
	wg.Go(func() { work(ctx, c.clusterCIDRQueue, c.syncClusterCIDR) })
	for range c.workers {
		wg.Go(func() { work(ctx, c.nodeQueue, c.syncNode) })
	}
	<-ctx.Done()
}

// work calls sync for names from the queue until ctx is done and the queue is shut down. What is queued then stays undone.
func work(ctx context.Context, queue workqueue.TypedRateLimitingInterface[string], sync func(context.Context, string) error) {
	one := func(ctx context.Context) (more bool) {
		name, quit := queue.Get()
		if quit {
			return false
		}
		defer queue.Done(name)
		if ctx.Err() != nil {
			return false
		}
		if err := sync(ctx, name); err != nil {
			klog.FromContext(ctx).Error(err, "Will try again")
			queue.AddRateLimited(name)
			return true
		}
		queue.Forget(name)
		return true
	}
	// After a panic in sync, which is reported, the worker goes on.
	wait.UntilWithContext(ctx, func(ctx context.Context) {
		for one(ctx) {
		}
	}, time.Second)
}

// with runs f on the book, alone, and then wakes whom its changes may help.
func (c *Controller) with(f func(*book)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	f(c.book)
	nodes, clusterCIDRs := c.book.toWake()
	for _, name := range clusterCIDRs {
		c.clusterCIDRQueue.Add(name)
	}
	for _, name := range nodes {
		c.nodeQueue.Add(name)
	}
}

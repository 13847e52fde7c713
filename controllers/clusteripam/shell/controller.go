package shell

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"runtime/debug"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/controller-manager/pkg/healthz"
	"k8s.io/klog/v2"

	"github.com/multicidr/controller-manager/controllers/lease"
	"github.com/multicidr/controller-manager/controllers/queues"
	"github.com/multicidr/controller-manager/controllers/writes"
)

// Config is the input of New. Name, Client, Lines and Logic are required.
type Config struct {
	// Name is the controller's name: in --controllers, and as its ServiceAccount, field manager and event source.
	Name string
	// Client is the configuration of the clients. It has been wrapped in lease.Transport.
	Client *rest.Config
	// Fence is the fence of the leader Lease; nil means one that is always open.
	Fence writes.Fence
	// Lines are the kinds of keys that the Logic queues.
	Lines []Line
	// Logic builds a Logic for one term. It is also called once to learn what the Logic reads, so it must only build.
	Logic func(Parts) Logic
	// Yield says why the controller must not run now; nil means that nothing stops it.
	Yield Yield
	// Other is another program that does the same work. While it leads, the controller does not run. nil: there is none.
	Other *Other
}

// Line is a kind of keys and how many workers work on them.
type Line struct {
	Kind    *Kind
	Workers int
}

// Yield says why a controller must leave its objects to another program; empty means that it need not. labels are those of the
// CustomResourceDefinitions of the kinds that the Logic reads.
type Yield func(labels map[*Kind]map[string]string) (why string)

// Controller runs a Logic. See the package comment.
type Controller struct {
	cfg     Config
	now     func() time.Time
	clients *clients
	dynamic dynamic.Interface
	looker  *looker
	crds    metadata.ResourceInterface
	health  *health
	teller  *teller
	running atomic.Pointer[term] // nil between terms

	broken   chan struct{} // closed by a panic, which ends the controller
	breaking sync.Once
}

// New returns a controller. It does no I/O.
func New(cfg Config) (*Controller, error) {
	if cfg.Fence == nil {
		cfg.Fence = &lease.Fence{}
	}
	c := &Controller{cfg: cfg, now: time.Now, health: newHealth(time.Now), broken: make(chan struct{})}
	// The API server only speaks JSON for custom resources.
	config := rest.CopyConfig(cfg.Client)
	config.ContentType, config.AcceptContentTypes = "application/json", "application/json"
	var err error
	if c.clients, err = newClients(config, cfg.Name, c.served); err != nil {
		return nil, fmt.Errorf("create the client that writes: %w", err)
	}
	if c.dynamic, err = dynamic.NewForConfig(config); err != nil {
		return nil, fmt.Errorf("create the client that reads: %w", err)
	}
	metadataClient, err := metadata.NewForConfig(metadata.ConfigFor(cfg.Client))
	if err != nil {
		return nil, fmt.Errorf("create the client that reads CustomResourceDefinitions: %w", err)
	}
	c.crds = metadataClient.Resource(crds)
	var reads []Reads
	for _, source := range cfg.Logic(Parts{Lock: &Lock{}, Now: c.now}).Reads() {
		reads = append(reads, source.Reads())
	}
	c.looker = newLooker(reads)
	c.looker.yield = cfg.Yield
	c.looker.problem = func(p problem) { c.health.waitFor(p) }
	if c.looker.discovery, err = discovery.NewDiscoveryClientForConfig(config); err != nil {
		return nil, fmt.Errorf("create the client that looks which kinds there are: %w", err)
	}
	if cfg.Other != nil {
		c.looker.other = newOther(*cfg.Other, c.now)
	}
	c.teller = newTeller(c.clients, c.metricsName(), c.now)
	return c, nil
}

// metricsName is the controller's name in the names of queues.
func (c *Controller) metricsName() string { return strings.ReplaceAll(c.cfg.Name, "-", "_") }

// Name implements the manager's interface for controllers.
func (c *Controller) Name() string { return c.cfg.Name }

// HealthChecker reports an error that says what to do, as long as the controller cannot do all of its work.
func (c *Controller) HealthChecker() healthz.UnnamedHealthChecker { return c }

// Err is why Run has returned, or is about to return, before its context is done; nil if nothing has panicked.
func (c *Controller) Err() error {
	if panicked := c.health.panicked(); panicked != nil {
		return fmt.Errorf("panic: %v", panicked)
	}
	return nil
}

// Run runs until ctx is done or something panics. It returns when everything it started has ended, including writes, except requests that
// read. After a panic, another Controller can be built and run in its place: see package restart.
func (c *Controller) Run(ctx context.Context) {
	logger := klog.FromContext(ctx)
	logger.Info("Starting controller", "controller", c.cfg.Name)
	defer logger.Info("Stopped controller", "controller", c.cfg.Name)
	hide := show(c)
	defer func() {
		if c.Err() == nil {
			hide() // Otherwise the metrics report "not ready" until the next Controller takes over.
		}
	}()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var wg sync.WaitGroup
	defer wg.Wait()
	defer c.teller.queue.ShutDown()
	defer cancel()
	wg.Go(func() {
		select {
		case <-c.broken:
			cancel()
		case <-ctx.Done():
		}
	})
	go c.safely(func() { c.watchCRDs(ctx) }) // A reflector may sleep for a minute before it ends.
	if c.looker.other != nil {
		go c.safely(func() { c.looker.other.watch(ctx, c) })
	}
	wg.Go(func() { c.safely(func() { c.looker.run(ctx) }) })
	wg.Go(func() { c.safely(func() { queues.Work(ctx, c.teller.queue, c.teller.write) }) })

	var stop func() // ends the current term
	defer func() {
		if stop != nil {
			stop()
		}
	}()
	for {
		select {
		case <-ctx.Done():
			return
		case v := <-c.looker.views:
			if stop != nil {
				logger.Info("The controller starts anew: what the API server has, has changed", "controller", c.cfg.Name)
				stop()
			}
			stop = c.begin(ctx, v)
		}
	}
}

// begin starts a term, and returns a function that ends it; nil if the view permits none.
func (c *Controller) begin(ctx context.Context, v view) (stop func()) {
	logger := klog.FromContext(ctx)
	switch {
	case v.yields != "":
		c.health.waitFor(problem{What: v.yields})
		logger.Info("The controller stands by", "controller", c.cfg.Name, "why", v.yields)
		return nil
	case len(v.missing) > 0:
		p := problem{What: "these kinds, which the API server does not have: " + strings.Join(v.missing, ", ") + ". To install them, " + applyCRDs}
		if c.health.waitFor(p) {
			logger.Info("The controller waits", "controller", c.cfg.Name, "for", p.What)
		}
		return nil
	}
	ctx, cancel := context.WithCancel(ctx)
	t := c.newTerm(v)
	var wg sync.WaitGroup
	wg.Go(func() { c.safely(func() { t.run(ctx) }) })
	return func() {
		cancel()
		wg.Wait()
	}
}

// served is Parts.Served.
func (c *Controller) served(kind *Kind) (apiVersion string, ok bool) {
	if t := c.running.Load(); t != nil {
		apiVersion, ok = t.view.served[kind]
	}
	return apiVersion, ok
}

// current calls f with the term that runs, under its lock; it does not if there is none, or if it is broken.
func (c *Controller) current(f func(*term)) (whole bool) {
	t := c.running.Load()
	return t != nil && t.works.Load() && c.Err() == nil && t.lock.withWhole(func() { f(t) })
}

// safely calls f unless something has panicked before. A panic ends this controller, because its state may be half changed.
func (c *Controller) safely(f func()) {
	select {
	case <-c.broken:
		return
	default:
	}
	defer func() {
		if r := recover(); r != nil {
			if err, ok := r.(error); !ok || !errors.Is(err, ErrTorn) {
				klog.Background().Error(nil, "Panic: the controller does nothing until it has started again, which it does by itself. This is a defect: report it with this line",
					"controller", c.cfg.Name, "panic", r, "stack", string(debug.Stack()))
			}
			c.health.breaks(r)
			c.breaking.Do(func() {
				panics.WithLabelValues(c.cfg.Name).Inc()
				close(c.broken)
			})
		}
	}()
	f()
}

var crds = schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}

var errNoCRDs = errors.New("CustomResourceDefinitions have not been read yet")

// watchCRDs lets the looker look when a CustomResourceDefinition changes. It reads only their metadata.
func (c *Controller) watchCRDs(ctx context.Context) {
	const what = "CustomResourceDefinitions"
	seen := map[string]metav1.Object{}
	heard := func(object metav1.Object, gone bool) {
		c.looker.heardCRD(object, gone)
		if delete(seen, object.GetName()); !gone && c.looker.concerns(object.GetName()) {
			seen[object.GetName()] = object
		}
	}
	s := &sink{
		shows: func(object metav1.Object) { heard(object, false) },
		gone:  func(object metav1.Object) { heard(object, true) },
		known: func() (all []metav1.Object) {
			for _, object := range seen {
				all = append(all, object)
			}
			return all
		},
		goneSince: func(object metav1.Object) { heard(object, true) },
		synced:    make(chan struct{}),
	}
	go func() {
		select {
		case <-s.synced:
			c.looker.heardAllCRDs()
		case <-ctx.Done():
		}
	}()
	lw := listWatch(c.crds, "", func(err error) { c.noteRead(ctx, what, err) })
	reflect(ctx, what, lw, s)
}

// noteRead notes the result of a request that reads.
func (c *Controller) noteRead(ctx context.Context, what string, err error) {
	var p problem
	if err != nil {
		p = whyNot(err)
	}
	changed := c.health.read(what, p)
	switch {
	case changed && err != nil:
		klog.FromContext(ctx).Error(err, "Changes are not seen", "of", what, "why", p.What)
	case changed:
		klog.FromContext(ctx).Info("Changes are seen again", "of", what)
	}
}

// DebuggingHandler serves the state of the controller as JSON.
func (c *Controller) DebuggingHandler() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		page := debugPage{Controller: c.cfg.Name, Time: c.now().UTC(), Served: map[string]string{}}
		if err := c.Check(r); err != nil {
			page.Problem = err.Error()
		}
		var body []byte
		c.current(func(t *term) {
			for kind, version := range t.view.served {
				page.Served[kind.Name] = version
			}
			page.State = t.logic.Show()
			body = Encode(page) // The state may only be read under its lock.
		})
		if body == nil {
			body = Encode(page)
		}
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("X-Content-Type-Options", "nosniff")
		_, _ = w.Write(append(body, '\n'))
	})
}

// debugPage is the JSON of the debug page.
type debugPage struct {
	Controller string    `json:"controller"`
	Time       time.Time `json:"time"`
	// Problem is what the health check says.
	Problem string `json:"problem,omitempty"`
	// Served are the API versions of the kinds that the controller reads.
	Served map[string]string `json:"served"`
	State  any               `json:"state,omitempty"`
}

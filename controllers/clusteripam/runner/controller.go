package runner

import (
	"context"
	"errors"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/controller-manager/pkg/healthz"
	"k8s.io/klog/v2"

	"github.com/multicidr/controller-manager/controllers/events"
	"github.com/multicidr/controller-manager/controllers/lease"
	"github.com/multicidr/controller-manager/controllers/queues"
	"github.com/multicidr/controller-manager/controllers/writes"
)

// Controller runs Logics, one per term. Run may be called once.
type Controller struct {
	cfg         Config
	dynamic     dynamic.Interface
	kubernetes  kubernetes.Interface
	health      health
	events      *events.Writer
	definitions map[*Kind]cache.Store // of the kinds that are read
	other       *other                // nil: no other program matters
	running     atomic.Pointer[Logic] // nil while nothing works
}

// New returns a controller. It does no I/O.
func New(cfg Config) (*Controller, error) {
	if cfg.Fence == nil {
		cfg.Fence = &lease.Fence{}
	}
	c := &Controller{cfg: cfg, health: health{waitsFor: starts, failures: map[Key]*failure{}}}
	if cfg.Other != nil {
		c.other = &other{Other: *cfg.Other}
	}
	config := rest.CopyConfig(cfg.Client)
	config.ContentType, config.AcceptContentTypes = "application/json", "application/json" // the only ones for custom resources
	var errs [2]error
	c.dynamic, errs[0] = dynamic.NewForConfig(config)
	c.kubernetes, errs[1] = kubernetes.NewForConfig(config)
	return c, errors.Join(errs[:]...)
}

// Name implements the manager's interface for controllers.
func (c *Controller) Name() string { return c.cfg.Name }

// HealthChecker reports an error that says what to do, as long as the controller cannot do all of its work.
func (c *Controller) HealthChecker() healthz.UnnamedHealthChecker { return c }

// Run runs until ctx is done. It returns when everything it started has ended, including writes, except informers: a reflector may sleep for
// a minute before it ends.
func (c *Controller) Run(ctx context.Context) {
	logger := klog.FromContext(ctx)
	logger.Info("Starting controller", "controller", c.cfg.Name)
	defer logger.Info("Stopped controller", "controller", c.cfg.Name)
	defer show(c)()
	c.events = events.New(c.kubernetes, c.cfg.Name)
	defer c.events.Start()()
	if c.watch(ctx) {
		c.terms(ctx)
	}
}

// term runs one Logic until ctx is done. It returns when every write has ended.
func (c *Controller) term(ctx context.Context, served map[*Kind]string) {
	defer utilruntime.HandleCrashWithContext(ctx)
	defer c.health.forget()
	if !c.waitWrites(ctx) {
		return
	}
	t, lines := c.newTerm(served), lines{}
	for kind := range c.cfg.Workers {
		lines[kind] = queues.New[Key](strings.ReplaceAll(c.cfg.Name, "-", "_")+"_"+kind.Resource, queues.RetryMax)
		context.AfterFunc(ctx, lines[kind].ShutDown)
	}
	t.Queue = lines
	logic := c.cfg.New(t)
	if c.read(ctx, t) {
		c.running.Store(&logic)
		defer c.running.Store(nil)
		c.health.waitFor("")
		klog.FromContext(ctx).Info("Read everything, starting to work", "controller", c.cfg.Name, "kinds", len(served))
	}
	var wg sync.WaitGroup
	for kind, workers := range c.cfg.Workers {
		for range workers {
			wg.Go(func() {
				defer utilruntime.HandleCrashWithContext(ctx)
				// After the end, the workers empty the queue, whose length is a metric that the next term's queue continues.
				queues.Work(context.WithoutCancel(ctx), lines[kind], func(_ context.Context, key Key) error {
					if ctx.Err() != nil {
						return nil
					}
					return c.sync(ctx, t, key, logic.Reconcile(ctx, key))
				})
			})
		}
	}
	wg.Wait()
}

// newTerm returns a term without a queue.
func (c *Controller) newTerm(served map[*Kind]string) *Term {
	reads := map[*Kind]Reads{}
	for _, r := range c.cfg.Reads {
		reads[r.Kind] = r
	}
	t := &Term{
		Served: func(kind *Kind) (string, bool) {
			if _, read := reads[kind]; !read {
				return kind.apiVersion(kind.Versions[0]), true
			}
			version, ok := served[kind]
			return kind.apiVersion(version), ok
		},
		Unanswered: c.cfg.Fence.Unanswered,
		Took:       func(d time.Duration) { tookSeconds.WithLabelValues(c.cfg.Name).Observe(d.Seconds()) },
	}
	t.Event = func(about metav1.Object, kind *Kind, normal bool, reason, message string) {
		tell := c.events.Warn
		if normal {
			tell = c.events.Note
		}
		tell(v1.ObjectReference{
			APIVersion: kind.apiVersion(served[kind]), Kind: kind.Name, Namespace: about.GetNamespace(), Name: about.GetName(), UID: about.GetUID(),
		}, reason, message)
	}
	t.API = &client{rest: c.kubernetes.CoreV1().RESTClient(), manager: c.cfg.Name, served: t.Served, fence: c.cfg.Fence, wrote: c.countWrite}
	t.informer = func(kind *Kind, transform cache.TransformFunc) cache.SharedIndexInformer {
		return c.informer(kind, served[kind], reads[kind].Namespace, "", transform)
	}
	return t
}

// lines are the queues of a term.
type lines map[*Kind]queues.Queue[Key]

func (l lines) Add(key Key)                       { l[key.Kind].Add(key) }
func (l lines) AddAfter(key Key, d time.Duration) { l[key.Kind].AddAfter(key, d) }

// waitWrites returns when no unanswered write of this process can be carried out any more; false if ctx was done before. The Logic that sent
// them and knew what is in them is gone, so everything must be read after that.
func (c *Controller) waitWrites(ctx context.Context) bool {
	const interval = 50 * time.Millisecond
	return wait.PollUntilContextCancel(ctx, interval, true, func(context.Context) (bool, error) {
		if c.cfg.Fence.Unanswered() <= 0 {
			return true, nil
		}
		c.health.waitFor("writes from before the controller started again, which got no answer and may still be carried out")
		return false, nil
	}) == nil
}

// read returns when everything that exists was passed to the Logic; false if ctx was done before.
func (c *Controller) read(ctx context.Context, t *Term) bool {
	synced := map[string]cache.InformerSynced{}
	for kind, f := range t.Feeds {
		if f.informer != nil {
			handler, _ := f.informer.AddEventHandler(f.Handler) // It fails only for an informer that has ended.
			synced[kind.plural()] = handler.HasSynced
			go f.informer.RunWithContext(ctx)
		}
	}
	for _, kinds := range slices.Sorted(maps.Keys(synced)) {
		c.health.waitFor("all " + kinds + " to be read")
		if !cache.WaitForCacheSync(ctx.Done(), synced[kinds]) {
			return false
		}
	}
	return true
}

// reasonFails is the reason of events about objects on which the work fails.
const reasonFails = "WriteFailed"

// sync notes the result of the work on an object, and returns what the queue gets.
func (c *Controller) sync(ctx context.Context, t *Term, key Key, err error) error {
	tell := c.did(ctx, key, err)
	if !failed(err) {
		return err
	}
	klog.FromContext(ctx).V(4).Info("The work on an object fails", "kind", key.Kind.Name, "object", klog.KRef(key.Namespace, key.Name), "err", err)
	if f := t.Feeds[key.Kind]; tell && f != nil {
		if object, ok, _ := f.Indexer.GetByKey(cache.NewObjectName(key.Namespace, key.Name).String()); ok {
			t.Event(object.(metav1.Object), key.Kind, false, reasonFails, problem(err))
		}
	}
	return writes.RefusedLater{Err: err}
}

// DebuggingHandler serves the state of the controller as JSON.
func (c *Controller) DebuggingHandler() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		page := struct {
			Controller string    `json:"controller"`
			Time       time.Time `json:"time"`
			// Problem is what the health check says.
			Problem string `json:"problem,omitempty"`
			State   any    `json:"state,omitempty"`
		}{Controller: c.cfg.Name, Time: time.Now().UTC()}
		if err := c.Check(r); err != nil {
			page.Problem = err.Error()
		}
		if now := c.running.Load(); now != nil {
			page.State = (*now).Show()
		}
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("X-Content-Type-Options", "nosniff")
		_, _ = w.Write(append(encode(page), '\n'))
	})
}

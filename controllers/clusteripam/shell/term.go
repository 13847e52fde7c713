package shell

import (
	"context"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/dynamic"
	"k8s.io/klog/v2"

	"github.com/multicidr/controller-manager/controllers/queues"
	"github.com/multicidr/controller-manager/controllers/writes"
)

// unansweredInterval is how often the start of a term looks whether an unanswered write is over.
const unansweredInterval = 50 * time.Millisecond

// term is one Logic and what feeds it, for as long as the API server serves the same kinds in the same versions.
type term struct {
	c       *Controller
	view    view
	lock    *Lock
	feed    Feed
	logic   Logic
	sources map[*Kind]Source // those whose kind is served
	queues  map[*Kind]queues.Queue[Key]
	works   atomic.Bool // the state is filled
}

func (c *Controller) newTerm(v view) *term {
	t := &term{c: c, view: v, lock: &Lock{}, sources: map[*Kind]Source{}, queues: map[*Kind]queues.Queue[Key]{}}
	for _, line := range c.cfg.Lines {
		t.queues[line.Kind] = queues.New[Key](c.metricsName()+"_"+queueName(line.Kind), queues.RetryMax)
	}
	t.logic = c.cfg.Logic(Parts{
		API:   &fenced{API: c.clients, fence: c.cfg.Fence, sources: t.sources, note: c.countWrite},
		Lock:  t.lock,
		Now:   c.now,
		Queue: t,
		Served: func(kind *Kind) (string, bool) {
			version, ok := v.served[kind]
			return version, ok
		},
		Tell: c.teller.tell,
		Took: func(d time.Duration) { tookSeconds.WithLabelValues(c.cfg.Name).Observe(d.Seconds()) },
	})
	for _, source := range t.logic.Reads() {
		if kind := source.Reads().Kind; v.served[kind] != "" {
			t.sources[kind] = source
		}
	}
	t.feed = Feed{Lock: t.lock, Logic: t.logic}
	return t
}

// queueName is the name of a kind in the name of its queue.
func queueName(kind *Kind) string {
	if kind.Resource != "" {
		return kind.Resource
	}
	return kind.Name
}

// Add implements Queue.
func (t *term) Add(key Key) { t.queues[key.Kind].Add(key) }

// AddAfter implements Queue.
func (t *term) AddAfter(key Key, d time.Duration) { t.queues[key.Kind].AddAfter(key, d) }

// run reads everything, and then works until ctx is done. It returns when every write has ended.
func (t *term) run(ctx context.Context) {
	c, logger := t.c, klog.FromContext(ctx)
	defer c.health.forget()
	defer t.empty()
	if !t.waitWrites(ctx) {
		return
	}
	c.running.Store(t)
	defer c.running.Store(nil)
	if !t.read(ctx) {
		return
	}
	t.feed.Fill()
	t.works.Store(true)
	c.health.waitFor(problem{})
	logger.Info("Read everything, starting to work", "controller", c.cfg.Name, "kinds", len(t.sources))

	var wg sync.WaitGroup
	for _, line := range c.cfg.Lines {
		queue := t.queues[line.Kind]
		context.AfterFunc(ctx, queue.ShutDown)
		for range line.Workers {
			wg.Go(func() { c.safely(func() { queues.Work(ctx, queue, t.sync) }) })
		}
	}
	wg.Wait()
}

// waitWrites returns when no unanswered write of this process can be carried out any more; false if ctx was done before. The Logic that sent
// them and knew what is in them is gone, so everything must be read after that.
func (t *term) waitWrites(ctx context.Context) bool {
	return wait.PollUntilContextCancel(ctx, unansweredInterval, true, func(context.Context) (bool, error) {
		if t.c.cfg.Fence.Unanswered() <= 0 {
			return true, nil
		}
		t.c.health.waitFor(problem{What: "writes from before the controller started anew, which got no answer and may still be carried out"})
		return false, nil
	}) == nil
}

// read returns when the Stores show everything that exists; false if ctx was done before.
func (t *term) read(ctx context.Context) bool {
	var sinks []*sink
	kinds := slices.SortedFunc(maps.Keys(t.sources), func(a, b *Kind) int { return len(a.Name) - len(b.Name) })
	for _, kind := range kinds {
		source := t.sources[kind]
		s := &sink{
			shows: func(object metav1.Object) { t.shows(ctx, source, object) },
			gone: func(object metav1.Object) {
				t.safely(ctx, func() { t.feed.Gone(source, t.decode(ctx, source, object)) })
			},
			known:     source.known,
			listed:    source.listed,
			goneSince: func(object metav1.Object) { t.safely(ctx, func() { t.feed.Gone(source, object) }) },
			synced:    make(chan struct{}),
		}
		lw := listWatch(t.client(source.Reads()), source.Reads().Name, func(err error) {
			t.c.noteRead(ctx, kind.plural(), err)
			if err != nil {
				t.c.looker.again() // Perhaps the kind is gone.
			}
		})
		go t.c.safely(func() { reflect(ctx, kind.Name, lw, s) })
		sinks = append(sinks, s)
	}
	for i, s := range sinks {
		t.c.health.waitFor(problem{What: "all " + kinds[i].plural() + " to be read"})
		select {
		case <-s.synced:
		case <-ctx.Done():
			return false
		}
	}
	return true
}

// safely passes on an event, unless the term is over: a reflector may end later.
func (t *term) safely(ctx context.Context, f func()) {
	if ctx.Err() == nil {
		t.c.safely(f)
	}
}

func (t *term) client(r Reads) dynamic.ResourceInterface {
	gv, _ := schema.ParseGroupVersion(t.view.served[r.Kind])
	of := t.c.dynamic.Resource(r.Kind.resource(gv.Version))
	if r.Namespace != "" {
		return of.Namespace(r.Namespace)
	}
	return of
}

func (t *term) shows(ctx context.Context, source Source, object metav1.Object) {
	t.safely(ctx, func() { t.feed.Shows(source, t.decode(ctx, source, object)) })
}

// decode converts an object. One that cannot be converted completely is reported, and stops nothing.
func (t *term) decode(ctx context.Context, source Source, object metav1.Object) metav1.Object {
	decoded, err := source.decode(object.(*unstructured.Unstructured))
	if err != nil {
		kind := source.Reads().Kind
		klog.FromContext(ctx).Error(err, "An object has fields that cannot be read: what it holds stays taken", "kind", kind.Name, "object", klog.KObj(object))
		t.c.teller.tell(Event{About: object, Kind: kind, Reason: "Unreadable", Message: "Some fields cannot be read: " + err.Error() + ". Correct or delete this object"})
	}
	return decoded
}

// sync calls Logic.Sync, and notes the result.
func (t *term) sync(ctx context.Context, key Key) error {
	err := t.logic.Sync(ctx, key)
	t.c.countSync(key.Kind, err)
	news, tell, p := t.c.health.synced(key, err)
	switch {
	case news && p.What != "":
		klog.FromContext(ctx).Info("An object cannot be handled, will try again", "kind", key.Kind.Name, "object", klog.KRef(key.Namespace, key.Name), "why", p.String())
	case news:
		klog.FromContext(ctx).Info("Objects can be handled again", "kind", key.Kind.Name)
	}
	if source, ok := t.sources[key.Kind]; ok && tell {
		if object := source.find(key.Namespace, key.Name); object != nil {
			t.c.teller.tell(Event{About: object, Kind: key.Kind, Reason: reasonFails, Message: p.String()})
		}
	}
	if p.What != "" {
		return writes.RefusedLater{Err: err} // which is logged above, once
	}
	return err
}

// empty empties the queues, whose length metrics the next term's queues continue.
func (t *term) empty() {
	for _, queue := range t.queues {
		queue.ShutDown()
		for {
			key, none := queue.Get()
			if none {
				break
			}
			queue.Done(key)
		}
	}
}

package health

import (
	"context"
	"errors"
	"fmt"
	"math"
	"reflect"
	"slices"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
)

const (
	// unseenFor is how long reads must fail before that counts as a problem: an API server that restarts is away for less. The failure is
	// reported at the next failing attempt after that, which comes soon if the API server cannot be reached (see again), else within a minute.
	unseenFor = 10 * time.Second
	// unanswered is how long a read may run before it counts as failed, and is given up if no answer has begun. The API server ends a list
	// after a minute, and sends something on each watch about once a minute. So a proxy that delays the start of an answer is not reported.
	unanswered = 2 * time.Minute
	// open is how long a watch without events must stay open before it counts as working. Informers use the same time.
	open = time.Second
	// opening is how long a watch may take to open until changes count as not seen. The API server answers at once, whether something has
	// changed or not, unless it has too much to do. Then a client can wait for minutes, in which nobody hears of an error.
	opening = time.Second
)

// Errors of reads that fail without an error.
var (
	errEnded      = errors.New("the watch ended, and had told nothing")
	errCut        = errors.New("the watch ended early")
	errUnanswered = fmt.Errorf("no answer for %v", unanswered)
	errOpening    = errors.New("a watch is requested and not open yet")
)

// Watches knows which kinds of objects cannot be read, for the health check. An informer does not report all errors, and not when they end.
// So Watches creates the informers, with lists and watches that it monitors. Informers are shared, so there is one Watches per informer
// factory and not one per Controller. The zero value monitors nothing.
type Watches struct {
	mu    sync.Mutex
	kinds []*Changes
	lists Lists // see TellLists
}

// Lists hears of each list of Nodes before the informer does.
type Lists interface {
	// ListBegins is called when a list begins. An earlier one that has not ended never will.
	ListBegins()
	// ListHas is called with Nodes of the list.
	ListHas(nodes ...*v1.Node)
	// ListLacks is called with a Node that the list had, and that is gone before it ends.
	ListLacks(node string)
	// ListEnds is called when the list is complete.
	ListEnds()
}

// TellLists makes to hear of lists of Nodes until the returned function is called. There is one at a time, as there is one Controller.
func (w *Watches) TellLists(to Lists) (stop func() error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.lists = to
	return func() error {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.lists = nil
		return nil
	}
}

// tell calls f if somebody wants to hear of lists.
func (w *Watches) tell(f func(Lists)) {
	w.mu.Lock()
	lists := w.lists
	w.mu.Unlock()
	if lists != nil {
		f(lists)
	}
}

// listed tells of a page of a list.
func (w *Watches) listed(opts metav1.ListOptions, page *v1.NodeList) {
	w.tell(func(l Lists) {
		if opts.Continue == "" {
			l.ListBegins()
		}
		nodes := make([]*v1.Node, len(page.Items))
		for i := range page.Items {
			nodes[i] = &page.Items[i]
		}
		l.ListHas(nodes...)
		if page.Continue == "" {
			l.ListEnds()
		}
	})
}

// watched tells of a watch that begins with a list.
func (w *Watches) watched(event watch.Event) {
	w.tell(func(l Lists) {
		if node, ok := event.Object.(*v1.Node); ok {
			switch event.Type {
			case watch.Added, watch.Modified:
				l.ListHas(node)
			case watch.Deleted: // since the API server read the list
				l.ListLacks(node.Name)
			}
		}
		if endsList(event) {
			l.ListEnds()
		}
	})
}

// endsList reports whether an event ends the list that a watch begins with.
func endsList(event watch.Event) bool {
	node, ok := event.Object.(*v1.Node)
	return ok && event.Type == watch.Bookmark && node.Annotations[metav1.InitialEventsAnnotationKey] == "true"
}

// Nodes creates the informer of Nodes. It must not exist yet: the reads of an informer that other code created are not monitored. It reports
// whether they are.
func (w *Watches) Nodes(factory informers.SharedInformerFactory) bool {
	return makeInformer(w, "Nodes", factory, v1.SchemeGroupVersion.WithResource("nodes"), &v1.Node{},
		func(client kubernetes.Interface) reader[*v1.NodeList] { return toldNodes{client.CoreV1().Nodes(), w} })
}

// toldNodes reads Nodes and tells of lists.
type toldNodes struct {
	reader[*v1.NodeList]
	watches *Watches
}

func (n toldNodes) List(ctx context.Context, opts metav1.ListOptions) (*v1.NodeList, error) {
	page, err := n.reader.List(ctx, opts)
	if err == nil {
		n.watches.listed(opts, page)
	}
	return page, err
}

func (n toldNodes) Watch(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error) {
	inner, err := n.reader.Watch(ctx, opts)
	if err != nil || !beginsWithList(opts) {
		return inner, err
	}
	n.watches.tell(Lists.ListBegins)
	listing := true
	return watch.Filter(inner, func(event watch.Event) (watch.Event, bool) {
		if listing {
			n.watches.watched(event)
			listing = !endsList(event)
		}
		return event, true
	}), nil
}

// beginsWithList reports whether a watch begins with the existing objects. A bookmark ends them.
func beginsWithList(opts metav1.ListOptions) bool {
	return opts.SendInitialEvents != nil && *opts.SendInitialEvents
}

// ServiceCIDRs creates the informer of ServiceCIDRs in the same way.
func (w *Watches) ServiceCIDRs(factory informers.SharedInformerFactory) bool {
	return makeInformer(w, "ServiceCIDRs", factory, networkingv1.SchemeGroupVersion.WithResource("servicecidrs"), &networkingv1.ServiceCIDR{},
		func(client kubernetes.Interface) reader[*networkingv1.ServiceCIDRList] {
			return client.NetworkingV1().ServiceCIDRs()
		})
}

// reader is the part of a typed client that an informer needs.
type reader[L runtime.Object] interface {
	List(context.Context, metav1.ListOptions) (L, error)
	Watch(context.Context, metav1.ListOptions) (watch.Interface, error)
}

// identify gives an informer the name that the factory's own informers have in client-go's metrics. v0.35 has no such names, and neither the
// field nor the method, which is why this asks for both.
func identify(options *cache.SharedIndexInformerOptions, factory any, resource schema.GroupVersionResource) {
	field := reflect.ValueOf(options).Elem().FieldByName("Identifier")
	name := reflect.ValueOf(factory).MethodByName("InformerName")
	if field.IsValid() && name.IsValid() {
		field.Set(name.Call(nil)[0].MethodByName("WithResource").Call([]reflect.Value{reflect.ValueOf(resource)})[0])
	}
}

// makeInformer creates the same informer as the factory would, except that its reads are monitored. They are not if the factory has it already.
func makeInformer[L runtime.Object](
	w *Watches, kind string, factory informers.SharedInformerFactory,
	resource schema.GroupVersionResource, object runtime.Object, of func(kubernetes.Interface) reader[L],
) (monitored bool) {
	c := NewChanges(kind, nil)
	made := false
	factory.InformerFor(object, func(client kubernetes.Interface, resync time.Duration) cache.SharedIndexInformer {
		made = true
		reader := of(client)
		options := cache.SharedIndexInformerOptions{ResyncPeriod: resync, Indexers: cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc}}
		identify(&options, factory, resource)
		return cache.NewSharedIndexInformerWithOptions(
			cache.ToListWatcherWithWatchListSemantics(&cache.ListWatch{
				ListWithContextFunc: func(ctx context.Context, opts metav1.ListOptions) (runtime.Object, error) {
					return Listed(ctx, c, opts, reader.List)
				},
				WatchFuncWithContext: func(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error) {
					return c.Watched(ctx, opts, reader.Watch)
				},
			}, client),
			object, options)
	})
	if !made {
		return w.Of(kind) != nil // for an earlier Controller of this process
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.kinds = append(w.kinds, c)
	return true
}

// Of returns the Changes of a kind; nil if this has not made its informer.
func (w *Watches) Of(kind string) *Changes {
	w.mu.Lock()
	defer w.mu.Unlock()
	if i := slices.IndexFunc(w.kinds, func(c *Changes) bool { return c.kind == kind }); i >= 0 {
		return w.kinds[i]
	}
	return nil
}

// unseen says which kinds of changes are not seen.
func (w *Watches) unseen() (problems []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, c := range w.kinds {
		if problem := c.unseen(); problem != "" {
			problems = append(problems, problem)
		}
	}
	return problems
}

// Changes is whether the changes of one kind of object are seen.
type Changes struct {
	kind string
	note func(context.Context, error) // see NewChanges; may be nil
	gap  gap

	mu sync.Mutex
	// since is when the first failed read since the last working watch began; zero if none failed.
	since time.Time
	err   error // of the last failed read
	told  bool  // it counts as a problem
}

func (c *Changes) unseen() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.told {
		return ""
	}
	return fmt.Sprintf("changes of %s are not seen: %v, since %s", c.kind, readProblem(c.err), c.since.UTC().Format(time.RFC3339))
}

// readProblem says why changes are not seen and what to do about it.
func readProblem(err error) Problem {
	var status apierrors.APIStatus
	switch {
	case apierrors.IsNotFound(err):
		return Problem{"the API server does not have them: see whether its --runtime-config turns them off, or whether an older API server answers, too", err}
	case apierrors.IsForbidden(err), apierrors.IsUnauthorized(err):
		return Problem{"the API server does not let this process watch them: " + ApplyRBAC, err}
	case apierrors.IsTooManyRequests(err):
		return Problem{"the API server turns requests away: see whether it is overloaded, and its priority and fairness rules", err}
	case errors.Is(err, errOpening):
		return Problem{"the API server has not opened a watch yet: see whether it is overloaded, and look at the network", err}
	case errors.Is(err, errEnded):
		return Problem{"watches end as soon as they begin: look at the network, at proxies and load balancers before the API server, and at its log", err}
	case errors.As(err, &status):
		return Problem{"the API server fails, or a proxy before it: look at its log and at etcd", err}
	default:
		return Problem{"the API server cannot be reached or understood: look at the network, and at proxies and load balancers before it", err}
	}
}

// NewChanges returns the Changes of an informer that is not shared. note is called with the error of each read that fails, and with nil when a
// watch works; one call at a time, in that order.
func NewChanges(kind string, note func(context.Context, error)) *Changes {
	return &Changes{kind: kind, note: note, gap: gap{optional: kind == optionalKind}}
}

// Listed makes a list for an informer.
func Listed[L any](ctx context.Context, c *Changes, opts metav1.ListOptions, list func(context.Context, metav1.ListOptions) (L, error)) (all L, err error) {
	again(ctx, func() error {
		r := c.begin(ctx, forever)
		defer r.cancel()
		if all, err = list(r.ctx, opts); err != nil {
			r.fails(err)
		} else {
			r.ends()
		}
		return err
	})
	return all, err
}

// answersLate is how long after its end a watch is given up. A proxy can hold back the answer of the API server, which ends each watch, and an
// informer waits for it.
const answersLate = 30 * time.Second

// Watched begins a watch for an informer.
func (c *Changes) Watched(ctx context.Context, opts metav1.ListOptions, begin func(context.Context, metav1.ListOptions) (watch.Interface, error)) (w watch.Interface, err error) {
	again(ctx, func() error {
		if w, err = c.watchedOnce(ctx, opts, begin); beginsWithList(opts) && errors.As(err, new(apierrors.APIStatus)) {
			return nil // An informer lists instead, which may work.
		}
		return err
	})
	return w, err
}

func (c *Changes) watchedOnce(ctx context.Context, opts metav1.ListOptions, begin func(context.Context, metav1.ListOptions) (watch.Interface, error)) (watch.Interface, error) {
	lasts, limit := time.Duration(0), forever
	if opts.TimeoutSeconds != nil {
		lasts = time.Duration(*opts.TimeoutSeconds) * time.Second
		limit = lasts + answersLate
	}
	lists := beginsWithList(opts)
	r := c.begin(ctx, limit)
	if !lists {
		defer time.AfterFunc(opening, r.opensLate).Stop()
	}
	inner, err := begin(r.ctx, opts)
	if err == nil {
		r.opens()
	}
	switch {
	case lists && apierrors.IsInvalid(err):
		r.ends() // An older API server cannot begin with a list. The informer makes one itself.
	case err != nil:
		r.fails(err)
	default:
		return r.follow(inner, lists, lasts), nil
	}
	r.cancel()
	return nil, err
}

// forever is the limit of a read that is given up only if it is not answered.
const forever time.Duration = math.MaxInt64

// begin notes the beginning of a list or a watch, which is given up after limit, and if it is not answered. An informer runs one at a time.
func (c *Changes) begin(ctx context.Context, limit time.Duration) *read {
	r := &read{Changes: c, began: time.Now()}
	r.ctx, r.cancel = context.WithTimeout(ctx, limit)
	r.mu.Lock() // which the timer waits for, so that it sees itself
	defer r.mu.Unlock()
	r.overdue = time.AfterFunc(unanswered, func() {
		lost := !r.isOpen()
		if r.fail(errUnanswered, lost); lost {
			r.cancel()
		}
	})
	return r
}

// read is a list or a watch whose outcome is not known yet.
type read struct {
	*Changes
	ctx     context.Context
	cancel  context.CancelFunc
	began   time.Time
	overdue *time.Timer

	// Guarded by Changes.mu:
	over   bool // the outcome is known
	opened bool // it is a watch, and the API server has begun to answer
}

// fails notes an error and ends the read.
func (r *read) fails(err error) { r.fail(err, true) }

func (r *read) fail(err error, over bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.over {
		return
	}
	if over {
		r.end()
	}
	if r.ctx.Err() != nil {
		return // The informer is stopping, or this read has been given up.
	}
	r.gap.begins(err)
	if r.since.IsZero() {
		r.since = r.began
	}
	r.err = err
	if r.note != nil {
		r.note(r.ctx, err)
		return
	}
	if !r.told && time.Since(r.since) >= unseenFor {
		r.told = true
		klog.FromContext(r.ctx).Error(err, "Changes of "+r.kind+" are not seen: "+readProblem(err).What)
	}
}

// opensLate notes that a watch is not open yet.
func (r *read) opensLate() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.over && !r.opened && r.ctx.Err() == nil {
		r.gap.begins(errOpening)
	}
}

// opens notes that a watch is open.
func (r *read) opens() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.opened = true
}

func (r *read) isOpen() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.opened
}

// runs notes a working watch.
func (r *read) runs() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.over {
		return
	}
	r.end()
	if r.note != nil {
		r.note(r.ctx, nil)
	}
	if r.told {
		klog.FromContext(r.ctx).Info("Watching " + r.kind + " again")
	}
	r.since, r.err, r.told = time.Time{}, nil, false
}

// ends notes a successful list. That alone does not end a failure: a watch must follow.
func (r *read) ends() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.end()
}

func (r *read) end() {
	r.over = true
	r.overdue.Stop()
}

// follow returns a watch that forwards the events of inner and notes whether it works. If lists is true, the watch begins with the existing
// objects, and works only once a bookmark says that they are complete. lasts is how long the API server was asked to keep the watch open: an
// end before that is a gap.
func (r *read) follow(inner watch.Interface, lists bool, lasts time.Duration) watch.Interface {
	f := &followed{Interface: inner, events: make(chan watch.Event), stopped: make(chan struct{})}
	if !lists {
		r.gap.ends()
	}
	go func() {
		defer r.cancel()
		defer close(f.events)
		if !lists {
			stays := time.AfterFunc(open, r.runs)
			defer stays.Stop()
		}
		for event := range inner.ResultChan() {
			switch {
			case event.Type == watch.Error:
				err := apierrors.FromObject(event.Object)
				r.fails(err)
				r.breaks(f, err)
			case event.Type == watch.Bookmark, !lists:
				if lists {
					r.gap.ends()
					lists = false
				}
				r.runs()
			}
			select {
			case f.events <- event:
			case <-f.stopped: // No receiver is left, and inner is stopping.
			}
		}
		if time.Since(r.began) < lasts-lasts/100 { // The clock of the API server may be a little faster.
			r.breaks(f, errCut)
		}
		r.fails(errEnded)
	}()
	return f
}

// breaks notes that a watch, which may have worked, breaks off.
func (r *read) breaks(f *followed, err error) {
	select {
	case <-f.stopped: // by the informer
	default:
		if r.ctx.Err() == nil {
			r.gap.begins(err)
		}
	}
}

type followed struct {
	watch.Interface
	events  chan watch.Event
	once    sync.Once
	stopped chan struct{}
}

func (f *followed) ResultChan() <-chan watch.Event { return f.events }

func (f *followed) Stop() {
	f.once.Do(func() { close(f.stopped) })
	f.Interface.Stop()
}

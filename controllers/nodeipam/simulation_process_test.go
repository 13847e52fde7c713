package nodeipam

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"iter"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-logr/logr"
	v1 "k8s.io/api/core/v1"
	networkingapiv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	corelisters "k8s.io/client-go/listers/core/v1"
	networkinglisters "k8s.io/client-go/listers/networking/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"

	applyv1 "github.com/multicidr/controller-manager/apis/generated/applyconfiguration/networking/v1"
	clustercidrlisters "github.com/multicidr/controller-manager/apis/generated/listers/networking/v1"
	networkingv1 "github.com/multicidr/controller-manager/apis/networking/v1"
	"github.com/multicidr/controller-manager/controllers/ipam"
	"github.com/multicidr/controller-manager/controllers/lease"
	"github.com/multicidr/controller-manager/controllers/nodeipam/fresh"
	"github.com/multicidr/controller-manager/controllers/nodeipam/health"
	"github.com/multicidr/controller-manager/controllers/nodeipam/takeover"
	"github.com/multicidr/controller-manager/controllers/queues"
	"github.com/multicidr/controller-manager/controllers/writes"
)

// A simulated process: the real Controller with caches, queues, clocks and an API server that move only when the
// simulation says so.

// process is one run of a controller manager.
type process struct {
	w    *world
	name string
	// flags is what --cluster-cidr stands for; nil if it is not set.
	flags *networkingv1.ClusterCIDRSpec
	// The clocks: asleep is how long the monotonic one stood still, shifted how far the wall clock was set.
	asleep, shifted time.Duration

	election   election
	controller *Controller // from when the lease is won
	caches     map[kind]*simCache
	queues     map[string]*simQueue
	tasks      []*task
	asOf       string // the resource version of a consistent read after the lease was won; empty before
	mute       bool   // its caches cannot tell how new they are
	serving    bool   // the workers have started
	broken     bool   // its controller has panicked, and the next one is not built yet
	rebuilt    bool   // it is not the first controller of this process
	paused     bool   // it does nothing, as after SIGSTOP; its clocks go on
	stopping   bool   // told to end: what runs may finish
	seen       *view
	lastSaid   map[types.UID]string // the last event on a Node that waits, by the Node's UID
	chosen     map[types.UID]int    // how often blocks were chosen for it
	// listedFirst are Nodes with podCIDRs that a list showed before a handler heard of them.
	listedFirst []*v1.Node
	// missed is what it has to know after gaps, and caughtUp how many gaps of each kind it knows to be over. unsent are the Nodes for which blocks
	// were chosen and never sent.
	missed   map[kind]missed
	caughtUp map[kind]int
	unsent   map[types.UID]bool
	turns    turnsSeen
}

// boot starts a process. made, if not nil, is what its --cluster-cidr stands for.
func (w *world) boot(name string, made *networkingv1.ClusterCIDRSpec) {
	w.booted++
	p := &process{w: w, name: name, flags: made}
	p.election = p.newElection()
	w.processes = append(w.processes, p)
	if w.alone {
		p.lead()
	}
}

// monotonic and wall are what the clocks of the process's machine show.
func (p *process) monotonic() time.Duration { return p.w.elapsed - p.asleep }
func (p *process) wall() time.Duration      { return p.w.elapsed + p.shifted }

func (p *process) time() time.Time { return epoch.Add(p.monotonic()) }

// lead makes the controller, as a process does that has won the lease.
func (p *process) lead() {
	p.caches, p.queues, p.lastSaid, p.chosen = map[kind]*simCache{}, map[string]*simQueue{}, map[types.UID]string{}, map[types.UID]int{}
	p.seen = newView(p.w.serviceRanges, p.flags)
	p.seen.kept, p.listedFirst, p.missed, p.unsent, p.turns = p.kept, nil, map[kind]missed{}, map[types.UID]bool{}, turnsSeen{}
	p.caughtUp = map[kind]int{}
	for _, k := range kinds {
		p.caches[k] = &simCache{kind: k, objects: map[string]metav1.Object{}}
	}
	p.controller = newController(Config{ServiceRanges: p.w.serviceRanges, FromFlags: p.flags, PrimaryFamily: p.w.primary, Workers: 3, Fence: simFence{p.election.fence, p}}, parts{
		api:          simAPI{p},
		now:          p.time,
		nodes:        nodeLister{p.caches[kindNode]},
		clusterCIDRs: clusterCIDRLister{p.caches[kindClusterCIDR]},
		serviceCIDRs: serviceCIDRLister{p.caches[kindServiceCIDR]},
		newQueue: func(of string, _ time.Duration) queues.Queue[string] {
			q := &simQueue{p: p, yields: of == "events", processing: map[string]bool{}, delayed: map[string]delay{}, failures: map[string]int{}}
			p.queues[of] = q
			return q
		},
	})
	p.sees()
}

// The names of the queues, as newController gives them, in the order of Controller.lines.
var lineNames = []string{string(kindClusterCIDR), "status", string(kindNode), "events"}

// fresh reports whether the caches are filled, and as new as the controller wants them for a start.
func (p *process) fresh() bool {
	if p.broken {
		return false
	}
	if p.asOf == "" {
		return false // the start reads once before it comes to this
	}
	for _, k := range kinds {
		if !p.caches[k].listed {
			return false
		}
	}
	c := p.controller
	fresh := fresh.Wait(noTime, &c.health,
		fresh.Cache{Contents: c.nodeContents(), AsOf: p.asOf, Version: c.nodesVersion},
		fresh.Cache{Contents: c.clusterCIDRContents(), AsOf: p.asOf, Version: c.clusterCIDRsVersion})
	if fresh && p.mute {
		p.w.cover("fresh caches that cannot tell")
	}
	return fresh
}

// noTime is a context for functions that wait, to make them look once.
var noTime = func() context.Context {
	ctx, cancel := context.WithCancel(klog.NewContext(context.Background(), logr.Discard()))
	cancel()
	return ctx
}()

// readFresh is the consistent read after the lease was won.
func (p *process) readFresh() bool {
	if p.controller == nil || p.asOf != "" || p.w.server.crdGone || !p.writesAreOver() {
		return false
	}
	p.asOf = strconv.Itoa(p.w.server.revision())
	return true
}

// start is what Controller.start does once the caches have filled. It reports whether the workers may start.
func (p *process) start() bool {
	if p.controller == nil || p.serving || !p.fresh() || !p.writesOfBeforeAreOver() {
		return false
	}
	p.controller.nodesAsOf = p.asOf
	if err := p.controller.readAll(p.w.ctx); err != nil {
		panic(err)
	}
	for _, k := range kinds {
		c := p.caches[k]
		for _, name := range slices.Sorted(maps.Keys(c.objects)) {
			c.heard = max(c.heard, versionOf(c.objects[name]))
		}
		if k == kindNode && len(c.objects) == 0 {
			c.heard = wordToInt(p.asOf)
		}
		for _, name := range slices.Sorted(maps.Keys(c.objects)) {
			p.see(k, name)
		}
	}
	p.serving = true
	if p.rebuilt {
		p.w.cover("the controller serves again after a panic")
	}
	p.check()
	return true
}

// writesOfBeforeAreOver is whether no write of the process before can arrive any more, where there is no leader election.
func (p *process) writesOfBeforeAreOver() bool {
	if !p.w.alone {
		return true
	}
	c := p.controller
	leader := takeover.Leader{Term: p.election.fence, Nodes: c.nodes, Contents: c.nodeContents(), Health: &c.health, Now: c.now}
	over := leader.Wait(noTime)
	if !over {
		p.w.cover(waitsForWritesOfBefore)
	}
	return over
}

const waitsForWritesOfBefore = "a start without leader election waits for writes of the process before"

// simCache is what an informer knows: the objects of one kind as of one revision.
type simCache struct {
	kind     kind
	listed   bool
	revision int
	objects  map[string]metav1.Object
	// unheard are the events that handlers have not been called for: the cache runs ahead of them.
	unheard []simEvent
	// heard is the highest resource version of which they have been.
	heard int
	gap   health.Gap
}

// watched reports whether a watch brings changes.
func (c *simCache) watched() bool { return c.listed && !c.gap.Open }

// simEvent is what a handler is called with. before is nil for an object that is new, now for one that is gone.
type simEvent struct {
	name        string
	before, now metav1.Object
	listed      bool // found by a list
}

// advance brings the cache to a revision. It returns the events of that.
func (c *simCache) advance(s *simServer, revision int) (events []simEvent) {
	for i, change := range s.changes[c.revision:revision] {
		if change.kind != c.kind {
			continue
		}
		e := simEvent{change.name, c.objects[change.name], change.object, false}
		if change.object == nil {
			delete(c.objects, change.name)
			if e.before == nil {
				continue
			}
			e.before = copyOf(e.before)
			e.before.SetResourceVersion(strconv.Itoa(c.revision + i + 1)) // of the deletion
		} else {
			c.objects[change.name] = change.object
		}
		events = append(events, e)
	}
	c.revision = revision
	return events
}

// ahead reports whether an object in the cache is newer than what handlers were called for.
func (c *simCache) ahead(o metav1.Object) bool { return versionOf(o) > c.heard }

func versionOf(o metav1.Object) int {
	version, err := strconv.Atoi(o.GetResourceVersion())
	if err != nil {
		panic(err)
	}
	return version
}

// behind is how many changes the cache has not seen.
func (c *simCache) behind(s *simServer) int {
	n := 0
	for _, change := range s.changes[c.revision:] {
		if change.kind == c.kind {
			n++
		}
	}
	return n
}

// deliver brings the next changes, at most n, as watch events; without any left the cache learns by a bookmark how new it is.
func (p *process) deliver(k kind, n int) []simEvent {
	events := p.cache(k, n)
	p.hear(k, len(p.caches[k].unheard))
	return events
}

// cache brings the next changes into the cache, and no handler is called yet.
func (p *process) cache(k kind, n int) []simEvent {
	c := p.caches[k]
	revision := c.revision
	for i, change := range p.w.server.changes[c.revision:] {
		if change.kind == k {
			revision = c.revision + i + 1
			if n--; n == 0 {
				break
			}
		}
	}
	if n > 0 {
		revision = p.w.server.revision()
	}
	events := c.advance(p.w.server, revision)
	c.unheard = append(c.unheard, events...)
	return events
}

// judgeListed: what a list shows is not given to others.
func (p *process) judgeListed(name string, blocks []netip.Prefix) {
	for _, n := range p.listedFirst {
		if now := p.w.server.objects[kindNode][n.Name]; n.Name != name && now != nil && now.GetUID() == n.UID && overlap(blocks, prefixes(n.Spec.PodCIDRs)) {
			p.w.violate("invariant 7", "%s writes %v to Node %s, and a list that it has read shows that %s has %v", p.name, blocks, name, n.Name, n.Spec.PodCIDRs)
		}
	}
}

// hear calls the handlers for the next n events.
func (p *process) hear(k kind, n int) {
	c := p.caches[k]
	for range n {
		e := c.unheard[0]
		c.unheard = c.unheard[1:]
		if p.broken {
			continue
		}
		p.handle(k, e)
		if p.serving {
			p.seeEvent(k, e)
		}
		if p.serving && p.w.violation == nil {
			p.check() // after each of them, because each may be followed by choices
		}
	}
}

func (p *process) handle(k kind, e simEvent) {
	switch k {
	case kindNode:
		var before, now any // and not interfaces with nil in them
		if e.before != nil {
			before = e.before
		}
		if e.listed && e.now == nil {
			before = cache.DeletedFinalStateUnknown{Key: e.name, Obj: e.before} // as client-go tells what a list lacks
		}
		if e.listed && e.before != nil && p.serving && (e.now == nil || e.now.GetUID() != e.before.GetUID()) {
			p.w.cover("a list lacks a Node")
		}
		if e.now != nil {
			now = e.now
		}
		p.controller.heardOfNode(e.name, before, now)
		if p.w.notices {
			p.controller.noticeOther(before, now)
		}
	case kindClusterCIDR:
		p.controller.heardOfClusterCIDR(e.name)
	case kindServiceCIDR:
		p.controller.heardOfServiceCIDR(e.name)
	}
}

// list replaces the cache by a list as of a revision. What came and went since the cache was filled leaves no event. Of a Node that was
// created again the real informer tells by one update, which puts the blocks of the first one in doubt for as long as it takes to renew the
// lease (TestDoubt); here it is two events, and no doubt. Handlers are called later if they are behind.
func (p *process) list(k kind, revision int, behind bool) {
	c := p.caches[k]
	before := maps.Clone(c.objects)
	c.listed = true
	changed := map[string]bool{}
	for _, e := range c.advance(p.w.server, max(revision, c.revision)) {
		changed[e.name] = true
	}
	if k == kindNode {
		p.controller.ListBegins()
		// A watch that begins with a list may have a Node that goes before the list ends. Handlers never hear of it.
		p.controller.ListHas(&v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "short-lived", UID: "short-lived"}, Spec: v1.NodeSpec{PodCIDRs: []string{"203.0.113.0/24"}}})
		p.controller.ListLacks("short-lived")
		for _, o := range c.objects {
			node := o.(*v1.Node)
			p.controller.ListHas(node)
			if p.serving && len(node.Spec.PodCIDRs) > 0 && p.seen.nodes[node.Name] == nil {
				p.listedFirst = append(p.listedFirst, node)
			}
		}
		if p.controller.ListEnds(); p.serving && p.w.violation == nil {
			p.check()
		}
	}
	for _, name := range slices.Sorted(maps.Keys(changed)) {
		if was, is := before[name], c.objects[name]; was != is {
			c.unheard = append(c.unheard, simEvent{name, was, is, true})
		}
	}
	if !behind {
		p.hear(k, len(c.unheard))
	}
}

func list[O any](c *simCache, selector labels.Selector) (all []O, err error) {
	for _, name := range slices.Sorted(maps.Keys(c.objects)) {
		if o := c.objects[name]; selector.Matches(labels.Set(o.GetLabels())) {
			all = append(all, o.(O))
		}
	}
	return all, nil
}

func get[O any](c *simCache, name string) (o O, err error) {
	o, ok := c.objects[name].(O)
	if !ok {
		return o, apierrors.NewNotFound(c.kind.resource(), name)
	}
	return o, nil
}

// Listers of a cache, in the order of names: the real ones list in an order of their own each time.
type (
	nodeLister struct{ *simCache }

	clusterCIDRLister struct{ *simCache }

	serviceCIDRLister struct{ *simCache }
)

var (
	_ corelisters.NodeLister               = nodeLister{}
	_ clustercidrlisters.ClusterCIDRLister = clusterCIDRLister{}
	_ networkinglisters.ServiceCIDRLister  = serviceCIDRLister{}
)

func (l nodeLister) List(s labels.Selector) ([]*v1.Node, error) { return list[*v1.Node](l.simCache, s) }
func (l nodeLister) Get(name string) (*v1.Node, error)          { return get[*v1.Node](l.simCache, name) }

func (l clusterCIDRLister) List(s labels.Selector) ([]*networkingv1.ClusterCIDR, error) {
	return list[*networkingv1.ClusterCIDR](l.simCache, s)
}

func (l clusterCIDRLister) Get(name string) (*networkingv1.ClusterCIDR, error) {
	return get[*networkingv1.ClusterCIDR](l.simCache, name)
}

func (l serviceCIDRLister) List(s labels.Selector) ([]*networkingapiv1.ServiceCIDR, error) {
	return list[*networkingapiv1.ServiceCIDR](l.simCache, s)
}

func (l serviceCIDRLister) Get(name string) (*networkingapiv1.ServiceCIDR, error) {
	return get[*networkingapiv1.ServiceCIDR](l.simCache, name)
}

// simQueue is a workqueue in simulated time, from which the simulation takes whatever name it likes: the order in which
// many workers come to an end is anybody's guess.
type simQueue struct {
	workqueue.TypedRateLimitingInterface[string] // nil: the controller calls nothing but what is below

	p          *process
	yields     bool     // what is put off is put off for others, which a moment in which all is done does not wait for
	waiting    []string // each once
	processing map[string]bool
	delayed    map[string]delay
	failures   map[string]int
	next       string // what Get returns
}

type delay struct {
	until time.Duration // on the monotonic clock
	retry bool          // of something that failed, or met a closed fence
}

func (q *simQueue) Add(name string) {
	if !slices.Contains(q.waiting, name) {
		q.waiting = append(q.waiting, name)
	}
}

func (q *simQueue) AddAfter(name string, d time.Duration) {
	q.addAfter(name, d, q.yields || !q.p.mayWrite())
}

func (q *simQueue) AddRateLimited(name string) {
	d := min(queues.RetryFirst<<min(q.failures[name], 30), queues.RetryMax)
	q.failures[name]++
	q.addAfter(name, d, true)
}

func (q *simQueue) addAfter(name string, d time.Duration, retry bool) {
	if d <= 0 {
		q.Add(name)
		return
	}
	until := q.p.monotonic() + d
	before, ok := q.delayed[name]
	if ok { // The earlier one stays, and it is what tries again.
		until, retry = min(until, before.until), retry || before.retry
	}
	q.delayed[name] = delay{until, retry}
}

func (q *simQueue) Len() int { return len(q.waiting) }

func (q *simQueue) NumRequeues(name string) int { return q.failures[name] }

func (q *simQueue) Forget(name string) { delete(q.failures, name) }

func (q *simQueue) Get() (string, bool) {
	q.waiting = slices.DeleteFunc(q.waiting, func(name string) bool { return name == q.next })
	q.processing[q.next] = true
	return q.next, false
}

func (q *simQueue) Done(name string) { delete(q.processing, name) }

// expire makes what was delayed for long enough wait; retries at once if the simulation wants none left.
func (q *simQueue) expire(retries bool) {
	for _, name := range slices.Sorted(maps.Keys(q.delayed)) {
		if d := q.delayed[name]; d.until <= q.p.monotonic() || retries && d.retry {
			delete(q.delayed, name)
			q.Add(name)
		}
	}
}

// ready returns the names that a worker could take now.
func (q *simQueue) ready() (names []string) {
	q.expire(false)
	for _, name := range q.waiting {
		if !q.processing[name] {
			names = append(names, name)
		}
	}
	return names
}

// task is a worker with one name in its hands, or an elector at one try. It is a coroutine: it runs, alone in the world, until it calls
// the API server, and goes on when the simulation lets the call return.
type task struct {
	p      *process
	line   string // of the queue, or "lease"
	name   string
	call   *call            // what it waits for
	yield  func(*call) bool // hands a call to the simulation; false: the process is killed
	resume func() (*call, bool)
	kill   func()
}

// call is one request to the API server.
type call struct {
	task *task
	what string
	// handle is what the server does on arrival.
	handle func(*simServer) error
	// over is from when on the server cannot carry the request out any more, by the time of the whole simulation. It counts the timeout
	// of a request from its expectation, and the request can be held up on its way.
	over    time.Duration
	arrived bool
	answer  error
}

var (
	errKilled  = errors.New("the process was killed")
	errTimeout = &timeoutError{}
)

type timeoutError struct{}

func (*timeoutError) Error() string   { return "context deadline exceeded" }
func (*timeoutError) Timeout() bool   { return true }
func (*timeoutError) Temporary() bool { return true }

// spawn starts a task and runs it up to its first call.
func (p *process) spawn(line, name string, run func()) *task {
	t := &task{p: p, line: line, name: name}
	t.resume, t.kill = iter.Pull(func(yield func(*call) bool) {
		t.yield = yield
		defer func() {
			if r := recover(); r != nil && !health.PanickedWith(errKilled, r) && !health.PanickedWith(health.ErrTorn, r) {
				panic(r)
			}
		}()
		run()
	})
	p.tasks = append(p.tasks, t)
	t.goOn()
	return t
}

// goOn lets a task run up to its next call or its end.
func (t *task) goOn() {
	t.p.w.current = t
	if t.p.broken && t.line != "lease" {
		t.p.w.cover("a worker goes on after a panic")
	}
	var more bool
	if t.call, more = t.resume(); !more {
		t.p.tasks = slices.DeleteFunc(t.p.tasks, func(o *task) bool { return o == t })
	}
	if t.p.serving && t.p.w.violation == nil {
		t.p.check()
	}
}

const requestsSent = "requests to the API server"

// do makes a call to the API server: it returns when the simulation brings an answer.
func (p *process) do(what string, handle func(*simServer) error) error {
	c := &call{task: p.w.current, what: what, handle: handle, over: p.over()}
	p.w.cover(requestsSent)
	if c.task.line != "lease" {
		p.w.writes++
	}
	if !c.task.yield(c) {
		panic(errKilled)
	}
	return c.answer
}

// transit is how long a request is at most on its way to the server before the server counts its timeout.
const transit = leaseDuration / 3

// over is when a request that is sent now is over, as far as that is promised: when the lease runs out that is good now. It is not over before it has
// been on its way, and at the server, for as long as that may take: whoever sends it has to see to it that the lease is good until then.
func (p *process) over() time.Duration {
	if p.w.alone {
		return p.w.elapsed + lease.OverWithoutLease(writes.Timeout)
	}
	if p.election.renewalSent == 0 {
		return p.w.elapsed + writes.Timeout
	}
	return max(p.w.elapsed+transit+writes.Timeout, p.election.renewalSent+leaseDuration)
}

// writesNode reports whether a PATCH of a Node is about to be sent.
func (p *process) writesNode() bool {
	return slices.ContainsFunc(p.tasks, func(t *task) bool { return !t.call.arrived && strings.HasPrefix(t.call.what, "patch Node") })
}

// task finds the task that has a name in its hands.
func (p *process) task(line, name string) *task {
	if i := slices.IndexFunc(p.tasks, func(t *task) bool { return t.line == line && t.name == name }); i >= 0 {
		return p.tasks[i]
	}
	return nil
}

// run lets a worker take a name from a queue.
func (p *process) run(line, name string) bool {
	i := slices.Index(lineNames, line)
	if i < 0 {
		return false // a history of before
	}
	l := p.controller.lines()[i]
	q := p.queues[line]
	busy := 0
	for _, t := range p.tasks {
		if t.line == line {
			busy++
		}
	}
	if !p.serving || p.stopping || busy >= l.workers || !slices.Contains(q.ready(), name) {
		return false
	}
	p.see(kind(line), name)
	q.next = name
	p.spawn(line, name, func() { queues.WorkOne(p.w.ctx, l.queue, l.sync) })
	if _, waits := p.controller.listed.Waits(name); waits && p.controller.seen.Missed() != "" {
		p.w.cover("a Node waits for what was missed")
	}
	return true
}

// die ends a process between two instructions. What it has sent is on its way.
func (p *process) die() {
	for _, t := range p.tasks {
		t.kill()
	}
	p.tasks = nil
	p.w.processes = slices.DeleteFunc(p.w.processes, func(o *process) bool { return o == p })
}

// simAPI is the API server as one process sees it.
type simAPI struct{ p *process }

func (a simAPI) GetNode(_ context.Context, name string) (node *v1.Node, err error) {
	err = a.p.do("get Node "+name, func(s *simServer) error {
		if node = s.node(name); node == nil {
			return apierrors.NewNotFound(kindNode.resource(), name)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	a.p.gotNode(node)
	return node, nil
}

func (a simAPI) PatchNode(_ context.Context, name string, patch []byte) error {
	write := a.p.willPatchNode(name, patch)
	err := a.p.do("patch Node "+name, func(s *simServer) error { return s.PatchNode(name, patch) })
	a.p.patchedNode(write, err)
	return err
}

func (a simAPI) CreateClusterCIDR(_ context.Context, cc *networkingv1.ClusterCIDR) (*networkingv1.ClusterCIDR, error) {
	return cc, a.p.do("create ClusterCIDR "+cc.Name, func(s *simServer) error {
		if s.crdGone {
			return notServed(cc.Name)
		}
		if s.clusterCIDR(cc.Name) != nil {
			return apierrors.NewAlreadyExists(kindClusterCIDR.resource(), cc.Name)
		}
		s.create(kindClusterCIDR, cc.DeepCopy())
		return nil
	})
}

func (a simAPI) PatchClusterCIDR(_ context.Context, name string, patch []byte) error {
	a.p.willPatchClusterCIDR(name, patch)
	return a.p.do("patch ClusterCIDR "+name, func(s *simServer) error { return s.PatchClusterCIDR(name, patch) })
}

func (a simAPI) DeleteClusterCIDR(_ context.Context, name string, uid types.UID, resourceVersion string) error {
	err := a.p.do("delete ClusterCIDR "+name, func(s *simServer) error {
		switch cc := s.clusterCIDR(name); {
		case s.crdGone:
			return notServed(name)
		case cc == nil:
			return apierrors.NewNotFound(kindClusterCIDR.resource(), name)
		case cc.UID != uid, cc.ResourceVersion != resourceVersion:
			return apierrors.NewConflict(kindClusterCIDR.resource(), name, errors.New("uid or resourceVersion mismatch"))
		default:
			a.p.w.deletesClusterCIDR(cc)
		}
		s.delete(kindClusterCIDR, name)
		return nil
	})
	if apierrors.IsForbidden(err) && a.p.flags == nil {
		a.p.w.notDeleted[uid] = true
	}
	return err
}

func (a simAPI) ApplyStatus(_ context.Context, patch *applyv1.ClusterCIDRApplyConfiguration) (stored networkingv1.ClusterCIDRStatus, err error) {
	var cc networkingv1.ClusterCIDR
	if text, err := json.Marshal(patch); err != nil {
		return stored, err
	} else if err := json.Unmarshal(text, &cc); err != nil {
		return stored, err
	}
	err = a.p.do("apply status of ClusterCIDR "+cc.Name, func(s *simServer) error {
		err := s.ApplyStatus(cc.Name, cc.UID, cc.Status)
		if now := s.clusterCIDR(cc.Name); now != nil {
			stored = now.Status
		}
		return err
	})
	return stored, err
}

func (a simAPI) PatchStatus(_ context.Context, name string, patch []byte) error {
	return a.p.do("patch status of ClusterCIDR "+name, func(s *simServer) error { return s.PatchStatus(name, patch) })
}

func (a simAPI) CreateEvent(_ context.Context, event *v1.Event) error {
	a.p.willCreateEvent(event)
	chosen := a.p.chosen[event.InvolvedObject.UID]
	err := a.p.do("create event "+event.Reason+" of "+event.InvolvedObject.Name, func(s *simServer) error { return s.CreateEvent(event) })
	a.p.said(event, chosen, err)
	return err
}

func (a simAPI) PatchEvent(_ context.Context, _, name string, patch []byte) (*v1.Event, error) {
	event := a.p.w.server.events[name]
	chosen := 0
	if event != nil {
		chosen = a.p.chosen[event.InvolvedObject.UID]
	}
	err := a.p.do("patch event "+name, func(s *simServer) error { return s.PatchEvent(name) })
	event = a.p.w.server.events[name]
	if event != nil && bytes.Contains(patch, []byte("lastTimestamp")) { // The other patch only reads.
		a.p.said(event, chosen, err)
	}
	return event, err
}

// kept is what the controller keeps for Nodes that a list lacks.
func (p *process) kept() (all []ipam.Holding) {
	if p.controller != nil {
		all = keptBlocks(p.controller.state)
	}
	return all
}

// undecided reports whether the lease has to be renewed before a doubt is over.
func (p *process) undecided() bool {
	return p.controller != nil && len(keptBlocks(p.controller.state)) > 0
}

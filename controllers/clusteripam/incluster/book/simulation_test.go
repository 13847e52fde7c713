package book

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/multicidr/controller-manager/apis/clusterapi/v1alpha2"
	"github.com/multicidr/controller-manager/apis/clusterapi/v1beta2"
	"github.com/multicidr/controller-manager/controllers/internal/race"
)

// The simulation: books in processes that take turns to lead, a server, and users, with faults everywhere. A seed always makes the same
// history. What is judged is what the server has, not what a book says.
var (
	firstFlag = flag.Uint64("simulation.first", 1, "the seed of the first history")
	seedsFlag = flag.Uint64("simulation.seeds", race.Part(uint64(2000)), "how many histories TestSimulation makes")
	movesFlag = flag.Int("simulation.moves", 300, "how many moves each has")
	seedFlag  = flag.Uint64("simulation.seed", 0, "make the history of this seed only, and print it")
	// The mutants' runner sets these for all simulations.
	_ = flag.Bool("simulation.shrink", true, "has no effect here")
	_ = flag.Bool("simulation.outside", true, "has no effect here: only the server's contents are judged")
	_ = flag.String("simulation.judge", "", "has no effect here")
)

var epoch = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// A write is over when the API server can no longer carry it out: after its way there and its deadline. The lease outlasts it.
const (
	leaseLasts = 15 * time.Second
	writeOver  = 10 * time.Second
)

type world struct {
	elapsed   time.Duration
	server    *simServer
	processes []*process
	booted    int
	prunes    bool // the CRD of the pools is not ours and drops conditions
	focused   bool // one full pool, many lost requests, and claims that come and go
	// leader is who has the lease, until leaseUntil.
	leader     *process
	leaseUntil time.Duration
	network    []*flight // of processes that have ended or given up on them
	arriving   *flight
	writes     int

	// lastUse is who last had an address of a pool from us, by pool and address.
	lastUse map[string]*use
	// kept are the processes that saw an IPAddress when it was forced away, by pool and address. They allocate the address to nobody else.
	kept map[string][]keeper
	// mixed are the places of IPAddresses that another program made.
	mixed map[string]bool
	// stripped are the names of claims where somebody took away finalizers by force, or made IPAddresses by hand: promises about them end.
	stripped map[Key]bool
	// altered are the IPAddresses whose spec somebody has edited, and former the places that they had.
	altered map[types.UID]bool
	former  map[string]bool
	// elsewhere are the claims that somebody has edited so that they name a pool of another provider.
	elsewhere map[types.UID]bool
	// edited are the pools that were changed or deleted since they were made.
	edited map[Key]bool
	specs  map[Key][]v1alpha2.InClusterIPPoolSpec // all that a pool ever had

	trace     []string
	violation string
	covered   map[string]int
}

type use struct {
	claim *v1beta2.IPAddressClaim
	key   Key
}

type keeper struct {
	p *process
	use
}

func (w *world) now() time.Time { return epoch.Add(w.elapsed) }

func (w *world) note(format string, args ...any) {
	w.trace = append(w.trace, fmt.Sprintf("%8v ", w.elapsed)+fmt.Sprintf(format, args...))
}

func (w *world) violate(format string, args ...any) {
	if w.violation == "" {
		w.violation = fmt.Sprintf(format, args...)
		w.note("VIOLATION %s", w.violation)
	}
}

func (w *world) cover(what string) { w.covered[what]++ }

// process is one run of the controller: a book, its caches and its requests.
type process struct {
	w       *world
	name    string
	book    *Book
	asOf    int            // the revision of a consistent read after the lease was acquired
	seen    map[string]int // by kind: up to which revision
	started bool
	renewed time.Duration
	queue   map[Key]bool
	timers  map[Key]time.Duration
	flights []*flight
	paused  bool
}

// flight is a request on its way.
type flight struct {
	p       *process
	key     Key // of the work
	request *Request
	sent    time.Duration
	arrived bool
	answer  Answer
}

func (p *process) busy(k Key) bool {
	return slices.ContainsFunc(p.flights, func(f *flight) bool { return f.key == k })
}

// show tells the book about one object of a cache.
func show(b *Book, key Key, o, before metav1.Object) {
	switch o := o.(type) {
	case *v1beta2.IPAddressClaim:
		b.SetClaim(o)
	case *v1beta2.IPAddress:
		b.SetAddress(o)
	case *Pool:
		b.SetPool(o)
	case *simCluster:
		b.SetCluster(o.Namespace, o.Name, o.Paused)
	case nil:
		switch key.Kind {
		case kindClaim:
			b.ClaimGone(key.Namespace, key.Name, before.GetUID())
		case kindAddress:
			b.AddressGone(key.Namespace, key.Name, before.GetUID())
		case kindCluster:
			b.ClusterGone(key.Namespace, key.Name)
		default:
			b.PoolGone(key, before.GetUID())
		}
	}
}

// lists fills the book, each kind from a revision of its own that is not older than the consistent read.
func (p *process) lists(d *rand.Rand) {
	p.book = New()
	p.book.SetClustersServed(true)
	for _, kind := range []string{kindPool, kindGlobal, kindCluster, kindAddress, kindClaim} {
		at := p.asOf
		if behind := p.w.server.revision() - at; behind > 0 {
			at += d.IntN(behind + 1)
		}
		p.seen[kind] = at
		objects := map[Key]metav1.Object{}
		for _, c := range p.w.server.changes[:at] {
			if c.key.Kind != kind {
				continue
			}
			if objects[c.key] = c.object; c.object == nil {
				delete(objects, c.key)
			}
		}
		keys := make([]Key, 0, len(objects))
		for k := range objects {
			keys = append(keys, k)
		}
		slices.SortFunc(keys, Compare)
		for _, k := range keys {
			show(p.book, k, objects[k], nil)
		}
	}
	p.book.Start()
	p.started = true
	p.changes()
}

// deliver passes on the next change of a kind. together skips all but the last of the changes of one object, as a list does after a watch
// has failed: an object that was deleted and created anew is one update then.
func (p *process) deliver(kind string, n int, together bool) {
	end := p.seen[kind]
	for left := n; left > 0 && end < p.w.server.revision(); end++ {
		if p.w.server.changes[end].key.Kind == kind {
			left--
		}
	}
	for ; n > 0 && p.seen[kind] < p.w.server.revision(); n-- {
		i := p.seen[kind]
		p.seen[kind]++
		c := p.w.server.changes[i]
		if c.key.Kind != kind {
			n++
			continue
		}
		if together {
			later := slices.ContainsFunc(p.w.server.changes[i+1:max(end, i+1)], func(o change) bool { return o.key == c.key })
			if later && c.object != nil {
				continue
			}
			if later && c.object == nil { // only the last creation shows, unless nothing comes after
				p.w.cover("changes seen as one")
				continue
			}
		}
		show(p.book, c.key, c.object, c.before)
		if together && c.object == nil { // whatever UID the book knows is gone
			p.forget(c.key)
		}
		p.changes()
	}
}

// forget tells the book that nothing of a name exists, as an informer does after a list.
func (p *process) forget(k Key) {
	switch k.Kind {
	case kindClaim:
		if c, ok := p.book.claims[k]; ok {
			p.book.ClaimGone(k.Namespace, k.Name, c.uid())
		}
	case kindAddress:
		if a, ok := p.book.addresses[ClaimKey(k.Namespace, k.Name)]; ok {
			p.book.AddressGone(k.Namespace, k.Name, a.object.UID)
		}
	case kindPool, kindGlobal:
		if o, ok := p.book.pools[k]; ok && o.object != nil {
			p.book.PoolGone(k, o.object.UID)
		}
	}
}

func (p *process) changes() {
	for _, k := range p.book.Changes() {
		p.queue[k] = true
	}
}

// mayWrite is the fence: a request may be sent while the lease outlasts it.
func (p *process) mayWrite() bool {
	return p.renewed+leaseLasts > p.w.elapsed+writeOver
}

// work takes a key and sends the next request about it.
func (p *process) work(k Key) {
	delete(p.queue, k)
	delete(p.timers, k)
	var n Next
	if k.Kind == kindClaim {
		n = p.book.NextForClaim(k, p.w.now())
	} else {
		n = p.book.NextForPool(k, p.w.now())
	}
	p.changes()
	if !n.Again.IsZero() {
		p.timers[k] = n.Again.Sub(epoch)
	}
	for _, e := range n.Events {
		p.w.cover("event: " + e.Reason)
	}
	if n.Request == nil {
		return
	}
	p.w.writes++
	f := &flight{p: p, key: k, request: n.Request, sent: p.w.elapsed}
	if !p.mayWrite() && n.Request.Verb != Read {
		p.w.cover("the fence is closed")
		p.finish(f, Answer{Result: NotSent})
		return
	}
	p.flights = append(p.flights, f)
}

// arrive carries a request out, unless it is too late.
func (w *world) arrive(f *flight) {
	f.arrived = true
	if w.elapsed > f.sent+writeOver {
		f.answer = Answer{Result: Unknown}
		w.cover("a request arrived after its deadline")
		return
	}
	w.arriving = f
	f.answer = w.server.serve(f.request)
	w.note("%s: %v (%s): %v", f.p.name, f.request, f.request.What, f.answer.Result)
	w.cover(f.request.What + ": " + f.answer.Result.String())
}

// finish hands an answer to the book.
func (p *process) finish(f *flight, a Answer) {
	p.flights = slices.DeleteFunc(p.flights, func(o *flight) bool { return o == f })
	if a.Result == Unknown && a.Until.IsZero() {
		a.Until = epoch.Add(f.sent + writeOver)
	}
	p.book.Done(f.request, a, p.w.now())
	if p.changes(); a.Result == Stored {
		p.queue[f.key] = true
	} else {
		p.timers[f.key] = p.w.elapsed + time.Second // the back-off
	}
}

// fail answers a request as a fault does.
func (p *process) fail(f *flight, d *rand.Rand) {
	switch f.arrived {
	case false:
		switch d.IntN(3) {
		case 0: // it may still arrive
			late := *f
			p.w.network = append(p.w.network, &late)
			p.w.cover("late request")
			p.finish(f, Answer{Result: Unknown})
		case 1:
			p.w.cover("rejected")
			p.finish(f, Answer{Result: Rejected, Why: "a webhook refused it"})
		default:
			p.finish(f, Answer{Result: NotSent})
		}
	case true:
		p.w.cover("lost answer")
		p.finish(f, Answer{Result: Unknown})
	}
}

func newWorld(prunes bool) *world {
	w := &world{elapsed: time.Hour, prunes: prunes, lastUse: map[string]*use{}, kept: map[string][]keeper{}, mixed: map[string]bool{}, stripped: map[Key]bool{}, edited: map[Key]bool{},
		elsewhere: map[types.UID]bool{}, altered: map[types.UID]bool{}, former: map[string]bool{}, specs: map[Key][]v1alpha2.InClusterIPPoolSpec{}, covered: map[string]int{}}
	w.server = &simServer{w: w, objects: map[Key]metav1.Object{}}
	return w
}

func (w *world) boot() *process {
	w.booted++
	p := &process{w: w, name: fmt.Sprintf("p%d", w.booted), seen: map[string]int{}, queue: map[Key]bool{}, timers: map[Key]time.Duration{}}
	w.processes = append(w.processes, p)
	w.leader, w.leaseUntil, p.renewed = p, w.elapsed+leaseLasts, w.elapsed
	p.asOf = w.server.revision()
	w.note("%s leads", p.name)
	return p
}

func (w *world) end(p *process) {
	for _, f := range p.flights {
		if !f.arrived {
			w.network = append(w.network, f)
		}
	}
	w.processes = slices.DeleteFunc(w.processes, func(o *process) bool { return o == p })
	if w.leader == p {
		w.leader = nil
	}
	w.note("%s ends", p.name)
}

// generate makes a history from a seed.
func generate(seed uint64, moves int) *world {
	d := rand.New(rand.NewPCG(seed, 2))
	w := newWorld(d.IntN(3) == 0)
	calm := 1 + d.IntN(30)
	if w.focused = d.IntN(3) == 0; w.focused {
		calm = 1 + d.IntN(4)
	}
	for range 3 {
		w.userPool(d)
	}
	for i := 0; i < moves && w.violation == ""; i++ {
		w.move(d, calm)
	}
	if w.violation == "" {
		w.quiesce(d)
	}
	return w
}

// move makes one random move.
func (w *world) move(d *rand.Rand, calm int) {
	if w.leader == nil && w.elapsed > w.leaseUntil && d.IntN(2) == 0 || w.leader != nil && w.elapsed > w.leaseUntil && len(w.processes) < 3 && d.IntN(3) == 0 {
		w.boot()
		return
	}
	if d.IntN(4) == 0 {
		w.user(d)
		return
	}
	if d.IntN(12) == 0 {
		times := []time.Duration{time.Millisecond, 100 * time.Millisecond, time.Second, time.Second, 5 * time.Second, 11 * time.Second, 30 * time.Second}
		if w.focused && d.IntN(5) > 0 {
			times = times[:3]
		}
		w.elapsed += pick(d, times)
		if p := w.leader; p != nil && !p.paused && d.IntN(4) > 0 {
			p.renew()
		}
		return
	}
	if len(w.network) > 0 && (d.IntN(10) == 0 && !w.focused || d.IntN(40) == 0) {
		i := d.IntN(len(w.network))
		f := w.network[i]
		w.network = slices.Delete(w.network, i, i+1)
		w.arrive(f)
		return
	}
	if len(w.processes) == 0 {
		w.elapsed += time.Second
		return
	}
	p := w.processes[d.IntN(len(w.processes))]
	if p.paused {
		p.paused = d.IntN(10) > 0
		return
	}
	switch n := d.IntN(100); {
	case n < 10 && w.leader == p:
		p.renew()
	case n < 10:
		if w.elapsed > p.renewed+leaseLasts { // it notices that it is deposed
			w.end(p)
		}
	case n < 12 && d.IntN(calm) == 0:
		w.cover("crash")
		w.end(p)
	case n < 13:
		p.paused = true
	case !p.started:
		p.lists(d)
	case n < 30:
		p.run(d, 1+d.IntN(30))
	case n < 50:
		p.deliver(kinds[d.IntN(len(kinds))], 1+d.IntN(4), d.IntN(8) == 0)
	case n < 75:
		if keys := p.ready(); len(keys) > 0 {
			p.work(keys[d.IntN(len(keys))])
		}
	default:
		if len(p.flights) == 0 {
			return
		}
		f := p.flights[d.IntN(len(p.flights))]
		switch {
		case d.IntN(1+calm) == 0:
			p.fail(f, d)
		case !f.arrived:
			w.arrive(f)
		default:
			p.finish(f, f.answer)
		}
	}
}

// ready returns the keys that can be worked on.
func (p *process) ready() (keys []Key) {
	for k, at := range p.timers {
		if at <= p.w.elapsed {
			p.queue[k] = true
		}
	}
	for k := range p.queue {
		if at, delayed := p.timers[k]; !p.busy(k) && (!delayed || at <= p.w.elapsed || p.queue[k]) {
			keys = append(keys, k)
		}
	}
	slices.SortFunc(keys, Compare)
	return keys
}

func (p *process) renew() {
	if p.w.leader == p {
		p.renewed, p.w.leaseUntil = p.w.elapsed, p.w.elapsed+leaseLasts
	}
}

// run makes steps without faults.
func (p *process) run(d *rand.Rand, steps int) {
	for range steps {
		keys := p.ready()
		switch {
		case len(p.flights) > 0 && d.IntN(2) == 0:
			f := p.flights[0]
			if !f.arrived {
				p.w.arrive(f)
			}
			p.finish(f, f.answer)
		case len(keys) > 0 && d.IntN(2) == 0:
			p.work(pick(d, keys))
		default:
			p.deliver(pick(d, kinds), 3, false)
		}
	}
}

// quiesce ends all faults and lets the leader do all that it wants to do, and then judges what the server has.
func (w *world) quiesce(d *rand.Rand) {
	p := w.leader
	if p == nil || !p.started || w.elapsed > w.leaseUntil || !slices.Contains(w.processes, p) {
		p = nil
	}
	for _, o := range slices.Clone(w.processes) {
		if o != p {
			w.end(o)
		}
	}
	for _, f := range w.network {
		w.arrive(f)
	}
	w.network = nil
	if p == nil {
		w.elapsed += time.Minute
		p = w.boot()
		p.lists(d)
	} else {
		p.paused = false
		w.cover("the leader stays to the end")
	}
	steps := 0
	for {
		p.renewed = w.elapsed
		if steps++; steps > 20_000 {
			w.violate("there is no end of requests; the last ones are about %v", p.ready())
			return
		}
		for _, kind := range kinds {
			p.deliver(kind, 1_000_000, false)
		}
		if len(p.flights) > 0 {
			f := p.flights[0]
			if !f.arrived {
				w.arrive(f)
			}
			p.finish(f, f.answer)
			continue
		}
		if keys := p.ready(); len(keys) > 0 {
			p.work(keys[0])
			continue
		}
		if w.server.collectGarbage() {
			continue
		}
		next := time.Duration(-1)
		for _, at := range p.timers {
			if next < 0 || at < next {
				next = at
			}
		}
		if next < 0 {
			break
		}
		w.elapsed = max(next, w.elapsed)
	}
	w.judge(p)
}

func TestSimulation(t *testing.T) {
	if *seedFlag > 0 {
		w := generate(*seedFlag, *movesFlag)
		t.Log(strings.Join(w.trace, "\n"))
		if w.violation != "" {
			t.Error(w.violation)
		}
		return
	}
	var mu sync.Mutex
	covered := map[string]int{}
	var failed *world
	var failedSeed uint64
	var next atomic.Uint64
	var workers sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		workers.Go(func() {
			for {
				n := next.Add(1)
				mu.Lock()
				stop := failed != nil || n > *seedsFlag
				mu.Unlock()
				if stop {
					return
				}
				seed := *firstFlag + n - 1
				w := generate(seed, *movesFlag)
				mu.Lock()
				for what, times := range w.covered {
					covered[what] += times
				}
				if w.violation != "" && (failed == nil || seed < failedSeed) {
					failed, failedSeed = w, seed
				}
				mu.Unlock()
			}
		})
	}
	workers.Wait()
	if failed != nil {
		t.Fatalf("seed %d broke the promises: %s\n%s", failedSeed, failed.violation, strings.Join(failed.trace, "\n"))
	}
	for _, what := range sorted(covered) {
		t.Logf("%8d %s", covered[what], what)
	}
	if *seedsFlag < 2000 { // Some of it is rare.
		return
	}
	for _, what := range hasToHappen {
		if covered[what] == 0 {
			t.Errorf("in %d histories it never happened: %s", *seedsFlag, what)
		}
	}
}

func sorted(m map[string]int) (keys []string) {
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

// What never happens was not tested.
var hasToHappen = []string{
	"a claim waits with reason: AllocationFailed",
	"a claim waits with reason: PoolExhausted",
	"a claim waits with reason: PoolNotReady",
	"a request arrived after its deadline",
	"changes seen as one",
	"crash",
	"create the IPAddress: exists",
	"create the IPAddress: stored",
	"delete the IPAddress: stored",
	"event: AddressConflict",
	"event: PoolsOverlap",
	"find out whether an IPAddress of a deleted claim exists: not found",
	"find out whether an IPAddress of a deleted claim exists: stored",
	"find out whether the IPAddress exists: not found",
	"find out whether the IPAddress exists: stored",
	"late request",
	"lost answer",
	"rejected",
	"release the IPAddress: stored",
	"release the claim: conflict",
	"release the claim: stored",
	"release the pool: stored",
	"the fence is closed",
	"the leader stays to the end",
	"adopt the IPAddress: stored",
	"an IPAddress is forced away",
	"the spec of an IPAddress is edited",
	"the spec of a claim is edited",
	"an IPAddress that was forced away is created again",
	"an address is reused",
	"an address waits for the finalizers of others",
	"an address waits for its grace",
}

package nodeipam

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"regexp"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	networkingv1 "github.com/multicidr/controller-manager/apis/networking/v1"
	"github.com/multicidr/controller-manager/controllers/ipam"
	"github.com/multicidr/controller-manager/controllers/nodeipam/finalizers"
	"github.com/multicidr/controller-manager/controllers/nodeipam/health"
	"github.com/multicidr/controller-manager/controllers/queues"
)

// The simulated world: one API server, the processes that take turns to lead, the network between them, and time. One
// goroutine moves all of it, one step after the other, so that a history of steps always has the same outcome.

var epoch = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

type world struct {
	ctx           context.Context
	elapsed       time.Duration // since epoch: the one true time
	server        *simServer
	processes     []*process
	booted        int
	alone         bool           // there is no leader election, and one process at a time
	serviceRanges []netip.Prefix // --service-cluster-ip-range
	primary       ipam.Family    // the one that Nodes show first
	current       *task          // the one that runs
	// network has the requests whose sender has given up on them, and that may still arrive.
	network []*call

	// assigned has the Nodes that have podCIDRs from one of our processes, and the ClusterCIDR they came from.
	assigned map[types.UID]string
	// annotated has the Nodes whose annotation somebody else has changed.
	annotated map[types.UID]bool
	// forced has the ClusterCIDRs, by name, whose finalizer somebody took away by force, or that somebody created under our feet.
	forced map[string]bool
	// undone is when a user took back what the controller had written into a ClusterCIDR, by its name. It is not written again at once each time.
	undone map[string]time.Time
	// notDeleted are the ClusterCIDRs of which a process without flags was told that it may not delete them.
	notDeleted map[types.UID]bool
	// disabled has the ClusterCIDRs that a user has disabled, and not the controller.
	disabled map[types.UID]bool
	// outside: only what users can see is judged, not what a process has in its state.
	outside bool
	judged  *regexp.Regexp // only invariants with such names are
	// notices: processes look for what other allocators write. The model does not ask.
	notices bool
	// writes is how many requests the controllers made, save for their leases.
	writes int

	trace     []string // what came of the steps
	violation *violation
	covered   map[string]int
}

// violation is a broken invariant.
type violation struct {
	invariant string
	detail    string
}

func (v *violation) String() string { return v.invariant + ": " + v.detail }

// ipv6First is behind the name of a world whose Nodes show their IPv6 block first.
const ipv6First = "-ipv6"

func newWorld(kind string) *world {
	kind, ipv6 := strings.CutSuffix(kind, ipv6First)
	w := &world{
		ctx:           klog.NewContext(context.Background(), logr.Discard()),
		elapsed:       time.Hour,
		serviceRanges: []netip.Prefix{netip.MustParsePrefix("10.0.0.48/28")},
		assigned:      map[types.UID]string{},
		annotated:     map[types.UID]bool{},
		forced:        map[string]bool{},
		undone:        map[string]time.Time{},
		notDeleted:    map[types.UID]bool{},
		disabled:      map[types.UID]bool{},
		covered:       map[string]int{},
		outside:       *outsideFlag,
		judged:        regexp.MustCompile(*judgeFlag),
	}
	if ipv6 {
		w.primary = ipam.IPv6
	}
	w.server = newSimServer(func() time.Time { return epoch.Add(w.elapsed) })
	w.server.policy = kind == "policy"
	w.alone = kind == "alone"
	w.server.onPodCIDRs = w.assigns
	w.server.onFinalizers = w.keepsOthers
	w.server.onFinalizerRemoved = w.letsGo
	w.server.onAllocation = w.setsAllocation
	return w
}

// end stops all that runs.
func (w *world) end() {
	for len(w.processes) > 0 {
		w.processes[0].die()
	}
}

func (w *world) note(format string, args ...any) {
	w.trace = append(w.trace, fmt.Sprintf(format, args...))
}

// cover counts that something happened. What never happens in many runs was not tested.
func (w *world) cover(what string) { w.covered[what]++ }

func (w *world) violate(invariant, format string, args ...any) {
	if w.violation == nil && w.judged.MatchString(invariant) {
		w.violation = &violation{invariant, fmt.Sprintf(format, args...)}
	}
}

// survive makes a panic a violation, whatever is judged, so that it comes with its history.
func (w *world) survive() {
	if r := recover(); r != nil && w.violation == nil {
		w.violation = &violation{"nothing panics", fmt.Sprintf("%v\n%s", r, debug.Stack())}
	}
}

// running returns the processes that are not paused.
func (w *world) running() []*process {
	return slices.DeleteFunc(slices.Clone(w.processes), func(p *process) bool { return p.paused })
}

func (w *world) process(name string) *process {
	if i := slices.IndexFunc(w.processes, func(p *process) bool { return p.name == name }); i >= 0 {
		return w.processes[i]
	}
	return nil
}

// arrive lets a request reach the server.
func (w *world) arrive(c *call) {
	if c.arrived {
		return
	}
	c.arrived = true
	// A request that comes late is never carried out; save that with the policy it does not matter how late one of a deposed leader comes.
	if w.elapsed >= c.over && (!w.server.policy || w.server.lease.record.HolderIdentity == c.task.p.name) {
		w.cover("a request arrived after its deadline")
		c.answer = errTimeout
		return
	}
	c.answer = c.handle(w.server)
	switch c.answer {
	case nil:
		w.note("  %s %s", c.task.p.name, c.what)
	default:
		w.note("  %s %s: %v", c.task.p.name, c.what, c.answer)
		w.cover("refused: " + strings.SplitN(c.what, " ", 3)[0] + " " + strings.SplitN(c.what, " ", 3)[1] + ": " + string(apierrors.ReasonForError(c.answer)))
	}
}

// The ways in which a call can end.
const (
	outcomeOK     = "ok"     // it arrives, and so does the answer
	outcomeLost   = "lost"   // it arrives, the answer does not
	outcomeCut    = "cut"    // it does not arrive
	outcomeBusy   = "busy"   // the server refuses to handle it
	outcomeForbid = "forbid" // the server does not allow it
	outcomeDelay  = "delay"  // the caller gives up, and it may arrive later
	outcomeHold   = "hold"   // it arrives; the answer comes with the next outcome
)

var outcomes = []string{outcomeOK, outcomeLost, outcomeCut, outcomeBusy, outcomeForbid, outcomeDelay, outcomeHold}

// finish brings a call to an end.
func (w *world) finish(c *call, outcome string) {
	switch outcome {
	case outcomeOK:
		w.arrive(c)
	case outcomeLost:
		w.arrive(c)
		c.answer = errTimeout
	case outcomeHold:
		w.arrive(c)
		w.cover("answer: " + outcome)
		return
	case outcomeDelay:
		if !c.arrived {
			late := *c
			w.network = append(w.network, &late)
		}
		c.answer = errTimeout
	case outcomeCut, outcomeBusy, outcomeForbid:
		switch {
		case c.arrived || outcome == outcomeCut:
			c.answer = errTimeout
		case outcome == outcomeBusy, strings.Contains(c.what, "event"): // an event that is forbidden is not tried again
			c.answer = apierrors.NewTooManyRequests("busy", 1)
		default:
			c.answer = apierrors.NewForbidden(schema.GroupResource{}, "", nil)
		}
	}
	w.cover("answer: " + outcome)
	c.task.goOn()
}

// leader returns the process that leads, serves, and may write; nil if there is none.
func (w *world) leader() *process {
	for _, p := range w.processes {
		if p.serving && !p.stopping && !p.paused && (w.alone || p.name == w.server.lease.record.HolderIdentity) && p.mayWrite() {
			return p
		}
	}
	return nil
}

// maxRounds bounds how long a process may be busy with itself when nothing happens any more.
const maxRounds = 1000

// settle brings all news to a process and lets it do its work to the end, without faults and without time to pass: whatever has
// to wait for a timer then, waits for nothing else. It reports whether that worked: not if the process may not write any more, because
// a renewal was sent before one of its clocks was set.
func (w *world) settle(p *process) bool {
	for range maxRounds {
		switch {
		case !w.settleOnce(p):
			return true
		case w.violation != nil || !p.mayWrite():
			return false
		}
	}
	w.violate("it comes to rest", "%s is still at work after %d rounds", p.name, maxRounds)
	return false
}

func (w *world) settleOnce(p *process) (more bool) {
	for _, t := range slices.Clone(p.tasks) {
		w.finish(t.call, outcomeOK)
		more = true
	}
	for _, k := range kinds {
		more = p.back(k, "resumed", false) || more
	}
	more = p.catchUp() || more
	for _, k := range kinds {
		if p.caches[k].behind(w.server) > 0 || len(p.caches[k].unheard) > 0 {
			p.deliver(k, w.server.revision())
			more = true
		}
	}
	for _, line := range lineNames {
		p.queues[line].expire(true)
		for _, name := range p.queues[line].ready() {
			more = p.run(line, name) || more
		}
	}
	return more
}

// calm ends all faults and waits until a process leads and serves.
func (w *world) calm() *process {
	for _, p := range w.processes {
		p.paused = false
	}
	w.server.dropsFinalizers, w.server.keepsFinalizers, w.server.dropsPodCIDRs, w.server.crdGone = false, false, false, false
	for range 120 {
		for len(w.network) > 0 {
			c := w.network[0]
			w.network = w.network[1:]
			w.arrive(c)
		}
		w.elapsed += time.Second
		if len(w.processes) == 0 {
			w.boot(fmt.Sprintf("p%d", w.booted+1), nil)
		}
		for _, p := range slices.Clone(w.processes) {
			w.calmly(p)
		}
		if p := w.leader(); p != nil || w.violation != nil {
			return p
		}
	}
	w.violate("somebody leads", "nobody does after two minutes without a fault")
	return nil
}

// calmly does for one process what happens by itself when nothing goes wrong.
func (w *world) calmly(p *process) {
	for len(p.tasks) > 0 {
		w.finish(p.tasks[0].call, outcomeOK)
	}
	if p.overdue() || p.stopping {
		p.leave()
		return
	}
	p.spawn("lease", "", p.elect)
	for len(p.tasks) > 0 {
		w.finish(p.tasks[0].call, outcomeOK)
	}
	if p.controller == nil || p.serving {
		return
	}
	p.rebuild()
	for _, k := range kinds {
		p.back(k, "resumed", false)
		p.list(k, w.server.revision(), false)
	}
	p.readFresh()
	p.start()
}

// whole is a view of all there is at the server, and of what a process has reserved.
func (w *world) whole(p *process) *view {
	v := newView(w.serviceRanges, p.flags)
	v.kept = p.kept
	for _, k := range kinds {
		for _, name := range slices.Sorted(maps.Keys(w.server.objects[k])) {
			v.see(k, name, w.server.objects[k][name])
		}
	}
	for _, node := range v.nodes {
		if r, ok := p.seen.reserved[node.UID]; ok && len(node.Spec.PodCIDRs) == 0 {
			v.reserved[node.UID], v.writes[node.UID] = r, p.seen.writes[node.UID]
		}
	}
	return v
}

// quiesce ends all faults and judges what is left when everything has come to rest.
func (w *world) quiesce() {
	defer w.survive()
	if w.violation != nil {
		return
	}
	p := w.calm()
	if p == nil {
		return
	}
	w.settle(p)
	if w.violation == nil {
		w.awaitWhatIsNotKept(p)
		w.checkSettled(p)
	}
	if w.violation == nil {
		w.rest(p, time.Minute) // longer than any timer
		w.checkStatuses(p)
		w.checkFlags(p, w.whole(p))
	}
	before := w.writes
	if w.violation == nil {
		w.rest(p, time.Hour)
	}
	for _, kind := range health.Kinds {
		if n := p.controller.health.Failing(kind); n > 0 {
			w.violate("what is over is not told", "%d writes of kind %s fail, says %s an hour after the last fault: %v", n, kind, p.name, p.controller.health.Check(nil))
		}
	}
	if w.writes > before {
		w.violate("idle means idle", "%d requests in an hour in which nothing happened", w.writes-before)
	}
}

// awaitWhatIsNotKept lets time pass if writes were answered with 200 and not kept: that shows in time only.
func (w *world) awaitWhatIsNotKept(p *process) {
	if p.undecided() {
		w.cover("blocks are kept until the lease is renewed")
		w.rest(p, 3*retryPeriod)
		if p.undecided() {
			w.violate("doubt ends", "%s: %v", p.name, keptBlocks(p.controller.state))
		}
	}
	for i := 0; i < 3 && p.holdsBack(); i++ { // One Node may give way when the first has got its blocks.
		w.cover("a write is held back until a read can tell what came of those before")
		w.rest(p, 2*leaseDuration)
	}
	if w.server.altered {
		w.cover("a write is not kept")
		w.rest(p, max(receiptLasts, finalizers.Patience)+2*queues.RetryMax)
		return
	}
	for _, o := range w.server.objects[kindClusterCIDR] {
		if alive(o) && !slices.Contains(o.GetFinalizers(), networkingv1.Finalizer) {
			w.cover("a finalizer is not kept")
			w.rest(p, finalizers.Patience+2*queues.RetryMax)
			return
		}
	}
}

// holdsBack reports whether a process may wait with the next write to a Node: the last one was not answered, and other Nodes are pending, or were.
func (p *process) holdsBack() bool {
	return slices.ContainsFunc(sortedNames(p.seen.nodes), func(name string) bool {
		n, _ := p.controller.state.Node(name)
		return n.UnansweredUntil.After(p.controller.now()) || !n.FailingSince.IsZero() || p.stepsBack(name)
	})
}

// stepsBack reports whether a Node gave up its reservation in favor of pending Nodes: it comes a second later than they.
func (p *process) stepsBack(name string) bool {
	n, known := p.controller.state.Node(name)
	_, waits := p.controller.state.Pending(name)
	return known && len(n.Blocks) == 0 && !waits
}

// rest lets time pass while a process leads and nothing happens.
func (w *world) rest(p *process, d time.Duration) {
	for end := w.elapsed + d; w.elapsed < end && w.violation == nil; {
		w.elapsed += d / 10
		if p.overdue() { // much time goes in few steps; in truth it was renewed all the while
			p.election.renewed = p.monotonic()
		}
		if p.task("lease", "") == nil { // A process has one elector.
			p.spawn("lease", "", p.elect)
		}
		w.settle(p)
	}
}

package nodeipam

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// What processes do and what happens to them: they start, lead, get to know, work, call, stop, pause and crash; and time passes.

// processes picks a process that meets a condition.
func processes(holds func(*process) bool) func(*world, *rand.Rand) []string {
	return func(w *world, d *rand.Rand) []string {
		var names []string
		for _, p := range w.running() {
			if holds(p) {
				names = append(names, p.name)
			}
		}
		if name, ok := oneIfAny(d, names); ok {
			return []string{name}
		}
		return nil
	}
}

func anyProcess(*process) bool { return true }

// onProcess is something that a process does, or that happens to it, while it runs.
func onProcess(do func(p *process, args []string) bool) func(*world, []string) bool {
	return func(w *world, args []string) bool {
		p := w.process(args[0])
		return p != nil && !p.paused && do(p, args[1:])
	}
}

// calling picks a call that waits.
func calling(w *world, d *rand.Rand) []string {
	var calls [][]string
	for _, p := range w.running() {
		for _, t := range p.tasks {
			name := t.name
			if name == "" {
				name = nothing
			}
			calls = append(calls, []string{p.name, t.line, name})
		}
	}
	c, ok := oneIfAny(d, calls)
	if !ok {
		return nil
	}
	outcome, faulty := outcomeOK, 3
	if c[1] == "lease" {
		faulty = 10
	}
	if d.IntN(faulty) == 0 {
		outcome = oneOf(d, outcomes)
	}
	return append(c, outcome)
}

// most is how many processes there are at most.
func (w *world) most() int {
	if w.alone {
		return 1
	}
	return 3
}

// crash ends a process between two instructions. Requests that it was about to send are on their way.
func (p *process) crash() {
	for _, t := range p.tasks {
		if !t.call.arrived && t.call.what != "" {
			late := *t.call
			p.w.network = append(p.w.network, &late)
		}
		p.w.cover("crash during: " + strings.Join(strings.Fields(t.call.what)[:2], " "))
	}
	p.die()
}

var processMoves = map[string]moveKind{
	// Time.
	"time": {100, func(w *world, d *rand.Rand) []string {
		if len(w.running()) < len(w.processes) && d.IntN(3) == 0 {
			return []string{"6000"} // long enough for others to take over
		}
		if w.alone && w.leader() == nil && d.IntN(2) == 0 {
			return []string{"6000"} // its wait is long
		}
		return []string{oneOf(d, []string{"1", "1", "10", "10", "50", "50", "200", "200", "500", "1000", "1000", "2000", "6000"})}
	}, func(w *world, a []string) bool {
		w.elapsed += time.Duration(wordToInt(a[0])) * time.Millisecond
		return true
	}},

	// Processes.
	"boot": {200, func(w *world, d *rand.Rand) []string {
		if len(w.processes) >= w.most() || len(w.processes) > 0 && d.IntN(10) > 0 {
			return nil
		}
		return []string{fmt.Sprintf("p%d", w.booted+1), oneOf(d, flagNames), oneOf(d, []string{"tells", "tells", "mute"})}
	}, func(w *world, a []string) bool {
		// The name is in the move so that a history stays true to itself when another one's boot is cut out of it.
		if len(w.processes) >= w.most() || w.process(a[0]) != nil {
			return false
		}
		w.boot(a[0], flags[a[1]])
		w.process(a[0]).mute = len(a) > 2 && a[2] == "mute"
		return true
	}},
	// Where it hurts without leader election: a PATCH is on its way, and what the next process would choose for its Node is something else.
	"crash-writing": {500, func(w *world, d *rand.Rand) []string {
		if !w.alone {
			return nil
		}
		return with(processes((*process).writesNode), nodeLabels, flagNames)(w, d)
	}, onProcess(func(p *process, a []string) bool {
		w := p.w
		if !w.alone || !p.writesNode() {
			return false
		}
		for _, t := range p.tasks {
			if strings.HasPrefix(t.call.what, "patch Node") {
				name := strings.TrimPrefix(t.call.what, "patch Node ")
				if userMoves["delete-node"].do(w, []string{name}) && w.server.node(name) == nil {
					createNode(w, name, a[0], nothing, nothing) // The write must not hit this one.
				}
				userMoves["label-node"].do(w, []string{name, a[0]})
			}
		}
		p.crash()
		w.boot(fmt.Sprintf("p%d", w.booted+1), flags[a[1]])
		return true
	})},
	"crash": {4, processes(anyProcess), onProcess(func(p *process, _ []string) bool {
		p.crash()
		return true
	})},
	"stop": {4, processes(func(p *process) bool { return !p.stopping }), onProcess(func(p *process, _ []string) bool {
		p.stopping = true
		return true
	})},
	"leave": {200, processes(func(p *process) bool { return p.stopping || p.overdue() }), onProcess(func(p *process, _ []string) bool { return p.leave() })},
	// Mostly where it hurts: between the look at the fence and the sending. Or a process that waits to lead.
	"pause": {60, func(w *world, d *rand.Rand) []string {
		anywhere := d.IntN(10) == 0
		return processes(func(p *process) bool { return anywhere || p.serving && p.writesNode() })(w, d)
	}, onProcess(func(p *process, _ []string) bool {
		p.paused = true
		return true
	})},
	"resume": {40, func(w *world, d *rand.Rand) []string {
		var names []string
		for _, p := range w.processes {
			if p.paused {
				names = append(names, p.name)
			}
		}
		name, ok := oneIfAny(d, names)
		if !ok {
			return nil
		}
		return []string{name}
	}, func(w *world, a []string) bool {
		p := w.process(a[0])
		if p == nil || !p.paused {
			return false
		}
		p.paused = false
		return true
	}},
	"suspend": {4, with(processes(anyProcess), []string{"1000", "7000", "20000"}, []string{"shown", "hidden"}), onProcess(func(p *process, a []string) bool {
		d := time.Duration(wordToInt(a[0])) * time.Millisecond
		if len(a) > 1 && a[1] == "hidden" { // the wall clock, too, goes on from where it stood
			p.shifted -= d
			p.w.cover("a suspension that the wall clock does not show")
		}
		p.asleep += d
		p.w.elapsed += d
		return true
	})},
	"set-clock": {6, func(w *world, d *rand.Rand) []string {
		words := with(processes(anyProcess), []string{"-60000", "-20000", "-7000", "-5000", "3000", "60000"})(w, d)
		if where, ok := oneIfAny(d, w.secondsSeen()); ok && d.IntN(3) > 0 {
			return where
		}
		return words
	}, onProcess(func(p *process, a []string) bool {
		p.shifted += time.Duration(wordToInt(a[0])) * time.Millisecond
		return true
	})},
	"elect": {700, processes(func(p *process) bool {
		return p.task("lease", "") == nil && !p.election.released && p.monotonic() >= p.election.tried+retryPeriod
	}), onProcess(func(p *process, _ []string) bool {
		if p.election.released || p.task("lease", "") != nil {
			return false
		}
		p.spawn("lease", "", p.elect)
		return true
	})},

	// What a process gets to know.
	"list": {600, func(w *world, d *rand.Rand) []string {
		var some [][]string
		for _, p := range w.running() {
			for _, k := range kinds {
				if p.controller != nil && !p.caches[k].listed && w.serves(k) {
					some = append(some, []string{p.name, string(k)})
				}
			}
		}
		words, ok := oneIfAny(d, some)
		if !ok {
			return nil
		}
		words = append(words, strconv.Itoa(max(0, w.server.revision()-oneOf(d, []int{0, 0, 1, 3, 12}))))
		if words[1] == string(kindNode) && d.IntN(4) == 0 {
			words = append(words, "unheard")
		}
		return words
	}, onProcess(func(p *process, a []string) bool {
		if p.controller == nil || p.caches[kind(a[0])].gap.Open || !p.w.serves(kind(a[0])) {
			return false
		}
		revision := min(wordToInt(a[1]), p.w.server.revision())
		if !p.caches[kind(a[0])].listed && p.caches[kind(a[0])].behind(p.w.server) > 0 && revision < p.w.server.revision() {
			p.w.cover("a first list may be stale")
		}
		p.list(kind(a[0]), revision, len(a) > 2 && a[2] == "unheard")
		return true
	})},
	"relist": {15, with(processes(func(p *process) bool { return p.serving }), []string{string(kindNode), string(kindClusterCIDR)}, []string{"0", "1", "3"}, []string{"heard", "heard", "unheard"}), onProcess(func(p *process, a []string) bool {
		if p.controller == nil || p.caches[kind(a[0])].gap.Open || !p.w.serves(kind(a[0])) {
			return false
		}
		p.list(kind(a[0]), max(0, p.w.server.revision()-wordToInt(a[1])), len(a) > 2 && a[2] == "unheard")
		return true
	})},
	// While the watch is down a Node is put back with the podCIDRs that it had, and another one joins. Handlers hear of the list one by one.
	"put-back": {10, func(w *world, d *rand.Rand) []string {
		words := processes(func(p *process) bool { return p.serving })(w, d)
		old := named(kindNode, func(o metav1.Object) bool {
			return alive(o) && len(o.GetFinalizers()) == 0 && len(o.(*v1.Node).Spec.PodCIDRs) > 0
		})(w, d)
		joins := unused(kindNode, nodeNames)(w, d)
		if words == nil || old == nil || joins == nil {
			return nil
		}
		return slices.Concat(words, old, joins)
	}, onProcess(func(p *process, a []string) bool {
		old := p.w.server.node(a[0])
		if p.controller == nil || !p.serving || p.caches[kindNode].gap.Open || old == nil || len(old.Finalizers) > 0 || len(old.Spec.PodCIDRs) == 0 || p.w.server.node(a[1]) != nil {
			return false
		}
		p.w.server.delete(kindNode, a[0])
		p.list(kindNode, p.w.server.revision(), false)
		again := &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: a[0], Labels: old.Labels}}
		again.Spec.PodCIDR, again.Spec.PodCIDRs = old.Spec.PodCIDR, old.Spec.PodCIDRs
		p.w.server.create(kindNode, again)
		p.w.server.create(kindNode, &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: a[1], Labels: old.Labels}})
		p.list(kindNode, p.w.server.revision(), true)
		return true
	})},
	"deliver": {600, func(w *world, d *rand.Rand) []string {
		var some [][]string
		for _, p := range w.running() {
			for _, k := range kinds {
				if p.controller != nil && p.caches[k].watched() && (p.caches[k].behind(w.server) > 0 || !p.serving && p.caches[k].revision < w.server.revision()) {
					some = append(some, []string{p.name, string(k)})
				}
			}
		}
		words, ok := oneIfAny(d, some)
		if !ok {
			return nil
		}
		return append(words, oneOf(d, []string{"1", "1", "1", "2", "5"}))
	}, onProcess(func(p *process, a []string) bool {
		if p.controller == nil || !p.caches[kind(a[0])].watched() {
			return false
		}
		before := p.caches[kind(a[0])].revision
		var names []string
		for _, e := range p.deliver(kind(a[0]), wordToInt(a[1])) {
			names = append(names, e.name)
		}
		slices.Sort(names)
		if len(slices.Compact(slices.Clone(names))) < len(names) {
			p.w.cover("changes seen as one")
		}
		return p.caches[kind(a[0])].revision > before
	})},
	// The cache runs ahead of the handlers.
	"cache": {60, with(processes(func(p *process) bool {
		return p.controller != nil && p.caches[kindNode].watched() && p.caches[kindNode].behind(p.w.server) > 1
	}), []string{string(kindNode)}, []string{"2", "5", "20"}), onProcess(func(p *process, a []string) bool {
		return p.controller != nil && p.caches[kind(a[0])].watched() && len(p.cache(kind(a[0]), wordToInt(a[1]))) > 0
	})},
	"hear": {300, hearing, onProcess(func(p *process, a []string) bool {
		if p.controller == nil || len(p.caches[kind(a[0])].unheard) == 0 {
			return false
		}
		p.hear(kind(a[0]), 1)
		return true
	})},
	"read-fresh": {500, processes(func(p *process) bool { return p.controller != nil && p.asOf == "" }), onProcess(func(p *process, _ []string) bool { return p.readFresh() })},
	"start":      {600, processes(func(p *process) bool { return p.controller != nil && !p.serving && p.fresh() }), onProcess(func(p *process, _ []string) bool { return p.start() })},

	// What a process does.
	"run": {600, func(w *world, d *rand.Rand) []string {
		var some [][]string
		for _, p := range w.running() {
			if !p.serving || p.stopping {
				continue
			}
			for _, line := range lineNames {
				for _, name := range p.queues[line].ready() {
					some = append(some, []string{p.name, line, name})
				}
			}
		}
		words, _ := oneIfAny(d, some)
		return words
	}, onProcess(func(p *process, a []string) bool { return p.controller != nil && p.run(a[0], a[1]) })},
	"call": {900, calling, onProcess(func(p *process, a []string) bool {
		name := a[1]
		if name == nothing {
			name = ""
		}
		t := p.task(a[0], name)
		if t == nil {
			return false
		}
		p.w.finish(t.call, a[2])
		return true
	})},
	"arrive": {60, func(w *world, d *rand.Rand) []string {
		if c, ok := oneIfAny(d, w.network); ok {
			return append([]string{c.task.p.name, oneOf(d, []string{"yes", "yes", "no"})}, strings.Fields(c.what)...)
		}
		return nil
	}, func(w *world, a []string) bool {
		what := strings.Join(a[2:], " ")
		i := slices.IndexFunc(w.network, func(c *call) bool { return c.task.p.name == a[0] && c.what == what })
		if i < 0 {
			return false
		}
		c := w.network[i]
		w.network = slices.Delete(w.network, i, i+1)
		if a[1] == "yes" {
			w.cover("a request arrived after its sender gave up")
			w.arrive(c)
		}
		return true
	}},

	// A moment without faults, in which all has to be as it should be.
	"settle": {40, func(w *world, _ *rand.Rand) []string {
		if p := w.leader(); p != nil && !w.server.crdGone {
			return []string{p.name}
		}
		return nil
	}, onProcess(func(p *process, _ []string) bool {
		if p.w.leader() != p || p.w.server.crdGone {
			return false
		}
		if p.w.settle(p) && p.w.violation == nil && !p.w.server.keepsFinalizers && !p.w.server.dropsPodCIDRs {
			p.w.awaitWhatIsNotKept(p)
			p.w.checkSettled(p)
		}
		return true
	})},
}

// secondsSeen returns how the clock of a leader has to be set to show the second of a renewal again that somebody has seen, and none since.
func (w *world) secondsSeen() (moves [][]string) {
	p := w.leader()
	if p == nil || p.monotonic() < p.election.tried+retryPeriod {
		return nil
	}
	for _, other := range w.processes {
		if seen := other.election.observed; seen.HolderIdentity == p.name && !looksLike(seen, w.server.lease.record) {
			moves = append(moves, []string{p.name, strconv.FormatInt(seen.RenewTime.Sub(epoch.Add(p.wall())).Milliseconds(), 10)})
		}
	}
	return moves
}

// hearing picks a process whose handlers are behind its cache.
func hearing(w *world, d *rand.Rand) []string {
	var some [][]string
	for _, p := range w.running() {
		for _, k := range kinds {
			if p.controller != nil && len(p.caches[k].unheard) > 0 {
				some = append(some, []string{p.name, string(k)})
			}
		}
	}
	words, _ := oneIfAny(d, some)
	return words
}

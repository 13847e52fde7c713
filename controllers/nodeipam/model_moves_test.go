package nodeipam

import (
	"context"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	"k8s.io/client-go/tools/leaderelection/resourcelock"

	networkingv1 "github.com/multicidr/controller-manager/apis/networking/v1"
	"github.com/multicidr/controller-manager/controllers/nodeipam/requests"
)

// What can happen in the model: few moves, each made of moves of the simulation, so that a history of them can be printed and played
// there. There are no dice: enabled returns all that can happen next.

func init() {
	// Moves that the simulation does not roll.
	moves["create-finalized-cc"] = moveKind{do: func(w *world, a []string) bool {
		if !moves["create-cc"].do(w, a) {
			return false
		}
		cc := w.server.clusterCIDR(a[0]).DeepCopy()
		cc.Finalizers = []string{networkingv1.Finalizer}
		w.server.store(kindClusterCIDR, cc)
		return true
	}}
	moves["retry"] = moveKind{do: onProcess(func(p *process, a []string) bool {
		if !p.serving {
			return false
		}
		p.queues[a[0]].expire(true)
		return true
	})}
}

// setting is what is explored.
type setting struct {
	name string
	// world is how writes of deposed leaders are kept out, see history.
	world string
	// clusterCIDR is what create-cc gets.
	clusterCIDR string
	// tick is the step in which time passes, in milliseconds.
	tick string
	// faults is how many of them there may be in one history, and which; none: all kinds.
	faults int
	kinds  []string
	// prefix is how all histories begin.
	prefix []string
	// depth is how many moves may follow; 0: any number.
	depth int
}

// start is where all histories of the model begin: p1 leads and serves, p2 waits for the lease, and two Nodes have no podCIDRs yet. Every
// process that leads later has to begin like p1.
func (s setting) start() []string {
	return []string{
		"create-finalized-cc a " + s.clusterCIDR, "create-node n1 - - -", "create-node n2 - - -",
		"boot p1 -", "elect p1", "call p1 lease - ok", "call p1 lease - ok", "read-fresh p1", "list p1 nodes 100", "list p1 clustercidrs 100", "list p1 servicecidrs 100", "start p1",
		"boot p2 -", "elect p2", "call p2 lease - ok",
	}
}

// founded is the revision at which all histories begin. No cache is older.
const founded = 5

// faults are the moves of which a history has a bounded number. Without any of them every request is answered at once, every change
// is seen at once, and every process tries to get or renew the lease in every tick.
var faults = []string{
	"slow",   // a request is on its way or its answer is for as long as it likes; it may be lost
	"refuse", // the API server refuses a request
	"lag",    // a process sees changes later, and some as one
	"cut",    // a process does not try to get or renew the lease, or does not get through
	"sleep",  // a machine is suspended: its monotonic clock stands still
	"crash",  // a process ends between two instructions
	"delete", // a Node is deleted
}

func isFault(move string) bool {
	kind, _, _ := strings.Cut(move, " ")
	return slices.Contains(faults, kind)
}

// allows reports whether there may be such a move.
func (m *modelPlay) allows(move string) bool {
	kind, _, _ := strings.Cut(move, " ")
	return !isFault(move) || m.faults > 0 && (len(m.kinds) == 0 || slices.Contains(m.kinds, kind))
}

// modelPlay is a history of the model, up to now.
type modelPlay struct {
	setting
	w      *world
	faults int // that there may be still
	// sent has the content of the requests that wait for an answer or are on their way, and of those of tasks the last one.
	sent  map[*call]content
	draft map[*task]content
	// lagging are the processes that do not get news at once.
	lagging map[*process]bool
	// slow are the tasks whose request is slow, cut and asleep the processes that are.
	slow        map[*task]bool
	cut, asleep map[*process]bool
}

// content is what a request asks for.
type content struct {
	patch string // of a Node
	// Of the Lease:
	record   resourcelock.LeaderElectionRecord
	revision int
	slow     bool          // the elector has read the Lease before
	at       time.Duration // when it was sent, by the process's monotonic clock
}

func newPlay(s setting) *modelPlay {
	m := &modelPlay{setting: s, w: newWorld(s.world), faults: s.faults, sent: map[*call]content{}, draft: map[*task]content{}, lagging: map[*process]bool{}, slow: map[*task]bool{}, cut: map[*process]bool{}, asleep: map[*process]bool{}}
	for _, move := range s.start() {
		m.make(move)
	}
	if m.w.server.revision() != founded {
		panic(fmt.Sprintf("the model begins at revision %d", m.w.server.revision()))
	}
	m.faults += len(s.prefix)
	for _, move := range s.prefix {
		m.step(move)
	}
	m.faults = s.faults
	return m
}

// replay makes the moves of a history.
func replay(s setting, moves []string) *modelPlay {
	m := newPlay(s)
	for _, move := range moves {
		m.step(move)
	}
	return m
}

// make makes moves of the simulation.
func (m *modelPlay) make(text string) {
	var before map[*task]content
	for _, p := range m.w.processes {
		for _, t := range p.tasks {
			if before == nil {
				before = map[*task]content{}
			}
			before[t] = m.sent[t.call]
		}
	}
	m.w.make(strings.Fields(text))
	for _, p := range m.w.processes {
		m.listen(p)
		for _, t := range p.tasks {
			if _, ok := m.sent[t.call]; !ok {
				t.call.over-- // here much happens at one and the same time: what is over then, is over before anything else
			}
			m.note(t.call, m.draft[t])
		}
	}
	for _, c := range m.w.network {
		m.note(c, before[c.task])
	}
}

// note notes what a new request asks for, and for how long the API server may carry it out.
func (m *modelPlay) note(c *call, asks content) {
	if _, ok := m.sent[c]; ok {
		return
	}
	m.sent[c] = asks
	if c.task.line == "lease" {
		c.over = never // the Lease's resource version is all that keeps a late renewal out
	}
}

const never = 1000 * time.Hour

// listen puts itself between a process and the API server, to see what it asks for.
func (m *modelPlay) listen(p *process) {
	inner := reflect.ValueOf(p.election.lock).Elem().FieldByName("Interface") // of lease.lock
	if lock, ok := reflect.TypeAssert[*simLock](inner); ok {
		inner.Set(reflect.ValueOf(&heardLock{lock, m}))
	}
	if p.controller == nil {
		return
	}
	if f := p.controller.api.(requests.Fenced); f.API == (simAPI{p}) {
		p.controller.api = requests.Fenced{API: heardAPI{simAPI{p}, m}, Fence: f.Fence}
	}
}

type heardAPI struct {
	simAPI
	m *modelPlay
}

func (a heardAPI) PatchNode(ctx context.Context, name string, patch []byte) error {
	a.m.draft[a.p.w.current] = content{patch: string(patch)}
	return a.simAPI.PatchNode(ctx, name, patch)
}

type heardLock struct {
	*simLock
	m *modelPlay
}

func (l *heardLock) Get(ctx context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	l.m.draft[l.p.w.current] = content{slow: true}
	return l.simLock.Get(ctx)
}

func (l *heardLock) Create(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	l.revision = 0
	return l.Update(ctx, record)
}

func (l *heardLock) Update(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	l.m.draft[l.p.w.current] = content{record: record, revision: l.revision, slow: l.m.draft[l.p.w.current].slow, at: l.p.monotonic()}
	return l.simLock.Update(ctx, record)
}

// step makes a move of the model.
func (m *modelPlay) step(move string) {
	if isFault(move) {
		m.faults--
	}
	words := append(strings.Fields(move), "", "")
	name, of := words[1], words[2]
	p := m.w.process(name)
	switch words[0] {
	case "lag":
		m.lagging[p] = true
	case "cut":
		m.cut[p] = true
	case "heal":
		delete(m.cut, p)
	case "sleep":
		m.asleep[p] = true
	case "wake":
		delete(m.asleep, p)
	case "slow":
		if of == "lease" {
			m.tries(p, true)
		} else {
			m.slow[p.task("nodes", of)] = true
		}
	case "elect":
		m.tries(p, false)
	case "see": // one change of a Node, or all that there is
		if of == "one" {
			m.make("deliver " + name + " nodes 1")
		} else {
			m.see(p)
		}
	case "begin": // with lists from a cache that is as old as can be
		m.make("read-fresh " + name)
		for _, k := range kinds {
			m.make(fmt.Sprintf("list %s %s %d", name, k, founded))
		}
	case "work":
		m.make("retry " + name + " nodes")
		m.make("run " + name + " nodes " + of)
	case "ok", "lost", "late", "refuse", "hold":
		m.answer(p, of, map[string]string{"ok": outcomeOK, "lost": outcomeLost, "late": outcomeDelay, "refuse": outcomeForbid, "hold": outcomeHold}[words[0]])
	case "arrive":
		m.make("arrive " + name + " yes " + strings.Join(strings.Fields(move)[2:], " "))
	case "leave":
		m.make(move)
		m.answerLease(p)
	case "delete":
		m.make("delete-node " + name)
	case "create":
		m.make("create-node " + name + " - - -")
	case "tick":
		m.passes()
	case "end": // it is overdue; what it has sent is on its way
		m.make("crash " + name)
	default: // start, stop, crash
		m.make(move)
	}
	m.ease()
	for _, p := range m.w.processes {
		if p.serving && !m.lagging[p] && !m.asleep[p] {
			m.see(p)
		}
	}
	// Somebody starts what has ended again. It need not do anything.
	for len(m.w.processes) < 2 {
		m.make(fmt.Sprintf("boot p%d -", m.w.booted+1))
		m.tries(m.w.processes[1], false)
	}
	m.forget()
}

// passes lets time pass, after which everybody tries to get or renew the lease.
func (m *modelPlay) passes() {
	how := "time " + m.tick
	for p := range m.asleep {
		how = "suspend " + p.name + " " + m.tick
	}
	m.make(how)
	ps := slices.Clone(m.w.processes)
	slices.SortStableFunc(ps, func(a, b *process) int { // whoever holds the lease comes first
		holds := func(p *process) int {
			if m.w.server.lease.record.HolderIdentity == p.name {
				return 0
			}
			return 1
		}
		return holds(a) - holds(b)
	})
	for _, p := range ps {
		if !m.cut[p] && !m.asleep[p] && p.task("lease", "") == nil && !p.election.released {
			m.tries(p, false)
		}
	}
}

// tries is one try of an elector. If the request that would get or renew the lease is slow, it stays on its way.
func (m *modelPlay) tries(p *process, slow bool) {
	m.make("elect " + p.name)
	if !slow {
		m.answerLease(p)
		return
	}
	for {
		t := p.task("lease", "")
		if t == nil || t.call.what != "read lease" {
			break
		}
		m.answer(p, "lease", outcomeOK)
	}
}

// answerLease answers all that an elector asks for.
func (m *modelPlay) answerLease(p *process) {
	for p.task("lease", "") != nil {
		m.answer(p, "lease", outcomeOK)
	}
}

func (m *modelPlay) answer(p *process, of, outcome string) {
	line := "nodes"
	if of == "lease" {
		line, of = "lease", nothing
	}
	m.make("call " + p.name + " " + line + " " + of + " " + outcome)
}

// ease answers at once what a process says, and what an elector reads.
func (m *modelPlay) ease() {
	for _, p := range slices.Clone(m.w.processes) {
		for m.w.violation == nil {
			i := slices.IndexFunc(p.tasks, func(t *task) bool {
				return t.call.what == "read lease" || strings.HasPrefix(t.call.what, "get Node") || strings.Contains(t.call.what, " event ")
			})
			if i < 0 {
				break
			}
			of := p.tasks[i].name
			if of == "" {
				of = "lease"
			}
			m.answer(p, of, outcomeOK)
		}
		for t := range m.slow {
			if t.p == p && !slices.Contains(p.tasks, t) {
				delete(m.slow, t)
			}
		}
	}
}

// see brings all news to a process.
func (m *modelPlay) see(p *process) {
	for _, k := range kinds {
		if p.caches[k].revision < m.w.server.revision() {
			m.make(fmt.Sprintf("deliver %s %s 100", p.name, k))
		}
	}
	delete(m.lagging, p)
}

// forget drops what is on its way and cannot change anything any more.
func (m *modelPlay) forget() {
	m.w.network = slices.DeleteFunc(m.w.network, func(c *call) bool {
		if c.task.line == "lease" {
			return m.sent[c].revision != m.w.server.lease.revision
		}
		return !m.w.server.policy && m.w.elapsed > c.over
	})
}

// enabled returns the moves that are possible now.
func (m *modelPlay) enabled() (all []string) {
	w := m.w
	if w.violation != nil {
		return nil
	}
	can := func(format string, args ...any) {
		if move := fmt.Sprintf(format, args...); m.allows(move) {
			all = append(all, move)
		}
	}
	if !m.urgent() {
		can("tick")
	}
	for _, c := range w.network {
		can("arrive %s %s", c.task.p.name, c.what)
	}
	for _, name := range nodeNames[:2] {
		if node := w.server.node(name); node == nil {
			can("create %s", name)
		} else {
			can("delete %s", name)
		}
	}
	for _, p := range w.processes {
		if m.asleep[p] {
			can("wake %s", p.name)
			continue
		}
		m.enabledOf(p, can)
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// urgent reports whether a request waits for its answer that is not slow.
func (m *modelPlay) urgent() bool {
	for _, p := range m.w.processes {
		for _, t := range p.tasks {
			if t.line != "lease" && !m.slow[t] && !m.asleep[p] {
				return true
			}
		}
	}
	return false
}

func (m *modelPlay) enabledOf(p *process, can func(string, ...any)) {
	w := m.w
	for _, t := range p.tasks {
		if t.line == "lease" { // it is slow
			can("ok %s lease", p.name)
			can("lost %s lease", p.name)
			can("late %s lease", p.name)
			continue
		}
		can("ok %s %s", p.name, t.name)
		switch {
		case !m.slow[t]:
			can("slow %s %s", p.name, t.name)
			can("refuse %s %s", p.name, t.name)
		case !t.call.arrived:
			can("hold %s %s", p.name, t.name)
			can("late %s %s", p.name, t.name)
		default:
			can("lost %s %s", p.name, t.name)
		}
	}
	if p.overdue() {
		can("end %s", p.name)
	} else {
		can("crash %s", p.name)
	}
	if len(m.asleep) == 0 {
		can("sleep %s", p.name)
	}
	if p.task("lease", "") == nil && !p.election.released {
		switch {
		case m.cut[p]:
			can("heal %s", p.name)
		default:
			can("cut %s", p.name)
			if !p.waits() {
				can("slow %s lease", p.name)
				if w.server.lease.record.HolderIdentity != p.name {
					can("elect %s", p.name)
				}
			}
		}
	}
	if p.controller != nil && !p.stopping {
		can("stop %s", p.name)
	}
	if p.stopping && len(p.tasks) == 0 && p.election.fence.Busy() == 0 && !p.overdue() {
		can("leave %s", p.name)
	}
	switch {
	case p.controller == nil:
	case p.asOf == "":
		can("begin %s", p.name)
	case !p.serving:
		if p.fresh() {
			can("start %s", p.name)
		}
		if slices.ContainsFunc(kinds, func(k kind) bool { return p.caches[k].revision < w.server.revision() }) {
			can("see %s", p.name)
		}
	default:
		if !m.lagging[p] {
			can("lag %s", p.name)
		}
		switch n := p.caches[kindNode].behind(w.server); {
		case n > 1:
			can("see %s one", p.name)
			fallthrough
		case n > 0:
			can("see %s", p.name)
		}
		if p.stopping {
			return
		}
		for _, name := range m.ready(p) {
			can("work %s %s", p.name, name)
		}
	}
}

// waits reports whether a try of the elector would find the lease another one's and as good as it thought.
func (p *process) waits() bool {
	e := &p.election
	return !p.leads() && looksLike(e.observed, p.w.server.lease.record) && e.observed.HolderIdentity != "" && p.monotonic() < e.observedAt+leaseDuration
}

// ready returns the Nodes that a worker may take. When something that failed is tried again is anybody's guess.
func (m *modelPlay) ready(p *process) (names []string) {
	q := p.queues[string(kindNode)]
	for _, name := range nodeNames[:2] {
		d, delayed := q.delayed[name]
		if !q.processing[name] && (slices.Contains(q.waiting, name) || delayed && (d.retry || d.until <= p.monotonic())) {
			names = append(names, name)
		}
	}
	return names
}

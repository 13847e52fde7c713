package nodeipam

import (
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"
	"unsafe"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/leaderelection/resourcelock"

	networkingv1 "github.com/multicidr/controller-manager/apis/networking/v1"
	"github.com/multicidr/controller-manager/controllers/ipam"
	"github.com/multicidr/controller-manager/controllers/lease"
	"github.com/multicidr/controller-manager/controllers/queues"
)

// The state of the model: all of the simulated world that what happens next depends on, as a text, in which two worlds are the same text only
// if they have the same future. So times are relative to now, and no longer than the longest bound that they are compared with; names of
// processes, UIDs and resource versions are ranks; and of two worlds that differ only in which process has which name one stands for both. Of
// Nodes it matters which one has which name: of two that are equally old, the first by name has its turn first. modelFields says of each field why it is in the text or not.

// fingerprint is what is kept of a state.
type fingerprint [16]byte

// state returns the state, and its fingerprint. What omit names is left out, to see that this is noticed.
func (m *modelPlay) state(omit string) (text string, _ fingerprint) {
	for _, order := range m.orders() {
		e := &encoder{m: m, omit: omit, order: order, names: nodeNames[:2], ids: map[string]string{}, records: map[resourcelock.LeaderElectionRecord]string{}, uids: map[types.UID]string{}}
		if t := e.world(); text == "" || t < text {
			text = t
		}
	}
	h := fnv.New128a()
	h.Write([]byte(text))
	return text, fingerprint(h.Sum(nil))
}

// orders are the orders of the processes that have to be tried: one, if they differ in what is seen at once.
func (m *modelPlay) orders() [][]*process {
	ps := slices.Clone(m.w.processes)
	key := func(p *process) string {
		return fmt.Sprint(p.controller != nil, p.serving, p.stopping, p.leads(), len(p.tasks), m.cut[p], m.asleep[p], m.lagging[p], age(p.monotonic(), p.election.observedAt, leaseDuration))
	}
	if len(ps) < 2 {
		return [][]*process{ps}
	}
	switch a, b := key(ps[0]), key(ps[1]); {
	case a < b:
		return [][]*process{ps}
	case a > b:
		return [][]*process{{ps[1], ps[0]}}
	}
	return [][]*process{ps, {ps[1], ps[0]}}
}

// encoder writes a state, with the processes and the Nodes in a certain order.
type encoder struct {
	m     *modelPlay
	omit  string
	order []*process
	names []string
	text  strings.Builder

	ids     map[string]string // of processes
	records map[resourcelock.LeaderElectionRecord]string
	uids    map[types.UID]string
}

// put writes a part of the state.
func (e *encoder) put(field string, values ...any) {
	if field == e.omit {
		return
	}
	e.text.WriteString(field)
	for _, v := range values {
		e.text.WriteByte(' ')
		switch v := v.(type) {
		case string:
			e.text.WriteString(v)
		case time.Duration:
			e.text.WriteString(strconv.FormatInt(int64(v/time.Millisecond), 10))
		default:
			fmt.Fprint(&e.text, v)
		}
	}
	e.text.WriteByte('\n')
}

// age is how long something is ago, or limit if it is longer.
func age(now, then, limit time.Duration) time.Duration { return min(now-then, limit) }

// left is how long it is until something; nothing if it has been.
func left(now, then time.Duration) time.Duration { return max(0, then-now) }

// id is who a process is.
func (e *encoder) id(name string) string {
	if name == "" {
		return "nobody"
	}
	if _, ok := e.ids[name]; !ok {
		e.ids[name] = fmt.Sprintf("gone%d", len(e.ids))
	}
	return e.ids[name]
}

// holder is who is named in a Node as the one who wrote its podCIDRs. Only the policy asks.
func (e *encoder) holder(node *v1.Node) string {
	if !e.m.w.server.policy {
		return ""
	}
	return e.id(node.Annotations[networkingv1.AnnotationLeaseHolder])
}

func (e *encoder) name(node string) string { return string(rune('A' + slices.Index(e.names, node))) }

// uid is the name of the Node and how many of its name there were before.
func (e *encoder) uid(uid types.UID) string {
	if len(e.uids) == 0 {
		seen := map[string]int{}
		for _, c := range e.m.w.server.changes[1:] {
			if c.kind != kindNode || c.object == nil {
				continue
			}
			if _, ok := e.uids[c.object.GetUID()]; !ok {
				seen[c.name]++
				e.uids[c.object.GetUID()] = e.name(c.name) + strconv.Itoa(seen[c.name])
			}
		}
	}
	return e.uids[uid]
}

// record is which record of the Lease it is: they are only compared.
func (e *encoder) record(r resourcelock.LeaderElectionRecord) string {
	if _, ok := e.records[r]; !ok {
		e.records[r] = fmt.Sprintf("record%d of %s for %d", len(e.records), e.id(r.HolderIdentity), r.LeaseDurationSeconds)
	}
	return e.records[r]
}

func (e *encoder) node(node *v1.Node) string {
	if node == nil {
		return "gone"
	}
	return fmt.Sprintf("%s %v by %s going %t", e.uid(node.UID), node.Spec.PodCIDRs, e.holder(node), node.DeletionTimestamp != nil)
}

// age is which of the Nodes is older, and whether one that is created now would be younger than each.
func (e *encoder) age(nodes map[string]metav1.Object) (ages []int) {
	created := []time.Time{e.m.w.server.now().Truncate(time.Second)}
	for _, name := range e.names {
		if node := nodes[name]; node != nil {
			created = append(created, node.GetCreationTimestamp().Time)
		}
	}
	for i := range created {
		for j := range i {
			ages = append(ages, created[i].Compare(created[j]))
		}
	}
	return ages
}

func (e *encoder) world() string {
	w := e.m.w
	for i, p := range e.order {
		e.ids[p.name] = fmt.Sprintf("p%d", i)
	}
	e.put("faults", e.m.faults)
	e.put("server.lease", e.record(w.server.lease.record), w.server.lease.revision == 0)
	for _, name := range e.names {
		e.put("server.objects", e.name(name), e.node(w.server.node(name)))
	}
	e.put("server.age", e.age(w.server.objects[kindNode]))
	var events []string
	for _, event := range w.server.events {
		events = append(events, e.uid(event.InvolvedObject.UID)+event.Reason)
	}
	slices.Sort(events)
	e.put("server.events", slices.Compact(events))
	for _, p := range e.order {
		e.process(p)
	}
	e.network()
	return e.text.String()
}

func (e *encoder) network() {
	type sent struct{ order, text string }
	var all []sent
	for _, c := range e.m.w.network {
		asks := e.m.sent[c]
		// First by what does not depend on the ranks that are given on the way.
		all = append(all, sent{fmt.Sprintf("%s %d %s", c.task.line, e.deadline(c), e.patch(asks.patch, false)), ""})
		i := len(all) - 1
		all[i].text = strconv.Itoa(i)
	}
	slices.SortStableFunc(all, func(a, b sent) int { return strings.Compare(a.order, b.order) })
	var texts []string
	for _, s := range all {
		i, _ := strconv.Atoi(s.text)
		c := e.m.w.network[i]
		asks := e.m.sent[c]
		if c.task.line == "lease" {
			texts = append(texts, "lease "+e.record(asks.record)+e.stamps(asks.record))
			continue
		}
		texts = append(texts, fmt.Sprint(c.task.line, " ", e.patch(asks.patch, true), " ", e.deadline(c)))
	}
	slices.Sort(texts)
	for _, text := range texts {
		e.put("network", text)
	}
}

// deadline is for how long the API server may carry a request out.
func (e *encoder) deadline(c *call) time.Duration {
	return left(e.m.w.elapsed, c.over+1)
}

// patch is what is to be written into a Node.
func (e *encoder) patch(patch string, holder bool) string {
	if patch == "" {
		return ""
	}
	var node v1.Node
	if err := json.Unmarshal([]byte(patch), &node); err != nil {
		panic(err)
	}
	by := ""
	if holder {
		by = e.holder(&node)
	}
	return fmt.Sprintf("%s %v from %s by %s", e.uid(node.UID), node.Spec.PodCIDRs, node.Annotations[networkingv1.AnnotationClusterCIDR], by)
}

// stamps says which processes take a record for one of their own.
func (e *encoder) stamps(r resourcelock.LeaderElectionRecord) string {
	text := ""
	for i, p := range e.order {
		if slices.ContainsFunc(fenceField[[]time.Time](p.election.fence, "stamps"), r.RenewTime.Truncate(time.Microsecond).Equal) {
			text += fmt.Sprintf(" own%d", i)
		}
	}
	return text
}

// fenceField reads a field of the fence, which is another package's.
func fenceField[T any](f *lease.Fence, name string) T {
	v := reflect.ValueOf(f).Elem().FieldByName(name)
	return *(*T)(unsafe.Pointer(v.UnsafeAddr()))
}

// renewal is what the fence's clocks showed when it sent its last renewal that succeeded.
func renewal(f *lease.Fence) (wall, monotonic time.Duration) {
	v := reflect.ValueOf(f).Elem().FieldByName("renewed")
	at := *(*time.Time)(unsafe.Pointer(v.FieldByName("wall").UnsafeAddr()))
	return at.Sub(epoch), time.Duration(v.FieldByName("monotonic").Int())
}

func (e *encoder) process(p *process) {
	w := e.m.w
	e.put("process", p.controller != nil, p.serving, p.stopping, e.m.lagging[p])
	e.put("troubled", e.m.cut[p], e.m.asleep[p])

	el := &p.election
	now := p.monotonic()
	e.put("observed", e.record(el.observed), e.stamps(el.observed))
	e.put("observedAt", age(now, el.observedAt, leaseDuration))
	if p.controller != nil {
		e.put("renewalSent", age(w.elapsed, el.renewalSent, leaseDuration))
		e.put("overdue", age(now, el.renewed, renewDeadline+time.Millisecond))
	}
	e.put("released", el.released)
	e.put("lock.revision", e.lock(p).revision == w.server.lease.revision)

	f := el.fence
	wall, monotonic := renewal(f)
	duration := fenceField[time.Duration](f, "duration")
	e.put("fence.duration", duration)
	if duration > 0 {
		e.put("fence.renewed", age(p.wall(), wall, duration), age(now, monotonic, duration))
	}
	e.put("fence.stamps", e.stamps(w.server.lease.record))
	e.put("fence.deposed", fenceField[bool](f, "deposed"))
	e.put("fence.ended", fenceField[bool](f, "ended"))
	var open []string // the writes that were not answered yet, if they are not over; a task's is over when its request is
	for it := reflect.ValueOf(f).Elem().FieldByName("open").MapRange(); it.Next(); {
		pass := it.Key().Elem()
		entered, timeout := pass.FieldByName("entered").FieldByName("monotonic").Int(), pass.FieldByName("timeout").Int()
		if over := left(now, time.Duration(pass.FieldByName("over").Int())); over > 0 {
			open = append(open, fmt.Sprint(over, left(now, time.Duration(entered+timeout))))
		}
	}
	slices.Sort(open)
	e.put("fence.open", open)

	for _, t := range p.tasks {
		e.task(p, t)
	}
	if p.controller != nil {
		e.controller(p)
	}
}

func (e *encoder) lock(p *process) *simLock {
	return reflect.ValueOf(p.election.lock).Elem().FieldByName("Interface").Interface().(*heardLock).simLock
}

func (e *encoder) task(p *process, t *task) {
	asks := e.m.sent[t.call]
	answer := ""
	if t.call.arrived && t.call.answer != nil {
		answer = string(apierrors.ReasonForError(t.call.answer)) + fmt.Sprint(errors.Is(t.call.answer, errTimeout))
	}
	if t.line == "lease" {
		e.put("election", t.call.what, e.record(asks.record), e.stamps(asks.record), asks.slow, asks.revision == e.m.w.server.lease.revision, t.call.arrived, answer)
		e.put("election.began", age(p.monotonic(), p.election.tried, leaseDuration))
		e.put("election.sent", age(p.monotonic(), asks.at, leaseDuration))
		return
	}
	e.put("task", t.line, e.name(t.name), e.patch(asks.patch, true), t.call.arrived, answer, e.m.slow[t])
	e.put("task.deadline", e.deadline(t.call))
}

func (e *encoder) controller(p *process) {
	c, now := p.controller, p.monotonic()
	switch {
	case p.serving:
		e.cache(p)
	case p.asOf == "":
		return // it has not begun
	case p.fresh():
		e.put("fresh")
		e.cache(p)
		return
	default:
		e.put("stale") // it will see all there is before it starts
		return
	}
	q := p.queues[string(kindNode)]
	for _, name := range e.names {
		d, delayed := q.delayed[name]
		ready := slices.Contains(q.waiting, name) || delayed && d.retry
		e.put("queue", ready, q.failures[name] > 0)
		if delayed && !d.retry {
			e.put("queue.delayed", left(now, d.until))
		}
		if n, ok := c.state.Node(name); ok {
			e.put("book.nodes", e.uid(n.UID), n.State, n.Stored, n.ClusterCIDR, slices.Sorted(maps.Keys(n.Reported)))
			if !n.UnansweredUntil.IsZero() {
				e.put("book.unansweredUntil", left(now, n.UnansweredUntil.Sub(epoch)))
			}
			if !n.FailingSince.IsZero() {
				e.put("failingSince", age(now, n.FailingSince.Sub(epoch), queues.RetryMax))
			}
			if n.Read {
				e.put("read", c.renewals().Sent > n.ReadAfter, c.renewals().Proven > n.ReadAfter)
			}
			if !n.StoredAt.IsZero() {
				e.put("receipts", age(now, n.StoredAt.Sub(epoch), receiptLasts))
			}
		}
		if waiting, ok := c.state.Pending(name); ok {
			e.put("book.waiting", e.uid(waiting.UID), waiting.Handed != "", waiting.Stored != "")
		}
	}
	var held, judge []string
	for _, h := range c.state.Holdings(allIPv4) {
		if h.Owner.Kind == ipam.Node {
			held = append(held, e.uid(types.UID(h.Owner.ID))+" "+h.Prefix.String())
		}
	}
	slices.Sort(held)
	e.put("book.ledger", held)
	if gave := c.state.GaveWay(); !gave.IsZero() {
		e.put("gaveWay", age(now, gave.Sub(epoch), queues.RetryMax))
	}
	for _, pool := range c.state.Pools() {
		e.put("book.pools", pool.Name, pool.State, c.state.Cursor(pool, ipam.IPv4))
	}
	for _, uid := range slices.Sorted(maps.Keys(p.seen.writes)) {
		var over []int
		for _, write := range p.seen.writes[uid] {
			over = append(over, int(left(e.m.w.elapsed, write.over+1)))
		}
		slices.Sort(over)
		if len(over) > 0 {
			judge = append(judge, fmt.Sprint(e.uid(uid), slices.Compact(over)))
		}
	}
	slices.Sort(judge)
	e.put("seen.writes", judge)
	for _, name := range e.names {
		for _, o := range e.m.w.server.changes {
			if o.name == name && o.object != nil && p.lastSaid[o.object.GetUID()] != "" {
				e.put("said", e.uid(o.object.GetUID()))
				break
			}
		}
	}
}

// cache is what a process has seen of the Nodes, and what it has not seen yet.
func (e *encoder) cache(p *process) {
	c := p.caches[kindNode]
	for _, name := range e.names {
		node, _ := c.objects[name].(*v1.Node)
		e.put("cache", e.name(name), e.node(node))
	}
	e.put("cache.age", e.age(c.objects))
	for _, change := range e.m.w.server.changes[c.revision:] {
		if change.kind == kindNode {
			node, _ := change.object.(*v1.Node)
			e.put("unseen", e.name(change.name), e.node(node))
		}
	}
}

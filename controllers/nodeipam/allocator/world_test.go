package allocator_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strconv"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	networkingv1 "github.com/multicidr/controller-manager/apis/networking/v1"
	"github.com/multicidr/controller-manager/controllers/internal/race"
	"github.com/multicidr/controller-manager/controllers/ipam"
	"github.com/multicidr/controller-manager/controllers/nodeipam/allocator"
	"github.com/multicidr/controller-manager/controllers/nodeipam/pool"
	. "github.com/multicidr/controller-manager/test/objects"
	"github.com/multicidr/controller-manager/test/seeds"
)

// unanswered is for how long the server may carry out a write without an answer.
const unanswered = 15 * time.Second

// world is a server with Nodes, handlers that show them late and in order, and workers that do what the state says. What the server stores, and
// what it may still carry out, judges the state.
type world struct {
	t     *testing.T
	d     *rand.Rand
	s     *allocator.State
	now   time.Time
	rough bool // writes fail, answers are lost

	version  int
	stored   map[string]*v1.Node
	byUs     map[types.UID]bool // Nodes whose podCIDRs this controller wrote
	events   []*v1.Node         // not shown yet; one that is gone has the finalizer "gone"
	shown    map[string]*v1.Node
	pools    map[string]*networkingv1.ClusterCIDR
	services []netip.Prefix
	flying   map[string]*flight
	late     []*flight
	answered map[types.UID]int // versions in which Nodes have podCIDRs, as an answer or an event says

	queue    map[string]bool // "" is a walk
	heldBack map[string]bool
	fresh    map[string]bool // seen or changed, and no worker has looked at them
	history  []string
	served   int
}

// flight is a write of podCIDRs.
type flight struct {
	node string
	allocator.Reservation
	pool    string // the ID of its pool
	until   time.Time
	carried bool // out
	version int  // of the answer 200; 0 for a refusal
}

func newWorld(t *testing.T, seed uint64) *world {
	w := &world{
		t: t, d: rand.New(rand.NewPCG(seed, 7)), now: time.Unix(1000, 0), rough: true,
		stored: map[string]*v1.Node{}, byUs: map[types.UID]bool{}, pools: map[string]*networkingv1.ClusterCIDR{},
	}
	w.restart()
	return w
}

func (w *world) note(format string, args ...any) {
	w.history = append(w.history, fmt.Sprintf(format, args...))
}

func (w *world) fail(format string, args ...any) {
	w.t.Helper()
	w.t.Fatalf(format, args...)
}

// one draws a key.
func one[V any](d *rand.Rand, m map[string]V) string {
	keys := slices.Sorted(maps.Keys(m))
	return keys[d.IntN(len(keys))]
}

// restart is another leader: no write of the earlier one can be carried out any more, and it has read everything.
func (w *world) restart() {
	w.now = w.now.Add(unanswered)
	w.s, w.events, w.late = allocator.New(), nil, nil
	w.shown, w.flying, w.answered = map[string]*v1.Node{}, map[string]*flight{}, map[types.UID]int{}
	w.queue, w.heldBack, w.fresh = map[string]bool{}, map[string]bool{}, map[string]bool{}
	w.s.SetService("service", w.services)
	for _, cc := range w.pools {
		w.s.SetPool(pool.Compile(cc, nil))
	}
	for name, n := range w.stored {
		w.show(n)
		delete(w.fresh, name)
	}
	w.s.Start()
	w.note("restart")
	w.changed()
}

// change stores a version of a Node, or removes it.
func (w *world) change(n *v1.Node, gone bool) {
	w.version++
	n.ResourceVersion = strconv.Itoa(w.version)
	if w.stored[n.Name] = n; gone {
		delete(w.stored, n.Name)
	}
	w.events = append(w.events, n.DeepCopy())
}

// writable reports whether the server can still carry out a write to a Node: it exists and has no podCIDRs.
func (w *world) writable(f *flight) bool {
	n, ok := w.stored[f.node]
	return ok && n.UID == f.UID && len(n.Spec.PodCIDRs) == 0 && !f.carried
}

// show is the handler.
func (w *world) show(n *v1.Node) {
	before, known := w.s.Node(n.Name)
	seen := w.s.Observe(n, w.now)
	after, _ := w.s.Node(n.Name)
	w.shown[n.Name] = n
	has := len(n.Spec.PodCIDRs) > 0
	if answered := w.answered[n.UID]; known && answered > 0 && !has {
		version, _ := strconv.Atoi(n.ResourceVersion)
		if old := version < answered; old != (seen == allocator.Seen{}) || old != (after.State == allocator.Assigned) || old == seen.NotKept || !slices.Equal(before.Blocks, after.Blocks) {
			w.fail("Node %s as of %d, after the answer of %d: %+v, %+v", n.Name, version, answered, seen, after)
		}
		if seen.NotKept {
			delete(w.answered, n.UID)
		}
	} else if seen.NotKept {
		w.fail("Node %s is not kept, and was never confirmed", n.Name)
	}
	if has {
		w.answered[n.UID], _ = strconv.Atoi(n.ResourceVersion)
		if blocks, _ := pool.PodCIDRsOf(n); after.State != allocator.Assigned || !slices.Equal(after.Blocks, blocks) {
			w.fail("Node %s shows %v and holds %v, %v", n.Name, blocks, after.Blocks, after.State)
		}
	}
	if seen.Work || seen.NotKept {
		w.queue[n.Name] = true
	}
	if seen.Work {
		w.fresh[n.Name] = true
	}
}

func (w *world) gone(n *v1.Node) {
	w.s.Gone(n.Name, n.UID)
	if shown, ok := w.shown[n.Name]; ok && shown.UID == n.UID {
		delete(w.shown, n.Name)
	}
}

// deliver shows the first events.
func (w *world) deliver(n int) {
	for _, object := range w.events[:n] {
		w.note("show %s %s as of %s: %v", object.Name, object.UID, object.ResourceVersion, object.Spec.PodCIDRs)
		if slices.Contains(object.Finalizers, "gone") {
			w.gone(object)
		} else {
			w.show(object)
		}
		w.changed()
	}
	w.events = slices.Clone(w.events[n:])
}

// relist shows what there is, deletions first. One update may be another Node of that name.
func (w *world) relist() {
	w.note("relist")
	for name, n := range maps.Clone(w.shown) {
		if _, ok := w.stored[name]; !ok {
			w.gone(n)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(w.stored)) {
		w.show(w.stored[name].DeepCopy())
	}
	w.events = nil
	w.changed()
}

// changed queues what the state says, and checks it.
func (w *world) changed() {
	w.t.Helper()
	c := w.s.Changes()
	for _, name := range c.Nodes {
		w.queue[name] = true
	}
	if c.Walk {
		w.queue[""] = true
	}
	w.checkFree()
	w.checkStatus()
}

// choosing runs what may choose blocks, and checks that older Nodes came first.
func (w *world) choosing(f func()) {
	before := map[string]allocator.NodeView{}
	for name := range w.shown {
		before[name], _ = w.s.Node(name)
	}
	f()
	for name, n := range w.shown {
		now, _ := w.s.Node(name)
		if now.State != allocator.Reserved && now.State != allocator.Sent || slices.Equal(now.Blocks, before[name].Blocks) {
			continue
		}
		for other, o := range w.shown {
			view, _ := w.s.Node(other)
			older := o.CreationTimestamp.Before(&n.CreationTimestamp) || o.CreationTimestamp.Equal(&n.CreationTimestamp) && other < name
			if older && view.State == allocator.None && !w.heldBack[other] && !w.fresh[other] && o.DeletionTimestamp == nil && w.selects(now.ClusterCIDR, o) {
				w.fail("%s got %v of %s, and the older %s waits", name, now.Blocks, now.ClusterCIDR, other)
			}
		}
	}
}

// selects reports whether the search for a Node comes to a pool.
func (w *world) selects(name string, n *v1.Node) bool {
	for p := range w.s.Candidates(n) {
		if p.State == ipam.None {
			return false
		}
		if p.Name == name {
			return true
		}
	}
	return false
}

// work does one thing that is queued.
func (w *world) work(name string) {
	if f, ok := w.flying[name]; ok {
		w.answer(f)
		return
	}
	delete(w.queue, name)
	if name == "" {
		w.note("walk")
		w.choosing(w.s.Walk)
		return
	}
	delete(w.heldBack, name)
	delete(w.fresh, name)
	var do allocator.Action
	var uid types.UID
	w.choosing(func() { do, uid, _ = w.s.Next(name, w.now) })
	switch do {
	case allocator.Wait:
		w.queue[name] = true
	case allocator.Read:
		w.note("read %s", name)
		if n, ok := w.stored[name]; ok && n.UID == uid && len(n.Spec.PodCIDRs) > 0 {
			w.show(n.DeepCopy())
		} else {
			w.s.NotStored(name, uid)
		}
		w.queue[name] = true
	case allocator.Write:
		var r allocator.Reservation
		var ok bool
		if w.choosing(func() { r, ok = w.s.Send(name, uid) }); !ok {
			w.queue[name] = true
			return
		}
		w.note("send %s %s: %v of %s", name, uid, r.Blocks, r.ClusterCIDR)
		p, _ := w.s.Pool(r.ClusterCIDR)
		w.flying[name], w.queue[name] = &flight{node: name, Reservation: r, pool: p.ID}, true
		w.checkSent(name, r)
	}
}

// carry makes the server carry out a write.
func (w *world) carry(f *flight) {
	n, ok := w.stored[f.node]
	switch f.carried = true; {
	case !ok || n.UID != f.UID:
	case len(n.Spec.PodCIDRs) > 0:
		if slices.Equal(n.Spec.PodCIDRs, Texts(f.Blocks)) {
			f.version, _ = strconv.Atoi(n.ResourceVersion)
		}
	default:
		n = n.DeepCopy()
		if !w.rough || w.d.IntN(10) > 0 { // something may drop them
			n.Spec.PodCIDRs = Texts(f.Blocks)
			From(f.ClusterCIDR)(n)
			w.byUs[f.UID] = true
			w.served++
		}
		w.change(n, false)
		f.version = w.version
		w.note("stored %v on %s as of %d", n.Spec.PodCIDRs, f.node, w.version)
	}
}

// answer gives the worker an answer, or none.
func (w *world) answer(f *flight) {
	delete(w.flying, f.node)
	how := 0
	if w.rough {
		how = w.d.IntN(6)
	}
	switch {
	case how == 1 && !f.carried:
		w.note("not sent: %s", f.node)
		w.s.NotSent(f.node, f.UID)
	case how == 2 && !f.carried:
		w.note("refused: %s", f.node)
		w.s.Refused(f.node, f.UID)
		w.heldBack[f.node] = true
	case how == 3 || how == 4:
		w.note("no answer: %s", f.node)
		f.until = w.now.Add(unanswered)
		w.s.Unanswered(f.node, f.UID, f.until)
		if !f.carried {
			w.late = append(w.late, f)
		}
	default:
		if !f.carried {
			w.carry(f)
		}
		if w.note("answered: %s, %d", f.node, f.version); f.version == 0 {
			w.s.Refused(f.node, f.UID)
			w.heldBack[f.node] = true
			break
		}
		before, _ := w.s.Node(f.node)
		if kept, _ := w.s.Stored(f.node, f.UID, strconv.Itoa(f.version)); kept && before.UID == f.UID && before.State == allocator.Sent {
			w.answered[f.UID] = f.version
			return
		}
	}
	w.queue[f.node] = true
}

// checkSent: nothing is sent that another Node has, may get, or that the pool may not give.
func (w *world) checkSent(name string, r allocator.Reservation) {
	p, ok := w.s.Pool(r.ClusterCIDR)
	if !ok || !p.Allocates(r.Blocks) || !p.Matches(w.shown[name]) || w.shown[name].DeletionTimestamp != nil {
		w.fail("%v of %s may not be sent to %s", r.Blocks, r.ClusterCIDR, name)
	}
	taken := func(by string, blocks []netip.Prefix) {
		for _, block := range r.Blocks {
			if slices.ContainsFunc(blocks, block.Overlaps) {
				w.fail("%v is sent to %s, and %s has %v", block, name, by, blocks)
			}
		}
	}
	taken("a service range", w.services)
	for other, n := range w.stored {
		blocks, _ := pool.PodCIDRsOf(n)
		if shown := w.shown[other]; n.UID != r.UID && (w.byUs[n.UID] || shown != nil && shown.UID == n.UID && len(shown.Spec.PodCIDRs) > 0) {
			taken(other, blocks)
		}
	}
	for _, f := range slices.Concat(w.late, slices.Collect(maps.Values(w.flying))) {
		if f.UID != r.UID && w.writable(f) {
			taken("a write to "+f.node, f.Blocks)
		}
	}
}

// free returns the blocks of a range that nothing overlaps, found by looking at each.
func (w *world) free(p *pool.Pool, r ipam.Range) (free []netip.Prefix) {
	taken := slices.AppendSeq(slices.Clone(w.services), p.Excluded.Overlapping(r.Prefix))
	for name := range w.shown {
		view, _ := w.s.Node(name)
		taken = append(taken, view.Blocks...)
	}
	for at := r.Prefix.Addr(); r.Prefix.Contains(at); {
		block := netip.PrefixFrom(at, r.BlockBits)
		if !slices.ContainsFunc(taken, block.Overlaps) {
			free = append(free, block)
		}
		for range 1 << (at.BitLen() - r.BlockBits) {
			at = at.Next()
		}
	}
	return free
}

// checkFree: nothing leaks.
func (w *world) checkFree() {
	w.t.Helper()
	for _, p := range w.s.Pools() {
		for _, r := range p.Ranges {
			if got, want := w.s.Free(p, r), len(w.free(p, r)); got != uint64(want) {
				w.fail("%s has %d free blocks in %v, want %d", p.Name, got, r.Prefix, want)
			}
		}
	}
}

// checkStatus: no status says that a ClusterCIDR allocates nothing while a write from it can be carried out.
func (w *world) checkStatus() {
	w.t.Helper()
	for name, cc := range w.pools {
		_, known := w.s.Status(cc)
		p, _ := w.s.Pool(name)
		for _, f := range slices.Concat(w.late, slices.Collect(maps.Values(w.flying))) {
			if known && p.State != ipam.Enabled && f.ClusterCIDR == name && p.ID == f.pool && w.answered[f.UID] == 0 && w.writable(f) {
				w.fail("%s is %v, and a write to %s can be carried out", name, p.State, f.node)
			}
		}
	}
}

func (w *world) set(cc *networkingv1.ClusterCIDR) {
	cc.Generation++
	w.pools[cc.Name] = cc
	earlier, _ := w.s.Pool(cc.Name)
	w.s.SetPool(pool.Compile(cc, earlier))
	w.note("ClusterCIDR %s %s: %+v", cc.Name, cc.UID, cc.Spec)
}

// usersAct makes one change to the cluster.
func (w *world) usersAct() {
	d := w.d
	switch name, cc := fmt.Sprint("n", d.IntN(14)), fmt.Sprint("cc", d.IntN(4)); d.IntN(12) {
	case 0, 1, 2, 3:
		if w.stored[name] == nil {
			n := Node(name, UID(types.UID(fmt.Sprintf("%s-%d", name, w.version))), Created(int64(d.IntN(5))), Label("a", fmt.Sprint(d.IntN(2))))
			w.note("create %s", n.UID)
			w.change(n, false)
		}
	case 4, 5:
		if n := w.stored[name].DeepCopy(); n != nil {
			if gone := n.DeletionTimestamp != nil || d.IntN(2) == 0; gone {
				w.note("gone: %s", name)
				n.Finalizers = []string{"gone"}
				w.change(n, true)
				break
			}
			w.note("delete %s", name)
			n.DeletionTimestamp = &metav1.Time{Time: w.now}
			w.change(n, false)
		}
	case 6:
		if n := w.stored[name].DeepCopy(); n != nil {
			w.note("label %s", name)
			Label("a", fmt.Sprint(d.IntN(2)))(n)
			w.change(n, false)
		}
	case 7:
		if n := w.stored[name].DeepCopy(); n != nil && len(n.Spec.PodCIDRs) == 0 && d.IntN(4) == 0 {
			n.Spec.PodCIDRs = []string{fmt.Sprintf("10.0.0.%d/28", 16*d.IntN(16))}
			w.note("another writes %v to %s", n.Spec.PodCIDRs, name)
			w.change(n, false)
		}
	case 8:
		w.services = nil
		if d.IntN(2) == 0 {
			w.services = Pfxs(fmt.Sprintf("10.0.0.%d/27", 32*d.IntN(8)))
		}
		w.note("services %v", w.services)
		w.s.SetService("service", w.services)
	case 9:
		if w.pools[cc] != nil && d.IntN(3) == 0 {
			w.note("drop %s", cc)
			delete(w.pools, cc)
			w.s.DropPool(cc)
		}
	default:
		if w.pools[cc] == nil {
			w.set(ClusterCIDR(cc, w.drawSpec(), func(c *networkingv1.ClusterCIDR) { c.UID = types.UID(fmt.Sprintf("%s-%d", cc, len(w.history))) }))
			break
		}
		c := w.pools[cc].DeepCopy()
		w.edit(c)
		w.set(c)
	}
	w.changed()
}

func (w *world) drawSpec() networkingv1.ClusterCIDRSpec {
	specs := []networkingv1.ClusterCIDRSpec{
		Spec4("10.0.0.0/25", 4, nil), Spec4("10.0.0.64/26", 5, nil), Spec4("10.0.0.128/26", 4, nil),
		{IPv4: "10.0.1.0/26", IPv6: "fd00::/122", PerNodeHostBits: 4},
	}
	spec := specs[w.d.IntN(len(specs))]
	if w.d.IntN(2) == 0 {
		spec.NodeSelector = AnyOf(AllOf(In("a", fmt.Sprint(w.d.IntN(2)))))
	}
	return spec
}

func (w *world) edit(c *networkingv1.ClusterCIDR) {
	switch w.d.IntN(4) {
	case 0:
		c.Spec.Priority = int32(w.d.IntN(3))
	case 1:
		c.Spec.ExcludedCIDRs = nil
		if w.d.IntN(2) == 0 {
			c.Spec.ExcludedCIDRs = []string{fmt.Sprintf("10.0.0.%d/29", 8*w.d.IntN(32))}
		}
	case 2:
		if w.d.IntN(3) == 0 {
			c.DeletionTimestamp = &metav1.Time{Time: w.now}
		}
	default:
		c.Spec.Allocation = []networkingv1.AllocationMode{networkingv1.AllocationEnabled, networkingv1.AllocationEnabled, networkingv1.AllocationDisabled}[w.d.IntN(3)]
	}
}

// step does one thing, drawn.
func (w *world) step() {
	switch n := w.d.IntN(100); {
	case n < 30:
		w.usersAct()
	case n < 50:
		w.deliver(w.d.IntN(len(w.events) + 1))
	case n < 85:
		if len(w.queue) > 0 {
			w.work(one(w.d, w.queue))
		}
	case n < 90:
		if len(w.flying) > 0 {
			if f := w.flying[one(w.d, w.flying)]; !f.carried {
				w.carry(f)
			}
		}
	case n < 93:
		if len(w.late) > 0 {
			w.note("late")
			w.carry(w.late[0])
			w.late = w.late[1:]
		}
	case n < 97:
		w.now = w.now.Add(time.Duration(w.d.IntN(10)) * time.Second)
		w.late = slices.DeleteFunc(w.late, func(f *flight) bool { return !f.until.After(w.now) })
	case n < 99:
		w.relist()
	default:
		w.restart()
	}
	w.changed()
}

// settle lets everything happen that is going to, without any failure. Then every Node that some pool can serve is served.
func (w *world) settle() {
	w.rough = false
	for range 1000 {
		w.deliver(len(w.events))
		w.now = w.now.Add(unanswered)
		w.late = nil
		for _, name := range slices.Sorted(maps.Keys(w.queue)) {
			w.work(name)
			w.changed()
		}
		if len(w.queue) == 0 && len(w.events) == 0 {
			break
		}
	}
	if len(w.queue) > 0 {
		w.fail("still queued: %v", w.queue)
	}
	for name, n := range w.stored {
		view, _ := w.s.Node(name)
		if blocks, _ := pool.PodCIDRsOf(n); view.UID != n.UID || !slices.Equal(view.Blocks, blocks) {
			w.fail("%s has %v, and the state says %v", name, blocks, view.Blocks)
		}
		reason, _ := w.s.Why(name)
		pending := reason != ""
		if view.State == allocator.Assigned || n.DeletionTimestamp != nil {
			if pending {
				w.fail("%s is pending", name)
			}
			continue
		}
		if !pending {
			w.fail("%s is not pending, and has nothing", name)
		}
		for p := range w.s.Candidates(n) {
			if p.State == ipam.Enabled && !slices.ContainsFunc(p.Ranges, func(r ipam.Range) bool { return len(w.free(p, r)) == 0 }) {
				w.fail("%s waits, and %s can serve it", name, p.Name)
			}
		}
	}
	w.checkFindings()
}

// checkFindings: each Node with podCIDRs that others have, or that lie in no ClusterCIDR, is told, and no other.
func (w *world) checkFindings() {
	for name, n := range w.stored {
		blocks, _ := pool.PodCIDRsOf(n)
		others := slices.Clone(w.services)
		for other, o := range w.stored {
			if theirs, _ := pool.PodCIDRsOf(o); other != name {
				others = append(others, theirs...)
			}
		}
		conflict := slices.ContainsFunc(blocks, func(b netip.Prefix) bool { return slices.ContainsFunc(others, b.Overlaps) })
		outside := len(blocks) > 0 && len(w.pools) > 0
		for _, p := range w.s.Pools() {
			outside = outside && !slices.ContainsFunc(blocks, p.Contains)
		}
		found := w.s.Findings(name)
		if (found[allocator.ReasonConflict] != "") != conflict || (found[allocator.ReasonOutsideRanges] != "") != outside || found[allocator.ReasonUnreadable] != "" {
			w.fail("%s with %v: %v, want conflict %t, outside %t", name, blocks, found, conflict, outside)
		}
	}
}

// TestHistories lets users, a server that fails, late handlers and workers act in any order, and checks after each step what is promised: no
// two Nodes have or may get the same addresses, nothing leaks, older Nodes come first, and in the end everybody is served.
func TestHistories(t *testing.T) {
	served := 0
	n := seeds.Each(t, race.Part(uint64(300)), func(t *testing.T, seed uint64) {
		w := newWorld(t, seed)
		defer func() { seeds.Report(t, seed, w.history) }()
		for range 300 {
			w.step()
		}
		w.settle()
		served += w.served
	})
	if t.Logf("%d Nodes were served", served); uint64(served) < 5*n && !t.Failed() {
		t.Error("too few were served")
	}
}

package allocator

import (
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	networkingv1 "github.com/multicidr/controller-manager/apis/networking/v1"
	"github.com/multicidr/controller-manager/controllers/internal/race"
	"github.com/multicidr/controller-manager/controllers/ipam"
	"github.com/multicidr/controller-manager/controllers/nodeipam/clustercidr"
	. "github.com/multicidr/controller-manager/controllers/nodeipam/internal/objects"
)

var (
	firstFlag = flag.Uint64("simulation.first", 1, "the seed of the first history")
	seedsFlag = flag.Uint64("simulation.seeds", race.Part(uint64(200)), "how many histories TestReference makes")
)

// TestReference makes random changes of a state, and after each one compares what AllocatePending, or Allocate for one Node, has decided about
// all pending Nodes with the reference. A failure prints its seed and the history; -simulation.first=<seed> -simulation.seeds=1 makes it again.
func TestReference(t *testing.T) {
	seen := map[string]int{}
	for seed := *firstFlag; seed < *firstFlag+*seedsFlag && !t.Failed(); seed++ {
		t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) {
			w := newWorld(t, seed, seen)
			w.begin()
			for range 300 {
				w.move()
			}
			w.end()
		})
	}
	t.Log(seen)
	if t.Failed() || *seedsFlag < 200 {
		return
	}
	for _, what := range []string{"allocated", "pending", "awaits its finalizer", "kept", "chosen again", "gave way", "reclaimed", "undecided", "restart", "many opened"} {
		if seen[what] == 0 {
			t.Errorf("no history has: %s", what)
		}
	}
}

func newWorld(t *testing.T, seed uint64, seen map[string]int) *world {
	return &world{
		t: t, Rand: rand.New(rand.NewPCG(seed, 0)), b: New(), reference: newReference(), seen: seen, now: time.Unix(100_000, 0),
		clusterCIDRs: map[string]*networkingv1.ClusterCIDR{}, nodes: map[string]*v1.Node{}, line: map[string]bool{}, due: map[string]bool{},
	}
}

// world is a state, the reference, and the cluster of which both are told.
type world struct {
	t *testing.T
	*rand.Rand
	b *State
	reference
	clusterCIDRs map[string]*networkingv1.ClusterCIDR
	nodes        map[string]*v1.Node
	line         map[string]bool // names of the Nodes that are pending
	due          map[string]bool // names of the Nodes that a worker will look at
	missed       bool            // something is still to be recorded, so nothing is decided
	renewals     Renewals
	now          time.Time
	names        int // how many names of ClusterCIDRs there are
	uids         int
	told         []string
	seen         map[string]int // how often what happened in all histories
	crowd        bool           // each decision is made as if there was more to decide
	notices      func(Changes)  // if not nil, it is told what the state says has changed
}

func (w *world) tell(format string, args ...any) {
	w.told = append(w.told, fmt.Sprintf(format, args...))
}

func (w *world) fail(format string, args ...any) {
	w.t.Helper()
	w.t.Fatalf("%s\nafter:\n  %s", fmt.Sprintf(format, args...), strings.Join(w.told, "\n  "))
}

func (w *world) holdings() holdings {
	h := holdings{}
	for o, blocks := range w.b.ledger.All() {
		h[o] = slices.Clone(blocks)
	}
	return h
}

func (w *world) holds(node *v1.Node) bool { return len(w.b.HeldBy(OwnerOf(node.UID))) > 0 }

// decide lets the state decide after a change, as Controller.with does.
func (w *world) decide() {
	if w.missed {
		w.changes()
		return
	}
	h := w.holdings()
	if len(w.b.opened) > maxOpen {
		w.seen["many opened"]++
	}
	want := w.reference.decide(h, w.oldestFirst())
	w.crowded(w.b.AllocationDue(), w.b.AllocatePending)
	w.judge(want, h)
}

// crowded calls f, which may decide, in a state in which a Node is never the only thing to decide about.
func (w *world) crowded(due bool, f func()) {
	if due && w.crowd {
		w.b.opened[""] = true
		defer delete(w.b.opened, "")
	}
	f()
}

// oldestFirst are the pending Nodes. One that may get back the blocks of an earlier Node has no turn before that is decided.
func (w *world) oldestFirst() (all []*v1.Node) {
	for _, name := range slices.Sorted(maps.Keys(w.line)) {
		if w.b.Undecided(name) {
			w.seen["undecided"]++
			delete(w.line, name)
			continue
		}
		all = append(all, w.nodes[name])
	}
	since := func(n *v1.Node) time.Time {
		if v, ok := w.b.Node(n.Name); ok && v.UID == n.UID && !v.GaveWay.IsZero() {
			return v.GaveWay
		}
		return n.CreationTimestamp.Time
	}
	slices.SortStableFunc(all, func(x, y *v1.Node) int { return since(x).Compare(since(y)) })
	return all
}

func (w *world) changes() {
	e := w.b.Changes()
	if w.notices != nil {
		w.notices(e)
	}
	for _, name := range e.Nodes {
		w.due[name] = true
	}
}

// judge compares a decision with what the reference wants: h are all holdings after it.
func (w *world) judge(want map[string]choice, h holdings) {
	got := w.holdings()
	if !maps.EqualFunc(h, got, slices.Equal) {
		w.fail("blocks (-want +got):\n%s", cmp.Diff(h, got, cmp.Comparer(func(x, y netip.Prefix) bool { return x == y })))
	}
	for name, c := range want {
		if len(c.blocks) > 0 {
			delete(w.line, name)
		}
		w.judgeNode(w.nodes[name], c)
	}
	if len(w.b.pending) != len(w.line) || w.b.settled.Len() != len(w.line) || w.b.AllocationDue() {
		w.fail("%d Nodes are pending and %d in line, want %d; to decide: %v %v", len(w.b.pending), w.b.settled.Len(), len(w.line), w.b.arrived, w.b.opened)
	}
	for name := range w.b.awaiting {
		if !w.line[name] {
			w.fail("Node %s awaits a finalizer and is not pending", name)
		}
	}
	w.judgeHoldings(h)
	w.judgeTraffic()
	w.changes()
	w.judgeReasons(h)
}

func (w *world) judgeNode(node *v1.Node, c choice) {
	said, pending := w.b.pending[node.Name]
	if len(c.blocks) > 0 {
		w.seen["allocated"]++
		if v, _ := w.b.Node(node.Name); v.ClusterCIDR != c.pool || pending {
			w.fail("Node %s was allocated blocks of %s, want %s; pending: %v", node.Name, v.ClusterCIDR, c.pool, pending)
		}
		return
	}
	w.seen["pending"]++
	if !pending || said.uid != node.UID {
		w.fail("Node %s is not pending", node.Name)
	}
	if c.awaits != "" {
		w.seen["awaits its finalizer"]++
	} else if p, awaits := w.b.AwaitsFinalizerOf(node.Name); awaits {
		w.fail("Node %s awaits the finalizer of %s, which cannot serve it", node.Name, p.Name)
	}
}

// judgeHoldings judges that Nodes that are gone hold nothing, and that every pool with free blocks counts as one.
func (w *world) judgeHoldings(h holdings) {
	for o := range h {
		if node := w.nodes[w.b.names[types.UID(o.ID)]]; o.Kind == ipam.Node && (node == nil || OwnerOf(node.UID) != o) {
			w.fail("%v is gone and holds %v", o, h[o])
		}
	}
	for _, p := range w.pools {
		if _, full := w.free(h, p); p.State == ipam.Enabled && len(full) == 0 && !w.b.notFull.Has(w.b.pools[p.Name]) {
			w.fail("%s has a free block of each family and counts as full", p.Name)
		}
	}
}

// judgeTraffic judges how many blocks count as allocated, and as looked at for that.
func (w *world) judgeTraffic() {
	for _, p := range w.pools {
		for _, r := range p.Ranges {
			got, want := w.b.traffic.Of(&w.b.pools[p.Name].Pool)[r.Family()], w.given[rangeID{p.ID, r.Family()}]
			if int(got.Allocations) != want.blocks || int(got.TriesSum) != want.tries {
				w.fail("%s %v: %v blocks allocated after %v tries, want %+v", p.Name, r.Prefix, got.Allocations, got.TriesSum, want)
			}
		}
	}
}

// judgeReasons judges what is said about pending Nodes at which nobody will look again. While a pool awaits its finalizer, that can be
// what was true before.
func (w *world) judgeReasons(h holdings) {
	for _, p := range w.pools {
		if p.AwaitsFinalizer() {
			return
		}
	}
	for name := range w.line {
		if w.due[name] {
			continue
		}
		said, want := w.b.pending[name], w.why(h, w.nodes[name])
		if got := saidOf(said); !slices.EqualFunc(got, want, saying.holds) || (len(w.pools) == 0) != (said.why == "NoClusterCIDR") {
			w.fail("Node %s is pending because of %s %v, want %v", name, said.why, got, want)
		}
	}
}

// begin creates ClusterCIDRs in a few histories, so that one release opens more of them than are looked at one by one.
func (w *world) begin() {
	if w.names = one(w, 6, 6, 6, 6, 6, 6, 6, 2*maxOpen); w.names > maxOpen {
		for range 2 * w.names {
			w.createClusterCIDR()
		}
	}
}

// end lets everything go. Nothing is left then but blocks that are in doubt for good. TestTallyIsInStep, TestCandidates and TestLine look into
// the figures and indexes.
func (w *world) end() {
	w.missed = false
	for _, name := range slices.Sorted(maps.Keys(w.nodes)) {
		w.gone(w.nodes[name])
		w.decide()
	}
	for _, name := range slices.Sorted(maps.Keys(w.clusterCIDRs)) {
		w.dropClusterCIDR(name)
		w.decide()
	}
	w.b.SetService("s1", nil)
	w.b.SetService("s2", nil)
	w.renewals.Sent++
	w.renewals.Proven = w.renewals.Sent
	w.decideDoubts()
	w.decide()
	b := w.b
	for o := range b.ledger.All() {
		if o.Kind != ipam.Kept {
			w.fail("%v holds something when all is gone", o)
		}
	}
	for name := range b.doubts {
		if b.Undecided(name) {
			w.fail("the blocks of %s are neither in doubt nor free", name)
		}
	}
	if left := len(b.nodes) + len(b.names) + len(b.pools) + len(b.pending) + len(b.awaiting) + len(b.revocable) + len(b.terminating) + len(b.awaitingFinalizer); left > 0 {
		w.fail("left when all is gone: %+v", b)
	}
}

// move makes one random change.
func (w *world) move() {
	w.now = w.now.Add(time.Duration(w.IntN(4000)) * time.Millisecond)
	k := w.IntN(100)
	for _, m := range []struct {
		percent int
		do      func()
	}{
		{6, w.createClusterCIDR}, {14, w.changeClusterCIDR}, {3, w.deleteClusterCIDR}, {3, w.changeService},
		{16, w.createNode}, {8, w.relabelNode}, {6, w.deleteNode}, {3, w.beginDeletion}, {8, w.showReservation}, {2, w.changePodCIDRs},
		{16, w.work}, {8, w.answerWrite}, {4, w.renew}, {2, w.missOrCatchUp}, {1, w.restart},
	} {
		if k -= m.percent; k < 0 {
			m.do()
			w.decide()
			return
		}
	}
}

func one[T any](w *world, all ...T) T { return all[w.IntN(len(all))] }

// some returns one of the objects for which is is true; ok is false if there is none.
func some[T any](w *world, all map[string]T, is func(T) bool) (o T, ok bool) {
	var fit []T
	for _, name := range slices.Sorted(maps.Keys(all)) {
		if is(all[name]) {
			fit = append(fit, all[name])
		}
	}
	if len(fit) == 0 {
		return o, false
	}
	return one(w, fit...), true
}

func anyOf[T any](T) bool { return true }

func (w *world) uid() types.UID {
	w.uids++
	return types.UID(fmt.Sprint("uid-", w.uids))
}

func (w *world) requirement() v1.NodeSelectorRequirement {
	r := v1.NodeSelectorRequirement{Key: one(w, "a", "a", "b", "c"), Operator: one[v1.NodeSelectorOperator](w, "In", "In", "In", "NotIn", "Exists", "DoesNotExist", "Gt")}
	switch r.Operator {
	case v1.NodeSelectorOpIn:
		r.Values = []string{one(w, "1", "2", "3"), one(w, "1", "2", "3")}
	case v1.NodeSelectorOpNotIn, v1.NodeSelectorOpGt:
		r.Values = []string{one(w, "1", "2", "3")}
	}
	return r
}

// selector returns one that is indexed or not, and finds its Nodes in one list or in many.
func (w *world) selector() *v1.NodeSelector {
	switch w.IntN(9) {
	case 0, 1:
		return nil
	case 2:
		return OneRequirement(300, v1.NodeSelectorOpIn)
	case 3:
		return SmallTerms(20, v1.NodeSelectorOpIn)
	}
	s := AnyOf()
	for range 1 + w.IntN(3) {
		t := AllOf([]v1.NodeSelectorRequirement{w.requirement(), w.requirement()}[:w.IntN(3)]...)
		if w.IntN(6) == 0 {
			t.MatchFields = []v1.NodeSelectorRequirement{{Key: "metadata.name", Operator: one(w, v1.NodeSelectorOpIn, v1.NodeSelectorOpNotIn), Values: []string{fmt.Sprint("n", w.IntN(12))}}}
		}
		s.NodeSelectorTerms = append(s.NodeSelectorTerms, t)
	}
	return s
}

func (w *world) exclusions(spec networkingv1.ClusterCIDRSpec) (all []string) {
	if spec.IPv4 != "" && w.IntN(2) == 0 {
		all = append(all, one(w, "10.0.0.0/28", "10.0.0.32/27", "10.0.0.64/26", "10.0.0.20/32", "10.0.0.0/24"))
	}
	if spec.IPv6 != "" && w.IntN(4) == 0 {
		all = append(all, one(w, "fd00::/124", "fd00::20/123", "fd00::/112"))
	}
	return all
}

// createClusterCIDR creates one or replaces one by another of its name. Ranges are few, small and overlap.
func (w *world) createClusterCIDR() {
	spec := networkingv1.ClusterCIDRSpec{PerNodeHostBits: int32(4 + w.IntN(2)), Priority: int32(w.IntN(3) - 1), NodeSelector: w.selector()}
	families := one(w, 4, 4, 6, 4+6)
	if families != 6 {
		spec.IPv4 = one(w, "10.0.0.0/27", "10.0.0.32/27", "10.0.0.0/26", "10.0.0.64/26", "10.0.0.0/25")
	}
	if families != 4 {
		spec.IPv6 = one(w, "fd00::/123", "fd00::20/123", "fd00::/122")
	}
	if hostBits := int32(4 + w.IntN(2)); families == 4+6 && w.IntN(2) == 0 {
		spec.IPv6PerNodeHostBits = &hostBits
	}
	spec.ExcludedCIDRs = w.exclusions(spec)
	cc := ClusterCIDR(fmt.Sprint("p", w.IntN(w.names)), spec)
	if cc.UID = w.uid(); w.IntN(6) == 0 {
		NoFinalizer(cc)
	}
	w.tell("ClusterCIDR %s, UID %s, finalizers %q, selector %v, %s %s /%d, priority %d, exclusions %v", cc.Name, cc.UID, cc.Finalizers,
		cc.Spec.NodeSelector != nil, spec.IPv4, spec.IPv6, spec.PerNodeHostBits, spec.Priority, spec.ExcludedCIDRs)
	w.setClusterCIDR(cc, false, false)
}

// setClusterCIDR tells both of a ClusterCIDR that is as cc says, or superseded, or lacks its finalizer and it is known why.
func (w *world) setClusterCIDR(cc *networkingv1.ClusterCIDR, superseded, problem bool) {
	p := clustercidr.Compile(cc)
	if superseded {
		p.Supersede("superseded")
	}
	if problem && p.State == ipam.Pending {
		p = p.With("no permission", "Forbidden")
	}
	w.tell("  it is %v %s", p.State, p.Problem)
	w.clusterCIDRs[cc.Name] = cc
	w.set(p)
	w.b.SetPool(p)
}

func (w *world) changeClusterCIDR() {
	cc, ok := some(w, w.clusterCIDRs, func(cc *networkingv1.ClusterCIDR) bool { return w.pools[cc.Name].State == ipam.Pending })
	if !ok || w.IntN(2) == 0 {
		if cc, ok = some(w, w.clusterCIDRs, anyOf); !ok {
			return
		}
	}
	cc = cc.DeepCopy()
	p := w.pools[cc.Name]
	superseded, problem := p.Superseded, p.State == ipam.Pending && p.Problem != ""
	switch w.IntN(9) {
	case 0:
		cc.Spec.Priority = int32(w.IntN(3) - 1)
	case 1:
		cc.Spec.ExcludedCIDRs = w.exclusions(cc.Spec)
	case 2:
		cc.Spec.Allocation = one(w, networkingv1.AllocationDisabled, networkingv1.AllocationEnabled)
	case 3, 4, 5:
		cc.Finalizers = []string{networkingv1.Finalizer}
	case 6:
		problem = true
		if w.IntN(3) == 0 {
			NoFinalizer(cc)
		}
	case 7:
		superseded = !superseded && w.IntN(2) == 0
	case 8:
		if w.IntN(6) == 0 {
			Deleted(cc)
		}
	}
	w.tell("ClusterCIDR %s has priority %d, exclusions %v", cc.Name, cc.Spec.Priority, cc.Spec.ExcludedCIDRs)
	w.setClusterCIDR(cc, superseded, problem)
}

func (w *world) deleteClusterCIDR() {
	if cc, ok := some(w, w.clusterCIDRs, anyOf); ok {
		w.tell("ClusterCIDR %s is gone", cc.Name)
		w.dropClusterCIDR(cc.Name)
	}
}

func (w *world) dropClusterCIDR(name string) {
	delete(w.clusterCIDRs, name)
	w.drop(name)
	w.b.DropPool(name)
}

func (w *world) changeService() {
	source := one(w, "s1", "s2")
	ranges := Pfxs(one(w, "10.0.0.0/27", "10.0.0.64/27", "fd00::30/124", "10.0.0.0/28", "10.0.0.8/29"))[:w.IntN(2)]
	w.tell("service ranges of %s: %v", source, ranges)
	w.b.SetService(source, ranges)
}

func (w *world) createNode() {
	name := fmt.Sprint("n", w.IntN(12))
	old := w.nodes[name]
	if old != nil && w.IntN(3) > 0 {
		return
	}
	n := Node(name, UID(w.uid()), Created(int64(1000+w.uids-w.IntN(20))), w.relabel)
	if w.IntN(4) == 0 {
		n.Status.Addresses = []v1.NodeAddress{{Type: v1.NodeInternalIP, Address: one(w, "10.0.0.5", "10.0.0.40", "192.168.0.1")}}
	}
	if w.IntN(6) == 0 {
		w.foreign(n)
	}
	w.tell("Node %s, UID %s, created %d, labels %v, podCIDRs %v", name, n.UID, n.CreationTimestamp.Unix(), n.Labels, n.Spec.PodCIDRs)
	if old != nil {
		if w.IntN(2) == 0 {
			w.tell("  in a list that lacks the earlier one")
			w.b.Keep(name, n, w.renewals.Sent)
			w.due[name] = true
		}
		if w.IntN(2) == 0 { // or else an informer shows both as one update
			w.b.NodeGone(name, old.UID)
		}
	}
	w.observe(n)
}

// foreign gives a Node podCIDRs that this program has not allocated.
func (w *world) foreign(n *v1.Node) {
	for range 1 + w.IntN(3)/2 {
		n.Spec.PodCIDRs = append(n.Spec.PodCIDRs, one(w, "10.0.0.0/28", "10.0.0.16/28", "10.0.0.32/27", "10.0.0.0/26", "10.0.0.0/25", "fd00::/124", "fd00::/123", "fd00::/121", "10.9.0.0/24", "10.0.0.48/30"))
	}
	From(fmt.Sprint("p", w.IntN(7)))(n)
}

func (w *world) relabel(n *v1.Node) {
	n.Labels = map[string]string{}
	for _, key := range []string{"a", "b", "c"} {
		if w.IntN(2) == 0 {
			n.Labels[key] = one(w, "1", "2", "3")
		}
	}
}

// observe shows a Node to the state, as Controller.observeNode does.
func (w *world) observe(n *v1.Node) {
	w.nodes[n.Name] = n
	w.b.Decide(n.Name, w.renewals)
	blocks, _ := clustercidr.PodCIDRsOf(n)
	w.b.Observe(n, blocks, clustercidr.AddressesOf(n))
	if w.b.Reclaim(n) && len(blocks) == 0 {
		w.seen["reclaimed"]++
	}
	if delete(w.line, n.Name); len(blocks) == 0 && n.DeletionTimestamp == nil && !w.holds(n) {
		w.line[n.Name] = true
	}
}

// edit shows an edited copy of some Node for which is is true.
func (w *world) edit(is func(*v1.Node) bool, edit func(*v1.Node)) {
	if n, ok := some(w, w.nodes, is); ok {
		n = n.DeepCopy()
		edit(n)
		w.tell("Node %s has labels %v, podCIDRs %v, is being deleted: %v", n.Name, n.Labels, n.Spec.PodCIDRs, n.DeletionTimestamp != nil)
		w.observe(n)
	}
}

// relabelNode edits a Node's labels, or nothing that matters.
func (w *world) relabelNode() {
	w.edit(anyOf, func(n *v1.Node) {
		if w.IntN(3) > 0 {
			w.relabel(n)
		}
		if w.IntN(5) == 0 {
			n.Status.Addresses = nil
		}
	})
}

func (w *world) deleteNode() {
	n, ok := some(w, w.nodes, anyOf)
	if !ok {
		return
	}
	w.tell("Node %s is gone", n.Name)
	if w.IntN(2) == 0 {
		w.tell("  missing from a list")
		w.b.Keep(n.Name, nil, w.renewals.Sent)
	}
	w.gone(n)
}

func (w *world) gone(n *v1.Node) {
	delete(w.nodes, n.Name)
	delete(w.line, n.Name)
	delete(w.due, n.Name)
	w.b.NodeGone(n.Name, n.UID)
}

func (w *world) beginDeletion() {
	w.edit(anyOf, func(n *v1.Node) {
		n.DeletionTimestamp = &metav1.Time{Time: time.Unix(1, 0)}
		w.due[n.Name] = true
	})
}

// hasSent reports whether a reservation of the Node was sent that it does not show.
func (w *world) hasSent(n *v1.Node) bool {
	v, ok := w.b.Node(n.Name)
	return ok && v.State == sent && len(v.Blocks) > 0
}

func (w *world) showReservation() {
	w.edit(w.hasSent, func(n *v1.Node) {
		v, _ := w.b.Node(n.Name)
		n.Spec.PodCIDRs = Texts(v.Blocks)
		From(v.ClusterCIDR)(n)
	})
}

// changePodCIDRs lets another program write podCIDRs, or a restore of etcd take them away.
func (w *world) changePodCIDRs() {
	shows := w.IntN(2) == 0
	w.edit(func(n *v1.Node) bool { return clustercidr.ShowsPodCIDRs(n) == shows }, func(n *v1.Node) {
		if n.Spec.PodCIDRs, n.Annotations = nil, nil; !shows {
			w.foreign(n)
		}
	})
}

// work looks at a Node as a worker of the controller does, at one that is due or at any.
func (w *world) work() {
	n, ok := some(w, w.nodes, func(n *v1.Node) bool { return w.due[n.Name] })
	if !ok || w.IntN(3) == 0 {
		if n, ok = some(w, w.nodes, anyOf); !ok {
			return
		}
	}
	w.tell("a worker looks at Node %s", n.Name)
	delete(w.due, n.Name)
	w.observe(n)
	switch {
	case clustercidr.ShowsPodCIDRs(n):
	case n.DeletionTimestamp != nil:
		w.b.GiveUp(n)
	case w.missed, w.b.Undecided(n.Name):
		w.due[n.Name] = true
	default:
		w.reserve(n)
	}
}

func (w *world) reserve(n *v1.Node) {
	w.b.Conclude(n, w.now, w.renewals)
	if w.IntN(10) > 0 && w.giveWay(n) {
		return
	}
	h, o := w.holdings(), OwnerOf(n.UID)
	v, _ := w.b.Node(n.Name)
	want := map[string]choice{n.Name: {pool: v.ClusterCIDR, blocks: h[o]}}
	kept := len(h[o]) > 0 && (!v.State.revocable() || w.keeps(h, n, v.ClusterCIDR, h[o]))
	if !kept {
		if len(h[o]) > 0 {
			w.seen["chosen again"]++
			w.tell("  it gives up %v", h[o])
		}
		w.line[n.Name] = true
		h = h.without(o)
		want = w.reference.decide(h, w.oldestFirst())
	}
	var r Reservation
	var ok bool
	w.crowded(true, func() { r, ok, _ = w.b.Allocate(n) })
	if c := want[n.Name]; ok != (len(c.blocks) > 0) || r.ClusterCIDR != c.pool || !slices.Equal(r.Blocks, c.blocks) {
		w.fail("Node %s is allocated %v of %q, want %v of %q", n.Name, r.Blocks, r.ClusterCIDR, c.blocks, c.pool)
	}
	if kept {
		w.seen["kept"]++ // and nothing is decided
	} else {
		w.judge(want, h)
	}
	if ok && w.IntN(3) > 0 {
		w.tell("  it sends %v of %s", r.Blocks, r.ClusterCIDR)
		w.b.Sending(n, w.renewals.WentBack)
	}
}

// giveWay reports whether a Node, and others with it, gave up refused reservations for pending Nodes.
func (w *world) giveWay(n *v1.Node) bool {
	var held []*v1.Node
	for _, other := range w.nodes {
		if w.holds(other) {
			held = append(held, other)
		}
	}
	if w.b.GiveWay(n, w.now) == 0 {
		return false
	}
	w.due[n.Name] = true
	for _, other := range held {
		if !w.holds(other) {
			w.seen["gave way"]++
			w.tell("  Node %s gives way", other.Name)
			w.due[other.Name] = true
		}
	}
	return true
}

// answerWrite answers a write of a reservation, or a read after it.
func (w *world) answerWrite() {
	n, ok := some(w, w.nodes, w.hasSent)
	if !ok {
		return
	}
	answer := one(w, "unanswered", "written", "read", "not sent", "refused", "refused", "refused", "refused")
	w.tell("Node %s: %s", n.Name, answer)
	switch answer {
	case "unanswered":
		w.b.Unanswered(n, w.now, w.now.Add(5*time.Second))
	case "written":
		w.b.Written(n, w.now, false)
	case "read":
		if w.b.WritesOver(n, w.now, w.renewals.WentBack) {
			w.b.ReadWithout(n, w.renewals.Sent)
		}
	default:
		w.b.NotCarriedOut(n, answer == "refused", w.now)
	}
	w.due[n.Name] = true
}

// renew renews the Lease, which may show that etcd was restored.
func (w *world) renew() {
	w.renewals.Sent++
	w.renewals.Proven = w.renewals.Sent - w.IntN(2)
	if w.IntN(8) == 0 {
		w.renewals.WentBack = w.renewals.Sent
	}
	w.tell("renewals %+v", w.renewals)
	w.decideDoubts()
}

func (w *world) decideDoubts() {
	for _, name := range slices.Sorted(maps.Keys(w.b.doubts)) {
		w.due[name] = w.nodes[name] != nil
		w.b.Decide(name, w.renewals)
	}
}

func (w *world) missOrCatchUp() {
	w.missed = !w.missed && w.IntN(2) == 0
	w.tell("something is missed: %v", w.missed)
}

// restart builds another state from what there is. What was reserved and not shown is lost, and cursors are not in these ClusterCIDRs.
func (w *world) restart() {
	if w.IntN(4) > 0 {
		return
	}
	w.tell("restart")
	w.seen["restart"]++
	w.b, w.reference, w.missed = New(), newReference(), false
	clear(w.line)
	clear(w.due)
	for _, name := range slices.Sorted(maps.Keys(w.clusterCIDRs)) {
		w.setClusterCIDR(w.clusterCIDRs[name], false, false)
	}
	w.changeService()
	names := slices.Sorted(maps.Keys(w.nodes))
	w.Shuffle(len(names), func(i, j int) { names[i], names[j] = names[j], names[i] })
	var nodes []*v1.Node
	for _, name := range names {
		n := w.nodes[name]
		if nodes = append(nodes, n); !clustercidr.ShowsPodCIDRs(n) && n.DeletionTimestamp == nil {
			w.line[name] = true
		}
	}
	for _, n := range w.b.Rebuild(nodes, atOnce) {
		w.due[n.Name] = true
	}
}

package nodeipam

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	networkingapiv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	networkingv1 "github.com/multicidr/controller-manager/apis/networking/v1"
)

// What can happen in the simulated world. A move is a line of words, so that a history of moves can be printed, cut shorter and
// played again without the dice that made it; a move that is not possible where it comes does nothing.

type move []string

func (m move) String() string { return strings.Join(m, " ") }

// moveKind is one thing that can happen.
type moveKind struct {
	weight int
	// pick returns the words after the name of a move that is possible now, nil if there is none.
	pick func(w *world, d *rand.Rand) []string
	// do makes it happen. It reports whether it was possible.
	do func(w *world, args []string) bool
}

const nothing = "-" // where a word stands for no value

var (
	nodeNames        = []string{"n1", "n2", "n3", "n4", "n5", "n6", "n7"}
	clusterCIDRNames = []string{"a", "b", "c", "d"}
	serviceNames     = []string{"s1", "s2"}
	nodeLabels       = []string{nothing, nothing, "p=x", "p=y", "p=x,q=y"}
	foreignCIDRs     = []string{
		"10.0.0.0/28", "10.0.0.16/28", "10.0.0.32/28,fd00::20/124", "10.0.0.64/27", "fd00::10/124,10.0.0.16/28", // as we give them
		"10.0.0.21/28",   // host bits
		"10.0.0.0/27",    // larger than some blocks
		"10.0.0.0/16",    // larger than the ranges
		"10.0.0.34/32",   // smaller
		"192.168.0.0/24", // outside
		"10.0.0.96/28,fd12::/124",
	}
	addresses     = []string{"10.0.0.1", "192.168.7.7", "fd00::1"}
	serviceRanges = []string{"10.0.0.0/28", "10.0.0.64/27", "10.0.0.20/30", "fd00::/125", "10.96.0.0/24"}

	// The ranges overlap each other in all ways and are soon full.
	shapes = map[string]networkingv1.ClusterCIDRSpec{
		"v4":    {IPv4: "10.0.0.0/26", PerNodeHostBits: 4},
		"wide":  {IPv4: "10.0.0.0/25", PerNodeHostBits: 5},
		"one":   {IPv4: "10.0.0.16/28", PerNodeHostBits: 4},
		"apart": {IPv4: "10.0.1.7/26", PerNodeHostBits: 4},
		"v6":    {IPv6: "fd00::/121", PerNodeHostBits: 5},
		"dual":  {IPv4: "10.0.0.64/26", IPv6: "fd00::/122", PerNodeHostBits: 4},
		"lame":  {IPv4: "10.0.0.0/25", IPv6: "fd00::40/123", PerNodeHostBits: 4}, // two IPv6 blocks for eight IPv4 ones
		"sized": {IPv4: "10.0.1.0/26", IPv6: "fd00::/120", PerNodeHostBits: 4, IPv6PerNodeHostBits: new(int32(6))},
	}
	shapeNames = sortedNames(shapes)
	selectors  = map[string]*v1.NodeSelector{
		nothing:       nil,
		"p=x":         anyOf(allOf(in("p", "x"))),
		"p=x,q=y":     anyOf(allOf(in("p", "x"), in("q", "y"))),
		"p=x|p=y":     anyOf(allOf(in("p", "x")), allOf(in("p", "y"))),
		"name=n1":     anyOf(v1.NodeSelectorTerm{MatchFields: []v1.NodeSelectorRequirement{in("metadata.name", "n1")}}),
		"p=x|p=x,q=y": anyOf(allOf(in("p", "x")), allOf(in("p", "x"), in("q", "y"))),
	}
	selectorNames = sortedNames(selectors)
	// What processes have as --cluster-cidr.
	flags = map[string]*networkingv1.ClusterCIDRSpec{
		nothing: nil,
		"old":   {IPv4: "10.0.2.0/26", PerNodeHostBits: 4},
		"new":   {IPv4: "10.0.2.0/25", PerNodeHostBits: 4},
	}
	flagNames = []string{nothing, nothing, nothing, nothing, "old", "new"}
	// Exclusions are cut out of the first range: how many bits longer, and where.
	exclusions = []string{nothing, nothing, "0/1", "1/2", "3/2", "0/0"}
)

func pickOne[T any](d *rand.Rand, of []T) (one T, ok bool) {
	if len(of) == 0 {
		return one, false
	}
	return of[d.IntN(len(of))], true
}

func must[T any](d *rand.Rand, of []T) T { return of[d.IntN(len(of))] }

// named picks one of the objects of a kind that meet a condition.
func named(k kind, holds func(metav1.Object) bool) func(*world, *rand.Rand) []string {
	return func(w *world, d *rand.Rand) []string {
		var names []string
		for _, name := range sortedNames(w.server.objects[k]) {
			if holds(w.server.objects[k][name]) {
				names = append(names, name)
			}
		}
		if name, ok := pickOne(d, names); ok {
			return []string{name}
		}
		return nil
	}
}

// with adds words.
func with(pick func(*world, *rand.Rand) []string, more ...[]string) func(*world, *rand.Rand) []string {
	return func(w *world, d *rand.Rand) []string {
		words := pick(w, d)
		if words == nil {
			return nil
		}
		for _, of := range more {
			words = append(words, must(d, of))
		}
		return words
	}
}

// unused picks a name that no object of the kind has.
func unused(k kind, names []string) func(*world, *rand.Rand) []string {
	return func(w *world, d *rand.Rand) []string {
		free := slices.DeleteFunc(slices.Clone(names), func(name string) bool { return w.server.objects[k][name] != nil })
		if name, ok := pickOne(d, free); ok {
			return []string{name}
		}
		return nil
	}
}

func alive(o metav1.Object) bool { return o.GetDeletionTimestamp() == nil }
func any_(metav1.Object) bool    { return true }

// processes picks a process that meets a condition.
func processes(holds func(*process) bool) func(*world, *rand.Rand) []string {
	return func(w *world, d *rand.Rand) []string {
		var names []string
		for _, p := range w.running() {
			if holds(p) {
				names = append(names, p.name)
			}
		}
		if name, ok := pickOne(d, names); ok {
			return []string{name}
		}
		return nil
	}
}

func anyProcess(*process) bool { return true }

// onNode changes a Node at the server.
func onNode(change func(node *v1.Node, args []string)) func(*world, []string) bool {
	return func(w *world, args []string) bool {
		node := w.server.node(args[0]).DeepCopy()
		if node == nil {
			return false
		}
		change(node, args[1:])
		w.server.store(kindNode, node)
		return true
	}
}

// onClusterCIDR changes a ClusterCIDR at the server, as a user does.
func onClusterCIDR(change func(cc *networkingv1.ClusterCIDR, args []string)) func(*world, []string) bool {
	return func(w *world, args []string) bool {
		cc := w.server.clusterCIDR(args[0]).DeepCopy()
		if cc == nil {
			return false
		}
		change(cc, args[1:])
		cc.Generation++
		w.server.store(kindClusterCIDR, cc)
		return true
	}
}

// onProcess is something that a process does, or that happens to it, while it runs.
func onProcess(do func(p *process, args []string) bool) func(*world, []string) bool {
	return func(w *world, args []string) bool {
		p := w.process(args[0])
		return p != nil && !p.paused && do(p, args[1:])
	}
}

func labelsFrom(s string) map[string]string {
	if s == nothing {
		return nil
	}
	labels := map[string]string{}
	for pair := range strings.SplitSeq(s, ",") {
		key, value, _ := strings.Cut(pair, "=")
		labels[key] = value
	}
	return labels
}

func setPodCIDRs(node *v1.Node, s string) {
	if s != nothing {
		node.Spec.PodCIDRs = strings.Split(s, ",")
		node.Spec.PodCIDR = node.Spec.PodCIDRs[0]
	}
}

func createNode(w *world, name, labels, cidrs, finalizer string) bool {
	if w.server.node(name) != nil {
		return false
	}
	node := &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labelsFrom(labels)}}
	setPodCIDRs(node, cidrs)
	if finalizer != nothing {
		node.Finalizers = []string{finalizer}
	}
	w.server.create(kindNode, node)
	return true
}

const foreignFinalizer = "example.com/hold"

// exclusion cuts "index/bits" out of the first range of a spec.
func exclusion(spec networkingv1.ClusterCIDRSpec, s string) []string {
	if s == nothing {
		return nil
	}
	var index, bits int
	if _, err := fmt.Sscanf(s, "%d/%d", &index, &bits); err != nil {
		panic(err)
	}
	r := slowRangesOf(&networkingv1.ClusterCIDR{Spec: spec})[0].prefix
	a := r.Addr()
	for range index << (a.BitLen() - r.Bits() - bits) {
		a = a.Next()
	}
	return []string{netip.PrefixFrom(a, r.Bits()+bits).String()}
}

func wordToInt(s string) int {
	n, err := strconv.Atoi(s)
	if err != nil {
		panic(err)
	}
	return n
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
	c, ok := pickOne(d, calls)
	if !ok {
		return nil
	}
	outcome, faulty := outcomeOK, 3
	if c[1] == "lease" {
		faulty = 10
	}
	if d.IntN(faulty) == 0 {
		outcome = must(d, outcomes)
	}
	return append(c, outcome)
}

var moves = map[string]moveKind{
	// What users and machines do.
	"create-node": {130, with(unused(kindNode, nodeNames), nodeLabels, append(slices.Repeat([]string{nothing}, 80), foreignCIDRs...), []string{nothing, nothing, nothing, foreignFinalizer}),
		func(w *world, a []string) bool { return createNode(w, a[0], a[1], a[2], a[3]) }},
	"delete-node": {80, named(kindNode, alive), func(w *world, a []string) bool {
		if node := w.server.node(a[0]); node == nil || node.DeletionTimestamp != nil {
			return false
		}
		w.server.delete(kindNode, a[0])
		return true
	}},
	"recreate-node": {20, with(named(kindNode, func(o metav1.Object) bool { return alive(o) && len(o.GetFinalizers()) == 0 }), nodeLabels, append(slices.Repeat([]string{nothing}, 80), foreignCIDRs...)), func(w *world, a []string) bool {
		if node := w.server.node(a[0]); node == nil || len(node.Finalizers) > 0 {
			return false
		}
		w.server.delete(kindNode, a[0])
		return createNode(w, a[0], a[1], a[2], nothing)
	}},
	"release-node": {30, named(kindNode, func(o metav1.Object) bool { return len(o.GetFinalizers()) > 0 }), onNode(func(node *v1.Node, _ []string) { node.Finalizers = nil })},
	"label-node":   {25, with(named(kindNode, any_), nodeLabels), onNode(func(node *v1.Node, a []string) { node.Labels = labelsFrom(a[0]) })},
	"address-node": {6, with(named(kindNode, any_), addresses), onNode(func(node *v1.Node, a []string) {
		node.Status.Addresses = []v1.NodeAddress{{Type: v1.NodeInternalIP, Address: a[0]}}
	})},
	"annotate-node": {6, with(named(kindNode, any_), append([]string{nothing}, clusterCIDRNames...)), func(w *world, a []string) bool {
		if node := w.server.node(a[0]); node != nil {
			w.annotated[node.UID] = true
		}
		return onNode(func(node *v1.Node, a []string) {
			delete(node.Annotations, networkingv1.AnnotationClusterCIDR)
			if a[0] != nothing {
				metav1.SetMetaDataAnnotation(&node.ObjectMeta, networkingv1.AnnotationClusterCIDR, a[0])
			}
		})(w, a)
	}},
	"foreign-podcidrs": {6, with(named(kindNode, func(o metav1.Object) bool { return len(o.(*v1.Node).Spec.PodCIDRs) == 0 }), foreignCIDRs), onNode(func(node *v1.Node, a []string) {
		if len(node.Spec.PodCIDRs) == 0 {
			setPodCIDRs(node, a[0])
		}
	})},
	"create-cc": {100, with(unused(kindClusterCIDR, clusterCIDRNames), shapeNames, append(slices.Repeat([]string{nothing}, 6), selectorNames...), []string{"0", "0", "5"}, exclusions), func(w *world, a []string) bool {
		if w.server.clusterCIDR(a[0]) != nil {
			return false
		}
		spec := shapes[a[1]]
		spec.NodeSelector = selectors[a[2]].DeepCopy()
		spec.Priority = int32(wordToInt(a[3]))
		spec.ExcludedCIDRs = exclusion(spec, a[4])
		w.server.create(kindClusterCIDR, &networkingv1.ClusterCIDR{ObjectMeta: metav1.ObjectMeta{Name: a[0]}, Spec: spec})
		return true
	}},
	"delete-cc": {12, named(kindClusterCIDR, alive), func(w *world, a []string) bool {
		if cc := w.server.clusterCIDR(a[0]); cc == nil || cc.DeletionTimestamp != nil {
			return false
		}
		w.server.delete(kindClusterCIDR, a[0])
		return true
	}},
	"strip-cc": {2, named(kindClusterCIDR, any_), func(w *world, a []string) bool {
		if w.server.clusterCIDR(a[0]) == nil {
			return false
		}
		w.forced[a[0]] = true
		return onClusterCIDR(func(cc *networkingv1.ClusterCIDR, _ []string) { cc.Finalizers = nil })(w, a)
	}},
	"allocation": {8, with(named(kindClusterCIDR, any_), []string{"Enabled", "Enabled", "Disabled"}), onClusterCIDR(func(cc *networkingv1.ClusterCIDR, a []string) {
		cc.Spec.Allocation = networkingv1.AllocationMode(a[0])
	})},
	"exclude": {8, with(named(kindClusterCIDR, any_), exclusions), onClusterCIDR(func(cc *networkingv1.ClusterCIDR, a []string) {
		cc.Spec.ExcludedCIDRs = exclusion(cc.Spec, a[0])
	})},
	"prioritize": {6, with(named(kindClusterCIDR, any_), []string{"0", "5", "9"}), onClusterCIDR(func(cc *networkingv1.ClusterCIDR, a []string) {
		cc.Spec.Priority = int32(wordToInt(a[0]))
	})},
	"create-service-range": {8, with(unused(kindServiceCIDR, serviceNames), serviceRanges), func(w *world, a []string) bool {
		if w.server.serviceCIDR(a[0]) != nil {
			return false
		}
		w.server.create(kindServiceCIDR, &networkingapiv1.ServiceCIDR{ObjectMeta: metav1.ObjectMeta{Name: a[0]}, Spec: networkingapiv1.ServiceCIDRSpec{CIDRs: []string{a[1]}}})
		return true
	}},
	"delete-service-range": {10, named(kindServiceCIDR, any_), func(w *world, a []string) bool {
		if w.server.serviceCIDR(a[0]) == nil {
			return false
		}
		w.server.delete(kindServiceCIDR, a[0])
		return true
	}},

	// Time.
	"time": {100, func(w *world, d *rand.Rand) []string {
		if len(w.running()) < len(w.processes) && d.IntN(3) == 0 {
			return []string{"6000"} // long enough for others to take over
		}
		return []string{must(d, []string{"1", "1", "10", "10", "50", "50", "200", "200", "500", "1000", "1000", "2000", "6000"})}
	}, func(w *world, a []string) bool {
		w.elapsed += time.Duration(wordToInt(a[0])) * time.Millisecond
		return true
	}},

	// Processes.
	"boot": {200, func(w *world, d *rand.Rand) []string {
		if len(w.processes) >= 3 || len(w.processes) > 0 && d.IntN(10) > 0 {
			return nil
		}
		return []string{fmt.Sprintf("p%d", w.booted+1), must(d, flagNames)}
	}, func(w *world, a []string) bool {
		// The name is in the move so that a history stays true to itself when another one's boot is cut out of it.
		if len(w.processes) >= 3 || w.process(a[0]) != nil {
			return false
		}
		w.boot(a[0], flags[a[1]])
		return true
	}},
	"crash": {4, processes(anyProcess), onProcess(func(p *process, _ []string) bool {
		for _, t := range p.tasks {
			if !t.call.arrived && t.call.what != "" {
				late := *t.call
				p.w.network = append(p.w.network, &late)
			}
			p.w.cover("crash during: " + strings.Join(strings.Fields(t.call.what)[:2], " "))
		}
		p.die()
		return true
	})},
	"stop": {4, processes(func(p *process) bool { return !p.stopping }), onProcess(func(p *process, _ []string) bool {
		p.stopping = true
		return true
	})},
	"leave": {200, processes(func(p *process) bool { return p.stopping || p.overdue() }), onProcess(func(p *process, _ []string) bool { return p.leave() })},
	// Mostly where it hurts: between the look at the fence and the sending.
	"pause": {60, func(w *world, d *rand.Rand) []string {
		anywhere := d.IntN(10) == 0
		return processes(func(p *process) bool { return p.serving && (anywhere || p.writesNode()) })(w, d)
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
		name, ok := pickOne(d, names)
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
	"suspend": {4, with(processes(func(p *process) bool { return p.shifted == 0 }), []string{"1000", "7000", "20000"}), onProcess(func(p *process, a []string) bool {
		// Only one of its clocks goes wrong in the life of a process: with both, nothing could tell how late it is.
		if p.shifted != 0 {
			return false
		}
		d := time.Duration(wordToInt(a[0])) * time.Millisecond
		p.asleep += d
		p.w.elapsed += d
		return true
	})},
	"set-clock": {4, with(processes(func(p *process) bool { return p.asleep == 0 }), []string{"-60000", "-5000", "3000", "60000"}), onProcess(func(p *process, a []string) bool {
		if p.asleep != 0 {
			return false
		}
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
				if p.controller != nil && !p.caches[k].listed {
					some = append(some, []string{p.name, string(k)})
				}
			}
		}
		words, ok := pickOne(d, some)
		if !ok {
			return nil
		}
		return append(words, strconv.Itoa(max(0, w.server.revision()-must(d, []int{0, 0, 1, 3, 12}))))
	}, onProcess(func(p *process, a []string) bool {
		if p.controller == nil {
			return false
		}
		revision := min(wordToInt(a[1]), p.w.server.revision())
		if !p.caches[kind(a[0])].listed && p.caches[kind(a[0])].behind(p.w.server) > 0 && revision < p.w.server.revision() {
			p.w.cover("a first list may be stale")
		}
		p.list(kind(a[0]), revision)
		return true
	})},
	"relist": {15, with(processes(func(p *process) bool { return p.serving }), []string{string(kindNode), string(kindClusterCIDR)}, []string{"0", "1", "3"}), onProcess(func(p *process, a []string) bool {
		if p.controller == nil {
			return false
		}
		p.list(kind(a[0]), max(0, p.w.server.revision()-wordToInt(a[1])))
		return true
	})},
	"deliver": {600, func(w *world, d *rand.Rand) []string {
		var some [][]string
		for _, p := range w.running() {
			for _, k := range kinds {
				if p.controller != nil && p.caches[k].listed && (p.caches[k].behind(w.server) > 0 || !p.serving && p.caches[k].revision < w.server.revision()) {
					some = append(some, []string{p.name, string(k)})
				}
			}
		}
		words, ok := pickOne(d, some)
		if !ok {
			return nil
		}
		return append(words, must(d, []string{"1", "1", "1", "2", "5"}))
	}, onProcess(func(p *process, a []string) bool {
		if p.controller == nil || !p.caches[kind(a[0])].listed {
			return false
		}
		before := p.caches[kind(a[0])].revision
		names := p.deliver(kind(a[0]), wordToInt(a[1]))
		slices.Sort(names)
		if len(slices.Compact(slices.Clone(names))) < len(names) {
			p.w.cover("changes seen as one")
		}
		return p.caches[kind(a[0])].revision > before
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
		words, _ := pickOne(d, some)
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
		if c, ok := pickOne(d, w.network); ok {
			return append([]string{c.task.p.name, must(d, []string{"yes", "yes", "no"})}, strings.Fields(c.what)...)
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
		if p := w.leader(); p != nil {
			return []string{p.name}
		}
		return nil
	}, onProcess(func(p *process, _ []string) bool {
		if p.w.leader() != p {
			return false
		}
		p.w.settle(p)
		if p.w.violation == nil {
			p.w.checkSettled(p)
		}
		return true
	})},
}

var moveNames = sortedNames(moves)

// temper draws how often each move comes in one history: what is rare on the average is frequent in some, or missing altogether.
func temper(d *rand.Rand) (weights []int, total int) {
	for _, name := range moveNames {
		weight := moves[name].weight
		if weight < frequent {
			weight = weight * must(d, []int{0, 1, 1, 2, 6}) / 2
		}
		weights, total = append(weights, weight), total+weight
	}
	return weights, total
}

// frequent is the weight from which on a move keeps the world going.
const frequent = 100

// roll picks a possible move.
func (w *world) roll(d *rand.Rand, weights []int, total int) move {
	for {
		n := d.IntN(total)
		for i, name := range moveNames {
			if n -= weights[i]; n >= 0 {
				continue
			}
			if args := moves[name].pick(w, d); args != nil {
				return append(move{name}, args...)
			}
			break
		}
	}
}

// make carries a move out.
func (w *world) make(m move) {
	w.note("%v", m)
	if moves[m[0]].do(w, m[1:]) {
		w.cover("move: " + m[0])
	} else {
		w.trace[len(w.trace)-1] += " (not possible)"
	}
}

package nodeipam

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	networkingapiv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	networkingv1 "github.com/multicidr/controller-manager/apis/networking/v1"
	. "github.com/multicidr/controller-manager/controllers/nodeipam/internal/objects"
)

// What users and machines do to Nodes, ClusterCIDRs and ServiceCIDRs.

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
		"p=x":         AnyOf(AllOf(In("p", "x"))),
		"p=x,q=y":     AnyOf(AllOf(In("p", "x"), In("q", "y"))),
		"p=x|p=y":     AnyOf(AllOf(In("p", "x")), AllOf(In("p", "y"))),
		"name=n1":     AnyOf(v1.NodeSelectorTerm{MatchFields: []v1.NodeSelectorRequirement{In("metadata.name", "n1")}}),
		"p=x|p=x,q=y": AnyOf(AllOf(In("p", "x")), AllOf(In("p", "x"), In("q", "y"))),
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
	exclusions = []string{nothing, nothing, "0/1", "1/2", "3/2", "0/0", "5/4", "0/1+1/1", "0/2+2/2", "1/2+4/3+5/4", "l0/1", "l1/2+0/2", "l9/4+3/2", "l0/0", "0/1+0/2+1/3"}
)

// named picks one of the objects of a kind that meet a condition.
func named(k kind, holds func(metav1.Object) bool) func(*world, *rand.Rand) []string {
	return func(w *world, d *rand.Rand) []string {
		var names []string
		for _, name := range sortedNames(w.server.objects[k]) {
			if holds(w.server.objects[k][name]) {
				names = append(names, name)
			}
		}
		if name, ok := oneIfAny(d, names); ok {
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
			words = append(words, oneOf(d, of))
		}
		return words
	}
}

// unused picks a name that no object of the kind has.
func unused(k kind, names []string) func(*world, *rand.Rand) []string {
	return func(w *world, d *rand.Rand) []string {
		free := slices.DeleteFunc(slices.Clone(names), func(name string) bool { return w.server.objects[k][name] != nil })
		if name, ok := oneIfAny(d, free); ok {
			return []string{name}
		}
		return nil
	}
}

func alive(o metav1.Object) bool { return o.GetDeletionTimestamp() == nil }
func every(metav1.Object) bool   { return true }

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

// createClusterCIDR makes one: its name, its shape, whom it selects, its priority, what it excludes.
func createClusterCIDR(w *world, a []string) bool {
	if w.server.clusterCIDR(a[0]) != nil {
		return false
	}
	spec := shapes[a[1]]
	spec.NodeSelector = selectors[a[2]].DeepCopy()
	spec.Priority = int32(wordToInt(a[3]))
	spec.ExcludedCIDRs = exclusion(spec, a[4])
	w.server.create(kindClusterCIDR, &networkingv1.ClusterCIDR{ObjectMeta: metav1.ObjectMeta{Name: a[0]}, Spec: spec})
	return true
}

// forceClusterCIDR deletes one, whatever finalizers it has.
func (w *world) forceClusterCIDR(name string) {
	w.forced[name], w.undone[name] = true, w.server.now()
	cc := w.server.clusterCIDR(name).DeepCopy()
	cc.Finalizers = nil
	w.server.store(kindClusterCIDR, cc)
	if w.server.clusterCIDR(name) != nil {
		w.server.delete(kindClusterCIDR, name)
	}
}

const foreignFinalizer = "example.com/hold"

// exclusion cuts parts "index/bits", with + between them, out of the ranges of a spec: out of the last one after an "l", else the first one.
func exclusion(spec networkingv1.ClusterCIDRSpec, s string) (all []string) {
	if s == nothing {
		return nil
	}
	for part := range strings.SplitSeq(s, "+") {
		ranges := slowRangesOf(&networkingv1.ClusterCIDR{Spec: spec})
		r := ranges[0].prefix
		if rest, last := strings.CutPrefix(part, "l"); last {
			part, r = rest, ranges[len(ranges)-1].prefix
		}
		var index, bits int
		if _, err := fmt.Sscanf(part, "%d/%d", &index, &bits); err != nil {
			panic(err)
		}
		if bits > r.Addr().BitLen()-r.Bits() {
			continue
		}
		a := r.Addr()
		for range index << (r.Addr().BitLen() - r.Bits() - bits) {
			a = a.Next()
		}
		all = append(all, netip.PrefixFrom(a, r.Bits()+bits).String())
	}
	return all
}

var userMoves = map[string]moveKind{
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
	"label-node":   {25, with(named(kindNode, every), nodeLabels), onNode(func(node *v1.Node, a []string) { node.Labels = labelsFrom(a[0]) })},
	"address-node": {6, with(named(kindNode, every), addresses), onNode(func(node *v1.Node, a []string) {
		node.Status.Addresses = []v1.NodeAddress{{Type: v1.NodeInternalIP, Address: a[0]}}
	})},
	"annotate-node": {6, with(named(kindNode, every), append([]string{nothing}, clusterCIDRNames...)), func(w *world, a []string) bool {
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
	"create-cc": {100, with(unused(kindClusterCIDR, clusterCIDRNames), shapeNames, append(slices.Repeat([]string{nothing}, 6), selectorNames...), []string{"0", "0", "5"}, exclusions), createClusterCIDR},
	// As kubectl replace --force does, once somebody has taken the finalizers away.
	"replace-cc": {5, with(named(kindClusterCIDR, func(o metav1.Object) bool { return slices.Contains(clusterCIDRNames, o.GetName()) }), shapeNames, append(slices.Repeat([]string{nothing}, 6), selectorNames...), []string{"0", "0", "5"}, exclusions), func(w *world, a []string) bool {
		if w.server.clusterCIDR(a[0]) == nil {
			return false
		}
		w.forceClusterCIDR(a[0])
		return createClusterCIDR(w, a)
	}},
	"delete-cc": {12, named(kindClusterCIDR, alive), func(w *world, a []string) bool {
		if cc := w.server.clusterCIDR(a[0]); cc == nil || cc.DeletionTimestamp != nil {
			return false
		}
		w.server.delete(kindClusterCIDR, a[0])
		return true
	}},
	"hold-cc": {8, named(kindClusterCIDR, func(o metav1.Object) bool { return alive(o) && !slices.Contains(o.GetFinalizers(), foreignFinalizer) }), onClusterCIDR(func(cc *networkingv1.ClusterCIDR, _ []string) {
		if alive(cc) && !slices.Contains(cc.Finalizers, foreignFinalizer) {
			cc.Finalizers = append(cc.Finalizers, foreignFinalizer)
		}
	})},
	"release-cc": {20, named(kindClusterCIDR, func(o metav1.Object) bool { return slices.Contains(o.GetFinalizers(), foreignFinalizer) }), onClusterCIDR(func(cc *networkingv1.ClusterCIDR, _ []string) {
		cc.Finalizers = slices.DeleteFunc(cc.Finalizers, func(f string) bool { return f == foreignFinalizer })
	})},
	"strip-cc": {2, named(kindClusterCIDR, every), func(w *world, a []string) bool {
		if w.server.clusterCIDR(a[0]) == nil {
			return false
		}
		w.forced[a[0]], w.undone[a[0]] = true, w.server.now()
		return onClusterCIDR(func(cc *networkingv1.ClusterCIDR, _ []string) { cc.Finalizers = nil })(w, a)
	}},
	"allocation": {8, with(named(kindClusterCIDR, every), []string{"Enabled", "Enabled", "Disabled"}), func(w *world, a []string) bool {
		return onClusterCIDR(func(cc *networkingv1.ClusterCIDR, a []string) {
			if string(cc.Spec.Allocation) == a[0] {
				return // which nobody can see
			}
			if isFromFlags(cc) {
				w.undone[cc.Name] = w.server.now()
			}
			_, annotated := cc.Annotations[networkingv1.AnnotationSuperseded]
			w.disabled[cc.UID] = a[0] == string(networkingv1.AllocationDisabled) && (!annotated || !isFromFlags(cc))
			cc.Spec.Allocation = networkingv1.AllocationMode(a[0])
		})(w, a)
	}},
	// As who copies a ClusterCIDR of the flags does, or wants to have it for himself.
	"label-cc": {6, named(kindClusterCIDR, every), func(w *world, a []string) bool {
		return onClusterCIDR(func(cc *networkingv1.ClusterCIDR, _ []string) {
			if _, ok := cc.Labels[networkingv1.LabelCreatedFromFlags]; ok {
				delete(cc.Labels, networkingv1.LabelCreatedFromFlags)
				return
			}
			metav1.SetMetaDataLabel(&cc.ObjectMeta, networkingv1.LabelCreatedFromFlags, "true")
			if _, annotated := cc.Annotations[networkingv1.AnnotationSuperseded]; annotated { // It says again that the controller has disabled it.
				delete(w.disabled, cc.UID)
			}
		})(w, a)
	}},
	"finalizers": {6, func(_ *world, d *rand.Rand) []string { return []string{oneOf(d, []string{"kept", "dropped"})} }, func(w *world, a []string) bool {
		w.server.dropsFinalizers = a[0] == "dropped"
		return true
	}},
	"policy": {4, func(_ *world, d *rand.Rand) []string {
		return []string{oneOf(d, []string{"keeps-finalizers", "drops-podcidrs", "none", "none"})}
	}, func(w *world, a []string) bool {
		w.server.keepsFinalizers, w.server.dropsPodCIDRs = a[0] == "keeps-finalizers", a[0] == "drops-podcidrs"
		return true
	}},
	"exclude": {8, with(named(kindClusterCIDR, every), exclusions), onClusterCIDR(func(cc *networkingv1.ClusterCIDR, a []string) {
		cc.Spec.ExcludedCIDRs = exclusion(cc.Spec, a[0])
	})},
	// Somebody writes what only the controller should.
	"write-status": {3, with(named(kindClusterCIDR, every), []string{"ipv6", "cursor", "free", "ready"}), func(w *world, a []string) bool {
		cc := w.server.clusterCIDR(a[0]).DeepCopy()
		if cc == nil {
			return false
		}
		switch a[1] {
		case "ipv6":
			cc.Status.IPv6 = &networkingv1.RangeStatus{CIDR: "fd99::/64", BlockPrefixLength: 120, Total: 1, Free: 1}
		case "ready":
			meta.SetStatusCondition(&cc.Status.Conditions, metav1.Condition{
				Type: networkingv1.ConditionReady, Status: metav1.ConditionUnknown, Reason: "Written", LastTransitionTime: metav1.NewTime(w.server.now()).Rfc3339Copy(),
			})
		default:
			s := cc.Status.IPv4
			if s == nil {
				return false
			}
			if a[1] == "cursor" {
				s.Cursor = strings.TrimSuffix(s.CIDR, fmt.Sprintf("/%d", netip.MustParsePrefix(s.CIDR).Bits()))
			} else {
				s.Free++
			}
		}
		w.server.store(kindClusterCIDR, cc)
		return true
	}},
	"prioritize": {6, with(named(kindClusterCIDR, every), []string{"0", "5", "9"}), onClusterCIDR(func(cc *networkingv1.ClusterCIDR, a []string) {
		cc.Spec.Priority = int32(wordToInt(a[0]))
	})},
	"create-service-range": {8, with(unused(kindServiceCIDR, serviceNames), serviceRanges), func(w *world, a []string) bool {
		if w.server.serviceCIDR(a[0]) != nil {
			return false
		}
		w.server.create(kindServiceCIDR, &networkingapiv1.ServiceCIDR{ObjectMeta: metav1.ObjectMeta{Name: a[0]}, Spec: networkingapiv1.ServiceCIDRSpec{CIDRs: []string{a[1]}}})
		return true
	}},
	// A second family is all that may be added to a ServiceCIDR.
	"extend-service-range": {6, named(kindServiceCIDR, func(o metav1.Object) bool { return len(o.(*networkingapiv1.ServiceCIDR).Spec.CIDRs) == 1 }), func(w *world, a []string) bool {
		s := w.server.serviceCIDR(a[0]).DeepCopy()
		if s == nil || len(s.Spec.CIDRs) > 1 {
			return false
		}
		other := "fd00::30/124"
		if strings.Contains(s.Spec.CIDRs[0], ":") {
			other = "10.0.0.96/28"
		}
		s.Spec.CIDRs = append(s.Spec.CIDRs, other)
		w.server.store(kindServiceCIDR, s)
		return true
	}},
	"delete-service-range": {10, named(kindServiceCIDR, every), func(w *world, a []string) bool {
		if w.server.serviceCIDR(a[0]) == nil {
			return false
		}
		w.server.delete(kindServiceCIDR, a[0])
		return true
	}},
}

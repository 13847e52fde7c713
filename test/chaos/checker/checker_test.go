package checker

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	networkingapiv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	networkingv1 "github.com/multicidr/controller-manager/apis/networking/v1"
)

// history makes the events of a cluster, one revision a second.
type history struct {
	c        *Checker
	revision int64
	now      time.Time
	nodes    map[string]*corev1.Node
	pools    map[string]*networkingv1.ClusterCIDR
}

// play returns what happens: steps with semicolons between them, each a word of steps, a name, and what else it takes.
func play(opts Options, happens string) *history {
	h := &history{c: New(opts), now: time.Unix(1000, 0), nodes: map[string]*corev1.Node{}, pools: map[string]*networkingv1.ClusterCIDR{}}
	h.c.begin = h.now
	h.play(happens)
	return h
}

func (h *history) play(happens string) {
	for step := range strings.SplitSeq(happens, ";") {
		words := strings.Fields(step)
		steps[words[0]](h, words[1], words[2:])
	}
}

var steps = map[string]func(h *history, name string, args []string){
	// wait 1h lets time pass without a revision.
	"wait": func(h *history, duration string, _ []string) { h.now = h.now.Add(must(time.ParseDuration(duration))) },
	"leader": func(h *history, identity string, _ []string) {
		h.observe(Event{Lease: &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: "manager"}, Spec: coordinationv1.LeaseSpec{HolderIdentity: &identity}}})
	},
	// node creates one with label pool=x, with podCIDRs if there are any.
	"node": (*history).node,
	// serve n a@m 10.0.0.0/24 has m give it that from ClusterCIDR a; join is for a Node that is served as soon as it is there. - stands for no ClusterCIDR.
	"serve": (*history).serve,
	"join":  func(h *history, name string, args []string) { h.node(name, nil); h.serve(name, args) },
	// relabel n y gives it the label pool=y; without a word, none.
	"relabel": func(h *history, name string, pool []string) {
		h.putNode(name, func(n *corev1.Node) { n.Labels = map[string]string{"pool": strings.Join(pool, "")} })
	},
	"addresses": func(h *history, name string, addresses []string) {
		h.putNode(name, func(n *corev1.Node) {
			for _, a := range addresses {
				n.Status.Addresses = append(n.Status.Addresses, corev1.NodeAddress{Address: a})
			}
		})
	},
	"delete": func(h *history, name string, _ []string) {
		h.putNode(name, func(n *corev1.Node) { n.DeletionTimestamp = &metav1.Time{Time: h.now} })
	},
	"gone": func(h *history, name string, _ []string) {
		delete(h.nodes, name)
		h.observe(Event{Gone: true, Node: &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}})
	},
	// cc creates or changes a ClusterCIDR. A new one is for label pool=x and has four /24 blocks, 10.0.0.0 to 10.0.3.0, unless changes say otherwise.
	"cc": (*history).cc,
	"ccgone": func(h *history, name string, _ []string) {
		delete(h.pools, name)
		h.observe(Event{Gone: true, ClusterCIDR: &networkingv1.ClusterCIDR{ObjectMeta: metav1.ObjectMeta{Name: name}}})
	},
	// replace puts another one of the name in its place, and nobody sees it go.
	"replace": func(h *history, name string, _ []string) { delete(h.pools, name); h.cc(name, nil) },
	// says a 3 0 writes the free blocks of each family into the status.
	"says": func(h *history, name string, free []string) {
		h.putPool(name, func(cc *networkingv1.ClusterCIDR) {
			for i, status := range []**networkingv1.RangeStatus{&cc.Status.IPv4, &cc.Status.IPv6}[:len(free)] {
				if *status == nil {
					*status = &networkingv1.RangeStatus{}
				}
				(*status).Free = number(free[i])
			}
		})
	},
	"reports":  func(h *history, name string, args []string) { h.reports(name, false, args) },
	"reports6": func(h *history, name string, args []string) { h.reports(name, true, args) },
	"service": func(h *history, name string, cidrs []string) {
		h.observe(Event{ServiceCIDR: &networkingapiv1.ServiceCIDR{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: networkingapiv1.ServiceCIDRSpec{CIDRs: cidrs}}})
	},
	"servicegone": func(h *history, name string, _ []string) {
		h.observe(Event{Gone: true, ServiceCIDR: &networkingapiv1.ServiceCIDR{ObjectMeta: metav1.ObjectMeta{Name: name}}})
	},
}

func (h *history) node(name string, podCIDRs []string) {
	h.putNode(name, func(n *corev1.Node) { n.Spec.PodCIDRs = podCIDRs })
}

func (h *history) serve(name string, args []string) {
	h.putNode(name, func(n *corev1.Node) {
		n.Spec.PodCIDRs = args[1:]
		if from, by, _ := strings.Cut(args[0], "@"); from != "-" {
			n.Annotations = map[string]string{networkingv1.AnnotationClusterCIDR: from, networkingv1.AnnotationLeaseHolder: by}
		}
	})
}

func (h *history) cc(name string, with []string) {
	h.putPool(name, func(cc *networkingv1.ClusterCIDR) {
		for _, change := range with {
			key, value, _ := strings.Cut(change, "=")
			changes[key](cc, value)
		}
	})
}

// changes of a ClusterCIDR, which step cc takes.
var changes = map[string]func(cc *networkingv1.ClusterCIDR, value string){
	"disable":     func(cc *networkingv1.ClusterCIDR, _ string) { cc.Spec.Allocation = networkingv1.AllocationDisabled },
	"enable":      func(cc *networkingv1.ClusterCIDR, _ string) { cc.Spec.Allocation = networkingv1.AllocationEnabled },
	"terminate":   func(cc *networkingv1.ClusterCIDR, _ string) { cc.DeletionTimestamp = &metav1.Time{} },
	"unfinalized": func(cc *networkingv1.ClusterCIDR, _ string) { cc.Finalizers = nil },
	"finalized":   func(cc *networkingv1.ClusterCIDR, _ string) { cc.Finalizers = []string{networkingv1.Finalizer} },
	"held":        func(cc *networkingv1.ClusterCIDR, _ string) { cc.Finalizers = []string{"example.com/hold"} },
	"exclude":     func(cc *networkingv1.ClusterCIDR, cidr string) { cc.Spec.ExcludedCIDRs = []string{cidr} },
	"ipv4":        func(cc *networkingv1.ClusterCIDR, cidr string) { cc.Spec.IPv4 = cidr },
	"ipv6":        func(cc *networkingv1.ClusterCIDR, cidr string) { cc.Spec.IPv6 = cidr },
	"hb":          func(cc *networkingv1.ClusterCIDR, bits string) { cc.Spec.PerNodeHostBits = int32(number(bits)) },
	"dual": func(cc *networkingv1.ClusterCIDR, _ string) {
		cc.Spec.IPv6, cc.Spec.IPv6PerNodeHostBits = "fd00::/62", new(int32(64))
	},
	"generation": func(cc *networkingv1.ClusterCIDR, n string) { cc.Generation = number(n) },
	"invalid": func(cc *networkingv1.ClusterCIDR, _ string) {
		cc.Spec.NodeSelector.NodeSelectorTerms[0].MatchExpressions[0].Key = "a_b/c"
	},
}

func must[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}

func number(s string) int64 { return must(strconv.ParseInt(s, 10, 64)) }

func (h *history) observe(e Event) {
	h.revision++
	h.now = h.now.Add(time.Second)
	e.Revision, e.At = h.revision, h.now
	h.c.Observe(e)
}

func (h *history) putNode(name string, change func(*corev1.Node)) {
	n, ok := h.nodes[name]
	if !ok {
		n = &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(fmt.Sprintf("%s-%d", name, h.revision)), Labels: map[string]string{"pool": "x"}}}
	}
	n = n.DeepCopy()
	change(n)
	h.nodes[name] = n
	h.observe(Event{Node: n})
}

func (h *history) putPool(name string, change func(*networkingv1.ClusterCIDR)) {
	cc, ok := h.pools[name]
	if !ok {
		cc = &networkingv1.ClusterCIDR{
			ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(fmt.Sprintf("%s-%d", name, h.revision)), Finalizers: []string{networkingv1.Finalizer}},
			Spec: networkingv1.ClusterCIDRSpec{
				IPv4: "10.0.0.0/22", PerNodeHostBits: 8,
				NodeSelector: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
					MatchExpressions: []corev1.NodeSelectorRequirement{{Key: "pool", Operator: corev1.NodeSelectorOpIn, Values: []string{"x"}}},
				}}},
			},
		}
		if strings.HasPrefix(name, fromFlags) {
			cc.Labels = map[string]string{networkingv1.LabelCreatedFromFlags: "true"}
		}
	}
	cc = cc.DeepCopy()
	change(cc)
	h.pools[name] = cc
	h.observe(Event{ClusterCIDR: cc})
}

var options = Options{ServiceRanges: []netip.Prefix{netip.MustParsePrefix("10.0.3.0/28")}, Slack: time.Minute, Lease: "manager"}

func rules(violations []Violation) []Rule {
	var rules []Rule
	for _, v := range violations {
		rules = append(rules, v.Rule)
	}
	slices.Sort(rules)
	return rules
}

// rulesOf is a rule alone, or none.
func rulesOf(rule Rule) []Rule {
	if rule == "" {
		return nil
	}
	return []Rule{rule}
}

func TestHistories(t *testing.T) {
	tests := map[string]struct {
		happens string
		want    Rule // empty: none
	}{
		"everybody has blocks of his own": {
			"cc a; node n1; node n2; serve n1 a 10.0.0.0/24; serve n2 a 10.0.1.0/24", "",
		},
		"a block twice": {
			"cc a; node n1; node n2; serve n1 a 10.0.0.0/24; serve n2 a 10.0.0.0/24", Overlap,
		},
		"a block inside a larger one from elsewhere": {
			"cc a; cc b ipv4=10.0.0.0/16 hb=4; node n1; node n2; serve n1 a 10.0.0.0/24; serve n2 b 10.0.0.240/28", Overlap,
		},
		"one family overlaps": {
			"cc a dual; node n1; node n2; serve n1 a 10.0.0.0/24 fd00::/64; serve n2 a 10.0.1.0/24 fd00::/64", Overlap,
		},
		"a block is used again after its Node is gone": {
			"cc a; join n1 a 10.0.0.0/24; node n2; delete n1; gone n1; serve n2 a 10.0.0.0/24", "",
		},
		"a block is used again while its Node is being deleted": {
			"cc a; join n1 a 10.0.0.0/24; node n2; delete n1; serve n2 a 10.0.0.0/24; gone n1", EarlyReuse,
		},
		"a Node comes again under its name": {
			"cc a; join n1 a 10.0.0.0/24; gone n1; join n1 a 10.0.1.0/24", "",
		},
		"podCIDRs become others": {
			"cc a; join n1 a 10.0.0.0/24; serve n1 a 10.0.1.0/24", Changed,
		},
		"podCIDRs are taken away": {
			"cc a; node n1 192.168.0.0/24; serve n1 -", Changed,
		},
		"a Node gets what a foreign one has had before": {
			"cc a; node foreign 10.0.0.0/24; join n1 a 10.0.0.0/24", Overlap,
		},
		"a foreign Node takes what another one is about to get": {
			"cc a; node n1; node foreign 10.0.0.0/24; serve n1 a 10.0.0.0/24", "",
		},
		"a foreign Node takes what another one has": {
			"cc a; join n1 a 10.0.0.0/24; node foreign 10.0.0.0/16", "",
		},
		"a service range is given": {
			"cc a; join n1 a 10.0.3.0/24", ServiceRange,
		},
		"a range that a ServiceCIDR has had for long is given": {
			"cc a; service s 10.0.0.0/25 fd00::/64; node n1; wait 1h; serve n1 a 10.0.0.0/24", ServiceRange,
		},
		"a range that a ServiceCIDR has had for a moment is given": {
			"cc a; node n1; service s 10.0.0.0/25; serve n1 a 10.0.0.0/24", "",
		},
		"a block that is not of the range": {
			"cc a; join n1 a 10.0.4.0/24", OutsideRange,
		},
		"a block of another size": {
			"cc a; join n1 a 10.0.0.0/25", OutsideRange,
		},
		"half an allocation": {
			"cc a dual; join n1 a 10.0.0.0/24", OutsideRange,
		},
		"two blocks of one family": {
			"cc a dual; join n1 a 10.0.0.0/24 10.0.1.0/24", OutsideRange,
		},
		"nobody says where it came from": {
			"cc a; join n1 - 10.0.0.0/24", NoSource,
		},
		"a ClusterCIDR that does not exist": {
			"cc a; node n1; wait 2m; ccgone a; serve n1 a 10.0.0.0/24", NoSource,
		},
		"a ClusterCIDR without its finalizer": {
			"cc a unfinalized; join n1 a 10.0.0.0/24; ccgone a", "",
		},
		"a ClusterCIDR that went without its finalizer a moment ago": {
			"cc a unfinalized; node n1; ccgone a; wait 1s; serve n1 a 10.0.0.0/24", "",
		},
		"a ClusterCIDR whose finalizer was added while it was being deleted": {
			"node n1; cc a unfinalized; cc a finalized; ccgone a; serve n1 a 10.0.0.0/24", "",
		},
		"a ClusterCIDR that was always disabled": {
			"cc a disable; join n1 a 10.0.0.0/24", NotAllowed,
		},
		"a ClusterCIDR that was disabled long ago": {
			"cc a; node n1; cc a disable; wait 1h; serve n1 a 10.0.0.0/24", NotAllowed,
		},
		"a ClusterCIDR that was disabled a moment ago": {
			"cc a; node n1; cc a disable; serve n1 a 10.0.0.0/24", "",
		},
		"a ClusterCIDR that is enabled again": {
			"cc a disable; node n1; wait 1h; cc a enable; serve n1 a 10.0.0.0/24", "",
		},
		"a ClusterCIDR that has been being deleted for long": {
			"cc a; node n1; cc a terminate; wait 1h; serve n1 a 10.0.0.0/24", NotAllowed,
		},
		"addresses that were excluded long ago": {
			"cc a exclude=10.0.0.0/28; node n1; wait 1h; serve n1 a 10.0.0.0/24", NotAllowed,
		},
		"addresses beside the excluded ones": {
			"cc a exclude=10.0.0.0/28; node n1; wait 1h; serve n1 a 10.0.1.0/24", "",
		},
		"a Node that was never selected": {
			"cc a; relabel n1; serve n1 a 10.0.0.0/24", NotAllowed,
		},
		"a Node that was selected a moment ago": {
			"cc a; node n1; relabel n1 y; serve n1 a 10.0.0.0/24", "",
		},
		"a Node that was selected long ago": {
			"cc a; node n1; relabel n1 y; wait 1h; serve n1 a 10.0.0.0/24", NotAllowed,
		},
		"a Node that was selected only while the ClusterCIDR was disabled, long ago": {
			"cc a; relabel n1; cc a disable; relabel n1 x; relabel n1 y; wait 1h; cc a enable; serve n1 a 10.0.0.0/24", NotAllowed,
		},
		"a Node that is selected since a moment after the ClusterCIDR was disabled, which may be known later": {
			"cc a; relabel n1; cc a disable; relabel n1 x; serve n1 a 10.0.0.0/24", "",
		},
		"a ClusterCIDR goes after its last Node": {
			"cc a; join n1 a 10.0.0.0/24; cc a terminate; gone n1; ccgone a", "",
		},
		"a ClusterCIDR goes before its last Node": {
			"cc a; join n1 a 10.0.0.0/24; cc a terminate; delete n1; ccgone a; gone n1", GoneInUse,
		},
		"a ClusterCIDR goes a moment after the one that served its last Node": {
			"cc a; cc b unfinalized; join n1 b 10.0.0.0/24; cc a terminate; ccgone b; ccgone a", "",
		},
		"a ClusterCIDR goes a moment after one of another block size that could be thought to have served its last Node": {
			"cc a; cc b unfinalized; join n1 b 10.0.0.0/24; cc a terminate; ccgone b; cc b unfinalized hb=9; wait 1h; ccgone b; ccgone a", "",
		},
		"a ClusterCIDR goes long after the one that served its last Node": {
			"cc a; cc b unfinalized; join n1 b 10.0.0.0/24; cc a terminate; ccgone b; wait 1h; ccgone a", GoneInUse,
		},
		"a ClusterCIDR becomes another one of its name": {
			"cc a; join n1 a 10.0.0.0/24; wait 1h; replace a", GoneInUse,
		},
		"a ClusterCIDR goes before a foreign Node that has had a block of it for long": {
			"cc a; node foreign 10.0.0.0/25; wait 1h; cc a terminate; ccgone a", GoneInUse,
		},
		"a ClusterCIDR goes that no manager has seen yet": {
			"node foreign 10.0.0.0/25; wait 1h; cc a unfinalized; ccgone a", "",
		},
		"a ClusterCIDR goes although its finalizer has just been added, because its deletion had begun before": {
			"node foreign 10.0.0.0/25; wait 1h; cc a; ccgone a", "",
		},
		"a ClusterCIDR goes while a foreign Node comes": {
			"cc a; cc a terminate; node foreign 10.0.0.0/25; ccgone a", "",
		},
		"a ClusterCIDR goes and a Node has a block in it from another one": {
			"cc a; cc b; join n1 b 10.0.0.0/24; wait 1h; cc a terminate; ccgone a", "",
		},
	}
	for sentence, tc := range tests {
		t.Run(sentence, func(t *testing.T) {
			got := play(options, tc.happens).c.Violations()
			if !slices.Equal(rules(got), rulesOf(tc.want)) {
				t.Errorf("violations %v, want %q", got, tc.want)
			}
		})
	}
}

// An allocator that serves from flags.
func TestStaticRanges(t *testing.T) {
	opts := options
	opts.Static = []Range{rng("10.0.0.0/22:24"), rng("fd00::/62:64")}
	tests := map[string]struct {
		podCIDRs string
		want     Rule
	}{
		"one block of each range":  {podCIDRs: "10.0.0.0/24 fd00::/64"},
		"half an allocation":       {podCIDRs: "10.0.0.0/24", want: OutsideRange},
		"a block from elsewhere":   {podCIDRs: "10.0.4.0/24 fd00::/64", want: OutsideRange},
		"a block of a service":     {podCIDRs: "10.0.3.0/24 fd00::/64", want: ServiceRange},
		"a block that is not free": {podCIDRs: "10.0.2.0/24 fd00::/64", want: Overlap},
	}
	for sentence, tc := range tests {
		t.Run(sentence, func(t *testing.T) {
			h := play(opts, "node foreign 10.0.2.0/26; node n1")
			if diff := cmp.Diff([]Rule{LeftWaiting}, rules(h.c.Unsettled())); diff != "" {
				t.Errorf("unsettled while n1 waits (-want +got):\n%s", diff)
			}
			h.play("serve n1 - " + tc.podCIDRs)
			if got := h.c.Violations(); !slices.Equal(rules(got), rulesOf(tc.want)) {
				t.Errorf("violations %v, want %q", got, tc.want)
			}
		})
	}
}

// A ClusterCIDR of flags gives blocks only where managers have these flags.
func TestFlags(t *testing.T) {
	for flags, want := range map[bool][]Rule{false: {NotAllowed}, true: nil} {
		h := play(Options{Flags: flags}, "cc created-from-flags-1; join n1 created-from-flags-1 10.0.0.0/24")
		if diff := cmp.Diff(want, rules(h.c.Violations())); diff != "" {
			t.Errorf("with Flags: %t, violations (-want +got):\n%s", flags, diff)
		}
	}
}

func TestUnsettled(t *testing.T) {
	tests := map[string]struct {
		happens string
		want    Rule // empty: none
	}{
		"all is well": {
			"cc a; join n1 a 10.0.0.0/24; says a 2", "",
		},
		"a block is lost": {
			"cc a; says a 2", Leak,
		},
		"a block too many": {
			"cc a; says a 4", Leak,
		},
		"nobody says what is free": {
			"cc a", Leak,
		},
		"a Node waits although there is a block": {
			"cc a; says a 3; node n1", LeftWaiting,
		},
		"a Node waits because nobody selects it": {
			"cc a; says a 3; node n1; relabel n1 y", "",
		},
		"a Node waits because it is being deleted": {
			"cc a; says a 3; node n1; delete n1", "",
		},
		"a Node waits because everything is held or excluded": {
			"node n1; cc a exclude=10.0.2.0/28; node foreign 10.0.0.0/23; cc b disable; says a 0; says b 1", "",
		},
		"a Node waits because a ServiceCIDR has everything": {
			"cc a; service s 10.0.0.0/16; says a 0; node n1", "",
		},
		"a Node waits although the ServiceCIDR is gone": {
			"cc a; service s 10.0.0.0/16; servicegone s; says a 3; node n1", LeftWaiting,
		},
		"a Node waits because the ClusterCIDR breaks a rule": {
			"cc a invalid; says a 3; node n1", "",
		},
		"a Node waits because one family is full": {
			"cc a dual; node foreign fd00::/62; node n1; says a 3 0", "",
		},
		"a Node waits because its ClusterCIDR is disabled": {
			"cc a disable; says a 3; node n1", "",
		},
		"a deleted ClusterCIDR waits for its Node": {
			"cc a; join n1 a 10.0.0.0/24; cc a terminate", "",
		},
		"a deleted ClusterCIDR waits for nobody": {
			"cc a; join n1 a 10.0.0.0/24; cc a terminate; gone n1", Stuck,
		},
		"a deleted ClusterCIDR waits for the finalizer of others": {
			"cc a; cc a terminate held", "",
		},
	}
	for sentence, tc := range tests {
		t.Run(sentence, func(t *testing.T) {
			h := play(options, tc.happens)
			if got := h.c.Unsettled(); !slices.Equal(rules(got), rulesOf(tc.want)) {
				t.Errorf("unsettled %v, want %q", got, tc.want)
			}
			if got := h.c.Violations(); got != nil {
				t.Errorf("recorded as violations, before anybody knows that all is at rest: %v", got)
			}
		})
	}
}

func TestSummary(t *testing.T) {
	h := play(options, `leader first; leader first; leader second; cc a; node n1; serve n1 a@first 10.0.0.0/24; node n2; cc a disable; serve n2 a 10.0.1.0/24;
		node n3 10.0.0.0/26; gone n3; node n3; node n4 10.0.2.0/24; serve n3 a 10.0.2.0/24; node n5`)
	want := Summary{
		Revisions: 15, Created: 6, Deleted: 1, Served: 3, Foreign: 2, ClusterCIDRs: 1, Leaders: 2,
		ForeignOverlaps: 1, ForeignRaces: 1, Late: 2, MaxLag: 6 * time.Second, Deposed: 1,
		LastServed: time.Unix(1014, 0),
		Latency:    Percentiles{P50: 2 * time.Second, P90: 2 * time.Second, P99: 2 * time.Second, Max: 2 * time.Second},
		Nodes:      5, Waiting: 1, Pools: 1,
	}
	if diff := cmp.Diff(want, h.c.Summary()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(map[string]bool{"n1": true, "n2": true, "n3": true}, h.c.ServedFrom("a")); diff != "" {
		t.Errorf("served from a (-want +got):\n%s", diff)
	}
}

// Who reads a violation sees both Nodes' lives and what was done to the managers, in order, and nothing else.
func TestViolationTellsTheStory(t *testing.T) {
	h := play(options, "node n1; gone n1; leader first; cc a; node n1; node n2")
	h.c.Observe(Event{Revision: 100, At: h.now, Lease: &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: "another"}}})
	h.play("serve n1 a 10.0.0.0/24; leader second; serve n2 a 10.0.0.0/24; wait 1m; relabel n2 later")
	violations := h.c.Violations()
	if len(violations) != 1 {
		t.Fatalf("%d violations, want 1: %v", len(violations), violations)
	}
	want := `overlap at revision 9: Node n2 was served [10.0.0.0/24] while Node n1 has [10.0.0.0/24]
    r3         3.000s leader is now first
    r5         5.000s Node n1: created, uid n1-4, labels map[pool:x]
    r6         6.000s Node n2: created, uid n2-5, labels map[pool:x]
    r7         7.000s Node n1: served [10.0.0.0/24] from "a" by ""
    r8         8.000s leader is now second
    r9         9.000s Node n2: served [10.0.0.0/24] from "a" by ""`
	if diff := cmp.Diff(want, violations[0].String()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

package checker

import (
	"fmt"
	"net/netip"
	"slices"
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

func newHistory(opts Options) *history {
	return &history{
		c: New(opts), now: time.Unix(1000, 0),
		nodes: map[string]*corev1.Node{}, pools: map[string]*networkingv1.ClusterCIDR{},
	}
}

func (h *history) observe(e Event) {
	h.revision++
	h.now = h.now.Add(time.Second)
	e.Revision, e.At = h.revision, h.now
	h.c.Observe(e)
}

// wait lets time pass without a revision.
func (h *history) wait(d time.Duration) { h.now = h.now.Add(d) }

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

// node creates a Node, with podCIDRs if there are any.
func (h *history) node(name string, podCIDRs ...string) {
	h.putNode(name, func(n *corev1.Node) { n.Spec.PodCIDRs = podCIDRs })
}

func (h *history) serve(name, from string, podCIDRs ...string) {
	h.putNode(name, func(n *corev1.Node) {
		n.Spec.PodCIDRs = podCIDRs
		if from != "" {
			n.Annotations = map[string]string{networkingv1.AnnotationClusterCIDR: from}
		}
	})
}

// join is a Node that is served as soon as it is there.
func (h *history) join(name, from string, podCIDRs ...string) {
	h.node(name)
	h.serve(name, from, podCIDRs...)
}

func (h *history) relabel(name, pool string) {
	h.putNode(name, func(n *corev1.Node) { n.Labels = map[string]string{"pool": pool} })
}

func (h *history) terminateNode(name string) {
	h.putNode(name, func(n *corev1.Node) { n.DeletionTimestamp = &metav1.Time{Time: h.now} })
}

func (h *history) removeNode(name string) {
	delete(h.nodes, name)
	h.observe(Event{Gone: true, Node: &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}})
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
	}
	cc = cc.DeepCopy()
	change(cc)
	h.pools[name] = cc
	h.observe(Event{ClusterCIDR: cc})
}

// pool creates a ClusterCIDR for label pool=x with four /24 blocks, 10.0.0.0 to 10.0.3.0, unless it is changed.
func (h *history) pool(name string, changes ...func(*networkingv1.ClusterCIDR)) {
	h.putPool(name, func(cc *networkingv1.ClusterCIDR) {
		for _, change := range changes {
			change(cc)
		}
	})
}

func (h *history) serviceCIDR(name string, cidrs ...string) {
	h.observe(Event{ServiceCIDR: &networkingapiv1.ServiceCIDR{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: networkingapiv1.ServiceCIDRSpec{CIDRs: cidrs}}})
}

func (h *history) removeServiceCIDR(name string) {
	h.observe(Event{Gone: true, ServiceCIDR: &networkingapiv1.ServiceCIDR{ObjectMeta: metav1.ObjectMeta{Name: name}}})
}

// says writes the free blocks of IPv4 into the status.
func (h *history) says(name string, free int64) {
	h.putPool(name, func(cc *networkingv1.ClusterCIDR) { cc.Status.IPv4 = &networkingv1.RangeStatus{Free: free} })
}

func (h *history) removePool(name string) {
	delete(h.pools, name)
	h.observe(Event{Gone: true, ClusterCIDR: &networkingv1.ClusterCIDR{ObjectMeta: metav1.ObjectMeta{Name: name}}})
}

func (h *history) leader(identity string) {
	h.observe(Event{Lease: &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: "manager"}, Spec: coordinationv1.LeaseSpec{HolderIdentity: &identity}}})
}

func disable(cc *networkingv1.ClusterCIDR)   { cc.Spec.Allocation = networkingv1.AllocationDisabled }
func enable(cc *networkingv1.ClusterCIDR)    { cc.Spec.Allocation = networkingv1.AllocationEnabled }
func terminate(cc *networkingv1.ClusterCIDR) { cc.DeletionTimestamp = &metav1.Time{} }
func unfinalized(cc *networkingv1.ClusterCIDR) {
	cc.Finalizers = nil
}
func finalized(cc *networkingv1.ClusterCIDR) { cc.Finalizers = []string{networkingv1.Finalizer} }
func excluding(cidrs ...string) func(*networkingv1.ClusterCIDR) {
	return func(cc *networkingv1.ClusterCIDR) { cc.Spec.ExcludedCIDRs = cidrs }
}
func dualStack(cc *networkingv1.ClusterCIDR) {
	bits := int32(64)
	cc.Spec.IPv6, cc.Spec.IPv6PerNodeHostBits = "fd00::/62", &bits
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

func TestHistories(t *testing.T) {
	tests := map[string]struct {
		happens func(*history)
		want    []Rule
	}{
		"everybody has blocks of his own": {
			happens: func(h *history) {
				h.pool("a")
				h.node("n1")
				h.node("n2")
				h.serve("n1", "a", "10.0.0.0/24")
				h.serve("n2", "a", "10.0.1.0/24")
			},
		},
		"a block twice": {
			happens: func(h *history) {
				h.pool("a")
				h.node("n1")
				h.node("n2")
				h.serve("n1", "a", "10.0.0.0/24")
				h.serve("n2", "a", "10.0.0.0/24")
			},
			want: []Rule{Overlap},
		},
		"a block inside a larger one from elsewhere": {
			happens: func(h *history) {
				h.pool("a")
				h.pool("b", func(cc *networkingv1.ClusterCIDR) { cc.Spec.IPv4, cc.Spec.PerNodeHostBits = "10.0.0.0/16", 4 })
				h.node("n1")
				h.node("n2")
				h.serve("n1", "a", "10.0.0.0/24")
				h.serve("n2", "b", "10.0.0.240/28")
			},
			want: []Rule{Overlap},
		},
		"one family overlaps": {
			happens: func(h *history) {
				h.pool("a", dualStack)
				h.node("n1")
				h.node("n2")
				h.serve("n1", "a", "10.0.0.0/24", "fd00::/64")
				h.serve("n2", "a", "10.0.1.0/24", "fd00::/64")
			},
			want: []Rule{Overlap},
		},
		"a block is used again after its Node is gone": {
			happens: func(h *history) {
				h.pool("a")
				h.join("n1", "a", "10.0.0.0/24")
				h.node("n2")
				h.terminateNode("n1")
				h.removeNode("n1")
				h.serve("n2", "a", "10.0.0.0/24")
			},
		},
		"a block is used again while its Node is being deleted": {
			happens: func(h *history) {
				h.pool("a")
				h.join("n1", "a", "10.0.0.0/24")
				h.node("n2")
				h.terminateNode("n1")
				h.serve("n2", "a", "10.0.0.0/24")
				h.removeNode("n1")
			},
			want: []Rule{EarlyReuse},
		},
		"a Node comes again under its name": {
			happens: func(h *history) {
				h.pool("a")
				h.join("n1", "a", "10.0.0.0/24")
				h.removeNode("n1")
				h.join("n1", "a", "10.0.1.0/24")
			},
		},
		"podCIDRs become others": {
			happens: func(h *history) {
				h.pool("a")
				h.join("n1", "a", "10.0.0.0/24")
				h.serve("n1", "a", "10.0.1.0/24")
			},
			want: []Rule{Changed},
		},
		"podCIDRs are taken away": {
			happens: func(h *history) {
				h.pool("a")
				h.node("n1", "192.168.0.0/24")
				h.serve("n1", "")
			},
			want: []Rule{Changed},
		},
		"a Node gets what a foreign one has had before": {
			happens: func(h *history) {
				h.pool("a")
				h.node("foreign", "10.0.0.0/24")
				h.join("n1", "a", "10.0.0.0/24")
			},
			want: []Rule{Overlap},
		},
		"a foreign Node takes what another one is about to get": {
			happens: func(h *history) {
				h.pool("a")
				h.node("n1")
				h.node("foreign", "10.0.0.0/24")
				h.serve("n1", "a", "10.0.0.0/24")
			},
		},
		"a foreign Node takes what another one has": {
			happens: func(h *history) {
				h.pool("a")
				h.join("n1", "a", "10.0.0.0/24")
				h.node("foreign", "10.0.0.0/16")
			},
		},
		"a service range is given": {
			happens: func(h *history) {
				h.pool("a")
				h.join("n1", "a", "10.0.3.0/24")
			},
			want: []Rule{ServiceRange},
		},
		"a range that a ServiceCIDR has had for long is given": {
			happens: func(h *history) {
				h.pool("a")
				h.serviceCIDR("s", "10.0.0.0/25", "fd00::/64")
				h.node("n1")
				h.wait(time.Hour)
				h.serve("n1", "a", "10.0.0.0/24")
			},
			want: []Rule{ServiceRange},
		},
		"a range that a ServiceCIDR has had for a moment is given": {
			happens: func(h *history) {
				h.pool("a")
				h.node("n1")
				h.serviceCIDR("s", "10.0.0.0/25")
				h.serve("n1", "a", "10.0.0.0/24")
			},
		},
		"a block that is not of the range": {
			happens: func(h *history) {
				h.pool("a")
				h.join("n1", "a", "10.0.4.0/24")
			},
			want: []Rule{OutsideRange},
		},
		"a block of another size": {
			happens: func(h *history) {
				h.pool("a")
				h.join("n1", "a", "10.0.0.0/25")
			},
			want: []Rule{OutsideRange},
		},
		"half an allocation": {
			happens: func(h *history) {
				h.pool("a", dualStack)
				h.join("n1", "a", "10.0.0.0/24")
			},
			want: []Rule{OutsideRange},
		},
		"two blocks of one family": {
			happens: func(h *history) {
				h.pool("a", dualStack)
				h.join("n1", "a", "10.0.0.0/24", "10.0.1.0/24")
			},
			want: []Rule{OutsideRange},
		},
		"nobody says where it came from": {
			happens: func(h *history) {
				h.pool("a")
				h.join("n1", "", "10.0.0.0/24")
			},
			want: []Rule{NoSource},
		},
		"a ClusterCIDR that does not exist": {
			happens: func(h *history) {
				h.pool("a")
				h.node("n1")
				h.wait(2 * time.Minute)
				h.removePool("a")
				h.serve("n1", "a", "10.0.0.0/24")
			},
			want: []Rule{NoSource},
		},
		"a ClusterCIDR without its finalizer": {
			happens: func(h *history) {
				h.pool("a", unfinalized)
				h.join("n1", "a", "10.0.0.0/24")
				h.removePool("a")
			},
		},
		"a ClusterCIDR that went without its finalizer a moment ago": {
			happens: func(h *history) {
				h.pool("a", unfinalized)
				h.node("n1")
				h.removePool("a")
				h.wait(time.Second)
				h.serve("n1", "a", "10.0.0.0/24")
			},
		},
		"a ClusterCIDR whose finalizer was added while it was being deleted": {
			happens: func(h *history) {
				h.node("n1")
				h.pool("a", unfinalized)
				h.pool("a", finalized)
				h.removePool("a")
				h.serve("n1", "a", "10.0.0.0/24")
			},
		},
		"a ClusterCIDR that was always disabled": {
			happens: func(h *history) {
				h.pool("a", disable)
				h.join("n1", "a", "10.0.0.0/24")
			},
			want: []Rule{NotAllowed},
		},
		"a ClusterCIDR that was disabled long ago": {
			happens: func(h *history) {
				h.pool("a")
				h.node("n1")
				h.pool("a", disable)
				h.wait(time.Hour)
				h.serve("n1", "a", "10.0.0.0/24")
			},
			want: []Rule{NotAllowed},
		},
		"a ClusterCIDR that was disabled a moment ago": {
			happens: func(h *history) {
				h.pool("a")
				h.node("n1")
				h.pool("a", disable)
				h.serve("n1", "a", "10.0.0.0/24")
			},
		},
		"a ClusterCIDR that is enabled again": {
			happens: func(h *history) {
				h.pool("a", disable)
				h.node("n1")
				h.wait(time.Hour)
				h.pool("a", enable)
				h.serve("n1", "a", "10.0.0.0/24")
			},
		},
		"a ClusterCIDR that has been being deleted for long": {
			happens: func(h *history) {
				h.pool("a")
				h.node("n1")
				h.pool("a", terminate)
				h.wait(time.Hour)
				h.serve("n1", "a", "10.0.0.0/24")
			},
			want: []Rule{NotAllowed},
		},
		"addresses that were excluded long ago": {
			happens: func(h *history) {
				h.pool("a", excluding("10.0.0.0/28"))
				h.node("n1")
				h.wait(time.Hour)
				h.serve("n1", "a", "10.0.0.0/24")
			},
			want: []Rule{NotAllowed},
		},
		"addresses beside the excluded ones": {
			happens: func(h *history) {
				h.pool("a", excluding("10.0.0.0/28"))
				h.node("n1")
				h.wait(time.Hour)
				h.serve("n1", "a", "10.0.1.0/24")
			},
		},
		"a Node that was never selected": {
			happens: func(h *history) {
				h.pool("a")
				h.putNode("n1", func(n *corev1.Node) { n.Labels = nil })
				h.serve("n1", "a", "10.0.0.0/24")
			},
			want: []Rule{NotAllowed},
		},
		"a Node that was selected a moment ago": {
			happens: func(h *history) {
				h.pool("a")
				h.node("n1")
				h.relabel("n1", "y")
				h.serve("n1", "a", "10.0.0.0/24")
			},
		},
		"a Node that was selected long ago": {
			happens: func(h *history) {
				h.pool("a")
				h.node("n1")
				h.relabel("n1", "y")
				h.wait(time.Hour)
				h.serve("n1", "a", "10.0.0.0/24")
			},
			want: []Rule{NotAllowed},
		},
		"a Node that was selected only while the ClusterCIDR was disabled, long ago": {
			happens: func(h *history) {
				h.pool("a")
				h.putNode("n1", func(n *corev1.Node) { n.Labels = nil })
				h.pool("a", disable)
				h.relabel("n1", "x")
				h.relabel("n1", "y")
				h.wait(time.Hour)
				h.pool("a", enable)
				h.serve("n1", "a", "10.0.0.0/24")
			},
			want: []Rule{NotAllowed},
		},
		"a Node that is selected since a moment after the ClusterCIDR was disabled, which may be known later": {
			happens: func(h *history) {
				h.pool("a")
				h.putNode("n1", func(n *corev1.Node) { n.Labels = nil })
				h.pool("a", disable)
				h.relabel("n1", "x")
				h.serve("n1", "a", "10.0.0.0/24")
			},
		},
		"a ClusterCIDR goes after its last Node": {
			happens: func(h *history) {
				h.pool("a")
				h.join("n1", "a", "10.0.0.0/24")
				h.pool("a", terminate)
				h.removeNode("n1")
				h.removePool("a")
			},
		},
		"a ClusterCIDR goes before its last Node": {
			happens: func(h *history) {
				h.pool("a")
				h.join("n1", "a", "10.0.0.0/24")
				h.pool("a", terminate)
				h.terminateNode("n1")
				h.removePool("a")
				h.removeNode("n1")
			},
			want: []Rule{GoneInUse},
		},
		"a ClusterCIDR goes a moment after the one that served its last Node": {
			happens: func(h *history) {
				h.pool("a")
				h.pool("b", unfinalized)
				h.join("n1", "b", "10.0.0.0/24")
				h.pool("a", terminate)
				h.removePool("b")
				h.removePool("a")
			},
		},
		"a ClusterCIDR goes long after the one that served its last Node": {
			happens: func(h *history) {
				h.pool("a")
				h.pool("b", unfinalized)
				h.join("n1", "b", "10.0.0.0/24")
				h.pool("a", terminate)
				h.removePool("b")
				h.wait(time.Hour)
				h.removePool("a")
			},
			want: []Rule{GoneInUse},
		},
		"a ClusterCIDR becomes another one of its name": {
			happens: func(h *history) {
				h.pool("a")
				h.join("n1", "a", "10.0.0.0/24")
				h.wait(time.Hour)
				delete(h.pools, "a")
				h.pool("a")
			},
			want: []Rule{GoneInUse},
		},
		"a ClusterCIDR goes before a foreign Node that has had a block of it for long": {
			happens: func(h *history) {
				h.pool("a")
				h.node("foreign", "10.0.0.0/25")
				h.wait(time.Hour)
				h.pool("a", terminate)
				h.removePool("a")
			},
			want: []Rule{GoneInUse},
		},
		"a ClusterCIDR goes that no manager has seen yet": {
			happens: func(h *history) {
				h.node("foreign", "10.0.0.0/25")
				h.wait(time.Hour)
				h.pool("a", unfinalized)
				h.removePool("a")
			},
		},
		"a ClusterCIDR goes although its finalizer has just been added, because its deletion had begun before": {
			happens: func(h *history) {
				h.node("foreign", "10.0.0.0/25")
				h.wait(time.Hour)
				h.pool("a")
				h.removePool("a")
			},
		},
		"a ClusterCIDR goes while a foreign Node comes": {
			happens: func(h *history) {
				h.pool("a")
				h.pool("a", terminate)
				h.node("foreign", "10.0.0.0/25")
				h.removePool("a")
			},
		},
		"a ClusterCIDR goes and a Node has a block in it from another one": {
			happens: func(h *history) {
				h.pool("a")
				h.pool("b")
				h.join("n1", "b", "10.0.0.0/24")
				h.wait(time.Hour)
				h.pool("a", terminate)
				h.removePool("a")
			},
		},
	}
	for sentence, tc := range tests {
		t.Run(sentence, func(t *testing.T) {
			h := newHistory(options)
			tc.happens(h)
			got := h.c.Violations()
			if diff := cmp.Diff(tc.want, rules(got)); diff != "" {
				t.Errorf("violations (-want +got):\n%s\n%v", diff, got)
			}
		})
	}
}

// An allocator that serves from flags.
func TestStaticRanges(t *testing.T) {
	opts := options
	opts.Static = []Range{rng("10.0.0.0/22:24"), rng("fd00::/62:64")}
	tests := map[string]struct {
		podCIDRs []string
		want     []Rule
	}{
		"one block of each range":  {podCIDRs: []string{"10.0.0.0/24", "fd00::/64"}},
		"half an allocation":       {podCIDRs: []string{"10.0.0.0/24"}, want: []Rule{OutsideRange}},
		"a block from elsewhere":   {podCIDRs: []string{"10.0.4.0/24", "fd00::/64"}, want: []Rule{OutsideRange}},
		"a block of a service":     {podCIDRs: []string{"10.0.3.0/24", "fd00::/64"}, want: []Rule{ServiceRange}},
		"a block that is not free": {podCIDRs: []string{"10.0.2.0/24", "fd00::/64"}, want: []Rule{Overlap}},
	}
	for sentence, tc := range tests {
		t.Run(sentence, func(t *testing.T) {
			h := newHistory(opts)
			h.node("foreign", "10.0.2.0/26")
			h.node("n1")
			if free, ok := h.c.Free(""); free != 2 || !ok {
				t.Errorf("%d free, %t, want the 2 that neither the Node nor the service range have", free, ok)
			}
			if diff := cmp.Diff([]Rule{LeftWaiting}, rules(h.c.Unsettled())); diff != "" {
				t.Errorf("unsettled while n1 waits (-want +got):\n%s", diff)
			}
			h.serve("n1", "", tc.podCIDRs...)
			if diff := cmp.Diff(tc.want, rules(h.c.Violations())); diff != "" {
				t.Errorf("violations (-want +got):\n%s", diff)
			}
		})
	}
}

// A ClusterCIDR of flags gives blocks only where managers have these flags.
func TestFlags(t *testing.T) {
	for flags, want := range map[bool][]Rule{false: {NotAllowed}, true: nil} {
		h := newHistory(Options{Flags: flags})
		h.pool("created-from-flags-1", func(cc *networkingv1.ClusterCIDR) {
			cc.Labels = map[string]string{networkingv1.LabelCreatedFromFlags: "true"}
		})
		h.join("n1", "created-from-flags-1", "10.0.0.0/24")
		if diff := cmp.Diff(want, rules(h.c.Violations())); diff != "" {
			t.Errorf("with Flags: %t, violations (-want +got):\n%s", flags, diff)
		}
	}
}

func TestUnsettled(t *testing.T) {
	tests := map[string]struct {
		happens func(*history)
		want    []Rule
	}{
		"all is well": {
			happens: func(h *history) {
				h.pool("a")
				h.join("n1", "a", "10.0.0.0/24")
				h.says("a", 2) // 10.0.3.0 belongs to Services
			},
		},
		"a block is lost": {
			happens: func(h *history) {
				h.pool("a")
				h.says("a", 2)
			},
			want: []Rule{Leak},
		},
		"a block too many": {
			happens: func(h *history) {
				h.pool("a")
				h.says("a", 4)
			},
			want: []Rule{Leak},
		},
		"nobody says what is free": {
			happens: func(h *history) { h.pool("a") },
			want:    []Rule{Leak},
		},
		"a Node waits although there is a block": {
			happens: func(h *history) {
				h.pool("a")
				h.says("a", 3)
				h.node("n1")
			},
			want: []Rule{LeftWaiting},
		},
		"a Node waits because nobody selects it": {
			happens: func(h *history) {
				h.pool("a")
				h.says("a", 3)
				h.node("n1")
				h.relabel("n1", "y")
			},
		},
		"a Node waits because it is being deleted": {
			happens: func(h *history) {
				h.pool("a")
				h.says("a", 3)
				h.node("n1")
				h.terminateNode("n1")
			},
		},
		"a Node waits because everything is held or excluded": {
			happens: func(h *history) {
				h.node("n1")
				h.pool("a", excluding("10.0.2.0/28"))
				h.node("foreign", "10.0.0.0/23")
				h.pool("b", disable) // which does not exclude it
				h.says("a", 0)
				h.says("b", 1)
			},
		},
		"a Node waits because a ServiceCIDR has everything": {
			happens: func(h *history) {
				h.pool("a")
				h.serviceCIDR("s", "10.0.0.0/16")
				h.says("a", 0)
				h.node("n1")
			},
		},
		"a Node waits although the ServiceCIDR is gone": {
			happens: func(h *history) {
				h.pool("a")
				h.serviceCIDR("s", "10.0.0.0/16")
				h.removeServiceCIDR("s")
				h.says("a", 3)
				h.node("n1")
			},
			want: []Rule{LeftWaiting},
		},
		"a Node waits because the ClusterCIDR breaks a rule": {
			happens: func(h *history) {
				h.pool("a", func(cc *networkingv1.ClusterCIDR) {
					cc.Spec.NodeSelector.NodeSelectorTerms[0].MatchExpressions[0].Key = "a_b/c"
				})
				h.says("a", 3)
				h.node("n1")
			},
		},
		"a Node waits because one family is full": {
			happens: func(h *history) {
				h.pool("a", dualStack)
				h.node("foreign", "fd00::/62")
				h.node("n1")
				h.putPool("a", func(cc *networkingv1.ClusterCIDR) {
					cc.Status.IPv4, cc.Status.IPv6 = &networkingv1.RangeStatus{Free: 3}, &networkingv1.RangeStatus{}
				})
			},
		},
		"a Node waits because its ClusterCIDR is disabled": {
			happens: func(h *history) {
				h.pool("a", disable)
				h.says("a", 3)
				h.node("n1")
			},
		},
		"a deleted ClusterCIDR waits for its Node": {
			happens: func(h *history) {
				h.pool("a")
				h.join("n1", "a", "10.0.0.0/24")
				h.pool("a", terminate)
			},
		},
		"a deleted ClusterCIDR waits for nobody": {
			happens: func(h *history) {
				h.pool("a")
				h.join("n1", "a", "10.0.0.0/24")
				h.pool("a", terminate)
				h.removeNode("n1")
			},
			want: []Rule{Stuck},
		},
		"a deleted ClusterCIDR waits for the finalizer of others": {
			happens: func(h *history) {
				h.pool("a")
				h.pool("a", terminate, func(cc *networkingv1.ClusterCIDR) { cc.Finalizers = []string{"example.com/hold"} })
			},
		},
	}
	for sentence, tc := range tests {
		t.Run(sentence, func(t *testing.T) {
			h := newHistory(options)
			tc.happens(h)
			got := h.c.Unsettled()
			if diff := cmp.Diff(tc.want, rules(got)); diff != "" {
				t.Errorf("unsettled (-want +got):\n%s\n%v", diff, got)
			}
			if got := h.c.Violations(); got != nil {
				t.Errorf("recorded as violations, before anybody knows that all is at rest: %v", got)
			}
		})
	}
}

func TestSummary(t *testing.T) {
	h := newHistory(options)
	h.leader("first")
	h.leader("first")
	h.leader("second")
	h.pool("a")
	h.node("n1")
	h.putNode("n1", func(n *corev1.Node) {
		n.Spec.PodCIDRs = []string{"10.0.0.0/24"}
		n.Annotations = map[string]string{networkingv1.AnnotationClusterCIDR: "a", networkingv1.AnnotationLeaseHolder: "first"}
	})
	h.node("n2")
	h.pool("a", disable)
	h.serve("n2", "a", "10.0.1.0/24")
	h.node("n3", "10.0.0.0/26")
	h.removeNode("n3")
	h.node("n3")
	h.node("n4", "10.0.2.0/24")
	h.serve("n3", "a", "10.0.2.0/24")
	h.node("n5")

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
	h := newHistory(options)
	h.c.begin = h.now
	h.node("n1")
	h.removeNode("n1")
	h.leader("first")
	h.pool("a")
	h.node("n1")
	h.node("n2")
	h.c.Observe(Event{Revision: 100, At: h.now, Lease: &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: "another"}}})
	h.serve("n1", "a", "10.0.0.0/24")
	h.leader("second")
	h.serve("n2", "a", "10.0.0.0/24")
	h.wait(time.Minute)
	h.relabel("n2", "later")
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

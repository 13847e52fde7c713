package checker

import (
	"math"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	networkingv1 "github.com/multicidr/controller-manager/apis/networking/v1"
)

// reports writes a status: the numbers of IPv4 as total, allocated, unavailable and free, and the reasons of Ready, Overlapping and Conflicted.
func (h *history) reports(name string, numbers [4]int64, reasons ...string) {
	h.putPool(name, func(cc *networkingv1.ClusterCIDR) {
		cc.Status = networkingv1.ClusterCIDRStatus{IPv4: &networkingv1.RangeStatus{
			CIDR: "10.0.0.0/22", BlockPrefixLength: 24, Total: numbers[0], Allocated: numbers[1], Unavailable: numbers[2], Free: numbers[3],
		}}
		for i, kind := range []string{networkingv1.ConditionReady, networkingv1.ConditionOverlapping, networkingv1.ConditionConflicted} {
			status := metav1.ConditionTrue
			if i == 0 && reasons[i] != "Available" || reasons[i] == "NoOverlap" {
				status = metav1.ConditionFalse
			}
			cc.Status.Conditions = append(cc.Status.Conditions, metav1.Condition{Type: kind, Status: status, Reason: reasons[i], ObservedGeneration: cc.Generation})
		}
	})
}

func TestStatuses(t *testing.T) {
	address := func(a ...string) func(*corev1.Node) {
		return func(n *corev1.Node) {
			for _, a := range a {
				n.Status.Addresses = append(n.Status.Addresses, corev1.NodeAddress{Address: a})
			}
		}
	}
	tests := map[string]struct {
		happens func(*history)
		want    string // one of the messages has it; empty: all is true
	}{
		"a Node has a block": {
			happens: func(h *history) {
				h.pool("a")
				h.join("n1", "a", "10.0.0.0/24")
				h.reports("a", [4]int64{4, 1, 0, 3}, "Available", "NoOverlap", "NoOverlap")
			},
		},
		"exclusions, and podCIDRs that are no blocks": {
			happens: func(h *history) {
				h.pool("a", excluding("10.0.3.128/25"))
				h.node("n1", "10.0.0.0/28")
				h.node("n2", "10.0.1.0/24")
				h.reports("a", [4]int64{4, 1, 2, 1}, "Available", "NoOverlap", "NoOverlap")
			},
		},
		"a number is wrong": {
			happens: func(h *history) {
				h.pool("a")
				h.reports("a", [4]int64{4, 0, 1, 3}, "Available", "NoOverlap", "NoOverlap")
			},
			want: "want {CIDR:10.0.0.0/22 BlockPrefixLength:24 Total:4 Allocated:0 Unavailable:0 Free:4 Cursor:}",
		},
		"it is full": {
			happens: func(h *history) {
				h.pool("a", excluding("10.0.0.0/22"))
				h.reports("a", [4]int64{4, 0, 4, 0}, "Available", "NoOverlap", "NoOverlap")
			},
			want: "want False, Exhausted",
		},
		"it is disabled": {
			happens: func(h *history) {
				h.pool("a", disable)
				h.reports("a", [4]int64{4, 0, 0, 4}, "Disabled", "NoOverlap", "NoOverlap")
			},
		},
		"it is being deleted": {
			happens: func(h *history) {
				h.pool("a", terminate)
				h.reports("a", [4]int64{4, 0, 0, 4}, "Available", "NoOverlap", "NoOverlap")
			},
			want: "want False, Terminating",
		},
		"a ServiceCIDR overlaps": {
			happens: func(h *history) {
				h.pool("a")
				h.serviceCIDR("s", "10.0.0.0/8")
				h.reports("a", [4]int64{4, 0, 4, 0}, "Exhausted", "ServiceRange", "NoOverlap")
			},
		},
		"a ServiceCIDR overlaps what is excluded": {
			happens: func(h *history) {
				h.pool("a", excluding("10.0.1.0/25"))
				h.serviceCIDR("s", "10.0.1.240/28")
				h.reports("a", [4]int64{4, 0, 1, 3}, "Available", "NoOverlap", "NoOverlap")
			},
		},
		"another ClusterCIDR overlaps": {
			happens: func(h *history) {
				h.pool("a")
				h.pool("b", func(cc *networkingv1.ClusterCIDR) { cc.Spec.IPv4, cc.Spec.PerNodeHostBits = "10.0.3.0/28", 4 }, excluding("10.0.3.0/28"))
				h.pool("c", func(cc *networkingv1.ClusterCIDR) { cc.Spec.IPv4, cc.Spec.PerNodeHostBits = "10.0.3.0/28", 4 })
				h.reports("a", [4]int64{4, 0, 0, 4}, "Available", "NoOverlap", "NoOverlap")
				for _, name := range []string{"b", "c"} {
					h.reports(name, [4]int64{1}, "Available", "NoOverlap", "NoOverlap") // not what the case is about
				}
			},
			want: "ClusterCIDR a: condition Overlapping is False, NoOverlap (), want True, ClusterCIDR",
		},
		"a Node's own address": {
			happens: func(h *history) {
				h.pool("a")
				h.putNode("n1", address("host", "::ffff:10.0.2.1"))
				h.relabel("n1", "y")
				h.reports("a", [4]int64{4, 0, 0, 4}, "Available", "NodeAddress", "NoOverlap")
			},
		},
		"two Nodes share addresses in the range": {
			happens: func(h *history) {
				h.pool("a")
				h.node("n1", "10.0.0.0/24")
				h.node("n2", "10.0.0.0/8")
				h.reports("a", [4]int64{4, 1, 3, 0}, "Exhausted", "NoOverlap", "NoOverlap")
			},
			want: "want True, Overlap",
		},
		"two Nodes share addresses elsewhere": {
			happens: func(h *history) {
				h.pool("a")
				h.node("n1", "10.1.0.0/24")
				h.node("n2", "10.1.0.0/16")
				h.reports("a", [4]int64{4, 0, 0, 4}, "Available", "NoOverlap", "NoOverlap")
			},
		},
		"the status is of an earlier generation": {
			happens: func(h *history) {
				h.pool("a")
				h.reports("a", [4]int64{4, 0, 0, 4}, "Available", "NoOverlap", "NoOverlap")
				h.putPool("a", func(cc *networkingv1.ClusterCIDR) {
					cc.Generation = 2
					cc.Status.Conditions = cc.Status.Conditions[:1]
				})
			},
			want: "is of generation 0, and the object of 2",
		},
		"the status has a range that is not there": {
			happens: func(h *history) {
				h.pool("a")
				h.reports("a", [4]int64{4, 0, 0, 4}, "Available", "NoOverlap", "NoOverlap")
				h.putPool("a", func(cc *networkingv1.ClusterCIDR) { cc.Status.IPv6 = &networkingv1.RangeStatus{} })
			},
			want: "the status is about 2 ranges, and there are 1",
		},
		"more blocks than an int64 counts": {
			happens: func(h *history) {
				h.pool("a", func(cc *networkingv1.ClusterCIDR) {
					cc.Spec.IPv4, cc.Spec.IPv6, cc.Spec.PerNodeHostBits = "", "::/0", 64
				}, excluding("fd00::/63"))
				h.reports("a", [4]int64{}, "Available", "SpecialAddresses", "NoOverlap")
				h.putPool("a", func(cc *networkingv1.ClusterCIDR) {
					cc.Status.IPv4 = nil
					cc.Status.IPv6 = &networkingv1.RangeStatus{CIDR: "::/0", BlockPrefixLength: 64, Total: math.MaxInt64, Unavailable: 2, Free: math.MaxInt64}
				})
			},
		},
	}
	for sentence, tc := range tests {
		t.Run(sentence, func(t *testing.T) {
			h := newHistory(Options{})
			tc.happens(h)
			var found []string
			for _, v := range h.c.Statuses() {
				found = append(found, v.Message)
			}
			told := strings.Join(found, "\n")
			if tc.want == "" && told != "" || !strings.Contains(told, tc.want) {
				t.Errorf("untrue:\n%s\nwant %q", told, tc.want)
			}
			if h.c.Count() > 0 {
				t.Error("recorded as violations, before anybody knows that all is at rest")
			}
		})
	}
}

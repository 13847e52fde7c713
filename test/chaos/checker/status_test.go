package checker

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	networkingv1 "github.com/multicidr/controller-manager/apis/networking/v1"
)

// reports writes a status: the numbers of one family as total, allocated, unavailable and free, and the reasons of Ready, Overlapping and Conflicted.
func (h *history) reports(name string, ipv6 bool, args []string) {
	numbers, reasons := args[:4], args[4:]
	status := &networkingv1.RangeStatus{
		CIDR: "10.0.0.0/22", BlockPrefixLength: 24, Total: number(numbers[0]), Allocated: number(numbers[1]), Unavailable: number(numbers[2]), Free: number(numbers[3]),
	}
	h.putPool(name, func(cc *networkingv1.ClusterCIDR) {
		cc.Status = networkingv1.ClusterCIDRStatus{IPv4: status}
		if ipv6 {
			status.CIDR, status.BlockPrefixLength = "::/0", 64
			cc.Status = networkingv1.ClusterCIDRStatus{IPv6: status}
		}
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
	tests := map[string]struct {
		happens string
		want    string // one of the messages has it; empty: all is true
	}{
		"a Node has a block": {
			happens: "cc a; join n1 a 10.0.0.0/24; reports a 4 1 0 3 Available NoOverlap NoOverlap",
		},
		"exclusions, and podCIDRs that are no blocks": {
			happens: "cc a exclude=10.0.3.128/25; node n1 10.0.0.0/28; node n2 10.0.1.0/24; reports a 4 1 2 1 Available NoOverlap NoOverlap",
		},
		"a number is wrong": {
			happens: "cc a; reports a 4 0 1 3 Available NoOverlap NoOverlap",
			want:    "want {CIDR:10.0.0.0/22 BlockPrefixLength:24 Total:4 Allocated:0 Unavailable:0 Free:4 Cursor:}",
		},
		"it is full": {
			happens: "cc a exclude=10.0.0.0/22; reports a 4 0 4 0 Available NoOverlap NoOverlap",
			want:    "want False, Exhausted",
		},
		"it is disabled": {
			happens: "cc a disable; reports a 4 0 0 4 Disabled NoOverlap NoOverlap",
		},
		"it is being deleted": {
			happens: "cc a terminate; reports a 4 0 0 4 Available NoOverlap NoOverlap",
			want:    "want False, Terminating",
		},
		"a ServiceCIDR overlaps": {
			happens: "cc a; service s 10.0.0.0/8; reports a 4 0 4 0 Exhausted ServiceRange NoOverlap",
		},
		"a ServiceCIDR overlaps what is excluded": {
			happens: "cc a exclude=10.0.1.0/25; service s 10.0.1.240/28; reports a 4 0 1 3 Available NoOverlap NoOverlap",
		},
		"another ClusterCIDR overlaps": {
			happens: "cc a; cc b ipv4=10.0.3.0/28 hb=4 exclude=10.0.3.0/28; cc c ipv4=10.0.3.0/28 hb=4; reports a 4 0 0 4 Available NoOverlap NoOverlap; " +
				"reports b 1 0 0 0 Available NoOverlap NoOverlap; reports c 1 0 0 0 Available NoOverlap NoOverlap",
			want: "ClusterCIDR a: condition Overlapping is False, NoOverlap (), want True, ClusterCIDR",
		},
		"a Node's own address": {
			happens: "cc a; addresses n1 host ::ffff:10.0.2.1; relabel n1 y; reports a 4 0 0 4 Available NodeAddress NoOverlap",
		},
		"two Nodes share addresses in the range": {
			happens: "cc a; node n1 10.0.0.0/24; node n2 10.0.0.0/8; reports a 4 1 3 0 Exhausted NoOverlap NoOverlap",
			want:    "want True, Overlap",
		},
		"two Nodes share addresses elsewhere": {
			happens: "cc a; node n1 10.1.0.0/24; node n2 10.1.0.0/16; reports a 4 0 0 4 Available NoOverlap NoOverlap",
		},
		"the status is of an earlier generation": {
			happens: "cc a; reports a 4 0 0 4 Available NoOverlap NoOverlap; cc a generation=2",
			want:    "is of generation 0, and the object of 2",
		},
		"the status has a range that is not there": {
			happens: "cc a; reports a 4 0 0 4 Available NoOverlap NoOverlap; says a 4 0",
			want:    "the status is about 2 ranges, and there are 1",
		},
		"more blocks than an int64 counts": {
			happens: "cc a ipv4= ipv6=::/0 hb=64 exclude=fd00::/63; reports6 a 9223372036854775807 0 2 9223372036854775807 Available SpecialAddresses NoOverlap",
		},
	}
	for sentence, tc := range tests {
		t.Run(sentence, func(t *testing.T) {
			h := play(Options{}, tc.happens)
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

package main

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	networkingapiv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	networkingv1 "github.com/multicidr/controller-manager/apis/networking/v1"
)

func testNode(name, pool, clusterCIDR string, podCIDRs ...string) *corev1.Node {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{
		Name: name, UID: types.UID(name), Labels: map[string]string{poolLabel: pool}, Annotations: map[string]string{},
	}}
	if clusterCIDR != "" {
		node.Annotations[networkingv1.AnnotationClusterCIDR] = clusterCIDR
	}
	node.Spec.PodCIDRs = podCIDRs
	return node
}

func testClusterCIDR(name, pool, ipv4, ipv6 string, hostBits int32) *networkingv1.ClusterCIDR {
	cc := &networkingv1.ClusterCIDR{ObjectMeta: metav1.ObjectMeta{Name: name}}
	cc.Spec = networkingv1.ClusterCIDRSpec{IPv4: ipv4, IPv6: ipv6, PerNodeHostBits: hostBits}
	if pool != "" {
		cc.Spec.NodeSelector = &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
			MatchExpressions: []corev1.NodeSelectorRequirement{{Key: poolLabel, Operator: corev1.NodeSelectorOpIn, Values: []string{pool}}},
		}}}
	}
	return cc
}

func waitEvent(node string, message string, at time.Time) *corev1.Event {
	return &corev1.Event{
		InvolvedObject: corev1.ObjectReference{UID: types.UID(node)},
		Reason:         reasonWaiting, Message: message, LastTimestamp: metav1.NewTime(at),
	}
}

func TestViewMissing(t *testing.T) {
	edge := testClusterCIDR("edge", "edge", "10.245.0.0/28", "", 4) // one block
	disabled := testClusterCIDR("off", "edge", "10.246.0.0/16", "", 8)
	disabled.Spec.Allocation = networkingv1.AllocationDisabled
	holder := testNode("holder", "edge", "edge", "10.245.0.0/28")
	waiting := testNode("waiting", "edge", "")

	tests := map[string]struct {
		clusterCIDRs []*networkingv1.ClusterCIDR
		want         []string
	}{
		"a Node that waits for a full range is not missing": {
			clusterCIDRs: []*networkingv1.ClusterCIDR{edge, disabled},
		},
		"a Node that could have a block of another ClusterCIDR is missing": {
			clusterCIDRs: []*networkingv1.ClusterCIDR{edge, testClusterCIDR("rest", "", "10.0.0.0/8", "", 8)},
			want:         []string{"waiting"},
		},
		"a ClusterCIDR with other Nodes in mind is no help": {
			clusterCIDRs: []*networkingv1.ClusterCIDR{edge, testClusterCIDR("gpu", "gpu", "10.0.0.0/8", "", 8)},
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			v := newView([]*corev1.Node{holder, waiting}, tc.clusterCIDRs, nil, nil)
			var got []string
			for _, node := range v.missing() {
				got = append(got, node.name)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("missing (-want +got):\n%s", diff)
			}
		})
	}
}

func TestPicture(t *testing.T) {
	dual := testClusterCIDR("dual", "gpu", "10.244.7.9/16", "fd00::/48", 8)
	bits := int32(64)
	dual.Spec.IPv6PerNodeHostBits = &bits
	service := &networkingapiv1.ServiceCIDR{Spec: networkingapiv1.ServiceCIDRSpec{CIDRs: []string{"10.244.255.0/24"}}}
	full := "No ClusterCIDR that selects this Node can serve it: dual is full (IPv4 and IPv6). Create another one, or delete Nodes that are not needed."
	v := newView(
		[]*corev1.Node{
			testNode("a", "gpu", "dual", "10.244.0.0/24", "fd00::/64"),
			testNode("b", "gpu", "dual", "10.244.1.0/24", "fd00:0:0:1::/64"),
			testNode("foreign", "gpu", "", "10.244.2.0/24"),
			testNode("far", "", "", "172.16.0.0/24"),
			testNode("in-services", "gpu", "dual", "10.244.255.0/28", "fd00:0:0:2::/64"),
			testNode("twin", "gpu", "", "10.244.2.0/23"),
			testNode("waits", "gpu", ""),
			testNode("waits-too", "gpu", ""),
		},
		[]*networkingv1.ClusterCIDR{dual}, []*networkingapiv1.ServiceCIDR{service},
		[]*corev1.Event{
			waitEvent("waits", full, time.Unix(2, 0)), waitEvent("waits", "earlier", time.Unix(1, 0)), waitEvent("waits-too", full, time.Unix(2, 0)),
			waitEvent("b", "over", time.Unix(1, 0)),
		},
	)
	hints := []string{"hint"}
	got := strings.Join(picture(v, hints, 60, 20), "\n")
	want := `NODE         GROUP  POD CIDRS                         FROM
waits        gpu    -                                 waits
waits-too    gpu    -                                 waits
far          -      172.16.0.0/24                     other…
foreign      gpu    10.244.2.0/24                     other…
in-services  gpu    10.244.255.0/28, fd00:0:0:2::/64  dual,…
twin         gpu    10.244.2.0/23                     other…
... and 2 more
3 of 8 Nodes served, 2 without podCIDRs, 3 from somebody
else, 3 in conflict

CLUSTERCIDR  RANGES                    BLOCK     NODES  STA…
dual         10.244.0.0/16, fd00::/48  /24, /64  3      Ena…

Waiting: waits, waits-too. No ClusterCIDR that selects this
Node can serve it: dual is full (IPv4 and IPv6). Create
another one, or delete Nodes that are not needed.

hint`
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("picture (-want +got):\n%s", diff)
	}
}

func TestViewChanges(t *testing.T) {
	before := newView([]*corev1.Node{testNode("same", "", "x", "10.0.0.0/24"), testNode("served", "", ""), testNode("old", "", "")}, nil, nil, nil)
	v := newView(
		[]*corev1.Node{testNode("same", "", "x", "10.0.0.0/24"), testNode("served", "", "x", "10.0.1.0/24"), testNode("new", "", ""), testNode("quiet", "", "")},
		nil, nil, []*corev1.Event{waitEvent("new", "no room", time.Unix(1, 0))},
	)
	want := []string{"Node new waits: no room", "Node served: 10.0.1.0/24 from x", "Node old is gone"}
	if diff := cmp.Diff(want, v.changes(before)); diff != "" {
		t.Errorf("changes (-want +got):\n%s", diff)
	}
}

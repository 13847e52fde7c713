package main

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	networkingv1 "github.com/multicidr/controller-manager/apis/networking/v1"
)

// Nodes that need somebody's eyes come first, and the screen says what is wrong.
func TestView(t *testing.T) {
	node := func(name, podCIDR string) corev1.Node {
		n := corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name)}}
		if podCIDR != "" {
			n.Spec.PodCIDR, n.Spec.PodCIDRs = podCIDR, []string{podCIDR}
		}
		return n
	}
	full := networkingv1.ClusterCIDR{ObjectMeta: metav1.ObjectMeta{Name: "full"}, Spec: networkingv1.ClusterCIDRSpec{IPv4: "10.0.0.0/23", PerNodeHostBits: 8}}
	before := viewOf([]corev1.Node{node("a", "10.0.0.0/24"), node("gone", "172.16.0.0/24")}, nil, nil)
	now := viewOf([]corev1.Node{node("a", "10.0.0.0/24"), node("b", "10.0.1.0/24"), node("c", "10.0.1.0/24"), node("d", "")}, []networkingv1.ClusterCIDR{full}, nil)
	screen := strings.Join(now.lines(3), "\n")
	for _, want := range []string{
		"NODE  POD CIDRS    FROM\nd     -            pending\nb     10.0.1.0/24  full, CIDRConflict\nc     10.0.1.0/24  full, CIDRConflict\n... and 1 more\n3 of 4 Nodes have podCIDRs, 1 pending\n",
		"\nfull         10.0.0.0/23  /24    2          0     Exhausted\n",
		"\n1 pending, such as d: No ClusterCIDR that selects this Node can serve it: full is full (IPv4).",
	} {
		if !strings.Contains(screen, want) {
			t.Errorf("the screen lacks\n%s\nin\n%s", want, screen)
		}
	}
	changes := strings.Join(now.changes(before), "\n")
	for _, want := range []string{"Node d is pending: No ClusterCIDR", "Node b: 10.0.1.0/24 from full, CIDRConflict", "Node a: 10.0.0.0/24 from full", "Node gone is gone"} {
		if !strings.Contains(changes, want) {
			t.Errorf("the changes lack %q:\n%s", want, changes)
		}
	}
}

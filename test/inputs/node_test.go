package inputs

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	networkingv1 "github.com/multicidr/controller-manager/apis/networking/v1"
)

type node = corev1.Node

var nodes = newKind("node", corev1.SchemeGroupVersion.WithResource("nodes"), "Node", 28, ordinaryNode, nodeTable)

func ordinaryNode(name string, d *dice) *node {
	n := &node{ObjectMeta: metav1.ObjectMeta{Name: name}}
	if d.IntN(4) > 0 {
		n.Labels = map[string]string{poolLabel: pickOf(d, poolLabels...)}
	}
	return n
}

func podCIDRs(cidrs ...string) func(*node, *dice) {
	return func(n *node, _ *dice) { n.Spec.PodCIDRs = cidrs }
}

func label(key, value string) func(*node, *dice) {
	return func(n *node, _ *dice) { metav1.SetMetaDataLabel(&n.ObjectMeta, key, value) }
}

func annotate(key, value string) func(*node, *dice) {
	return func(n *node, _ *dice) { metav1.SetMetaDataAnnotation(&n.ObjectMeta, key, value) }
}

func addresses(of ...string) func(*node, *dice) {
	return func(n *node, _ *dice) {
		for _, a := range of {
			n.Status.Addresses = append(n.Status.Addresses, corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: a})
		}
	}
}

func pods(quantity string) func(*node, *dice) {
	return func(n *node, _ *dice) {
		n.Status.Capacity = corev1.ResourceList{corev1.ResourcePods: resource.MustParse(quantity)}
	}
}

var nodeTable = []extreme[node]{
	{field: "name", name: "a name of 253 characters", set: func(n *node, d *dice) { n.Name = longName(d) }},
	{field: "name", name: "a name that is a number", set: func(n *node, d *dice) { n.Name = fmt.Sprint(d.number) }},
	{field: "name", name: "a name that is an address", set: func(n *node, d *dice) { n.Name = fmt.Sprintf("10.0.0.%d", d.number%256) }},

	{field: "podCIDRs", name: "all IPv4 addresses", set: podCIDRs("0.0.0.0/0"), swallows: true},
	{field: "podCIDRs", name: "all IPv6 addresses", set: podCIDRs("::/0"), swallows: true},
	{field: "podCIDRs", name: "all addresses, IPv6 first", set: podCIDRs("::/0", "0.0.0.0/0"), swallows: true},
	{field: "podCIDRs", name: "half of all addresses", set: podCIDRs("128.0.0.0/1", "8000::/1")},
	{field: "podCIDRs", name: "10.0.0.0/8", set: podCIDRs("10.0.0.0/8"), swallows: true},
	{field: "podCIDRs", name: "one IPv4 address", set: podCIDRs("10.0.0.0/32")},
	{field: "podCIDRs", name: "one IPv6 address", set: podCIDRs("fd00::/128")},
	{field: "podCIDRs", name: "the last addresses", set: podCIDRs("255.255.255.255/32", "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff/128")},
	{field: "podCIDRs", name: "the first addresses", set: podCIDRs("0.0.0.0/32", "::/128")},
	{field: "podCIDRs", name: "host bits", set: podCIDRs("10.1.2.3/20"), sloppy: true},
	{field: "podCIDRs", name: "leading zeros", set: podCIDRs("010.002.001.000/024"), sloppy: true},
	{field: "podCIDRs", name: "IPv6 in capitals and in full", set: podCIDRs("FD00:0001:0000:0000:0000:0000:0000:0000/64")},
	{field: "podCIDRs", name: "an IPv4-mapped podCIDR", set: podCIDRs("::ffff:10.3.0.0/120"), sloppy: true},
	{field: "podCIDRs", name: "all IPv4 addresses, IPv4-mapped", set: podCIDRs("::ffff:0.0.0.0/96"), sloppy: true, swallows: true},
	{field: "podCIDRs", name: "wider than all IPv4-mapped addresses", set: podCIDRs("::ffff:0.0.0.0/95"), sloppy: true},
	{field: "podCIDRs", name: "a /124 of the IPv4-mapped addresses with an IPv4 one", set: podCIDRs("::ffff:10.4.0.0/124", "fd00:4::/64"), sloppy: true},
	{field: "podCIDRs", name: "podCIDR without podCIDRs", set: func(n *node, _ *dice) { n.Spec.PodCIDR = "10.5.0.0/24" }},
	{field: "podCIDRs", name: "podCIDR and other podCIDRs", set: func(n *node, _ *dice) {
		n.Spec.PodCIDR, n.Spec.PodCIDRs = "10.6.0.0/24", []string{"10.7.0.0/24", "fd00:7::/64"}
	}},
	{field: "podCIDRs", name: "in the API server's service range", set: podCIDRs("198.51.100.0/26")},
	{field: "podCIDRs", name: "around the API server's service range", set: podCIDRs("198.51.0.0/16", "2001:db8::/32")},
	{field: "podCIDRs", name: "what nobody has", set: podCIDRs("192.0.2.64/26")},
	{field: "podCIDRs", name: "what ClusterCIDRs have, too small", set: podCIDRs("10.2.0.16/29")},
	{field: "podCIDRs", name: "IPv6 first", set: podCIDRs("fd00:2::/64", "10.2.1.0/24")},
	{field: "podCIDRs", name: "a block of another one", set: podCIDRs("10.3.3.0/24", "fd00:3::/64")},

	{field: "addresses", name: "30,000 addresses", set: func(n *node, d *dice) {
		addresses(many(30_000, func(i int) string { return fmt.Sprintf("10.%d.%d.%d", i%16, i/256%256, i%256) })...)(n, d)
	}},
	{field: "addresses", name: "addresses in ClusterCIDRs", set: addresses("10.0.0.1", "fd00::1")},
	{field: "addresses", name: "the 65th address is in ClusterCIDRs", set: func(n *node, d *dice) {
		addresses(append(many(64, func(i int) string { return fmt.Sprintf("192.0.2.%d", i) }), "10.1.0.1")...)(n, d)
	}},
	// The API server accepts such a Node, and then no change of it, whoever makes it, until each address is there once. So that comes before all
	// other steps.
	{field: "addresses", name: "the same address 100 times, until somebody mends that", set: func(n *node, d *dice) {
		addresses(many(100, func(int) string { return "10.2.0.1" })...)(n, d)
		d.then(step{patchStatus, `{"status":{"addresses":[{"type":"InternalIP","address":"10.2.0.1"}]}}`})
	}},
	{field: "addresses", name: "addresses with zones, IPv4-mapped and of the ends", set: addresses("fe80::1%eth0", "::ffff:10.0.1.1", "255.255.255.255", "::", "0.0.0.0")},
	{field: "addresses", name: "addresses that are none", set: addresses("", ".", ":", "%", "10.0.0.0/8", "010.0.0.1", strings.Repeat(".:", 10_000), "a.example.com", "\x00")},

	{field: "labels", name: "1,000 labels", set: func(n *node, _ *dice) {
		for key, value := range manyLabels(1000) {
			metav1.SetMetaDataLabel(&n.ObjectMeta, key, value)
		}
	}},
	{field: "labels", name: "no labels", set: func(n *node, _ *dice) { n.Labels = nil }},
	{field: "labels", name: "an empty label", set: label(poolLabel, "")},
	{field: "labels", name: "a label of 63 characters", set: label(poolLabel, strings.Repeat("v", 63))},
	{field: "labels", name: "a number that fits no int64", set: label(numberLabel, "99999999999999999999")},
	{field: "labels", name: "the largest int64", set: label(numberLabel, "9223372036854775807")},
	{field: "labels", name: "a number with leading zeros", set: label(numberLabel, "0000000000000000001")},
	{field: "labels", name: "no number", set: label(numberLabel, "many")},
	{field: "labels", name: "a label that is called as a field", set: label(metav1.ObjectNameField, "a")},
	{field: "labels", name: "another label later", set: func(_ *node, d *dice) {
		d.then(step{patchObject, merge(map[string]any{"metadata": map[string]any{"labels": map[string]any{poolLabel: pickOf(d, poolLabels...)}}})})
	}},
	{field: "labels", name: "no label later", set: func(n *node, d *dice) {
		d.then(step{patchObject, merge(map[string]any{"metadata": map[string]any{"labels": map[string]any{poolLabel: nil}}})})
	}},

	{field: "annotations", name: "a ClusterCIDR that does not exist", set: annotate(networkingv1.AnnotationClusterCIDR, "nobody")},
	{field: "annotations", name: "a ClusterCIDR that is there", set: annotate(networkingv1.AnnotationClusterCIDR, "cc-1")},
	{field: "annotations", name: "an empty ClusterCIDR", set: annotate(networkingv1.AnnotationClusterCIDR, "")},
	{field: "annotations", name: "a ClusterCIDR of 200,000 bytes", set: annotate(networkingv1.AnnotationClusterCIDR, strings.Repeat("ä/", 66_666))},
	{field: "annotations", name: "a ClusterCIDR with control characters", set: annotate(networkingv1.AnnotationClusterCIDR, "../\x00\n\u202e")},
	{field: "annotations", name: "another leader", set: annotate(networkingv1.AnnotationLeaseHolder, "nobody\n")},
	{field: "annotations", name: "the ClusterCIDR changes", set: func(_ *node, d *dice) {
		d.then(step{patchObject, merge(map[string]any{"metadata": map[string]any{"annotations": map[string]any{networkingv1.AnnotationLeaseHolder: "me", "x": "y"}}})})
	}},

	{field: "pods", name: "no Pods", set: pods("0")},
	{field: "pods", name: "2^63-1 Pods", set: pods("9223372036854775807")},
	{field: "pods", name: "250,000 Pods", set: pods("250k")},

	{field: "spec", name: "1,000 taints", set: func(n *node, _ *dice) {
		for i := range 1000 {
			n.Spec.Taints = append(n.Spec.Taints, corev1.Taint{Key: fmt.Sprint("t", i), Effect: corev1.TaintEffectNoExecute})
		}
		n.Spec.Unschedulable = true
	}},
	{field: "finalizers", name: "a finalizer of others", set: func(n *node, _ *dice) { n.Finalizers = []string{foreignFinalizer} }},
	{field: "owner", name: "an owner that does not exist", set: func(n *node, _ *dice) {
		n.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: "nobody", UID: "nobody"}}
	}},

	{field: "end", name: "deleted later", set: func(_ *node, d *dice) { d.then(step{deleteObject, ""}) }},
	{field: "end", name: "being deleted", set: func(n *node, d *dice) {
		n.Finalizers = append(n.Finalizers, foreignFinalizer+"-end")
		d.then(step{deleteObject, ""})
	}},
}

// Package objects builds Nodes and ClusterCIDRs for tests.
package objects

import (
	"net/netip"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	networkingv1 "github.com/multicidr/controller-manager/apis/networking/v1"
)

// Pfx parses a prefix.
func Pfx(s string) netip.Prefix { return netip.MustParsePrefix(s) }

// Pfxs parses prefixes.
func Pfxs(ss ...string) []netip.Prefix {
	var all []netip.Prefix
	for _, s := range ss {
		all = append(all, Pfx(s))
	}
	return all
}

// ClusterCIDR returns one that can allocate, after applying the edits.
func ClusterCIDR(name string, spec networkingv1.ClusterCIDRSpec, edits ...func(*networkingv1.ClusterCIDR)) *networkingv1.ClusterCIDR {
	cc := &networkingv1.ClusterCIDR{
		ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID("uid-" + name), Finalizers: []string{networkingv1.Finalizer}},
		Spec:       spec,
	}
	for _, edit := range edits {
		edit(cc)
	}
	return cc
}

// Deleted marks the ClusterCIDR as being deleted.
func Deleted(cc *networkingv1.ClusterCIDR) {
	cc.DeletionTimestamp = &metav1.Time{Time: time.Unix(1, 0)}
}

// NoFinalizer removes the finalizer.
func NoFinalizer(cc *networkingv1.ClusterCIDR) { cc.Finalizers = nil }

// In returns a requirement that a label has one of these values.
func In(key string, values ...string) v1.NodeSelectorRequirement {
	return v1.NodeSelectorRequirement{Key: key, Operator: v1.NodeSelectorOpIn, Values: values}
}

// AnyOf returns a selector that matches if any of the terms does.
func AnyOf(terms ...v1.NodeSelectorTerm) *v1.NodeSelector {
	return &v1.NodeSelector{NodeSelectorTerms: terms}
}

// AllOf returns a term with all of these requirements.
func AllOf(requirements ...v1.NodeSelectorRequirement) v1.NodeSelectorTerm {
	return v1.NodeSelectorTerm{MatchExpressions: requirements}
}

// Texts formats prefixes.
func Texts(prefixes []netip.Prefix) []string {
	var all []string
	for _, p := range prefixes {
		all = append(all, p.String())
	}
	return all
}

// Node returns a Node without podCIDRs, with a UID derived from its name, after applying the edits.
func Node(name string, edits ...func(*v1.Node)) *v1.Node {
	n := &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID("uid-" + name)}}
	for _, edit := range edits {
		edit(n)
	}
	return n
}

// UID sets a Node's UID.
func UID(u types.UID) func(*v1.Node) { return func(n *v1.Node) { n.UID = u } }

// Label sets a label of a Node.
func Label(key, value string) func(*v1.Node) {
	return func(n *v1.Node) { metav1.SetMetaDataLabel(&n.ObjectMeta, key, value) }
}

// From annotates a Node with the ClusterCIDR of its podCIDRs.
func From(clusterCIDR string) func(*v1.Node) {
	return func(n *v1.Node) {
		metav1.SetMetaDataAnnotation(&n.ObjectMeta, networkingv1.AnnotationClusterCIDR, clusterCIDR)
	}
}

// Spec4 returns the spec of a ClusterCIDR with one IPv4 range.
func Spec4(cidr string, hostBits int32, selector *v1.NodeSelector) networkingv1.ClusterCIDRSpec {
	return networkingv1.ClusterCIDRSpec{IPv4: cidr, PerNodeHostBits: hostBits, NodeSelector: selector}
}

// Created sets a Node's creation time, in seconds since 1970.
func Created(second int64) func(*v1.Node) {
	return func(n *v1.Node) { n.CreationTimestamp = metav1.Unix(second, 0) }
}

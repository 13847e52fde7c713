package nodeipam

import (
	"net/netip"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	networkingv1 "github.com/multicidr/controller-manager/apis/networking/v1"
)

func pfx(s string) netip.Prefix { return netip.MustParsePrefix(s) }

func pfxs(ss ...string) []netip.Prefix {
	var all []netip.Prefix
	for _, s := range ss {
		all = append(all, pfx(s))
	}
	return all
}

// clusterCIDR makes one that is ready to serve; edits come on top.
func clusterCIDR(name string, spec networkingv1.ClusterCIDRSpec, edits ...func(*networkingv1.ClusterCIDR)) *networkingv1.ClusterCIDR {
	cc := &networkingv1.ClusterCIDR{
		ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID("uid-" + name), Finalizers: []string{networkingv1.Finalizer}},
		Spec:       spec,
	}
	for _, edit := range edits {
		edit(cc)
	}
	return cc
}

func deleted(cc *networkingv1.ClusterCIDR) {
	cc.DeletionTimestamp = &metav1.Time{Time: time.Unix(1, 0)}
}

func noFinalizer(cc *networkingv1.ClusterCIDR) { cc.Finalizers = nil }

func in(key string, values ...string) v1.NodeSelectorRequirement {
	return v1.NodeSelectorRequirement{Key: key, Operator: v1.NodeSelectorOpIn, Values: values}
}

func anyOf(terms ...v1.NodeSelectorTerm) *v1.NodeSelector {
	return &v1.NodeSelector{NodeSelectorTerms: terms}
}

func allOf(requirements ...v1.NodeSelectorRequirement) v1.NodeSelectorTerm {
	return v1.NodeSelectorTerm{MatchExpressions: requirements}
}

func texts(prefixes []netip.Prefix) []string {
	var all []string
	for _, p := range prefixes {
		all = append(all, p.String())
	}
	return all
}

func node(name string, edits ...func(*v1.Node)) *v1.Node {
	n := &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID("uid-" + name)}}
	for _, edit := range edits {
		edit(n)
	}
	return n
}

func uid(u types.UID) func(*v1.Node) { return func(n *v1.Node) { n.UID = u } }

func label(key, value string) func(*v1.Node) {
	return func(n *v1.Node) { metav1.SetMetaDataLabel(&n.ObjectMeta, key, value) }
}

func from(clusterCIDR string) func(*v1.Node) {
	return func(n *v1.Node) {
		metav1.SetMetaDataAnnotation(&n.ObjectMeta, networkingv1.AnnotationClusterCIDR, clusterCIDR)
	}
}

func spec4(cidr string, hostBits int32, selector *v1.NodeSelector) networkingv1.ClusterCIDRSpec {
	return networkingv1.ClusterCIDRSpec{IPv4: cidr, PerNodeHostBits: hostBits, NodeSelector: selector}
}

func created(second int64) func(*v1.Node) {
	return func(n *v1.Node) { n.CreationTimestamp = metav1.Unix(second, 0) }
}

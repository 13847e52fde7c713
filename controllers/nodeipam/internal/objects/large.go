package objects

import (
	"fmt"

	v1 "k8s.io/api/core/v1"
)

// ManyAddresses gives a Node n addresses, the i-th one being 10.0.0.0 + i.
func ManyAddresses(n int) func(*v1.Node) {
	return func(node *v1.Node) {
		for i := range n {
			node.Status.Addresses = append(node.Status.Addresses, v1.NodeAddress{Type: v1.NodeInternalIP, Address: fmt.Sprintf("10.%d.%d.%d", i>>16&255, i>>8&255, i&255)})
		}
	}
}

// InTerms returns a selector with about n label values, within the CRD's limits: 64 terms of 64 requirements of 256 values of 63 bytes.
func InTerms(n int) *v1.NodeSelector {
	s := &v1.NodeSelector{}
	value := 0
	for value < n {
		var t v1.NodeSelectorTerm
		for range 64 {
			r := v1.NodeSelectorRequirement{Key: fmt.Sprint("example.com/k", len(t.MatchExpressions)), Operator: v1.NodeSelectorOpIn}
			for range max(1, (n+64*64-1)/(64*64)) {
				r.Values = append(r.Values, fmt.Sprintf("%x", value))
				value++
			}
			t.MatchExpressions = append(t.MatchExpressions, r)
		}
		s.NodeSelectorTerms = append(s.NodeSelectorTerms, t)
	}
	return s
}

// OneRequirement returns a selector with one requirement on one label, with n values.
func OneRequirement(n int, operator v1.NodeSelectorOperator) *v1.NodeSelector {
	r := v1.NodeSelectorRequirement{Key: "a", Operator: operator}
	for i := range n {
		r.Values = append(r.Values, fmt.Sprintf("%x", i))
	}
	return AnyOf(AllOf(r))
}

// SmallTerms returns a selector with n terms.
func SmallTerms(n int, operator v1.NodeSelectorOperator) *v1.NodeSelector {
	s := &v1.NodeSelector{}
	for i := range n {
		s.NodeSelectorTerms = append(s.NodeSelectorTerms, AllOf(v1.NodeSelectorRequirement{Key: "a", Operator: operator, Values: []string{fmt.Sprintf("%x", i)}}))
	}
	return s
}

// ManyExclusions returns n addresses in 10.0.0.0/8, no two of them adjacent, in no particular order.
func ManyExclusions(n int) []string {
	all := make([]string, n)
	for i := range all {
		at := uint32(i) * 2654435761 >> 8 &^ 1
		all[i] = fmt.Sprintf("10.%d.%d.%d/32", at>>16&255, at>>8&255, at&255)
	}
	return all
}

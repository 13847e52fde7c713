package checker

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// Overlaps is for those who look at Nodes once, at rest: it returns an error that names every block with addresses of another one, and all podCIDRs that
// cannot be read. A Checker follows them all the time and knows more rules.
func Overlaps(nodes []corev1.Node) error {
	type block struct {
		netip.Prefix
		node string
	}
	var all []block
	var errs []error
	for _, node := range nodes {
		prefixes, err := parsePrefixes(node.Spec.PodCIDRs)
		if err != nil {
			errs = append(errs, fmt.Errorf("podCIDRs of Node %s: %w", node.Name, err))
		}
		for _, prefix := range prefixes {
			all = append(all, block{prefix, node.Name})
		}
	}
	// In this order all that lies in a block stands right behind it.
	slices.SortFunc(all, func(x, y block) int { return x.Compare(y.Prefix) })
	var widest block
	for _, next := range all {
		if !widest.Overlaps(next.Prefix) {
			widest = next
			continue
		}
		errs = append(errs, fmt.Errorf("%v of Node %s overlaps %v of Node %s", next.Prefix, next.node, widest.Prefix, widest.node))
	}
	return errors.Join(errs...)
}

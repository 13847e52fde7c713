// Package judge says whether Nodes have common addresses. All tests and measurements that look at Nodes at rest ask it; test/chaos/checker
// watches them all the time and knows more rules.
package judge

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
)

// Blocks are podCIDRs and the names of the Nodes that have them. The zero value has none.
type Blocks struct {
	all        []block
	unreadable []error
}

type block struct {
	netip.Prefix
	node string
}

// Add may be called for a name more than once: Nodes of different clusters can have the same.
func (b *Blocks) Add(node string, podCIDRs ...string) {
	for _, podCIDR := range podCIDRs {
		prefix, err := netip.ParsePrefix(podCIDR)
		if err != nil {
			b.unreadable = append(b.unreadable, fmt.Errorf("podCIDRs of Node %s: %w", node, err))
			continue
		}
		b.all = append(b.all, block{prefix, node})
	}
}

// Overlap returns an error that names every block with addresses of another one, and every podCIDR that cannot be read.
func (b *Blocks) Overlap() error {
	errs := slices.Clone(b.unreadable)
	// In this order all that lies in a block stands right behind it.
	slices.SortFunc(b.all, func(x, y block) int { return x.Compare(y.Prefix) })
	var widest block
	for _, next := range b.all {
		if !widest.Overlaps(next.Prefix) {
			widest = next
			continue
		}
		errs = append(errs, fmt.Errorf("%v of Node %s overlaps %v of Node %s", next.Prefix, next.node, widest.Prefix, widest.node))
	}
	return errors.Join(errs...)
}

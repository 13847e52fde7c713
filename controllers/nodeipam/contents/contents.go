// Package contents fills an allocator's state with all objects of a cluster, for the controller's start and for programs that only look.
package contents

import (
	"net/netip"

	v1 "k8s.io/api/core/v1"

	"github.com/multicidr/controller-manager/controllers/nodeipam/allocator"
	"github.com/multicidr/controller-manager/controllers/nodeipam/clustercidr"
)

// Contents are the objects that a state is filled from.
type Contents struct {
	Pools    []*clustercidr.Pool
	Services map[string][]netip.Prefix // service ranges by their source
	Nodes    []*v1.Node
}

// ServiceSource is the source of the service ranges in the ServiceCIDR of this name.
func ServiceSource(name string) string { return "ServiceCIDR " + name }

// Fill records all of them in a state without pools and Nodes, and returns the Nodes that need work, oldest first. each is for
// [allocator.State.Rebuild].
func (c Contents) Fill(b *allocator.State, each func(n int, f func(i int))) []*v1.Node {
	for _, p := range c.Pools {
		b.SetPool(p)
	}
	for source, ranges := range c.Services {
		b.SetService(source, ranges)
	}
	return b.Rebuild(c.Nodes, each)
}

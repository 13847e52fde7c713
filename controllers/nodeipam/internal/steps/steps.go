// Package steps provides the steps of a history of the allocation state, for tests.
package steps

import (
	v1 "k8s.io/api/core/v1"

	networkingv1 "github.com/multicidr/controller-manager/apis/networking/v1"
	"github.com/multicidr/controller-manager/controllers/nodeipam/allocator"
	"github.com/multicidr/controller-manager/controllers/nodeipam/internal/objects"
	"github.com/multicidr/controller-manager/controllers/nodeipam/pool"
)

// Step changes the state.
type Step func(s *allocator.State)

// Set adds or replaces a ClusterCIDR.
func Set(cc *networkingv1.ClusterCIDR) Step {
	return func(s *allocator.State) { s.SetPool(pool.Compile(cc)) }
}

// Reserve reserves blocks for a Node without podCIDRs, and sends them.
func Reserve(n *v1.Node) Step {
	return func(s *allocator.State) {
		if _, _, ok := s.Reserve(n); ok {
			s.Sending(n, 0)
		}
	}
}

// Shows makes a Node show podCIDRs.
func Shows(n *v1.Node, cidrs ...string) Step {
	return func(s *allocator.State) { s.Observe(n, objects.Pfxs(cidrs...), nil) }
}

// Gone deletes a Node.
func Gone(name string) Step {
	return func(s *allocator.State) {
		if uid, ok := s.UID(name); ok {
			s.NodeGone(name, uid)
		}
	}
}

package nodeipam

import (
	v1 "k8s.io/api/core/v1"

	networkingv1 "github.com/multicidr/controller-manager/apis/networking/v1"
	"github.com/multicidr/controller-manager/controllers/nodeipam/allocator"
	. "github.com/multicidr/controller-manager/controllers/nodeipam/internal/objects"
)

// The steps of one history of the allocator's state.

type step func(s *allocator.State)

func set(cc *networkingv1.ClusterCIDR) step {
	return func(s *allocator.State) { s.SetPool(allocator.Compile(cc)) }
}

// reserve asks for blocks for a Node that shows none, and sends them.
func reserve(n *v1.Node) step {
	return func(s *allocator.State) {
		if _, _, ok := s.Reserve(n); ok {
			s.Sending(n)
		}
	}
}

// shows says that a Node has podCIDRs.
func shows(n *v1.Node, cidrs ...string) step {
	return func(s *allocator.State) { s.Observe(n, Pfxs(cidrs...), nil) }
}

func gone(name string) step {
	return func(s *allocator.State) {
		if uid, ok := s.UID(name); ok {
			s.NodeGone(name, uid)
		}
	}
}

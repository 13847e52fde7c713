package nodeipam

import (
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	networkingv1 "github.com/multicidr/controller-manager/apis/networking/v1"
	"github.com/multicidr/controller-manager/controllers/nodeipam/allocator"
	"github.com/multicidr/controller-manager/controllers/nodeipam/health"
)

// Reasons of events on Nodes, beside the findings of package allocator. All events have type Warning.
const (
	// ReasonNotAvailable: no ClusterCIDR can serve the Node. It gets podCIDRs as soon as one can.
	ReasonNotAvailable = "CIDRNotAvailable"
	// ReasonWriteFailed: blocks are reserved, but the API server does not store them.
	ReasonWriteFailed = "CIDRWriteFailed"
	// ReasonAssignedByOther: another allocator assigned the Node's podCIDRs while this process was the leader.
	ReasonAssignedByOther = "CIDRAssignedByOther"
)

// Reasons of events on ClusterCIDRs.
const (
	// ReasonExhausted: a family has no free block.
	ReasonExhausted = "Exhausted"
	// ReasonDeletionBlocked: the ClusterCIDR is being deleted, but Nodes belong to it.
	ReasonDeletionBlocked = "DeletionBlocked"
	// ReasonInvalid: the ClusterCIDR breaks a rule and allocates nothing.
	ReasonInvalid = "Invalid"
	// ReasonSuperseded: the controller disabled the ClusterCIDR, which was made from flags that do not ask for it any more.
	ReasonSuperseded = "Superseded"
	// ReasonStatusWriteFailed: the API server does not store the status.
	ReasonStatusWriteFailed = "StatusWriteFailed"
)

// alarms are event reasons, by those reasons of the condition Ready that need somebody's attention.
var alarms = map[string]string{
	networkingv1.ReasonExhausted:   ReasonExhausted,
	networkingv1.ReasonInvalid:     ReasonInvalid,
	networkingv1.ReasonTerminating: ReasonDeletionBlocked,
}

func nodeReference(name string, uid types.UID) v1.ObjectReference {
	return v1.ObjectReference{APIVersion: "v1", Kind: "Node", Name: name, UID: uid}
}

func clusterCIDRReference(cc *networkingv1.ClusterCIDR) v1.ObjectReference {
	return v1.ObjectReference{APIVersion: networkingv1.SchemeGroupVersion.String(), Kind: "ClusterCIDR", Name: cc.Name, UID: cc.UID}
}

// tellWriteFailed says on an object why it cannot be written; nothing if why is empty.
func (c *Controller) tellWriteFailed(kind health.Kind, name, why string) {
	if why == "" {
		return
	}
	var about v1.ObjectReference
	c.with(func(s *allocator.State) {
		if known, ok := c.clusterCIDRs[name]; ok && kind == health.WritesStatus {
			about = clusterCIDRReference(known.object)
		}
		if view, ok := s.Node(name); ok && kind == health.WritesNode {
			about = nodeReference(name, view.UID)
		}
	})
	switch {
	case about.UID == "":
	case kind == health.WritesStatus:
		c.events.Warn(about, ReasonStatusWriteFailed, "The status cannot be written: "+why)
	case kind == health.WritesNode:
		c.events.Warn(about, ReasonWriteFailed, "podCIDRs cannot be written: "+why)
	}
}

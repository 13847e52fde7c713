package requests

import (
	"encoding/json"
	"net/netip"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	metav1ac "k8s.io/client-go/applyconfigurations/meta/v1"

	applyv1 "github.com/multicidr/controller-manager/apis/generated/applyconfiguration/networking/v1"
	networkingv1 "github.com/multicidr/controller-manager/apis/networking/v1"
	"github.com/multicidr/controller-manager/controllers/ipam"
	"github.com/multicidr/controller-manager/controllers/nodeipam/allocator"
)

// The bodies of writes, as pure functions. Patches of Nodes are strategic merge patches, because for a JSON merge patch (RFC 7386) the API
// server encodes the whole Node as JSON and decodes it again. The other patches are JSON merge patches.

type objectPatch struct {
	Metadata metadataPatch `json:"metadata"`
	Spec     *nodeSpecs    `json:"spec,omitempty"`
}

type metadataPatch struct {
	// UID and ResourceVersion are preconditions: if the object's values differ, the API server refuses the patch.
	UID             types.UID         `json:"uid"`
	ResourceVersion string            `json:"resourceVersion,omitempty"`
	Annotations     map[string]string `json:"annotations,omitempty"`
	Finalizers      *[]string         `json:"finalizers,omitempty"`
}

type nodeSpecs struct {
	PodCIDR  string   `json:"podCIDR"`
	PodCIDRs []string `json:"podCIDRs"`
}

// PodCIDRsPatch writes a reservation to the Node it was made for: the UID makes the patch fail for a new Node of the same name. If the Node
// already has podCIDRs, the patch tries to change them, which the API server refuses. The patch names its writer: an admission policy can
// compare that with the Lease (manifests/fencing), and other processes see that another one wrote it.
func PodCIDRsPatch(node *v1.Node, r allocator.Reservation, primary ipam.Family, identity string) []byte {
	cidrs := PodCIDRs(r.Blocks, primary)
	annotations := map[string]string{networkingv1.AnnotationClusterCIDR: r.ClusterCIDR, networkingv1.AnnotationLeaseHolder: identity}
	return Encode(objectPatch{
		Metadata: metadataPatch{UID: node.UID, Annotations: annotations},
		Spec:     &nodeSpecs{PodCIDR: cidrs[0], PodCIDRs: cidrs},
	})
}

// PodCIDRs formats blocks as podCIDRs, the primary family first.
func PodCIDRs(blocks []netip.Prefix, primary ipam.Family) []string {
	blocks = slices.Clone(blocks)
	slices.SortStableFunc(blocks, func(a, b netip.Prefix) int {
		switch {
		case ipam.FamilyOf(a) == ipam.FamilyOf(b):
			return 0
		case ipam.FamilyOf(a) == primary:
			return -1
		default:
			return 1
		}
	})
	cidrs := make([]string, len(blocks))
	for i, block := range blocks {
		cidrs[i] = block.String()
	}
	return cidrs
}

// FinalizersPatch adds or removes the controller's finalizer. The patch contains the whole list; the resourceVersion prevents it from
// undoing another writer's change of that list.
func FinalizersPatch(cc *networkingv1.ClusterCIDR, present bool) []byte {
	finalizers := slices.DeleteFunc(slices.Clone(cc.Finalizers), func(f string) bool { return f == networkingv1.Finalizer })
	if present {
		finalizers = append(finalizers, networkingv1.Finalizer)
	}
	return Encode(objectPatch{Metadata: metadataPatch{UID: cc.UID, ResourceVersion: cc.ResourceVersion, Finalizers: &finalizers}})
}

func Encode(patch any) []byte {
	b, err := json.Marshal(patch)
	if err != nil {
		panic(err) // every patch of this package can be encoded
	}
	return b
}

// ForeignStatus is a merge patch that removes wrong status fields set by another writer: a server-side apply only removes fields that its
// own field manager set before. It is nil if there are none. The patch fails if the ClusterCIDR has changed meanwhile.
func ForeignStatus(cc *networkingv1.ClusterCIDR, want networkingv1.ClusterCIDRStatus) []byte {
	remove := map[string]any{} // null removes
	for field, is := range map[string][2]*networkingv1.RangeStatus{"ipv4": {cc.Status.IPv4, want.IPv4}, "ipv6": {cc.Status.IPv6, want.IPv6}} {
		switch now, want := is[0], is[1]; {
		case now == nil:
		case want == nil:
			remove[field] = nil
		case want.Cursor == "" && now.Cursor != "":
			remove[field] = map[string]any{"cursor": nil}
		}
	}
	if len(remove) == 0 {
		return nil
	}
	return Encode(map[string]any{"metadata": map[string]any{"uid": cc.UID, "resourceVersion": cc.ResourceVersion}, "status": remove})
}

// StatusPatch is the server-side apply of a status. The UID makes it fail for another object of the same name.
func StatusPatch(cc *networkingv1.ClusterCIDR, status networkingv1.ClusterCIDRStatus) *applyv1.ClusterCIDRApplyConfiguration {
	s := applyv1.ClusterCIDRStatus()
	for _, c := range status.Conditions {
		s.WithConditions(metav1ac.Condition().WithType(c.Type).WithStatus(c.Status).WithReason(c.Reason).WithMessage(c.Message).
			WithObservedGeneration(c.ObservedGeneration).WithLastTransitionTime(c.LastTransitionTime))
	}
	if status.IPv4 != nil {
		s.WithIPv4(rangePatch(status.IPv4))
	}
	if status.IPv6 != nil {
		s.WithIPv6(rangePatch(status.IPv6))
	}
	return applyv1.ClusterCIDR(cc.Name).WithUID(cc.UID).WithStatus(s)
}

func rangePatch(r *networkingv1.RangeStatus) *applyv1.RangeStatusApplyConfiguration {
	patch := applyv1.RangeStatus().WithCIDR(r.CIDR).WithBlockPrefixLength(r.BlockPrefixLength).
		WithTotal(r.Total).WithAllocated(r.Allocated).WithUnavailable(r.Unavailable).WithFree(r.Free)
	if r.Cursor != "" {
		patch.WithCursor(r.Cursor)
	}
	return patch
}

// AllocationPatch sets spec.allocation together with the annotation that says that the controller did so. The resourceVersion prevents it
// from undoing a change by a user, or by a leader with other flags.
func AllocationPatch(cc *networkingv1.ClusterCIDR, mode networkingv1.AllocationMode) []byte {
	var superseded any // null removes it
	if mode == networkingv1.AllocationDisabled {
		superseded = "true"
	}
	return Encode(map[string]any{
		"metadata": map[string]any{
			"uid":             cc.UID,
			"resourceVersion": cc.ResourceVersion,
			"annotations":     map[string]any{networkingv1.AnnotationSuperseded: superseded},
		},
		"spec": map[string]any{"allocation": mode},
	})
}

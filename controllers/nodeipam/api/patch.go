package api

import (
	"encoding/json"
	"net/netip"
	"slices"

	"k8s.io/apimachinery/pkg/types"

	networkingv1 "github.com/multicidr/controller-manager/apis/networking/v1"
	"github.com/multicidr/controller-manager/controllers/ipam"
)

// The bodies of writes, as pure functions. Patches of Nodes are strategic merge patches, because for a JSON merge patch (RFC 7386) the API
// server encodes the whole Node as JSON and decodes it again. Patches of ClusterCIDRs are JSON merge patches, those of a status are
// server-side applies.

// fields are those of a JSON object. Of the metadata, uid and resourceVersion are preconditions: if the object's values differ, the API server
// refuses the patch.
type fields = map[string]any

// PodCIDRsPatch gives podCIDRs, at least one, to the Node with this UID: it fails for a new Node of the same name. If the Node already has
// other podCIDRs, the patch tries to change them, which the API server refuses. The patch names its writer, identity: an admission policy
// can compare that with the Lease (manifests/fencing), and other processes see that another one wrote it.
func PodCIDRsPatch(uid types.UID, clusterCIDR string, cidrs []string, identity string) []byte {
	return encode(fields{
		"metadata": fields{
			"uid":         uid,
			"annotations": fields{networkingv1.AnnotationClusterCIDR: clusterCIDR, networkingv1.AnnotationLeaseHolder: identity},
		},
		"spec": fields{"podCIDR": cidrs[0], "podCIDRs": cidrs},
	})
}

// PodCIDRs formats blocks as podCIDRs, the primary family first.
func PodCIDRs(blocks []netip.Prefix, primary ipam.Family) []string {
	cidrs := make([]string, 0, len(blocks))
	for _, first := range []bool{true, false} {
		for _, block := range blocks {
			if (ipam.FamilyOf(block) == primary) == first {
				cidrs = append(cidrs, block.String())
			}
		}
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
	return encode(fields{"metadata": fields{"uid": cc.UID, "resourceVersion": cc.ResourceVersion, "finalizers": finalizers}})
}

// AllocationPatch sets spec.allocation together with the annotation that says that the controller did so: Disabled adds it, Enabled removes
// it. The resourceVersion prevents it from undoing a change by a user, or by a leader with other flags.
func AllocationPatch(cc *networkingv1.ClusterCIDR, mode networkingv1.AllocationMode) []byte {
	var superseded any // null removes it
	if mode == networkingv1.AllocationDisabled {
		superseded = "true"
	}
	return encode(fields{
		"metadata": fields{
			"uid":             cc.UID,
			"resourceVersion": cc.ResourceVersion,
			"annotations":     fields{networkingv1.AnnotationSuperseded: superseded},
		},
		"spec": fields{"allocation": mode},
	})
}

// StatusPatch is the server-side apply of a status. Fields that the controller applied before and that are empty now are removed.
func StatusPatch(cc *networkingv1.ClusterCIDR, status networkingv1.ClusterCIDRStatus) []byte {
	return encode(fields{
		"apiVersion": networkingv1.SchemeGroupVersion.String(),
		"kind":       "ClusterCIDR",
		"metadata":   fields{"name": cc.Name, "uid": cc.UID},
		"status":     status,
	})
}

func encode(patch fields) []byte {
	b, err := json.Marshal(patch)
	if err != nil {
		panic(err) // every patch of this package can be encoded
	}
	return b
}

package api

import (
	"encoding/json"
	"net/netip"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	networkingv1 "github.com/multicidr/controller-manager/apis/networking/v1"
	"github.com/multicidr/controller-manager/controllers/ipam"
)

// The bodies of writes, as pure functions. Patches of Nodes are strategic merge patches, because for a JSON merge patch (RFC 7386) the API
// server encodes the whole Node as JSON and decodes it again. Patches of ClusterCIDRs are JSON merge patches, those of a status are
// server-side applies.

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

// PodCIDRsPatch gives podCIDRs, at least one, to the Node with this UID: it fails for a new Node of the same name. If the Node already has
// other podCIDRs, the patch tries to change them, which the API server refuses. The patch names its writer, identity: an admission policy
// can compare that with the Lease (manifests/fencing), and other processes see that another one wrote it.
func PodCIDRsPatch(uid types.UID, clusterCIDR string, cidrs []string, identity string) []byte {
	annotations := map[string]string{networkingv1.AnnotationClusterCIDR: clusterCIDR, networkingv1.AnnotationLeaseHolder: identity}
	return encode(objectPatch{
		Metadata: metadataPatch{UID: uid, Annotations: annotations},
		Spec:     &nodeSpecs{PodCIDR: cidrs[0], PodCIDRs: cidrs},
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
	return encode(objectPatch{Metadata: metadataPatch{UID: cc.UID, ResourceVersion: cc.ResourceVersion, Finalizers: &finalizers}})
}

// AllocationPatch sets spec.allocation together with the annotation that says that the controller did so: Disabled adds it, Enabled removes
// it. The resourceVersion prevents it from undoing a change by a user, or by a leader with other flags.
func AllocationPatch(cc *networkingv1.ClusterCIDR, mode networkingv1.AllocationMode) []byte {
	var superseded any // null removes it
	if mode == networkingv1.AllocationDisabled {
		superseded = "true"
	}
	return encode(map[string]any{
		"metadata": map[string]any{
			"uid":             cc.UID,
			"resourceVersion": cc.ResourceVersion,
			"annotations":     map[string]any{networkingv1.AnnotationSuperseded: superseded},
		},
		"spec": map[string]any{"allocation": mode},
	})
}

type statusPatch struct {
	metav1.TypeMeta `json:",inline"`
	Metadata        appliedTo                      `json:"metadata"`
	Status          networkingv1.ClusterCIDRStatus `json:"status"`
}

type appliedTo struct {
	Name string    `json:"name"`
	UID  types.UID `json:"uid"` // The patch fails for another object of the same name.
}

// StatusPatch is the server-side apply of a status. Fields that the controller applied before and that are empty now are removed.
func StatusPatch(cc *networkingv1.ClusterCIDR, status networkingv1.ClusterCIDRStatus) []byte {
	return encode(statusPatch{
		TypeMeta: metav1.TypeMeta{APIVersion: networkingv1.SchemeGroupVersion.String(), Kind: "ClusterCIDR"},
		Metadata: appliedTo{cc.Name, cc.UID},
		Status:   status,
	})
}

func encode(patch any) []byte {
	b, err := json.Marshal(patch)
	if err != nil {
		panic(err) // every patch of this package can be encoded
	}
	return b
}

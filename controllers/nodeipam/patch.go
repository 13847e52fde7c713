package nodeipam

import (
	"encoding/json"
	"net/netip"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	networkingv1 "github.com/multicidr/controller-manager/apis/networking/v1"
	"github.com/multicidr/controller-manager/controllers/ipam"
	"github.com/multicidr/controller-manager/controllers/nodeipam/allocator"
)

// What is written, as functions of what is known. Patches of Nodes are strategic merge patches: for a JSON merge patch (RFC 7386), which is what
// the others are, the API server writes the whole Node as JSON and reads it back.

type objectPatch struct {
	Metadata metadataPatch `json:"metadata"`
	Spec     *nodeSpecs    `json:"spec,omitempty"`
}

type metadataPatch struct {
	// UID and ResourceVersion are preconditions: the API server refuses the patch if the object's differ.
	UID             types.UID         `json:"uid"`
	ResourceVersion string            `json:"resourceVersion,omitempty"`
	Annotations     map[string]string `json:"annotations,omitempty"`
	Finalizers      *[]string         `json:"finalizers,omitempty"`
}

type nodeSpecs struct {
	PodCIDR  string   `json:"podCIDR"`
	PodCIDRs []string `json:"podCIDRs"`
}

// podCIDRsPatch writes a reservation into the Node it was made for: the UID makes it miss a new Node of the same name.
// If the Node has got podCIDRs meanwhile, it asks to change them, which the API server refuses. It says who writes: an admission policy can
// compare that with the Lease (manifests/fencing), and other processes see that it was not they.
func podCIDRsPatch(node *v1.Node, r allocator.Reservation, primary ipam.Family, identity string) []byte {
	cidrs := podCIDRs(r.Blocks, primary)
	annotations := map[string]string{networkingv1.AnnotationClusterCIDR: r.ClusterCIDR, networkingv1.AnnotationLeaseHolder: identity}
	return encode(objectPatch{
		Metadata: metadataPatch{UID: node.UID, Annotations: annotations},
		Spec:     &nodeSpecs{PodCIDR: cidrs[0], PodCIDRs: cidrs},
	})
}

// podCIDRs writes blocks as podCIDRs, the primary family first.
func podCIDRs(blocks []netip.Prefix, primary ipam.Family) []string {
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

// finalizersPatch adds or takes away our finalizer. The patch carries the whole list, so the resourceVersion keeps it
// from undoing what somebody else did to it.
func finalizersPatch(cc *networkingv1.ClusterCIDR, present bool) []byte {
	finalizers := slices.DeleteFunc(slices.Clone(cc.Finalizers), func(f string) bool { return f == networkingv1.Finalizer })
	if present {
		finalizers = append(finalizers, networkingv1.Finalizer)
	}
	return encode(objectPatch{Metadata: metadataPatch{UID: cc.UID, ResourceVersion: cc.ResourceVersion, Finalizers: &finalizers}})
}

func encode(patch any) []byte {
	b, err := json.Marshal(patch)
	if err != nil {
		panic(err) // nothing that we make cannot be written
	}
	return b
}

package binding

import (
	"encoding/json"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/multicidr/controller-manager/apis/clusterapi/v1alpha1"
	"github.com/multicidr/controller-manager/apis/clusterapi/v1alpha2"
	"github.com/multicidr/controller-manager/apis/k0rdent/v1beta1"
	"github.com/multicidr/controller-manager/controllers/text"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
)

// pool is a pool of either kind, as far as this package cares.
type pool struct {
	kind   string
	object metav1.Object // nil: there is none
	// create is the object to create if there is none; nil if the claim does not say enough.
	create metav1.Object
	// changes are the fields of the spec that differ from what the claim says.
	changes map[string]any
	// adopt is whether the pool is to get the claim as an owner.
	adopt bool
	// ready is whether the pool can give addresses, or could if some were released; problem is why not, and what to do.
	ready   bool
	problem *Finding
}

// poolKind is the kind of pool that a provider's addresses come from.
func poolKind(provider string) string {
	if provider == v1beta1.ProviderInfoblox {
		return v1alpha1.KindInfobloxIPPool
	}
	return v1alpha2.KindInClusterIPPool
}

// poolOf is the pool of a claim, of the kind of its provider. Without a network nothing is to be changed.
func poolOf(v View, n *network) (p pool) {
	kind := poolKind(v.provider(n != nil))
	switch {
	case slices.Contains(v.NotInstalled, kind):
		return pool{kind: kind, problem: &Finding{Reason: ReasonNotInstalled, Message: "The API server has no kind " + kind + ". Install its CustomResourceDefinition."}}
	case kind == v1alpha1.KindInfobloxIPPool:
		p = infobloxPool(v, n)
	default:
		p = inClusterPool(v, n)
	}
	p.judge(v)
	return p
}

// inClusterPool compares the InClusterIPPool of a claim with its network.
func inClusterPool(v View, n *network) pool {
	p := pool{kind: v1alpha2.KindInClusterIPPool}
	if n != nil {
		p.create = &v1alpha2.InClusterIPPool{
			ObjectMeta: ofClaim(v.Claim),
			Spec:       v1alpha2.InClusterIPPoolSpec{Addresses: n.addresses, Prefix: n.prefix, Gateway: n.gateway},
		}
	}
	if v.InCluster == nil {
		return p
	}
	p.object = v.InCluster
	p.changes = map[string]any{}
	if is := &v.InCluster.Spec; n != nil {
		if !slices.Equal(is.Addresses, n.addresses) {
			p.changes["addresses"] = n.addresses
		}
		if is.Prefix != n.prefix {
			p.changes["prefix"] = n.prefix
		}
		if is.Gateway != n.gateway {
			p.changes["gateway"] = orNil(n.gateway)
		}
	}
	switch usage := v.InCluster.Status.IPAddresses; {
	case usage == nil:
		p.problem = &Finding{
			Reason: ReasonPoolNotReady, Quiet: true,
			Message: "No IPAM provider has filled the status of the InClusterIPPool. If this lasts, turn on in-cluster-ip-pool-controller or install a provider.",
		}
	case usage.Total <= 0:
		p.problem = &Finding{
			Reason:  ReasonNoUsableAddress,
			Message: "The network has no address to allocate: the first address, the last one and the gateway are reserved. Make spec.nodeNetwork larger.",
		}
	default:
		p.ready = true
		if usage.Free <= 0 {
			p.problem = &Finding{
				Reason:  ReasonPoolExhausted,
				Message: fmt.Sprintf("The InClusterIPPool is full: all of its %d addresses are in use. Make spec.nodeNetwork larger, or delete machines.", usage.Total),
			}
		}
	}
	return p
}

// infobloxPool is inClusterPool for the other kind.
func infobloxPool(v View, n *network) pool {
	p := pool{kind: v1alpha1.KindInfobloxIPPool}
	instance, problem := instanceOf(v)
	var subnets []v1alpha1.Subnet
	if n != nil {
		subnets = []v1alpha1.Subnet{{CIDR: n.cidr.String(), Gateway: n.gateway}}
		if instance != "" {
			p.create = &v1alpha1.InfobloxIPPool{
				ObjectMeta: ofClaim(v.Claim),
				Spec:       v1alpha1.InfobloxIPPoolSpec{InstanceRef: v1alpha1.InstanceReference{Name: instance}, Subnets: subnets},
			}
		}
	}
	p.problem = problem
	if v.Infoblox == nil {
		return p
	}
	p.object = v.Infoblox
	p.changes = map[string]any{}
	if is := &v.Infoblox.Spec; n != nil {
		if !slices.Equal(is.Subnets, subnets) {
			p.changes["subnets"] = subnets
		}
		if instance != "" && is.InstanceRef.Name != instance {
			p.changes["instance"] = map[string]any{"name": instance}
		}
	}
	p.ready = meta.IsStatusConditionTrue(v.Infoblox.Status.Conditions, v1alpha1.ConditionReady)
	if !p.ready && p.problem == nil {
		p.problem = &Finding{
			Reason: ReasonPoolNotReady, Quiet: true,
			Message: "No IPAM provider has filled the status of the InfobloxIPPool. If this lasts, turn on infoblox-ip-pool-controller or install a provider.",
		}
		if c := meta.FindStatusCondition(v.Infoblox.Status.Conditions, v1alpha1.ConditionReady); c != nil {
			p.problem = &Finding{Reason: ReasonPoolNotReady, Message: text.Cut(fmt.Sprintf("The InfobloxIPPool is not ready: %s: %s", c.Reason, c.Message), text.MaxMessage)}
		}
	}
	return p
}

// instanceOf returns the InfobloxInstance for a claim: the one that its annotation names, else that of the pool, else the one that the flag
// names, else the only one. A pool that works keeps its instance, because that is where the host records of its addresses are.
func instanceOf(v View) (name string, problem *Finding) {
	asked := v.Claim.Annotations[v1beta1.AnnotationInfobloxInstance]
	if v.Infoblox != nil && v.Infoblox.Spec.InstanceRef.Name != "" {
		now := v.Infoblox.Spec.InstanceRef.Name
		switch {
		case asked == "" || asked == now:
			return now, nil
		case meta.IsStatusConditionTrue(v.Infoblox.Status.Conditions, v1alpha1.ConditionReady):
			return now, &Finding{Reason: ReasonInstanceKept, Message: fmt.Sprintf(
				"The InfobloxIPPool stays with the InfobloxInstance %s, where its addresses are. To use %s, delete the InfobloxIPPool, or remove the annotation %s.",
				now, text.Cut(asked, text.MaxValue), v1beta1.AnnotationInfobloxInstance)}
		}
	}
	switch {
	case asked != "":
		return asked, nil
	case v.DefaultInstance != "":
		return v.DefaultInstance, nil
	case len(v.Instances) == 1:
		return v.Instances[0], nil
	case len(v.Instances) == 0:
		return "", &Finding{Reason: ReasonInstanceUnknown, Message: "There is no InfobloxInstance. Create one."}
	}
	return "", &Finding{Reason: ReasonInstanceUnknown, Message: fmt.Sprintf("There are several InfobloxInstances (%s). Set the annotation %s of the claim to one of them.",
		text.Listed(v.Instances), v1beta1.AnnotationInfobloxInstance)}
}

// judge adds what the kinds have in common: whether the claim may use the pool.
func (p *pool) judge(v View) {
	unusable := func(reason, message string) {
		p.ready, p.create, p.changes, p.problem = false, nil, nil, &Finding{Reason: reason, Message: p.kind + " " + v.Claim.Name + " " + message}
	}
	if p.object == nil {
		p.ready = false
		if p.problem == nil {
			p.problem = &Finding{Reason: ReasonPoolNotReady, Message: "The " + p.kind + " does not exist yet.", Quiet: true}
		}
		return
	}
	switch owner, earlier := ownerOf(p.object, v.Claim); {
	case !owner && earlier:
		unusable(ReasonPoolConflict, "belongs to an earlier claim of this name and stays until nothing uses it. Delete the IPAddressClaims that use it, or rename this claim.")
	case !owner && (p.create == nil || len(p.changes) > 0):
		unusable(ReasonPoolConflict, "does not belong to this claim, and its spec says something else. Rename the claim, write the same into the claim, or delete the pool.")
	case p.object.GetDeletionTimestamp() != nil:
		unusable(ReasonPoolDeleting, "is being deleted and stays while IPAddresses of it exist. It is created again when it is gone.")
	case !owner:
		p.adopt, p.ready = true, false
	}
}

// write returns the write that the pool needs.
func (p *pool) write(v View) *Write {
	switch {
	case p.object == nil && p.create != nil:
		return &Write{Verb: Create, Kind: p.kind, Object: p.create}
	case p.adopt:
		owners := append(slices.Clone(p.object.GetOwnerReferences()), ownerReference(v.Claim, false))
		return &Write{Verb: PatchVersion, Kind: p.kind, Object: p.object, Changes: map[string]any{"metadata": map[string]any{"ownerReferences": owners}}}
	case len(p.changes) > 0:
		return &Write{Verb: Patch, Kind: p.kind, Object: p.object, Changes: map[string]any{"spec": p.changes}}
	}
	return nil
}

// ownerOf reports whether an object belongs to a claim, and whether it belongs to an earlier claim of the same name, so that garbage
// collection is going to delete it.
func ownerOf(o metav1.Object, claim *v1beta1.ClusterIPAMClaim) (owner, earlier bool) {
	for _, r := range o.GetOwnerReferences() {
		owner = owner || r.UID == claim.UID
		earlier = earlier || r.Kind == v1beta1.KindClusterIPAMClaim && r.UID != claim.UID
	}
	return owner, earlier
}

func ofClaim(claim *v1beta1.ClusterIPAMClaim) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: claim.Namespace, Name: claim.Name, OwnerReferences: []metav1.OwnerReference{ownerReference(claim, false)}}
}

// ownerReference makes garbage collection delete an object after its claim. controller is whether the object belongs to no one else.
func ownerReference(claim *v1beta1.ClusterIPAMClaim, controller bool) metav1.OwnerReference {
	r := metav1.OwnerReference{APIVersion: v1beta1.GroupVersion.String(), Kind: v1beta1.KindClusterIPAMClaim, Name: claim.Name, UID: claim.UID}
	if controller {
		r.Controller, r.BlockOwnerDeletion = &controller, &controller
	}
	return r
}

// providerData is the one entry in the status of the ClusterIPAM.
func (p *pool) providerData(name string) v1beta1.ProviderData {
	config, err := json.Marshal(map[string]string{"apiGroup": v1alpha2.GroupName, "kind": p.kind, "name": name})
	if err != nil {
		panic(err) // Strings can be encoded.
	}
	return v1beta1.ProviderData{Name: v1beta1.ProviderDataIPPool, Ready: p.ready, Config: &apiextensionsv1.JSON{Raw: config}}
}

func orNil(s string) any {
	if s == "" {
		return nil
	}
	return s
}

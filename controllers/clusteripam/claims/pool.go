package claims

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/multicidr/controller-manager/apis/clusterapi/v1alpha1"
	"github.com/multicidr/controller-manager/apis/clusterapi/v1alpha2"
	"github.com/multicidr/controller-manager/apis/k0rdent/v1beta1"
	"github.com/multicidr/controller-manager/controllers/clusteripam/runner"
	"github.com/multicidr/controller-manager/controllers/text"
)

// pool is what is known about the pool of a claim, of either kind.
type pool struct {
	kind *runner.Kind
	is   metav1.Object // nil: there is none
	// want is the pool as it should be; nil if the claim does not say enough, or must not change it.
	want metav1.Object
	// ready is whether the pool can give addresses, or could if some were released; problem is why not, and what to do.
	ready   bool
	problem *Finding
}

// judgePool reads the pool of the claim: of the kind of its provider, or for an invalid claim of the provider that it had when it was valid.
func (d *decision) judgePool() {
	provider, p := d.Claim.Spec.Provider, &d.pool
	if d.network == nil && d.IPAM.Spec.Provider != "" {
		provider = d.IPAM.Spec.Provider
	}
	p.kind = runner.InClusterIPPools
	if provider == v1beta1.ProviderInfoblox {
		p.kind = runner.InfobloxIPPools
	}
	switch {
	case slices.Contains(d.NotInstalled, p.kind):
		p.problem = &Finding{Reason: reasonNotInstalled, Message: "The API server has no kind " + p.kind.Name + ". Install its CustomResourceDefinition."}
		return
	case provider == v1beta1.ProviderInfoblox:
		d.infobloxPool(p)
	default:
		d.inClusterPool(p)
	}
	if p.is != nil {
		d.judgeOwner(p)
	}
}

// inClusterPool compares the InClusterIPPool of the claim with its network.
func (d *decision) inClusterPool(p *pool) {
	if n := d.network; n != nil {
		want := &v1alpha2.InClusterIPPool{ObjectMeta: ofClaim(d.Claim, false)}
		if d.InCluster != nil {
			want = d.InCluster.DeepCopy()
		}
		want.Spec.Addresses, want.Spec.Prefix, want.Spec.Gateway = n.addresses, n.prefix, n.gateway
		p.want = want
	}
	if d.InCluster == nil {
		return
	}
	p.is = d.InCluster
	usage := d.InCluster.Status.IPAddresses
	p.ready = usage != nil && usage.Total > 0
	switch {
	case usage == nil:
		p.problem = &Finding{Reason: ReasonPoolNotReady, Quiet: true,
			Message: "No IPAM provider has filled the status of the InClusterIPPool. If this lasts, turn on in-cluster-ip-pool-controller or install a provider."}
	case usage.Total <= 0:
		p.problem = &Finding{Reason: reasonNoUsableAddress,
			Message: "The network has no address to allocate: the first address, the last one and the gateway are reserved. Make spec.nodeNetwork larger."}
	case usage.Free <= 0:
		p.problem = &Finding{Reason: reasonPoolExhausted,
			Message: fmt.Sprintf("The InClusterIPPool is full: all of its %d addresses are in use. Make spec.nodeNetwork larger, or delete machines.", usage.Total)}
	}
}

// infobloxPool is inClusterPool for the other kind.
func (d *decision) infobloxPool(p *pool) {
	var instance string
	instance, p.problem = d.instance()
	if n := d.network; n != nil && instance != "" {
		want := &v1alpha1.InfobloxIPPool{ObjectMeta: ofClaim(d.Claim, false)}
		if d.Infoblox != nil {
			want = d.Infoblox.DeepCopy()
		}
		want.Spec.InstanceRef, want.Spec.Subnets = v1alpha1.InstanceReference{Name: instance}, []v1alpha1.Subnet{{CIDR: n.cidr.String(), Gateway: n.gateway}}
		p.want = want
	}
	if d.Infoblox == nil {
		return
	}
	p.is = d.Infoblox
	ready := meta.FindStatusCondition(d.Infoblox.Status.Conditions, v1alpha1.ConditionReady)
	p.ready = ready != nil && ready.Status == metav1.ConditionTrue
	switch {
	case p.ready || p.problem != nil:
	case ready == nil:
		p.problem = &Finding{Reason: ReasonPoolNotReady, Quiet: true,
			Message: "No IPAM provider has filled the status of the InfobloxIPPool. If this lasts, turn on infoblox-ip-pool-controller or install a provider."}
	default:
		p.problem = &Finding{Reason: ReasonPoolNotReady, Message: text.Cut(fmt.Sprintf("The InfobloxIPPool is not ready: %s: %s", ready.Reason, ready.Message), text.MaxMessage)}
	}
}

// instance returns the InfobloxInstance for the claim: the one that its annotation names, else that of the pool, else the one that the flag
// names, else the only one. A pool that works keeps its instance, because that is where the host records of its addresses are.
func (d *decision) instance() (name string, problem *Finding) {
	asked := d.Claim.Annotations[v1beta1.AnnotationInfobloxInstance]
	if d.Infoblox != nil && d.Infoblox.Spec.InstanceRef.Name != "" {
		now := d.Infoblox.Spec.InstanceRef.Name
		switch {
		case asked == "" || asked == now:
			return now, nil
		case meta.IsStatusConditionTrue(d.Infoblox.Status.Conditions, v1alpha1.ConditionReady):
			return now, &Finding{Reason: reasonInstanceKept, Message: fmt.Sprintf(
				"The InfobloxIPPool stays with the InfobloxInstance %s, where its addresses are. To use %s, delete the InfobloxIPPool, or remove the annotation %s.",
				now, text.Cut(asked, text.MaxValue), v1beta1.AnnotationInfobloxInstance)}
		}
	}
	switch {
	case asked != "":
		return asked, nil
	case d.DefaultInstance != "":
		return d.DefaultInstance, nil
	case len(d.Instances) == 1:
		return d.Instances[0], nil
	case len(d.Instances) == 0:
		return "", &Finding{Reason: reasonInstanceUnknown, Message: "There is no InfobloxInstance. Create one."}
	}
	return "", &Finding{Reason: reasonInstanceUnknown, Message: fmt.Sprintf("There are several InfobloxInstances (%s). Set the annotation %s of the claim to one of them.",
		text.Listed(d.Instances), v1beta1.AnnotationInfobloxInstance)}
}

// judgeOwner adds whether the claim may use the pool that exists, and may change it.
func (d *decision) judgeOwner(p *pool) {
	unusable := func(reason, message string) {
		p.ready, p.want, p.problem = false, nil, &Finding{Reason: reason, Message: p.kind.Name + " " + d.Claim.Name + " " + message}
	}
	switch owner, earlier := OwnerOf(p.is, d.Claim, v1beta1.KindClusterIPAMClaim); {
	case !owner && earlier:
		unusable(reasonPoolConflict, "belongs to an earlier claim of this name and stays until nothing uses it. Delete the IPAddressClaims that use it, or rename this claim.")
	case !owner && (p.want == nil || p.write() != nil):
		unusable(reasonPoolConflict, "does not belong to this claim, and its spec says something else. Rename the claim, write the same into the claim, or delete the pool.")
	case p.is.GetDeletionTimestamp() != nil:
		unusable(reasonPoolDeleting, "is being deleted and stays while IPAddresses of it exist. It is created again when it is gone.")
	case !owner: // It is adopted.
		p.want.SetOwnerReferences(append(p.want.GetOwnerReferences(), ofClaim(d.Claim, false).OwnerReferences...))
		p.ready = false
	case p.kind == runner.InClusterIPPools && p.want != nil:
		d.holdBack(p)
	}
}

// holdBack leaves a pool as it is until somebody confirms the change, if it has the addresses of spec.clusterNetwork: k0rdent's manager reads them up to
// v1.8, and the addresses of spec.nodeNetwork may belong to somebody else.
func (d *decision) holdBack(p *pool) {
	has, wanted := d.InCluster.Spec.Addresses, strings.Join(d.network.addresses, ",")
	if slices.Equal(has, d.network.addresses) || !slices.Equal(has, d.Claim.Spec.ClusterNetwork.IPAddresses) || d.Claim.Annotations[v1beta1.AnnotationConfirmPool] == wanted {
		return
	}
	p.want = nil
	d.find(conditionPoolWouldWiden, conditionPoolWouldWiden,
		"InClusterIPPool %s has the addresses of spec.clusterNetwork, and spec.nodeNetwork says others. The pool stays as it is. To keep its addresses, write them into "+
			"spec.nodeNetwork.ipAddresses. To change the pool, set the annotation %s of the claim to %s.", d.Claim.Name, v1beta1.AnnotationConfirmPool, wanted)
}

// write returns the write that the pool needs. What others have added to its spec stays.
func (p *pool) write() *Write {
	switch {
	case p.want == nil:
		return nil
	case p.is == nil:
		return &Write{Kind: p.kind, Want: p.want}
	}
	return Change(p.kind, p.is, p.want)
}

// releaseOther returns the write that deletes the pool of the provider that the claim had before: once the new pool is ready, and no address of the earlier one is
// in use. An InfobloxIPPool does not say how many are. Its finalizer keeps it while there are any.
func (d *decision) releaseOther() *Write {
	var other metav1.Object
	kind, used := runner.InClusterIPPools, false
	switch infoblox := d.Claim.Spec.Provider == v1beta1.ProviderInfoblox; {
	case !d.bound || d.network == nil:
		return nil
	case infoblox && d.InCluster != nil:
		other, used = d.InCluster, d.InCluster.Status.IPAddresses != nil && d.InCluster.Status.IPAddresses.Used > 0
	case !infoblox && d.Infoblox != nil:
		other, kind = d.Infoblox, runner.InfobloxIPPools
	default:
		return nil
	}
	switch owner, _ := OwnerOf(other, d.Claim, v1beta1.KindClusterIPAMClaim); {
	case !owner:
		return nil
	case used || other.GetDeletionTimestamp() != nil:
		d.find(conditionWarning, reasonOldPoolInUse, "The provider was changed. %s %s of the earlier provider is deleted when none of its addresses is in use. "+
			"New machines get addresses from the new pool. Replace the old machines.", kind, d.Claim.Name)
		return nil
	default:
		return &Write{Kind: kind, Is: other}
	}
}

// OwnerOf reports whether an object belongs to another one of this kind, and whether it belongs to an earlier one of the same name, so that garbage
// collection is going to delete it.
func OwnerOf(o, by metav1.Object, kind string) (owner, earlier bool) {
	for _, r := range o.GetOwnerReferences() {
		owner = owner || r.UID == by.GetUID()
		earlier = earlier || r.Kind == kind && r.UID != by.GetUID()
	}
	return owner, earlier
}

// ofClaim is the metadata of an object that garbage collection deletes after the claim. controller is whether it belongs to no one else.
func ofClaim(claim *v1beta1.ClusterIPAMClaim, controller bool) metav1.ObjectMeta {
	owner := metav1.OwnerReference{APIVersion: v1beta1.GroupVersion.String(), Kind: v1beta1.KindClusterIPAMClaim, Name: claim.Name, UID: claim.UID}
	if controller {
		owner.Controller, owner.BlockOwnerDeletion = &controller, &controller
	}
	return metav1.ObjectMeta{Namespace: claim.Namespace, Name: claim.Name, OwnerReferences: []metav1.OwnerReference{owner}}
}

// providerData is the one entry in the status of the ClusterIPAM.
func (p *pool) providerData(name string) v1beta1.ProviderData {
	config, err := json.Marshal(map[string]string{"apiGroup": v1alpha2.GroupName, "kind": p.kind.Name, "name": name})
	if err != nil {
		panic(err) // Strings can be encoded.
	}
	return v1beta1.ProviderData{Name: v1beta1.ProviderDataIPPool, Ready: p.ready, Config: &apiextensionsv1.JSON{Raw: config}}
}

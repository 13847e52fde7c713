package contract

import (
	"cmp"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/multicidr/controller-manager/apis/clusterapi/v1beta2"
)

// Annotations and labels that a move or a backup carries along, or that control it.
const (
	// AnnotationOwner on a claim and on its IPAddress is <namespace>/<name>/<UID> of the claim when it got its finalizer. It counts only on the object
	// that it names: a copy of another name is another claim.
	AnnotationOwner = "networking.x-k8s.io/infoblox-owner"
	// AnnotationClaimUID is what former versions wrote in its place: the UID alone.
	AnnotationClaimUID = "networking.x-k8s.io/infoblox-claim-uid"
	// AnnotationDeleteForMove is set by clusterctl on objects that it is about to delete because it has copied them to another cluster.
	AnnotationDeleteForMove = "clusterctl.cluster.x-k8s.io/delete-for-move"
	// LabelMove has clusterctl move an object that nothing owns.
	LabelMove = "clusterctl.cluster.x-k8s.io/move"
	// LabelWatchFilter says which instance of a provider works on an object.
	LabelWatchFilter = "cluster.x-k8s.io/watch-filter"
)

// Owner returns the UID in the owner annotation of a claim or an IPAddress. ok is false if the annotation names another object, or is not there.
func Owner(object metav1.Object) (uid types.UID, ok bool) {
	said, ok := strings.CutPrefix(object.GetAnnotations()[AnnotationOwner], object.GetNamespace()+"/"+object.GetName()+"/")
	return types.UID(said), ok && said != "" && !strings.Contains(said, "/")
}

// IsCopy reports whether the owner annotation of a claim or an IPAddress names another object, so that its annotations are not its own.
func IsCopy(object metav1.Object) bool {
	_, own := Owner(object)
	return !Unmarked(object) && !own
}

// Unmarked reports whether no controller of ours has worked on an object: another program has allocated its address.
func Unmarked(object metav1.Object) bool {
	_, annotated := object.GetAnnotations()[AnnotationOwner]
	return !annotated
}

// Own returns the annotations of a claim or an IPAddress; none if it is a copy.
func Own(object metav1.Object) map[string]string {
	if IsCopy(object) {
		return nil
	}
	return object.GetAnnotations()
}

// Owns reports whether an IPAddress of the claim's name is the claim's: it is of the same pool.
func Owns(claim *v1beta2.IPAddressClaim, address *v1beta2.IPAddress) bool {
	return claim.Spec.PoolRef == address.Spec.PoolRef && claim.Name == address.Spec.ClaimRef.Name
}

// Paused reports whether an object has the annotation that keeps controllers from it.
func Paused(object metav1.Object) bool {
	_, ok := object.GetAnnotations()[v1beta2.AnnotationPaused]
	return ok
}

// GoingAway reports whether clusterctl is about to delete an object that it has moved to another cluster. nil is not.
func GoingAway(object metav1.Object) bool {
	if object == nil {
		return false
	}
	_, ok := object.GetAnnotations()[AnnotationDeleteForMove]
	return ok
}

// KeptBy returns the finalizers of others on a claim, while which nothing is released. The garbage collector's does not count: it waits for the IPAddress.
func KeptBy(claim *v1beta2.IPAddressClaim) []string {
	return slices.DeleteFunc(slices.Clone(claim.Finalizers), func(f string) bool {
		return f == v1beta2.FinalizerReleaseAddress || f == metav1.FinalizerDeleteDependents
	})
}

// NameOf returns the name of an object.
func NameOf(object metav1.Object) types.NamespacedName {
	return types.NamespacedName{Namespace: object.GetNamespace(), Name: object.GetName()}
}

// clusterOf returns the name of the Cluster that a claim is for; empty if it names none.
func clusterOf(claim *v1beta2.IPAddressClaim) string {
	return cmp.Or(claim.Spec.ClusterName, claim.Labels[v1beta2.LabelClusterName])
}

// Cluster is what the controllers need of a Cluster of Cluster API.
type Cluster struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	Spec              struct {
		Paused bool `json:"paused"`
	} `json:"spec"`
}

// Paused reports whether the cluster is paused, by its spec or by the annotation.
func (c *Cluster) Paused() bool { return Paused(c) || c.Spec.Paused }

// DeepCopyObject implements runtime.Object.
func (c *Cluster) DeepCopyObject() runtime.Object {
	to := *c
	c.DeepCopyInto(&to.ObjectMeta)
	return &to
}

// Token returns what identifies a claim in another system, wherever the claim is moved: the UID that its owner annotation has, else that of its IPAddress,
// which may be nil, else what former versions noted, else its own UID. A token that another claim of this cluster has is not the claim's: anybody who
// may create claims can write annotations.
func (c *Contract) Token(claim *v1beta2.IPAddressClaim, address *v1beta2.IPAddress) types.UID {
	for _, uid := range said(claim, address) {
		if !c.taken(uid, claim) {
			return uid
		}
	}
	return claim.UID
}

// said returns the tokens that a claim and its IPAddress, which may be nil, say: those that count most first.
func said(claim *v1beta2.IPAddressClaim, address *v1beta2.IPAddress) (all []types.UID) {
	objects := []metav1.Object{claim}
	if address != nil && Owns(claim, address) {
		objects = append(objects, address)
	}
	var noted []types.UID
	for _, o := range objects {
		if uid, ok := Owner(o); ok {
			all = append(all, uid)
		}
		if uid := Own(o)[AnnotationClaimUID]; uid != "" {
			noted = append(noted, types.UID(uid))
		}
	}
	return append(all, noted...)
}

// byToken is the index of claims by the tokens that they have or say.
const byToken = "token"

// tokensOf returns the values of that index.
func tokensOf(claim *v1beta2.IPAddressClaim) (all []string) {
	for _, token := range append(said(claim, nil), claim.UID) {
		all = append(all, string(token))
	}
	return all
}

// taken reports whether another claim has a token with more right: the one whose UID it is, or an older one that says it, too.
func (c *Contract) taken(token types.UID, by *v1beta2.IPAddressClaim) bool {
	return slices.ContainsFunc(c.Claims.By(byToken, string(token)), func(o *v1beta2.IPAddressClaim) bool {
		return o.UID != by.UID && (o.UID == token || Older(o, by) < 0)
	})
}

// Older compares objects by their age, and those of one age by their names.
func Older(a, b metav1.Object) int {
	first, second := a.GetCreationTimestamp(), b.GetCreationTimestamp()
	return cmp.Or(first.Compare(second.Time), strings.Compare(a.GetNamespace(), b.GetNamespace()), strings.Compare(a.GetName(), b.GetName()))
}

// Bearer returns the claim that has a token, and its IPAddress; nil where there is none. A token that only an IPAddress says is found once its claim carries it.
func (c *Contract) Bearer(token types.UID) (*v1beta2.IPAddressClaim, *v1beta2.IPAddress) {
	for _, claim := range c.Claims.By(byToken, string(token)) {
		address, ok := c.Addresses.Get(claim.Namespace, claim.Name)
		if !ok || !Owns(claim, address) {
			address = nil
		}
		if c.Token(claim, address) == token {
			return claim, address
		}
	}
	return nil, nil
}

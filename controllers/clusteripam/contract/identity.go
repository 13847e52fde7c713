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
	_, annotated := object.GetAnnotations()[AnnotationOwner]
	_, own := Owner(object)
	return annotated && !own
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
		Paused *bool `json:"paused"`
	} `json:"spec"`
}

// Paused reports whether the cluster is paused, by its spec or by the annotation.
func (c *Cluster) Paused() bool {
	return Paused(c) || c.Spec.Paused != nil && *c.Spec.Paused
}

// DeepCopyObject implements runtime.Object.
func (c *Cluster) DeepCopyObject() runtime.Object {
	to := *c
	c.DeepCopyInto(&to.ObjectMeta)
	if c.Spec.Paused != nil {
		paused := *c.Spec.Paused
		to.Spec.Paused = &paused
	}
	return &to
}

// Token returns what identifies a claim in another system, wherever the claim is moved: the UID that its owner annotation has, else that of its IPAddress,
// which may be nil, else what former versions noted, else its own UID. A token that another claim of this cluster has is not the claim's: anybody who
// may create claims can write annotations.
func (c *Contract) Token(claim *v1beta2.IPAddressClaim, address *v1beta2.IPAddress) types.UID {
	for _, uid := range said(claim, address) {
		if uid != "" && !c.taken(uid, claim) {
			return uid
		}
	}
	return claim.UID
}

// said returns the tokens that a claim and its IPAddress say, the first one first.
func said(claim *v1beta2.IPAddressClaim, address *v1beta2.IPAddress) (all []types.UID) {
	var noted []types.UID
	for _, o := range []metav1.Object{claim, address} {
		if o == address && (address == nil || !Owns(claim, address)) || IsCopy(o) {
			continue
		}
		if uid, ok := Owner(o); ok {
			all = append(all, uid)
		}
		noted = append(noted, types.UID(o.GetAnnotations()[AnnotationClaimUID]))
	}
	return append(all, noted...)
}

// bearer is a claim that says that it has a token.
type bearer struct {
	claim types.NamespacedName
	uid   types.UID
	since metav1.Time
	// rank: 0 if the token is its UID, 1 if its owner annotation says so, 2 if a former version noted it.
	rank int
}

// bears returns what a claim says about its tokens.
func bears(claim *v1beta2.IPAddressClaim) map[types.UID]bearer {
	b := bearer{claim: NameOf(claim), uid: claim.UID, since: claim.CreationTimestamp, rank: 2}
	all := map[types.UID]bearer{}
	if !IsCopy(claim) {
		all[types.UID(claim.Annotations[AnnotationClaimUID])] = b
	}
	b.rank = 1
	if uid, ok := Owner(claim); ok {
		all[uid] = b
	}
	b.rank = 0
	all[claim.UID] = b
	delete(all, "")
	return all
}

// taken reports whether another claim has a token with more right: one whose UID it is, then one whose owner annotation says so, then the older one.
func (c *Contract) taken(token types.UID, by *v1beta2.IPAddressClaim) bool {
	own, ok := bears(by)[token]
	if !ok { // only its IPAddress says so
		own = bearer{claim: NameOf(by), uid: by.UID, since: by.CreationTimestamp, rank: 2}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for uid, other := range c.tokens[token] {
		if uid != by.UID && cmp.Or(cmp.Compare(other.rank, own.rank), other.since.Compare(own.since.Time), strings.Compare(other.claim.String(), own.claim.String())) < 0 {
			return true
		}
	}
	return false
}

// Bearer returns the claim that has a token, and its IPAddress; nil where there is none. A token that only an IPAddress says is found once its claim carries it.
func (c *Contract) Bearer(token types.UID) (*v1beta2.IPAddressClaim, *v1beta2.IPAddress) {
	c.mu.Lock()
	var names []types.NamespacedName
	for _, b := range c.tokens[token] {
		names = append(names, b.claim)
	}
	c.mu.Unlock()
	for _, name := range names {
		claim, ok := c.Claims.Get(name.Namespace, name.Name)
		if !ok {
			continue
		}
		address, ok := c.Addresses.Get(name.Namespace, name.Name)
		if !ok || !Owns(claim, address) {
			address = nil
		}
		if c.Token(claim, address) == token {
			return claim, address
		}
	}
	return nil, nil
}

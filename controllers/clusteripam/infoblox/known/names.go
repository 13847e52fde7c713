package known

import (
	"cmp"
	"net/netip"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/multicidr/controller-manager/apis/clusterapi/v1alpha1"
	"github.com/multicidr/controller-manager/apis/clusterapi/v1beta2"
	"github.com/multicidr/controller-manager/controllers/clusteripam/infoblox/host"
	"github.com/multicidr/controller-manager/controllers/clusteripam/infoblox/wapi"
	"github.com/multicidr/controller-manager/controllers/clusteripam/shell"
)

// AnnotationClaim on an IPAddress is the UID of its claim when the host record was made. clusterctl moves both to other clusters, where they get
// other UIDs.
const AnnotationClaim = "networking.x-k8s.io/infoblox-claim-uid"

// AnnotationAddress on an IPAddressClaim is the address that it was told, and AnnotationClaim the UID that the host record of this address has. Whatever becomes
// of the IPAddress, the claim gets no other address: a machine may use it.
const AnnotationAddress = "networking.x-k8s.io/infoblox-address"

// AnnotationReleasedBy on an IPAddress is the UID of what gives up its host record: of its claim, or its own if it has none.
const AnnotationReleasedBy = "networking.x-k8s.io/infoblox-released-by"

// AnnotationPlace on an IPAddressClaim and its IPAddress is where the host record is: the InfobloxInstance and the network view. Whatever
// becomes of the pool, the address can be released.
const AnnotationPlace = "networking.x-k8s.io/infoblox-record"

// AnnotationName on both is the name of the host record. The annotation of the user can be edited at any time.
const AnnotationName = "networking.x-k8s.io/infoblox-record-name"

// Place is where a host record is.
type Place struct{ Instance, NetworkView string }

func (p Place) String() string { return p.Instance + "/" + p.NetworkView }

func PlaceOf(object metav1.Object) (p Place, ok bool) {
	p.Instance, p.NetworkView, ok = strings.Cut(object.GetAnnotations()[AnnotationPlace], "/")
	return p, ok
}

// RecordName is a name for a host record at a place.
type RecordName struct {
	Place
	Name string
}

// RecordOf returns which host record an IPAddressClaim or an IPAddress has.
func RecordOf(object metav1.Object) (r RecordName, ok bool) {
	r.Place, ok = PlaceOf(object)
	r.Name = cmp.Or(object.GetAnnotations()[AnnotationName], object.GetAnnotations()[v1alpha1.AnnotationHostname])
	return r, ok
}

// OfInfoblox reports whether a reference is to an InfobloxIPPool.
func OfInfoblox(r v1beta2.IPPoolReference) bool {
	return r.APIGroup == shell.GroupIPAM && r.Kind == v1alpha1.KindInfobloxIPPool
}

func NameOf(object metav1.Object) types.NamespacedName {
	return types.NamespacedName{Namespace: object.GetNamespace(), Name: object.GetName()}
}

func PoolOf(namespace string, r v1beta2.IPPoolReference) types.NamespacedName {
	return types.NamespacedName{Namespace: namespace, Name: r.Name}
}

func Paused(object metav1.Object) bool {
	_, ok := object.GetAnnotations()[v1beta2.AnnotationPaused]
	return ok
}

// ClusterOf returns the name of the Cluster that a claim belongs to.
func ClusterOf(claim *v1beta2.IPAddressClaim) string {
	if claim.Spec.ClusterName != "" {
		return claim.Spec.ClusterName
	}
	return claim.Labels[v1beta2.LabelClusterName]
}

// WasServed reports whether a claim has had an address. A machine may use it, even if somebody has forced the IPAddress away.
func WasServed(claim *v1beta2.IPAddressClaim) bool { return claim.Status.AddressRef.Name != "" }

// ToldTo returns what a claim was told that it has. The address is not valid if it was told nothing.
func ToldTo(claim *v1beta2.IPAddressClaim) (had host.Released) {
	if WasServed(claim) {
		had.UID, had.Was = claim.UID, types.UID(claim.Annotations[AnnotationClaim])
		had.Unmarked = had.Was == ""
		had.Address, _ = netip.ParseAddr(claim.Annotations[AnnotationAddress])
	}
	return had
}

// IsLeaving reports whether an IPAddress is deleted, or its release has begun.
func IsLeaving(address *v1beta2.IPAddress) bool {
	return address.DeletionTimestamp != nil || address.Annotations[AnnotationReleasedBy] != ""
}

// HostAddress returns the address that an IPAddress says; not valid if there is none.
func HostAddress(address *v1beta2.IPAddress) (a netip.Addr) {
	if address != nil {
		a, _ = netip.ParseAddr(address.Spec.Address)
	}
	return a
}

// KeptByOthers reports whether somebody else keeps a claim that is deleted: its machine may still run. Garbage collection, however, waits for the IPAddress.
func KeptByOthers(claim *v1beta2.IPAddressClaim) bool {
	finalizers, _ := Without(claim.Finalizers, v1beta2.FinalizerReleaseAddress)
	return slices.ContainsFunc(finalizers, func(f string) bool { return f != metav1.FinalizerDeleteDependents })
}

// stays reports whether a claim keeps what it has: it is not deleted, or others keep it.
func stays(claim *v1beta2.IPAddressClaim) bool {
	return claim.DeletionTimestamp == nil || KeptByOthers(claim)
}

// Without returns finalizers without one of them, and whether it was missing.
func Without(finalizers []string, one string) (rest []string, missing bool) {
	rest = slices.DeleteFunc(append([]string{}, finalizers...), func(f string) bool { return f == one })
	return rest, len(rest) == len(finalizers)
}

// Concerns reports whether a claim is to be worked on. Of one that names another provider's pool by now, which not every API server refuses, only the release is:
// nobody else gives up its host record.
func Concerns(claim *v1beta2.IPAddressClaim) bool {
	_, prepared := RecordOf(claim)
	return OfInfoblox(claim.Spec.PoolRef) || prepared && claim.DeletionTimestamp != nil
}

// AddressOf returns host and port of the Infoblox, however they are written.
func AddressOf(i *v1alpha1.InfobloxInstance) string {
	return wapi.Address(i.Spec.Host, i.Spec.Port)
}

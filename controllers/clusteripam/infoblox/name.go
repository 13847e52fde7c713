package infoblox

import (
	"cmp"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/multicidr/controller-manager/apis/clusterapi/v1alpha1"
	"github.com/multicidr/controller-manager/controllers/clusteripam/contract"
)

// Annotations of an IPAddressClaim and its IPAddress. They are written before anything is written to Infoblox, and stay until the claim goes.
const (
	// AnnotationPlace is where the host record is: the InfobloxInstance and the network view. Whatever becomes of the pool, the address can be released.
	AnnotationPlace = "networking.x-k8s.io/infoblox-record"
	// AnnotationName is the name of the host record. The annotation of the user can be edited at any time.
	AnnotationName = "networking.x-k8s.io/infoblox-record-name"
	// AnnotationAddress is the address that the claim has.
	AnnotationAddress = "networking.x-k8s.io/infoblox-address"
)

// place is where a host record is.
type place struct{ instance, networkView string }

func (p place) String() string { return p.instance + "/" + p.networkView }

// recordName is a name for a host record at a place.
type recordName struct {
	place
	name string
}

// recordOf returns which host record an IPAddressClaim or an IPAddress has. Those of another program have the name of the claim, unless that says another one.
func recordOf(object metav1.Object) (r recordName, ok bool) {
	own := contract.Own(object)
	r.instance, r.networkView, ok = strings.Cut(own[AnnotationPlace], "/")
	r.name = cmp.Or(own[AnnotationName], object.GetAnnotations()[v1alpha1.AnnotationHostname], object.GetName())
	return r, ok
}

// annotations are those that say a host record. The hostname is the user's, or empty; Infoblox' other provider reads it.
func (r recordName) annotations(hostname string) map[string]string {
	return map[string]string{AnnotationPlace: r.String(), AnnotationName: r.name, v1alpha1.AnnotationHostname: cmp.Or(hostname, r.name)}
}

// fold returns the one way to write a name of the DNS: names that differ only in capitals, or in the last dot, are the same there.
func fold(name string) string { return strings.ToLower(strings.TrimSuffix(name, ".")) }

// nameIn returns the name of a new host record: what the user wishes, otherwise another one. ok is false if the wish is not in the zone of the pool.
func nameIn(zone, wish, otherwise string) (name string, ok bool) {
	name = fold(cmp.Or(wish, otherwise))
	if zone != "" && (wish == "" || !strings.Contains(name, ".")) {
		name += "." + fold(zone)
	}
	return name, isIn(zone, name)
}

// isIn reports whether a name is in a zone; without a zone all are.
func isIn(zone, name string) bool { return zone == "" || strings.HasSuffix(name, "."+fold(zone)) }

// ownName is the second name of a claim's host record. The name of a claim means something only in its namespace: if somebody else has a record of that name, one
// with the token does as well.
func ownName(claim string, token types.UID) string { return claim + "." + string(token) }

// shares reports whether several claims may have addresses in one record of this name: names that users ask for, or that stand for a Machine in the DNS.
func shares(name, claim string, token types.UID, zone string) bool {
	return zone != "" || name != claim && name != ownName(claim, token)
}

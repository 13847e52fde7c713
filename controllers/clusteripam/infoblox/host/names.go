package host

import "k8s.io/apimachinery/pkg/types"

// Naming is what the name of a claim's host record comes from.
type Naming struct {
	Claim string // name of the claim
	UID   types.UID
	// Hostname is the annotation: the user's wish, or the name that was chosen before.
	Hostname string
	// Machine is the name of what the claim is for; empty if nothing owns the claim.
	Machine string
	DNSZone string
}

// Names returns the names that a claim's host record can have, in the order in which they are tried, and whether claims of the same name
// share a record. A name in the DNS is what users ask for, so it is tried alone. The name of a claim is not in the DNS and means something only
// in its namespace: if somebody else has a record of that name, one with the UID does as well.
func (n Naming) Names() (names []string, mayShare bool) {
	own := n.Claim + "." + string(n.UID)
	switch {
	case n.Hostname == own:
		return []string{own}, false
	case n.Hostname != "" && (n.Hostname != n.Claim || n.DNSZone != ""):
		return []string{n.Hostname}, true
	case n.DNSZone == "":
		return []string{n.Claim, own}, false
	case n.Machine != "":
		return []string{n.Machine + "." + n.DNSZone}, true
	default:
		return []string{n.Claim + "." + n.DNSZone}, true
	}
}

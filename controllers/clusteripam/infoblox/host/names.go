package host

import (
	"cmp"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/types"
)

// Naming is what the name of a claim's host record comes from.
type Naming struct {
	Claim string // name of the claim
	UID   types.UID
	// Hostname is the annotation: the user's wish, or the name that was chosen before.
	Hostname string
	// Recorded is the name of the record that the claim has, or may have; empty if it never had one. Served: the claim has had an IPAddress of it.
	Recorded string
	Served   bool
	// Machine is the name of what the claim is for; empty if nothing owns the claim.
	Machine string
	DNSZone string
}

// Names returns the names that a claim's host record can have, in the order in which they are tried, and whether claims of the same name
// share a record. A name in the DNS is what users ask for, so it is tried alone. The name of a claim is not in the DNS and means something only
// in its namespace: if somebody else has a record of that name, one with the UID does as well.
//
// A claim that has had an address keeps its record, whatever the user wishes by now: a machine may use the address. If Recorded is not among the
// names, that record is to be given up first.
func (n Naming) Names() (names []string, mayShare bool) {
	n.Hostname, n.Machine, n.DNSZone = fold(n.Hostname), fold(n.Machine), fold(n.DNSZone)
	if n.Served {
		n.Hostname = cmp.Or(n.Recorded, n.Hostname)
	}
	names, mayShare = n.wished()
	if i := slices.Index(names, n.Recorded); i > 0 {
		names = names[i:]
	}
	return names, mayShare
}

// fold returns the one way to write a name of the DNS: names that differ only in capitals, or in the last dot, are the same there.
func fold(name string) string { return strings.ToLower(strings.TrimSuffix(name, ".")) }

func (n Naming) wished() (names []string, mayShare bool) {
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

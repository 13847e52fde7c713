package nodeipam

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"

	"github.com/multicidr/controller-manager/controllers/ipam"
)

// Reasons of the events on Nodes, all of type Warning.
const (
	// ReasonNotAvailable: no ClusterCIDR can serve the Node. It is served as soon as one can.
	ReasonNotAvailable = "CIDRNotAvailable"
	// ReasonConflict: the Node holds addresses that another Node holds too.
	ReasonConflict = "CIDRConflict"
	// ReasonOutsideRanges: no ClusterCIDR contains any podCIDR of the Node.
	ReasonOutsideRanges = "CIDROutsideRanges"
	// ReasonUnreadable: a podCIDR of the Node is no CIDR.
	ReasonUnreadable = "CIDRUnreadable"
)

// maxNamed bounds how many objects a message names; an event's message has at most 1,024 bytes.
const maxNamed = 8

// reasons writes why pools refused a Node, the same text for the same reasons.
func reasons(refusals []refusal) string {
	var texts []string
	for _, r := range refusals {
		texts = append(texts, r.String())
	}
	return listed(texts)
}

func (r refusal) String() string {
	switch {
	case r.pool.State != ipam.Enabled && r.pool.problem != "":
		return fmt.Sprintf("%s is %s (%s)", r.pool.Name, strings.ToLower(r.pool.State.String()), r.pool.problem)
	case r.pool.State != ipam.Enabled:
		return fmt.Sprintf("%s is %s", r.pool.Name, strings.ToLower(r.pool.State.String()))
	default:
		var families []string
		for _, f := range r.full {
			families = append(families, f.String())
		}
		return fmt.Sprintf("%s is full (%s)", r.pool.Name, strings.Join(families, " and "))
	}
}

// notAvailable says why a Node waits and what to do.
func notAvailable(refusals []refusal, pools int) string {
	switch {
	case pools == 0:
		return "No ClusterCIDR exists. Create one that selects this Node."
	case len(refusals) == 0:
		return fmt.Sprintf("None of the %d ClusterCIDRs selects this Node. Change its labels or create a ClusterCIDR that selects it.", pools)
	default:
		return fmt.Sprintf("No ClusterCIDR that selects this Node can serve it: %s. Create another one, or delete Nodes that are not needed.", reasons(refusals))
	}
}

// findings returns what is wrong with the podCIDRs that a Node shows, message by reason.
func (b *book) findings(node *v1.Node) map[string]string {
	found := map[string]string{}
	blocks, unreadable := podCIDRsOf(node)
	if len(unreadable) > 0 {
		found[ReasonUnreadable] = fmt.Sprintf("podCIDRs %q cannot be read, so nothing keeps their addresses from being given to another Node. Delete the Node and let it register again.", unreadable)
	}
	if len(blocks) > 0 && b.outside(blocks) {
		found[ReasonOutsideRanges] = fmt.Sprintf("podCIDRs %v lie in no ClusterCIDR. They stay as they are and are given to nobody else. Create a ClusterCIDR that contains them, or delete the Node and let it register again.", blocks)
	}
	if others := b.conflicts(node.UID); len(others) > 0 {
		var texts []string
		for _, name := range slices.Sorted(maps.Keys(others)) {
			texts = append(texts, fmt.Sprintf("%s (%v)", name, others[name]))
		}
		found[ReasonConflict] = fmt.Sprintf("podCIDRs %v share addresses with those of %s. Pods on these Nodes may get the same address: drain and delete all but one of them and let them register again.", blocks, listed(texts))
	}
	return found
}

// listed joins texts, at most maxNamed of them.
func listed(texts []string) string {
	if more := len(texts) - maxNamed; more > 0 {
		texts = append(texts[:maxNamed:maxNamed], fmt.Sprintf("%d more", more))
	}
	return strings.Join(texts, "; ")
}

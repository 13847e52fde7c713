package allocator

import (
	"fmt"
	"iter"
	"maps"
	"net/netip"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	networkingv1 "github.com/multicidr/controller-manager/apis/networking/v1"
	"github.com/multicidr/controller-manager/controllers/ipam"
	"github.com/multicidr/controller-manager/controllers/nodeipam/clustercidr"
	"github.com/multicidr/controller-manager/controllers/text"
)

// Findings about a Node's podCIDRs, as event reasons.
const (
	// ReasonConflict: another Node or a service range has addresses that the Node holds.
	ReasonConflict = "CIDRConflict"
	// ReasonOutsideRanges: no ClusterCIDR contains any podCIDR of the Node.
	ReasonOutsideRanges = "CIDROutsideRanges"
	// ReasonAssignedByOther: another allocator assigned the Node's podCIDRs while this process was the leader.
	ReasonAssignedByOther = "CIDRAssignedByOther"
	// ReasonUnreadable: a podCIDR of the Node is not a valid CIDR.
	ReasonUnreadable = "CIDRUnreadable"
)

// Findings returns what is wrong with the podCIDRs that a Node shows, message by reason.
func (b *State) Findings(node *v1.Node) map[string]string {
	found := map[string]string{}
	blocks, unreadable := clustercidr.PodCIDRsOf(node)
	if len(unreadable) > 0 {
		found[ReasonUnreadable] = fmt.Sprintf("podCIDRs %s cannot be read, so nothing keeps their addresses from being given to another Node. Delete the Node and reboot its machine, which registers it again.", text.ValuesText(unreadable))
	}
	if e, ok := b.nodes[node.Name]; ok && e.byOther().accused != "" {
		found[ReasonAssignedByOther] = e.byOther().accused
	}
	if len(blocks) > 0 && b.OutOfRange(blocks) {
		wayOut := "Create a ClusterCIDR that contains them, or delete the Node and reboot its machine, which registers it again."
		if slices.ContainsFunc(blocks, b.services.Overlaps) || slices.ContainsFunc(blocks, clustercidr.Mapped.Overlaps) {
			// A ClusterCIDR would overlap the service range, or be refused.
			wayOut = "Drain and delete the Node and reboot its machine, which registers it again."
		}
		found[ReasonOutsideRanges] = fmt.Sprintf("podCIDRs %s lie in no ClusterCIDR. They stay as they are and are given to nobody else. %s", text.BlocksText(blocks), wayOut)
	}
	var others []string
	which := "this Node and reboot its machine, which registers it again"
	for h := range b.conflicts(node.UID) {
		if h.Owner.Kind == ipam.Node {
			which = "this Node or the others and reboot their machines, which registers them again"
		}
		if others = append(others, fmt.Sprintf("%s (%v)", b.NameOf(h.Owner), h.Prefix)); len(others) > text.MaxNamed {
			break
		}
	}
	if len(others) > 0 {
		found[ReasonConflict] = fmt.Sprintf("podCIDRs %s share addresses with %s. Two Pods, or a Pod and a Service, may get the same address: drain and delete %s.", text.BlocksText(blocks), text.ListedFew(others), which)
	}
	return found
}

// Concerns reports whether a Node needs podCIDRs, or has findings that were not reported yet.
func (b *State) Concerns(node *v1.Node) bool {
	return !clustercidr.ShowsPodCIDRs(node) || !maps.Equal(b.Findings(node), b.enter(node).reported)
}

// Report records the findings about a Node's podCIDRs. It returns the reasons whose message is new.
func (b *State) Report(node *v1.Node) (say []string) {
	found := b.Findings(node)
	e := b.enter(node)
	for _, reason := range slices.Sorted(maps.Keys(found)) {
		if message := found[reason]; e.reported[reason] != message {
			say = append(say, reason)
		}
	}
	e.reported = found
	return say
}

// conflicts yields the holdings of others that overlap a Node's blocks, except kept blocks. There may be very many: take only a few.
func (b *State) conflicts(uid types.UID) iter.Seq[ipam.Holding] {
	return func(yield func(ipam.Holding) bool) {
		for h := range b.ledger.Conflicts(OwnerOf(uid)) {
			if h.Owner.Kind != ipam.Kept && !yield(h) {
				return
			}
		}
	}
}

// Shares reports whether others hold addresses that this Node holds.
func (b *State) Shares(uid types.UID) bool {
	for range b.conflicts(uid) {
		return true
	}
	return false
}

// OutOfRange reports whether pools exist but none contains any of the blocks.
func (b *State) OutOfRange(blocks []netip.Prefix) bool {
	return len(b.pools) > 0 && !slices.ContainsFunc(blocks, b.ranges.Contain)
}

// NameOfNode returns the name of the Node with this UID if it holds or has held anything.
func (b *State) NameOfNode(uid types.UID) string { return b.names[uid] }

// Reported returns the message that was reported under a reason for the Node of this name, and its UID; empty if there is none.
func (b *State) Reported(name, reason string) (uid types.UID, message string) {
	if e, ok := b.nodes[name]; ok {
		return e.uid, e.reported[reason]
	}
	return "", ""
}

// Suspect notes a message about a Node whose podCIDRs seem to come from another process. It stays until Accuse.
func (b *State) Suspect(node *v1.Node, message string) {
	e := b.enter(node)
	e.other = &otherWriter{accused: e.byOther().accused, suspected: message}
}

// Suspected reports whether Suspect noted a message about the Node of this name.
func (b *State) Suspected(name string) bool {
	e, known := b.nodes[name]
	return known && e.byOther().suspected != ""
}

// Accuse ends the suspicion about a Node. message is what to report now; empty if it was reported before. own means that this process wrote
// the podCIDRs after all: they carry no lease holder's name, and the API server has confirmed a write of them.
func (b *State) Accuse(node *v1.Node) (message string, own bool) {
	e, ok := b.known(node)
	if !ok {
		return "", false
	}
	o := e.byOther()
	own = e.answered && node.Annotations[networkingv1.AnnotationLeaseHolder] == ""
	if !own && o.accused != o.suspected {
		message, o.accused = o.suspected, o.suspected
	}
	e.other = &otherWriter{accused: o.accused}
	return message, own
}

// NameOf returns an owner's name for messages.
func (b *State) NameOf(o ipam.Owner) string {
	switch o.Kind {
	case ipam.Node:
		return "Node " + b.names[types.UID(o.ID)]
	case ipam.Service:
		return "service range " + o.ID
	default:
		return o.ID
	}
}

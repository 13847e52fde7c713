package allocator

import (
	"fmt"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"

	"github.com/multicidr/controller-manager/controllers/ipam"
	"github.com/multicidr/controller-manager/controllers/nodeipam/pool"
	"github.com/multicidr/controller-manager/controllers/text"
)

// Reason is why a Node holds no blocks, in one word.
type Reason string

const (
	noClusterCIDR Reason = "NoClusterCIDR"
	notSelected   Reason = "NotSelected"
	noFreeBlock   Reason = "Full"
	// NoneNeeded: a ClusterCIDR with allocation None selects the Node. With every other reason the Node is pending.
	NoneNeeded Reason = "None"
)

// Reasons are those of pending Nodes. They are few, and metrics always show all of them.
var Reasons = []Reason{noClusterCIDR, notSelected, noFreeBlock, Reason(ipam.Disabled.String()), Reason(ipam.Terminating.String()), Reason(ipam.Invalid.String())}

// Why says why the Node of this name holds no blocks, in one word and in sentences that say what to do. Both are empty if it holds some, if it
// is being deleted, or if a ClusterCIDR can serve it and its worker is coming, such as after a refused write.
func (s *State) Why(name string) (reason Reason, message string) {
	n, ok := s.nodes[name]
	if !ok || n.state != None || n.object.DeletionTimestamp != nil {
		return "", ""
	}
	reason, last := s.reasonFor(n.object)
	switch reason {
	case "":
		return "", ""
	case NoneNeeded:
		return reason, fmt.Sprintf("ClusterCIDR %s has allocation None: this Node needs no podCIDRs.", last.Name)
	case noClusterCIDR:
		return reason, "No ClusterCIDR exists. Create one that selects this Node."
	case notSelected:
		return reason, "None of the ClusterCIDRs selects this Node. Change its labels or create a ClusterCIDR that selects it."
	}
	return reason, s.notAvailable(n.object)
}

// reasonFor says in one word why an object holds no blocks: Full if any pool only lacks space; otherwise the state of the first one, which
// somebody has to change. It is empty if a pool has free blocks. last is the last pool that selects the object.
func (s *State) reasonFor(object *v1.Node) (reason Reason, last *pool.Pool) {
	for p := range s.candidates.Of(object) {
		last = p
		switch {
		case p.State == ipam.None:
			return NoneNeeded, p
		case p.State == ipam.Enabled && len(s.ledger.Full(&p.Pool)) == 0:
			return "", p
		case p.State == ipam.Enabled:
			reason = noFreeBlock
		case reason == "":
			reason = Reason(p.State.String())
		}
	}
	switch {
	case len(s.pools) == 0:
		return noClusterCIDR, nil
	case last == nil:
		return notSelected, nil
	}
	return reason, last
}

// countPending counts pending Nodes by reason.
func (s *State) countPending() map[Reason]int {
	counts := map[Reason]int{}
	for _, n := range s.waiting {
		if n.state != None || n.object.DeletionTimestamp != nil {
			continue
		}
		if reason, _ := s.reasonFor(n.object); reason != "" && reason != NoneNeeded {
			counts[reason]++
		}
	}
	return counts
}

// notAvailable says why none of the pools that select a Node can serve it, and what to do about it.
func (s *State) notAvailable(object *v1.Node) string {
	var refusals []string
	disabled, used := false, false
	for p := range s.candidates.Of(object) {
		if refusals = append(refusals, s.Refusal(p)); len(refusals) > text.MaxNamed {
			break // Thousands of full ClusterCIDRs may select the same Nodes.
		}
		disabled = disabled || p.State == ipam.Disabled && !p.Superseded
		used = used || p.State == ipam.Enabled && s.used(p, s.ledger.Full(&p.Pool))
	}
	wayOut := "Create another one"
	if disabled {
		wayOut += ", or set spec.allocation: Enabled"
	}
	if used {
		wayOut += ", or delete Nodes that are not needed"
	}
	return fmt.Sprintf("No ClusterCIDR that selects this Node can serve it: %s. %s.", text.ListedFirst(refusals), wayOut)
}

// Refusal says why p cannot serve a Node that it selects; empty if it can. The condition Ready of p says more.
func (s *State) Refusal(p *pool.Pool) string {
	if p.State != ipam.Enabled {
		why := fmt.Sprintf("%s is %s", p.Name, strings.ToLower(p.State.String()))
		if p.Problem != "" {
			why += fmt.Sprintf(" (%s)", p.Problem)
		}
		return why
	}
	full := s.ledger.Full(&p.Pool)
	if len(full) == 0 {
		return ""
	}
	takers := []string{text.Families(full)}
	var services []string
	for _, r := range fullRanges(p, full) {
		if h, covered := s.CoveredBy(r); covered {
			takers = append(takers, fmt.Sprintf("Node %s holds %v", h.Owner.ID, h.Prefix))
		}
		services = append(services, s.servicesIn(p, r.Prefix)...)
	}
	if len(s.excluding(p, full)) > 0 {
		takers = append(takers, "it has spec.excludedCIDRs")
	}
	why := fmt.Sprintf("%s is full (%s)", p.Name, strings.Join(takers, "; "))
	if len(services) > 0 {
		why += "; service ranges in it are never allocated: " + text.ListedFew(slices.Sorted(slices.Values(services)))
	}
	return why
}

// exhausted is the message of the condition Ready when families of p have no free block. It names whoever takes many blocks at once, because
// the event repeats this message, and that is what users read first.
func (s *State) exhausted(p *pool.Pool, full []ipam.Family) string {
	message := fmt.Sprintf("No free block for %s.", text.Families(full))
	excluding := s.excluding(p, full)
	if len(excluding) > 0 {
		message += fmt.Sprintf(" No block is allocated that has addresses in spec.excludedCIDRs: %s. If Nodes may use some of them, remove these from spec.excludedCIDRs. Do not remove addresses that something else uses.", text.ListedFew(excluding))
	}
	if larger := s.largerThanBlocks(p, full); len(larger) > 0 {
		message += fmt.Sprintf(" These podCIDRs are larger than a block, so that one Node takes many: %s. Replace each Node that should not have them: %s.", text.ListedFew(larger), text.Replace)
	}
	switch {
	case s.used(p, full):
		return message + " Create another ClusterCIDR, or delete Nodes that are not needed."
	case len(excluding) == 0:
		return message + " All of it is in service ranges. Create another ClusterCIDR with other addresses."
	default:
		return message + " Or create another ClusterCIDR."
	}
}

// fullRanges returns p's ranges of the families that are full.
func fullRanges(p *pool.Pool, full []ipam.Family) []ipam.Range {
	return slices.DeleteFunc(slices.Clone(p.Ranges), func(r ipam.Range) bool { return !slices.Contains(full, r.Family()) })
}

// CoveredBy returns a Node's podCIDR that contains a whole range and is larger than one of its blocks.
func (s *State) CoveredBy(r ipam.Range) (h ipam.Holding, covered bool) {
	for h := range s.ledger.Holdings(r.Prefix) {
		switch {
		case h.Prefix.Bits() > r.Prefix.Bits():
			return ipam.Holding{}, false // holdings that contain the range come first
		case h.Owner.Kind == ipam.Node && h.Prefix.Bits() < r.BlockBits:
			return h, true
		}
	}
	return ipam.Holding{}, false
}

// largerThanBlocks names Nodes with podCIDRs larger than a block of p, in the families that are full.
func (s *State) largerThanBlocks(p *pool.Pool, full []ipam.Family) (texts []string) {
	for _, r := range fullRanges(p, full) {
		if s.ledger.Usage(&p.Pool, r).Unavailable == 0 {
			continue // Blocks inside such a podCIDR count as unavailable.
		}
		for h := range s.ledger.Holdings(r.Prefix) {
			if h.Owner.Kind == ipam.Node && h.Prefix.Bits() < r.BlockBits {
				texts = append(texts, nameOf(h))
			}
			if len(texts) > text.MaxNamed {
				break
			}
		}
	}
	return texts
}

// excluding names the exclusions in p's ranges of these families.
func (s *State) excluding(p *pool.Pool, full []ipam.Family) (texts []string) {
	for _, r := range fullRanges(p, full) {
		for excluded := range p.Excluded.Overlapping(r.Prefix) {
			texts = append(texts, excluded.String())
		}
	}
	return texts
}

// used reports whether Nodes hold addresses in p's ranges of these families.
func (s *State) used(p *pool.Pool, full []ipam.Family) bool {
	for _, r := range fullRanges(p, full) {
		for h := range s.ledger.Holdings(r.Prefix) {
			if h.Owner.Kind == ipam.Node {
				return true
			}
		}
	}
	return false
}

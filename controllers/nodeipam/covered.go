package nodeipam

import (
	"fmt"
	"slices"

	"github.com/multicidr/controller-manager/controllers/ipam"
)

// A podCIDR that is larger than a block takes many blocks at once, and one that contains a whole range takes all of them. Everybody who
// may create Nodes can do so, with 0.0.0.0/0 even to all ClusterCIDRs. So the metrics, the condition and the events name such Nodes.

// maxWalked bounds how many holdings inside a range are looked at for one message.
const maxWalked = 10_000

// coveredBy returns a Node with a podCIDR that contains the whole range and is larger than a block of it, and that podCIDR.
func (b *book) coveredBy(r ipam.Range) (h ipam.Holding, covered bool) {
	for h := range b.ledger.Holdings(r.Prefix) {
		switch {
		case h.Prefix.Bits() > r.Prefix.Bits():
			return ipam.Holding{}, false // those that contain the range come first
		case h.Owner.Kind == ipam.Node && h.Prefix.Bits() < r.BlockBits:
			return h, true
		}
	}
	return ipam.Holding{}, false
}

// explain enters in refusals which Nodes cover the ranges of their pools, and whether there are exclusions. Which of those matter changes with
// what others hold, and a Node that waits is not looked at for that; the condition Ready says it.
func (b *book) explain(refusals []refusal) {
	for i, refused := range refusals {
		var texts []string
		for _, r := range refused.pool.Ranges {
			if h, covered := b.coveredBy(r); covered {
				texts = append(texts, fmt.Sprintf("%s holds %v", b.nameOf(h.Owner), h.Prefix))
			}
		}
		refusals[i].cover = listed(texts)
		refusals[i].excludes = excludes(refused.pool, refused.full)
		refusals[i].used = b.used(refused.pool, refused.full)
	}
}

func excludes(p *pool, full []ipam.Family) bool {
	return slices.ContainsFunc(p.Ranges, func(r ipam.Range) bool { return slices.Contains(full, r.Family()) && p.Excluded.Overlaps(r.Prefix) })
}

// excluding names the exclusions of p without which it would not be full in these families; empty if there are none. They need not be all.
func (b *book) excluding(p *pool, full []ipam.Family) string {
	var texts []string
	for _, r := range p.Ranges {
		if slices.Contains(full, r.Family()) {
			for _, e := range b.ledger.Excluding(&p.Pool, r, maxNamed+1) {
				texts = append(texts, e.String())
			}
		}
	}
	return listedFew(texts)
}

// largerThanBlocks names Nodes with podCIDRs that are larger than a block of p, in the families that are full: at least those that
// contain a range, and of those inside it the ones that are found soon. A range with many Nodes has many holdings, and a status must
// not take long.
func (b *book) largerThanBlocks(p *pool, full []ipam.Family) string {
	var texts []string
	for _, r := range p.Ranges {
		if !slices.Contains(full, r.Family()) || b.rangeStatus(p, r).Unavailable == 0 {
			continue // Blocks that such a podCIDR takes are unavailable.
		}
		walked := 0
		for h := range b.ledger.Holdings(r.Prefix) {
			if h.Owner.Kind == ipam.Node && h.Prefix.Bits() < r.BlockBits {
				texts = append(texts, fmt.Sprintf("%s (%v)", b.nameOf(h.Owner), h.Prefix))
			}
			if walked++; walked == maxWalked || len(texts) > maxNamed {
				break
			}
		}
	}
	return listedFew(texts)
}

// exhausted is the message of the condition Ready while families of p have no free block. It is the place for those who take many
// blocks at once, and the condition Overlapping is not: the Exhausted event repeats it, and nobody looks for other reasons first.
func (b *book) exhausted(p *pool, full []ipam.Family) string {
	message := fmt.Sprintf("No free block for %s.", families(full))
	excluding := b.excluding(p, full)
	if excluding != "" {
		message += fmt.Sprintf(" Blocks that nobody holds are in spec.excludedCIDRs: %s. Remove from it what this ClusterCIDR may allocate.", excluding)
	}
	if larger := b.largerThanBlocks(p, full); larger != "" {
		message += fmt.Sprintf(" These podCIDRs are larger than a block, so that one Node takes many: %s. Delete the Nodes that should not have them and reboot their machines, which registers them again.", larger)
	}
	switch {
	case b.used(p, full):
		return message + " Create another ClusterCIDR, or delete Nodes that are not needed."
	case excluding == "":
		return message + " All of it is in service ranges. Create another ClusterCIDR with other addresses."
	default:
		return message + " Or create another ClusterCIDR."
	}
}

// used reports whether Nodes hold something in the ranges of p of these families that is free without them, as far as that is found soon.
func (b *book) used(p *pool, full []ipam.Family) bool {
	for _, r := range p.Ranges {
		if !slices.Contains(full, r.Family()) {
			continue
		}
		walked := 0
		for h := range b.ledger.Holdings(r.Prefix) {
			// What is in a service range is not free either when its Node goes.
			mayHelp := h.Owner.Kind != ipam.Service && (h.Prefix.Bits() < r.BlockBits || !b.services.Overlaps(h.Prefix))
			if walked++; mayHelp || walked == maxWalked {
				return true
			}
		}
	}
	return false
}

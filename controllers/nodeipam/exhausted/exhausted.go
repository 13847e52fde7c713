// Package exhausted says why ClusterCIDRs have no free blocks.
package exhausted

import (
	"fmt"
	"math"
	"slices"

	"github.com/multicidr/controller-manager/controllers/ipam"
	"github.com/multicidr/controller-manager/controllers/nodeipam/clustercidr"
	"github.com/multicidr/controller-manager/controllers/text"
)

// Ranges are the ranges of ClusterCIDRs with what is held in them.
type Ranges struct {
	Ledger   *ipam.Ledger
	Services *ipam.PrefixSet // service ranges
	NameOf   func(ipam.Owner) string
	// Known is what Used has found out about ranges, if it is asked about the same ones again and again while hardly anything changes. May be nil.
	Known map[ipam.Range]bool
}

// maxWalked limits how many holdings inside a range are looked at for one message.
const maxWalked = 10_000

// CoveredBy returns a Node's podCIDR that contains the whole range and is larger than one of its blocks.
func (e Ranges) CoveredBy(r ipam.Range) (h ipam.Holding, covered bool) {
	for h := range e.Ledger.Holdings(r.Prefix) {
		switch {
		case h.Prefix.Bits() > r.Prefix.Bits():
			return ipam.Holding{}, false // holdings that contain the range come first
		case h.Owner.Kind == ipam.Node && h.Prefix.Bits() < r.BlockBits:
			return h, true
		}
	}
	return ipam.Holding{}, false
}

// Message is the message of the condition Ready when families of p have no free block. Owners that take many blocks at once are named
// here and not in the condition Overlapping, because the Exhausted event repeats this message, and that is what users read first.
func (e Ranges) Message(p *clustercidr.Pool, full []ipam.Family) string {
	message := fmt.Sprintf("No free block for %s.", text.Families(full))
	excluding := e.excluding(p, full)
	if excluding != "" {
		message += fmt.Sprintf(" Blocks that nobody holds are in spec.excludedCIDRs: %s. Remove from it what this ClusterCIDR may allocate.", excluding)
	}
	if larger := e.largerThanBlocks(p, full); larger != "" {
		message += fmt.Sprintf(" These podCIDRs are larger than a block, so that one Node takes many: %s. Delete the Nodes that should not have them and reboot their machines, which registers them again.", larger)
	}
	switch {
	case e.Used(p, full):
		return message + " Create another ClusterCIDR, or delete Nodes that are not needed."
	case excluding == "":
		return message + " All of it is in service ranges. Create another ClusterCIDR with other addresses."
	default:
		return message + " Or create another ClusterCIDR."
	}
}

// largerThanBlocks names Nodes with podCIDRs larger than a block of p, in the families that are full. It finds all that contain a range,
// but inside a range it looks at maxWalked holdings at most: a range with many Nodes has many, and computing a status must not take long.
func (e Ranges) largerThanBlocks(p *clustercidr.Pool, full []ipam.Family) string {
	var texts []string
	for _, r := range p.Ranges {
		if !slices.Contains(full, r.Family()) || !e.unavailable(p, r) {
			continue // Blocks inside such a podCIDR count as unavailable.
		}
		walked := 0
		for h := range e.Ledger.Holdings(r.Prefix) {
			if h.Owner.Kind == ipam.Node && h.Prefix.Bits() < r.BlockBits {
				texts = append(texts, fmt.Sprintf("%s (%v)", e.NameOf(h.Owner), h.Prefix))
			}
			if walked++; walked == maxWalked || len(texts) > text.MaxNamed {
				break
			}
		}
	}
	return text.ListedFew(texts)
}

// excluding names exclusions without which p would not be full in these families, perhaps not all of them; empty if there are none.
func (e Ranges) excluding(p *clustercidr.Pool, full []ipam.Family) string {
	var texts []string
	for _, r := range p.Ranges {
		if slices.Contains(full, r.Family()) {
			for _, excluded := range e.Ledger.Excluding(&p.Pool, r, text.MaxNamed+1) {
				texts = append(texts, excluded.String())
			}
		}
	}
	return text.ListedFew(texts)
}

// Used reports whether deleting Nodes would free blocks in p's ranges of these families. It looks at maxWalked holdings of a range at most,
// and reports true if there are more.
func (e Ranges) Used(p *clustercidr.Pool, full []ipam.Family) bool {
	return slices.ContainsFunc(p.Ranges, func(r ipam.Range) bool {
		if !slices.Contains(full, r.Family()) {
			return false
		}
		used, known := e.Known[r]
		if !known {
			if used = e.used(r); e.Known != nil {
				e.Known[r] = used
			}
		}
		return used
	})
}

func (e Ranges) used(r ipam.Range) bool {
	walked := 0
	for h := range e.Ledger.Holdings(r.Prefix) {
		// Blocks inside a service range are not free even when their Node is gone.
		mayHelp := h.Owner.Kind != ipam.Service && (h.Prefix.Bits() < r.BlockBits || !e.Services.Overlaps(h.Prefix))
		if walked++; mayHelp || walked == maxWalked {
			return true
		}
	}
	return false
}

// unavailable reports whether blocks of r are neither free nor allocated.
func (e Ranges) unavailable(p *clustercidr.Pool, r ipam.Range) bool {
	usage, total := e.Ledger.Usage(&p.Pool, r), r.Blocks()
	if total == math.MaxUint64 { // capped, as the number of free blocks may be
		return e.Ledger.Taken(&p.Pool, r) > usage.Allocated
	}
	return total-usage.Free > usage.Allocated
}

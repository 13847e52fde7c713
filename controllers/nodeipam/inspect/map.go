package inspect

import (
	"cmp"
	"net/netip"
	"slices"

	"github.com/multicidr/controller-manager/controllers/ipam"
	"github.com/multicidr/controller-manager/controllers/nodeipam/pool"
)

// Strip is a range of a ClusterCIDR, or a part of it, in equal cells.
type Strip struct {
	ClusterCIDR       string       `json:"clusterCIDR"`
	State             string       `json:"state"` // the reason of the condition Ready
	CIDR              netip.Prefix `json:"cidr"`  // all of the cells
	BlockPrefixLength int          `json:"blockPrefixLength"`
	Cells             []Cell       `json:"cells"`
}

// Cell is a part of a range: a block, or more of them.
type Cell struct {
	CIDR  netip.Prefix `json:"cidr"`
	Total uint64       `json:"total"` // blocks
	Free  uint64       `json:"free"`  // blocks
	// Allocated and Reserved are whether Nodes show addresses in it, and whether some are reserved for Nodes that do not show them yet.
	// Service is whether some are in a service range, and Conflict whether two of these have the same.
	Allocated bool `json:"allocated,omitempty"`
	Reserved  bool `json:"reserved,omitempty"`
	Service   bool `json:"service,omitempty"`
	Conflict  bool `json:"conflict,omitempty"`
}

// Map divides the ranges of a ClusterCIDR into 2^bits cells each, as far as they overlap a part of the address space. Without a name it is all
// ClusterCIDRs, and the zero view is all of the address space. The strips are in address order.
func (c *Cluster) Map(name string, view netip.Prefix, bits int) []Strip {
	c.settle()
	strips := []Strip{}
	for _, p := range c.state.Pools() {
		for _, r := range p.Ranges {
			if name != "" && name != p.Name || view.IsValid() && !view.Overlaps(r.Prefix) {
				continue
			}
			part := r.Prefix
			if view.IsValid() && view.Bits() > part.Bits() {
				part = netip.PrefixFrom(view.Addr(), min(view.Bits(), r.BlockBits)).Masked()
			}
			strips = append(strips, c.strip(p, part, r.BlockBits, bits))
		}
	}
	slices.SortStableFunc(strips, func(a, b Strip) int {
		return cmp.Or(a.CIDR.Addr().Compare(b.CIDR.Addr()), cmp.Compare(a.CIDR.Bits(), b.CIDR.Bits()))
	})
	return strips
}

func (c *Cluster) strip(p *pool.Pool, part netip.Prefix, blockBits, bits int) Strip {
	s := Strip{ClusterCIDR: p.Name, State: c.state.Ready(p).Reason, CIDR: part, BlockPrefixLength: blockBits}
	cell := netip.PrefixFrom(part.Addr(), min(part.Bits()+bits, blockBits))
	for part.Contains(cell.Addr()) {
		s.Cells = append(s.Cells, c.cell(p, ipam.Range{Prefix: cell, BlockBits: blockBits}))
		cell = netip.PrefixFrom(ipam.After(cell), cell.Bits()) // not valid behind the last address of a family, which nothing contains
	}
	return s
}

func (c *Cluster) cell(p *pool.Pool, r ipam.Range) Cell {
	cell := Cell{CIDR: r.Prefix, Total: r.Blocks(), Free: c.state.Free(p, r), Conflict: c.state.Conflict(r.Prefix)}
	for h := range c.state.Holdings(r.Prefix) {
		switch {
		case h.Owner.Kind == ipam.Service:
			cell.Service = true
		case c.shows(h.Owner):
			cell.Allocated = true
		default:
			cell.Reserved = true
		}
	}
	return cell
}

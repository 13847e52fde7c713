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
	for _, p := range c.pools() {
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
	s := Strip{ClusterCIDR: p.Name, CIDR: part, BlockPrefixLength: blockBits}
	s.State, _ = c.ready(p)
	cell := netip.PrefixFrom(part.Addr(), min(part.Bits()+bits, blockBits))
	for part.Contains(cell.Addr()) {
		s.Cells = append(s.Cells, c.cell(p, ipam.Range{Prefix: cell, BlockBits: blockBits}))
		cell = netip.PrefixFrom(lastOf(cell).Next(), cell.Bits()) // not valid behind the last address of a family, which nothing contains
	}
	return s
}

func (c *Cluster) cell(p *pool.Pool, r ipam.Range) Cell {
	cell := Cell{CIDR: r.Prefix, Total: r.Blocks(), Free: c.free(p, r)}
	var widest holding // of those so far: what comes next lies in it, or behind it
	for _, h := range c.holdings(r.Prefix) {
		switch {
		case h.service != "":
			cell.Service = true
		case h.reserved():
			cell.Reserved = true
		default:
			cell.Allocated = true
		}
		if !widest.IsValid() || !widest.Overlaps(h.Prefix) {
			widest = h
		} else if !widest.same(&h) && (widest.node != nil || h.node != nil) {
			cell.Conflict = true
		}
	}
	return cell
}

// lastOf returns the last address of a prefix.
func lastOf(p netip.Prefix) netip.Addr {
	bytes := p.Addr().AsSlice()
	for i := p.Bits(); i < len(bytes)*8; i++ {
		bytes[i/8] |= 0x80 >> (i % 8)
	}
	last, _ := netip.AddrFromSlice(bytes)
	return last
}

package inspect

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/multicidr/controller-manager/controllers/ipam"
	"github.com/multicidr/controller-manager/controllers/nodeipam/clustercidr"
)

// Map shows what addresses are for: of all ranges, or of one part of the address space.
type Map struct {
	// View is what the map shows; the zero value is all ranges.
	View netip.Prefix `json:"view,omitzero"`
	// Parts are the ranges, in address order; each comes before those that it contains.
	Parts []Part `json:"parts"`
	// OutOfRange are podCIDRs in none of them, in address order. Only the first are Parts.
	OutOfRange int `json:"outOfRange,omitempty"`
}

// Part is a prefix on a map, with all that has exactly this prefix.
type Part struct {
	CIDR  netip.Prefix `json:"cidr"`
	Depth int          `json:"depth"` // how many other parts contain it
	// What are the names: of ClusterCIDRs with the size of their blocks, of ServiceCIDRs, and of Nodes out of range.
	What []string `json:"what"`
	// Runs are what its addresses are for.
	Runs []Run `json:"runs"`
}

// maxForeign is how many podCIDRs out of range are parts of a map. There can be as many as Nodes.
const maxForeign = 10

// Map shows all ranges, or those in a part of the address space and around it.
func (c *Cluster) Map(view netip.Prefix) Map {
	c.settle()
	m := Map{View: view, Parts: []Part{}}
	what := map[netip.Prefix][]string{}
	add := func(p netip.Prefix, name string) {
		if !view.IsValid() || view.Overlaps(p) {
			what[p] = append(what[p], name)
		}
	}
	for _, p := range c.state.Pools() {
		for _, r := range p.Ranges {
			add(r.Prefix, fmt.Sprintf("ClusterCIDR %s /%d%s", p.Name, r.BlockBits, c.closed(p)))
		}
	}
	for _, all := range []netip.Prefix{netip.PrefixFrom(netip.IPv4Unspecified(), 0), netip.PrefixFrom(netip.IPv6Unspecified(), 0)} {
		for _, h := range c.state.Holdings(all) {
			if h.Owner.Kind == ipam.Service {
				add(h.Prefix, h.Owner.ID)
			}
		}
	}
	c.addForeign(&m, add)
	for prefix, names := range what {
		slices.Sort(names)
		m.Parts = append(m.Parts, Part{CIDR: prefix, What: names})
	}
	slices.SortFunc(m.Parts, func(a, b Part) int { return comparePrefixes(a.CIDR, b.CIDR) })
	c.nest(m.Parts)
	return m
}

// nest fills in how deep each of these parts lies in others, and what its addresses are for. They are in order.
func (c *Cluster) nest(parts []Part) {
	var around []netip.Prefix // those that contain the one at hand
	var runs []Run            // of the outermost of them
	for i := range parts {
		part := &parts[i]
		for len(around) > 0 && !around[len(around)-1].Contains(part.CIDR.Addr()) {
			around = around[:len(around)-1]
		}
		if part.Depth = len(around); part.Depth == 0 {
			runs = c.Runs(part.CIDR)
		}
		part.Runs = within(runs, part.CIDR)
		around = append(around, part.CIDR)
	}
}

// comparePrefixes orders IPv4 before IPv6, and a prefix before those that it contains.
func comparePrefixes(a, b netip.Prefix) int {
	return cmp.Or(a.Addr().Compare(b.Addr()), cmp.Compare(a.Bits(), b.Bits()))
}

// closed says why a ClusterCIDR allocates nothing; empty if it can.
func (c *Cluster) closed(p *clustercidr.Pool) string {
	if p.State == ipam.Enabled {
		return ""
	}
	return ", " + c.state.Ready(p).Reason
}

// addForeign adds the first podCIDRs that lie in no ClusterCIDR.
func (c *Cluster) addForeign(m *Map, add func(netip.Prefix, string)) {
	type podCIDR struct {
		block netip.Prefix
		node  string
	}
	var foreign []podCIDR
	for _, node := range c.Nodes {
		blocks, _ := clustercidr.PodCIDRsOf(node)
		for _, block := range blocks {
			if c.state.OutOfRange([]netip.Prefix{block}) && (!m.View.IsValid() || m.View.Overlaps(block)) {
				foreign = append(foreign, podCIDR{block, node.Name})
			}
		}
	}
	m.OutOfRange = len(foreign)
	slices.SortFunc(foreign, func(a, b podCIDR) int {
		return cmp.Or(comparePrefixes(a.block, b.block), strings.Compare(a.node, b.node))
	})
	for _, f := range foreign[:min(len(foreign), maxForeign)] {
		add(f.block, "Node "+f.node)
	}
}

// Ranges returns the ranges of a ClusterCIDR.
func (c *Cluster) Ranges(name string) (ranges []netip.Prefix, ok bool) {
	p, ok := c.state.Pool(name)
	if !ok {
		return nil, false
	}
	for _, r := range p.Ranges {
		ranges = append(ranges, r.Prefix)
	}
	return ranges, true
}

// SmallestBlock returns the prefix length of the smallest blocks of ClusterCIDRs in a part of the address space; that of single addresses
// if there are none.
func (c *Cluster) SmallestBlock(view netip.Prefix) int {
	smallest := 0
	for _, p := range c.state.Pools() {
		for _, r := range p.Ranges {
			if r.Prefix.Overlaps(view) {
				smallest = max(smallest, r.BlockBits)
			}
		}
	}
	if smallest <= view.Bits() {
		return view.Addr().BitLen()
	}
	return smallest
}

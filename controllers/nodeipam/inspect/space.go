package inspect

import (
	"cmp"
	"net/netip"
	"slices"

	"k8s.io/apimachinery/pkg/types"

	"github.com/multicidr/controller-manager/controllers/ipam"
	"github.com/multicidr/controller-manager/controllers/nodeipam/clustercidr"
)

// Class is what addresses are for.
type Class int

const (
	ClassOutside     Class = iota // in no range
	ClassFree                     // a ClusterCIDR can allocate them
	ClassClosed                   // free, but all ClusterCIDRs with them allocate nothing
	ClassExcluded                 // all ClusterCIDRs with them exclude them
	ClassServices                 // in a service range
	ClassUsed                     // in a Node's podCIDRs
	ClassKept                     // reserved for a Node that does not show them yet
	ClassForeign                  // in podCIDRs of a Node, and in no ClusterCIDR
	ClassConflicting              // of several Nodes, or of a Node and in a service range
	Classes                       // how many there are
)

var classNames = [Classes]string{"Outside", "Free", "Closed", "Excluded", "Service", "Allocated", "Reserved", "OutOfRange", "Conflicting"}

func (c Class) String() string { return classNames[c] }

// MarshalText writes the class's name.
func (c Class) MarshalText() ([]byte, error) { return []byte(c.String()), nil }

// Run is the largest number of adjacent addresses of the same class.
type Run struct {
	First netip.Addr `json:"first"`
	Last  netip.Addr `json:"last"`
	Class Class      `json:"class"`
}

// Runs divides a part of the address space by what its addresses are for, in address order and without gaps.
func (c *Cluster) Runs(view netip.Prefix) []Run {
	c.settle()
	var e edges
	for _, p := range c.state.Pools() {
		opens := p.State == ipam.Enabled
		for _, r := range p.Ranges {
			e.add(view, r.Prefix, counts{ranges: 1, open: btoi(opens)})
		}
		for excluded := range ownExclusions(p) {
			e.add(view, excluded, counts{excluded: 1, open: -btoi(opens)})
		}
	}
	for _, h := range c.state.Holdings(view) {
		switch {
		case h.Owner.Kind == ipam.Service:
			e.add(view, h.Prefix, counts{services: 1})
		case h.Owner.Kind == ipam.Node && c.shows(types.UID(h.Owner.ID)):
			e.add(view, h.Prefix, counts{nodes: 1})
		default:
			e.add(view, h.Prefix, counts{kept: 1})
		}
	}
	return e.runs(view)
}

// shows reports whether a Node shows its blocks.
func (c *Cluster) shows(uid types.UID) bool {
	node, ok := c.nodes[c.state.NameOfNode(uid)]
	return ok && clustercidr.ShowsPodCIDRs(node)
}

// ownExclusions yields the parts of p's ranges that p excludes, each address once.
func ownExclusions(p *clustercidr.Pool) func(yield func(netip.Prefix) bool) {
	return func(yield func(netip.Prefix) bool) {
		for _, r := range p.Ranges {
			var last netip.Prefix
			for excluded := range p.Excluded.Overlapping(r.Prefix) { // one comes before those that it contains
				if excluded.Bits() < r.Prefix.Bits() {
					excluded = r.Prefix
				}
				if last.IsValid() && last.Overlaps(excluded) {
					continue
				}
				if last = excluded; !yield(excluded) {
					return
				}
			}
		}
	}
}

// counts are how many there are of everything at an address.
type counts struct{ ranges, open, excluded, services, nodes, kept int }

func (n *counts) add(m counts, sign int) {
	n.ranges += sign * m.ranges
	n.open += sign * m.open
	n.excluded += sign * m.excluded
	n.services += sign * m.services
	n.nodes += sign * m.nodes
	n.kept += sign * m.kept
}

func (n counts) class() Class {
	switch holders := n.nodes + n.kept; {
	case holders > 1, holders > 0 && n.services > 0:
		return ClassConflicting
	case n.services > 0:
		return ClassServices
	case n.kept > 0:
		return ClassKept
	case n.nodes > 0 && n.ranges > 0:
		return ClassUsed
	case n.nodes > 0:
		return ClassForeign
	case n.ranges == 0:
		return ClassOutside
	case n.excluded == n.ranges:
		return ClassExcluded
	case n.open > 0:
		return ClassFree
	default:
		return ClassClosed
	}
}

// edges are where counts change.
type edges []edge

type edge struct {
	at   netip.Addr // not valid: behind the last address of the family
	sign int
	counts
}

// add adds a prefix, as far as it lies in the view.
func (e *edges) add(view, p netip.Prefix, n counts) {
	if !view.Overlaps(p) {
		return
	}
	if p.Bits() < view.Bits() {
		p = view
	}
	*e = append(*e, edge{p.Addr(), 1, n}, edge{lastOf(p).Next(), -1, n})
}

func (e edges) runs(view netip.Prefix) (runs []Run) {
	slices.SortFunc(e, func(a, b edge) int {
		return cmp.Or(-cmp.Compare(btoi(a.at.IsValid()), btoi(b.at.IsValid())), a.at.Compare(b.at))
	})
	var now counts
	at, last := view.Addr(), lastOf(view)
	until := func(end netip.Addr) {
		switch n := len(runs); {
		case n > 0 && runs[n-1].Class == now.class():
			runs[n-1].Last = end
		default:
			runs = append(runs, Run{at, end, now.class()})
		}
	}
	for _, x := range e {
		if !x.at.IsValid() || x.at.Compare(last) > 0 {
			break
		}
		if x.at != at {
			until(x.at.Prev())
			at = x.at
		}
		now.add(x.counts, x.sign)
	}
	until(last)
	return runs
}

// within returns the runs of a part of what they divide.
func within(runs []Run, p netip.Prefix) []Run {
	last := lastOf(p)
	from, _ := slices.BinarySearchFunc(runs, p.Addr(), func(r Run, a netip.Addr) int { return r.Last.Compare(a) })
	to, found := slices.BinarySearchFunc(runs, last, func(r Run, a netip.Addr) int { return r.First.Compare(a) })
	if found {
		to++
	}
	part := slices.Clone(runs[from:to])
	part[0].First, part[len(part)-1].Last = p.Addr(), last
	return part
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

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}

// Cell is one of the equal parts that a prefix is divided into.
type Cell struct {
	Prefix netip.Prefix `json:"cidr"`
	// Has is which classes its addresses have, and Share how much of it each has, from 0 to 1. A share that is too small for a number is 0.
	Has   [Classes]bool    `json:"-"`
	Share [Classes]float64 `json:"-"`
}

// Most returns the class to show for a cell: a problem before all others, and else the one of most addresses.
func (c *Cell) Most() (most Class) {
	for _, class := range []Class{ClassConflicting, ClassForeign} {
		if c.Has[class] {
			return class
		}
	}
	for class := range Classes {
		if c.Has[class] && (!c.Has[most] || c.Share[class] > c.Share[most]) {
			most = class
		}
	}
	return most
}

// Cells divides a prefix into 2^n equal parts, or into its addresses if it has fewer.
func Cells(view netip.Prefix, n int, runs []Run) []Cell {
	n = min(n, view.Addr().BitLen()-view.Bits())
	bits := view.Bits() + n
	cells := make([]Cell, 1<<n)
	i := 0
	for address := view.Addr(); i < len(cells); address = lastOf(cells[i-1].Prefix).Next() {
		cells[i].Prefix = netip.PrefixFrom(address, bits)
		i++
	}
	i = 0
	for _, run := range runs {
		for ; i < len(cells); i++ {
			cell := &cells[i]
			first, last := later(run.First, cell.Prefix.Addr()), lastOf(cell.Prefix)
			if run.Last.Less(last) {
				last = run.Last
			}
			cell.Has[run.Class] = true
			cell.Share[run.Class] += share(cell.Prefix, first, last)
			if last == run.Last && last != lastOf(cell.Prefix) {
				break // The next run begins in this cell.
			}
			if last == run.Last {
				i++
				break
			}
		}
	}
	return cells
}

func later(a, b netip.Addr) netip.Addr {
	if a.Less(b) {
		return b
	}
	return a
}

// share returns how much of a prefix the addresses from first to last are.
func share(p netip.Prefix, first, last netip.Addr) float64 {
	return min(offset(p, last)+1/sizeOf(p), 1) - offset(p, first)
}

// offset returns how much of a prefix lies before one of its addresses.
func offset(p netip.Prefix, at netip.Addr) (n float64) {
	scale := 1.0
	bytes := at.As16()
	for i := 128 - at.BitLen() + p.Bits(); i < 128; i++ {
		if scale /= 2; bytes[i/8]&(0x80>>(i%8)) != 0 {
			n += scale
		}
	}
	return n
}

func sizeOf(p netip.Prefix) float64 {
	n := 1.0
	for range p.Addr().BitLen() - p.Bits() {
		n *= 2
	}
	return n
}

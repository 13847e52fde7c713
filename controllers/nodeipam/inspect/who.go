package inspect

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/multicidr/controller-manager/controllers/ipam"
	"github.com/multicidr/controller-manager/controllers/nodeipam/pool"
	"github.com/multicidr/controller-manager/controllers/text"
)

// Kind is what an address is for.
type Kind string

const (
	KindNode        Kind = "Node"        // it lies in the Node's podCIDRs, or contains them
	KindNodeAddress Kind = "NodeAddress" // it is an address of the Node itself
	KindService     Kind = "Service"     // it lies in a service range
	KindClusterCIDR Kind = "ClusterCIDR" // it lies in a range of the ClusterCIDR
	KindExcluded    Kind = "Excluded"    // the ClusterCIDR excludes it
)

// Use is one use of addresses.
type Use struct {
	Kind Kind         `json:"kind"`
	Name string       `json:"name"` // of the object, or the source of the service range
	CIDR netip.Prefix `json:"cidr"`
	Note string       `json:"note,omitempty"`
}

// Owners says who has an address or a CIDR.
type Owners struct {
	CIDR netip.Prefix `json:"cidr"`
	// Answer is the whole answer in a sentence or two.
	Answer string `json:"answer"`
	// Node is the only Node that has all of it in its podCIDRs; empty if there is none or more than one.
	Node string `json:"node,omitempty"`
	Uses []Use  `json:"uses"`
}

// Nobody reports whether no Node, Node's own address or service range has any of the addresses.
func (o *Owners) Nobody() bool {
	return !slices.ContainsFunc(o.Uses, func(use Use) bool { return use.Kind != KindClusterCIDR && use.Kind != KindExcluded })
}

// Nodes are the names of the Nodes that have any of the addresses, in podCIDRs or as their own.
func (o *Owners) Nodes() (names []string) {
	for _, use := range o.Uses {
		if (use.Kind == KindNode || use.Kind == KindNodeAddress) && !slices.Contains(names, use.Name) {
			names = append(names, use.Name)
		}
	}
	return names
}

// Who says who has addresses of a CIDR now. Reservations for pending Nodes are not in it: no Node has these blocks.
func (c *Cluster) Who(cidr netip.Prefix) Owners {
	o := Owners{CIDR: cidr, Uses: []Use{}}
	for h := range c.state.Holdings(cidr) {
		switch {
		case h.Owner.Kind == ipam.Service:
			o.Uses = append(o.Uses, Use{KindService, h.Owner.ID, h.Prefix, "no Node gets these addresses"})
		case c.shows(h.Owner):
			o.Uses = append(o.Uses, Use{KindNode, h.Owner.ID, h.Prefix, origin(c.state.BelongsTo(h.Owner.ID))})
		}
	}
	for _, node := range c.nodes {
		for _, address := range pool.AddressesOf(node) {
			if cidr.Overlaps(address) {
				o.Uses = append(o.Uses, Use{KindNodeAddress, node.Name, address, "the Node's own address"})
			}
		}
	}
	for _, p := range c.state.Pools() {
		o.Uses = append(o.Uses, c.poolUses(p, cidr)...)
	}
	o.conclude()
	return o
}

// origin says which ClusterCIDRs podCIDRs belong to.
func origin(clusterCIDRs []string) string {
	if len(clusterCIDRs) == 0 {
		return "in no ClusterCIDR"
	}
	return "in " + strings.Join(clusterCIDRs, ", ")
}

// poolUses says what a ClusterCIDR does with addresses.
func (c *Cluster) poolUses(p *pool.Pool, cidr netip.Prefix) (uses []Use) {
	for excluded := range p.Excluded.Overlapping(cidr) {
		uses = append(uses, Use{KindExcluded, p.Name, excluded, "blocks with addresses in spec.excludedCIDRs"})
	}
	for _, r := range p.Ranges {
		if !r.Prefix.Overlaps(cidr) {
			continue
		}
		uses = append(uses, Use{KindClusterCIDR, p.Name, r.Prefix, c.blocksNote(p, r, cidr)})
	}
	return uses
}

// blocksNote says which blocks of a range the addresses lie in, and whether they are free.
func (c *Cluster) blocksNote(p *pool.Pool, r ipam.Range, cidr netip.Prefix) string {
	if cidr.Bits() < r.BlockBits { // more than one block, or part of the range
		within := r
		if cidr.Bits() > r.Prefix.Bits() {
			within.Prefix = cidr
		}
		return fmt.Sprintf("%s of %s blocks /%d in it are free", Count(c.state.Free(p, within)), Count(within.Blocks()), r.BlockBits)
	}
	block := netip.PrefixFrom(cidr.Addr(), r.BlockBits).Masked()
	if c.state.Free(p, ipam.Range{Prefix: block, BlockBits: r.BlockBits}) == 0 {
		return fmt.Sprintf("block %v is not free", block)
	}
	if p.State != ipam.Enabled {
		return fmt.Sprintf("block %v is free, but the ClusterCIDR allocates nothing: %s", block, c.state.Ready(p).Reason)
	}
	return fmt.Sprintf("block %v is free", block)
}

// conclude sums up: the first use that tells most is the answer.
func (o *Owners) conclude() {
	by := map[Kind][]Use{}
	for _, use := range o.Uses {
		by[use.Kind] = append(by[use.Kind], use)
	}
	what, nodes, own := o.what(), by[KindNode], by[KindNodeAddress]
	around := slices.DeleteFunc(slices.Clone(nodes), func(use Use) bool { return !o.liesIn(use) })
	switch {
	case len(around) == 1 && len(nodes) == 1:
		o.Node = around[0].Name
		o.Answer = fmt.Sprintf("%s belongs to Node %s: it lies in the Node's podCIDR %v.", what, o.Node, around[0].CIDR)
	case len(around) > 1:
		o.Answer = fmt.Sprintf("%s is in podCIDRs of %d Nodes. Replace each Node that should not have them: %s.", what, len(around), text.Replace)
	case len(nodes) > 0:
		o.Answer = fmt.Sprintf("%s contains podCIDRs of %s.", what, text.Counted(distinct(nodes), "Node", "Nodes"))
	default:
		o.Answer = o.withoutNodes(what, by)
	}
	if len(own) > 0 && o.CIDR.IsSingleIP() {
		also := ""
		if len(nodes) > 0 {
			also = " Pods can get it, too: " + o.Answer
		}
		o.Answer = fmt.Sprintf("%s is an address of Node %s itself.%s", what, own[0].Name, also)
	}
}

// withoutNodes is the answer if no Node has any of the addresses in its podCIDRs.
func (o *Owners) withoutNodes(what string, by map[Kind][]Use) string {
	services, ranges, excluded := by[KindService], by[KindClusterCIDR], by[KindExcluded]
	lies := func(use Use) string {
		if o.liesIn(use) {
			return "lies in"
		}
		return "contains"
	}
	switch {
	case len(services) > 0:
		return fmt.Sprintf("%s %s the service range %v of %s. No Node gets addresses of it.", what, lies(services[0]), services[0].CIDR, services[0].Name)
	case len(ranges) == 0:
		return what + " lies in no ClusterCIDR and in no service range. No Node has it."
	case len(ranges) > 1:
		return fmt.Sprintf("No Node has %s. %d ClusterCIDRs have such addresses.", what, distinct(ranges))
	case slices.ContainsFunc(excluded, o.liesIn):
		return fmt.Sprintf("No Node has %s. It lies in ClusterCIDR %s, which excludes %v.", what, ranges[0].Name, excluded[0].CIDR)
	default:
		return fmt.Sprintf("No Node has %s. It %s %v of ClusterCIDR %s: %s.", what, lies(ranges[0]), ranges[0].CIDR, ranges[0].Name, ranges[0].Note)
	}
}

// what is the address or the CIDR.
func (o *Owners) what() string {
	if o.CIDR.IsSingleIP() {
		return o.CIDR.Addr().String()
	}
	return o.CIDR.String()
}

// liesIn reports whether a use has all of the addresses.
func (o *Owners) liesIn(use Use) bool { return use.CIDR.Bits() <= o.CIDR.Bits() }

// distinct returns the number of different names.
func distinct(uses []Use) int {
	names := map[string]bool{}
	for _, use := range uses {
		names[use.Name] = true
	}
	return len(names)
}

package allocator

import (
	"cmp"
	"encoding/binary"
	"net/netip"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	networkingv1 "github.com/multicidr/controller-manager/apis/networking/v1"
	"github.com/multicidr/controller-manager/controllers/ipam"
	"github.com/multicidr/controller-manager/controllers/nodeipam/clustercidr"
)

// shown is what the state learns about one Node at startup.
type shown struct {
	node       *v1.Node
	entry      *nodeEntry // nil if there is nothing to record
	blocks     []netip.Prefix
	unreadable bool // some podCIDRs cannot be parsed
	unusual    bool // there is more to record than the blocks it holds
}

// Rebuild does the same as Observe for one Node after the other, but much faster. The state must have all pools and service ranges, and no
// Nodes. Rebuild uses several processors, does not look for earlier holdings, and sizes its maps in advance. each must call f once for
// every index below n, in any order or concurrently, and return when all calls have returned. All pools are new, so their status is
// rechecked anyway. Rebuild returns the Nodes that need work, oldest first.
//
// With very many Nodes, nearly all of the time is spent waiting for memory. So blocks are recorded in address order: then the data that the
// next block needs is already in the processor's cache.
func (b *State) Rebuild(nodes []*v1.Node, each func(n int, f func(i int))) []*v1.Node {
	all := make([]shown, len(nodes))
	each(len(nodes), func(i int) {
		node := nodes[i]
		blocks, unreadable := clustercidr.PodCIDRsOf(node)
		all[i] = shown{node: node, blocks: blocks, unreadable: len(unreadable) > 0}
		if len(blocks) > 0 {
			all[i].entry = &nodeEntry{uid: node.UID, pool: node.Annotations[networkingv1.AnnotationClusterCIDR], state: Assigned, atStart: true}
			all[i].unusual = !slices.ContainsFunc(blocks, b.ranges.Contain)
		}
	})

	b.nodes, b.names = make(map[string]*nodeEntry, len(all)), make(map[types.UID]string, len(all))
	b.ledger.Expect(len(all))
	alone := true
	enter := func() {
		for i := range all {
			s := &all[i]
			addresses := clustercidr.AddressesOf(s.node)
			if s.entry == nil {
				if len(addresses) == 0 {
					continue
				}
				s.entry = &nodeEntry{uid: s.node.UID}
			}
			s.entry.addresses = b.near.Replace(nil, addresses)
			s.unusual = s.unusual || slices.ContainsFunc(addresses, b.ranges.Contain)
			b.nodes[s.node.Name], b.names[s.entry.uid] = s.entry, s.node.Name
			if s.entry.state == Assigned {
				b.holding++
			}
		}
	}
	hold := func() {
		for _, o := range byFirstBlock(all) {
			alone = b.ledger.Hold(o.owner, o.blocks...) && alone
		}
	}
	each(2, func(i int) { []func(){enter, hold}[i]() })
	if !alone { // A Node shares addresses with another owner, or its own blocks overlap.
		each(len(all), func(i int) {
			all[i].unusual = all[i].unusual || b.Shares(all[i].node.UID)
		})
	}
	return b.lookClosely(all)
}

// lookClosely records what is unusual, and returns the Nodes that need work, oldest first.
func (b *State) lookClosely(all []shown) (open []*v1.Node) {
	for _, s := range all {
		if s.unusual {
			b.locate(s.entry)
			b.judge(s.entry.uid)
		}
		if !clustercidr.ShowsPodCIDRs(s.node) || s.unreadable {
			open = append(open, s.node) // judge marks Nodes in conflict for a recheck
			b.queue(s.node)
		}
	}
	slices.SortFunc(open, func(x, y *v1.Node) int {
		return cmp.Or(x.CreationTimestamp.Compare(y.CreationTimestamp.Time), strings.Compare(x.Name, y.Name))
	})
	return open
}

// ownedBlocks are the blocks that a Node holds.
type ownedBlocks struct {
	owner  ipam.Owner
	blocks []netip.Prefix
}

// byFirstBlock returns the blocks of all Nodes that hold any, ordered by the address of their first block.
func byFirstBlock(all []shown) []ownedBlocks {
	type place struct {
		first uint64 // the first 64 bits of the address; for IPv6, only a part of it
		index int32
	}
	order := make([]place, 0, len(all))
	for i := range all {
		if blocks := all[i].blocks; len(blocks) > 0 {
			first := blocks[0].Addr().As16()
			bits := first[:8]
			if blocks[0].Addr().Is4() {
				bits = first[8:]
			}
			order = append(order, place{binary.BigEndian.Uint64(bits), int32(i)})
		}
	}
	slices.SortFunc(order, func(x, y place) int { return cmp.Compare(x.first, y.first) })
	sorted := make([]ownedBlocks, len(order))
	for i, o := range order {
		s := &all[o.index]
		sorted[i] = ownedBlocks{OwnerOf(s.node.UID), s.blocks}
	}
	return sorted
}

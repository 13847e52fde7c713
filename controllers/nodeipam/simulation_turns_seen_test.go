package nodeipam

import (
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"

	networkingv1 "github.com/multicidr/controller-manager/apis/networking/v1"
	"github.com/multicidr/controller-manager/controllers/ipam"
	"github.com/multicidr/controller-manager/controllers/nodeipam/allocator"
)

// Nobody is overtaken: who is allocated blocks of a ClusterCIDR is the oldest of the pending Nodes that it selects, exactly. So what is chosen
// between two looks at a process is judged in the order of age, each choice by the slow reference, and after it no older Node may be left
// without blocks that was pending before.

// turnsSeen is what a process had before and what it has chosen since.
type turnsSeen struct {
	pending map[string]*v1.Node // Nodes without blocks, at the last look
	chosen  []choice
}

// choice is a reservation for a Node from a ClusterCIDR.
type choice struct {
	node *v1.Node
	from string
}

// followAll judges what has become of the reservations of all Nodes.
func (p *process) followAll() {
	nodes := slices.SortedFunc(maps.Values(p.seen.nodes), p.byAge)
	for _, node := range nodes { // What was given up may have been chosen for others.
		held := p.controller.state.HeldBy(allocator.OwnerOf(node.UID))
		if before, known := p.seen.reserved[node.UID]; known && len(node.Spec.PodCIDRs) == 0 && !slices.Equal(held, before.Blocks) {
			p.gaveUp(node, before)
		}
	}
	for _, node := range nodes {
		if p.follow(node); p.w.violation != nil {
			return
		}
	}
	for _, c := range p.turns.chosen {
		p.judgeOrder(c)
	}
	for _, node := range nodes {
		p.followSameAgain(node)
	}
	p.turns = turnsSeen{pending: map[string]*v1.Node{}}
	for _, node := range nodes {
		if p.needsBlocks(node) {
			p.turns.pending[node.Name] = node
		}
	}
}

// followSameAgain: a Node gives up its blocks for a ClusterCIDR that comes first and waits for its finalizer. If that cannot be added, the Node may
// be allocated the same blocks again before anybody looks at the process, and only the cursors tell.
func (p *process) followSameAgain(node *v1.Node) {
	r, ok := p.seen.reserved[node.UID]
	if !ok || len(p.seen.writes[node.UID]) > 0 || !slices.ContainsFunc(p.seen.candidatesFor(node), func(cc *networkingv1.ClusterCIDR) bool {
		reason, _ := p.seen.ready(cc)
		return reason == networkingv1.ReasonPending
	}) {
		return
	}
	for _, pool := range p.controller.state.Pools() {
		if pool.Name == r.ClusterCIDR && !slices.ContainsFunc(r.Blocks, func(b netip.Prefix) bool {
			return p.controller.state.Cursor(pool, ipam.FamilyOf(b)) != behind(b)
		}) {
			p.seen.reserve(node, r)
		}
	}
}

func (p *process) needsBlocks(node *v1.Node) bool {
	return len(node.Spec.PodCIDRs) == 0 && node.DeletionTimestamp == nil && len(p.seen.reserved[node.UID].Blocks) == 0
}

// byAge orders Nodes by the time since when they are pending, then by name.
func (p *process) byAge(a, b *v1.Node) int {
	if c := p.since(a).Compare(p.since(b)); c != 0 {
		return c
	}
	return strings.Compare(a.Name, b.Name)
}

func (p *process) since(node *v1.Node) time.Time {
	if n, ok := p.controller.state.Node(node.Name); ok && n.UID == node.UID && !n.GaveWay.IsZero() {
		return n.GaveWay // behind those for which it gave up what it had
	}
	return node.CreationTimestamp.Time
}

// judgeOrder judges whether somebody was overtaken by a choice.
func (p *process) judgeOrder(c choice) {
	from := p.seen.clusterCIDRs[c.from]
	for _, name := range sortedNames(p.turns.pending) {
		older := p.seen.nodes[name]
		if from == nil || older != p.turns.pending[name] || p.byAge(older, c.node) >= 0 || !p.needsBlocks(older) || p.controller.state.Undecided(name) || p.stepsBack(name) {
			continue
		}
		_, known := p.controller.state.Node(name)
		if _, waits := p.controller.state.Pending(name); !known && !waits {
			continue // A write has told that it is gone, and the cache still shows it.
		}
		for _, cc := range p.seen.candidatesFor(older) {
			if reason, _ := p.seen.ready(cc); reason == networkingv1.ReasonPending {
				break // It waits for this one's finalizer.
			}
			if cc == from {
				p.w.violate("nobody is overtaken", "%s chose blocks of ClusterCIDR %s for Node %s, and the older Node %s, which it selects, has none", p.name, c.from, c.node.Name, name)
				return
			}
		}
		p.w.cover("an older Node waits for something else")
	}
}

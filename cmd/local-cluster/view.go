package main

import (
	"cmp"
	"fmt"
	"math"
	"net/netip"
	"slices"
	"strings"
	"text/tabwriter"

	corev1 "k8s.io/api/core/v1"
	networkingapiv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"

	networkingv1 "github.com/multicidr/controller-manager/apis/networking/v1"
)

// reasonWaiting is the event that says why a Node waits.
const reasonWaiting = "CIDRNotAvailable"

// view is what a person sees of the cluster at one moment. It is computed from objects alone: an event outlives what it tells of, so of
// events only the reason is taken why a Node waits that still does.
type view struct {
	nodes        []nodeRow
	clusterCIDRs []clusterCIDRRow
}

type nodeRow struct {
	name, group  string
	podCIDRs     string
	clusterCIDR  string // empty: its podCIDRs, if it has some, are from somebody else
	conflict     bool   // its podCIDRs share addresses with another Node or a service range
	outside      bool   // no ClusterCIDR contains any of its podCIDRs
	waitsBecause string // empty: it has podCIDRs, or was not looked at yet
	// couldBeServed: a ClusterCIDR that selects the Node has a block to spare.
	couldBeServed bool
}

func (n nodeRow) has() bool    { return n.podCIDRs != "" }
func (n nodeRow) served() bool { return n.has() && n.clusterCIDR != "" }

// from says where the podCIDRs are from, and what is wrong with them in the words of the events about it.
func (n nodeRow) from() string {
	if !n.has() {
		return "waits"
	}
	texts := []string{cmp.Or(n.clusterCIDR, "others")}
	if n.conflict {
		texts = append(texts, "CIDRConflict")
	}
	if n.outside {
		texts = append(texts, "CIDROutsideRanges")
	}
	return strings.Join(texts, ", ")
}

// urgency orders Nodes by how much they need somebody's eyes.
func (n nodeRow) urgency() int {
	switch {
	case !n.has():
		return 0
	case n.conflict || n.outside:
		return 1
	default:
		return 2
	}
}

type clusterCIDRRow struct {
	name, ranges, blocks string
	nodes                int64
	state                string
}

func newView(nodes []*corev1.Node, clusterCIDRs []*networkingv1.ClusterCIDR, services []*networkingapiv1.ServiceCIDR, events []*corev1.Event) view {
	servedBy := map[string]int64{}
	for _, node := range nodes {
		if len(node.Spec.PodCIDRs) > 0 {
			servedBy[node.Annotations[networkingv1.AnnotationClusterCIDR]]++
		}
	}
	latest := newest(events)
	conflicting := conflicts(nodes, services)

	var v view
	for _, node := range nodes {
		row := nodeRow{
			name:        node.Name,
			group:       node.Labels[poolLabel],
			podCIDRs:    strings.Join(node.Spec.PodCIDRs, ", "),
			clusterCIDR: node.Annotations[networkingv1.AnnotationClusterCIDR],
			conflict:    conflicting[node.Name],
			outside:     outside(node, clusterCIDRs),
		}
		if event, ok := latest[node.UID]; ok && !row.has() {
			row.waitsBecause = event.Message
		}
		row.couldBeServed = slices.ContainsFunc(clusterCIDRs, func(cc *networkingv1.ClusterCIDR) bool {
			return cc.Spec.Allocation != networkingv1.AllocationDisabled && cc.DeletionTimestamp == nil &&
				selects(cc, node) && servedBy[cc.Name] < blocks(cc)
		})
		v.nodes = append(v.nodes, row)
	}
	for _, cc := range clusterCIDRs {
		v.clusterCIDRs = append(v.clusterCIDRs, clusterCIDRRow{
			name: cc.Name, ranges: ranges(cc), blocks: blockSizes(cc), nodes: servedBy[cc.Name], state: state(cc),
		})
	}
	slices.SortFunc(v.nodes, func(a, b nodeRow) int {
		return cmp.Or(cmp.Compare(a.urgency(), b.urgency()), cmp.Compare(a.group, b.group), cmp.Compare(a.name, b.name))
	})
	slices.SortFunc(v.clusterCIDRs, func(a, b clusterCIDRRow) int { return cmp.Compare(a.name, b.name) })
	return v
}

// newest is the last event of each Node that says why it waits.
func newest(events []*corev1.Event) map[types.UID]*corev1.Event {
	latest := map[types.UID]*corev1.Event{}
	for _, event := range events {
		old, ok := latest[event.InvolvedObject.UID]
		if event.Reason == reasonWaiting && (!ok || old.LastTimestamp.Before(&event.LastTimestamp)) {
			latest[event.InvolvedObject.UID] = event
		}
	}
	return latest
}

// conflicts are the names of Nodes whose podCIDRs share addresses with another Node or a service range.
func conflicts(nodes []*corev1.Node, services []*networkingapiv1.ServiceCIDR) map[string]bool {
	type block struct {
		netip.Prefix
		node string // empty: a service range
	}
	var blocks []block
	for _, node := range nodes {
		for _, prefix := range parsed(node.Spec.PodCIDRs) {
			blocks = append(blocks, block{prefix, node.Name})
		}
	}
	for _, service := range services {
		for _, prefix := range parsed(service.Spec.CIDRs) {
			blocks = append(blocks, block{prefix, ""})
		}
	}
	// In this order a block stands before all that lie in it.
	slices.SortFunc(blocks, func(a, b block) int { return a.Compare(b.Prefix) })
	found := map[string]bool{}
	var around []block // those that contain the next one, widest first
	for _, b := range blocks {
		for len(around) > 0 && !around[len(around)-1].Overlaps(b.Prefix) {
			around = around[:len(around)-1]
		}
		for _, outer := range around {
			if outer.node != b.node {
				found[outer.node], found[b.node] = true, true
			}
		}
		around = append(around, b)
	}
	return found
}

// outside reports whether the Node has podCIDRs and none of them lies in a ClusterCIDR, although there are some.
func outside(node *corev1.Node, clusterCIDRs []*networkingv1.ClusterCIDR) bool {
	blocks := parsed(node.Spec.PodCIDRs)
	inside := slices.ContainsFunc(clusterCIDRs, func(cc *networkingv1.ClusterCIDR) bool {
		ranges, _ := families(cc)
		return slices.ContainsFunc(blocks, func(block netip.Prefix) bool {
			return slices.ContainsFunc(ranges, func(r netip.Prefix) bool { return r.Bits() <= block.Bits() && r.Contains(block.Addr()) })
		})
	})
	return len(blocks) > 0 && len(clusterCIDRs) > 0 && !inside
}

// parsed are those of the CIDRs that can be read.
func parsed(cidrs []string) (prefixes []netip.Prefix) {
	for _, cidr := range cidrs {
		if prefix, err := netip.ParsePrefix(cidr); err == nil {
			prefixes = append(prefixes, prefix.Masked())
		}
	}
	return prefixes
}

func (v view) count(is func(nodeRow) bool) (count int) {
	for _, node := range v.nodes {
		if is(node) {
			count++
		}
	}
	return count
}

// missing are the Nodes without podCIDRs although a ClusterCIDR that selects them has room.
func (v view) missing() (rows []nodeRow) {
	for _, node := range v.nodes {
		if !node.has() && node.couldBeServed {
			rows = append(rows, node)
		}
	}
	return rows
}

// lines are the tables, of at most maxNodes Nodes, and below them why Nodes wait.
func (v view) lines(maxNodes int) []string {
	var text strings.Builder
	table := tabwriter.NewWriter(&text, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "NODE\tGROUP\tPOD CIDRS\tFROM")
	shown := v.nodes[:min(len(v.nodes), maxNodes)]
	for _, node := range shown {
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\n", node.name, cmp.Or(node.group, "-"), cmp.Or(node.podCIDRs, "-"), node.from())
	}
	table.Flush()
	if more := len(v.nodes) - len(shown); more > 0 {
		fmt.Fprintf(&text, "... and %d more\n", more)
	}
	fmt.Fprintf(&text, "%s\n\n", v.summary())

	fmt.Fprintln(table, "CLUSTERCIDR\tRANGES\tBLOCK\tNODES\tSTATE")
	for _, cc := range v.clusterCIDRs {
		fmt.Fprintf(table, "%s\t%s\t%s\t%d\t%s\n", cc.name, cc.ranges, cc.blocks, cc.nodes, cc.state)
	}
	table.Flush()
	return append(strings.Split(strings.TrimSuffix(text.String(), "\n"), "\n"), v.waits()...)
}

func (v view) summary() string {
	var text strings.Builder
	fmt.Fprintf(&text, "%d of %d Nodes served", v.count(nodeRow.served), len(v.nodes))
	for _, part := range []struct {
		what string
		is   func(nodeRow) bool
	}{
		{"%d without podCIDRs", func(n nodeRow) bool { return !n.has() }},
		{"%d from somebody else", func(n nodeRow) bool { return n.has() && !n.served() }},
		{"%d in conflict", func(n nodeRow) bool { return n.conflict }},
	} {
		if count := v.count(part.is); count > 0 {
			fmt.Fprintf(&text, ", "+part.what, count)
		}
	}
	return text.String()
}

// waits says why Nodes wait, once for all that wait for the same reason. A few reasons must do.
func (v view) waits() (lines []string) {
	const most = 3
	var reasons []string
	waiting := map[string][]nodeRow{}
	for _, node := range v.nodes {
		if why := node.waitsBecause; why != "" {
			if waiting[why] == nil {
				reasons = append(reasons, why)
			}
			waiting[why] = append(waiting[why], node)
		}
	}
	for _, why := range reasons[:min(len(reasons), most)] {
		lines = append(lines, "", fmt.Sprintf("Waiting: %s. %s", names(waiting[why]), why))
	}
	return lines
}

// changes are the lines that tell what is new since the view before.
func (v view) changes(before view) (lines []string) {
	known := map[string]nodeRow{}
	for _, node := range before.nodes {
		known[node.name] = node
	}
	for _, node := range v.nodes {
		old, seen := known[node.name]
		delete(known, node.name)
		switch {
		case seen && old.podCIDRs == node.podCIDRs && old.waitsBecause == node.waitsBecause && old.from() == node.from():
		case node.has():
			lines = append(lines, fmt.Sprintf("Node %s: %s from %s", node.name, node.podCIDRs, node.from()))
		case node.waitsBecause != "":
			lines = append(lines, fmt.Sprintf("Node %s waits: %s", node.name, node.waitsBecause))
		}
	}
	for _, node := range before.nodes {
		if _, gone := known[node.name]; gone {
			lines = append(lines, fmt.Sprintf("Node %s is gone", node.name))
		}
	}
	return lines
}

func selects(cc *networkingv1.ClusterCIDR, node *corev1.Node) bool {
	if cc.Spec.NodeSelector == nil {
		return true
	}
	selector, err := nodeaffinity.NewNodeSelector(cc.Spec.NodeSelector)
	return err == nil && selector.Match(node)
}

// families are the ranges of a ClusterCIDR with the prefix length of a Node's block.
func families(cc *networkingv1.ClusterCIDR) (ranges []netip.Prefix, blockBits []int) {
	for _, cidr := range []string{cc.Spec.IPv4, cc.Spec.IPv6} {
		prefix, err := netip.ParsePrefix(cidr)
		if err != nil {
			continue
		}
		hostBits := cc.Spec.PerNodeHostBits
		if prefix.Addr().Is6() && cc.Spec.IPv6PerNodeHostBits != nil {
			hostBits = *cc.Spec.IPv6PerNodeHostBits
		}
		ranges = append(ranges, prefix.Masked())
		blockBits = append(blockBits, prefix.Addr().BitLen()-int(hostBits))
	}
	return ranges, blockBits
}

// blocks is how many Nodes a ClusterCIDR can serve, as if it had its ranges for itself.
func blocks(cc *networkingv1.ClusterCIDR) int64 {
	least := int64(math.MaxInt64)
	ranges, blockBits := families(cc)
	for i, prefix := range ranges {
		if indexBits := blockBits[i] - prefix.Bits(); indexBits < 63 {
			least = min(least, int64(1)<<max(indexBits, 0))
		}
	}
	return least
}

func ranges(cc *networkingv1.ClusterCIDR) string {
	var texts []string
	prefixes, _ := families(cc)
	for _, prefix := range prefixes {
		texts = append(texts, prefix.String())
	}
	return strings.Join(texts, ", ")
}

func blockSizes(cc *networkingv1.ClusterCIDR) string {
	var texts []string
	_, blockBits := families(cc)
	for _, bits := range blockBits {
		texts = append(texts, fmt.Sprintf("/%d", bits))
	}
	return strings.Join(texts, ", ")
}

func state(cc *networkingv1.ClusterCIDR) string {
	switch ready := meta.FindStatusCondition(cc.Status.Conditions, networkingv1.ConditionReady); {
	case cc.DeletionTimestamp != nil:
		return "Terminating"
	case ready != nil && ready.Status != "True":
		return ready.Reason
	case cc.Spec.Allocation == networkingv1.AllocationDisabled:
		return "Disabled"
	default:
		return "Enabled"
	}
}

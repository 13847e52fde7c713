package main

import (
	"cmp"
	"fmt"
	"io"
	"math"
	"net/netip"
	"slices"
	"strings"
	"text/tabwriter"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"

	networkingv1 "github.com/multicidr/controller-manager/apis/networking/v1"
)

// reasonWaiting is the event that says why a Node waits.
const reasonWaiting = "CIDRNotAvailable"

// view is what a person sees of the cluster at one moment. It is computed from objects alone.
type view struct {
	nodes        []nodeRow
	clusterCIDRs []clusterCIDRRow
}

type nodeRow struct {
	name, group  string
	podCIDRs     string
	clusterCIDR  string
	waitsBecause string // empty: served, or not looked at yet
	// couldBeServed: a ClusterCIDR that selects the Node has a block to spare.
	couldBeServed bool
}

func (n nodeRow) served() bool { return n.podCIDRs != "" }

type clusterCIDRRow struct {
	name, ranges, blocks string
	nodes                int64
	state                string
}

func newView(nodes []*corev1.Node, clusterCIDRs []*networkingv1.ClusterCIDR, events []*corev1.Event) view {
	servedBy := map[string]int64{}
	for _, node := range nodes {
		if len(node.Spec.PodCIDRs) > 0 {
			servedBy[node.Annotations[networkingv1.AnnotationClusterCIDR]]++
		}
	}
	latest := map[types.UID]*corev1.Event{}
	for _, event := range events {
		old, ok := latest[event.InvolvedObject.UID]
		if event.Reason == reasonWaiting && (!ok || old.LastTimestamp.Before(&event.LastTimestamp)) {
			latest[event.InvolvedObject.UID] = event
		}
	}

	var v view
	for _, node := range nodes {
		row := nodeRow{
			name:        node.Name,
			group:       node.Labels[poolLabel],
			podCIDRs:    strings.Join(node.Spec.PodCIDRs, ", "),
			clusterCIDR: node.Annotations[networkingv1.AnnotationClusterCIDR],
		}
		if event, ok := latest[node.UID]; ok && !row.served() {
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
	slices.SortFunc(v.nodes, func(a, b nodeRow) int { return cmp.Or(cmp.Compare(a.group, b.group), cmp.Compare(a.name, b.name)) })
	slices.SortFunc(v.clusterCIDRs, func(a, b clusterCIDRRow) int { return cmp.Compare(a.name, b.name) })
	return v
}

func (v view) servedCount() (count int) {
	for _, node := range v.nodes {
		if node.served() {
			count++
		}
	}
	return count
}

// missing are the Nodes without podCIDRs although a ClusterCIDR that selects them has room.
func (v view) missing() (rows []nodeRow) {
	for _, node := range v.nodes {
		if !node.served() && node.couldBeServed {
			rows = append(rows, node)
		}
	}
	return rows
}

// write prints the tables. At most maxNodes Nodes are shown, those that wait before others.
func (v view) write(w io.Writer, maxNodes int) {
	nodes := v.nodes
	if len(nodes) > maxNodes {
		nodes = slices.Clone(nodes)
		slices.SortStableFunc(nodes, func(a, b nodeRow) int { return cmp.Compare(len(a.podCIDRs), len(b.podCIDRs)) })
		nodes = nodes[:maxNodes]
	}
	table := tabwriter.NewWriter(w, 0, 0, 3, ' ', 0)
	fmt.Fprintln(table, "NODE\tGROUP\tPOD CIDRS\tCLUSTERCIDR")
	for _, node := range nodes {
		from := cmp.Or(node.clusterCIDR, "none: not served by us")
		if !node.served() {
			from = "waits: " + cmp.Or(node.waitsBecause, "not looked at yet")
		}
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\n", node.name, cmp.Or(node.group, "-"), cmp.Or(node.podCIDRs, "-"), from)
	}
	table.Flush()
	if more := len(v.nodes) - len(nodes); more > 0 {
		fmt.Fprintf(w, "... and %d more\n", more)
	}
	fmt.Fprintf(w, "%d of %d Nodes served\n\n", v.servedCount(), len(v.nodes))

	fmt.Fprintln(table, "CLUSTERCIDR\tRANGES\tBLOCK OF A NODE\tNODES\tSTATE")
	for _, cc := range v.clusterCIDRs {
		fmt.Fprintf(table, "%s\t%s\t%s\t%d\t%s\n", cc.name, cc.ranges, cc.blocks, cc.nodes, cc.state)
	}
	table.Flush()
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
		case seen && old == node, seen && old.podCIDRs == node.podCIDRs && old.waitsBecause == node.waitsBecause:
		case node.served():
			lines = append(lines, fmt.Sprintf("Node %s: %s from %s", node.name, node.podCIDRs, node.clusterCIDR))
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

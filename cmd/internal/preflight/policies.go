package preflight

import (
	"net/netip"
	"slices"
	"strings"

	networkingapiv1 "k8s.io/api/networking/v1"

	"github.com/multicidr/controller-manager/controllers/ipam"
	"github.com/multicidr/controller-manager/controllers/nodeipam/fromflags"
	"github.com/multicidr/controller-manager/controllers/nodeipam/pool"
	"github.com/multicidr/controller-manager/controllers/text"
)

// policies warns about NetworkPolicies that mean Pods by their addresses, and not those of every range.
func (n *network) policies(s *state, ranges []namedRange) {
	networks := n.pods(s, ranges)
	found := map[string][]string{} // names by what is wrong
	for i := range s.policies {
		p := &s.policies[i]
		for _, block := range blocksOf(p) {
			if wrong := misses(block, networks, ranges); wrong != "" && !slices.Contains(found[wrong], p.Namespace+"/"+p.Name) {
				found[wrong] = append(found[wrong], p.Namespace+"/"+p.Name)
			}
		}
	}
	var all []string
	for wrong := range found {
		all = append(all, wrong)
	}
	slices.Sort(all)
	for _, wrong := range all {
		n.add(warning, "NetworkPolicies", "%s (%s), so it treats Pods of new Nodes in another way: add an ipBlock for the range, or select Pods by their labels", wrong, text.Listed(found[wrong]))
	}
}

// pods are the networks of Pods that the ClusterCIDRs, the Nodes and the network settings name.
func (n *network) pods(s *state, ranges []namedRange) (networks []netip.Prefix) {
	for _, r := range ranges {
		networks = append(networks, r.prefix)
	}
	for i := range s.nodes {
		blocks, _ := pool.PodCIDRsOf(&s.nodes[i])
		networks = append(networks, blocks...)
	}
	for _, set := range n.settings {
		if set.about == masq {
			continue // It has other private networks, too.
		}
		for cidr := range strings.SplitSeq(set.cidrs, ",") {
			prefixes, _ := fromflags.ParseCIDRs("", cidr)
			networks = append(networks, prefixes...)
		}
	}
	return networks
}

func blocksOf(p *networkingapiv1.NetworkPolicy) (blocks []networkingapiv1.IPBlock) {
	var peers []networkingapiv1.NetworkPolicyPeer
	for _, rule := range p.Spec.Ingress {
		peers = append(peers, rule.From...)
	}
	for _, rule := range p.Spec.Egress {
		peers = append(peers, rule.To...)
	}
	for _, peer := range peers {
		if peer.IPBlock != nil {
			blocks = append(blocks, *peer.IPBlock)
		}
	}
	return blocks
}

// misses says which range an ipBlock leaves out although it means Pods, or lets in although it leaves Pods out; empty if it does neither.
func misses(block networkingapiv1.IPBlock, networks []netip.Prefix, ranges []namedRange) string {
	whole, _ := pool.ParseCIDR(block.CIDR)
	for _, cidrs := range [][]string{{block.CIDR}, block.Except} {
		var prefixes []netip.Prefix
		for _, cidr := range cidrs {
			if prefix, err := pool.ParseCIDR(cidr); err == nil {
				prefixes = append(prefixes, prefix)
			}
		}
		means := func(p netip.Prefix) bool {
			return slices.ContainsFunc(networks, func(n netip.Prefix) bool { return within(n, p) })
		}
		if !slices.ContainsFunc(prefixes, means) {
			continue
		}
		for _, r := range ranges {
			if len(block.Except) > 0 && !within(r.prefix, whole) {
				continue // Such a block lets in all but Pods, for example.
			}
			same := func(p netip.Prefix) bool { return ipam.FamilyOf(p) == ipam.FamilyOf(r.prefix) }
			if slices.ContainsFunc(prefixes, same) && !slices.ContainsFunc(prefixes, func(p netip.Prefix) bool { return within(r.prefix, p) }) {
				return "ipBlock " + strings.Join(cidrs, ", ") + " contains Pods, and not the range " + r.String()
			}
		}
	}
	return ""
}

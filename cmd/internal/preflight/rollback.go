package preflight

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/kubernetes/pkg/controller/nodeipam/ipam/cidrset"
	netutils "k8s.io/utils/net"

	networkingv1 "github.com/multicidr/controller-manager/apis/networking/v1"
	"github.com/multicidr/controller-manager/controllers/nodeipam"
	"github.com/multicidr/controller-manager/controllers/nodeipam/fromflags"
	"github.com/multicidr/controller-manager/controllers/nodeipam/pool"
	"github.com/multicidr/controller-manager/controllers/text"
)

// beforeRollback is for docs/install/uninstall.md, the way back to the stock manager. It names everything with which that manager ends at its start, or
// allocates addresses that others have.
func beforeRollback(fs *findings, s *state, used usage, services []namedRange) {
	const about = rollback
	all := flagsOf(s.managers())
	if s.given.Allocate || s.given.ClusterCIDR != "" {
		all = []flags{s.given}
	}
	for _, p := range s.managers() {
		if unknown := unknownToStock(p); len(unknown) > 0 {
			fs.add(warning, about, "the stock manager ends at its start with %s: take that out of the command of %v in the same step", text.Listed(unknown), p)
		}
	}
	if s.fenced {
		fs.add(warning, about, "the ValidatingAdmissionPolicy lease-holder.%s refuses what the stock manager writes. In the same step, kubectl delete validatingadmissionpolicybindings,validatingadmissionpolicies lease-holder.%s; with the Helm chart, set fencing.enabled to false", networkingv1.GroupName, networkingv1.GroupName)
	}
	for _, p := range slices.Concat(used.peers, used.clouds) {
		fs.add(warning, about, "%s allocates: stop it, and wait for a minute before the stock manager starts to", p.workload)
	}
	if !slices.ContainsFunc(all, func(f flags) bool { return f.Allocate }) {
		fs.add(warning, about, "--allocate-node-cidrs is not among the flags that are known, and without it the stock manager allocates nothing: run this command again with the flags that it will have, for example --allocate-node-cidrs --cluster-cidr=10.244.0.0/16")
		return
	}
	slices.SortFunc(all, func(a, b flags) int { return strings.Compare(fmt.Sprint(a), fmt.Sprint(b)) })
	for _, f := range slices.Compact(all) {
		if f.Allocate {
			checkStock(fs, about, s, f, services)
		}
	}
	fs.well(about, "the stock manager starts with these flags, and every podCIDR is one that it knows")
}

// unknownToStock are the flags and controllers of a manager that Kubernetes' own does not have.
func unknownToStock(p process) (all []string) {
	for _, arg := range p.Args {
		flag, _, _ := strings.Cut(strings.ReplaceAll(arg, "_", "-"), "=")
		if flag == "--config" || flag == "--concurrent-node-cidr-syncs" || strings.HasPrefix(flag, "--node-ipam-") || strings.HasPrefix(flag, "--cluster-ipam-") {
			all = append(all, flag)
		}
	}
	for _, name := range p.controllers {
		switch name := strings.TrimPrefix(name, "-"); name {
		case nodeipam.Name, "cluster-ipam-controller", "cluster-deployment-ipam-controller", "in-cluster-ip-pool-controller", "infoblox-ip-pool-controller":
			all = append(all, name+" in --controllers")
		}
	}
	return all
}

// checkStock looks at the stock manager with some flags.
func checkStock(fs *findings, about string, s *state, f flags, services []namedRange) {
	m, err := stockManager(f.Flags)
	if err != nil {
		fs.add(problem, about, "the stock manager ends at its start, or allocates nothing, with these flags: %v", err)
		return
	}
	var shared []holder
	for i := range s.nodes {
		node := &s.nodes[i]
		held, err := m.occupy(node)
		if err != nil {
			fs.add(problem, about, "the stock manager ends at every start while Node %s has podCIDRs %q: %v. Replace the Node: %s", node.Name, node.Spec.PodCIDRs, err, text.Replace)
		}
		shared = append(shared, held...)
	}
	for _, service := range services {
		if at := m.at(service.prefix); at >= 0 && !m.leavesOut(service.prefix) {
			fs.add(problem, about, "the stock manager would allocate addresses of %v, which lies in its --cluster-cidr %v: name it in --service-cluster-ip-range, which must have no blanks", service, m.ranges[at])
		} else if at >= 0 {
			shared = append(shared, holder{service.name, service.prefix, at})
		}
	}
	m.checkShared(fs, about, shared)
	for i := range s.clusterCIDRs {
		m.checkClusterCIDR(fs, about, &s.clusterCIDRs[i])
	}
}

// stock is the in-tree allocator of Kubernetes, with its own sets of blocks.
type stock struct {
	ranges   []netip.Prefix
	masks    []int
	sets     []*cidrset.CidrSet
	services []netip.Prefix // that it leaves out
}

// holder has addresses.
type holder struct {
	name  string
	block netip.Prefix
	at    int // the range in which they are
}

// stockManager is the allocator that the stock manager has with some flags, or the error with which the manager ends. The rules are those of
// cmd/kube-controller-manager/app/core.go.
func stockManager(f fromflags.Flags) (m stock, err error) {
	cidrs, err := netutils.ParseCIDRs(strings.Split(strings.TrimSpace(f.ClusterCIDR), ","))
	if err != nil {
		return m, fmt.Errorf("--cluster-cidr=%q: %w; it takes no blanks", f.ClusterCIDR, err)
	}
	dual, err := netutils.IsDualStackCIDRs(cidrs)
	if err != nil || len(cidrs) > 2 || len(cidrs) == 2 && !dual {
		return m, fmt.Errorf("--cluster-cidr=%q: it takes one range, or one of each family", f.ClusterCIDR)
	}
	if m.services, err = stockServices(f.ServiceRange); err != nil {
		return m, err
	}
	if err := stockMasks(f, len(cidrs), netutils.IsIPv6CIDR(cidrs[0])); err != nil {
		return m, err
	}
	for _, cidr := range cidrs {
		mask := cmp.Or(f.NodeMaskSize, f.NodeMaskSizeIPv4, 24)
		if netutils.IsIPv6CIDR(cidr) {
			mask = cmp.Or(f.NodeMaskSize, f.NodeMaskSizeIPv6, 64)
		}
		if err := m.add(cidr, int(mask)); err != nil {
			return m, err
		}
	}
	return m, nil
}

// add adds a range.
func (m *stock) add(cidr *net.IPNet, mask int) error {
	prefix, err := pool.ParseCIDR(cidr.String())
	if err != nil {
		return err
	}
	if size, bits := cidr.Mask.Size(); size > mask || mask > bits {
		return fmt.Errorf("/%d blocks do not fit into --cluster-cidr %v: change --node-cidr-mask-size", mask, prefix)
	}
	set, err := cidrset.NewCIDRSet(cidr, mask)
	if err != nil {
		return fmt.Errorf("--cluster-cidr %v with /%d blocks: %w; an IPv6 block is at most 16 bits longer than the range", prefix, mask, err)
	}
	m.ranges, m.masks, m.sets = append(m.ranges, prefix), append(m.masks, mask), append(m.sets, set)
	return nil
}

// stockServices are the ranges that it leaves out. It passes over one that it cannot read, because of a blank for example.
func stockServices(list string) (ranges []netip.Prefix, err error) {
	parts := strings.Split(list, ",")
	if len(parts) > 2 {
		return nil, fmt.Errorf("--service-cluster-ip-range=%q: it takes at most two ranges", list)
	}
	for _, part := range parts {
		if _, cidr, err := netutils.ParseCIDRSloppy(part); err == nil {
			prefix, _ := pool.ParseCIDR(cidr.String())
			ranges = append(ranges, prefix)
		}
	}
	if len(ranges) == 2 && ranges[0].Addr().Is4() == ranges[1].Addr().Is4() {
		return nil, fmt.Errorf("--service-cluster-ip-range=%q: both ranges are of one family", list)
	}
	return ranges, nil
}

// stockMasks are its rules for the flags of block sizes.
func stockMasks(f fromflags.Flags, families int, six bool) error {
	switch {
	case families > 1 && f.NodeMaskSize != 0:
		return errors.New("--node-cidr-mask-size cannot be used with two families: use --node-cidr-mask-size-ipv4 and --node-cidr-mask-size-ipv6")
	case families > 1:
		return nil
	case f.NodeMaskSize != 0 && (f.NodeMaskSizeIPv4 != 0 || f.NodeMaskSizeIPv6 != 0):
		return errors.New("--node-cidr-mask-size cannot stand beside --node-cidr-mask-size-ipv4 or --node-cidr-mask-size-ipv6, not even with the same value: remove one of them")
	case f.NodeMaskSizeIPv4 != 0 && six:
		return errors.New("--node-cidr-mask-size-ipv4 is set, but --cluster-cidr has no IPv4 range: remove it")
	case f.NodeMaskSizeIPv6 != 0 && !six:
		return errors.New("--node-cidr-mask-size-ipv6 is set, but --cluster-cidr has no IPv6 range: remove it")
	}
	return nil
}

// occupy takes the podCIDRs of a Node out of the sets, or returns the error with which the manager ends.
func (m stock) occupy(node *corev1.Node) (held []holder, err error) {
	for i, s := range node.Spec.PodCIDRs {
		_, cidr, err := netutils.ParseCIDRSloppy(s)
		if err != nil {
			return held, err
		}
		if i >= len(m.sets) {
			return held, fmt.Errorf("--cluster-cidr has no range number %d", i+1)
		}
		if err := m.sets[i].Occupy(cidr); err != nil {
			return held, fmt.Errorf("podCIDR number %d is compared with range number %d: %w", i+1, i+1, err)
		}
		block, _ := pool.ParseCIDR(cidr.String())
		held = append(held, holder{"Node " + node.Name, block, i})
	}
	return held, nil
}

// at is the range that a prefix shares addresses with; -1 if there is none.
func (m stock) at(prefix netip.Prefix) int {
	return slices.IndexFunc(m.ranges, prefix.Overlaps)
}

// leavesOut reports whether it keeps addresses for Services.
func (m stock) leavesOut(prefix netip.Prefix) bool {
	return slices.ContainsFunc(m.services, func(s netip.Prefix) bool { return within(prefix, s) })
}

// checkShared reports holders that are in the same block of the stock manager, although they have no address in common.
func (m stock) checkShared(fs *findings, about string, all []holder) {
	wide := func(h holder) netip.Prefix {
		return netip.PrefixFrom(h.block.Addr(), min(h.block.Bits(), m.masks[h.at])).Masked()
	}
	slices.SortFunc(all, func(a, b holder) int { return wide(a).Compare(wide(b)) })
	for i := 1; i < len(all); i++ {
		a, b := all[i-1], all[i]
		if a.at == b.at && wide(a).Overlaps(wide(b)) && !a.block.Overlaps(b.block) {
			fs.add(problem, about, "%s (%v) and %s (%v) are in the same /%d block of the stock manager: when the first of them is deleted, it allocates the addresses of the other again. Set --node-cidr-mask-size to the size of the smaller one, or replace such Nodes",
				a.name, a.block, b.name, b.block, m.masks[a.at])
		}
	}
}

// checkClusterCIDR reports what a ClusterCIDR keeps from Nodes, and the stock manager does not.
func (m stock) checkClusterCIDR(fs *findings, about string, cc *networkingv1.ClusterCIDR) {
	for _, excluded := range cc.Spec.ExcludedCIDRs {
		prefix, err := pool.ParseCIDR(excluded)
		if at := m.at(prefix); err == nil && at >= 0 && !m.leavesOut(prefix) {
			fs.add(problem, about, "the stock manager would allocate %v, which ClusterCIDR %s excludes and which lies in its --cluster-cidr %v: go back with another --cluster-cidr, or with -%s in --controllers", prefix, cc.Name, m.ranges[at], inTree)
		}
	}
	if cc.Spec.Allocation == networkingv1.AllocationNone {
		fs.add(warning, about, "the stock manager allocates podCIDRs for the Nodes that ClusterCIDR %s selects, whose allocation is None: see that these cannot do harm", cc.Name)
	}
}

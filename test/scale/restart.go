package main

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/workqueue"

	networkingv1 "github.com/multicidr/controller-manager/apis/networking/v1"
	"github.com/multicidr/controller-manager/test/results"
)

const (
	// groups is how many ClusterCIDRs there are: a slice of the addresses for every group of Nodes.
	groups     = 1000
	groupLabel = "example.com/group"
	groupBits  = 13 // of addresses: 128 blocks
)

// restart starts a contestant, for the second time, in a cluster whose Nodes have their podCIDRs, all but one. It measures from the lease to
// the podCIDRs of that one.
func (s *scale) restart(ctx context.Context, who contestant, nodes int) (got sample, err error) {
	if nodes > groups*(1<<(groupBits-hostBits)-2) {
		return got, fmt.Errorf("%d Nodes do not fit into %d ClusterCIDRs of %d blocks with two left in each", nodes, groups, 1<<(groupBits-hostBits))
	}
	err = withCluster(ctx, true, func(c *cluster) error {
		if err := c.createGroups(ctx); err != nil {
			return err
		}
		if err := c.createServed(ctx, nodes); err != nil {
			return err
		}
		// The first start writes finalizers and status of all ClusterCIDRs, which is work for once.
		first, err := s.start(ctx, c, who)
		if err != nil {
			return err
		}
		if err := c.warmUp(ctx, first, inGroup); err != nil {
			return err
		}
		if err := c.settle(ctx); err != nil {
			return err
		}
		if err := first.Stop(); err != nil {
			return err
		}
		f, err := c.register(ctx, "new", 1, inGroup)
		if err != nil {
			return err
		}
		defer f.stop()
		if err := c.settle(ctx); err != nil {
			return err
		}
		begin := time.Now()
		second, err := s.start(ctx, c, who)
		if err != nil {
			return err
		}
		profiled := s.profile(ctx, c, second, fmt.Sprintf("restart-%s-%d", who.name, nodes))
		if err := f.wait(ctx, second, patience); err != nil {
			return err
		}
		if err := profiled(); err != nil {
			return err
		}
		got.values, err = c.restartValues(ctx, f.last(), begin, second)
		return err
	})
	return got, err
}

// restartValues says how long it took from the lease, and what it cost.
func (c *cluster) restartValues(ctx context.Context, served, begin time.Time, r *runner) (map[string]float64, error) {
	if err := c.settle(ctx); err != nil {
		return nil, err
	}
	lease, err := c.kube.CoordinationV1().Leases(metav1.NamespaceSystem).Get(ctx, "kube-controller-manager", metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	won := lease.Spec.AcquireTime.Time
	synced, err := lastSync(r, served)
	if err != nil {
		return nil, err
	}
	if won.Before(begin) || synced.Before(won) || served.Before(synced) {
		return nil, fmt.Errorf("lease won at %v, caches synced at %v, Node served at %v: not in this order", won, synced, served)
	}
	events, err := c.asked(begin)
	if err != nil {
		return nil, err
	}
	reads, writes := 0, 0
	for _, event := range events {
		if readsAllNodes(event) {
			reads++
		}
		if isWrite(event) {
			writes++
		}
	}
	cpu, err := cpuTime(r.PID())
	if err != nil {
		return nil, err
	}
	peak, err := peakMemory(r.PID())
	return map[string]float64{
		"lease-to-caches-s":       round3(synced.Sub(won).Seconds()),
		"caches-to-first-node-s":  round3(served.Sub(synced).Seconds()),
		"lease-to-first-node-s":   round3(served.Sub(won).Seconds()),
		"reads-of-all-nodes":      float64(reads),
		"writes":                  float64(writes),
		"manager-cpu-s":           round(cpu.Seconds()),
		"manager-peak-MiB":        round(peak),
		"cluster-cidrs":           groups,
		"requests-without-leases": float64(len(events)),
	}, err
}

// lastSync is when a manager's log says last, before the Node was served, that a cache holds all there is.
func lastSync(r *runner, served time.Time) (last time.Time, err error) {
	log, err := os.ReadFile(r.LogPath())
	if err != nil {
		return last, err
	}
	for line := range strings.Lines(string(log)) {
		if !strings.Contains(line, `"Caches are synced"`) {
			continue
		}
		// I1121 15:54:38.123456 ...: klog leaves out the year and the zone, which is the machine's.
		at, err := time.ParseInLocation("2006 0102 15:04:05.000000", fmt.Sprintf("%d %.20s", served.Year(), line[1:]), time.Local)
		if err != nil {
			return last, fmt.Errorf("read the time in %s: %w", r.LogPath(), err)
		}
		if at.Before(served) {
			last = at
		}
	}
	if last.IsZero() {
		return last, errors.New("no cache was synced, says " + r.LogPath())
	}
	return last, nil
}

// group is the number of the group of a Node. Upstream has one range for all of them.
func group(index int) int { return index % groups }

// inGroup labels a Node.
func inGroup(index int, node *corev1.Node) { node.Labels[groupLabel] = fmt.Sprint(group(index)) }

// groupCIDR is the slice of the addresses that a group has.
func groupCIDR(group int) netip.Prefix {
	return nthPrefix(group<<groupBits, 32-groupBits)
}

// nthPrefix is the prefix of so many bits that begins that many addresses after the first one of all.
func nthPrefix(offset, bits int) netip.Prefix {
	first := netip.MustParsePrefix(rangeCIDR).Addr().As4()
	var address [4]byte
	binary.BigEndian.PutUint32(address[:], binary.BigEndian.Uint32(first[:])+uint32(offset))
	return netip.PrefixFrom(netip.AddrFrom4(address), bits)
}

func (c *cluster) createGroups(ctx context.Context) error {
	errs := make([]error, groups)
	workqueue.ParallelizeUntil(ctx, creators, groups, func(group int) {
		errs[group] = c.createClusterCIDR(ctx, fmt.Sprintf("group-%03d", group), networkingv1.ClusterCIDRSpec{
			NodeSelector: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchExpressions: []corev1.NodeSelectorRequirement{
				{Key: groupLabel, Operator: corev1.NodeSelectorOpIn, Values: []string{fmt.Sprint(group)}},
			}}}},
			IPv4:            groupCIDR(group).String(),
			PerNodeHostBits: hostBits,
		})
	})
	return errors.Join(errs...)
}

// createServed creates Nodes as they are after they were served.
func (c *cluster) createServed(ctx context.Context, nodes int) error {
	f, err := c.register(ctx, "old", nodes, func(index int, node *corev1.Node) {
		inGroup(index, node)
		cidr := nthPrefix(group(index)<<groupBits+index/groups<<hostBits, maskLength).String()
		node.Annotations[networkingv1.AnnotationClusterCIDR] = fmt.Sprintf("group-%03d", group(index))
		node.Spec.PodCIDR, node.Spec.PodCIDRs = cidr, []string{cidr}
	})
	if err != nil {
		return err
	}
	f.stop()
	return nil
}

var restartColumns = []column{
	{"lease to caches s", "lease-to-caches-s"}, {"caches to first Node s", "caches-to-first-node-s"}, {"lease to first Node s", "lease-to-first-node-s"},
	{"reads of all Nodes", "reads-of-all-nodes"}, {"writes", "writes"}, {"CPU s", "manager-cpu-s"}, {"peak MiB", "manager-peak-MiB"},
}

// restartMarks holds what we measured against the limits that were set.
func restartMarks(nodes int, round map[string]sample) []results.Mark {
	we := round[ours].values
	if we == nil {
		return nil
	}
	name := func(text string) string {
		return fmt.Sprintf("restart with %d Nodes and %d ClusterCIDRs: %s", nodes, groups, text)
	}
	marks := []results.Mark{
		results.AtMost(name("ours, from caches synced to first assignment"), "s", 1, we["caches-to-first-node-s"]),
		results.AtMost(name("ours, reads of all Nodes"), "requests", 1, we["reads-of-all-nodes"]),
	}
	return marks
}

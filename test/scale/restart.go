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
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/util/workqueue"

	networkingv1 "github.com/multicidr/controller-manager/apis/networking/v1"
	"github.com/multicidr/controller-manager/test/controlplane"
)

const (
	groupLabel = "example.com/group"
	groupBits  = 13 // of addresses: 128 blocks
)

// groups is how many ClusterCIDRs there are: a slice of the addresses for every group of Nodes. Upstream has one range for all of them.
var groups = 1000

// restart starts a contestant, for the second time, in a cluster whose Nodes have their podCIDRs, all but one. It measures from the lease to the
// podCIDRs of that one.
func restart(ctx context.Context, who contestant, nodes int) (metrics, error) {
	if nodes > groups*(1<<(groupBits-hostBits)-2) {
		return nil, fmt.Errorf("%d Nodes do not fit into %d ClusterCIDRs of %d blocks with two left in each", nodes, groups, 1<<(groupBits-hostBits))
	}
	return withCluster(ctx, func(c *cluster) (metrics, error) {
		if err := c.createServed(ctx, nodes); err != nil {
			return nil, err
		}
		// The first start writes finalizers and status of all ClusterCIDRs, which is work for once.
		first, err := c.start(ctx, who)
		if err != nil {
			return nil, err
		}
		if _, err := c.nodes(c.together(), inGroup).serve(ctx, first, "warm", warmUp, creators); err != nil {
			return nil, err
		}
		if err := c.settle(ctx); err != nil {
			return nil, err
		}
		if err := first.Stop(); err != nil {
			return nil, err
		}
		one := c.nodes(c.together(), inGroup)
		version, err := one.version(ctx)
		if err != nil {
			return nil, err
		}
		if err := one.create(ctx, "new", 0); err != nil {
			return nil, err
		}
		if err := c.settle(ctx); err != nil {
			return nil, err
		}
		begin := time.Now()
		second, err := c.start(ctx, who)
		if err != nil {
			return nil, err
		}
		ctx, cancel := context.WithTimeoutCause(ctx, patience, errors.New("the new Node has no podCIDRs: "+second.LogPath()))
		defer cancel()
		if err := follow(ctx, one.watch, version, func(_ watch.EventType, o runtime.Object, name string) bool { return name == "new" && one.served(o) }); err != nil {
			return nil, err
		}
		served := time.Now()
		return c.restartValues(ctx, second, begin, served)
	})
}

// restartValues says how long it took from the lease, and what it cost.
func (c *cluster) restartValues(ctx context.Context, p *controlplane.Process, begin, served time.Time) (metrics, error) {
	if err := c.settle(ctx); err != nil {
		return nil, err
	}
	lease, err := c.kube.CoordinationV1().Leases(metav1.NamespaceSystem).Get(ctx, "kube-controller-manager", metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	won := lease.Spec.AcquireTime.Time
	synced, err := lastSync(p, served)
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
	cpu, err := cpuTime(p)
	if err != nil {
		return nil, err
	}
	peak, err := peakMemory(p)
	return metrics{
		"lease-to-node-s":    served.Sub(won).Seconds(),
		"caches-to-node-s":   served.Sub(synced).Seconds(),
		"reads-of-all-nodes": count(events, readsAllNodes),
		"writes":             count(events, isWrite),
		"manager-cpu-s":      cpu.Seconds(),
		"manager-peak-MiB":   peak,
	}, err
}

// lastSync is when a manager's log says last, before the Node was served, that a cache holds all there is.
func lastSync(p *controlplane.Process, served time.Time) (last time.Time, err error) {
	log, err := os.ReadFile(p.LogPath())
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
			return last, fmt.Errorf("read the time in %s: %w", p.LogPath(), err)
		}
		if at.Before(served) {
			last = at
		}
	}
	if last.IsZero() {
		return last, fmt.Errorf("no cache was synced, says %s", p.LogPath())
	}
	return last, nil
}

// inGroup labels a Node.
func inGroup(index int, node *corev1.Node) { node.Labels[groupLabel] = fmt.Sprint(index % groups) }

// nthPrefix is the prefix of so many bits that begins that many addresses after the first one of all.
func nthPrefix(offset, bits int) netip.Prefix {
	first := netip.MustParsePrefix(rangeCIDR).Addr().As4()
	var address [4]byte
	binary.BigEndian.PutUint32(address[:], binary.BigEndian.Uint32(first[:])+uint32(offset))
	return netip.PrefixFrom(netip.AddrFrom4(address), bits)
}

// createServed creates the ClusterCIDRs, and Nodes as they are after they were served.
func (c *cluster) createServed(ctx context.Context, nodes int) error {
	errs := make([]error, groups+nodes)
	workqueue.ParallelizeUntil(ctx, creators, groups, func(group int) {
		errs[group] = c.createClusterCIDR(ctx, fmt.Sprintf("group-%03d", group), networkingv1.ClusterCIDRSpec{
			NodeSelector: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchExpressions: []corev1.NodeSelectorRequirement{
				{Key: groupLabel, Operator: corev1.NodeSelectorOpIn, Values: []string{fmt.Sprint(group)}},
			}}}},
			IPv4:            nthPrefix(group<<groupBits, 32-groupBits).String(),
			PerNodeHostBits: hostBits,
		})
	})
	served := c.nodes(c.together(), func(index int, node *corev1.Node) {
		inGroup(index, node)
		group := index % groups
		cidr := nthPrefix(group<<groupBits+index/groups<<hostBits, maskLength).String()
		node.Annotations[networkingv1.AnnotationClusterCIDR] = fmt.Sprintf("group-%03d", group)
		node.Spec.PodCIDR, node.Spec.PodCIDRs = cidr, []string{cidr}
	})
	workqueue.ParallelizeUntil(ctx, creators, nodes, func(i int) { errs[groups+i] = served.create(ctx, fmt.Sprintf("old-%06d", i), i) })
	return errors.Join(errs...)
}

package nodeipam

import (
	"fmt"
	"net/netip"
	"runtime"
	"sync"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	networkingv1 "github.com/multicidr/controller-manager/apis/networking/v1"
	. "github.com/multicidr/controller-manager/controllers/nodeipam/internal/objects"
)

// holds is a lock that notes for how long it was held: in all, and at most.
type holds struct {
	sync.Mutex
	since          time.Time
	total, longest time.Duration
}

func (h *holds) Lock() {
	h.Mutex.Lock()
	h.since = time.Now()
}

func (h *holds) Unlock() {
	d := time.Since(h.since)
	h.total += d
	h.longest = max(h.longest, d)
	h.Mutex.Unlock()
}

// benchmarkApply measures very many ClusterCIDRs that are applied one after the other while Nodes are pending: for how long each of them holds
// the lock in all, with its finalizer and everything that it makes to do about Nodes, and the longest time that anything holds it. Then all
// statuses, as after a restart. Where each ClusterCIDR is full and selects every Node, its one block then becomes free, too.
func benchmarkApply(b *testing.B) {
	const pending, clusterCIDRs = 1_000, 10_000
	ranges := townCIDRs(clusterCIDRs)
	holder := func(i int) *v1.Node { return held(pending + i) }
	for _, s := range []struct {
		name string
		full bool // each has one block, which a Node has
		spec func(i int) networkingv1.ClusterCIDRSpec
	}{
		{"one in ten selects a Node", false, func(i int) networkingv1.ClusterCIDRSpec { return ranges[i].Spec }},
		{"all select every Node and are full", true, func(i int) networkingv1.ClusterCIDRSpec {
			return Spec4(block28(i).String(), 4, AnyOf(AllOf(In("kubernetes.io/os", "linux"))))
		}},
		{"none selects a Node", false, func(i int) networkingv1.ClusterCIDRSpec {
			spec := ranges[i].Spec
			spec.NodeSelector = AnyOf(AllOf(In("kubernetes.io/os", "linux"), In("example.com/pool", fmt.Sprint("other-", i))))
			return spec
		}},
	} {
		b.Run(s.name+"/"+sized(pending, clusterCIDRs), func(b *testing.B) {
			var changes, statuses, releases timings
			var longest time.Duration
			for b.Loop() {
				t := newTown(b)
				for i := range pending {
					n := townNode(i, clusterCIDRs/10)
					n.CreationTimestamp.Time = time.Unix(int64(i), 0)
					if err := t.nodes.Add(n); err != nil {
						b.Fatal(err)
					}
				}
				t.settle(b)
				if s.full {
					for i := range clusterCIDRs {
						t.state.Observe(holder(i), []netip.Prefix{block28(i)}, nil)
					}
				}
				h := &holds{}
				t.mu = h
				t.work(b)
				runtime.GC()
				h.longest = 0
				for i := range clusterCIDRs {
					before := h.total
					cc := ClusterCIDR(fmt.Sprintf("range-%05d", i), s.spec(i))
					finalizers := cc.Finalizers
					cc.Finalizers = nil
					t.putClusterCIDR(b, cc)
					cc = cc.DeepCopy()
					cc.Finalizers = finalizers
					t.putClusterCIDR(b, cc)
					t.work(b)
					changes.ns = append(changes.ns, float64((h.total - before).Nanoseconds()))
				}
				longest = max(longest, h.longest)
				for i := range pending {
					if s.full {
						before := h.total
						t.heardOfNode(holder(i).Name, holder(i), nil)
						t.work(b)
						releases.ns = append(releases.ns, float64((h.total - before).Nanoseconds()))
					}
				}
				for i := range clusterCIDRs {
					before := h.total
					if _, err := t.decideStatus(fmt.Sprintf("range-%05d", i)); err != nil {
						b.Fatal(err)
					}
					statuses.ns = append(statuses.ns, float64((h.total - before).Nanoseconds()))
				}
			}
			changes.report(b, "change")
			statuses.report(b, "status")
			if s.full {
				releases.report(b, "release")
			}
			b.ReportMetric(float64(longest.Nanoseconds()), "longest-ns")
		})
	}
}

// work does what the workers of Nodes do, and lets each Node that has blocks show them.
func (t *town) work(b *testing.B) {
	for t.nodeQueue.Len() > 0 {
		name, _ := t.nodeQueue.Get()
		d, err := t.decide(name)
		if err != nil {
			b.Fatal(err)
		}
		if d.write {
			served := d.node.DeepCopy()
			showsReserved(served, d.assign)
			t.putNode(b, d.node, served)
		}
		t.nodeQueue.Done(name)
	}
}

package allocator

import (
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/multicidr/controller-manager/controllers/nodeipam/clustercidr"
	. "github.com/multicidr/controller-manager/controllers/nodeipam/internal/objects"
)

// A read that shows no podCIDRs proves that no write was carried out if it was made when none could be any more, if none was sent since then, and if
// a renewal of the lease that was sent after it has succeeded while the Lease never went back.
func TestConclude(t *testing.T) {
	node, begin := Node("n"), time.Unix(1000, 0)
	over := begin.Add(10 * time.Second)
	for name, tc := range map[string]struct {
		again bool // it is written again after the read
		at    time.Time
		now   Renewals
		want  ReservationState
	}{
		"no renewal since the read":        {at: over, now: Renewals{Sent: 6, Proven: 5}, want: sent},
		"a renewal since the read":         {at: over, now: Renewals{Sent: 6, Proven: 6}, want: refused},
		"the Lease went back":              {at: over, now: Renewals{Sent: 6, Proven: 6, WentBack: 4}, want: sent},
		"a write can still be carried out": {at: over.Add(-1), now: Renewals{Sent: 6, Proven: 6}, want: sent},
		"it was written again since then":  {again: true, at: over, now: Renewals{Sent: 6, Proven: 6}, want: sent},
	} {
		t.Run(name, func(t *testing.T) {
			b := New()
			b.SetPool(clustercidr.Compile(ClusterCIDR("a", Spec4("10.0.0.0/24", 4, nil))))
			if _, ok, _ := b.Allocate(node); !ok {
				t.Fatal("not served")
			}
			b.Sending(node, 0)
			b.Unanswered(node, begin, over)
			b.ReadWithout(node, 5)
			if tc.again {
				b.Sending(node, 0)
			}
			b.Conclude(node, tc.at, tc.now)
			if got := b.nodes["n"].state; got != tc.want {
				t.Errorf("it is %v, want %v", got, tc.want)
			}
		})
	}
}

// A Node whose every write fails gives way to pending Nodes that can use its block, and to no others: those would wait all the same.
func TestGivesWayOnlyToWhoGains(t *testing.T) {
	for name, tc := range map[string]struct {
		other string // the label of the Node that is pending
		want  bool
	}{"its ClusterCIDR is full": {"x", true}, "another ClusterCIDR with the same addresses is full": {"y", true}, "another one is full": {"z", false}, "none selects it": {"none", false}} {
		t.Run(name, func(t *testing.T) {
			b, begin := New(), time.Unix(1000, 0)
			for pool, spec := range map[string]string{"x": "10.0.0.0/28", "y": "10.0.0.0/27", "z": "10.9.0.0/28"} {
				b.SetPool(clustercidr.Compile(ClusterCIDR(pool, Spec4(spec, 4, AnyOf(AllOf(In("p", pool)))))))
			}
			for _, n := range []*v1.Node{Node("n", Label("p", "x")), Node("y", Label("p", "y")), Node("z", Label("p", "z"))} {
				if _, ok, _ := b.Allocate(n); !ok {
					t.Fatalf("%s is not served", n.Name)
				}
			}
			b.Allocate(Node("other", Label("p", tc.other)))
			n := Node("n", Label("p", "x"))
			b.Sending(n, 0)
			b.Unanswered(n, begin, begin)
			if _, read := b.HoldBack(n, begin.Add(failureLasts), 0); read != tc.want {
				t.Errorf("it is held back until a read: %t, want %t", read, tc.want)
			}
			b.ReadWithout(n, 0)
			b.Conclude(n, begin.Add(failureLasts), Renewals{Proven: 1})
			if gaveWay := b.GiveWay(n, begin.Add(failureLasts)) > 0; gaveWay != tc.want {
				t.Errorf("it gave way: %t, want %t", gaveWay, tc.want)
			}
		})
	}
}

// A write of a block got no answer, and its ClusterCIDR is replaced by force with one of the same name and range. That is another one, which may not even
// select the Node: the write is not repeated, and once a read has shown that it was not carried out, the Node is allocated what it would be now.
func TestReplacedClusterCIDRIsAnotherOne(t *testing.T) {
	for name, tc := range map[string]struct {
		selects string
		served  bool
	}{"which selects the Node": {"y", true}, "which selects other Nodes": {"x", false}} {
		t.Run(name, func(t *testing.T) {
			b, begin, node := New(), time.Unix(1000, 0), Node("n", Label("p", "y"))
			over := begin.Add(10 * time.Second)
			b.SetPool(clustercidr.Compile(ClusterCIDR("a", Spec4("10.0.0.0/24", 4, nil))))
			if _, ok, _ := b.Allocate(node); !ok {
				t.Fatal("not served")
			}
			b.Sending(node, 0)
			b.Unanswered(node, begin, over)
			if wait, read := b.HoldBack(node, begin, 0); wait > 0 || read {
				t.Errorf("its ClusterCIDR is there: it waits for %v, or a read: %t", wait, read)
			}
			other := ClusterCIDR("a", Spec4("10.0.0.0/24", 4, AnyOf(AllOf(In("p", tc.selects)))))
			other.UID = "another"
			b.SetPool(clustercidr.Compile(other))
			if wait, read := b.HoldBack(node, begin, 0); wait != over.Sub(begin) || read {
				t.Errorf("its ClusterCIDR is gone: it waits for %v, want %v; for a read: %t", wait, over.Sub(begin), read)
			}
			if _, read := b.HoldBack(node, over, 0); !read {
				t.Error("it does not wait for a read when no write can be carried out any more")
			}
			if wait, read := b.HoldBack(node, over, 3); wait > 0 || read {
				t.Errorf("since a restore of etcd no read can tell: it waits for %v, or a read: %t", wait, read)
			}
			b.ReadWithout(node, 5)
			b.Conclude(node, over, Renewals{Sent: 6, Proven: 6})
			if r, ok, _ := b.Allocate(node); ok != tc.served {
				t.Errorf("served: %t, with %v, want %t", ok, r, tc.served)
			}
			if b.Sending(node, 0); !tc.served {
				return
			}
			if wait, read := b.HoldBack(node, over, 0); wait > 0 || read {
				t.Errorf("it has its block from the ClusterCIDR that is there: it waits for %v, or a read: %t", wait, read)
			}
		})
	}
}

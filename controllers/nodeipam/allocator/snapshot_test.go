package allocator

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	networkingv1 "github.com/multicidr/controller-manager/apis/networking/v1"
	"github.com/multicidr/controller-manager/controllers/internal/race"
	. "github.com/multicidr/controller-manager/controllers/nodeipam/internal/objects"
)

// TestSnapshotStays changes, in a state, all that becomes of a write. Whoever reads a copy of the state made before does so without the lock.
func TestSnapshotStays(t *testing.T) {
	b, n, now := New(), Node("n"), time.Unix(1000, 0)
	Set(ClusterCIDR("cc", Spec4("10.0.0.0/24", 8, nil)))(b)
	Reserve(n)(b)
	b.Unanswered(n, now, now.Add(time.Second))
	s := b.Snapshot()
	before, _ := s.State().Node("n")

	b.Written(n, now, false)
	b.Unanswered(n, now, now.Add(time.Minute))
	b.ReadWithout(n, 7)
	after, _ := s.State().Node("n")
	if diff := cmp.Diff(before, after, cmp.Comparer(func(x, y netip.Prefix) bool { return x == y })); diff != "" {
		t.Errorf("a copy changed with the state (-before +after):\n%s", diff)
	}
	if now, _ := b.Node("n"); !now.Stored || !now.Read {
		t.Errorf("the state did not change: %+v", now)
	}
}

// TestCopySaysTheSame makes histories, and now and then compares what a state says with what a copy of it says, which has counted everything
// anew: figures, statuses, findings, who uses what.
func TestCopySaysTheSame(t *testing.T) {
	for seed := range race.Part(uint64(20)) {
		t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) {
			w := newWorld(t, seed, map[string]int{})
			w.begin()
			for range 100 {
				for range 3 {
					w.move()
				}
				if diff := cmp.Diff(w.saidBy(w.b.Snapshot().State()), w.saidBy(w.b)); diff != "" {
					w.fail("a copy says something else (-copy +state):\n%s", diff)
				}
			}
		})
	}
}

// saidBy is all that a state says, by what it says it about.
func (w *world) saidBy(b *State) map[string]any {
	f := b.Figures()
	said := map[string]any{
		"holding": f.Holding, "sharing": f.Sharing, "out of range": f.OutOfRange, "pending": f.Pending, "states": f.States, "blockers": f.Blockers,
	}
	for name, cc := range w.clusterCIDRs {
		cc := cc.DeepCopy()
		cc.Status = networkingv1.ClusterCIDRStatus{}
		status, known := b.Status(cc)
		said["ClusterCIDR "+name] = []any{statusText(status), known, b.InUse(name), b.ranges.Alone(b.pools[name])}
	}
	for name, n := range w.nodes {
		said["Node "+name] = []any{b.Findings(n), fmt.Sprintf("%+v", viewOf(b, name))}
	}
	return said
}

func viewOf(b *State, name string) NodeView {
	v, _ := b.Node(name)
	return v
}

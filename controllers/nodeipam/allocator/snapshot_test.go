package allocator

import (
	"net/netip"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

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

package allocator

import (
	"testing"
	"time"

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

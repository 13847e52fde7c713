package lease

import (
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// The clock of a leader was set back by an hour, so the times of its renewals are ahead of all clocks. It dies, and ten minutes later another process takes the
// Lease. In between another allocator may have led, under another Lease.
func TestVacantAfterAClockWasSetBack(t *testing.T) {
	w := newWorld()
	for range 1800 {
		w.renew()
		w.wait(2 * time.Second)
	}
	w.setWall(-time.Hour)
	w.renew()
	last := w.sent[len(w.sent)-1]
	holder, seconds, transitions := "the one that died", int32(15), int32(0)
	w.wait(10 * time.Minute)

	next := newWorld()
	next.reading = w.reading
	next.fence.term.found(&coordinationv1.Lease{Spec: coordinationv1.LeaseSpec{
		HolderIdentity: &holder, LeaseDurationSeconds: &seconds, LeaseTransitions: &transitions, RenewTime: &metav1.MicroTime{Time: last.RenewTime.Time},
	}})
	next.fence.begin(Around{})
	if vacant := next.fence.Vacant(); vacant < time.Minute {
		t.Errorf("nobody held the Lease for 10m, and Vacant says %v", vacant)
	}
}

package lease

import (
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestVacantAfterALongLease: a leader with a lease of 40 seconds dies, and the next one takes the Lease as soon as it has run out. Nobody else could have had it
// for 30 seconds, and docs/operators/standalone.md says that there is no wait then.
func TestVacantAfterALongLease(t *testing.T) {
	var f Fence
	holder, seconds, transitions := "the one that died", int32(40), int32(0)
	f.term.found(&coordinationv1.Lease{Spec: coordinationv1.LeaseSpec{
		HolderIdentity: &holder, LeaseDurationSeconds: &seconds, LeaseTransitions: &transitions,
		RenewTime: &metav1.MicroTime{Time: time.Now().Add(-44 * time.Second)},
	}})
	f.begin()
	if vacant := f.Vacant(); vacant > 10*time.Second {
		t.Errorf("nobody held the Lease for %v, want 4s: the leader that died held it for 40s after its last renewal", vacant)
	}
}

package claims

import (
	"cmp"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/multicidr/controller-manager/controllers/clusteripam/contract"
	"github.com/multicidr/controller-manager/controllers/clusteripam/runner"
)

// Moved knows from which objects clusterctl takes away what belongs to them. It deletes an owner after what it owns, and a pool that was made again in between
// would give waiting machines the addresses that machines of the other cluster use. The zero value knows none. Safe for concurrent use.
type Moved struct{ owners sync.Map }

// See notes a change of an object for its owners: that clusterctl is about to delete it, or that somebody has taken back its mark. before is nil for a new object, now for
// one that is gone.
func See[T any, P runner.Pointer[T]](m *Moved, before, now P) {
	last := cmp.Or(now, before)
	for _, r := range last.GetOwnerReferences() {
		if contract.GoingAway(last) {
			m.owners.Store(r.UID, nil)
		} else if before != nil && contract.GoingAway(before) {
			m.owners.Delete(r.UID)
		}
	}
}

// From reports whether something that belongs to owner was moved, so that nothing is made for it here any more.
func (m *Moved) From(owner metav1.Object) bool {
	_, ok := m.owners.Load(owner.GetUID())
	return ok
}

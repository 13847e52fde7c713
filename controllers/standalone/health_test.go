package standalone

import (
	"context"
	"errors"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

// answers is a Lease whose requests end as they are told to.
type answers struct {
	resourcelock.Interface
	get, create, update error
}

func (a *answers) Get(context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	return nil, nil, a.get
}
func (a *answers) Create(context.Context, resourcelock.LeaderElectionRecord) error { return a.create }
func (a *answers) Update(context.Context, resourcelock.LeaderElectionRecord) error { return a.update }
func (a *answers) Describe() string                                                { return "ns/lease" }

// A process that cannot make its Lease cannot lead, though it reads each time that there is none.
func TestReadyWithoutALease(t *testing.T) {
	gone := apierrors.NewNotFound(schema.GroupResource{Resource: "leases"}, "lease")
	noNamespace := apierrors.NewNotFound(schema.GroupResource{Resource: "namespaces"}, "ns")
	lock := &answers{}
	h := newHealth(true, "")
	watched := h.watch(lock)
	get := func() { _, _, _ = watched.Get(t.Context()) }
	create := func() { _ = watched.Create(t.Context(), resourcelock.LeaderElectionRecord{}) }
	update := func() { _ = watched.Update(t.Context(), resourcelock.LeaderElectionRecord{}) }
	for _, step := range []struct {
		what  string
		do    func()
		ready bool
	}{
		{"nothing was asked yet", func() {}, false},
		{"there is none", func() { lock.get = gone; get() }, false},
		{"none can be made", func() { lock.create = noNamespace; create() }, false},
		{"there is still none", get, false},
		{"one is made", func() { lock.create = nil; create() }, true},
		{"somebody else was faster", func() { lock.create = apierrors.NewAlreadyExists(schema.GroupResource{}, "lease"); create() }, true},
		{"it cannot be read", func() { lock.get = errors.New("no answer"); get() }, false},
		{"it can", func() { lock.get = nil; get() }, true},
		{"it was deleted", func() { lock.update = gone; update() }, true},
	} {
		if step.do(); (h.checkLease(nil) == nil) != step.ready {
			t.Errorf("%s: the check says %v", step.what, h.checkLease(nil))
		}
	}
}

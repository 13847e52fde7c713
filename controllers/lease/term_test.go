package lease

import (
	"context"
	"maps"
	"testing"
	"testing/synctest"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

func TestPredecessor(t *testing.T) {
	transitions := func(n int32) *coordinationv1.Lease {
		return &coordinationv1.Lease{Spec: coordinationv1.LeaseSpec{LeaseTransitions: &n}}
	}
	labelled := func(l *coordinationv1.Lease, term string) *coordinationv1.Lease {
		l.Labels = map[string]string{LabelTerm: term}
		return l
	}
	coordinated := func(l *coordinationv1.Lease) *coordinationv1.Lease {
		strategy := coordinationv1.OldestEmulationVersion
		l.Spec.Strategy = &strategy
		return l
	}
	for name, tc := range map[string]struct {
		found *coordinationv1.Lease
		want  Predecessor
	}{
		"there was no Lease":                           {nil, NoPredecessor},
		"no label":                                     {transitions(3), OtherPredecessor},
		"the label is of the last term":                {labelled(transitions(3), "3"), FencedPredecessor},
		"the label is of an earlier term":              {labelled(transitions(4), "3"), OtherPredecessor},
		"the label is of a Lease that was recreated":   {labelled(transitions(0), "3"), OtherPredecessor},
		"the first term":                               {labelled(transitions(0), "0"), FencedPredecessor},
		"the label is nonsense":                        {labelled(transitions(3), "three"), OtherPredecessor},
		"the Lease has no number of transitions":       {labelled(&coordinationv1.Lease{}, "0"), OtherPredecessor},
		"coordinated: terms are not counted":           {labelled(coordinated(transitions(3)), "3"), OtherPredecessor},
		"coordinated: the API server made it just now": {coordinated(&coordinationv1.Lease{}), OtherPredecessor},
	} {
		t.Run(name, func(t *testing.T) {
			if got := predecessorOf(tc.found); got != tc.want {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
}

// TestTermOnTheLease runs several of client-go's own electors, with client-go's own lock, one after the other. Each must know who led before it.
func TestTermOnTheLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := fake.NewClientset()
		// Wrapped as in package standalone.
		ours := func(identity string) *lead { return leadNext(t, client, identity, true) }
		stock := func(identity string) *lead { return leadNext(t, client, identity, false) }

		first := ours("first")
		first.want(t, NoPredecessor)
		if label := termLabel(t, client); label != "" {
			t.Errorf("nobody has called Mark, and the label is %q", label)
		}
		first.fence.Mark()
		time.Sleep(time.Minute)
		if label := termLabel(t, client); label != "0" {
			t.Errorf("after Mark and renewals the label is %q, want 0", label)
		}
		first.end()

		second := ours("second")
		second.want(t, FencedPredecessor)
		if led := second.fence.Led(); led != 0 {
			t.Errorf("has led for %v, want 0: no time has passed", led)
		}
		if vacant := second.fence.Vacant(); vacant > 5*time.Second {
			t.Errorf("the Lease was vacant for %v: it was released a moment ago", vacant)
		}
		time.Sleep(10 * time.Second)
		if led := second.fence.Led(); led != 10*time.Second {
			t.Errorf("has led for %v, want 10s", led)
		}
		second.end() // without Mark: it may have ended while it waited

		third := ours("third")
		third.want(t, OtherPredecessor)
		third.fence.Mark()
		third.end() // before a renewal: the release carries the label

		fourth := ours("fourth")
		fourth.want(t, FencedPredecessor)
		fourth.fence.Mark()
		time.Sleep(time.Minute)
		fourth.end()
		time.Sleep(time.Hour)
		later := ours("later")
		later.want(t, FencedPredecessor)
		if vacant := later.fence.Vacant(); vacant < time.Hour-5*time.Second || vacant > time.Hour+5*time.Second {
			t.Errorf("the Lease was vacant for %v, want an hour", vacant)
		}
		later.fence.Mark()
		later.end()

		// Other programs neither set nor remove the label.
		before := termLabel(t, client)
		stock("stock").end()
		if label := termLabel(t, client); label != before {
			t.Errorf("the label changed from %q to %q", before, label)
		}
		fifth := ours("fifth")
		fifth.want(t, OtherPredecessor)
		fifth.end()
	})
}

// TestTermAfterALostAnswer loses the answer of the first write of a leader.
func TestTermAfterALostAnswer(t *testing.T) {
	for name, verb := range map[string]string{"of its creation": "create", "of its update": "update"} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				client := fake.NewClientset()
				want := NoPredecessor
				if verb == "update" {
					before := leadNext(t, client, "before", true)
					before.fence.Mark()
					before.end()
					want = FencedPredecessor
				}
				lost := 1
				client.PrependReactor(verb, "leases", func(action clienttesting.Action) (bool, runtime.Object, error) {
					if lost--; lost != 0 {
						return false, nil, nil
					}
					// The write is carried out. Fakes keep no resource versions.
					object := action.(clienttesting.CreateAction).GetObject()
					var err error
					if verb == "create" {
						err = client.Tracker().Create(action.GetResource(), object, action.GetNamespace())
					} else {
						err = client.Tracker().Update(action.GetResource(), object, action.GetNamespace())
					}
					if err != nil {
						t.Error(err)
					}
					return true, nil, apierrors.NewInternalError(errLost)
				})
				l := leadNext(t, client, "we", true)
				l.want(t, want)
				l.end()
				if lost > 0 {
					t.Error("no answer was lost")
				}
			})
		})
	}
}

// A lock without labels tells nothing, and a fence without a lock has no predecessor.
func TestPredecessorUnknown(t *testing.T) {
	_, fence := Wrap(&memoryLock{lease: &memoryLease{}, identity: "we"})
	if got := fence.Predecessor(); got != OtherPredecessor {
		t.Errorf("with a lock that is no LeaseLock: got %q, want %q", got, OtherPredecessor)
	}
	fence = &Fence{}
	fence.Mark()
	if got, led := fence.Predecessor(), fence.Led(); got != NoElection || led != 0 {
		t.Errorf("without leader election: got %q and %v, want %q and 0", got, led, NoElection)
	}
}

// lead is a process that is the leader.
type lead struct {
	fence *Fence // nil without Wrap
	end   func() // returns when the Lease is released
}

func (l *lead) want(t *testing.T, want Predecessor) {
	t.Helper()
	if got := l.fence.Predecessor(); got != want {
		t.Errorf("the predecessor is %q, want %q", got, want)
	}
}

// leadNext returns when the process with this name is the leader.
func leadNext(t *testing.T, client kubernetes.Interface, identity string, fenced bool) *lead {
	t.Helper()
	var lock resourcelock.Interface = &resourcelock.LeaseLock{
		LeaseMeta:  metav1.ObjectMeta{Namespace: "kube-system", Name: "test"},
		Client:     client.CoordinationV1(),
		LockConfig: resourcelock.ResourceLockConfig{Identity: identity},
	}
	l := &lead{}
	if fenced {
		lock, l.fence = Wrap(watched{lock})
	}
	ctx, cancel := context.WithCancel(t.Context())
	leads, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		elect(ctx, lock, func() { close(leads) })
	}()
	<-leads
	l.end = func() {
		cancel()
		<-ended
	}
	return l
}

// watched is a lock that wraps a lock, as in package standalone.
type watched struct{ resourcelock.Interface }

func (w watched) Unwrap() resourcelock.Interface { return w.Interface }

func termLabel(t *testing.T, client kubernetes.Interface) string {
	t.Helper()
	lease, err := client.CoordinationV1().Leases("kube-system").Get(t.Context(), "test", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return lease.Labels[LabelTerm]
}

// Nobody but this controller holds its Lease, and other allocators can have held the one around it. Each case is the leader that took the Lease
// around it in term 7, as the last one wrote the labels.
func TestPredecessorInside(t *testing.T) {
	around := func(transitions int) Around { return Around{UID: "u", Transitions: transitions, Expires: time.Now()} }
	labels := func(around string) *coordinationv1.Lease {
		transitions := int32(3)
		return &coordinationv1.Lease{
			ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{LabelTerm: "3", LabelAround: around}},
			Spec:       coordinationv1.LeaseSpec{LeaseTransitions: &transitions},
		}
	}
	unfenced := labels("u.7")
	unfenced.Labels[LabelTerm] = "2"
	old := labels("")
	delete(old.Labels, LabelAround)
	for name, tc := range map[string]struct {
		found  *coordinationv1.Lease
		around Around
		want   Predecessor
	}{
		"it took the Lease around it from the last leader":     {labels("u.6"), around(7), FencedPredecessor},
		"it is the last leader, under another identity":        {labels("u.7"), around(7), FencedPredecessor},
		"somebody else held the Lease around it in between":    {labels("u.5"), around(7), OtherPredecessor},
		"the Lease around it was made anew":                    {labels("v.6"), around(7), OtherPredecessor},
		"the Lease around it is an earlier one, from a backup": {labels("u.8"), around(7), OtherPredecessor},
		"the last leader did not know, or was inside of none":  {old, around(7), OtherPredecessor},
		"the last leader had not waited":                       {unfenced, around(7), OtherPredecessor},
		"it made its Lease, and took the one around it":        {nil, around(7), OtherPredecessor},
		"it made both": {nil, around(0), NoPredecessor},
		"inside of none, whatever an earlier one was inside of": {labels("u.6"), Around{}, FencedPredecessor},
	} {
		t.Run(name, func(t *testing.T) {
			var f Fence
			f.term.predecessor = OtherPredecessor
			f.term.found(tc.found)
			f.begin(tc.around)
			if got := f.Predecessor(); got != tc.want {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
}

// A leader writes the term of the Lease around it together with its own, and not before it has waited.
func TestLabelAround(t *testing.T) {
	var f Fence
	lock := &resourcelock.LeaseLock{}
	f.begin(Around{UID: "u", Transitions: 7})
	f.term.label(lock, resourcelock.LeaderElectionRecord{LeaderTransitions: 3})
	if len(lock.Labels) > 0 {
		t.Errorf("before Mark the labels are %v", lock.Labels)
	}
	f.Mark()
	f.term.label(lock, resourcelock.LeaderElectionRecord{LeaderTransitions: 3})
	if want := map[string]string{LabelTerm: "3", LabelAround: "u.7"}; !maps.Equal(lock.Labels, want) {
		t.Errorf("the labels are %v, want %v", lock.Labels, want)
	}
}

// A leader with a lease of 40 seconds dies, and the next one takes the Lease as soon as it has run out: until then somebody held it.
func TestVacantAfterALongLease(t *testing.T) {
	var f Fence
	holder, seconds, transitions := "the one that died", int32(40), int32(0)
	f.term.found(&coordinationv1.Lease{Spec: coordinationv1.LeaseSpec{
		HolderIdentity: &holder, LeaseDurationSeconds: &seconds, LeaseTransitions: &transitions,
		RenewTime: &metav1.MicroTime{Time: time.Now().Add(-44 * time.Second)},
	}})
	f.begin(Around{})
	if vacant := f.Vacant(); vacant > 10*time.Second {
		t.Errorf("nobody held the Lease for %v, want 4s: the leader that died held it for 40s after its last renewal", vacant)
	}
}

package lease

import (
	"context"
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
	_, fence := wrap(&memoryLock{lease: &memoryLease{}, identity: "we"}, Clocks{})
	if got := fence.Predecessor(); got != OtherPredecessor {
		t.Errorf("with a lock that is no LeaseLock: got %q, want %q", got, OtherPredecessor)
	}
	fence = Unelected(Clocks{})
	fence.Mark()
	if got := fence.Predecessor(); got != NoElection {
		t.Errorf("without leader election: got %q, want %q", got, NoElection)
	}
}

// lead is a process that is the leader.
type lead struct {
	fence *Fence // nil without wrap
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
		lock, l.fence = wrap(lock, Clocks{})
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

func termLabel(t *testing.T, client kubernetes.Interface) string {
	t.Helper()
	lease, err := client.CoordinationV1().Leases("kube-system").Get(t.Context(), "test", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return lease.Labels[LabelTerm]
}

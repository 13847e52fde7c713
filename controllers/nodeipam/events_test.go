package nodeipam

import (
	"slices"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
)

// TestEventsAreSaidOnce: what was said about an object is not said again, until it changes.
func TestEventsAreSaidOnce(t *testing.T) {
	client := fake.NewSimpleClientset()
	written := make(chan string, 100)
	client.PrependReactor("*", "events", func(action clienttesting.Action) (bool, runtime.Object, error) {
		if create, ok := action.(clienttesting.CreateAction); ok {
			event := create.GetObject().(*v1.Event)
			written <- event.InvolvedObject.Name + ": " + event.Reason + ", " + event.Message
		} else {
			written <- action.GetVerb()
		}
		return false, nil, nil
	})
	e := newEvents(client)
	defer e.start()()
	a, b := nodeReference("a", "1"), nodeReference("b", "2")
	e.tell(a, "Full", "two are full")
	e.tell(a, "Full", "two are full")
	e.tell(b, "Full", "two are full")
	e.tell(a, "Full", "one is full, one is disabled")
	e.tell(a, "Conflict", "full")
	e.tell(a, "Conflict", "full")
	e.tell(nodeReference("a", "3"), "Full", "one is full, one is disabled")
	var got []string
	want := []string{"a: Full, two are full", "b: Full, two are full", "a: Full, one is full, one is disabled", "a: Conflict, full", "a: Full, one is full, one is disabled"}
	for range want {
		got = append(got, <-written)
	}
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

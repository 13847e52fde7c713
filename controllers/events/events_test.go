package events

import (
	"slices"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
)

// TestSaidOnce: what was said about an object is not said again, until it changes.
func TestSaidOnce(t *testing.T) {
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
	w := New(client, "c")
	defer w.Start()()
	of := func(name string, uid types.UID) v1.ObjectReference {
		return v1.ObjectReference{Kind: "Node", Name: name, UID: uid}
	}
	a, b := of("a", "1"), of("b", "2")
	w.Warn(a, "Full", "two are full")
	w.Warn(a, "Full", "two are full")
	w.Warn(b, "Full", "two are full")
	w.Warn(a, "Full", "one is full, one is disabled")
	w.Warn(a, "Conflict", "full")
	w.Warn(a, "Conflict", "full")
	w.Warn(of("a", "3"), "Full", "one is full, one is disabled")
	var got []string
	want := []string{"a: Full, two are full", "b: Full, two are full", "a: Full, one is full, one is disabled", "a: Conflict, full", "a: Full, one is full, one is disabled"}
	for range want {
		got = append(got, <-written)
	}
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

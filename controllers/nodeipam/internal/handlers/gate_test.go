package handlers

import (
	"slices"
	"testing"
	"testing/synctest"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/cache"
)

// TestEnd: an event that is being handled is handled to its end, and those behind it, or later, are not. Each version of client-go does its part
// of that differently, so it is a real informer.
func TestEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gate := NewGate()
		var heard []string
		begun, goOn := make(chan bool, 10), make(chan bool)
		client := fake.NewClientset(&v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "a"}})
		factory := informers.NewSharedInformerFactory(client, 0)
		informer := factory.Core().V1().Nodes().Informer()
		handler, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: func(added any) {
			begun <- true
			gate.Pass(func() {
				<-goOn
				heard = append(heard, added.(*v1.Node).Name)
			})
		}})
		if err != nil {
			t.Fatal(err)
		}
		factory.Start(t.Context().Done())
		<-begun
		add := func(name string) {
			if _, err := client.CoreV1().Nodes().Create(t.Context(), &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{}); err != nil {
				t.Error(err)
			}
		}
		ended := make(chan error, 1)
		go func() { ended <- gate.End(informer, handler) }()
		synctest.Wait()
		add("b")
		select {
		case err := <-ended:
			t.Fatalf("ended (error %v) while an event was being handled", err)
		default:
		}
		close(goOn)
		if err := <-ended; err != nil {
			t.Fatal(err)
		}
		add("c")
		synctest.Wait()
		if !slices.Equal(heard, []string{"a"}) {
			t.Errorf("heard of %q, want only of a", heard)
		}
		gate.Pass(func() { t.Error("an event passes after the end") })
	})
}

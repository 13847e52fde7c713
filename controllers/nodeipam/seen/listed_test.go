package seen

import (
	"slices"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Nodes that waited go on in the order of their age, however they are called, and however often they have to wait.
func TestWakesOldestFirst(t *testing.T) {
	l := NewListed()
	for range 2 {
		for name, second := range map[string]int64{"a": 3, "b": 2, "c": 1, "d": 2} {
			l.Wait(&v1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, CreationTimestamp: metav1.Unix(second, 0)}})
		}
		if got, want := l.Wake(), []string{"c", "b", "d", "a"}; !slices.Equal(got, want) {
			t.Errorf("they go on as %v, want %v", got, want)
		}
		if got := l.Wake(); len(got) > 0 {
			t.Errorf("%v still wait", got)
		}
	}
}

package parallel

import (
	"sync/atomic"
	"testing"
)

func TestInParallel(t *testing.T) {
	for _, n := range []int{0, 1, 2, 3, 100} {
		calls := make([]atomic.Int32, n)
		Each(n, func(i int) { calls[i].Add(1) })
		for i := range calls {
			if got := calls[i].Load(); got != 1 {
				t.Errorf("of %d, %d was called %d times", n, i, got)
			}
		}
	}
}

// A panic in a part reaches the caller, who is prepared, and only once all parts have ended.
func TestPanicInAPart(t *testing.T) {
	var ended atomic.Bool
	defer func() {
		if got := recover(); got != "a defect" {
			t.Errorf("the caller gets %v, want the panic", got)
		}
		if !ended.Load() {
			t.Error("a part goes on while the caller does")
		}
	}()
	SideBySide(func() { panic("a defect") }, func() { ended.Store(true) })
}

// Package parallel runs the parts of a computation concurrently, and passes a panic in one of them to the caller.
package parallel

import (
	"runtime"
	"runtime/debug"
	"sync"

	"k8s.io/klog/v2"
)

// Each calls f for every index below n, on all processors, and returns when all calls have returned. A panic in f becomes a panic of the
// caller, which can recover it; with workqueue.ParallelizeUntil it would end the process.
func Each(n int, f func(i int)) {
	chunk := max((n+runtime.GOMAXPROCS(0)-1)/runtime.GOMAXPROCS(0), 1)
	var parts []func()
	for begin := 0; begin < n; begin += chunk {
		parts = append(parts, func() {
			for i := begin; i < min(begin+chunk, n); i++ {
				f(i)
			}
		})
	}
	SideBySide(parts...)
}

// SideBySide calls all parts concurrently and returns when all have returned. A panic in one of them becomes a panic of the caller.
func SideBySide(parts ...func()) {
	var (
		wg     sync.WaitGroup
		first  sync.Once
		broken any
	)
	for _, part := range parts {
		wg.Go(func() {
			defer func() {
				if r := recover(); r != nil {
					first.Do(func() {
						broken = r
						klog.Background().Error(nil, "Panic in a part", "panic", r, "stack", string(debug.Stack())) // The caller's stack does not show it.
					})
				}
			}()
			part()
		})
	}
	wg.Wait()
	if broken != nil {
		panic(broken)
	}
}

//go:build !linux

package lease

import "time"

// sinceBoot returns the monotonic clock: there is no boot clock that Go can read.
func sinceBoot(monotonic time.Duration) time.Duration { return monotonic }

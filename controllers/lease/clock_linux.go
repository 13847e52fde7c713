package lease

import (
	"time"

	"golang.org/x/sys/unix"
)

// sinceBoot returns what the boot clock shows.
func sinceBoot(monotonic time.Duration) time.Duration {
	var t unix.Timespec
	if unix.ClockGettime(unix.CLOCK_BOOTTIME, &t) != nil { // Linux has this clock since 2.6.39.
		return monotonic
	}
	return time.Duration(t.Nano())
}

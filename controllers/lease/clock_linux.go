package lease

import (
	"time"

	"golang.org/x/sys/unix"
)

// suspended returns for how long the machine has been suspended since it was started: the difference of two clocks, one of which stands still
// meanwhile. The thread may lose its processor between two looks, so it looks again if they are far apart.
func suspended() (d time.Duration) {
	for range 5 {
		before, monotonic, after := clock(unix.CLOCK_BOOTTIME), clock(unix.CLOCK_MONOTONIC), clock(unix.CLOCK_BOOTTIME)
		d = before - monotonic
		if after-before < time.Millisecond {
			break
		}
	}
	return d
}

func clock(id int32) time.Duration {
	var t unix.Timespec
	if unix.ClockGettime(id, &t) != nil {
		return 0
	}
	return time.Duration(t.Nano())
}

package lease

import "time"

// reading is the time on both clocks of the machine.
type reading struct {
	wall      time.Time     // without a monotonic part
	monotonic time.Duration // since any fixed moment
}

var processStart = time.Now()

func readClocks() reading {
	now := time.Now()
	return reading{wall: now.Round(0), monotonic: now.Sub(processStart)}
}

// until returns the time from r to now, by the clock that shows more. The monotonic clock stops while the machine is suspended, and the
// wall clock may be set back. If until returns too much, writes only pause until the next renewal.
func (r reading) until(now reading) time.Duration {
	return max(now.monotonic-r.monotonic, now.wall.Sub(r.wall))
}

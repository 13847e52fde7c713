package lease

import "time"

// reading is the time on the clocks of the machine.
type reading struct {
	wall      time.Time     // without a monotonic part
	monotonic time.Duration // since any fixed moment
	suspended time.Duration // for how long the machine was suspended before; 0 where the system does not tell
}

var processStart = time.Now()

func readClocks() reading {
	now := time.Now()
	return reading{wall: now.Round(0), monotonic: now.Sub(processStart), suspended: suspended()}
}

// until returns the time from r to now, by the clock that shows more. The monotonic clock stops while the machine is suspended, and the
// wall clock may be set back, after a suspension too. If until returns too much, writes only pause until the next renewal.
func (r reading) until(now reading) time.Duration {
	return max(now.monotonic-r.monotonic+max(0, now.suspended-r.suspended), now.wall.Sub(r.wall))
}

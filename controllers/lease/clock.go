package lease

import "time"

// reading is what both clocks of the machine show.
type reading struct {
	wall      time.Time     // without a monotonic part
	monotonic time.Duration // since any fixed moment
}

var processStart = time.Now()

func readClocks() reading {
	now := time.Now()
	return reading{wall: now.Round(0), monotonic: now.Sub(processStart)}
}

// until is how long it took from r to now by the clock that says more. The monotonic clock stands still while the machine is suspended,
// and somebody may set the wall clock back; too much elapsed time only costs a pause until the next renewal.
func (r reading) until(now reading) time.Duration {
	return max(now.monotonic-r.monotonic, now.wall.Sub(r.wall))
}

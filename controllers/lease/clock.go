package lease

import "time"

// Clocks reads the clocks of a machine. The zero value reads the clocks of this machine. Simulations have their own.
type Clocks struct {
	// Read returns the wall clock; the boot clock, which goes on while the machine is suspended; and the monotonic clock, which stands still then.
	// boot and monotonic count from any fixed moment. Read must be safe for concurrent use.
	Read func() (wall time.Time, boot, monotonic time.Duration)
}

// reading is what the clocks show at one moment.
type reading struct {
	wall            time.Time // without a monotonic part
	boot, monotonic time.Duration
}

var processStart = time.Now()

func (c Clocks) now() (r reading) {
	if c.Read != nil {
		r.wall, r.boot, r.monotonic = c.Read()
		return r
	}
	now := time.Now()
	r.wall, r.monotonic = now.Round(0), now.Sub(processStart)
	r.boot = sinceBoot(r.monotonic)
	return r
}

// until returns the time from r to now by the clock that shows more. Where a system has no boot clock, the wall clock shows a suspension. If until
// returns too much, because a wall clock was set forward, writes only pause until the next renewal.
func (r reading) until(now reading) time.Duration {
	return max(now.boot-r.boot, now.wall.Sub(r.wall))
}

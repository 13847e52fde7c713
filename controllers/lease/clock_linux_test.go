package lease

import (
	"testing"
	"time"
)

// Linux has a boot clock, which shows at least as much time as the monotonic one.
func TestBootClock(t *testing.T) {
	before := Clocks{}.now()
	time.Sleep(10 * time.Millisecond)
	after := Clocks{}.now()
	// The three clocks are read one after the other, and the process may lose its processor in between.
	if passed := after.boot - before.boot; before.boot == before.monotonic || passed < 9*time.Millisecond {
		t.Errorf("the boot clock showed %v, and %v later", before.boot, passed)
	}
}

package lease

import (
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestSuspended: both clocks exist here, and no suspension is seen where there was none.
func TestSuspended(t *testing.T) {
	if clock(unix.CLOCK_BOOTTIME) <= 0 || clock(unix.CLOCK_MONOTONIC) <= 0 {
		t.Fatal("there is no such clock")
	}
	begun, before := time.Now(), suspended()
	for range 1000 {
		// If the machine was suspended during the test, the wall clock says so.
		if more := suspended() - before; more > time.Since(begun.Round(0))+time.Second || more < -time.Second {
			t.Fatalf("the machine was suspended for another %v", more)
		}
	}
}

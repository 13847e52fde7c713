package pace

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// TestPace: an object that is written again and again costs little, and no other object feels it.
func TestPace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var p Pace
		patch := func(uid types.UID) bool {
			return p.Permits(fmt.Appendf(nil, `{"metadata": {"uid": %q}, "status": null}`, uid))
		}
		for i := range 3600 {
			if !patch("pool") {
				t.Fatalf("the status of a pool was not written after %d s", i)
			}
			time.Sleep(time.Second)
		}
		sent := 0
		for range 6_000 {
			if patch("restless") {
				sent++
			}
			time.Sleep(10 * time.Millisecond)
		}
		if most := patchesAtOnce + 60*patchesPerSecond; sent < patchesAtOnce || sent > most {
			t.Errorf("%d patches of one object in a minute, want %d to %d", sent, patchesAtOnce, most)
		}
		if !patch("another") {
			t.Error("another object may not be patched")
		}
		if time.Sleep(restlessPause); !patch("restless") {
			t.Error("an object is left alone for ever")
		}
		for i := range 20_000 {
			patch(types.UID(fmt.Sprint(i)))
			time.Sleep(10 * time.Millisecond)
		}
		if len(p.objects) > 5_000 {
			t.Errorf("%d objects are remembered", len(p.objects))
		}
	})
}

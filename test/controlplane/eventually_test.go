package controlplane

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// What fails for a while is waited for; what fails until the end is told, and not that the last try was cut off.
func TestEventually(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begin, early := time.Now(), errors.New("too early")
		after := func(d time.Duration) func(context.Context) error {
			return func(ctx context.Context) error {
				switch passed := time.Since(begin); {
				case passed > d:
					return nil
				case passed > 2*time.Second:
					<-ctx.Done()
					return ctx.Err()
				default:
					return early
				}
			}
		}
		if err := Eventually(t.Context(), time.Minute, after(time.Second)); err != nil {
			t.Error(err)
		}
		if err := Eventually(t.Context(), time.Minute, after(time.Hour)); !errors.Is(err, early) {
			t.Errorf("got %v, want %v", err, early)
		}
	})
}

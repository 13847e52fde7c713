package controlplane

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
)

// Eventually calls condition, with a context that ends after the time, until it returns nil. Otherwise it returns the last error of a call
// that was not cut off, since that of one that was says nothing.
func Eventually(ctx context.Context, within time.Duration, condition func(context.Context) error) error {
	var last error
	err := wait.PollUntilContextTimeout(ctx, 20*time.Millisecond, within, true, func(ctx context.Context) (bool, error) {
		err := condition(ctx)
		if err == nil || last == nil || ctx.Err() == nil {
			last = err
		}
		return err == nil, nil
	})
	if err != nil {
		return fmt.Errorf("after %s: %w", within, last)
	}
	return nil
}

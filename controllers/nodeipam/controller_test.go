package nodeipam

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/multicidr/controller-manager/controllers/lease"
	"github.com/multicidr/controller-manager/controllers/queues"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/ktesting"
)

// It is not the object's fault, so there is neither an error in the log nor an ever longer wait.
func TestClosedFenceIsNoFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		logger := ktesting.NewLogger(t, ktesting.NewConfig(ktesting.BufferLogs(true), ktesting.Verbosity(0)))
		ctx := klog.NewContext(t.Context(), logger)
		queue := queues.New[string]("test", queues.RetryMax)
		defer queue.ShutDown()
		queue.Add("n")
		start := time.Now()
		var tries []time.Duration
		for range 5 {
			queues.WorkOne(ctx, queue, func(context.Context, string) error {
				tries = append(tries, time.Since(start))
				return fmt.Errorf("patch podCIDRs of Node n: %w", lease.ErrClosed)
			})
		}
		want := []time.Duration{0, 1 * time.Second, 2 * time.Second, 3 * time.Second, 4 * time.Second}
		if diff := cmp.Diff(want, tries); diff != "" {
			t.Errorf("tries (-want +got):\n%s", diff)
		}
		if got := logger.GetSink().(ktesting.Underlier).GetBuffer().String(); got != "" {
			t.Errorf("logged:\n%s", got)
		}
	})
}
